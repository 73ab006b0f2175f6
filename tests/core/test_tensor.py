"""Tensor: what it is made of, how it prints, and the ways out of it."""

import copy
import operator
import pickle
import warnings

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Array, Tensor


def leaf(values=(1.0, 2.0)):
    return mytorch.tensor(list(values), requires_grad=True)


# Making one.

MADE_FROM = {
    "list": [[1.0, 2.0], [3.0, 4.0]],
    "ints": [1, 2],
    "number": 2.5,
    "bool": True,
    "empty": [],
    "numpy": np.array([1.5]),
    "numpy scalar": np.float32(2.0),
    "nested empty": [[], []],
    "complex": [1j, 2.0],
    "int64 array": np.arange(3),
}


@pytest.mark.parametrize("name", MADE_FROM)
def test_data_dtype_and_shape_are_pytorchs(name):
    data = MADE_FROM[name]
    ours, theirs = mytorch.as_tensor(data), torch.tensor(data)
    assert tuple(ours.shape) == tuple(theirs.shape) and str(ours.dtype) == str(theirs.dtype).removeprefix(
        "torch."
    )
    assert ours.tolist() == theirs.tolist()


def test_an_array_is_shared_and_not_copied():
    raw, data = np.array([1.0, 2.0]), Array([1.0])
    assert Tensor(raw).data._array is raw and Tensor(data).data is data and Tensor(Tensor(data)).data is data


def test_keywords(fake_cuda):
    x = Tensor([1, 2], requires_grad=True, dtype="float64", device="cuda:1")
    assert (x.dtype, x.device, x.requires_grad, x.is_leaf, x.is_cuda) == (
        "float64",
        "cuda:1",
        True,
        True,
        True,
    )
    assert x.data.device == "cuda:1" and not Tensor([1.0]).is_cuda


def test_requires_grad():
    x = leaf()
    assert x.requires_grad and x.is_leaf and x.grad is None and x.grad_fn is None
    y = x * 2
    assert y.requires_grad and not y.is_leaf and y.grad_fn is not None
    x.requires_grad = False
    assert not x.requires_grad and (x * 2).is_leaf
    assert x.requires_grad_() is x and x.requires_grad
    with pytest.raises(RuntimeError, match="leaf"):
        y.requires_grad_(False)
    for dtype in ("int64", "bool"):
        with pytest.raises(RuntimeError, match=dtype):
            Tensor([1, 0], requires_grad=True, dtype=dtype)


def test_grad_is_an_array_that_fits():
    x = leaf()
    x.grad = mytorch.tensor([3.0, 4.0])
    assert isinstance(x.grad, Array) and x.grad.tolist() == [3, 4]
    x.grad = np.array([5, 6], "float32")
    assert x.grad.tolist() == [5, 6]
    for wrong in ([1.0], [1.0, 2.0, 3.0], np.zeros(2)):
        with pytest.raises(RuntimeError, match=r"\(2,\).*float32"):
            x.grad = wrong
    x.grad = None
    assert x.grad is None


# Asking it.


def test_sizes():
    x, theirs = Tensor(np.zeros((2, 3, 4), "float32")), torch.zeros(2, 3, 4)
    for call in (
        lambda x: x.dim(),
        lambda x: x.ndim,
        lambda x: x.numel(),
        lambda x: x.nelement(),
        lambda x: x.size(-1),
        lambda x: tuple(x.size()),
        lambda x: tuple(x.shape),
        lambda x: x.shape.numel(),
        lambda x: x.stride(),
        lambda x: x.stride(1),
        lambda x: x.element_size(),
        lambda x: x.itemsize,
        lambda x: x.nbytes,
        lambda x: len(x),
        lambda x: x.is_contiguous(),
        lambda x: x.is_floating_point(),
        lambda x: x.is_complex(),
        lambda x: x.ndimension(),
    ):
        assert call(x) == call(theirs)
    assert repr(x.shape) == "Size([2, 3, 4])" and x.shape == (2, 3, 4)
    with pytest.raises(IndexError):
        x.size(5)
    assert not Tensor(np.zeros((2, 3)).T).is_contiguous() and x.data_ptr() == x.data.numpy().ctypes.data


