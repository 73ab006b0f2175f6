"""nn on a GPU (the strict stand-in for CuPy): composites, layers, initial values, clipping, as on the CPU."""

import copy
import functools
import inspect
import pickle

import numpy as np
import pytest

import mytorch
from mytorch import Tensor, nn
from mytorch.nn import functional as F
from mytorch.nn import init
from mytorch.nn.layers import __all__ as LAYER_NAMES
from tests.every import every
from tests.nn.functional.cases import CASES
from tests.nn.functional.test_losses import LOSSES
from tests.on_device import DEVICE, check, same

rng = np.random.default_rng(0)


def normal(*shape):
    return np.asarray(rng.standard_normal(shape), "float32")


def positive(*shape):
    return np.asarray(rng.uniform(0.1, 0.9, shape), "float32")


SIGNS = np.array([1, -1, -1, 1, -1])

# Composites.


@pytest.mark.parametrize("variant", [{"auto": True}, {"fused": False}], ids=["reference", "manual"])
@pytest.mark.parametrize("name", F.REGISTRY)
def test_composites_in_half_precision(fake_cuda, name, variant):
    """Those in single precision run in tests/nn/functional/test_parity.py."""

    def cast(a):
        return a.astype("float16") if isinstance(a, np.ndarray) and a.dtype == np.float32 else a

    def call(library, *xs):
        options = {key: library.tensor(a) if isinstance(a, np.ndarray) else a for key, a in keywords.items()}
        return getattr(F, name)(*xs, **options, **variant)

    for args, kwargs in CASES[name][:2]:
        keywords = {key: cast(a) for key, a in kwargs.items()}
        check(call, *map(cast, args))


@pytest.mark.parametrize("variant", [{"auto": True}, {"fused": False}], ids=["reference", "manual"])
def test_dropout_draws_on_the_device(fake_cuda, variant):
    x = mytorch.ones(200, 300, device=DEVICE, requires_grad=True)
    mytorch.manual_seed(1)
    y = F.dropout(x, 0.25, **variant)
    y.sum().backward()
    kept = y.detach().cpu().numpy()
    assert y.device == DEVICE and set(np.unique(kept)) == {0, np.float32(1 / 0.75)}
    assert abs(kept.mean() - 1) < 0.01
    np.testing.assert_array_equal(x.grad.cpu().numpy(), kept)
    mytorch.manual_seed(1)
    np.testing.assert_array_equal(F.dropout(x, 0.25, **variant).detach().cpu().numpy(), kept)


@pytest.mark.parametrize("variant", [{"auto": True}, {"fused": False}], ids=["reference", "manual"])
def test_attention_with_dropout(fake_cuda, variant):
    """The weights of the values are dropped: with an identity for values they can be seen."""
    q = mytorch.zeros(8, 50, 4, device=DEVICE)
    v = mytorch.eye(50, device=DEVICE, requires_grad=True)
    mytorch.manual_seed(0)
    y = F.scaled_dot_product_attention(q, q, v.expand(8, 50, 50), dropout_p=0.5, **variant)
    assert set(np.unique(y.detach().cpu().numpy().round(4))) == {0, np.float32(0.04)}
    y.sum().backward()
    assert v.grad.device == DEVICE and abs(float(v.grad.sum()) / (8 * 50 * 50) - 1) < 0.05


def test_embedding_renormalizes_in_place(fake_cuda):
    def call(library, weight):
        table = (weight * 3).detach().requires_grad_()
        y = F.embedding(library.tensor([[0, 2], [2, 5]]), table, max_norm=1.0)
        y.sum().backward()
        return y.detach(), table.detach(), table.grad

    check(call, normal(6, 4))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.filterwarnings("ignore:kl_div")
def test_losses(fake_cuda, name):
    def call(kwargs, library, *xs):
        options = {key: library.tensor(a) if isinstance(a, np.ndarray) else a for key, a in kwargs.items()}
        return getattr(F, name)(*xs, **options)

    for args, kwargs in LOSSES[name]:
        check(functools.partial(call, kwargs), *args)


# Layers.

# For layers of layers, and for norms, whose squares add up to a constant, so that the gradient of their sum
# is nearly 0: there rounding in float32 comes near the tolerance.
DOUBLE = mytorch.float64

