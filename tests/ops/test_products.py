"""Products added to tensors, over chosen dims, and of Kronecker, against PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from tests.database.compare import compare
from tests.each import each
from tests.oracle import check, fails_alike

rng = np.random.default_rng(0)
NAN = float("nan")


def normal(*shape, dtype="float64"):
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def op(name, *args, **kwargs):
    return lambda F, *xs: getattr(F, name)(*xs, *args, **kwargs)


def on_the_cpu(F):
    """The library whose factories make tensors there: reading dims from a GPU would wait for it."""
    return torch if F is torch else mytorch


MATRICES, BATCHES = [(2, 3), (3, 4)], [(5, 2, 3), (5, 3, 4)]

# "op and what is special": (shapes, the call with the library and the tensors)
CASES = {
    **{f"addmm {s}": ([s, *MATRICES], op("addmm")) for s in ((2, 4), (1, 4), (2, 1), (4,), (1,), ())},
    "addmm beta alpha": ([(2, 4), *MATRICES], op("addmm", beta=0.5, alpha=-2)),
    "addmm beta 0": ([(4,), *MATRICES], op("addmm", beta=0, alpha=3)),
    "addmm nothing to sum": ([(2, 4), (2, 0), (0, 4)], op("addmm", beta=2)),
    "addmm no rows": ([(1, 4), (0, 3), (3, 4)], op("addmm")),
    "addmv": ([(2,), (2, 3), (3,)], op("addmv", beta=0.5, alpha=2)),
    "addmv 0-d": ([(), (2, 3), (3,)], op("addmv")),
    "addbmm": ([(2, 4), *BATCHES], op("addbmm", beta=0.5, alpha=2)),
    "addbmm row": ([(4,), *BATCHES], op("addbmm")),
    "addbmm empty": ([(2, 4), (0, 2, 3), (0, 3, 4)], op("addbmm")),
    "baddbmm": ([(5, 2, 4), *BATCHES], op("baddbmm", beta=0.5, alpha=2)),
    "baddbmm matrix": ([(2, 4), *BATCHES], op("baddbmm")),
    "addr": ([(3, 4), (3,), (4,)], op("addr", beta=0.5, alpha=2)),
    "addr row": ([(4,), (3,), (4,)], op("addr", beta=0)),
    "kron": ([(2, 3), (4, 5)], op("kron")),
    "kron ranks": ([(2, 3), (2, 2, 1)], op("kron")),
    "kron vectors": ([(2,), (3,)], op("kron")),
    "kron 0-d": ([(), (2, 3)], op("kron")),
    "kron empty": ([(2, 0), (3, 1)], op("kron")),
    "inner": ([(2, 3), (4, 5, 3)], op("inner")),
    "inner vectors": ([(3,), (3,)], op("inner")),
    "inner 0-d": ([(), (4, 5)], op("inner")),
    "inner empty": ([(2, 0), (3, 0)], op("inner")),
    "tensordot": ([(2, 3, 4), (3, 4, 5)], op("tensordot")),
    "tensordot none": ([(2, 3), (4,)], op("tensordot", 0)),
    "tensordot all": ([(2, 3), (2, 3)], op("tensordot", dims=2)),
    "tensordot lists": ([(2, 3, 4), (4, 5, 2)], op("tensordot", ([2, 0], [0, 2]))),
    "tensordot negative": ([(2, 3, 4), (4, 5, 2)], op("tensordot", dims=([-1], [-3]))),
    "tensordot broadcast": ([(2, 3), (1, 5)], op("tensordot", 1)),
    "tensordot no lists": ([(2,), (3,)], op("tensordot", ([], []))),
    "tensordot tensor": (
        [(2, 3), (3, 4)], lambda F, x, y: F.tensordot(x, y, on_the_cpu(F).tensor([[1], [0]])),
    ),
    "einsum subscripts": (
        [(2, 3), (3, 4)], lambda F, x, y: F.einsum(x, [0, 1], y, [1, 2], [2, 0]),
    ),
    "einsum subscripts implicit": (
        [(2, 3), (3, 4)], lambda F, x, y: F.einsum(x, [27, 1], y, [1, 2]),
    ),
    "einsum subscripts ellipsis": (
        [(5, 2, 3), (3, 4)], lambda F, x, y: F.einsum(x, [..., 0, 1], y, (1, 2), [..., 2, 0]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_two_gradients(name):
    shapes, call = CASES[name]
    inputs = tuple(torch.from_numpy(normal(*s)).requires_grad_() for s in shapes)
    compare(lambda *a: call(mytorch, *a), lambda *a: call(torch, *a), (inputs, {}), grad=True, second=True)


DTYPES = [
    (name, dtype)
    for name in CASES
    for dtype in ("float32", "float16", "int8", "int64", "uint8", "bool")
    if dtype != "bool" or name.split()[0] in ("addr", "kron")  # PyTorch has no other products of bools
]


@each("name, dtype", DTYPES)
def test_dtypes(name, dtype):
    shapes, call = CASES[name]
    if name.startswith("addr") and dtype[0] != "f":
        call = op("addr", beta=2)
    arrays = [np.asarray(np.abs(4 * normal(*s))).astype(dtype) for s in shapes]
    check(
        lambda *a: call(mytorch, *a), lambda *a: call(torch, *a), *arrays, grad=dtype != "float16",
        rtol=4e-3 if dtype == "float16" else None,
    )


@pytest.mark.parametrize("name", ["addmm beta alpha", "addmv", "addbmm", "baddbmm", "addr"])
def test_in_place(name):
    shapes, _ = CASES[name]
    method = f"{name.split()[0]}_"

    def call(x, *others):
        x = x * 1
        return getattr(x, method)(*others, beta=0.5, alpha=3)

    check(call, call, *(normal(*s) for s in shapes))
    x = Tensor(normal(*shapes[0]))
    assert getattr(x, method)(*(Tensor(normal(*s)) for s in shapes[1:])) is x


def test_names_of_arguments():
    x, y, z = normal(2, 2), normal(2, 2), normal(2, 2)
    for name, names in {
        "addmm": ("input", "mat1", "mat2"), "mm": ("input", "mat2"), "matmul": ("input", "other"),
        "kron": ("input", "other"), "inner": ("input", "other"), "tensordot": ("a", "b"),
        "cdist": ("x1", "x2"),
    }.items():

        def call(F, arrays=(x, y, z), name=name, names=names):
            make = torch.from_numpy if F is torch else Tensor
            return getattr(F, name)(**{n: make(a) for n, a in zip(names, arrays, strict=False)})

        np.testing.assert_allclose(call(mytorch).numpy(), call(torch).numpy(), rtol=1e-12)


def test_nothing_of_the_input_counts_with_beta_0():
    x = np.full((2, 2), NAN)
    for name, others in {
        "addmm": [(2, 3), (3, 2)], "addmv": [(2, 3), (3,)], "baddbmm": [(5, 2, 3), (5, 3, 2)],
        "addbmm": [(5, 2, 3), (5, 3, 2)], "addr": [(2,), (2,)],
    }.items():
        start = x[0] if name == "addmv" else x
        call = op(name, beta=0)
        check(lambda *a, f=call: f(mytorch, *a), lambda *a, f=call: f(torch, *a), start,
              *(normal(*s) for s in others))


def test_integers_take_the_integer_part_of_factors():
    x, y = np.arange(4).reshape(2, 2), np.ones((2, 2), int)
    for factors in ({"beta": 0.5}, {"alpha": 2.7}, {"beta": True, "alpha": -1.5}):
        call = op("addmm", **factors)
        check(lambda *a, f=call: f(mytorch, *a), lambda *a, f=call: f(torch, *a), x, y, y)


def test_half_precision_is_rounded_once():
    """0.2 + 0.6 x, with x = 4096.5 rounded in between, would be another number."""
    ones = np.ones((1, 4097), "float16")
    x = Tensor(np.array([[-4096.0]], "float16"))
    assert mytorch.addmm(x, Tensor(ones), Tensor(ones.T)).item() == 1


FAILS = {
    "addmm of a vector": ("addmm", [(2, 2), (2,), (2, 2)], {}, "expected 2-D and 2-D tensors"),
    "addmm shapes": ("addmm", [(2, 2), (2, 3), (2, 3)], {}, "cannot be multiplied"),
    "addmm input": ("addmm", [(3,), (2, 2), (2, 2)], {}, r"\[2, 2\].*\[3\]|\(3,\)"),
    "addmm input dims": ("addmm", [(1, 2, 2), (2, 2), (2, 2)], {}, r"3|\(1, 2, 2\)"),
    "addmv input": ("addmv", [(3,), (2, 2), (2,)], {}, r"3"),
    "addmv of a matrix": ("addmv", [(2,), (2, 2), (2, 2)], {}, "expected 2-D and 1-D"),
    "addbmm batches": ("addbmm", [(2, 2), (2, 2, 2), (3, 2, 2)], {}, "cannot be multiplied"),
    "baddbmm batches": ("baddbmm", [(2, 2), (2, 2, 2), (3, 2, 2)], {}, "batches of one size"),
    "baddbmm input": ("baddbmm", [(3, 2, 2), (2, 2, 2), (2, 2, 2)], {}, "3"),
    "addr of a matrix": ("addr", [(2, 2), (2, 2), (2,)], {}, "expected 1-D and 1-D"),
    "inner sizes": ("inner", [(2, 3), (2, 4)], {}, r"last dims must match, got shapes \(2, 3\) and \(2, 4\)"),
    "tensordot sizes": (
        "tensordot", [(2, 3), (4, 2)], {"dims": 1}, "first has size 3 in dim 1 .* size 4 in dim 0",
    ),
    "tensordot negative": ("tensordot", [(2, 3), (4, 2)], {"dims": -1}, "dims=-1"),
    "tensordot too many": ("tensordot", [(2, 3), (4, 2)], {"dims": 3}, "dims=3"),
    "tensordot lengths": ("tensordot", [(2, 2), (2, 2)], {"dims": ([0], [0, 1])}, "same length"),
    "tensordot twice": ("tensordot", [(2, 2), (2, 2)], {"dims": ([0, 0], [0, 1])}, "multiple times"),
    "tensordot no such dim": ("tensordot", [(2, 2), (2, 2)], {"dims": ([2], [0])}, "out of range"),
    "tensordot one list": ("tensordot", [(2, 2), (2, 2)], {"dims": [1]}, "unpack"),
    "tensordot two ints": ("tensordot", [(2, 2), (2, 2)], {"dims": (0, 1)}, "two lists of ints"),
    "tensordot a float": ("tensordot", [(2, 2), (2, 2)], {"dims": 1.0}, "got 1.0"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    name, shapes, kwargs, match = FAILS[what]
    arrays = [normal(*s) for s in shapes]
    fails_alike(getattr(mytorch, name), getattr(torch, name), *arrays, match=match, **kwargs)


@pytest.mark.parametrize("name", ["addmm", "addbmm", "baddbmm", "inner", "tensordot"])
def test_refuses_mixed_dtypes_and_bools(name):
    shape = (2, 2, 2) if "bmm" in name else (2, 2)
    shapes = [(2, 2) if name == "addbmm" else shape, shape, shape] if "mm" in name else [shape, shape]
    for dtypes in (["float64", "float32", "float32"], ["float32", "float64", "float64"], ["bool"] * 3):
        arrays = [np.ones(s, d) for s, d in zip(shapes, dtypes, strict=False)]
        fails_alike(getattr(mytorch, name), getattr(torch, name), *arrays, match="dtype|bool")


@pytest.mark.parametrize(
    ("args", "error", "match"),
    [
        (lambda x: (x, [0, 52]), ValueError, r"\[0, 52\).*got 52"),
        (lambda x: (x, [-1, 0]), ValueError, "got -1"),
        (lambda x: (x, "ij"), TypeError, "list of subscripts after an operand, got 'ij'"),
        (lambda x: ("ij",), ValueError, "at least one operand"),
        (lambda x: ("ij", []), ValueError, "at least one operand"),
    ],
)
def test_refuses_subscripts(args, error, match):
    with pytest.raises(error, match=match):
        mytorch.einsum(*args(Tensor(normal(2, 2))))


def test_refuses_factors():
    x = Tensor(np.ones((2, 2), "int8"))
    with pytest.raises(RuntimeError, match="300"):
        mytorch.addmm(x, x, x, beta=300)
    with pytest.raises(RuntimeError, match="addr.*for integer tensors alpha must be an integer, got 0.5"):
        mytorch.addr(x, x[0], x[0], alpha=0.5)
    with pytest.raises(TypeError, match=r"addmm\(\): expected a number"):
        mytorch.addmm(x, x, x, beta="1")