REPRS = {
    "tensor([[-0.88644 -1.72318]], requires_grad=True)": lambda: mytorch.tensor(
        [[-0.88644, -1.72318]], requires_grad=True
    ),
    "tensor([8.00000])": lambda: mytorch.tensor([8.0]),
    "tensor(2.50000)": lambda: mytorch.tensor(2.5),
    "tensor([1 2])": lambda: mytorch.tensor([1, 2]),
    "tensor([ True False])": lambda: mytorch.tensor([True, False]),
    "tensor([1 2], dtype=int32)": lambda: mytorch.tensor([1, 2], dtype="int32"),
    "tensor([0.50000], dtype=float64)": lambda: mytorch.tensor([0.5], dtype=mytorch.float64),
    "tensor([2.00000 4.00000], grad_fn=<mul>)": lambda: leaf() * 2,
    "tensor([1.00000 2.00000], device='cuda:0')": lambda: mytorch.tensor([1.0, 2.0], device="cuda"),
    "tensor([], size=(2, 0))": lambda: mytorch.zeros(2, 0),
    "tensor([])": lambda: mytorch.zeros(0),
    "tensor([[1.00000 2.00000]\n        [3.00000 4.00000]])": lambda: mytorch.tensor(
        [[1.0, 2.0], [3.0, 4.0]]
    ),
    "tensor([1.00000e-08 1.00000e+00])": lambda: mytorch.tensor([1e-8, 1.0]),
    "tensor([1.00000e+06 1.00000e+00])": lambda: mytorch.tensor([1e6, 1.0]),
    "tensor([    inf     nan 1.00000])": lambda: mytorch.tensor([float("inf"), float("nan"), 1.0]),
    "tensor([65504.00000], dtype=float16)": lambda: mytorch.tensor([65504.0], dtype="float16"),
}


@pytest.mark.parametrize("text", REPRS)
def test_repr(text, fake_cuda):
    assert repr(REPRS[text]()) == str(REPRS[text]()) == text


def test_a_long_tensor_is_abbreviated():
    text = repr(mytorch.zeros(5000))
    assert "..." in text and len(text) < 200


def test_numbers():
    x = mytorch.tensor([2.5])
    assert (x.item(), float(x), int(x), bool(x), len(x)) == (2.5, 2.5, 2, True, 1) and type(x.item()) is float
    assert type(mytorch.tensor(3).item()) is int and type(mytorch.tensor(True).item()) is bool
    assert [10, 20, 30][mytorch.tensor(1)] == 20 and list(range(mytorch.tensor([3]))) == [0, 1, 2]
    assert (
        f"{mytorch.tensor(1.23456):.2f}" == "1.23"
        and f"{mytorch.tensor(3):>4}" == "   3"
        and f"{x}" == repr(x)
    )
    assert (
        mytorch.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]] and mytorch.tensor(2.5).tolist() == 2.5
    )
    assert [float(v) for v in mytorch.tensor([1.0, 2.0])] == [1, 2]


NOT_NUMBERS = {
    "item": (lambda x: x.item(), [1.0, 2.0]),
    "item of nothing": (lambda x: x.item(), []),
    "bool": (bool, [1.0, 2.0]),
    "bool of nothing": (bool, []),
    "float": (float, [1.0, 2.0]),
    "int": (int, [1.0, 2.0]),
    "len of 0-d": (len, 1.0),
    "iterate 0-d": (list, 1.0),
    "index with a float": (operator.index, 1.0),
    "index with several": (operator.index, [1, 2]),
    "size of a dim": (lambda x: x.size(2), [1.0]),
}


@pytest.mark.parametrize("name", NOT_NUMBERS)
def test_what_it_refuses_as_pytorch_does(name):
    call, data = NOT_NUMBERS[name]
    with pytest.raises(Exception) as theirs:  # noqa: B017 - whatever PyTorch raises
        call(torch.tensor(data))
    with pytest.raises(theirs.type):
        call(mytorch.tensor(data))


