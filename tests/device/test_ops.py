"""Every op on a GPU (the strict stand-in for CuPy) gives what it gives on the CPU, forward and backward."""

import itertools
import operator

import numpy as np
import pytest

import mytorch
from mytorch import ops
from tests.on_device import DEVICE, LAYOUTS, Library, check, flat, never_waiting, tensor
from tests.ops import (
    test_create,
    test_decompositions,
    test_einsum,
    test_elementwise,
    test_gather_scatter,
    test_index,
    test_join,
    test_linalg,
    test_mask,
    test_minmax,
    test_norms,
    test_order_statistics,
    test_products,
    test_random,
    test_reduce,
    test_scan,
    test_search,
    test_shape,
    test_sort,
    test_unique,
)

rng = np.random.default_rng(0)


def numbers(shape, low=-9, high=9, dtype="float32"):
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    values = rng.uniform(low, high, shape)
    return np.asarray(np.ceil(values) if dtype.startswith(("int", "uint")) else values).astype(dtype)


def op(name, *args, **kwargs):
    """The call of an op on all the tensors, with these arguments after them."""
    return lambda F, *xs: operator.attrgetter(name)(F)(*xs, *args, **kwargs)


# "op and what is special": (arrays, the call with the library and the tensors). The first word is the op.


def by_shapes(table):
    """The tables of the CPU's tests that have shapes and calls."""
    for name, (shapes, call) in table.items():
        yield name, [numbers(s) for s in (shapes if isinstance(shapes, list) else [shapes])], call


def elementwise():
    shapes = itertools.cycle(test_elementwise.PAIRS)
    for name, (low, high) in test_elementwise.UNARY.items():
        for dtype in ("float32", "float64", "float16", "int64", "int32", "uint8", "bool"):
            refused = name in test_elementwise.FLOATS_ONLY and not dtype.startswith("float")
            if not refused and (dtype != "bool" or name in ("logical_not", "sign", "square", "exp", "isnan")):
                bounds = test_elementwise.bounds_for(dtype, low, high)
                yield f"{name} {dtype}", [numbers((3, 4), *bounds, dtype)], op(name)
        yield f"{name} 0-d", [numbers((), low, high)], op(name)
    for name, (a, b, c, d) in test_elementwise.BINARY.items():
        for dtype in ("float32", "float16", "int64"):
            x, y = next(shapes)
            pair = [numbers(x, max(a, 0), b, dtype), numbers(y, max(c, 0.1), d, dtype)]
            if dtype != "int64" or name not in test_elementwise.FLOATS_ONLY:
                yield f"{name} {dtype}", pair, op(name)
        yield f"{name} mixed", [numbers((3,), 0, b, "int32"), numbers((2, 1), max(c, 0.1), d)], op(name)
        if name not in test_elementwise.TENSORS_ONLY:
            yield f"{name} number", [numbers((3,), max(a, 0), b)], op(name, 2)
        yield f"{name} 0-d", [numbers((3,), max(a, 0), b), numbers((), max(c, 0.1), d, "float64")], op(name)
    for name in test_elementwise.UNARY:
        yield f"{name} special", [test_elementwise.SPECIAL.astype("float32")], op(name)
    for low, high in test_elementwise.BOUNDS:
        yield f"clamp {low} {high}", [numbers((3, 4), -3, 3)], op("clamp", low, high)
        yield f"clamp int {low} {high}", [numbers((5,), -3, 3, "int64")], op("clamp", low, high)
    yield "clamp tensors", [numbers((3, 4)), numbers((4,), -3, 0), numbers((3, 1), 0, 3)], op("clamp")
    yield "clamp low tensor", [numbers((3, 4)), numbers((4,), -3, 0)], op("clamp")
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"):
        for dtype in ("int64", "uint8", "bool")[: None if name[-1] != "t" else 2]:
            yield f"{name} {dtype}", [numbers((3, 4), 0, 9, dtype), numbers((4,), 0, 9, dtype)], op(name)
    for dtype in ("int64", "bool"):
        yield f"bitwise_not {dtype}", [numbers((3, 4), 0, 9, dtype)], op("bitwise_not")
    for mode in ("floor", "trunc"):
        for dtype in ("float32", "int64"):
            pair = [np.array([7, -7, 7, -7], dtype), np.array([2, 2, -2, -2], dtype)]
            yield f"div {mode} {dtype}", pair, op("div", rounding_mode=mode)
    yield "add alpha", [numbers((3,)), numbers((3,))], op("add", alpha=2)
    yield "sub alpha", [numbers((3,)), numbers((3,))], op("sub", alpha=-0.5)
    yield "round decimals", [numbers((3,))], op("round", decimals=1)
    yield "logit eps", [numbers((9,), -0.5, 1.5)], op("logit", 0.1)
    yield "nan_to_num numbers", [np.array([1, np.nan, np.inf])], op("nan_to_num", 1, 2, 3)
    yield "pow negative integers", [np.arange(-3, 4), np.arange(-3, 4)], op("pow")
    yield "pow bool", [numbers((4,), dtype="bool")], op("pow", True)
    yield "pow base", [numbers((4,), -2, 2)], lambda F, x: 2**x
    yield "xlogy base", [numbers((4,), 1, 2)], lambda F, x: F.xlogy(2, x)
    triple = [numbers((3, 4)), numbers((4,)), numbers((3, 1), 1, 9)]
    for dtype in ("float32", "float16"):
        for name in ("addcmul", "addcdiv", "lerp"):
            yield f"{name} {dtype}", [x.astype(dtype) for x in triple], op(name)
    yield "addcmul value", triple, op("addcmul", value=2)
    yield "addcdiv value", triple, op("addcdiv", value=2)
    yield "lerp number", triple[:2], op("lerp", 0.7)
    for name in ("isclose", "allclose", "equal"):
        for dtype in ("float32", "int64"):
            yield f"{name} {dtype}", [numbers((3, 4), dtype=dtype), numbers((3, 4), dtype=dtype)], op(name)
    yield "isclose NaN", [np.array([np.nan, 1]), np.array([np.nan, 1])], op("isclose", equal_nan=True)
    yield "fill", [numbers((3,))], op("fill", 2)
    yield "zero", [numbers((3,), dtype="int64")], op("zero")
    for name in ("erf", "erfc", "erfinv", "lgamma", "digamma"):
        for dtype in ("float32", "float64", "float16", "int64"):
            yield f"{name} {dtype}", [numbers((5, 4), -0.9, 0.9, dtype)], op(name)
    yield "erf large", [numbers((9,), -30, 30, "float64")], op("erf")


