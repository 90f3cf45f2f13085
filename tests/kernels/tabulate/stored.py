"""Comparison of an implementation with the stored cases."""

import torch

from .problems import deviation


def check_stored_float32(case, problem, tolerance):
    """Value and first gradients against results computed in float32."""
    cotangent = _tensors(case, problem, ["in.dy"])[0]
    value = problem(*problem.inputs)
    first = torch.autograd.grad(value, problem.inputs, cotangent)
    keys = ["op.y_f32"] + [f"op.g_{name}_f32" for name in case.names]
    _compare(case, problem, keys, (value, *first), tolerance)


def check_stored(case, problem, tolerance):
    """Value, first gradients, and the gradient of a projection of them."""
    cotangent, *weights = _tensors(
        case, problem, ["in.dy"] + [f"in.h_{name}" for name in case.names]
    )
    cotangent.requires_grad_()
    value = problem(*problem.inputs)
    first = torch.autograd.grad(value, problem.inputs, cotangent, create_graph=True)
    projection = sum((w * g).sum() for w, g in zip(weights, first, strict=True))
    second = torch.autograd.grad(projection, (cotangent, *problem.inputs))
    keys = ["op.y"] + [f"op.g_{name}" for name in case.names]
    keys += ["op.gg_dy"] + [f"ref.gg_{name}" for name in case.names]
    _compare(case, problem, keys, (value, *first, *second), tolerance)


def _tensors(case, problem, keys):
    table = problem.table
    return [case.tensor(key, table.dtype, table.device) for key in keys]


def _compare(case, problem, keys, results, tolerance):
    expected = _tensors(case, problem, keys)
    for key, result, target in zip(keys, results, expected, strict=True):
        assert deviation(result, target) <= tolerance, key
