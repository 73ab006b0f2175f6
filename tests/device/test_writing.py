"""Indexing, in-place forms and the other methods on a GPU (the strict stand-in for CuPy) as on the CPU."""

import copy
import pickle

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor, methods
from tests.each import each
from tests.on_device import DEVICE, check
from tests.ops import programs, test_index, test_inplace

rng = np.random.default_rng(0)


def numbers(*shape, low=0.5, high=3, dtype="float32"):
    return np.asarray(rng.uniform(low, high, shape), dtype)


# x[index] and x[index] = value.


@each("index", test_index.INDICES)
def test_getitem(fake_cuda, index):
    x = numbers(2, 3, 4)
    check(lambda F, x: x[test_index.INDICES[index](F)], x)
    check(lambda F, x: x[test_index.INDICES[index](mytorch)], x)  # with an index on the CPU
    check(lambda F, x: x[test_index.INDICES[index](F)], x > 1)


@each("index", test_index.INDICES)
def test_setitem(fake_cuda, index):
    once = not test_index.repeats(np_index(index))

    def call(F, x, value):
        y = x * 2
        i = test_index.INDICES[index](F)
        y[i] = value.reshape(y[i].shape) if once else value[0]
        y[i] = y[i] * 2 if once else 3
        return y * y

    x, count = numbers(2, 3, 4), np.size(test_index.places(np_index(index)))
    check(call, x, numbers(max(count, 1))[:count] if once else numbers(1))


def np_index(index):
    return test_index.INDICES[index](torch)


@pytest.mark.parametrize("value", [5, 2.5, True, np.float32(2), [1.0, 2, 3, 4], np.arange(4.0)], ids=str)
def test_setitem_takes_numbers_lists_and_arrays_of_the_cpu(fake_cuda, value):
    def call(F, x):
        y = x * 2
        y[1] = value
        y[y > 5] = 0
        y[[0, 2], 0] = value if np.ndim(value) == 0 else value[:2]
        y[1:, 1:2] = Tensor([[1.5]], dtype=mytorch.float64)
        return y

    check(call, numbers(3, 4))


# In place.

# name: (the shapes, the call); besides the tables of the CPU's tests
INPLACE = {
    **{name: ([(3, 4), (3, 4)], lambda F, x, y, f=f: f(x, y)) for name, f in test_inplace.WHOLE.items()},
    **{
        f"{name}_": ([(3, 4), (4,)], lambda F, x, y, name=f"{name}_": getattr(x, name)(y))
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
                     "floor_divide", "fmod", "copysign", "xlogy", "atan2", "hypot", "clamp_min", "clamp_max")
    },
    **{
        f"{name}_": ([(3, 4)], lambda F, x, name=f"{name}_": getattr(x, name)())
        for name in ("rsqrt", "sin", "cos", "tan", "sign", "ceil", "logical_not", "erf", "erfc", "exp2",
                     "expm1", "log2", "log10", "log1p", "logit", "asin", "acos", "atan", "sinh", "cosh",
                     "asinh", "acosh", "atanh", "sinc", "deg2rad", "rad2deg", "trunc", "frac", "nan_to_num",
                     "lgamma", "digamma", "conj_physical")
    },
    **{
        f"{name}_": ([(3, 4)], lambda F, x, name=f"{name}_": getattr(x.long(), name)(F.tensor(3)))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
    },
    **{
        f"{name}_": ([(3, 4), (4,), (3, 1)], lambda F, x, y, z, name=f"{name}_": getattr(x, name)(y, z))
        for name in ("addcmul", "addcdiv", "lerp")
    },
    **{
        f"{name}_": ([(3, 4)], lambda F, x, name=f"{name}_": getattr(x, name)(1))
        for name in ("cumsum", "cumprod")
    },
    "addmm_": ([(3, 4), (3, 2), (2, 4)], lambda F, x, y, z: x.addmm_(y, z, beta=2, alpha=3)),
    "addmv_": ([(3,), (3, 2), (2,)], lambda F, x, y, z: x.addmv_(y, z)),
    "addr_": ([(3, 4), (3,), (4,)], lambda F, x, y, z: x.addr_(y, z)),
    "addbmm_": ([(3, 4), (5, 3, 2), (5, 2, 4)], lambda F, x, y, z: x.addbmm_(y, z)),
    "baddbmm_": ([(5, 3, 4), (5, 3, 2), (5, 2, 4)], lambda F, x, y, z: x.baddbmm_(y, z)),
    "bitwise_not_": ([(3, 4)], lambda F, x: x.long().bitwise_not_()),
    "erfinv_": ([(3, 4)], lambda F, x: x.mul_(0.3).erfinv_()),
    "scatter_": ([(3, 4), (2, 2)], lambda F, x, y: x.scatter_(1, F.tensor([[0, 3], [2, 1]]), y)),
    "scatter_add_": ([(3, 4), (1, 2)], lambda F, x, y: x.scatter_add_(1, F.tensor([[1, 1]]), y)),
    "index_add_": ([(3, 4), (3, 2)], lambda F, x, y: x.index_add_(1, F.tensor([3, 0]), y)),
    "index_copy_": ([(3, 4), (3, 2)], lambda F, x, y: x.index_copy_(1, F.tensor([3, 0]), y)),
    "index_fill_": ([(3, 4)], lambda F, x: x.index_fill_(1, F.tensor([3, -4]), 2)),
    "index_put_": ([(3, 4), (2,)], lambda F, x, y: x.index_put_((F.tensor([2, 0]), F.tensor([3, 0])), y)),
    "index_put_ accumulate": (
        [(3, 4), (2,)],
        lambda F, x, y: x.index_put_((F.tensor([2, 2]), F.tensor([3, 3])), y, accumulate=True),
    ),
    "put_": ([(3, 4), (2,)], lambda F, x, y: x.put_(F.tensor([3, -1]), y)),
    "scatter_reduce_": (
        [(3, 4), (2, 2)],
        lambda F, x, y: x.scatter_reduce_(1, F.tensor([[0, 0], [2, 2]]), y, "amax", include_self=False),
    ),
    "masked_scatter_": ([(3, 4), (12,)], lambda F, x, y: x.masked_scatter_(x > 1, y)),
    "squeeze_": ([(3, 4)], lambda F, x: x[None].squeeze_(0).mul_(2)),
    "unsqueeze_": ([(3, 4)], lambda F, x: x[0].unsqueeze_(1).mul_(2)),
    "transpose_": ([(3, 4)], lambda F, x: x[1:].transpose_(0, 1).mul_(2)),
    "t_": ([(3, 4)], lambda F, x: x[:2].t_().mul_(2)),
    "detach_": ([(3, 4)], lambda F, x: x.detach_()),
}