def test_equal_tensors_are_different_keys():
    x, y = leaf(), leaf()
    assert len({x, y}) == 2 and x in {x: 1} and hash(x) == hash(x)


# Out of the graph.


def test_numpy():
    x = mytorch.tensor([1.0, 2.0])
    assert x.numpy() is x.data.numpy() and np.asarray(x) is x.numpy()
    x.numpy()[0] = 9
    assert x.tolist() == [9, 2] and np.array(x, dtype="float64").dtype == "float64"
    y = leaf()
    for call in (lambda: y.numpy(), lambda: np.asarray(y), lambda: (y * 2).numpy(), lambda: np.array(y)):
        with pytest.raises(RuntimeError, match="detach"):
            call()
    assert y.detach().numpy().tolist() == [1, 2] and y.numpy(force=True).tolist() == [1, 2]


def test_numpy_on_a_gpu(fake_cuda):
    x = mytorch.tensor([1.0, 2.0], device="cuda:1")
    for call in (lambda: x.numpy(), lambda: np.asarray(x)):
        with pytest.raises(TypeError, match="cuda:1.*cpu"):
            call()
    assert x.cpu().numpy().tolist() == x.numpy(force=True).tolist() == x.tolist() == [1, 2]


def test_detach_shares_memory_and_counts_writes():
    x = leaf()
    y = x * 1.0
    z, cut = y * y, y.detach()
    assert cut.data._array is y.data._array and not cut.requires_grad and cut.is_leaf
    cut += 1
    assert y.tolist() == [2, 3]
    with pytest.raises(RuntimeError, match="in-?place"):
        z.sum().backward()


def test_detach_in_place():
    y = leaf() * 2
    assert y.detach_() is y and y.is_leaf and not y.requires_grad
    with pytest.raises(RuntimeError, match="view"):
        (leaf() * 2)[0:1].detach_()


def test_deepcopy():
    x = leaf()
    x.grad = Array([3.0, 4.0])
    twin = copy.deepcopy({"a": x, "b": x})
    assert twin["a"] is twin["b"] and twin["a"].requires_grad and twin["a"].tolist() == [1, 2]
    assert twin["a"].grad.tolist() == [3, 4] and twin["a"].grad is not x.grad
    with mytorch.no_grad():
        twin["a"] += 1
    assert x.tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="leaf"):
        copy.deepcopy(x * 2)


def test_deepcopy_on_a_gpu(fake_cuda):
    x = mytorch.tensor([1.0], device="cuda:1", requires_grad=True)
    twin = copy.deepcopy(x)
    assert twin.device == "cuda:1" and twin.requires_grad and twin.tolist() == [1]


def test_pickle(fake_cuda):
    for x in (leaf(), mytorch.tensor([1, 2]), mytorch.ones(2, 3).T, mytorch.tensor(2.5, device="cuda:1")):
        twin = pickle.loads(pickle.dumps(x))
        assert type(twin) is Tensor and twin.tolist() == x.tolist() and twin.dtype == x.dtype
        assert twin.device == x.device and twin.requires_grad == x.requires_grad
    with pytest.raises(RuntimeError, match="leaf"):
        pickle.dumps(leaf() * 2)


def test_no_new_attributes():
    with pytest.raises(AttributeError):
        leaf().gard = None


# DLPack.


def test_dlpack_both_ways_without_a_copy():
    x = mytorch.tensor([[1.0, 2.0], [3.0, 4.0]])
    theirs, raw = torch.from_dlpack(x), np.from_dlpack(x)
    theirs[0, 0] = 9
    assert x[0, 0].item() == 9 and raw[0, 0] == 9 and np.shares_memory(raw, x.numpy())
    theirs = torch.arange(6.0).reshape(2, 3).T
    ours = mytorch.from_dlpack(theirs)
    assert ours.shape == (3, 2) and ours.dtype == "float32" and ours.data_ptr() == theirs.data_ptr()
    theirs[0, 0] = 7
    assert ours[0, 0].item() == 7
    array = np.arange(3)
    assert np.shares_memory(mytorch.from_dlpack(array).numpy(), array)
    twin = mytorch.from_dlpack(x)
    assert twin.data_ptr() == x.data_ptr()


