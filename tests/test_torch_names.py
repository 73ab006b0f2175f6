"""The names by which PyTorch's programs reach what lies elsewhere here, or what mytorch lacks."""

import importlib
import io
import os
import sys
import types

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.aliases import FORWARDS

IMPORTS = [
    ("utils.data.dataloader", "DataLoader default_collate get_worker_info"),
    ("utils.data.dataset", "Dataset Subset TensorDataset random_split"),
    ("utils.data.sampler", "Sampler RandomSampler BatchSampler"),
    ("utils.data.distributed", "DistributedSampler"),
    ("nn.parallel", "DataParallel DistributedDataParallel"),
    ("nn.parallel.distributed", "DistributedDataParallel"),
    ("nn.parallel.data_parallel", "DataParallel"),
    ("nn.parameter", "Parameter Buffer"),
    ("nn.attention", "SDPBackend sdpa_kernel"),
    ("nn.modules", "Module Linear Sequential"),
    ("nn.modules.utils", "_single _pair _triple _quadruple _ntuple _reverse_repeat_tuple"),
    ("nn.modules.batchnorm", "_BatchNorm BatchNorm2d"),
    ("nn.modules.conv", "_ConvNd Conv2d"),
    ("nn.utils.parametrize", "register_parametrization is_parametrized remove_parametrizations cached"),
    ("nn.utils.parametrizations", "weight_norm spectral_norm orthogonal"),
    (
        "nn.utils.prune",
        "BasePruningMethod PruningContainer Identity RandomUnstructured L1Unstructured RandomStructured "
        "LnStructured CustomFromMask identity random_unstructured l1_unstructured random_structured "
        "ln_structured global_unstructured custom_from_mask remove is_pruned",
    ),
    ("nn.utils.rnn", "pad_sequence pack_padded_sequence"),
    ("nn.utils", "weight_norm remove_weight_norm spectral_norm remove_spectral_norm"),
    ("backends.cudnn", "benchmark deterministic enabled allow_tf32 is_available version flags"),
    ("backends.cuda", "matmul is_built flash_sdp_enabled enable_flash_sdp"),
    ("backends.mps", "is_available is_built"),
    ("backends.mkl", "is_available"),
    ("backends.mkldnn", "is_available"),
    ("backends.openmp", "is_available"),
    ("backends.opt_einsum", "is_available"),
    ("accelerator", "is_available current_accelerator device_count synchronize current_device_index"),
    ("multiprocessing", "get_context set_start_method spawn Process Queue Pool start_processes"),
    ("jit", "script trace export ignore unused is_scripting is_tracing annotate"),
    ("compiler", "disable is_compiling is_dynamo_compiling compile list_backends reset"),
    ("hub", "load load_state_dict_from_url download_url_to_file"),
    ("func", "vmap grad functional_call"),
    ("version", "__version__ cuda hip"),
]


@pytest.mark.parametrize(("module", "names"), IMPORTS)
def test_a_module_has_pytorchs_names(module, names):
    ours, theirs = (importlib.import_module(f"{m}.{module}") for m in ("mytorch", "torch"))
    for name in names.split():
        assert hasattr(ours, name), name
        assert hasattr(theirs, name), name
    attribute = mytorch
    for part in module.split("."):
        attribute = getattr(attribute, part)
    assert attribute is ours


@pytest.mark.parametrize("module", [name for name in FORWARDS if name.startswith("nn.modules.")])
def test_a_layer_lies_where_pytorch_defines_it(module):
    ours, theirs = (importlib.import_module(f"{m}.{module}") for m in ("mytorch", "torch"))
    for name in getattr(theirs, "__all__", ()):
        if hasattr(nn, name) and name not in ("SyncBatchNorm", "Container"):
            assert getattr(ours, name) is getattr(nn, name)


def test_a_setting_of_a_library_is_kept():
    import mytorch.backends.cudnn as cudnn

    mytorch.backends.cudnn.benchmark = True
    assert cudnn.benchmark is True
    with cudnn.flags(enabled=False, benchmark=False):
        assert not cudnn.enabled and not cudnn.benchmark
    assert cudnn.enabled and cudnn.benchmark
    cudnn.benchmark = False
    assert not mytorch.backends.mps.is_available() and mytorch.version.cuda is None


def test_allow_tf32_is_the_precision_of_products():
    matmul = mytorch.backends.cuda.matmul
    assert not matmul.allow_tf32
    matmul.allow_tf32 = True
    try:
        assert matmul.allow_tf32 and mytorch.get_float32_matmul_precision() == "high"
    finally:
        matmul.allow_tf32 = False
    assert mytorch.get_float32_matmul_precision() == "highest"


def test_the_accelerator_is_the_gpu():
    accelerator = mytorch.accelerator
    assert accelerator.is_available() == mytorch.cuda.is_available()
    assert accelerator.device_count() == mytorch.cuda.device_count()
    current = accelerator.current_accelerator()
    assert current == ("cuda" if mytorch.cuda.is_available() else None)


