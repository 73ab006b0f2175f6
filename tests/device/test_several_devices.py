"""The CPU and two GPUs (of the strict stand-in for CuPy) side by side: copies, numbers, wrong mixtures."""

import threading

import numpy as np
import pytest

import mytorch
from mytorch import Array, Tensor, nn
from mytorch.nn import functional as F
from tests.each import each
from tests.on_device import DEVICE, same

PLACES = ["cpu", "cuda:0", "cuda:1"]
X = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize("target", PLACES)
@pytest.mark.parametrize("source", PLACES)
def test_copies(fake_cuda, source, target):
    x = mytorch.tensor(X, device=source, requires_grad=True)
    for y in (x.to(target), x.to(device=target), x.to(mytorch.ones(1, device=target)), x.T.to(target).T):
        assert y.device == target and y.cpu().tolist() == X.tolist()
    assert (x.to(target) is x) == (source == target)
    copied = mytorch.zeros(2, 3, device=target)
    copied.copy_(x.detach())
    copied[0] = x[1].detach()
    assert copied.device == target and copied.tolist() == [X[1].tolist()] * 2
    (x.to(target) * 2).pow(2).sum().backward()
    assert x.grad.device == source and x.grad.tolist() == (8 * X).tolist()
    array = Array(X, device=source).to(target)
    assert array.device == target and array.tolist() == X.tolist()


def test_a_graph_over_three_devices(fake_cuda):
    x = mytorch.tensor(X, requires_grad=True)
    w = mytorch.full((3,), 2.0, device="cuda:1", requires_grad=True)
    a = (x * 3).to("cuda:0")
    y = (a * a).to("cuda:1") * w + a.to("cuda:1")
    (y.cpu() + x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 36 * X + 3 + 1)
    assert w.grad.device == "cuda:1"
    np.testing.assert_allclose(w.grad.cpu().numpy(), (9 * X * X).sum(0))


def test_a_write_from_another_device_has_a_gradient(fake_cuda):
    x = mytorch.tensor(X, requires_grad=True)
    w = mytorch.ones(3, device="cuda:1", requires_grad=True)
    y = (w * 2).reshape(1, 3) * mytorch.ones(2, 1, device="cuda:1")
    y[1] = x[0]
    (y * y).sum().backward()
    assert x.grad.device == "cpu" and x.grad.tolist() == [[0, 2, 4], [0, 0, 0]]
    assert w.grad.device == "cuda:1" and w.grad.tolist() == [8, 8, 8]


@pytest.mark.parametrize("number", [
    3, 2.5, True, np.float32(2.5), np.float64(2.5), np.int64(3), np.array(2.5), Tensor(2.5),
    mytorch.tensor(3), Array(2.5),
], ids=repr)
def test_numbers_go_with_any_device(fake_cuda, number):
    """So do 0-d tensors and arrays of the CPU; they promote as they do there."""
    here, there = mytorch.tensor(X, requires_grad=True), mytorch.tensor(X, requires_grad=True, device=DEVICE)
    calls = [
        lambda x: x + number, lambda x: x * number, lambda x: x / number, lambda x: number - x,
        lambda x: x < number, lambda x: mytorch.maximum(x, mytorch.as_tensor(number)),
        lambda x: x.clamp(number),
        lambda x: mytorch.where(x > 1, x, number), lambda x: mytorch.where(x > number, number, x),
        lambda x: (x * 1).add_(number), lambda x: x.masked_fill(x > 1, number), lambda x: x.long() + number,
    ]
    for i, call in enumerate(calls):
        if i == 3 and isinstance(number, (bool, np.ndarray, np.generic)):
            continue  # nothing is subtracted from a bool, and NumPy's numbers have the first word
        same(call(there), call(here), what=f"call {i}")
    y = there * 1
    y[0] = number
    assert y[0].tolist() == [float(number)] * 3
    (y * y).sum().backward()
    assert there.grad.device == DEVICE and there.grad.tolist() == [[0, 0, 0], [6, 8, 10]]


def test_a_number_may_want_a_gradient(fake_cuda):
    x, scale = mytorch.tensor(X, device=DEVICE), Tensor(2.0, requires_grad=True)
    (x * scale).sum().backward()
    assert scale.grad.device == "cpu" and scale.grad.item() == X.sum()


