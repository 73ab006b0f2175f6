"""Tensors on the device "meta": what they show, what they refuse, models of any size, memory."""

import gc
import json
import resource
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import mytorch
import mytorch.nn.functional as F
from mytorch import nn
from mytorch.backends.meta import MetaArray, module, new
from mytorch.backends.meta.layout import layout_of
from mytorch.backends.meta.storage import memory
from mytorch.models import GPT2, GPT2Config
from mytorch.models.bert import Bert
from mytorch.models.llama import Llama
from tests.distributed.launched import ROOT, surroundings
from tests.each import each
from tests.every import every


def both(expression):
    """The value of an expression in mytorch and in PyTorch, or the error."""
    found = []
    for library in (mytorch, torch):
        names = {"m": library, "x": library.empty(3, 4, device="meta"), "s": library.empty((), device="meta")}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(eval(expression, names))
        except Exception as error:
            found.append(error)
    return found


SAME_TEXT = [
    "x", "s", "m.empty(2, device='meta', requires_grad=True)", "m.empty(0, 2, device='meta')",
    "m.ones(2).to('meta')", "m.tensor([1.0, 2.0], device='meta')", "x[1]", "x.T", "x.to('meta') is x",
    "x.is_meta", "x.is_cuda", "m.ones(1).is_meta", "m.empty_like(m.ones(2, 2), device='meta')",
    "x + m.ones(())", "x.T.stride()", "x.is_contiguous()", "x[:, 1].is_contiguous()", "m.device('meta').type",
    "m.device('meta').index", "m.device('meta') == x.device", "m.nn.Linear(2, 3).to('meta').weight",
    "m.nn.Linear(2, 3, device='meta').to_empty(device='cpu').weight.shape",
    "m.nn.Parameter(x)", "m.rand(2, device='meta')", "m.arange(5.0, device='meta')",
    "m.nn.Linear(2, 3, device='meta').to(m.float64).weight.dtype.itemsize",
]
SAME_ERROR = [
    "x.item()", "s.item()", "s.tolist()", "x.tolist()", "bool(s)", "bool(x)", "float(s)", "int(s)",
    "s.__index__()", "x.cpu()", "x.to('cpu')", "x.numpy()", "x.nonzero()", "x[x > 0]", "x.unique()",
    "x.masked_select(x > 0)", "x + m.ones(3, 4)", "m.ones(3, 4) + s", "m.ones(3).copy_(x[0, :3])", "list(s)",
    "m.allclose(x, x)", "m.nn.Linear(2, 3, device='meta').to('cpu')",
    "m.nn.Linear(2, 3, device='meta').cpu()",
    "m.nn.Linear(2, 3).load_state_dict(m.nn.Linear(2, 3, device='meta').state_dict())", "x @ x", "x + x.T",
    "x.view(5)", "x[3]", "x.sum(2)", "m.empty(1 << 40, 1 << 40, device='meta')", "m.device('metal')",
]


@pytest.mark.parametrize("expression", SAME_TEXT)
def test_same_text_as_pytorch(expression):
    got, want = both(expression)
    assert repr(got).replace("Size(", "torch.Size(") == repr(want).replace("grad_fn=<", "grad_fn=<")


@pytest.mark.parametrize("expression", SAME_ERROR)
def test_same_error_as_pytorch(expression):
    got, want = both(expression)
    assert isinstance(want, Exception) and type(got) is type(want), f"{got!r}, PyTorch raises {want!r}"
    if "no data" in str(want) or "item()" in str(want):
        assert str(got).split("!")[0].split("copying")[0] in str(want) or "no data" in str(got)


def test_as_an_array():
    x = mytorch.empty(2, 3, device="meta").data
    assert repr(x) == "Array(..., shape=(2, 3), dtype=float32, device='meta')"
    assert np.exp(x).shape == (2, 3) and x.is_meta


def test_device_of_new_tensors():
    with mytorch.device("meta"):
        layer, x = nn.Linear(4, 5), mytorch.randn(2, 4)
        y = mytorch.tensor([1, 2])
    assert {t.device.type for t in (layer.weight, layer.bias, x, y, layer(x))} == {"meta"}
    assert mytorch.ones(1).device.type == "cpu"