def reductions():
    for module in (test_reduce, test_minmax):
        for name, args, kwargs in module.CASES:
            yield f"{name} {args} {kwargs}", [numbers((2, 3, 4))], op(name, *args, **kwargs)
            if name in ("sum", "mean", "prod"):
                yield f"{name} {args} {kwargs} empty", [numbers((2, 0, 3))], op(name, *args, **kwargs)
        for name in dict.fromkeys(name for name, _, _ in module.CASES):
            for dtype in ("float16", "float64", "int32", "uint8", "bool"):
                if dtype[0] == "f" or name in ("sum", "prod", "any", "all", "cumsum", "amax", "max", "min"):
                    dims = () if name in ("sum", "prod", "any") else (2, 1) if name == "norm" else (1,)
                    yield f"{name} {dtype}", [numbers((3, 4), 0, 3, dtype)], op(name, *dims)
            yield f"{name} 0-d", [numbers(())], op(name, *((0,) if name in ("cumsum", "logsumexp") else ()))
    yield "max of two", [numbers((3, 4)), numbers((4,))], op("max")
    yield "min of two", [numbers((3, 4)), numbers((4,))], op("min")
    yield "max NaN", [test_minmax.INPUTS["NaN"]], op("max")
    yield "amin ties", [test_minmax.INPUTS["ties"]], op("amin", 1)
    for case in test_sort.CASES:
        for name in ("sort", "argsort"):
            for kind in ("3-d", "NaN", "float16", "int64", "bool", "no rows"):
                yield f"{name} {case} {kind}", [test_sort.INPUTS[kind]], op(name, **case, stable=True)
        yield f"sort {case} ties", [test_sort.TIES], op("sort", **case, stable=True)
    for k, dim, largest in itertools.product((0, 2, 3), (0, -1), (True, False)):
        for dtype in ("float32", "float16", "int64"):
            x = numbers((3, 5), dtype=dtype)
            yield f"topk {k} {dim} {largest} {dtype}", [x], op("topk", k, dim, largest)
    yield "sort 0-d", [numbers(())], op("sort")
    yield "topk 0-d", [numbers(())], op("topk", 1)
    yield "msort", [numbers((3, 4))], op("msort")
    for name in ("nansum", "nanmean", "count_nonzero", "aminmax"):
        x = numbers((3, 4), -1, 2)
        yield name, [np.where(x < 0, np.float32(np.nan), x)], op(name)
        yield f"{name} dim", [x], op(name, dim=1)


