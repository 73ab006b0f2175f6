"""bfloat16: a dtype like the others, from a package that is imported when it is asked for."""

import copy
import itertools
import math
import pickle
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch

import mytorch
from mytorch import Array, Tensor, nn, optim
from mytorch.backends import dtypes
from mytorch.backends.device import device as Device
from mytorch.core.op import common_dtype
from mytorch.optim.update import why_no_kernel
from tests.oracle import check, numpy_of, torch_of

BF16 = mytorch.bfloat16
OTHERS = [name for name in map(str, dtypes.SUPPORTED) if name not in ("uint16", "uint32", "uint64")]
SHAPES = {"dims": (2,), "0-d": ()}
rng = np.random.default_rng(0)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def normal(*shape):
    return rng.standard_normal(shape).astype(BF16)


# The dtype.


def test_it_is_imported_when_it_is_asked_for(tmp_path):
    safetensors.torch.save_file({"w": torch.tensor([1.5, -2], dtype=torch.bfloat16)}, tmp_path / "file")
    code = f"""
import sys, mytorch
mytorch.ones(2).half() * 2
assert "ml_dtypes" not in sys.modules
w = mytorch.load({str(tmp_path / "file")!r})["w"]
assert "ml_dtypes" in sys.modules and w.dtype == mytorch.bfloat16 and (w + 1).tolist() == [2.5, -1], w
"""
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True, timeout=300)


@pytest.mark.parametrize("dtype", ["bfloat16", "torch.bfloat16", ml_dtypes.bfloat16, np.dtype("bfloat16")])
def test_its_names(dtype):
    assert dtypes.as_dtype(dtype) is dtypes.as_dtype(BF16) and str(dtypes.as_dtype(dtype)) == "bfloat16"
    assert mytorch.zeros(2, dtype=dtype).dtype == BF16


def test_what_it_is_not():
    with pytest.raises(AttributeError, match="bfloat15"):
        _ = mytorch.bfloat15
    for other in (ml_dtypes.float8_e4m3fn, "V2", np.dtype([("a", "f4")])):
        with pytest.raises(TypeError, match="there are bfloat16, float16, float32"):
            dtypes.as_dtype(other)
        with pytest.raises(TypeError, match="there are bfloat16"):
            Array(np.zeros(2, other))


@pytest.mark.parametrize("other", [*OTHERS, "bfloat16"])
def test_promotion_is_pytorch_s(other):
    their = getattr(torch, other)
    want = name_of(torch.promote_types(torch.bfloat16, their))
    assert mytorch.promote_types(BF16, other) == mytorch.promote_types(other, BF16) == want
    for mine, yours in itertools.product(SHAPES.values(), SHAPES.values()):
        x, y = mytorch.ones(mine, dtype=BF16), mytorch.ones(yours, dtype=other)
        want = name_of(
            torch.result_type(torch.ones(mine, dtype=torch.bfloat16), torch.ones(yours, dtype=their))
        )
        assert common_dtype([x, y]) == common_dtype([y, x]) == (x + y).dtype == (y * x).dtype == want
    assert mytorch.can_cast(BF16, other) == torch.can_cast(torch.bfloat16, their)
    assert mytorch.can_cast(other, BF16) == torch.can_cast(their, torch.bfloat16)


@pytest.mark.parametrize("number", [True, 2, 2.5, 1j], ids=repr)
def test_beside_a_number(number):
    for shape in SHAPES.values():
        want = name_of(torch.result_type(torch.ones(shape, dtype=torch.bfloat16), number))
        assert common_dtype([mytorch.ones(shape, dtype=BF16), number]) == want
        assert (mytorch.ones(shape, dtype=BF16) * number).dtype == want


def test_a_number_beside_it_is_not_rounded():
    check(lambda x: 1.003 * x / 0.997, lambda x: 1.003 * x / 0.997, normal(50), rtol=0, atol=0)