def test_leaving_meta():
    layer = nn.Linear(2, 3, device="meta")
    weight = layer.weight
    assert layer.to_empty(device="cpu") is layer and layer.weight is weight and weight.requires_grad
    assert not weight.is_meta and weight.shape == (3, 2)
    other, model = nn.Linear(2, 3), nn.Sequential(nn.Linear(2, 3, device="meta"))
    state = {f"0.{name}": value for name, value in other.state_dict().items()}
    model.load_state_dict(state, assign=True)
    assert mytorch.equal(model[0].weight, other.weight) and model[0].weight.requires_grad
    with pytest.warns(UserWarning, match="for 0.weight: copying from a non-meta parameter"):
        nn.Sequential(nn.Linear(2, 3, device="meta")).load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"weight: Cannot copy out of meta tensor; no data!"):
        other.load_state_dict(nn.Linear(2, 3, device="meta").state_dict())
    assert nn.Sequential(layer).to_empty(device="meta", recurse=False)[0].weight.device.type == "cpu"


def test_loading_to_meta(tmp_path):
    mytorch.save(nn.Linear(2, 3).state_dict(), tmp_path / "layer.safetensors")
    state = mytorch.load(tmp_path / "layer.safetensors", map_location="meta")
    assert {name: tuple(x.shape) for name, x in state.items()} == {"weight": (3, 2), "bias": (3,)}
    assert every(x.is_meta for x in state.values())
    with pytest.raises(NotImplementedError, match="no data"):
        mytorch.save(state, tmp_path / "other.safetensors")


def test_programs_without_it_do_not_load_it():
    code = "import sys, mytorch; mytorch.ones(2).sum(); print([m for m in sys.modules if 'ds.meta' in m])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT) == "[]\n"


def test_random_numbers_advance_nothing():
    mytorch.manual_seed(0)
    before = mytorch.get_rng_state()
    x = mytorch.randn(1 << 40, device="meta")
    F.dropout(x, 0.5), x.uniform_(), nn.init.xavier_normal_(x.view(1 << 20, -1)), mytorch.bernoulli(x)
    assert mytorch.equal(before, mytorch.get_rng_state())


@pytest.mark.parametrize("name", [n for n in dir(nn.init) if n.endswith("_") and not n.startswith("_")])
def test_initialization(name):
    x = mytorch.empty(4, 4, 3, device="meta") if name == "dirac_" else mytorch.empty(6, 4, device="meta")
    more = {"constant_": (1.0,), "sparse_": (0.5,)}.get(name, ())
    assert getattr(nn.init, name)(x, *more) is x and x._version.count


def test_views_and_versions():
    x = mytorch.empty(4, 6, device="meta", requires_grad=True)
    y = x * 2
    view = y[1:, ::2].transpose(0, 1)
    assert view._view.base is y and view.stride() == (2, 6)
    assert view.data_ptr() - y.data_ptr() == 6 * 4
    z = y.exp()
    y[0].zero_()
    assert y._version.count == view._version.count == 1
    z.sum().backward()  # exp keeps its result, not what was written
    assert x.grad.shape == (4, 6)
    z = y.square()
    view.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        z.sum().backward()


def test_a_write_beside_what_backward_needs():
    """As on the CPU: the flat vector is written where the saved part isn't."""
    x = mytorch.empty(8, device="meta", requires_grad=True)
    y = x + 1
    first, second = y[:4], y[4:]
    z = (first * first).sum()
    with mytorch.no_grad():
        second.data.fill(0)
    z.backward()
    assert x.grad.shape == (8,)


def test_functions_without_a_rule_say_so():
    x = new((3, 4), np.float32)
    with pytest.raises(NotImplementedError, match="np.unwrap has no rule for meta tensors"):
        np.unwrap(x)
    with pytest.raises(NotImplementedError, match="np.add.reduceat has no rule"):
        np.add.reduceat(x, [0])
    with pytest.raises(NotImplementedError, match="np.unique of a meta tensor: its result depends on"):
        np.unique(x)
    with pytest.raises(TypeError, match="it has no data"):
        np.asarray(x)
    with pytest.raises(AttributeError):
        x.tobytes()
    assert isinstance(module.zeros(3), MetaArray) and module.float32 is np.float32


