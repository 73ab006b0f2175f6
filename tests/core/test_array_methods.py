"""The methods of a Tensor on Arrays, and Arrays as arguments of functions, beside PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Array, Tensor
from tests.each import each

X = np.array([[1.5, -2.0, 0.25], [4.0, 0.5, -3.0]], np.float32)

# Called with x, on our Array and on PyTorch's tensor.
METHODS = {
    "float": lambda x: x.float(),
    "double": lambda x: x.double(),
    "long": lambda x: x.long(),
    "pow": lambda x: x.pow(2),
    "mul": lambda x: x.mul(3),
    "add with alpha": lambda x: x.add(x, alpha=0.5),
    "sqrt": lambda x: x.abs().sqrt(),
    "square": lambda x: x.square(),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze of a dim that is not 1": lambda x: x.squeeze(0),
    "t": lambda x: x.t(),
    "mT": lambda x: x.mT,
    "transpose of three dims": lambda x: x.unsqueeze(0).transpose(0, 2),
    "masked_fill": lambda x: x.masked_fill(x > 1, 9.0),
    "isfinite": lambda x: x.isfinite(),
    "split": lambda x: x.split(2, dim=1),
    "unbind": lambda x: x.unbind(),
    "norm": lambda x: x.norm(),
    "norm along a dim": lambda x: x.norm(1, dim=1, keepdim=True),
    "view": lambda x: x.view(3, 2),
    "view of a list": lambda x: x.view([6]),
    "flatten from a dim": lambda x: x.flatten(1),
    "reshape": lambda x: x.reshape(-1),
    "sum": lambda x: x.sum(dim=1, keepdim=True),
    "mean, keepdim by position": lambda x: x.mean(1, True),
    "max": lambda x: x.max(),
    "max of a dim": lambda x: x.max(1),
    "max keepdim": lambda x: x.max(1, keepdim=True),
    "min of a dim": lambda x: x.min(dim=0),
    "std": lambda x: x.std(),
    "var": lambda x: x.var(dim=0, unbiased=False),
    "sort": lambda x: x.sort(descending=True),
    "nonzero": lambda x: x.nonzero(),
    "repeat": lambda x: x.repeat(2, 1),
    "topk": lambda x: x.topk(2),
    "lerp": lambda x: x.lerp(x + 1, 0.3),
    "addcdiv": lambda x: x.addcdiv(x, x + 9, value=-2),
    "clone": lambda x: x.clone(),
    "detach": lambda x: x.detach(),
    "cpu": lambda x: x.cpu(),
    "type_as": lambda x: x.type_as(x.double()),
    "new_zeros": lambda x: x.new_zeros(2, 2),
    "softmax": lambda x: x.softmax(1),
    "size": lambda x: list(x.size()),
    "size of a dim": lambda x: x.size(0),
    "numel": lambda x: x.numel(),
    "type": lambda x: x.type(),
    "requires_grad": lambda x: x.requires_grad,
    "is_leaf": lambda x: x.is_leaf,
    "is_cuda": lambda x: x.is_cuda,
    "is_contiguous": lambda x: x.t().is_contiguous(),
    "grad": lambda x: x.grad,
    "item": lambda x: x.sum().item(),
}


def agree(got, want, kind=Array):
    if isinstance(want, (tuple, list)):
        for g, w in zip(got, want, strict=True):
            agree(g, w, kind)
    elif isinstance(want, torch.Tensor):
        assert type(got) is kind and str(want.dtype) == f"torch.{got.dtype}" and got.shape == want.shape
        np.testing.assert_allclose(got.tolist(), want.tolist(), rtol=1e-5, atol=1e-7)
    else:
        assert got == want


@each("name", METHODS)
def test_a_method_returns_arrays_of_pytorchs_values(name):
    agree(METHODS[name](Array(X.copy())), METHODS[name](torch.from_numpy(X.copy())))


# Called with x, and with y of the same kind.
IN_PLACE = {
    "add_": lambda x, y: x.add_(y, alpha=2),
    "sub_": lambda x, y: x.sub_(y),
    "mul_": lambda x, y: x.mul_(y),
    "div_": lambda x, y: x.div_(y),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=0.5),
    "addcdiv_": lambda x, y: x.addcdiv_(x, y, value=-0.1),
    "lerp_": lambda x, y: x.lerp_(y, 0.25),
    "copy_": lambda x, y: x.copy_(y),
    "zero_": lambda x, y: x.zero_(),
    "fill_": lambda x, y: x.fill_(3),
    "clamp_": lambda x, y: x.clamp_(min=-1, max=1),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 2, 0),
    "sign_": lambda x, y: x.sign_(),
    "detach_": lambda x, y: x.detach_(),
    "a chain": lambda x, y: x.mul_(0.9).add_(y).sqrt_(),
}


@each("kind", [Array, Tensor, np.asarray])
@each("name", IN_PLACE)
def test_a_method_in_place_writes_the_arrays_own_memory(name, kind):
    x, y = np.abs(X), np.array([1.0, 2.5, 3.0], np.float32)
    array = Array(x.copy())
    raw = array._array
    if kind is np.asarray and name != "copy_":
        kind = Array
    assert IN_PLACE[name](array, kind(y)) is array and array._array is raw
    agree(array, IN_PLACE[name](torch.from_numpy(x.copy()), torch.from_numpy(y)))


@pytest.mark.parametrize("name", ["normal_", "uniform_", "bernoulli_", "exponential_"])
def test_random_methods_draw_what_a_tensor_draws(name):
    array, tensor = Array(X.copy()), Tensor(X.copy())
    for x in (array, tensor):
        mytorch.manual_seed(0)
        getattr(x, name)()
    assert array.tolist() == tensor.tolist() != X.tolist()


# Functions; they return Tensors.
FUNCTIONS = {
    "zeros_like": lambda f, x: f.zeros_like(x),
    "full_like": lambda f, x: f.full_like(x, 2),
    "stack": lambda f, x: f.stack([x, x]),
    "cat": lambda f, x: f.cat((x, x), dim=1),
    "norm": lambda f, x: f.norm(x),
    "norm of norms": lambda f, x: f.norm(f.stack([f.norm(g, 2.0) for g in (x, x)]), 2.0),
    "linalg.vector_norm": lambda f, x: f.linalg.vector_norm(x, dim=1),
    "max": lambda f, x: f.max(x, 1),
    "sub": lambda f, x: f.sub(x, x, alpha=2),
    "keyword": lambda f, x: f.add(input=x, other=x),
    "where": lambda f, x: f.where(x > 0, x, f.zeros_like(x)),
    "einsum": lambda f, x: f.einsum("ij,kj->ik", x, x),
    "nanmean": lambda f, x: f.nanmean(x),
    "is_tensor": lambda f, x: f.is_tensor(x),
    "relu": lambda f, x: f.nn.functional.relu(x),
    "softmax": lambda f, x: f.nn.functional.softmax(x, dim=1),
    "mse_loss": lambda f, x: f.nn.functional.mse_loss(x, f.zeros_like(x)),
    "normalize": lambda f, x: f.nn.functional.normalize(x),
    "pad": lambda f, x: f.nn.functional.pad(x, (1, 0)),
    "a module": lambda f, x: f.nn.Softplus()(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_arrays_and_returns_tensors(name):
    agree(FUNCTIONS[name](mytorch, Array(X)), FUNCTIONS[name](torch, torch.from_numpy(X)), Tensor)


def test_a_method_that_has_nothing_to_do_returns_the_array():
    """As PyTorch's of a tensor."""
    array, tensor = Array([1.0, 2.0]), torch.tensor([1.0, 2.0])
    for x in (array, tensor):
        assert x.contiguous() is x and x.float() is x and x.cpu() is x and x.clone() is not x
    assert array.to("float32") is array and type(array.double()) is Array