def test_limits():
    ours, theirs = mytorch.finfo(BF16), torch.finfo(torch.bfloat16)
    for field in ("max", "min", "eps", "tiny", "smallest_normal", "bits"):
        assert getattr(ours, field) == getattr(theirs, field), field
    with pytest.raises(ValueError):
        mytorch.iinfo(BF16)


def test_as_the_default():
    mytorch.set_default_dtype(BF16)
    try:
        made = [
            mytorch.zeros(2), mytorch.tensor(1.5), mytorch.rand(2), mytorch.linspace(0, 1, 3),
            mytorch.add(1.5, 2), mytorch.tensor([1, 2]) / 2, mytorch.tensor(2).sqrt(), nn.Linear(2, 3).weight,
            mytorch.where(mytorch.tensor([True]), 1.0, 2.0), mytorch.tensor([1, 2]).logsumexp(0),
        ]
        assert [x.dtype for x in made] == [BF16] * len(made)
        assert repr(mytorch.tensor(1.5)) == "tensor(1.50000)"
    finally:
        mytorch.set_default_dtype("float32")


# Tensors.

MADE = {
    "tensor": lambda F, dtype: F.tensor([[1, 2.3], [1e30, -0.1]], dtype=dtype),
    "of bools": lambda F, dtype: F.tensor([True, False], dtype=dtype),
    "zeros": lambda F, dtype: F.zeros(2, 3, dtype=dtype),
    "ones_like": lambda F, dtype: F.ones_like(F.zeros(2), dtype=dtype),
    "full": lambda F, dtype: F.full((2,), 1.1, dtype=dtype),
    "arange": lambda F, dtype: F.arange(0, 3, 0.3, dtype=dtype),
    "linspace": lambda F, dtype: F.linspace(-1, 2, 7, dtype=dtype),
    "eye": lambda F, dtype: F.eye(2, 3, dtype=dtype),
    "new_tensor": lambda F, dtype: F.zeros(2, dtype=dtype).new_tensor([0.1, 2]),
    "to": lambda F, dtype: F.tensor([0.1, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38]).to(dtype),
    "from float64": lambda F, dtype: F.tensor([0.1, 7], dtype=F.float64).to(dtype),
    "from int64": lambda F, dtype: F.tensor([257, -(2**40)]).to(dtype),
    "to float16": lambda F, dtype: F.tensor([0.1, 1e5], dtype=dtype).to(F.float16),
    "to int64": lambda F, dtype: F.tensor([2.9, -1.5], dtype=dtype).to(F.int64),
    "bfloat16()": lambda F, dtype: F.tensor([0.1]).bfloat16(),
    "float()": lambda F, dtype: F.tensor([0.1], dtype=dtype).float(),
    "type_as": lambda F, dtype: F.tensor([0.1]).type_as(F.zeros(1, dtype=dtype)),
    "type": lambda F, dtype: F.tensor([0.1]).type("torch.BFloat16Tensor"),
    "view": lambda F, dtype: F.tensor([0.1, 2], dtype=dtype).view(F.int16),
    "view of bits": lambda F, dtype: F.tensor([16256, 1], dtype=F.int16).view(dtype),
    "setitem": lambda F, dtype: _written(F.zeros(2, 3, dtype=dtype), F),
    "copy_": lambda F, dtype: F.zeros(2, dtype=dtype).copy_(F.tensor([0.1, 257])),
    "add_": lambda F, dtype: F.full((2,), 1.1, dtype=dtype).add_(F.tensor([0.1, 257]), alpha=0.3),
    "mul_": lambda F, dtype: F.full((2,), 1.1, dtype=dtype).mul_(0.7),
    "float32 +=": lambda F, dtype: F.full((2,), 1.1).add_(F.tensor([0.1, 3], dtype=dtype)),
}


def _written(x, F):
    x[0] = 1.1
    x[1, 1:] = F.tensor([0.1, 257])
    x[x > 200] += 1
    return x


