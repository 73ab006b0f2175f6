"""Values and gradients of all Triton kernels, interpreted; test_kernels.py runs it in its own process."""

import sys

import numpy as np
import pytest

from mytorch import no_grad
from mytorch.backends import threads
from mytorch.nn.functional.composite import Unsupported
from mytorch.nn.fused_ops.kernels import KERNELS
from mytorch.nn.fused_ops.triton import convolution, launch, layer_norm, norm, why_not
from tests.every import every
from tests.nn.functional.cases import CASES as SHARED
from tests.nn.functional.cases import case, normal
from tests.triton import interpreter
from tests.triton.cases import CASES, COMPILED, DTYPES, EVERYTHING, FUNCTIONS, rows_of
from tests.triton.harness import arguments, assert_close, expected, gradients, is_float, kernel
from tests.triton.results import save

interpreter.install()

EVERY_ROW = pytest.mark.parametrize(
    ("name", "i", "dtype"),
    [(name, i, dtype) for name in CASES for dtype in DTYPES for i in rows_of(name, dtype)],
)
COMPOSITES = sorted(set(CASES) - set(FUNCTIONS))


class Twice(interpreter.Interpret):
    """Runs tuned kernels twice, as measuring does: they may depend only on what they say, in `inplace`.

    Once for each kind of call, as a compiler sees them, whatever the dtypes are.
    """

    def __init__(self):
        self.seen = set()

    def configs(self, tuned, grid, pointers, meta):
        config = super().configs(tuned, grid, pointers, meta)[0]
        kinds = [p is None for p in pointers]
        kind = tuned, *kinds, *sorted({**meta, **config}.items())
        if kind in self.seen:
            return [config]
        self.seen.add(kind)
        named = dict(zip(tuned.kernel.arg_names, pointers, strict=False))
        kept = [(named[n].array, named[n].array.copy()) for n in tuned.inplace if named[n] is not None]
        whole = {**meta, **config}
        self.launch(tuned.kernel, launch.grid_of(grid, whole), pointers, whole)
        for array, before in kept:
            array[...] = before
        return [config]


TWICE = Twice()


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """Fresh memory is full of NaN, and tuned kernels run twice."""
    monkeypatch.setattr(threads, "running", False)  # Numba compiles nothing while `empty` isn't NumPy's
    for make in ("empty", "empty_like"):
        monkeypatch.setattr(np, make, poisoned(getattr(np, make)))
    with launch.in_mode(TWICE):
        yield


def poisoned(make):
    def fresh(*args, **kwargs):
        array = make(*args, **kwargs)
        if is_float(array):
            array.fill(np.nan)
        elif array.dtype.kind in "iu":
            array.fill(np.iinfo(array.dtype).max)
        return array

    return fresh


def check(name, raws, dtype, layout=lambda g: g, twice=False):
    """The kernel's results and gradients, those of a second backward too if it is to be `twice`, are the
    reference's, and it changed nothing.

    Returns the results, the incoming gradients and the gradients.
    """
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in raws]
    want, want_grads, gs = expected(name, raws, dtype, layout)
    result, vjp = kernel(name)(*raws)
    outputs = list(result) if isinstance(result, tuple) else [result]
    for k, (y, w) in enumerate(zip(outputs, want, strict=True)):
        assert_close(name, y, w, dtype, f"result {k}")
    given = [g.copy() for g in gs]
    got = gradients(name, vjp, gs, len(raws))
    again = gradients(name, vjp, gs, len(raws)) if twice else got
    for k, (d, e, w) in enumerate(zip(got, again, want_grads, strict=True)):
        assert (d is None) == (w is None), f"gradient {k}: {type(d)}, of the reference {type(w)}"
        if w is not None:
            assert_close(name, d, w, dtype, f"gradient {k}")
            assert_same(d, e, f"gradient {k}, asked for again")
    there = [d for d in got if d is not None]
    assert not any(np.shares_memory(d, e) for d in there for e in there if d is not e)
    for a, b in zip([*raws, *gs], [*before, *given], strict=True):
        if isinstance(a, np.ndarray):
            assert_same(a, b, "an input was written to")
    return outputs, gs, got


def assert_same(got, want, what):
    """Bit by bit, but for what is in a NaN; NumPy's own comparisons don't know bfloat16's NaN."""
    assert got.dtype == want.dtype
    kinds = (a.astype("float64") if is_float(a) else a for a in (got, want))
    np.testing.assert_array_equal(*kinds, err_msg=what)


def test_every_kernel_has_cases():
    assert set(CASES) == {*KERNELS, *FUNCTIONS} >= set(COMPILED)
    files = {*KERNELS.values()}
    assert {KERNELS[name] for name in COMPILED if name not in FUNCTIONS} == files
    assert every(CASES.values()) and every(COMPILED.values())


