"""PyTorch's operator database: every sample as a function, a method and in place, with two gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

import mytorch
from mytorch.ops.out import FACTORIES
from mytorch.ops.out import NAMES as OUT
from tests import seeds

from .compare import compare, compare_as_good, compare_with_double, same
from .names import CHOOSING, COMPLEX, FAMILIES, NO_SECOND, RANDOM, ROUGH, UNSTABLE, UP_TO_SIGN
from .share import ALL, first_of_each_kind
from .translate import DTYPES, Foreign, array, counterpart, ours

# For its seed it looks for the unittest that asks, in the source files of the whole stack: most of the time.
common_utils.extract_test_fn = core.extract_test_fn = lambda: None

ENTRIES = {}
for _entry in op_db:
    ENTRIES.setdefault(_entry.name, []).append(_entry)
NAMES = [name for names in FAMILIES.values() for name in names.split()]
ATTENTION = "nn.functional.scaled_dot_product_attention"
MULTI_HEAD = "nn.functional.multi_head_attention_forward"
GRADIENTS = (torch.bfloat16, torch.float32, torch.float64)
HALVES = (torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.uint8, torch.int32, torch.int8, torch.int16)


def cases() -> Iterator:
    """An entry of the database, and the dtypes in which it is compared."""
    for i, entry in enumerate([entry for name in NAMES for entry in ENTRIES[name]]):
        no_complex32 = entry.name in COMPLEX  # NumPy hasn't got it
        dtypes = [d for d in dtypes_of(entry, i) if not (no_complex32 and d in HALVES)]
        yield pytest.param(entry, dtypes, id=label_of(entry))


def label_of(entry) -> str:
    return f"{entry.name}-{entry.variant_test_name}".rstrip("-")


def dtypes_of(entry, i: int) -> Iterator[torch.dtype]:
    """float32, float64 for second gradients, bool, one kind of half precision and one of integers: of these
    the next ones for the next entry. All with MYTORCH_TEST_ALL=1."""
    if ALL:
        return filter(entry.dtypes.__contains__, DTYPES)
    second = [torch.float64] if entry.supports_gradgrad or torch.float32 not in entry.dtypes else []
    wanted = [[torch.float32], second, [torch.bool], _from(HALVES, i), _from(INTEGERS, i)]
    known = [[dtype for dtype in group if dtype in entry.dtypes] for group in wanted]
    return (group[0] for group in known if group)


def _from(dtypes: tuple, i: int) -> tuple:
    i %= len(dtypes)
    return dtypes[i:] + dtypes[:i]


def variants(entry) -> Iterator[tuple[str, Callable, Callable]]:
    """(what it is called, ours, theirs) for each way to call it."""
    theirs = by_its_formula(entry.op) if entry.name == ATTENTION else entry.op
    yield "function", counterpart(entry.op), theirs
    for kind in ("method_variant", "operator_variant"):
        theirs = getattr(entry, kind)
        if theirs is not None and theirs is not entry.op:
            yield kind, counterpart(theirs), theirs


def by_its_formula(attention: Callable) -> Callable:
    """PyTorch's attention without its fused kernels, which have no second derivative."""

    def call(*args, **kwargs):
        with sdpa_kernel(SDPBackend.MATH):
            return attention(*args, **kwargs)

    return call


def is_random(entry, sample) -> bool:
    """Is the result drawn at random, at least in part?"""
    dropout_p = sample.kwargs.get("dropout_p", 0)
    if entry.name == MULTI_HEAD and sample.kwargs["training"]:
        dropout_p = sample.args[9]
    return entry.name in RANDOM or dropout_p > 0


def what_is_chosen(function: Callable, place: int) -> Callable:
    """`function` with its indices along a dim replaced by the elements that they name."""

    def call(x, *args, **kwargs):
        result = function(x, *args, **kwargs)
        dim = kwargs.get("dim", args[place] if len(args) > place else -1)
        values, indices = result if isinstance(result, tuple) else (None, result)
        along = indices if indices.ndim == x.ndim else indices.unsqueeze(dim)
        chosen = x.take_along_dim(along, dim) if x.ndim else x
        return values, chosen.reshape(indices.shape), indices * 0

    return call