def scans_and_ranks():
    for module, kinds in (
        (test_scan, ("3-d", "0-d", "ties", "no rows", "float64")),
        (test_norms, ("3-d", "2-d", "transposed")),
        (test_order_statistics, ("3-d", "0-d", "NaN", "int64", "float16")),
    ):
        for (name, args, kwargs), kind in itertools.product(module.CASES, kinds):
            x, call = module.INPUTS[kind], op(name, *args, **kwargs)
            if accepted(lambda: call(mytorch, mytorch.tensor(x))):  # noqa: B023 - it is called here
                yield f"{name} {args} {kwargs} {kind}", [x], call
    for name in ("quantile", "nanquantile"):
        yield f"{name} several", [numbers((5, 4)), numbers((3,), 0, 1)], op(name, dim=0)
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        for dtype in ("float16", "int32", "uint8", "bool"):
            yield f"{name} {dtype}", [numbers((3, 4), 0, 3, dtype)], op(name, 1)
    yield "logcumsumexp float16", [numbers((3, 4), dtype="float16")], op("logcumsumexp", 0)


def accepted(call):
    try:
        call()
    except (RuntimeError, IndexError):
        return False
    return True


def searches():
    for how in test_search.HOW:
        for what, pair in test_search.PAIRS.items():
            yield f"searchsorted {what} {how}", list(pair), op("searchsorted", **how)
    yield "searchsorted number", [test_search.VECTOR], op("searchsorted", 3.5)
    yield "searchsorted sorter", [np.array([3, 1, 2]), np.array([2, 4]), np.array([1, 2, 0])], (
        lambda F, s, x, order: F.searchsorted(s, x, sorter=order))
    yield "bucketize", [numbers((3, 4)), test_search.VECTOR], op("bucketize")
    yield "bincount", [test_search.COUNTED], op("bincount", minlength=9)
    yield "bincount weights", [test_search.COUNTED, numbers((7,))], (
        lambda F, x, w: F.bincount(x, w.detach()))
    for how in ((5,), (5, -4, 4)):
        yield f"histc {how}", [numbers((3, 4))], lambda F, x, how=how: F.histc(x.detach(), *how)
    for how in (5, np.array([-1, 0, 0.5, 2], "float32")):
        yield f"histogram {how}", [numbers((3, 4)), np.asarray(how)], (
            lambda F, x, e: F.histogram(x.detach(), e.detach() if e.ndim else 5))
    for name in ("trapezoid", "trapz", "cumulative_trapezoid"):
        yield name, [numbers((3, 4))], op(name, dx=0.5)
        yield f"{name} x", [numbers((3, 4)), numbers((4,))], op(name)
    for name, kind in itertools.product(("unique", "unique_consecutive"), test_unique.INPUTS):
        x = test_unique.INPUTS[kind]
        yield f"{name} {kind}", [x], op(name, return_inverse=True, return_counts=True)
        if x.size and x.ndim:
            yield f"{name} {kind} dim", [x], op(name, return_inverse=True, return_counts=True, dim=-1)