ARRAYS = {
    "C": np.zeros((3, 4, 5)), "F": np.zeros((3, 4, 5), order="F"),
    "T": np.zeros((4, 3, 5)).transpose(1, 0, 2),
    "step": np.zeros((3, 8, 5))[:, ::2], "back": np.zeros((3, 4, 5))[::-1], "stretched": np.zeros((3, 1, 5)),
    "broadcast": np.broadcast_to(np.zeros((3, 1, 5)), (3, 4, 5)),
}
CALLS = {
    "exp": np.exp, "add": lambda x: x + x.T.T, "mixed": lambda x: x * np.zeros(5), "sum": lambda x: x.sum(1),
    "keepdims": lambda x: np.max(x, axis=(0, 2), keepdims=True), "copy": np.copy,
    "C copy": lambda x: x.copy(),
    "astype": lambda x: x.astype(np.int8), "matmul": lambda x: x @ x.swapaxes(1, 2),
    "take": lambda x: x[[0, 2]],
    "gather": lambda x: x[:, [0, 0]], "both": lambda x: x[[0, 1], :, [2, 3]],
    "new": lambda x: x[None, [1], ..., 0],
    "apart": lambda x: x[None][:, [0, 1], :, [0, 1]], "int beside": lambda x: x[:, 0, [0, 1]],
    "int apart": lambda x: x[0, :, [0, 1]],
    "reshape": lambda x: x.reshape(-1, 5), "flat": lambda x: x.reshape(-1), "like": np.zeros_like,
    "cat": lambda x: np.concatenate([x, x], 1), "stack": lambda x: np.stack([x, x, x], 1), "sort": np.sort,
    "where": lambda x: np.where(x > 0, x, 1.0), "pad": lambda x: np.pad(x, [(1, 0), (0, 0), (2, 2)]),
    "cumsum": lambda x: np.cumsum(x, 1), "einsum": lambda x: np.einsum("ijk,ijk->ki", x, x),
    "ellipsis": lambda x: np.einsum("...k->...", x), "diagonal": lambda x: np.diagonal(x, 1, 0, 2),
    "var": lambda x: x.var(0), "argmax": lambda x: x.argmax(-1), "flip": lambda x: np.flip(x, 1),
}


@each("call", CALLS)
@each("layout", ARRAYS)
def test_strides_are_numpys(layout, call):
    x, function = ARRAYS[layout], CALLS[call]
    meta = new(x.shape, x.dtype)
    meta.layout = layout_of(x)
    want, got = function(x), function(meta)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    long = [d for d, n in enumerate(want.shape) if n > 1]
    assert [got.strides[d] for d in long] == [want.strides[d] for d in long]
    assert (got.base is None) != np.may_share_memory(x, want)


MATRICES = {
    "svd": lambda a: np.linalg.svd(a), "thin svd": lambda a: np.linalg.svd(a, full_matrices=False),
    "values": lambda a: np.linalg.svd(a, compute_uv=False), "qr": np.linalg.qr, "inv": np.linalg.inv,
    "complete qr": lambda a: np.linalg.qr(a, "complete"), "r": lambda a: np.linalg.qr(a, "r"),
    "eigh": np.linalg.eigh, "slogdet": np.linalg.slogdet, "det": np.linalg.det,
    "cholesky": np.linalg.cholesky, "fft": lambda a: np.fft.fft(a, 4),
    "solve": lambda a: np.linalg.solve(a, a), "vector": lambda a: np.linalg.solve(a, a[0, :, 0]),
    "rfft": lambda a: np.fft.rfft(a), "irfft": lambda a: np.fft.irfft(a, axis=1),
    "product": lambda a: a @ a[0], "tile": lambda a: np.tile(a, (2, 1, 3)), "outer": lambda a: np.outer(a, a),
    "repeat": lambda a: np.repeat(a, 3, 1), "diff": lambda a: np.diff(a, 2), "trace": lambda a: np.trace(a),
    "all": lambda a: np.cumsum(a), "norm": lambda a: np.linalg.norm(a, axis=2, keepdims=True),
    "small out": lambda a: np.add(a, a, out=np.empty((2, 1, 3), like=a)),
    "other out": lambda a: np.add(a, a, out=np.empty((2, 4, 3), like=a)),
    "out": lambda a: np.add(a, a[0], out=np.empty_like(a)), "matmul": lambda a: a @ a,
}


@each("call", MATRICES)
@each("shape", [(2, 5, 5), (2, 5, 3), (2, 3, 5)])
def test_shapes_and_errors_are_numpys(shape, call):
    real = np.zeros(shape) + np.eye(*shape[1:])
    found = []
    for x in (real, new(shape, real.dtype)):
        try:
            results = MATRICES[call](x)
            results = results if isinstance(results, tuple) else (results,)
            found.append([(r.shape, r.dtype) for r in results])
        except (ValueError, np.linalg.LinAlgError) as error:
            found.append(type(error))
    assert found[0] == found[1]