def test_functions_that_write_into_an_array():
    array = Array(X.copy())
    raw = array._array
    assert mytorch.mul(array, 2, out=array) is array and array.tolist() == (X * 2).tolist()
    mytorch.add(array, -1, out=array)
    mytorch.nn.functional.relu_(array)
    assert array.tolist() == np.maximum(X * 2 - 1, 0).tolist()
    assert mytorch.nn.init.ones_(array) is array and mytorch.zero_(array).tolist() == (X * 0).tolist()
    assert array._array is raw
    with pytest.raises(RuntimeError, match=r"\(2, 3\), which isn't resized to \(3,\)"):
        mytorch.sum(Array(X), 0, out=array)


def test_tensors_and_arrays_mix():
    array, tensor = Array(X.copy()), mytorch.ones(3)
    assert type(array + tensor) is Tensor and type(array.add(tensor)) is Array
    weight = mytorch.ones(3, requires_grad=True)
    product = array.mul(weight)  # its graph isn't lost
    product.sum().backward()
    assert type(product) is Tensor and weight.grad.tolist() == X.sum(0).tolist()
    array.copy_(weight)
    array[0] = weight * 2
    assert array.tolist() == [[2, 2, 2], [1, 1, 1]] and array[mytorch.tensor([1])].tolist() == [[1, 1, 1]]


def test_data_of_an_array():
    array = Array(X.copy())
    raw, array.data = array._array, array.data * 2
    assert array._array is raw and array.tolist() == (X * 2).tolist()
    array.data = mytorch.zeros(2, 3)
    assert raw.sum() == 0
    for wrong in (mytorch.zeros(3), mytorch.zeros(2, 3, dtype="float64")):
        with pytest.raises(RuntimeError, match=r"keeps its shape \(2, 3\), dtype float32"):
            array.data = wrong


def test_an_array_records_no_graph():
    array = Array(X)
    assert array.requires_grad_(False) is array and array.grad_fn is None
    array.requires_grad = False
    with pytest.raises(RuntimeError, match="records no graph"):
        array.requires_grad = True
    for name in ("backward", "register_hook", "retain_grad", "t_"):
        assert not hasattr(array, name)


NUMPYS = {
    "max": lambda x: x.max(axis=0),
    "std": lambda x: x.std(ddof=0),
    "sum": lambda x: x.sum(axis=1, keepdims=True),
    "sum out": lambda x: x.sum(0, out=np.zeros_like(x)[0]),
    "cumsum": lambda x: x.cumsum(),
    "round": lambda x: x.round(1),
    "repeat": lambda x: x.repeat(2, axis=1),
    "transpose": lambda x: x.transpose(),
    "np.std": np.std,
    "np.nonzero": np.nonzero,
    "dot": lambda x: x.dot(x.T),
    "astype": lambda x: x.astype("float32"),
    "size": lambda x: x.size,
}


@pytest.mark.parametrize("name", NUMPYS)
def test_calls_with_numpys_arguments_are_numpys(name):
    got, want = NUMPYS[name](Array(X)), NUMPYS[name](X)
    for g, w in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        np.testing.assert_array_equal(np.asarray(g), w)
    assert got is not X
