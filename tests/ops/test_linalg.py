"""Matrix products against PyTorch: all combinations of dims, layouts and dtypes."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mytorch
from mytorch import Tensor
from mytorch.autograd import gradcheck
from mytorch.backends import blas
from tests.oracle import check, fails_alike, same

rng = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


SHAPES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)), ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (1, 3, 4)), ((1, 2, 3), (5, 3, 4)),
    ((6, 5, 2, 3), (3, 4)), ((6, 5, 2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)), ((6, 5, 2, 3), (3,)),
    ((3,), (6, 5, 3, 4)), ((6, 1, 2, 3), (1, 5, 3, 4)), ((1,), (1,)), ((1, 1), (1, 1)),
    ((0,), (0,)), ((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)),
    ((0, 2, 3), (3, 4)), ((5, 0, 3), (3, 4)),
    ((5, 2, 0), (0, 4)), ((0, 2, 3), (0, 3, 4)), ((5, 2, 3), (3, 0)), ((0,), (0, 4)), ((2, 0), (0,)),
]
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if x.ndim > 1 else x,
    "every other": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "reversed": lambda x: x[..., ::-1].copy()[..., ::-1],
    "batch last": lambda x: np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0),
    "broadcast": lambda x: np.broadcast_to(x[..., :1], x.shape),
}


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(shapes):
    x, y = (normal(*s) for s in shapes)
    check(mytorch.matmul, torch.matmul, x, y)
    check(lambda a, b: a @ b, lambda a, b: a @ b, x, y)


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS)), ids=str)
@pytest.mark.parametrize(
    "shapes", [((4, 5), (5, 6)), ((2, 4, 5), (5, 6)), ((2, 3, 4, 5), (2, 3, 5, 6))], ids=str
)
def test_layouts(shapes, layouts):
    x, y = (LAYOUTS[layout](normal(*s)) for s, layout in zip(shapes, layouts, strict=True))
    check(mytorch.matmul, torch.matmul, x, y)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize(
    "shapes", [((3,), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4))], ids=str
)
def test_dtypes(shapes, dtype):
    check(mytorch.matmul, torch.matmul, *((normal(*s) * 3).astype(dtype) for s in shapes))


def test_heads_of_attention_are_strided_views():
    """q, k, v as a GPT has them: slices of one array, viewed as heads."""
    qkv = normal(2, 5, 3 * 12)

    def attention(qkv):
        q, k, v = (
            part.reshape(2, 5, 3, 4).transpose(1, 2)
            for part in (qkv[..., :12], qkv[..., 12:24], qkv[..., 24:])
        )
        return (q @ k.transpose(-2, -1)) @ v

    check(attention, attention, qkv, rtol=1e-4, atol=1e-4)


def test_half_precision_is_accumulated_in_single():
    x = np.ones((2, 5000), "float16")
    check(mytorch.matmul, torch.matmul, x, x.T)  # 5000; steps of 1 would end at 2048
    check(mytorch.matmul, torch.matmul, x.reshape(1, 2, 5000), x.T)


@pytest.mark.parametrize("keep", [0, 1])
def test_only_one_operand_wants_a_gradient(keep):
    x, y = (normal(4, 2, 3), normal(3, 5))
    mine = [Tensor(a, requires_grad=i == keep) for i, a in enumerate((x, y))]
    his = [torch.tensor(a, requires_grad=i == keep) for i, a in enumerate((x, y))]
    (mine[0] @ mine[1]).sum().backward()
    (his[0] @ his[1]).sum().backward()
    same(mine[keep].grad, his[keep].grad)
    assert mine[1 - keep].grad is None


def test_one_tensor_as_both_operands():
    x = normal(3, 3)
    check(lambda a: a @ a, lambda a: a @ a, x)
    check(lambda a: a @ a.T, lambda a: a @ a.T, x)


def test_other_operands():
    """Arrays of either kind are operands, too, and `x @= y` makes a new tensor."""
    x, y = normal(2, 3), normal(3, 4)
    want = torch.from_numpy(x) @ torch.from_numpy(y)
    for other in (y, mytorch.Array(y), Tensor(y)):
        same(Tensor(x) @ other, want)
    for other in (x, mytorch.Array(x)):
        same(other @ Tensor(y), want)
    before = after = Tensor(x)
    after @= Tensor(y)
    assert before.shape == (2, 3) and after.shape == (2, 4)


RESTRICTED = {
    "mm": ((2, 3), (3, 4)),
    "bmm": ((5, 2, 3), (5, 3, 4)),
    "mv": ((2, 3), (3,)),
    "dot": ((3,), (3,)),
    "vdot": ((3,), (3,)),
    "outer": ((3,), (4,)),
    "ger": ((3,), (4,)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
@pytest.mark.parametrize("name", RESTRICTED)
def test_restricted_products(name, dtype):
    x, y = ((normal(*s) * 2).astype(dtype) for s in RESTRICTED[name])
    check(getattr(mytorch, name), getattr(torch, name), x, y)
    check(lambda a, b: getattr(a, name)(b), lambda a, b: getattr(a, name)(b), x, y)


def test_outer_promotes():
    check(mytorch.outer, torch.outer, normal(3), np.arange(4))
    check(mytorch.outer, torch.outer, normal(0), normal(4))
    check(mytorch.outer, torch.outer, np.ones(2, bool), np.ones(3, bool))


DIMS = st.integers(0, 3)


@settings(max_examples=80, deadline=None)
@given(st.lists(DIMS, max_size=3), DIMS, DIMS, DIMS, st.data())
def test_any_shapes(batch, m, k, n, data):
    def one_operand(rows, columns):
        cut = data.draw(st.integers(0, len(batch)))
        lead = [data.draw(st.sampled_from([1, size])) for size in batch[cut:]]
        return normal(*lead, rows, columns, dtype="float64")

    check(mytorch.matmul, torch.matmul, one_operand(m, k), one_operand(k, n))


@pytest.mark.parametrize(
    "shapes", [((3,), (3,)), ((2, 3), (3,)), ((2, 2, 3), (3, 2)), ((2, 1, 2, 3), (3, 3, 2))], ids=str
)
def test_gradients_agree_with_finite_differences(shapes):
    assert gradcheck(
        mytorch.matmul, [Tensor(normal(*s, dtype="float64"), requires_grad=True) for s in shapes]
    )


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


FAILS = {
    "0-d": ("matmul", ones(), ones(3), r"at least 1 dimension, got shapes \(\) and \(3,\)"),
    "vectors": ("matmul", ones(3), ones(4), r"shapes \(3,\) and \(4,\) cannot be multiplied: 3 is not 4"),
    "matrix and vector": ("matmul", ones(2, 3), ones(4), r"\(2, 3\) and \(4,\)"),
    "vector and matrix": ("matmul", ones(3), ones(4, 2), r"\(3,\) and \(4, 2\)"),
    "matrices": ("matmul", ones(2, 3), ones(4, 5), r"\(2, 3\) and \(4, 5\) cannot be multiplied"),
    "batch and matrix": ("matmul", ones(2, 3, 4), ones(5, 5), r"\(2, 3, 4\) and \(5, 5\)"),
    "batches of matrices": ("matmul", ones(2, 3, 4), ones(2, 5, 5), r"\(2, 3, 4\) and \(2, 5, 5\)"),
    "batches": ("matmul", ones(2, 3, 4), ones(3, 4, 5), r"\(2, 3, 4\) and \(3, 4, 5\).*batches differ"),
    "dtypes": ("matmul", ones(2, 3), ones(3, 4, dtype="float64"), "one dtype, got float32 and float64"),
    "bool": ("matmul", ones(2, 3, dtype=bool), ones(3, 4, dtype=bool), "bool"),
    "a number": ("matmul", ones(2, 3), 2, "two tensors, got ndarray and int"),
    "mm of a vector": ("mm", ones(2, 3), ones(3), r"expected 2-D and 2-D tensors, got \(2, 3\) and \(3,\)"),
    "mm of shapes": ("mm", ones(2, 3), ones(2, 3), r"\(2, 3\) and \(2, 3\) cannot be multiplied"),
    "bmm of a matrix": ("bmm", ones(2, 3, 3), ones(3, 3), r"3-D and 3-D.* got \(2, 3, 3\) and \(3, 3\)"),
    "bmm of two batches": ("bmm", ones(2, 3, 3), ones(1, 3, 3), r"one size, got \(2, 3, 3\) and \(1, 3, 3\)"),
    "mv of vectors": ("mv", ones(3), ones(3), "expected 2-D and 1-D tensors"),
    "dot of a matrix": ("dot", ones(3, 3), ones(3), "expected 1-D and 1-D tensors"),
    "dot of dtypes": ("dot", ones(3), ones(3, dtype="int32"), "one dtype, got float32 and int32"),
    "outer of a matrix": ("outer", ones(3), ones(3, 3), "expected 1-D and 1-D tensors"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    name, x, y, match = FAILS[what]
    fails_alike(getattr(mytorch, name), getattr(torch, name), x, y, match=match)


def test_an_overwritten_operand_is_noticed():
    x, y = (Tensor(ones(2, 2), requires_grad=True) for _ in range(2))
    z = y * 1
    loss = (x @ z).sum()
    z += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_batch_of_rows_is_one_product(monkeypatch):
    """(b, t, c) @ (c, n), its gradients too, take one BLAS call each, of b * t rows."""
    calls = []
    matmul = np.matmul
    monkeypatch.setattr(blas.np, "matmul", lambda x, y: calls.append((x.shape, y.shape)) or matmul(x, y))
    x, y = (Tensor(ones(*s), requires_grad=True) for s in ((2, 3, 4), (4, 5)))
    (x @ y).backward(ones(2, 3, 5))
    assert calls == [((6, 4), (4, 5)), ((6, 5), (5, 4)), ((4, 6), (6, 5))]