@pytest.mark.parametrize("case", INPLACE)
def test_in_place(fake_cuda, case):
    shapes, call = INPLACE[case]

    def through(part):
        def program(F, *xs):
            z = xs[0] * 1
            return call(F, part(z), *xs[1:]), z

        return program

    arrays = [numbers(*shape) for shape in shapes]
    check(through(lambda z: z), *arrays, grad="without" not in case)
    if case != "detach_":  # which a view refuses
        check(through(lambda z: z.T.T), *arrays, grad="without" not in case)


@pytest.mark.parametrize("program", programs.PROGRAMS, ids=lambda program: program.__name__)
def test_programs(fake_cuda, program):
    if program is programs.view_of_a_result_that_lies_transposed:
        return  # CuPy's results lie in C order, whatever the operands' is
    check(program, numbers(3, 4), numbers(4))


@pytest.mark.parametrize("case", test_inplace.OVERWRITTEN)
def test_an_overwritten_array_is_noticed(fake_cuda, case):
    x, y = (Tensor(numbers(3, 4), requires_grad=True, device=DEVICE) for _ in range(2))
    result, written = test_inplace.OVERWRITTEN[case](x * 1, y * 1)
    with mytorch.no_grad():
        written.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_views_share_memory_and_overlaps_are_copied(fake_cuda):
    def call(F, x):
        y = x * 1
        views = y.T, y[1:], y.reshape(-1), y.diagonal(), *y.unbind(1), *y.split(2), y[None].expand(1, 4, 4)
        with mytorch.no_grad():
            y[1:] = y[:-1]
            y.T[:, 1:] = y.T[:, :-1]
            y += y.T
        return views

    check(call, numbers(4, 4), grad=False)


# Methods that aren't functions of mytorch.

METHODS = {
    "copy_": lambda F, x: (x * 1).copy_(x.T),
    "copy_ from the CPU": lambda F, x: (x * 1).copy_(Tensor([[1.0], [2], [3]])),
    "cpu": lambda F, x: (x.cpu() * 2).to(F.device),
    "cuda": lambda F, x: (x.cuda(0) * 2).to(F.device),
    "half": lambda F, x: x.half(),
    "float": lambda F, x: x.double().float(),
    "double": lambda F, x: x.double(),
    "bool": lambda F, x: (x > 1).bool(),
    "short": lambda F, x: x.short(),
    "int": lambda F, x: x.int(),
    "long": lambda F, x: x.long(),
    "where": lambda F, x: x.where(x > 1, 0),
    "mT": lambda F, x: x.mT,
    "T": lambda F, x: x.T,
    "iteration": lambda F, x: list(x),
    "softmax": lambda F, x: x.softmax(1),
    "log_softmax": lambda F, x: x.log_softmax(0),
    "item": lambda F, x: x.sum().item(),
    "tolist": lambda F, x: x.tolist(),
    "numpy": lambda F, x: x.numpy(force=True).tolist(),
    "int()": lambda F, x: int(x[0, 0]),
    "float()": lambda F, x: float(x[0, 0]),
    "bool()": lambda F, x: bool(x[0, 0] > 0),
    "index": lambda F, x: [1, 2, 3][F.tensor(1)],
    "len": lambda F, x: len(x),
    "in": lambda F, x: 99 in x.tolist(),
    "repr": lambda F, x: repr(x.detach()).replace(f", device='{F.device}'", ""),
    "format": lambda F, x: f"{x.sum():.3f}",
    "stride": lambda F, x: (x.T.stride(), x.T.is_contiguous(), x.numel(), x.element_size(), x.nbytes),
    "flags": lambda F, x: (
        x.is_floating_point(),
        x.is_complex(),
        x.is_leaf,
        x.requires_grad,
        x.dim(),
        x.size(0),
    ),
    "deepcopy": lambda F, x: copy.deepcopy(x),
    "pickle": lambda F, x: pickle.loads(pickle.dumps(x)),
    "matmul": lambda F, x: x.T @ x,
    "rsub": lambda F, x: 1 - x,
    "rpow": lambda F, x: 2**x,
    "rfloordiv": lambda F, x: 7 // x.detach(),
    "neg": lambda F, x: -x,
    "invert": lambda F, x: ~(x > 1),
    "and": lambda F, x: (x > 1) & (x < 2),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods(fake_cuda, name):
    check(METHODS[name], numbers(3, 3), grad=name != "numpy")


def test_every_in_place_form_has_a_case():
    covered = {name.split()[0] for name in INPLACE}
    assert not {f"{op.__name__}_" for op in (*methods.INPLACE, *methods.INPLACE_VIEWS)} - covered