def without_signs(function: Callable) -> Callable:
    return lambda *args, **kwargs: tuple(abs(x) for x in function(*args, **kwargs))


def as_pairs(function: Callable, library) -> Callable:
    def call(*args, **kwargs):
        z = function(*args, **kwargs)
        return library.stack([z.real, z.imag], -1)

    return call


def samples(entry, dtype: torch.dtype) -> Iterator:
    grad = dtype in GRADIENTS and entry.supports_autograd and dtype in entry.backward_dtypes
    for sample in first_of_each_kind(entry.sample_inputs("cpu", dtype, requires_grad=grad)):
        yield sample, ((sample.input, *sample.args), sample.kwargs)


def summary(sample) -> str:
    text = sample.summary().replace(', device="cpu", dtype=torch.', " ").replace("SampleInput", "")
    return text.split(", broadcasts_input")[0][:250]


def comparison(entry, dtype: torch.dtype) -> Callable:
    if dtype == torch.bfloat16:
        return compare_as_good
    return compare_with_double if (entry.name, str(dtype)[6:]) in ROUGH else compare


def report(failures: list[str], count: int) -> None:
    assert count, "no sample could be used"
    assert not failures, f"{len(failures)} of {count} fail:\n" + "\n".join(failures[:6])


def attempt(failures: list[str], label: str, function: Callable, *args, **kwargs) -> int:
    """Run it; 1 if the sample counts, 0 if PyTorch itself refuses or it holds what we don't have."""
    try:
        function(*args, **kwargs)
    except Foreign:
        return 0
    except Exception as error:
        text = " ".join(str(error).split())
        failures.append(f"- {label}: {type(error).__name__}: {text[:600]}")
    return 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("entry", "dtypes"), list(cases()))
def test_values_and_gradients(entry, dtypes):
    for dtype in dtypes:
        seeds.rewind()
        compare_values_and_gradients(entry, dtype)


def compare_values_and_gradients(entry, dtype: torch.dtype) -> None:
    failures, count = [], 0
    for kind, mine, theirs in list(variants(entry))[: None if ALL or dtype == torch.float32 else 1]:
        if entry.name in CHOOSING and dtype not in (torch.float32, torch.float64):  # there are equal elements
            mine, theirs = (what_is_chosen(f, CHOOSING[entry.name]) for f in (mine, theirs))
        if entry.name in UP_TO_SIGN:
            mine, theirs = without_signs(mine), without_signs(theirs)
        if entry.name in COMPLEX:
            mine, theirs = as_pairs(mine, mytorch), as_pairs(theirs, torch)
        for i, (sample, arguments) in enumerate(samples(entry, dtype)):
            if kind == "operator_variant" and sample.kwargs:
                continue
            label = f"{kind} {i} {summary(sample)}"
            unstable = (entry.name, str(dtype)[6:]) in UNSTABLE
            how = {"values": not unstable and not is_random(entry, sample), "grad": entry.supports_autograd}
            if dtype == torch.bfloat16 and entry.name in {*CHOOSING, "msort"}:
                how["grad"] = False  # it goes to one of several equal elements
            if dtype == torch.float64:
                how["second"] = entry.supports_gradgrad and entry.name not in NO_SECOND
            count += attempt(failures, label, comparison(entry, dtype), mine, theirs, arguments, **how)
    report(failures, count)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("entry", "dtypes"), [c for c in cases() if c.values[0].inplace_variant is not None]
)
def test_in_place(entry, dtypes):
    """As PyTorch's in-place form: the same memory is written, and gradients go through the write."""
    for dtype in dtypes:
        if ALL or dtype != torch.float64:
            seeds.rewind()
            compare_in_place(entry, dtype)