def test_memory_is_counted():
    gc.collect()
    before = memory.allocated
    x = mytorch.empty(10, 1000, device="meta")
    y = x.T[3:]
    assert memory.allocated - before == 40_000
    memory.reset_peak()
    (y + 1).sum()
    assert memory.peak - memory.allocated == 1000 * 7 * 4 + 4 or memory.peak > before + 40_000
    del x
    assert memory.allocated - before == 40_000
    del y
    assert memory.allocated == before


COUNTS = {  # as published
    "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200,
    "15m": 15_191_712, "135m": 134_515_008, "1b": 1_235_814_400, "7b": 6_738_415_616,
    "bert-base": 109_482_240 - 590_592, "bert-large": 335_141_888 - 1_049_600,  # without the pooler
}


@pytest.mark.parametrize("name", COUNTS)
def test_number_of_parameters(name):
    kind, size = (Bert, name[5:]) if "bert" in name else (GPT2, name) if "gpt2" in name else (Llama, name)
    with mytorch.device("meta"):
        model = kind(kind.config_class.of_size(size))
    assert sum(p.numel() for p in model.parameters()) == COUNTS[name]


@pytest.mark.parametrize("kind", [Bert, Llama])
def test_step_of_other_models(kind):
    with mytorch.device("meta"):
        model = kind(kind.config_class.of_size("base" if kind is Bert else "1b"))
        tokens = mytorch.empty(2, 64, dtype=mytorch.int64)
    out = model(tokens) if kind is Bert else model(tokens, tokens)[1]
    (out if isinstance(out, mytorch.Tensor) else out[0]).sum().backward()
    optimizer = mytorch.optim.Adam(model.parameters())
    optimizer.step()
    assert sum(p.grad is not None for p in model.parameters()) > 20


def test_gpt3_in_a_second():
    config = GPT2Config(n_layer=96, n_head=96, n_embd=12288, context_length=2048)
    with mytorch.device("meta"):
        model, tokens = GPT2(config), mytorch.empty(1, 2048, dtype=mytorch.int64)
    assert sum(p.numel() for p in model.parameters()) == 174_604_259_328
    optimizer = mytorch.optim.AdamW(model.parameters())
    _, loss = model(tokens, tokens)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert every(p.grad.shape == p.shape for p in model.parameters())
    assert optimizer.state[model.lm_head.weight]["exp_avg"].shape == (50257, 12288)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # KB, with all that other tests hold


def test_values_on_which_programs_go_different_ways():
    x = nn.Parameter(mytorch.empty(3, device="meta"))
    optimizer = mytorch.optim.LBFGS([x])
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        optimizer.step(lambda: (x * x).sum())
    with pytest.raises(RuntimeError, match="fused=True, but there is no fused kernel for meta"):
        F.softmax(x, -1, fused=True)
    with pytest.raises(RuntimeError, match="fused=True, but there are no kernels for meta tensors"):
        mytorch.optim.AdamW([x], fused=True).step()
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'meta'"):
        mytorch.autocast("meta")
    with mytorch.autograd.detect_anomaly():
        (x * 2).sum().backward()
    assert x.grad.shape == (3,)


def test_the_exponential_of_matrices():
    x = mytorch.empty(2, 3, 3, device="meta", requires_grad=True)
    y = mytorch.linalg.matrix_exp(x)
    y.sum().backward()
    assert y.shape == x.grad.shape == (2, 3, 3) and y.is_meta
    with pytest.raises(NotImplementedError, match="an element"):  # how often it squares is in the elements
        mytorch.capture(mytorch.linalg.matrix_exp, mytorch.ones(3, 3))


def test_the_peak_is_that_of_a_step_on_the_cpu():
    """Of the variants without kernels; a little more, as the engine doesn't reuse gradients."""
    config = GPT2Config(65, 64, 3, 4, 64, bias=False)
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "cli" / "peak.py"), json.dumps(config.to_dict()), "16", "sgd"],
        capture_output=True, text=True, cwd=ROOT, env={**surroundings(), "USE_FUSED_OPS": "0"}, check=True,
    )
    measured = json.loads(done.stdout)["total"]
    gc.collect()
    before = memory.allocated
    with mytorch.device("meta"):
        model, tokens = GPT2(config, fused=False), mytorch.empty(16, 64, dtype=mytorch.int64)
    optimizer = mytorch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):
        memory.reset_peak()
        model(tokens, tokens)[1].backward()
        optimizer.step()
        optimizer.zero_grad()
    assert measured < memory.peak - before + 400_000 < 1.12 * measured
