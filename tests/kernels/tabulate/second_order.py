"""Second derivatives against central differences, for every input of an operator."""

import torch
from torch import Tensor

STEP = {torch.float64: 1e-6, torch.float32: 1e-2}
TOLERANCE = {torch.float64: 1e-6, torch.float32: 5e-3}


def check_second_order(function, inputs, *, directions=3, seed=1):
    """Compare the second derivatives of a function with differences of the first ones.

    The first gradients, for a random cotangent of the result, are projected on random
    weights. The gradient of this number by the cotangent and by every input is compared
    with its central differences along random directions.

    Args:
        function: maps the inputs to a tensor.
        inputs: leaves that need gradients, float32 or float64.
        directions: number of directions per input.
        seed: of the random numbers.

    Raises:
        AssertionError: a derivative is off by more than the tolerance of the dtype,
            relative to the largest derivative of that input.
    """
    generator = torch.Generator().manual_seed(seed)

    def random_like(tensor: Tensor) -> Tensor:
        numbers = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
        return numbers.to(tensor)

    result = function(*inputs)
    cotangent = random_like(result).requires_grad_()
    weights = [random_like(tensor) for tensor in inputs]
    points = [cotangent, *inputs]

    def projection(cotangent, *inputs, create_graph=False):
        first = torch.autograd.grad(
            function(*inputs), inputs, cotangent, create_graph=create_graph
        )
        return sum((w * g).sum() for w, g in zip(weights, first, strict=True))

    second = torch.autograd.grad(
        projection(*points, create_graph=True), points, materialize_grads=True
    )
    for place, (point, gradient) in enumerate(zip(points, second, strict=True)):
        step, tolerance = STEP[point.dtype], TOLERANCE[point.dtype]
        for _ in range(directions):
            direction = random_like(point).sign()
            ends = []
            for sign in (1, -1):
                shifted = [p.detach().clone() for p in points]
                shifted[place] += sign * step * direction
                ends.append(projection(*[p.requires_grad_() for p in shifted]).item())
            difference = (ends[0] - ends[1]) / (2 * step)
            analytic = (gradient * direction).sum().item()
            scale = gradient.abs().max().item() * point.numel() ** 0.5
            assert abs(analytic - difference) <= tolerance * scale, (
                f"derivative {place}: {analytic} against {difference}"
            )