# What raises: the call with a tensor on the GPU and one elsewhere.
MIXED = {
    "add": lambda x, y: x + y,
    "reflected": lambda x, y: y * x,
    "in place": lambda x, y: x.add_(y),
    "matmul": lambda x, y: x @ y.T,
    "cat": lambda x, y: mytorch.cat([x, y]),
    "stack": lambda x, y: mytorch.stack([y, x]),
    "where": lambda x, y: mytorch.where(x > 1, x, y),
    "condition": lambda x, y: mytorch.where(y > 1, x, x),
    "masked_fill": lambda x, y: x.masked_fill(y > 1, 0),
    "gather": lambda x, y: x.gather(0, (y > 9).long()),
    "scatter": lambda x, y: x.scatter(0, (x > 9).long(), y),
    "index_select": lambda x, y: x.index_select(0, y[0, :1].long()),
    "take": lambda x, y: x.take(y.long()),
    "clamp": lambda x, y: x.clamp(y),
    "einsum": lambda x, y: mytorch.einsum("ij,ij", x, y),
    "eq": lambda x, y: x == y,
    "linear": lambda x, y: F.linear(x, y),
    "layer": lambda x, y: nn.Linear(3, 2, device=x.device)(y),
    "embedding": lambda x, y: F.embedding(y.long() * 0, x),
    "mse_loss": lambda x, y: F.mse_loss(x, y),
    "cross_entropy": lambda x, y: F.cross_entropy(x, y[:, 0].long() * 0),
    "layer_norm": lambda x, y: F.layer_norm(x, (3,), y[0]),
    "attention": lambda x, y: F.scaled_dot_product_attention(x, y, y),
    "NumPy's array": lambda x, y: x + X,
    "np.add": lambda x, y: np.add(x, y),
    "np.concatenate": lambda x, y: np.concatenate([x, y]),
    "Arrays": lambda x, y: x.data + y.data,
    "Array of NumPy": lambda x, y: x.data * X,
    "np.multiply of Arrays": lambda x, y: np.multiply(x.data, y.data),
    "Array out": lambda x, y: np.add(x.data, x.data, out=y.data),
    "generator": lambda x, y: x.uniform_(generator=mytorch.Generator(y.device)),
}


@each("other", ["cpu", "cuda:0"])
@each("name", MIXED)
def test_mixtures_raise(fake_cuda, name, other):
    if other == "cuda:0" and "NumPy" in name:
        return
    x, y = mytorch.tensor(X, device=DEVICE), mytorch.tensor(X, device=other)
    with pytest.raises(RuntimeError, match=f"(?s){other}.*{DEVICE}|{DEVICE}.*{other}"):
        MIXED[name](x, y)


def test_an_index_may_be_on_the_cpu_but_not_on_another_gpu(fake_cuda):
    x, index = mytorch.tensor(X, device=DEVICE), mytorch.tensor([1, 0])
    same(x[index], Tensor(X[[1, 0]]))
    with pytest.raises(RuntimeError, match=f"index is on cuda:0, the indexed tensor on {DEVICE}"):
        x[index.to("cuda:0")]
    with pytest.raises(RuntimeError, match=f"index is on {DEVICE}, the indexed tensor on cpu"):
        x.cpu()[index.to(DEVICE)]


def test_the_current_gpu_stays_what_it_was(fake_cuda):
    """… and each tensor stays where it is, whichever GPU is the current one."""
    x = mytorch.tensor(X, device="cuda:1", requires_grad=True)
    for current in (0, 1):
        with fake_cuda.cuda.Device(current):
            y = F.gelu(F.linear(x, x)).sum()
            y.backward()
            assert x.grad.device == y.device == "cuda:1" and fake_cuda.cuda.Device().id == current
            assert (
                mytorch.zeros(2, device="cuda").device
                == f"cuda:{current}"
                == f"cuda:{mytorch.cuda.current_device()}"
            )
            with pytest.raises(RuntimeError):
                x @ mytorch.ones(9, device="cuda:1")
            assert fake_cuda.cuda.Device().id == current


def test_threads_have_a_current_gpu_each(fake_cuda):
    results = {}

    def work(index):
        x = mytorch.tensor(X, device=f"cuda:{index}", requires_grad=True)
        for _ in range(20):
            (x * x).sum().backward()
        results[index] = x.grad

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, gradient in results.items():
        assert gradient.device == f"cuda:{index}" and gradient.tolist() == (40 * X).tolist()


def test_mytorch_cuda(fake_cuda):
    assert (
        mytorch.cuda.is_available()
        and mytorch.cuda.device_count() == 2
        and mytorch.cuda.current_device() == 0
    )
    for device in (None, 1, "cuda:1", mytorch.device("cuda:0")):
        mytorch.cuda.synchronize(device)
    with pytest.raises(RuntimeError, match="cuda:2.*2 GPUs"):
        mytorch.cuda.synchronize(2)


def test_dlpack_shares_memory(fake_cuda):
    x = mytorch.tensor(X, device="cuda:1")
    y = mytorch.from_dlpack(x)
    y[0, 0] = 9
    assert y.device == "cuda:1" and x[0, 0].item() == 9
    raw = fake_cuda.asarray(X)
    z = mytorch.from_dlpack(raw)
    z[0, 0] = 9
    assert z.device == "cuda:0" and raw[0, 0].item() == 9
    assert Tensor(raw).device == mytorch.as_tensor(raw).device == "cuda:0"


def test_printing_says_where(fake_cuda):
    x = mytorch.tensor([1.0, 2.0], device=DEVICE)
    assert repr(x) == f"tensor([1.00000 2.00000], device='{DEVICE}')"
    assert f"device='{DEVICE}'" in repr(nn.Parameter(x)) and "requires_grad=True" in repr(nn.Parameter(x))
