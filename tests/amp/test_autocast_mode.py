"""`autocast` beside PyTorch's: the dtype of every function, training, checkpoints; `GradScaler`'s names."""

import warnings

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.models import GPT2, GPT2Config
from tests.each import each
from tests.every import every

RNG = np.random.default_rng(0)
X, IMAGE = RNG.standard_normal((4, 8)), RNG.standard_normal((1, 2, 5, 5))
KERNEL, LABELS = RNG.standard_normal((2, 2, 3, 3)), np.array([1, 2, 3, 0])

# x in float32 and h in half precision; i an image, k a kernel, y classes.
FUNCTIONS = {
    "matmul": lambda m, F, x, h, i, k, y: x @ x.T,
    "mv": lambda m, F, x, h, i, k, y: x @ x[0],
    "einsum": lambda m, F, x, h, i, k, y: m.einsum("ij,kj->ik", x, x),
    "addmm": lambda m, F, x, h, i, k, y: m.addmm(x[:, :4], x, x.T),
    "addmv": lambda m, F, x, h, i, k, y: m.addmv(x[0, :4], x[:, :8], x[1]),
    "torch.mv": lambda m, F, x, h, i, k, y: x.mv(x[0]),
    "dot": lambda m, F, x, h, i, k, y: x[0].dot(x[1]),
    "vdot": lambda m, F, x, h, i, k, y: m.vdot(x[0], x[1]),
    "half dot": lambda m, F, x, h, i, k, y: h[0].dot(h[1]),
    "half mv": lambda m, F, x, h, i, k, y: h.mv(h[0]),
    "addr": lambda m, F, x, h, i, k, y: m.addr(x, x[:, 0], x[0]),
    "inner": lambda m, F, x, h, i, k, y: m.inner(x, x),
    "tensordot": lambda m, F, x, h, i, k, y: m.tensordot(x, x, ([1], [1])),
    "bilinear": lambda m, F, x, h, i, k, y: F.bilinear(x, x, m.ones(3, 8, 8)),
    "half bilinear": lambda m, F, x, h, i, k, y: F.bilinear(h, h, h.new_ones(3, 8, 8)),
    "multi_dot": lambda m, F, x, h, i, k, y: m.linalg.multi_dot([x, x.T, x]),
    "baddbmm": lambda m, F, x, h, i, k, y: m.baddbmm(x[None, :, :4], x[None], x.T[None]),
    "prod": lambda m, F, x, h, i, k, y: h.prod(),
    "prod of a dim": lambda m, F, x, h, i, k, y: h.prod(1, keepdim=True),
    "cumprod": lambda m, F, x, h, i, k, y: h.cumprod(1),
    "cdist": lambda m, F, x, h, i, k, y: m.cdist(h, h),
    "mixed cdist": lambda m, F, x, h, i, k, y: m.cdist(x, h, p=1.0),
    "linear": lambda m, F, x, h, i, k, y: F.linear(x, x),
    "mixed": lambda m, F, x, h, i, k, y: F.linear(h, x),
    "double": lambda m, F, x, h, i, k, y: x.double() @ x.double().T,
    "conv2d": lambda m, F, x, h, i, k, y: F.conv2d(i, k),
    "conv_transpose2d": lambda m, F, x, h, i, k, y: F.conv_transpose2d(i, k),
    "attention": lambda m, F, x, h, i, k, y: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "lstm": lambda m, F, x, h, i, k, y: m.nn.LSTM(8, 4)(x)[0],
    "gelu": lambda m, F, x, h, i, k, y: F.gelu(h),
    "softmax": lambda m, F, x, h, i, k, y: F.softmax(h, -1),
    "layer_norm": lambda m, F, x, h, i, k, y: F.layer_norm(h, (8,), m.ones(8), m.zeros(8)),
    "sum": lambda m, F, x, h, i, k, y: h.sum(),
    "residual": lambda m, F, x, h, i, k, y: x + h,
    "cross_entropy": lambda m, F, x, h, i, k, y: F.cross_entropy(h, y),
    "mse_loss": lambda m, F, x, h, i, k, y: F.mse_loss(h, h),
    "with_logits": lambda m, F, x, h, i, k, y: F.binary_cross_entropy_with_logits(h, target=h.sigmoid()),
    "kl_div": lambda m, F, x, h, i, k, y: F.kl_div(h, h, reduction="batchmean"),
    "margin_ranking": lambda m, F, x, h, i, k, y: F.margin_ranking_loss(h[0], h[1], h[2].sign()),
    "soft_margin": lambda m, F, x, h, i, k, y: F.soft_margin_loss(h, h.sign()),
    "multi_margin": lambda m, F, x, h, i, k, y: F.multi_margin_loss(h, y),
    "multilabel_margin": lambda m, F, x, h, i, k, y: F.multilabel_margin_loss(h[:, :4], y.expand(4, 4)),
    "cosine_embedding": lambda m, F, x, h, i, k, y: F.cosine_embedding_loss(h, h.flip(0), m.ones(4)),
    "hinge_embedding": lambda m, F, x, h, i, k, y: F.hinge_embedding_loss(h, h.sign()),
    "triplet_margin": lambda m, F, x, h, i, k, y: F.triplet_margin_loss(h, h.flip(0), h.flip(1)),
    "poisson_nll": lambda m, F, x, h, i, k, y: F.poisson_nll_loss(h, h),
}