def test_deterministic_algorithms():
    assert not mytorch.are_deterministic_algorithms_enabled()
    mytorch.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert mytorch.are_deterministic_algorithms_enabled()
        assert mytorch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        mytorch.use_deterministic_algorithms(False)
    assert not mytorch.is_deterministic_algorithms_warn_only_enabled()


def test_torchscript_returns_what_it_gets():
    layer = nn.Linear(2, 2)
    assert mytorch.jit.script(layer) is layer is mytorch.compile(layer, disable=True)
    assert mytorch.jit.trace(layer, mytorch.ones(1, 2)) is layer
    assert mytorch.jit.ignore(len) is len is mytorch.jit.ignore(drop=False)(len)
    assert mytorch.compiler.disable(len)([1]) == mytorch.compiler.disable(recursive=False)(len)([1]) == 1
    assert not mytorch.jit.is_scripting() and not mytorch.compiler.is_compiling()
    with pytest.raises(NotImplementedError, match="state_dict"):
        mytorch.jit.save(layer, "x.pt")


@pytest.mark.parametrize("name", ["load", "list", "load_state_dict_from_url"])
def test_the_hub_says_what_to_do(name):
    with pytest.raises(NotImplementedError, match="safetensors"):
        getattr(mytorch.hub, name)("pytorch/vision", "resnet18")


def test_kernels_of_attention_can_be_named():
    from mytorch.nn.attention import SDPBackend, sdpa_kernel

    x = mytorch.ones(1, 2, 3, 4)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert nn.functional.scaled_dot_product_attention(x, x, x).shape == x.shape
    with pytest.raises(AssertionError, match="SDPBackend"), sdpa_kernel("math"):
        pass


@pytest.mark.parametrize("saved", [{"w": mytorch.ones(2, 3), "step": 3, "t": (1, None)}, {}])
def test_save_and_load_through_a_file_object(saved, tmp_path):
    buffer = io.BytesIO()
    mytorch.save(saved, buffer)
    with open(tmp_path / "file.pt", "wb") as file:
        mytorch.save(saved, file)
    buffer.seek(0)
    with open(tmp_path / "file.pt", "rb") as file:
        for source in (buffer, file, tmp_path / "file.pt"):
            loaded = mytorch.load(source, map_location="cpu", weights_only=True)
            assert loaded.keys() == saved.keys()
            if saved:
                assert loaded["w"].tolist() == saved["w"].tolist() and loaded["t"] == (1, None)


def test_a_pickle_in_a_file_object_is_refused():
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(2)}, buffer)
    buffer.seek(0)
    with pytest.raises(ValueError, match="is a pickle, as torch.save writes it"):
        mytorch.load(buffer)
    with pytest.raises(TypeError, match="save its state_dict"):
        mytorch.save(nn.Linear(2, 2), io.BytesIO())


# _foreach_*

LISTS = [[np.array([[0.5, 0.25], [0.125, 0.75]]), np.array([0.3, 0.6, 0.9])] for _ in range(3)]
FOREACH = {
    "add": (lambda a: (a[1],), {"alpha": 2}), "sub": (lambda a: (a[1],), {}), "mul": (lambda a: (0.5,), {}),
    "div": (lambda a: ([2.0, 3.0],), {}), "pow": (lambda a: (2,), {}), "maximum": (lambda a: (a[1],), {}),
    "clamp_min": (lambda a: (0.4,), {}), "lerp": (lambda a: (a[1], 0.1), {}),
    "addcmul": (lambda a: (a[1], a[2]), {"value": 0.5}), "addcdiv": (lambda a: (a[1], a[2], [1.0, 2.0]), {}),
    **{name: (lambda a: (), {}) for name in ("sqrt", "rsqrt", "neg", "exp", "log1p", "sign", "reciprocal")},
}


def both(make):
    return [make(m, [[m.tensor(x * (i + 1)) for x in row] for i, row in enumerate(LISTS)]) for m in
            (mytorch, torch)]


def close(ours, theirs):
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-6)


@pytest.mark.parametrize("name", FOREACH)
def test_foreach_is_a_loop(name):
    args, kwargs = FOREACH[name]
    close(*both(lambda m, a: getattr(m, f"_foreach_{name}")(a[0], *args(a), **kwargs)))

    def in_place(m, a):
        assert getattr(m, f"_foreach_{name}_")(a[0], *args(a), **kwargs)[0] is a[0][0]
        return a[0]

    close(*both(in_place))


def test_foreach_without_an_operand():
    def run(m, a):
        m._foreach_copy_(a[0], a[2])
        m._foreach_zero_(a[1])
        return [*a[0], *a[1], *m._foreach_norm(a[0]), *m._foreach_norm(a[2], 1), *m._foreach_clone(a[0])]

    close(*both(run))


def test_foreach_writes_into_gradients():
    layer = nn.Linear(2, 3)
    layer(mytorch.ones(1, 2)).sum().backward()
    grads = [p.grad for p in layer.parameters()]
    mytorch._foreach_mul_(grads, 3)
    assert layer.bias.grad.tolist() == [3.0, 3.0, 3.0] and layer.bias.grad is grads[1]
    with pytest.raises(RuntimeError, match="same number of tensors"):
        mytorch._foreach_add_(grads, grads[:1])