def products():
    for x, y in test_linalg.SHAPES:
        yield f"matmul {x} {y}", [numbers(x), numbers(y)], op("matmul")
    for dtype in ("float16", "float64", "int32", "int64"):
        for x, y in (((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4))):
            yield f"matmul {dtype} {x} {y}", [numbers(x, dtype=dtype), numbers(y, dtype=dtype)], op("matmul")
    for name, shapes in test_linalg.RESTRICTED.items():
        yield name, [numbers(s) for s in shapes], op(name)
    for equation, *shapes in test_einsum.CASES:
        arrays = [numbers(s, dtype="float64") for s in shapes]
        yield f"einsum {equation} {shapes}", arrays, lambda F, *xs, e=equation: F.einsum(e, *xs)
    for p, (x, y) in itertools.product((0, 0.5, 1, 2, 3, np.inf), (((3, 4), (5, 4)), ((2, 30, 3), (4, 3)))):
        yield f"cdist {p} {x} {y}", [numbers(x), numbers(y)], op("cdist", p)
    yield "cdist coincident", [np.ones((30, 2)), np.ones((2, 2))], op("cdist")
    yield "einsum half", [numbers((2, 3), dtype="float16"), numbers((3, 4), dtype="float16")], (
        lambda F, *xs: F.einsum("ij,jk->ik", *xs))


def casts():
    for dtype in ("float16", "float64", "int64", "bool"):
        yield f"to {dtype}", [numbers((3, 4), 0, 3)], op("to", getattr(mytorch, dtype))
    yield "to other", [numbers((3,)), numbers((3,), dtype="float64")], lambda F, x, y: x.to(y)
    yield "to copy", [numbers((3,))], op("to", copy=True)
    yield "type_as", [numbers((3,)), numbers((3,), dtype="float64")], op("type_as")
    yield "argwhere", [numbers((3, 4), dtype="bool")], op("argwhere")
    yield "result_type", [numbers((3,)), numbers((3,), dtype="float64")], op("result_type")
    for name in ("is_tensor", "is_floating_point", "is_complex", "is_signed", "numel"):
        yield name, [numbers((3, 4))], op(name)
    for name in ("view", "view_as", "t", "masked_fill", "where"):
        for dtype in ("float16", "int64"):
            yield f"{name} {dtype}", [numbers((4, 4), dtype=dtype)], {
                "view": lambda F, x: x.view(2, 8), "view_as": lambda F, x: F.view_as(x, F.zeros(8, 2)),
                "t": lambda F, x: F.t(x), "masked_fill": lambda F, x: F.masked_fill(x, x > 0, 3),
                "where": lambda F, x: F.where(x > 0, x, 1),
            }[name]
    for dtype in ("int8", "int16", "uint8", "int32", "bool", "float16", "float64"):
        x, y = numbers((3, 4), 0, 9, dtype), numbers((2, 3), 0, 9, dtype)
        yield (
            f"scatter_add {dtype}",
            [x, y],
            (lambda F, x, y: F.scatter_add(x, 1, F.tensor([[0, 3, 0], [1, 1, 1]]), y)),
        )
        yield f"take {dtype}", [x], lambda F, x: F.take(x, F.tensor([[0, -1], [11, 11]]))
        for reduce in ("prod", "amax", "amin"):
            yield (
                f"scatter_reduce {reduce} {dtype}",
                [x, y],
                lambda F, x, y, r=reduce: x.scatter_reduce(1, F.tensor([[0, 3, 0], [1, 1, 1]]), y, r),
            )
    yield "is_nonzero", [numbers((1,))], op("is_nonzero")
    yield "is_same_size", [numbers((3, 4)), numbers((4, 3))], op("is_same_size")
    yield "broadcast_shapes", [], lambda F: F.broadcast_shapes((2, 1), (3,))
    yield "view dtype", [numbers((3, 4))], lambda F, x: x.detach().view(F.int8)


def memory():
    """Memory of others, which isn't where a `device=` says."""
    yield "from_numpy", [], lambda F: F.from_numpy(np.arange(3)).to(F.device)
    yield "from_dlpack", [numbers((3, 4))], lambda F, x: F.from_dlpack(x.detach())
    yield "from_dlpack transposed", [numbers((3, 4))], lambda F, x: F.from_dlpack(x.detach().T)


CASES = {
    name: (arrays, call)
    for family in (
        by_shapes({**test_shape.CASES, **test_join.CASES, **test_index.SELECT}),
        by_shapes(test_products.CASES),
        by_shapes({**test_gather_scatter.CASES, **test_mask.CASES}),
        elementwise(), reductions(), scans_and_ranks(), searches(), products(), casts(), memory(),
    )
    for name, arrays, call in family
}


