"""Bad calls get one sentence before anything runs."""

import pytest
import torch
from dp_calc.kernels import tabulate
from dp_calc.kernels.tabulate import Domain, reference
from dp_calc.kernels.tabulate.select import choose

from .problems import OPERATORS, call, random_problem


@pytest.fixture(params=OPERATORS)
def problem(request):
    return random_problem(request.param)


def refuse(problem, match, *, table=None, info=None, inputs=None, **options):
    table = problem.table if table is None else table
    info = problem.info if info is None else info
    inputs = problem.inputs if inputs is None else inputs
    with pytest.raises(ValueError, match=match) as caught:
        call(problem.operator, table, info, inputs, **options)
    assert "\n" not in str(caught.value)


def test_table_of_another_width(problem):
    with pytest.raises(ValueError, match="table must have shape"):
        tabulate.se_r(problem.table[:, :-1], problem.info, problem.inputs[0], 2)


@pytest.mark.parametrize("K", [0, -1, 2.0, None])
def test_channel_count(K):
    problem = random_problem("se_r")
    with pytest.raises(ValueError, match="K must be a positive whole number"):
        tabulate.se_r(problem.table, problem.info, problem.inputs[0], K)


def test_table_of_another_length(problem):
    refuse(problem, "they do not belong together", table=problem.table[:-1])


def test_integer_table(problem):
    refuse(problem, "float32 or float64", table=problem.table.long())


def test_half_precision(problem):
    refuse(problem, "float32 or float64", table=problem.table.half())


def test_mixed_precision(problem):
    inputs = (problem.inputs[0].float(), *problem.inputs[1:])
    refuse(problem, "must have the table's dtype and device", inputs=inputs)
    refuse(problem, "info must hold 6 numbers", info=problem.info.float())


def test_other_device(problem):
    inputs = (problem.inputs[0].to("meta"), *problem.inputs[1:])
    refuse(problem, "must have the table's dtype and device", inputs=inputs)


def test_info_elsewhere(problem):
    refuse(problem, "info must be on the CPU", info=problem.info.to("meta"))


def test_info_of_another_length(problem):
    refuse(problem, "info must hold 6 numbers", info=problem.info[:5])


def test_no_tensor(problem):
    refuse(problem, "must be a torch.Tensor, not list", info=problem.info.tolist())


def test_info_with_strides_that_do_not_divide(problem):
    info = problem.info.clone()
    info[3] = 0.07
    refuse(problem, "do not divide the table's region", info=info)


def test_info_out_of_order(problem):
    info = problem.info.clone()
    info[2] = info[1]
    refuse(problem, "must rise", info=info)
    info[2] = float("nan")
    refuse(problem, "must be finite", info=info)


@pytest.mark.parametrize("operator", ["se_a", "se_atten", "se_t", "se_t_tebd"])
def test_wrong_number_of_arguments_of_the_spline(operator):
    problem = random_problem(operator)
    if operator == "se_t_tebd":
        em = torch.zeros(1, 2, 3, dtype=torch.float64)
        with pytest.raises(ValueError, match="one number for each of the 6 slots"):
            tabulate.se_t_tebd(problem.table, problem.info, problem.inputs[0], em, 2)
        return
    inputs = (problem.inputs[0].flatten()[:-1], *problem.inputs[1:])
    refuse(problem, "em_x must hold one number for each", inputs=inputs)


@pytest.mark.parametrize("operator", ["se_a", "se_atten", "se_t", "se_r"])
def test_wrong_number_of_axes(operator):
    problem = random_problem(operator)
    place = 0 if operator == "se_r" else 1
    inputs = list(problem.inputs)
    inputs[place] = inputs[place][None]
    refuse(problem, "em must have shape", inputs=inputs)


@pytest.mark.parametrize("operator", ["se_a", "se_atten"])
def test_size_of_the_basis(operator):
    problem = random_problem(operator, components=5)
    refuse(problem, "4, 9, 16 or 25 components")


def test_shape_of_two_embed():
    problem = random_problem("se_atten")
    *first, two_embed = problem.inputs
    for wrong in (two_embed[:-1], two_embed[:, :1], two_embed.reshape(2, 5, 2)):
        refuse(problem, "two_embed must have shape", inputs=(*first, wrong))


def test_unknown_kernels(problem):
    refuse(problem, 'kernels must be "auto", "torch" or "triton"', kernels="cuda")


def test_triton_without_a_gpu(problem):
    refuse(problem, "the tensors are on cpu; move them to a CUDA", kernels="triton")


def test_auto_on_the_cpu_is_plain_pytorch(problem):
    assert choose("auto", problem.table) is reference
    expected = call(problem.operator, problem.table, problem.info, problem.inputs)
    y = call(
        problem.operator, problem.table, problem.info, problem.inputs, kernels="auto"
    )
    assert torch.equal(y, expected)


def test_triton_with_a_table_that_asks_for_a_gradient(problem):
    table = problem.table.requires_grad_()
    refuse(problem, "the table asks for a gradient", table=table, kernels="triton")


def test_domain_of_six_numbers_is_read_back():
    domain = Domain.from_range(-3, 4, two_sided=True, extrapolate=2.0)
    for dtype in (torch.float64, torch.float32):
        read = Domain.from_info(domain.info(dtype), True, domain.rows)
        assert (read.wing, read.middle, read.rows) == (5, 70, 79)