def compare_in_place(entry, dtype: torch.dtype) -> None:
    mine, theirs = counterpart(entry.inplace_variant), entry.inplace_variant
    failures, count, refused = [], 0, 0

    def through_a_copy(function):
        return lambda x, *args, **kwargs: function(x.clone() if x.requires_grad else x, *args, **kwargs)

    def overwrites(arguments):
        (x, *args), kwargs = ours(arguments)
        x = x.clone()
        out = mine(x, *args, **kwargs)
        assert out is x, "an in-place form returns its tensor"

    for i, (sample, arguments) in enumerate(samples(entry, dtype)):
        if sample.broadcasts_input:
            continue
        try:
            copy = (sample.input.detach().clone(), *sample.args)
            theirs(*copy, **sample.kwargs)
        except RuntimeError:
            refused += 1
            with pytest.raises((RuntimeError, TypeError)):
                overwrites(arguments)
            continue
        label = f"{i} {summary(sample)}"
        detached = ((sample.input.clone().detach(), *sample.args), sample.kwargs)
        if entry.supports_inplace_autograd and sample.input.requires_grad:
            detached = arguments
        count += attempt(
            failures, label, comparison(entry, dtype),
            through_a_copy(mine), through_a_copy(theirs), detached, entry.name not in RANDOM,
            grad=entry.supports_inplace_autograd,
        )
        attempt(failures, label, overwrites, arguments)
    report(failures, count + refused)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=label_of(entry))
        for name in NAMES
        for entry in ENTRIES[name]
        if entry.error_inputs_func
    ],
)
def test_errors(entry):
    """What PyTorch refuses is refused with the same class of error."""
    mine = counterpart(entry.op)
    failures, count = [], 0
    for i, error in enumerate(entry.error_inputs("cpu")):
        sample = error.sample_input
        try:
            (x, *args), kwargs = ours(((sample.input, *sample.args), sample.kwargs))
            entry.op(sample.input, *sample.args, **sample.kwargs)
        except Foreign:
            continue
        except Exception:
            count += 1
        else:
            continue  # PyTorch takes it, whatever the database says: clamp_min(x, 2)
        label = f"- {i} {summary(sample)} (PyTorch: {error.error_type.__name__} {error.error_regex})"
        try:
            mine(x, *args, **kwargs)
        except error.error_type:
            continue
        except Exception as other:
            failures.append(f"{label}: {type(other).__name__}: {other}")
        else:
            failures.append(f"{label}: nothing raised")
    assert not failures, f"{len(failures)} of {count} fail:\n" + "\n".join(failures[:8])


def writes_out(mine, theirs, arguments) -> None:
    """`out=` as PyTorch's: it is returned, is resized, and is refused in a lower kind; its values are those
    without `out=`, bit by bit."""
    want = theirs(*arguments[0], **arguments[1])
    several = isinstance(want, tuple)
    args, kwargs = ours(arguments)
    values = mine(*args, **kwargs)
    wants, values = (x if several else [x] for x in (want, values))
    for shrink in (False, True):
        outs = tuple(mytorch.empty((0,) if shrink else w.shape, dtype=DTYPES[w.dtype]) for w in wants)
        got = mine(*args, out=outs if several else outs[0], **kwargs)
        for g, o, v, w in zip(got if several else [got], outs, values, wants, strict=True):
            assert g is o, "out itself is returned"
            same(o, w, "out", values=False)
            np.testing.assert_array_equal(array(o), array(v))
    if not several and wants[0].is_floating_point() and mine.__name__ not in FACTORIES:  # those take out's
        with pytest.raises(RuntimeError, match="can't be cast|expected out to have dtype"):
            mine(*args, out=mytorch.empty(wants[0].shape, dtype=mytorch.int64), **kwargs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=label_of(entry))
        for name in NAMES
        for entry in ENTRIES[name]
        if entry.supports_out and name in OUT and name not in RANDOM
    ],
)
def test_out(entry):
    failures, count = [], 0
    dtype = torch.float32 if torch.float32 in entry.dtypes else torch.int64
    for i, sample in enumerate(first_of_each_kind(entry.sample_inputs("cpu", dtype))):
        arguments = ((sample.input, *sample.args), sample.kwargs)
        label = f"{i} {summary(sample)}"
        count += attempt(failures, label, writes_out, counterpart(entry.op), entry.op, arguments)
    report(failures, count)


def test_out_is_refused_where_a_gradient_is_wanted():
    x = mytorch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        mytorch.exp(x, out=mytorch.empty(2))
    with pytest.warns(UserWarning, match="resized"):
        mytorch.exp(mytorch.ones(2), out=mytorch.empty(3))
    with pytest.raises(TypeError, match="out must be a Tensor"):
        mytorch.exp(mytorch.ones(2), out=[1])