# name: (constructor's arguments, inputs)
LAYERS = {
    "Linear": ((4, 3), [normal(2, 4)]), "Embedding": ((6, 3), [rng.integers(0, 6, (2, 3))]),
    "Dropout": ((0.0,), [normal(3, 4)]), "LayerNorm": ((4,), [normal(3, 4).astype(DOUBLE)]),
    "Identity": ((), [normal(3)]),
    "Flatten": ((), [normal(2, 3, 4)]), "Softmax": ((1,), [normal(3, 4)]),
    "LogSoftmax": ((1,), [normal(3, 4)]),
    **{
        name: ((), [normal(3, 4), normal(3, 4)])
        for name in ("L1Loss", "SmoothL1Loss", "HuberLoss", "CosineSimilarity", "PairwiseDistance")
    },
    "KLDivLoss": ((None, None, "sum"), [normal(3, 4), positive(3, 4)]),
    **{name: ((), [positive(3, 4), positive(3, 4)]) for name in ("BCELoss", "BCEWithLogitsLoss")},
    "GaussianNLLLoss": ((), [normal(3, 4), normal(3, 4), positive(3, 4)]),
    "PoissonNLLLoss": ((True, True), [normal(3, 4), positive(3, 4)]),
    "MarginRankingLoss": ((0.3,), [normal(5), normal(5), SIGNS]),
    **{name: ((), [normal(5), SIGNS]) for name in ("HingeEmbeddingLoss", "SoftMarginLoss")},
    "CosineEmbeddingLoss": ((0.3,), [normal(5, 2), normal(5, 2), SIGNS]),
    "MultiMarginLoss": ((2,), [normal(5, 4), rng.integers(0, 4, 5)]),
    "MultiLabelMarginLoss": ((), [normal(2, 4), np.array([[3, 0, -1, 1], [0, 1, 2, 3]])]),
    "MultiLabelSoftMarginLoss": ((), [normal(3, 4), positive(3, 4)]),
    "TripletMarginLoss": ((0.3, 2.0, 1e-6, True), [normal(3, 4), normal(3, 4), normal(3, 4)]),
    "TripletMarginWithDistanceLoss": ((), [normal(3, 4), normal(3, 4), normal(3, 4)]),
    "QuantizedLinear": ((32, 3), [normal(2, 32)]),
    "LinearActivation": ((4, 3), [normal(2, 4)]), "AddLayerNorm": ((4,), [normal(3, 4), normal(3, 4)]),
    "RMSNorm": ((4,), [normal(3, 4)]), "GroupNorm": ((2, 4), [normal(3, 4, 5)]),
    "LocalResponseNorm": ((3,), [normal(2, 4, 3)]), "BatchNorm1d": ((4,), [normal(3, 4)]),
    "BatchNorm2d": ((4, 1e-5, None), [normal(3, 4, 2, 3)]), "BatchNorm3d": ((4,), [normal(3, 4, 1, 2, 3)]),
    "InstanceNorm": ((4, 1e-5, 0.1, True), [normal(3, 4, 2, 3).astype(DOUBLE)]),
    "InstanceNorm1d": ((4, 1e-5, 0.1, True, True), [normal(3, 4, 5).astype(DOUBLE)]),
    "InstanceNorm2d": ((4, 1e-5, 0.1, True), [normal(3, 4, 2, 3).astype(DOUBLE)]),
    "InstanceNorm3d": ((4, 1e-5, 0.1, True), [normal(4, 1, 2, 3).astype(DOUBLE)]),
    "CrossEntropyLoss": ((), [normal(5, 4), rng.integers(0, 4, 5)]), "MSELoss": ((), [normal(3), normal(3)]),
    "NLLLoss": ((), [normal(5, 4), rng.integers(0, 4, 5)]),
    "LinearCrossEntropyLoss": ((3, 4), [normal(5, 3), rng.integers(0, 4, 5)]),
    "CTCLoss": ((), [normal(6, 2, 4), np.array([[1, 2], [3, 1]]), np.array([6, 5]), np.array([2, 1])]),
    "EmbeddingBag": ((6, 3), [rng.integers(0, 6, (2, 3))]),
    **{
        name: ((), [normal(3, 4)])
        for name in (
            "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
            "LogSigmoid", "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus",
            "GeGLU", "SquaredReLU", "SwiGLU",
            "Softshrink", "Softsign", "Tanh", "Tanhshrink",
        )
    },
    "Conv1d": ((2, 3, 2), [normal(2, 2, 5)]), "Conv3d": ((2, 3, 2), [normal(1, 2, 3, 2, 3)]),
    "Conv2d": ((4, 6, 3, 2, 1, 1, 2, True, "circular"), [normal(2, 4, 5, 4)]),
    "ConvTranspose1d": ((2, 3, 2), [normal(2, 2, 5)]),
    "ConvTranspose2d": ((2, 3, 3, 2, 1, 1), [normal(2, 2, 3, 4)]),
    "ConvTranspose3d": ((2, 3, 2, 2), [normal(1, 2, 2, 3, 2)]),
    "Unfold": ((2, 1, 1), [normal(2, 2, 3, 4)]), "Fold": ((4, 2), [normal(2, 8, 9)]),
    "RReLU": ((0.2, 0.2), [normal(3, 4)]), "Threshold": ((0.1, 2), [normal(3, 4)]),
    "RNN": ((3, 4, 2, "relu"), [normal(5, 2, 3)]), "GRU": ((3, 4, 1, False), [normal(5, 2, 3)]),
    "LSTM": ((3, 4, 2, True, True, 0.0, True, 2), [normal(2, 5, 3)]),
    **{name: ((3, 4), [normal(2, 3)]) for name in ("RNNCell", "LSTMCell", "GRUCell")},
    "Bilinear": ((3, 4, 2), [normal(5, 3), normal(5, 4)]), "Unflatten": ((1, (2, 2)), [normal(2, 4)]),
    **{
        f"{name}{d}d": ((2, *value), [normal(1, 2, *(5, 4, 3)[:d])])
        for d in (1, 2, 3)
        for name, value in (
            ("ReflectionPad", ()), ("ReplicationPad", ()), ("CircularPad", ()), ("ZeroPad", ()),
            ("ConstantPad", (3.5,)), ("MaxPool", ()), ("AvgPool", ()), ("LPPool", (2,)),
            ("AdaptiveAvgPool", ()), ("AdaptiveMaxPool", ()),
        )
    },
    **{
        name: ((0.0,), [normal(2, 3, 4)])
        for name in ("Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
    },
    "Upsample": ((None, 1.7, "bilinear"), [normal(1, 2, 3, 4)]),
    "UpsamplingNearest2d": ((5,), [normal(1, 2, 3, 4)]),
    "UpsamplingBilinear2d": ((5,), [normal(1, 2, 3, 4)]), "PixelShuffle": ((2,), [normal(1, 4, 2, 3)]),
    "PixelUnshuffle": ((2,), [normal(1, 2, 4, 2)]), "ChannelShuffle": ((2,), [normal(1, 4, 2)]),
    "LoRALinear": ((nn.Linear(4, 3), 2), [normal(2, 4)]), "GatedMLP": ((4, 6), [normal(2, 3, 4)]),
    "MixtureOfExperts": ((4, 6, 3), [normal(2, 5, 4)]), "RotaryEmbedding": ((4,), [normal(2, 3, 5, 4)]),
    "GroupedQueryAttention": ((8, 4, 2), [normal(2, 3, 8)]),
    "ScaledDotProduct": ((), [normal(2, 3, 4)] * 3), "SlidingWindowAttention": ((2,), [normal(2, 3, 4)] * 3),
    "MultiheadAttention": ((4, 2, 0.0, True, True, True), [normal(3, 2, 4)] * 3),
    "TransformerEncoderLayer": ((4, 2, 6, 0.0), [normal(3, 2, 4)]),
    "TransformerDecoderLayer": ((4, 2, 6, 0.0), [normal(3, 2, 4), normal(5, 2, 4)]),
    "TransformerEncoder": (
        (nn.TransformerEncoderLayer(4, 2, 6, 0.0, dtype=DOUBLE), 2), [normal(3, 2, 4).astype(DOUBLE)],
    ),
    "TransformerDecoder": (
        (nn.TransformerDecoderLayer(4, 2, 6, 0.0, dtype=DOUBLE), 2),
        [normal(3, 2, 4).astype(DOUBLE), normal(5, 2, 4).astype(DOUBLE)],
    ),
    "Transformer": (
        (4, 2, 1, 1, 6, 0.0, "gelu", None, None, 0.1, True, True), [normal(2, 3, 4), normal(2, 5, 4)],
    ),
    "Softmin": ((1,), [normal(3, 4)]), "Softmax2d": ((), [normal(2, 3, 4, 5)]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(fake_cuda, name):
    args, inputs = LAYERS[name]
    mytorch.manual_seed(0)
    layer = getattr(nn, name)(*args)
    if inputs[0].dtype == DOUBLE:
        layer.double()

    def call(library, *xs):
        there = copy.deepcopy(layer).to(library.device)
        y = there(*xs)
        y = y[0] if isinstance(y, tuple) else y  # recurrent layers give their last states, too
        y.sin().sum().backward()  # the sum of squares of what was normalized would have no gradient
        gradients = [p.grad for p in there.parameters() if p.requires_grad]
        return [y.detach(), *(p.detach() for p in there.parameters()), *gradients]

    check(call, *inputs)


def test_every_layer_has_a_case():
    without_gradient = {"QuantizedEmbedding"}  # see nn/test_quantization.py
    assert {name for name in LAYER_NAMES if not name.startswith("Lazy")} - without_gradient == set(LAYERS)


@pytest.mark.parametrize("name", [name for name in LAYER_NAMES if name.startswith("Lazy")])
def test_lazy_layers_begin_on_the_device(fake_cuda, name):
    size = (4, 5, 6)[: int(name[-2])] if name[-1] == "d" else ()
    args = () if "Norm" in name else (3, 2) if "Conv" in name else (3,)
    made = [getattr(nn, name)(*args, device=DEVICE), getattr(nn, name)(*args).to(DEVICE)]
    for layer in made:
        y = layer(mytorch.ones(2, 4, *size, device=DEVICE))
        assert y.device == DEVICE and every(p.device == DEVICE for p in layer.parameters())


@pytest.mark.parametrize(
    "name", [n for n in LAYERS if "device" in inspect.signature(getattr(nn, n)).parameters]
)
def test_layers_are_made_on_the_device(fake_cuda, name):
    args, _ = LAYERS[name]
    mytorch.manual_seed(0)
    layer = getattr(nn, name)(*args, device=DEVICE)
    parameters = list(layer.parameters())
    assert parameters and every(p.device == DEVICE and isinstance(p, nn.Parameter) for p in parameters)


class Net(nn.Module):
    """Tied weights, a buffer, a frozen parameter."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.second.bias.requires_grad_(False)
        self.norm = nn.LayerNorm(4)
        self.register_buffer("count", mytorch.zeros((), dtype=mytorch.int64))

    def forward(self, x):
        self.count += 1
        return self.second(self.norm(self.first(x)))


def test_a_module_moves_with_all_it_has(fake_cuda):
    mytorch.manual_seed(0)
    net = Net()
    net(Tensor(normal(2, 4))).sum().backward()
    before = {name: p.detach().clone() for name, p in net.state_dict().items()}
    grads = {name: p.grad.copy() for name, p in net.named_parameters() if p.grad is not None}
    assert net.to(DEVICE) is net
    for name, p in net.state_dict().items():
        same(p, before[name])
    for name, p in net.named_parameters():
        assert p.is_leaf and p.requires_grad == (name != "second.bias")
        if name in grads:
            same(p.grad, grads[name])
    assert net.first.weight is net.second.weight and net.count.item() == 1
    assert net(mytorch.ones(2, 4, device=DEVICE)).device == DEVICE
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert {p.device for p in other.parameters()} == {
            DEVICE
        } and other.first.weight is other.second.weight
    assert {p.device for p in net.cuda(0).parameters()} == {"cuda:0"}
    assert {p.dtype for p in net.to(DEVICE, mytorch.float16).parameters()} == {mytorch.float16}
    assert {p.device for p in net.cpu().parameters()} == {"cpu"} and net.count.dtype == mytorch.int64


def test_state_dicts_load_from_any_device(fake_cuda):
    here, there = Net(), Net().to(DEVICE)
    there.load_state_dict(here.state_dict())
    for name, p in there.state_dict().items():
        same(p, here.state_dict()[name])
    with mytorch.no_grad():
        there.first.bias.fill_(7)
    here.load_state_dict(there.state_dict())
    assert here.first.bias.device == "cpu" and here.first.bias.tolist() == [7] * 4
    here.load_state_dict({name: p.numpy(force=True) for name, p in there.state_dict().items()})
    there.load_state_dict({name: p.data for name, p in here.state_dict().items()})
    assert {p.device for p in there.parameters()} == {DEVICE}


# Initial values.

# name: arguments
INIT = {
    "constant_": (2.5,), "eye_": (), "kaiming_normal_": (), "kaiming_uniform_": (), "normal_": (1.0, 0.1),
    "ones_": (), "orthogonal_": (), "trunc_normal_": (0.0, 1.0, -0.5, 0.5), "uniform_": (-1.0, 2.0),
    "xavier_normal_": (), "xavier_uniform_": (), "zeros_": (),
}


@pytest.mark.parametrize("name", INIT)
def test_init(fake_cuda, name):
    """Random values differ between devices; their range and spread don't."""
    made = []
    for device in ("cpu", DEVICE):
        mytorch.manual_seed(0)
        p = nn.Parameter(mytorch.empty(60, 80, device=device))
        assert getattr(init, name)(p, *INIT[name]) is p and p.device == device and p.grad_fn is None
        made.append(p.detach().cpu().numpy())
    here, there = made
    if name in ("constant_", "eye_", "ones_", "zeros_"):
        np.testing.assert_array_equal(here, there)
    else:
        np.testing.assert_allclose([there.mean(), there.std()], [here.mean(), here.std()], atol=0.03)
    if name == "orthogonal_":
        np.testing.assert_allclose(there @ there.T, np.eye(60), atol=1e-5)


def test_every_init_has_a_case():
    public = {n for n, f in vars(init).items() if n.endswith("_") and n[0] != "_" and inspect.isfunction(f)}
    assert public == set(INIT)


# Gradients.


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e4])
def test_clip_grad_norm(fake_cuda, max_norm, norm_type, dtype):
    def call(library, *xs):
        (sum((x * x * x).sum() for x in xs)).backward()
        total = nn.utils.clip_grad_norm_(xs, max_norm, norm_type)
        return [total, *(x.grad for x in xs)]

    check(with_leaves(call), normal(3, 4).astype(dtype), normal(5).astype(dtype))


def test_clip_grad_value(fake_cuda):
    def call(library, *xs):
        (sum((x * x * x).sum() for x in xs)).backward()
        nn.utils.clip_grad_value_(xs, 0.5)
        return [x.grad for x in xs]

    check(with_leaves(call), normal(3, 4), normal(5))


def with_leaves(call):
    """The call on leaves of its own, whose gradients nobody else adds to."""
    return lambda library, *xs: call(library, *(x.detach().clone().requires_grad_() for x in xs))


def test_clip_grad_norm_over_several_devices(fake_cuda):
    values = normal(3, 4), normal(5), normal(2)
    xs = [
        mytorch.tensor(a, device=d, requires_grad=True)
        for a, d in zip(values, (DEVICE, "cpu", "cuda:0"), strict=True)
    ]
    for x in xs:
        (x * x).sum().backward()
    total = nn.utils.clip_grad_norm_(xs, 1.0)
    flat = 2 * np.concatenate([a.ravel() for a in values])
    assert total.device == DEVICE
    np.testing.assert_allclose(total.item(), np.linalg.norm(flat), rtol=1e-6)
    clipped = np.concatenate([x.grad.cpu().numpy().ravel() for x in xs])
    np.testing.assert_allclose(clipped, flat / np.linalg.norm(flat), rtol=1e-5)


def test_parameters_as_a_vector(fake_cuda):
    def call(library, *xs):
        vector = nn.utils.parameters_to_vector(xs)
        nn.utils.vector_to_parameters(vector.detach() * 2, xs)
        return [vector, *xs]

    check(call, normal(3, 4), normal(5), grad=False)