@each("dtype", ["bfloat16", "float16"])
@each("name", FUNCTIONS)
def test_dtypes_are_pytorchs(name, dtype):
    results = []
    for m in (mytorch, torch):
        arrays = [m.tensor(a, dtype=m.float32) for a in (X, IMAGE, KERNEL)]
        x, i, k = arrays
        half, labels = x.to(getattr(m, dtype)), m.tensor(LABELS)
        with m.autocast("cpu", dtype=half.dtype):
            try:
                results.append(FUNCTIONS[name](m, m.nn.functional, x, half, i, k, labels))
            except RuntimeError as error:  # PyTorch has no LSTM in half precision on many CPUs
                assert m is torch and name == "lstm" and "primitive" in str(error)
                results.append(half)
    ours, theirs = results
    assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch.")
    if name == "conv_transpose2d":  # PyTorch's sums are in half precision on some CPUs
        theirs = FUNCTIONS[name](torch, torch.nn.functional, x, half, i, k, labels)
    if name != "lstm":
        np.testing.assert_allclose(ours.float().numpy(), theirs.float().numpy(), 2e-2, 2e-2)


# The dtype on a GPU, by PyTorch's lists; https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
ON_A_GPU = {
    "float16": ["addmv", "torch.mv", "half mv", "addr", "addmm", "multi_dot", "half dot", "half bilinear"],
    "float32": ["dot", "tensordot", "bilinear", "prod", "cdist", "soft_margin", "triplet_margin"],
}


@pytest.mark.parametrize("dtype", ON_A_GPU)
def test_dtypes_on_a_gpu(fake_cuda, dtype):
    x, i, k, y = (mytorch.tensor(a, device="cuda") for a in (X, IMAGE, KERNEL, LABELS))
    x, half = x.float(), x.half()
    with mytorch.device("cuda"), mytorch.autocast("cuda"):
        for name in ON_A_GPU[dtype]:
            assert FUNCTIONS[name](mytorch, nn.functional, x, half, i, k, y).dtype == dtype, name
        assert mytorch.tensordot(x, half, ([1], [1])).dtype == mytorch.dot(x[0], half[0]).dtype == "float32"


def test_it_nests_and_is_off_outside():
    x = mytorch.ones(2, 2)
    with mytorch.autocast("cpu"):
        assert mytorch.is_autocast_enabled("cpu") and not mytorch.is_autocast_enabled("cuda")
        with mytorch.amp.autocast("cpu", enabled=False):
            assert (x @ x).dtype == "float32"
        with mytorch.autocast("cpu", dtype=mytorch.float16):
            assert (x @ x).dtype == "float16" == mytorch.get_autocast_dtype("cpu")
        assert (x @ x).dtype == "bfloat16"
        with mytorch.autocast("cuda", dtype=mytorch.float16):
            assert (x @ x).dtype == "bfloat16"
    assert (x @ x).dtype == "float32" and not mytorch.is_autocast_enabled("cpu")
    with mytorch.cuda.amp.autocast():  # the tensors are on the CPU
        assert (x @ x).dtype == "float32"
    with pytest.raises(RuntimeError, match="float16 or bfloat16"):
        mytorch.autocast("cpu", dtype=mytorch.float32)


@mytorch.autocast("cpu")
def product(x):
    return x @ x


def test_it_decorates():
    assert product(mytorch.ones(2, 2)).dtype == "bfloat16"