@pytest.mark.parametrize("name", MADE)
def test_tensors_are_made_as_in_pytorch(name):
    check(lambda: MADE[name](mytorch, BF16), lambda: MADE[name](torch, torch.bfloat16), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["rand", "randn", "empty", "empty_like", "randint"])
def test_random_ones(name):
    mytorch.manual_seed(0)
    if name == "empty_like":
        x = mytorch.empty_like(mytorch.zeros(3, dtype=BF16))
    else:
        x = getattr(mytorch, name)(*((0, 9) if name == "randint" else ()), (4000,), dtype=BF16)
    assert x.dtype == BF16
    values = x.numpy().astype(np.float64) if name[:4] == "rand" else None
    if name == "rand":
        assert 0 <= values.min() < 0.01 and 0.99 < values.max() < 1 and abs(values.mean() - 0.5) < 0.02
    if name == "randn":
        assert abs(values.mean()) < 0.06 and abs(values.std() - 1) < 0.04


def test_draws_in_place_have_their_mean_and_spread():
    mytorch.manual_seed(0)
    x = mytorch.empty(4000, dtype=BF16)
    for name, arguments, mean, std in (("normal_", (3, 0.02), 3, 0.02), ("uniform_", (-2, 2), 0, 1.1547)):
        values = getattr(x, name)(*arguments).numpy().astype(np.float64)
        assert abs(values.mean() - mean) < 0.06 and abs(values.std() - std) < 0.04
    assert x.bernoulli_(0.25).dtype == BF16 and abs(x.float().mean().item() - 0.25) < 0.03


def test_how_it_is_printed():
    x = mytorch.tensor([[1.0, 2.3], [1000, -0.1]], dtype=BF16, requires_grad=True)
    assert repr(x[0].detach()) == "tensor([1.00000 2.29688], dtype=bfloat16)"
    assert repr(x) == (
        "tensor([[   1.00000    2.29688]\n"
        "        [1000.00000   -0.10010]], dtype=bfloat16, requires_grad=True)"
    )
    assert repr(Array(1.5, dtype=BF16)) == "Array(1.50000, dtype=bfloat16)"
    assert f"{x[0, 1]:.2f}" == "2.30"


def test_out_of_it():
    x = mytorch.tensor([[1.1, 2.3]], dtype=BF16)
    theirs = torch.tensor([[1.1, 2.3]], dtype=torch.bfloat16)
    assert x.tolist() == theirs.tolist() and x[0, 1].item() == theirs[0, 1].item()
    assert type(x[0, 1].item()) is float and (int(x[0, 1]), bool(x[0, 1]), float(x[0, 0])) == (
        2,
        True,
        1.1015625,
    )
    assert x.numpy().dtype == BF16 and np.asarray(x).dtype == BF16
    x.numpy()[0, 0] = 7
    assert x[0, 0] == 7 and x.itemsize == 2 and x.is_floating_point() and x.is_signed()
    assert x.type() == theirs.type() == "torch.BFloat16Tensor"
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert again.dtype == BF16 and again.tolist() == x.tolist()
    with pytest.raises(TypeError, match="complex"):
        mytorch.tensor([1j], dtype=BF16)


def test_from_lists_of_it():
    x = mytorch.tensor([1.5, 2], dtype=BF16)
    assert mytorch.tensor([x[0], x[1]]).dtype == BF16 and mytorch.tensor(x.numpy()).dtype == BF16
    assert mytorch.tensor([x[0], mytorch.tensor(1.0)]).dtype == "float32"


# Gradients are Arrays.


def test_arrays_compute_in_float32():
    x = Array(np.full(1000, 1.1), dtype=BF16)
    exact = x.numpy().astype(np.float64).sum()
    for total in (x.sum(), np.sum(x), np.add.reduce(x), (x * 1.0).sum(), x.mean() * 1000):
        assert total.dtype == BF16 and abs(float(total) - exact) <= 4  # an ulp is 8
    assert abs(float(x.norm()) - exact / 1000**0.5) < 0.3 and x.norm().dtype == BF16
    assert (x * 0.1).dtype == np.sqrt(x).dtype == (-x).dtype == x.clip(0, 1).dtype == BF16
    assert (x + Array([1.0])).dtype == "float32" and np.sum(x, dtype=np.float32).dtype == "float32"
    assert (x > 1).dtype == "bool" and x.argmax().dtype == "int64"
    x *= 0.3
    x.add_(1, alpha=0.5).clamp_(0, 0.8)
    assert x.dtype == BF16 and x.tolist() == [0.80078125] * 1000