def test_foreach_in_place_is_a_write():
    x = mytorch.ones(3, requires_grad=True)
    h = x * 2
    loss = (h * h).sum()
    with pytest.raises(RuntimeError, match="a leaf tensor that requires grad"):
        mytorch._foreach_mul_([x], 2.0)
    with mytorch.no_grad():
        mytorch._foreach_mul_([h], 2.0)
    assert h.tolist() == [4.0, 4.0, 4.0]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("other", [np.ones(3, np.float64), np.ones((1, 3), np.float32), np.ones(3, np.int32)])
def test_foreach_takes_what_is_not_plain(other):
    def run(m):
        x = m.ones(2, 3)
        m._foreach_add_([x], [m.tensor(other)], alpha=2)
        return x

    np.testing.assert_array_equal(run(mytorch).numpy(), run(torch).numpy())


# vmap


@pytest.mark.parametrize(
    ("function", "in_dims", "out_dims"),
    [
        (lambda x, y: x * y.sum(), (0, None), 0),
        (lambda x, y: (x @ y, {"a": x + y}), (1, 1), 0),
        (lambda x, y: x + y, -1, 1),
    ],
)
def test_vmap(function, in_dims, out_dims):
    x, y = np.arange(9.0).reshape(3, 3), np.ones((3, 3))
    ours, theirs = (
        m.vmap(function, in_dims, out_dims)(m.tensor(x), m.tensor(y)) for m in (mytorch, torch)
    )
    if isinstance(theirs, tuple):
        ours, theirs = (ours[0], ours[1]["a"]), (theirs[0], theirs[1]["a"])
        close(ours, theirs)
    else:
        close([ours], [theirs])


def test_gradients_of_each_sample():
    def run(m):
        weights = {"w": m.tensor([[1.0, 2.0], [3.0, 4.0]]), "b": m.tensor([0.5, 0.25])}
        x = m.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

        def loss(p, x):
            return ((p["w"] @ x + p["b"]) ** 2).sum()

        grads = m.func.vmap(m.func.grad(loss), in_dims=(None, 0))(weights, x)
        return [grads["w"], grads["b"]]

    close(run(mytorch), run(torch))


def test_vmap_needs_a_batch():
    with pytest.raises(ValueError, match="no argument has a dim"):
        mytorch.vmap(lambda x: x, in_dims=None)(mytorch.ones(2))
    with pytest.raises(ValueError, match="one size"):
        mytorch.vmap(lambda x, y: x)(mytorch.ones(2), mytorch.ones(3))


# multiprocessing


def _write_rank(rank, folder):
    with open(os.path.join(folder, str(rank)), "w") as file:
        file.write(str(rank))


def _fail(rank):
    if rank == 1:
        raise KeyError("what went wrong")


def test_spawn_calls_the_function_in_each_process(tmp_path):
    mytorch.multiprocessing.spawn(_write_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_spawn_reports_what_went_wrong():
    mp = mytorch.multiprocessing
    with pytest.raises(mp.ProcessRaisedException, match="Process 1 terminated(.|\n)*what went wrong"):
        mp.spawn(_fail, nprocs=2, start_method="fork")
    with pytest.raises(mp.ProcessExitedException, match="process 0 terminated with exit code 3"):
        mp.spawn(_leave, start_method="fork")


def _leave(rank):
    os._exit(3)


def test_einops_takes_tensors():
    einops = pytest.importorskip("einops")
    importlib.import_module("mytorch.utils.einops")
    x = mytorch.ones(2, 3, requires_grad=True)
    assert einops.rearrange(x, "a b -> (b a)").shape == (6,)
    assert einops.reduce(x, "a b -> a", "mean").requires_grad


# TensorBoard


def test_tensorboard_is_missed_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.delitem(sys.modules, "mytorch.utils.tensorboard", raising=False)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        importlib.import_module("mytorch.utils.tensorboard")


def test_a_summary_writer_gets_numpys_arrays(monkeypatch):
    class Writer:
        calls = []

    kinds = "audio embedding histogram hparams image images mesh pr_curve scalar scalars video"
    for kind in kinds.split():  # noqa: SIM905 - a table
        setattr(Writer, f"add_{kind}", lambda self, *args, **kwargs: self.calls.append((args, kwargs)))
    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=Writer))
    monkeypatch.delitem(sys.modules, "mytorch.utils.tensorboard", raising=False)
    writer = importlib.import_module("mytorch.utils.tensorboard").SummaryWriter()
    monkeypatch.delitem(sys.modules, "mytorch.utils.tensorboard")
    writer.add_scalar("loss", mytorch.tensor(0.5), 3)
    writer.add_scalars("losses", {"a": mytorch.ones(1).data}, global_step=4)
    assert Writer.calls[0] == (("loss", 0.5, 3), {}) and type(Writer.calls[0][0][1]) is np.ndarray
    assert type(Writer.calls[1][0][1]["a"]) is np.ndarray
    with pytest.raises(NotImplementedError, match="add_graph"):
        writer.add_graph(nn.Linear(1, 1))