def trained(m, checkpointed):
    model = m.nn.Sequential(m.nn.Linear(8, 16), m.nn.GELU(), m.nn.LayerNorm(16), m.nn.Linear(16, 4))
    rng = np.random.default_rng(1)
    model.load_state_dict(
        {key: m.tensor(rng.standard_normal(tuple(v.shape)).astype("float32") / 3) for key, v in
         model.state_dict().items()}
    )
    optimizer = m.optim.AdamW(model.parameters(), 1e-2)
    scaler = m.amp.GradScaler("cpu", init_scale=1024.0)
    x, y = m.tensor(X, dtype=m.float32), m.tensor(LABELS)
    losses = []
    for _ in range(4):
        with m.autocast("cpu", dtype=m.bfloat16):
            run = m.utils.checkpoint.checkpoint if checkpointed else lambda model, x, **kwargs: model(x)
            out = run(model, x, use_reentrant=False)
            loss = m.nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        m.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert every(p.grad.dtype == m.float32 for p in model.parameters())
    return losses


@pytest.mark.parametrize("checkpointed", [False, True])
def test_training_is_pytorchs(checkpointed):
    import torch.utils.checkpoint

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(trained(mytorch, checkpointed), trained(torch, checkpointed), 1e-2)


def test_the_scaler_of_older_programs():
    scaler = mytorch.cuda.amp.GradScaler(enabled=False)
    assert isinstance(scaler, mytorch.GradScaler) and scaler.get_scale() == 1.0
    assert mytorch.cuda.amp.GradScaler(128.0).get_scale() == 128.0


def test_a_function_without_autocast():
    class Doubled(mytorch.autograd.Function):
        @staticmethod
        @mytorch.amp.custom_fwd(device_type="cpu", cast_inputs=mytorch.float32)
        def forward(ctx, x):
            assert x.dtype == "float32" and not mytorch.is_autocast_enabled("cpu")
            return 2 * x

        @staticmethod
        @mytorch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            return 2 * g

    x = mytorch.ones(2, 2, requires_grad=True)
    with mytorch.autocast("cpu"):
        Doubled.apply(x @ x).sum().backward()
    assert x.grad.tolist() == [[8.0, 8.0], [8.0, 8.0]]
    assert nn.functional.linear(x, x).dtype == "float32"


def test_the_loss_of_half_logits_is_float32():
    """They aren't cast: on a GPU the kernel reads them as they are."""
    x, y = mytorch.tensor(X, dtype=mytorch.bfloat16), mytorch.tensor(LABELS) % 8
    weight = mytorch.rand(8)
    with mytorch.autocast("cpu"):
        loss = mytorch.nn.functional.cross_entropy(x, y, weight)
        wide = mytorch.nn.functional.cross_entropy(x.double(), y)
    assert loss.dtype == mytorch.float32 and wide.dtype == mytorch.float64
    assert loss.item() == mytorch.nn.functional.cross_entropy(x.float(), y, weight).item()


@pytest.mark.parametrize("half", [mytorch.float16, mytorch.bfloat16])
def test_a_gpt_adds_half_results_to_a_residual_in_float32(half):
    """The sum and its norm are those of PyTorch's `x + residual`, which promotes."""
    mytorch.manual_seed(0)
    x, residual = mytorch.randn(4, 8, dtype=half), mytorch.randn(4, 8)
    with mytorch.autocast("cpu", dtype=half):
        normed, total = mytorch.nn.functional.add_layer_norm(x, residual, (8,))
    want = torch.tensor(x.float().numpy()) + torch.tensor(residual.numpy())
    assert total.dtype == normed.dtype == mytorch.float32
    np.testing.assert_array_equal(total.numpy(), want.numpy())
    np.testing.assert_allclose(normed.numpy(), torch.layer_norm(want, (8,)).numpy(), atol=1e-6)
    model, tokens = GPT2(GPT2Config(50, 16, 2, 2, 32)), mytorch.randint(0, 50, (2, 16))
    single = model(tokens)
    with mytorch.autocast("cpu", dtype=half):
        logits = model(tokens)
    assert logits.dtype == half
    np.testing.assert_allclose(logits.float().detach().numpy(), single.detach().numpy(), atol=0.02)
    logits.float().sum().backward()
    assert every(p.grad is not None and p.grad.dtype == mytorch.float32 for p in model.parameters())
    with pytest.raises(RuntimeError, match="one shape and dtype"):
        mytorch.nn.functional.add_layer_norm(x, residual, (8,))