# Modules, optimizers, files.


def both_models():
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3)
    )
    mine = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
    mine.load_state_dict({name: mytorch.tensor(p.numpy()) for name, p in theirs.state_dict().items()})
    return mine.bfloat16(), theirs.bfloat16()


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}, "Adam": {"lr": 0.01}, "AdamW": {"lr": 0.01},
    "RMSprop": {"lr": 0.01}, "Adagrad": {"lr": 0.1},
}


def trained(F, model, x, y, optimizer):
    """All parameters in a row, after some steps."""
    parameters = list(model.parameters())
    optimizer = getattr(F.optim, optimizer)(parameters, **OPTIMIZERS[optimizer])
    for _ in range(8):
        optimizer.zero_grad()
        F.nn.functional.cross_entropy(model(x), y).backward()
        F.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
    assert {p.dtype for p in parameters} == {p.grad.dtype for p in parameters} == {x.dtype}
    values = [numpy_of(p) if F is torch else p.detach().numpy() for p in parameters]
    return np.concatenate([v.astype(np.float64).reshape(-1) for v in values])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_follows_pytorch(name):
    """Not farther from PyTorch in float64 than PyTorch in bfloat16 is, or half as far again."""
    mine, theirs = both_models()
    x, y = normal(32, 6), rng.integers(0, 3, 32)
    exact, half = copy.deepcopy(theirs).double(), copy.deepcopy(theirs)
    want = trained(torch, exact, torch_of(x).double(), torch_of(y), name)
    theirs_error = np.linalg.norm(trained(torch, half, torch_of(x), torch_of(y), name) - want)
    error = np.linalg.norm(trained(mytorch, mine, mytorch.tensor(x), mytorch.tensor(y), name) - want)
    assert error <= 1.5 * theirs_error


def test_state_goes_between_dtypes():
    narrow, wide = nn.Linear(3, 2).bfloat16(), nn.Linear(3, 2)
    narrow.load_state_dict(wide.state_dict())
    assert narrow.weight.dtype == BF16 and narrow.weight.tolist() == wide.weight.bfloat16().tolist()
    wide.load_state_dict(narrow.state_dict())
    assert wide.weight.dtype == "float32" and wide.weight.tolist() == narrow.weight.tolist()
    assert nn.Linear(3, 2, dtype=BF16).weight.dtype == narrow.to("float16").bfloat16().weight.dtype == BF16
    layer = nn.BatchNorm1d(3).to(BF16)
    assert layer.running_mean.dtype == BF16 and layer.num_batches_tracked.dtype == "int64"


def test_initialisation():
    mytorch.manual_seed(0)
    for function in (
        nn.init.kaiming_uniform_,
        nn.init.xavier_normal_,
        nn.init.trunc_normal_,
        nn.init.orthogonal_,
    ):
        x = function(mytorch.empty(64, 64, dtype=BF16))
        wide = function(mytorch.empty(64, 64))
        assert x.dtype == BF16 and abs(x.float().std() / wide.std() - 1) < 0.1


def test_files_go_both_ways(tmp_path):
    state = {"w": normal(3, 4), "one": normal(), "none": normal(0, 2)}
    mytorch.save({name: mytorch.tensor(a).T for name, a in state.items()}, tmp_path / "ours")
    theirs = safetensors.torch.load_file(tmp_path / "ours")
    safetensors.torch.save_file({name: torch_of(a) for name, a in state.items()}, tmp_path / "theirs")
    ours = mytorch.load(tmp_path / "theirs")
    for name, a in state.items():
        assert theirs[name].dtype == torch.bfloat16 and ours[name].dtype == BF16
        np.testing.assert_array_equal(numpy_of(theirs[name]), a.T)
        np.testing.assert_array_equal(ours[name].numpy(), a)