@EVERY_ROW
def test_against_float64(name, i, dtype):
    raws = arguments(name, CASES[name][i], dtype)
    if name in FUNCTIONS:
        check_function(name, i, raws, dtype)
        return
    outputs, gs, grads = check(name, raws, dtype, twice=True)
    save(name, i, dtype, inputs=raws, outputs=outputs, incoming=gs, gradients=grads)
    with no_grad():
        without, _ = kernel(name)(*raws)
    withouts = list(without) if isinstance(without, tuple) else [without]
    for y, w in zip(outputs, withouts, strict=True):
        assert_same(w, y, "result without gradients")
    assert outputs[0].dtype.name == dtype


def check_function(name, i, raws, dtype):
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in raws]
    wide = [a.astype("float64") if is_float(a) else a for a in before]
    got, want = kernel(name)(*raws), FUNCTIONS[name][1](*wide)
    got, want = (list(r) if isinstance(r, (tuple, list)) else [] if r is None else [r] for r in (got, want))
    save(name, i, dtype, inputs=before, outputs=[*got, *raws])
    for k, (a, w) in enumerate(zip([*got, *raws], [*want, *wide], strict=True)):
        if isinstance(a, np.ndarray):
            assert_close(name, a, np.asarray(w, "float64"), dtype, f"result or array {k}")


LAYOUTS = {
    "transposed": lambda a: np.swapaxes(np.swapaxes(a, 0, -1).copy(), 0, -1) if a.ndim else a,
    "every other": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a,
    "unaligned": lambda a: np.concatenate([a.reshape(-1)[:1], a.reshape(-1)])[1:].reshape(a.shape),
}


# Kernels that read strided memory; the others make contiguous copies, whatever the strides are.
STRIDED = {"gelu", "rotary_embedding", "scaled_dot_product_attention", "cached_attention"}


@pytest.mark.parametrize(
    ("name", "layout"),
    [(n, how) for n in COMPOSITES for how in (LAYOUTS if EVERYTHING or n in STRIDED else ["transposed"])],
)
def test_layouts(name, layout):
    raws = arguments(name, CASES[name][0], "float32")
    raws = [LAYOUTS[layout](a) if isinstance(a, np.ndarray) and a.size else a for a in raws]
    check(name, raws, "float32", LAYOUTS[layout])


@pytest.mark.parametrize("name", COMPOSITES)
def test_an_incoming_gradient_without_memory_of_its_own(name):
    """As that of a sum: the same numbers seen in many places, which can't be written to."""
    raws = arguments(name, CASES[name][0], "float32")
    check(name, raws, "float32", lambda g: np.broadcast_to(g[:1] if g.ndim else g, g.shape))


@pytest.mark.parametrize("name", COMPOSITES)
def test_cases_that_all_variants_share(name):
    """The kernel raises `Unsupported`, or its results are right: for the first that it supports."""
    supported = 0
    for row in SHARED[name]:
        raws = arguments(name, row, "float32")
        if raws is None:
            continue
        try:
            kernel(name)(*raws)
        except Unsupported:
            continue
        check(name, raws, "float32")
        supported += 1
        if not EVERYTHING:
            break
    assert supported, f"the kernel supports none of {len(SHARED[name])}"


@pytest.mark.parametrize("name", COMPOSITES)
def test_float64_is_refused(name):
    with pytest.raises(Unsupported):
        kernel(name)(*arguments(name, CASES[name][0], "float64"))


def test_the_gradients_of_self_attention_are_views_of_one_array(monkeypatch):
    """Nothing is stacked, for the output neither."""
    raws = arguments("self_attention", CASES["self_attention"][0], "float16")
    monkeypatch.setattr(np, "stack", None)
    monkeypatch.setattr(np, "concatenate", None)
    y, vjp = kernel("self_attention")(*raws)
    dqkv = vjp(np.ones_like(y))[0]
    assert dqkv.shape == raws[0].shape and dqkv.flags.c_contiguous and dqkv.base is None


@pytest.mark.parametrize("dtype", DTYPES if EVERYTHING else ["float16"])
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "gelu_tanh"])
def test_what_is_activated_is_the_rounded_sum(activation, dtype):
    """Backward starts from there."""
    *raws, _ = arguments("linear_activation", CASES["linear_activation"][0], dtype)
    z, _ = kernel("linear")(*raws)
    y, vjp = kernel("linear_activation")(*raws, activation)
    options = {"relu": (False,), "silu": (False,), "gelu": ("none",), "gelu_tanh": ("tanh",)}[activation]
    want, _ = kernel(activation.partition("_")[0])(z, *options)
    assert_same(y, want, "of the same z")
    one, two, again = (vjp[0](g) for g in (y, y + y, y.copy()))
    assert_same(one + one, two, "another gradient comes in")
    assert_same(one, again, "the first one comes in again")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("i", range(4, 10))