@pytest.mark.parametrize(
    "name", ["float16", "float32", "float64", "int64", "int32", "uint8", "bool", "complex64"]
)
def test_dlpack_dtypes(name):
    theirs = torch.zeros(2, dtype=getattr(torch, name))
    assert (
        mytorch.from_dlpack(theirs).dtype == name
        and torch.from_dlpack(mytorch.zeros(2, dtype=name)).dtype == theirs.dtype
    )


def test_dlpack_on_a_gpu(fake_cuda):
    raw = fake_cuda.ones(3, "float32")
    x = mytorch.from_dlpack(raw)
    raw[0] = 5
    assert x.device == "cuda:0" and x.tolist() == [5, 1, 1] and x.__dlpack_device__() == (2, 0)
    y = mytorch.ones(2, device="cuda:1")
    assert mytorch.from_dlpack(y).device == "cuda:1" and mytorch.from_dlpack(y).tolist() == [1, 1]


def test_what_dlpack_refuses():
    with pytest.raises(BufferError, match="detach"):
        torch.from_dlpack(leaf())
    with pytest.raises(TypeError, match="list"):
        mytorch.from_dlpack([1.0])
    with pytest.raises(TypeError, match="bfloat16"):
        mytorch.from_dlpack(torch.zeros(2, dtype=torch.bfloat16))
    with pytest.raises((TypeError, RuntimeError, BufferError), match="grad"):
        mytorch.from_dlpack(torch.zeros(2, requires_grad=True))


@pytest.mark.parametrize("kind", [Tensor, mytorch.nn.Parameter])
def test_data_may_be_set_to_a_tensor(kind):
    """As in PyTorch: the tensor stays the leaf that it is, with the memory, shape and dtype of the other."""
    w, new = kind(mytorch.ones(3)).requires_grad_(), mytorch.arange(4, dtype="float64")
    (w * 2).sum().backward()
    w.data = w - 0.5 * w.grad
    assert w.tolist() == [0, 0, 0] and w.is_leaf and w.requires_grad and isinstance(w.data, mytorch.Array)
    w.data = new
    new[0] = 7
    assert w.tolist() == [7, 1, 2, 3] and w.dtype == "float64" and w.shape == (4,)
    w.data = np.ones(2, "float32")
    assert w.tolist() == [1, 1] and w.dtype == "float32"


def _read(x, y):
    return [y.grad for _ in range(3)]


READS_GRAD = {
    "leaf": lambda x: x.grad,
    "no gradient": lambda x: x.detach().grad,
    "intermediate, in a loop": lambda x: _read(x, x * 2),
    "view": lambda x: x[:1].grad,
    "no_grad": lambda x: x.requires_grad_(False)[0].grad,
    "retained": lambda x: (lambda y: (y.retain_grad(), y.grad))(x * 2),
    "set": lambda x: (lambda y: (setattr(y, "grad", y.detach()), y.grad))(x * 2),
    "after backward": lambda x: (lambda y: (y.sum().backward(), y.grad))(x * 2),
}


@pytest.mark.parametrize("case", READS_GRAD)
def test_reading_the_grad_of_a_tensor_that_is_no_leaf_warns_as_in_pytorch(case):
    """Once a line, as Python's own filter shows it."""
    counts = []
    for library in (mytorch, torch):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            READS_GRAD[case](library.ones(2, requires_grad=True))
        for w in caught:
            assert w.category is UserWarning and "not a leaf" in str(w.message) and w.filename == __file__
        counts.append(len(caught))
    assert counts[0] == counts[1] == (case in ("intermediate, in a loop", "view", "after backward"))


def test_moving_a_module_reads_no_grad_of_a_weight_that_is_computed():
    module = mytorch.nn.ReLU()
    module.register_buffer("scale", leaf() * 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module.to(mytorch.float64)
    assert caught == [] and module.scale.dtype == mytorch.float64
