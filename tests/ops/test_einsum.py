"""einsum against PyTorch: values and gradients of any equation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mytorch
from mytorch import Tensor
from mytorch.autograd import gradcheck
from tests.oracle import check, fails_alike

rng = np.random.default_rng(0)


def normal(*shape, dtype="float64"):
    return rng.standard_normal(shape).astype(dtype)


# equation, shapes
CASES = [
    ("i->i", (3,)), ("i->", (3,)), ("ij->ji", (2, 3)), ("ij->j", (2, 3)), ("ij", (2, 3)), ("ji", (2, 3)),
    ("->", ()), ("", ()), ("ii->i", (3, 3)), ("ii", (3, 3)), ("ii->", (3, 3)), ("iij->ij", (3, 3, 2)),
    ("iji->j", (3, 2, 3)), ("iijj->ij", (3, 3, 2, 2)), ("iii->i", (3, 3, 3)), ("...ii->...i", (2, 3, 3)),
    ("...ii", (4, 2, 3, 3)), ("i...->...", (2, 3, 4)), ("...->", (2, 3)), ("...", (2, 3)),
    ("...ij->...ji", (4, 2, 3)), ("i...j->j...i", (2, 3, 4)), ("ab...->...", (2, 3, 4, 5)),
    ("i,i->", (3,), (3,)), ("i,i", (3,), (3,)), ("i,i->i", (3,), (3,)), ("i,j->ij", (2,), (3,)),
    ("i,j->ji", (2,), (3,)), ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)),
    ("ij,jk->ki", (2, 3), (3, 4)), ("ij,jk->", (2, 3), (3, 4)), ("ij,jk->ijk", (2, 3), (3, 4)),
    ("ij,kj->ik", (2, 3), (4, 3)), ("ij,ij->", (2, 3), (2, 3)), ("ij,ij->ij", (2, 3), (2, 3)),
    ("ij,j->i", (2, 3), (3,)), ("ij,k->ijk", (2, 3), (4,)), ("ij,k->j", (2, 3), (4,)),
    ("ij,kl->", (2, 3), (4, 5)), (",ij->ji", (), (2, 3)), ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("bij,bjk->ik", (5, 2, 3), (5, 3, 4)), ("bij,jk->bik", (5, 2, 3), (3, 4)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)), ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5)),
    ("bthd,hdc->btc", (2, 4, 3, 5), (3, 5, 6)), ("ijk,jil->kl", (2, 3, 4), (3, 2, 5)),
    ("ii,ij->j", (3, 3), (3, 4)), ("ii,jj->ij", (3, 3), (2, 2)), ("iij,jk->ik", (2, 2, 3), (3, 4)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)), ("...ij,jk", (2, 3, 4), (4, 5)),
    ("...ij,...jk->...ik", (6, 1, 3, 4), (2, 4, 5)), ("i...,i...->...", (3, 2, 4), (3, 1)),
    ("...i,...i->...", (2, 1, 3), (5, 3)), ("...,...->...", (2, 3), (3,)), ("...i,i->...", (2, 3, 4), (4,)),
    ("...ij,...jk->ik", (2, 3, 4), (2, 4, 5)), ("bA,Ab", (2, 3), (3, 2)), ("...bA,cA", (5, 2, 3), (4, 3)),
    ("ij,ij->ij", (2, 3), (1, 3)), ("ij,jk->ik", (2, 1), (3, 4)), ("ij,jk->ik", (2, 3), (1, 4)),
    ("i,i->", (1,), (3,)), ("ii,i->i", (1, 1), (3,)), (" i j , j k -> i k ", (2, 3), (3, 4)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("i,j,k->kji", (2,), (3,), (4,)),
    ("ij,ik,il->jkl", (2, 3), (2, 4), (2, 5)), ("i,i,i->", (3,), (3,), (3,)),
    ("bn,anm,bm->ba", (2, 4), (3, 4, 5), (2, 5)), ("ij,jk,ki->", (2, 3), (3, 4), (4, 2)),
    ("ab,bc,cd,de->ae", (2, 3), (3, 4), (4, 5), (5, 2)), ("...a,...b,ab->...", (2, 3), (2, 4), (3, 4)),
    ("ij,jk->ik", (2, 0), (0, 4)), ("ij,jk->ik", (0, 3), (3, 4)), ("ij->i", (2, 0)), ("i,j->ij", (0,), (3,)),
    ("ij->i...", (2, 3)), ("i...->i", (2, 3)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1:]}")
def test_agrees_with_pytorch(case):
    equation, *shapes = case
    arrays = [normal(*s) for s in shapes]
    check(lambda *a: mytorch.einsum(equation, *a), lambda *a: torch.einsum(equation, *a), *arrays)
    for views in ([np.array(a, order="F") for a in arrays], [a[::-1] if a.ndim else a for a in arrays]):
        check(lambda *a: mytorch.einsum(equation, *a), lambda *a: torch.einsum(equation, *a), *views)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "int64"])
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk->j", "ij,ij->i"])
def test_dtypes(equation, dtype):
    shapes = [(3, 4), (4, 5)] if "k" in equation else [(3, 4), (3, 4)]
    arrays = [(normal(*s) * 3).astype(dtype) for s in shapes]
    theirs = lambda *a: torch.einsum(equation, *a)  # noqa: E731
    if equation == "ij,jk->j" and dtype == "int32":
        theirs = lambda a, b: (a.sum(0) * b.sum(1)).to(torch.int64)  # noqa: E731 - PyTorch mixes up its dtypes
    check(lambda *a: mytorch.einsum(equation, *a), theirs, *arrays, grad=dtype != "float16")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool"])
@pytest.mark.parametrize("equation", ["ij->", "ij->j", "ii", "ij->ji"])
def test_a_sum_of_small_integers_is_int64(equation, dtype):
    call = lambda F: lambda x: F.einsum(equation, x)  # noqa: E731
    check(call(mytorch), call(torch), np.arange(9).reshape(3, 3).astype(dtype))


def test_operands_as_a_list():
    check(
        lambda a, b: mytorch.einsum("i,i", [a, b]),
        lambda a, b: torch.einsum("i,i", [a, b]),
        normal(3),
        normal(3),
    )


def test_one_operand_wants_a_gradient():
    x, y = Tensor(normal(2, 3), requires_grad=True), Tensor(normal(3, 4))
    mytorch.einsum("ij,jk->ik", x, y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(y.numpy().sum(1), (2, 3)))
    assert y.grad is None


def test_the_chain_is_not_multiplied_out():
    """The gradient of one of three matrices is two products; the outer product of all wouldn't fit."""
    n = 600
    x, y, z = (Tensor(normal(n, n, dtype="float32"), requires_grad=True) for _ in range(3))
    mytorch.einsum("ij,jk,kl->il", x, y, z).sum().backward()
    want = x.numpy(force=True).T @ np.ones((n, n), "float32") @ z.numpy(force=True).T
    np.testing.assert_allclose(y.grad.numpy(), want, rtol=1e-2, atol=1)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_equation(data):
    sizes = {name: data.draw(st.integers(1, 3), label=name) for name in "abcd"}
    terms = data.draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=3), label="terms")
    known = sorted(set("".join(terms)))
    out = "".join(data.draw(st.permutations(known))[: data.draw(st.integers(0, len(known)))])
    equation = ",".join(terms) + data.draw(st.sampled_from(["->" + out, ""]))
    arrays = []
    for term in terms:
        small = data.draw(st.sets(st.sampled_from("abcd")))
        arrays.append(normal(*(1 if name in small else sizes[name] for name in term)))
    check(
        lambda *a: mytorch.einsum(equation, *a),
        lambda *a: torch.einsum(equation, *a),
        *arrays,
        rtol=1e-8,
        atol=1e-9,
    )


