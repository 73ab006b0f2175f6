"""The dispatcher: which variant runs, how arguments are read, what is refused."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import mytorch
from mytorch import Tensor
from mytorch.nn import functional as F
from mytorch.nn.functional.composite import REGISTRY, Composite, Unsupported
from mytorch.nn.functional.variant import uses_kernels
from mytorch.utils.checkpoint import checkpoint


@pytest.fixture
def scale():
    """A composite with all variants, each of which says in `ran` that it ran; kernels for the CPU only."""

    def scale(input: "Tensor", factor=2.0, inplace=False):
        """input * factor"""
        scale.ran.append("reference")
        return input * factor

    scale = Composite(scale)
    scale.ran = []

    @scale.check
    def _check(input, factor, inplace):
        if factor == 0:
            raise ValueError("scale(): factor is 0")
        return input if factor == 1 else None

    @scale.manual
    def _manual(x, factor, inplace):
        scale.ran.append(f"manual {x.dtype}")
        return x * x.dtype.type(factor), lambda g: g * g.dtype.type(factor)

    @scale.fused("cpu")
    def _kernel(x, factor, inplace):
        if factor < 0:
            raise Unsupported("negative factors")
        scale.ran.append("kernel")
        return x * x.dtype.type(factor), lambda g: g * g.dtype.type(factor)

    yield scale
    del REGISTRY["scale"]


@pytest.fixture(autouse=True)
def default():
    before = mytorch.use_fused.default
    yield
    mytorch.use_fused.default = before


X = np.arange(3, dtype="float32")

CHOICES = {  # name: (keyword arguments, use_fused, what runs)
    "by default the kernel": ({}, True, "kernel"),
    "switched off": ({}, False, "manual float32"),
    "asked for": ({"fused": True}, False, "kernel"),
    "forbidden": ({"fused": False}, True, "manual float32"),
    "reference": ({"auto": True}, True, "reference"),
    "reference, no kernel": ({"auto": True, "fused": False}, True, "reference"),
    "the kernel declines": ({"factor": -1.0}, True, "manual float32"),
}


@pytest.mark.parametrize(("kwargs", "mode", "ran"), CHOICES.values(), ids=CHOICES)
def test_which_variant_runs(scale, kwargs, mode, ran):
    x = Tensor(X, requires_grad=True)
    with mytorch.use_fused(mode):
        y = scale(x, **kwargs)
    y.sum().backward()
    assert scale.ran == [ran]
    factor = kwargs.get("factor", 2.0)
    np.testing.assert_array_equal(y.detach().numpy(), X * factor)
    np.testing.assert_array_equal(x.grad.numpy(), np.full(3, factor))


def test_in_a_checkpoint_a_kernel_that_is_being_compiled_is_awaited(scale):
    """Else the second run could take a kernel where the first took the manual variant."""
    kernel = scale.kernels.pop("cpu")

    def load(demanded):
        if not demanded:
            raise Unsupported("its kernels are being compiled")
        scale.kernels["cpu"] = kernel

    scale.suppliers["cpu"] = load
    x = Tensor(X, requires_grad=True)
    scale(x)
    checkpoint(scale, x).sum().backward()
    assert scale.ran == ["manual float32", "kernel", "kernel"]


def test_without_a_manual_variant_the_reference_runs(scale):
    scale.manual_variant = None
    scale(Tensor(X), fused=False)
    assert scale.ran == ["reference"]


def test_a_manual_variant_may_decline(scale):
    @scale.manual
    def _declines(x, factor, inplace):
        raise Unsupported("everything")

    scale(Tensor(X), fused=False)
    assert scale.ran == ["reference"]


@pytest.mark.parametrize("choice", [{"auto": True}, {"fused": False}])
def test_half_precision_is_computed_in_float32(scale, choice):
    x = Tensor(X.astype("float16"), requires_grad=True)
    y = scale(x, 3.0, **choice)
    y.backward(np.ones(3, "float16"))
    assert y.dtype == x.grad.dtype == np.float16
    assert scale.ran == ["reference" if "auto" in choice else "manual float32"]


@pytest.mark.parametrize("setting", [{"mode": False}, {"auto": True}])
def test_a_block_may_be_entered_again(setting):
    before, block = uses_kernels(), F.use_fused(**setting)
    for _ in range(2):
        with block:
            assert not uses_kernels()
        assert uses_kernels() == before


def test_use_fused_is_a_default_and_a_context():
    mytorch.use_fused(False)
    assert mytorch.use_fused.default is False
    with mytorch.use_fused(True):
        assert mytorch.use_fused.default is True
        with mytorch.use_fused(False):
            assert mytorch.use_fused.default is False
        assert mytorch.use_fused.default is True
    assert mytorch.use_fused.default is False
    with pytest.raises(TypeError, match="expected True or False, got 1"):
        mytorch.use_fused(1)


@pytest.mark.parametrize(
    ("value", "says"), [("0", "False"), ("1", "True"), ("yes", "USE_FUSED_OPS is 0 or 1, got 'yes'")]
)
def test_the_environment_sets_the_default(value, says):
    command = [sys.executable, "-c", "import mytorch; print(mytorch.use_fused.default)"]
    run = subprocess.run(command, env={"USE_FUSED_OPS": value}, capture_output=True, text=True)
    assert says in run.stdout + run.stderr


def test_a_kernel_that_cannot_be_had_is_an_error(scale, fake_cuda):
    with pytest.raises(RuntimeError, match=r"scale\(\): fused=True, but there is no fused kernel for cuda"):
        scale(Tensor(X, device="cuda:0"), fused=True)
    with pytest.raises(RuntimeError, match=r"scale\(\): fused=True, but negative factors"):
        scale(Tensor(X), -1.0, fused=True)
    with pytest.raises(ValueError, match="auto=True runs the reference, fused=True the kernel"):
        scale(Tensor(X), auto=True, fused=True)
    with pytest.raises(ValueError, match="a kernel is for 'cpu' or 'cuda', got 'tpu'"):
        scale.fused("tpu")


def test_the_checker_raises_first_and_may_answer(scale):
    with pytest.raises(ValueError, match="factor is 0"):
        scale(Tensor(X), 0)
    x = Tensor(X)
    assert scale(x, 1) is x
    assert scale.ran == []


@pytest.mark.parametrize("requires_grad", [False, True])
def test_inplace_writes_into_the_input(scale, requires_grad):
    base = Tensor(X.copy(), requires_grad=requires_grad)
    x = base * 1 if requires_grad else base
    y = scale(x, 3.0, inplace=True)
    assert y is x
    np.testing.assert_array_equal(x.detach().numpy(), 3 * X)
    if requires_grad:
        y.sum().backward()
        np.testing.assert_array_equal(base.grad.numpy(), [3, 3, 3])


WRONG_ARGUMENTS = {
    "missing": (lambda f: f(), "missing a required argument: 'input'"),
    "no tensor": (lambda f: f(X), "input must be a Tensor, got ndarray"),
    "None": (lambda f: f(None), "input must be a Tensor, got NoneType"),
    "unknown": (lambda f: f(Tensor(X), fac=3), "unexpected keyword argument 'fac'"),
    "twice": (lambda f: f(Tensor(X), 3, factor=3), "multiple values for argument 'factor'"),
    "too many": (lambda f: f(Tensor(X), 3, False, 4), "too many positional arguments"),
}


@pytest.mark.parametrize(("call", "message"), WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_wrong_arguments(scale, call, message):
    with pytest.raises(TypeError, match=rf"scale\(\): .*{message}"):
        call(scale)


def test_optional_tensors():
    x, w = mytorch.ones(2, 3), mytorch.ones(4, 3)
    assert F.linear(x, w, None).shape == (2, 4)
    with pytest.raises(TypeError, match=r"linear\(\): bias must be a Tensor | None, got int"):
        F.linear(x, w, 3)


def test_arguments_by_name_in_any_order(scale):
    y = scale(factor=3.0, input=Tensor(X))
    np.testing.assert_array_equal(y.numpy(), 3 * X)


def test_it_looks_like_a_function(scale):
    assert scale.__name__ == "scale" and scale.__doc__ == "input * factor"
    assert repr(F.gelu) == "<composite gelu>"
    assert copy.deepcopy(F.gelu) is F.gelu
    assert pickle.loads(pickle.dumps(F.gelu)) is F.gelu


def test_the_graph_shows_the_function_s_name():
    x = Tensor(X, requires_grad=True)
    assert F.silu(x).grad_fn.name == "silu"