def test_a_fused_update_says_what_it_lacks(fake_cuda):
    assert why_no_kernel("adam", BF16, Device("cuda:0")) == why_no_kernel(
        "adam", dtypes.float32, Device("cuda:0")
    )
    layer = nn.Linear(2, 2).bfloat16()
    layer(mytorch.ones(1, 2, dtype=BF16)).sum().backward()
    with pytest.raises(RuntimeError, match="fused=True, but .*none for bfloat16"):
        optim.AdamW(layer.parameters(), fused=True).step()


def test_training_on_a_gpu(fake_cuda):
    """On the stand-in, which computes next to nothing in bfloat16 itself."""
    ends = []
    for where in ("cpu", "cuda:0"):
        model, _ = both_models()
        model.to(where)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x = Tensor(np.cos(np.arange(24.0)).reshape(4, 6), dtype=BF16, device=where)
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), mytorch.tensor([0, 1, 2, 0], device=where))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        ends.append([p.detach().cpu().float().numpy() for p in model.parameters()])
        assert model[0].weight.device == where and model[0].weight.grad.dtype == BF16
    for here, there in zip(*ends, strict=True):
        np.testing.assert_allclose(there, here, rtol=2**-6, atol=2e-3)


@pytest.mark.parametrize(("norm_type", "norm"), [(1.0, 1000.0), (2.0, 1000**0.5), (math.inf, 1.0)])
def test_the_norm_of_gradients_is_taken_in_float32(device, norm_type, norm):
    p = nn.Parameter(mytorch.zeros(1000, dtype=BF16, device=device))
    p.sum().backward()
    total = nn.utils.clip_grad_norm_(p, 0.75, norm_type)
    assert total.item() == pytest.approx(norm, rel=1e-6)
    assert p.grad.dtype == BF16 and p.grad[0].item() == pytest.approx(0.75 / norm, rel=2**-8)


def test_rows_of_an_embedding_are_scaled_down_in_place(device):
    table = mytorch.full((3, 1000), 2.0, dtype=BF16, device=device)
    y = nn.functional.embedding(mytorch.tensor([0, 2, 0], device=device), table, max_norm=1.0)
    size = 1 / 1000**0.5
    assert y.dtype == table.dtype == BF16 and table[1, 0] == 2
    np.testing.assert_allclose(table[::2].float().cpu().numpy(), size, 2**-8)


# On a GPU.


def test_arrays_on_a_gpu_are_added_without_upcasting(fake_cuda, monkeypatch):
    """The sum is rounded once, as on the CPU; gradients pass through. Other sums are upcast."""
    numbers = [normal(5, 7) for _ in range(2)]
    x, y = (mytorch.tensor(a, device="cuda:0", requires_grad=True) for a in numbers)
    want = (mytorch.tensor(numbers[0]) + mytorch.tensor(numbers[1])).tolist()
    for other in (2.5, mytorch.ones(5, 7, device="cuda:0"), mytorch.tensor(2.5, device="cuda:0")):
        here = other if isinstance(other, float) else other.cpu()
        assert (x + other).tolist() == (x.cpu() + here).tolist()
    assert mytorch.add(x, y, alpha=2).tolist() == mytorch.add(x.cpu(), y.cpu(), alpha=2).tolist()

    def refuse(*args):
        raise AssertionError("upcast")

    monkeypatch.setattr("mytorch.core.op.call_upcast", refuse)
    total = x + y
    assert total.dtype == BF16 and total.tolist() == want
    g = mytorch.tensor(normal(5, 7), device="cuda:0")
    total.backward(g)
    assert x.grad.tolist() == g.tolist() == y.grad.tolist() and x.grad.dtype == BF16
    with pytest.raises(AssertionError, match="upcast"):
        x + 2.5