@pytest.mark.parametrize(
    "case", [("iij,jk->ik", (2, 2, 3), (3, 2)), ("...i,i,ki->...k", (2, 3), (3,), (2, 3))], ids=str
)
def test_gradients_agree_with_finite_differences(case):
    equation, *shapes = case
    inputs = [Tensor(normal(*s), requires_grad=True) for s in shapes]
    assert gradcheck(lambda *a: mytorch.einsum(equation, *a), inputs)


FAILS = {
    "too few operands": ("ij,jk->ik", [(2, 3)], "has 2 operands, 1 were given"),
    "too many operands": ("ij->ij", [(2, 3), (3, 4)], "has 1 operands, 2 were given"),
    "sizes": (
        "ij,jk->ik", [(2, 3), (4, 5)], r"subscript j has size 4 in operand 1 of shape \(4, 5\).*with 3",
    ),
    "too many dims": ("ij,jk->ik", [(2, 3), (3, 4, 5)], "2 subscripts do not match the 3 dimensions"),
    "too few dims": ("ij...->ij", [(2,)], "2 subscripts do not match the 1 dimensions of operand 0"),
    "unknown output": ("ij,jk->iz", [(2, 3), (3, 4)], "output subscript z .* appears in no input"),
    "output twice": ("ij,jk->ii", [(2, 3), (3, 4)], "output subscript i .* appears more than once"),
    "a digit": ("i1->i", [(2, 3)], "invalid subscript '1' for operand 0"),
    "two arrows": ("ij->i->j", [(2, 3)], "invalid subscript '-' for the output"),
    "one dot": ("i.->i", [(2, 3)], r"invalid subscript '\.'"),
    "two ellipses": ("...i...->i", [(2, 3)], r"invalid subscript '\.'"),
    "diagonal of a rectangle": ("ii->i", [(2, 3)], r"subscript i has two sizes in operand 0 of \(2, 3\)"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    equation, shapes, match = FAILS[what]
    arrays = [np.ones(s) for s in shapes]
    fails_alike(
        lambda *a: mytorch.einsum(equation, *a), lambda *a: torch.einsum(equation, *a), *arrays, match=match
    )


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float32", "int64"), ("bool", "bool")])
def test_refuses_mixed_dtypes_and_bools(dtypes):
    x, y = (np.ones(2, d) for d in dtypes)
    fails_alike(
        lambda a, b: mytorch.einsum("i,i", a, b),
        lambda a, b: torch.einsum("i,i", a, b),
        x,
        y,
        match="dtype|bool",
    )


def test_refuses_no_operands():
    with pytest.raises(ValueError, match="at least one operand"):
        mytorch.einsum("ij->i")