def test_a_loss_of_half_logits_in_float32(i, dtype):
    """The logits are read as they are, and the gradient is rounded once."""
    half = arguments("cross_entropy", CASES["cross_entropy"][i], dtype)
    half[-1] = np.dtype("float32")
    y, vjp = kernel("cross_entropy")(*half)
    want, want_vjp = kernel("cross_entropy")(*[a.astype("f") if is_float(a) else a for a in half])
    assert_same(y, want, "the loss")
    g = np.full_like(y, 1000)
    assert_same(vjp(g), want_vjp(g).astype(dtype), "the gradient")


@pytest.mark.parametrize(
    ("x", "w"), [((1 << 17, 1, 128, 128), (1, 1, 1, 1)), ((1, 1 << 17, 128, 128), (4, 1 << 15, 1, 1)),
                 ((1, 4, 128, 128), (1 << 17, 1, 1, 1))],
)
def test_convolutions_count_in_32_bits(x, w):
    """More than they can count they leave to others; none of these arrays has any memory."""
    x, w = (np.broadcast_to(np.float16(0), shape) for shape in (x, w))
    groups = x.shape[1] // w.shape[1]
    with pytest.raises(Unsupported, match="fewer than 2147483392 elements, got .*128"):
        kernel("conv2d")(x, w, None, (1, 1), ((0, 0), (0, 0)), (1, 1), groups)


def test_programs_for_parts_of_rows_are_along_the_first_axis(monkeypatch):
    """A GPU has at most 65535 along the others."""
    grids = []
    monkeypatch.setattr(layer_norm, "launch", lambda kernel, grid, *_, **__: grids.append(grid))
    count, n = 16 * 65536, 9000
    x = np.broadcast_to(np.float16(0), (count, n))
    monkeypatch.setattr(layer_norm, "_new_partials", lambda dtypes, programs, n, like: [None, like])
    layer_norm._long_rows_backward(x, None, x, None, [None, x.dtype], None, None, x, count, n, True)
    assert grids == [(count,), (65536, 5)]


def test_groups_of_convolutions_are_along_the_first_axis(monkeypatch):
    grids = []
    monkeypatch.setattr(convolution, "launch", lambda kernel, grid, *_, **__: grids.append(grid(CHOSEN)))
    x, w = np.zeros((2, 70000, 1, 1), np.float32), np.zeros((140000, 1, 1, 1), np.float32)
    y, (_, grad_w, *_) = kernel("conv2d")(x, w, None, (1, 1), ((0, 0), (0, 0)), (1, 1), 70000)
    grad_w(y)
    assert grids == [(70000,), (70000, 1)]


CHOSEN = {"BLOCK_O": 16, "BLOCK_P": 16, "BLOCK_K": 16}


def test_the_sum_of_squares_of_almost_2_31_elements():
    """The number of blocks is counted in 32 bits. Hardly any of these elements has memory of its own."""
    x, sums = np.zeros(2**31 - 1, np.float16), np.zeros(norm.SUMS, np.float32)
    last = len(x) // (norm.SUMS * norm.BLOCK) * (norm.SUMS * norm.BLOCK)  # of the first program's blocks
    x[0], x[last] = 2, 3
    meta = {"COUNT": norm.SUMS, "BLOCK": norm.BLOCK}
    launch.launch(norm._sums_of_squares, (1,), x, sums, len(x), **meta)
    assert sums[0] == 13


def test_pytorch_is_not_imported():
    assert not why_not() and "torch" not in sys.modules
    assert interpreter.patch.cache_info().currsize, "the interpreter was used as it is"


OFFSET = 10000


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "cross_entropy"])
def test_an_offset_costs_no_digits(name):
    x, *others = arguments(name, CASES[name][0], "float32")
    check(name, [x + np.float32(OFFSET), *others], "float32")


NORMS = {"layer_norm": ((37,),), "group_norm": (2,), "batch_norm": (None, None, None, None, True)}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("length", [37, 20000])
def test_an_offset_costs_norms_no_more_than_its_rounding(name, length):
    """A unit in its last place, or two with several blocks in a row; equal numbers become 0."""
    rows = case(normal(2, 2, length), *(((length,),) if name == "layer_norm" else NORMS[name]))
    x, *others = arguments(name, rows, "float32")
    offset = x + np.float32(OFFSET)
    y, _ = kernel(name)(offset, *others)
    (want,), _, _ = expected(name, [offset, *others], "float32")
    assert np.abs(y - want).max() < (1 if length < 1000 else 2) * np.spacing(np.float32(OFFSET))
    y, _ = kernel(name)(np.full_like(x, 1000.1), *others)
    np.testing.assert_array_equal(y, 0)


def test_swiglu_multiplies_in_order():
    """silu(a) is 0 before b or the incoming gradient is multiplied with it: nothing is inf times 0."""
    raws = arguments("swiglu", case(np.array([[-1e30, 1e30]], "float32")), "float32")
    y, vjp = kernel("swiglu")(*raws)
    np.testing.assert_array_equal(y, 0)
    (dx,) = gradients("swiglu", vjp, [np.full_like(y, 1e10)], 1)
    assert dx[0, 1] == 0