@pytest.mark.parametrize("name", sorted({case.split()[0] for case in CASES}))
def test_as_on_the_cpu(fake_cuda, name):
    failures = []
    for case in [case for case in CASES if case.split()[0] == name]:
        arrays, call = CASES[case]
        try:
            check(call, *arrays)
        except Exception as error:
            failures.append(f"{case}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)


def test_other_layouts(fake_cuda):
    """Each case with other strides; the three kinds of them take turns, since an op has many cases."""
    layouts = itertools.cycle(name for name in LAYOUTS if name != "contiguous")
    for name, (arrays, call) in CASES.items():
        if arrays and not name.startswith("view"):
            layout = next(layouts)
            try:
                check(call, *arrays, layout=layout)
            except Exception as error:
                raise AssertionError(f"{name}, {layout}: {error}") from error


# Their results, or the sizes of these, are told by numbers on the GPU.
WAITING = {
    "masked_select", "nonzero", "argwhere", "where", "repeat_interleave", "index_put", "is_nonzero",
    "tensor_split", "unique", "unique_consecutive", "bincount", "histc", "histogram", "allclose", "equal",
}


def test_ops_dont_wait_for_the_gpu(fake_cuda, monkeypatch):
    """Forward and backward only queue kernels; reading a number would stop until all of them are done."""
    waited = set()
    with never_waiting(monkeypatch, fake_cuda):
        for name, (arrays, call) in CASES.items():
            inputs = [tensor(a, DEVICE, grad=True) for a in arrays]
            try:
                for y in flat(call(Library(DEVICE), *inputs)):
                    if isinstance(y, mytorch.Tensor) and y.requires_grad:
                        y.backward(mytorch.ones_like(y.detach()), retain_graph=True)
            except AssertionError:
                waited.add(name.split()[0])
    assert waited == WAITING


def test_every_op_has_a_case():
    """A new op needs one here; the tests of factories and random numbers have their own on a device, and
    the memory of `frombuffer` is the CPU's."""
    covered = {name.split()[0] for name in (*CASES, *test_create.CALLS, *test_random.CALLS)}
    covered |= set(test_decompositions.OPS_ON_A_GPU)
    functions = set(ops.__all__) - set(ops.aliases.__all__)  # an alias is the function itself
    assert functions - covered == {"frombuffer"}


INTS = {  # calls with a tensor without dims in place of an int; CuPy's arrays have no `__index__`
    "narrow": lambda x, i: x.narrow(1, i, 2),
    "narrow from the end": lambda x, i: x.narrow(1, -i, i),
    "select": lambda x, i: x.select(1, i),
    "x[i]": lambda x, i: (x[i], x[:, i:], x[i, i]),
    "roll": lambda x, i: x.roll(i, 1),
    "repeat": lambda x, i: x.repeat(i, 2),
    "reshape": lambda x, i: x.reshape(i, -1),
    "expand": lambda x, i: x[:1].expand(i, 5),
    "a dim": lambda x, i: (x.unsqueeze(i), x.transpose(0, i), x.cumsum(i), x.flip(i), x.permute(i, 0)),
    "topk": lambda x, i: x.topk(i),
    "split": lambda x, i: (*x.split(i, 1), *x.chunk(i)),
}


@pytest.mark.parametrize("call", INTS.values(), ids=INTS)
def test_a_tensor_in_place_of_an_int(fake_cuda, call):
    wanted, got = (
        call(mytorch.arange(10.0, device=place).reshape(2, 5), mytorch.tensor(1, device=place))
        for place in ("cpu", DEVICE)
    )
    assert [y.tolist() for y in flat(got)] == [y.tolist() for y in flat(wanted)]


def test_tensors_that_are_no_ints(fake_cuda):
    x = mytorch.arange(10.0, device=DEVICE)
    with pytest.raises(RuntimeError, match="start must be a 0-d tensor of integers, got float32"):
        x.narrow(0, mytorch.tensor(1.0, device=DEVICE), 2)
    for wrong in (mytorch.tensor(1.0, device=DEVICE), mytorch.tensor(True, device=DEVICE)):
        with pytest.raises(TypeError):
            x.roll(wrong)
