"""Every operator, module and optimizer of the databases on meta tensors, beside the same on the CPU."""

from __future__ import annotations

import copy
from itertools import islice

import pytest
import torch

import mytorch
import mytorch.nn.functional as F

from . import test_modules, test_optimizers
from .meta import as_meta, facts_of, outcome
from .names import RANDOM
from .share import ALL, share
from .test_operators import ENTRIES, NAMES, dtypes_of, label_of, samples
from .translate import Foreign, counterpart, ours

# What can't work without values, the error, and why.
NUMBER, DATA = RuntimeError, NotImplementedError
VALUES = {
    "item": (NUMBER, "it is a value"),
    "equal": (NUMBER, "a bool of values"),
    "allclose": (NUMBER, "a bool of values"),
    "narrow": (NUMBER, "a start that is a tensor becomes a number"),
    "linspace": (NUMBER, "bounds that are tensors become numbers"),
    "logspace": (NUMBER, "bounds that are tensors become numbers"),
    "histogram": (NUMBER, "the range of the bins is that of the values"),
    "bincount": (NUMBER, "as many results as the largest value"),
    "nn.functional.one_hot": (NUMBER, "as many classes as the largest value, if they aren't given"),
    "repeat_interleave": (NUMBER, "the sum of repeats that are a tensor"),
    "tensor_split": (DATA, "the places are values"),
    "to": (DATA, "a copy to another device has nothing to copy"),
    "nn.functional.ctc_loss": (DATA, "lengths that are tensors say where sequences end"),
    "nonzero": (DATA, "how many elements aren't zero"),
    "argwhere": (DATA, "how many elements aren't zero"),
    "unique": (DATA, "how many values there are"),
    "unique_consecutive": (DATA, "how many values there are"),
    "masked_select": (DATA, "how many elements the mask chooses"),
    "__getitem__": (DATA, "how many elements the mask chooses"),
    "index_put": (DATA, "how many elements the mask chooses"),
}
MODULES = {
    "CTCLoss": DATA,  # lengths that are tensors
    **{f"BatchNorm{n}d": NUMBER for n in (1, 2, 3)},  # momentum=None divides by the number of batches
}
# Errors that depend on values: indices out of bounds, probabilities that aren't any.
UNCHECKED = {"gather", "scatter", "scatter_add", "multinomial", "masked_select"}


@pytest.fixture(autouse=True)
def without_kernels():
    """They lay some results out in another order than NumPy does."""
    with F.use_fused(False):
        yield


def entries(condition=lambda entry: True):
    listed = [entry for name in NAMES for entry in ENTRIES[name] if condition(entry)]
    return [pytest.param(i, entry, id=label_of(entry)) for i, entry in enumerate(listed)]


def arguments_of(entry, dtype, most):
    """The arguments with values, and the same with meta tensors."""
    for _, arguments in islice(samples(entry, dtype), None if ALL else most):
        try:
            mine = ours(arguments)
        except Foreign:
            continue
        yield mine, as_meta(mine, {})


def agree(entry, want, got):
    allowed = (NUMBER, DATA) if entry.name in VALUES else ()
    assert got == want or got in allowed, f"{label_of(entry)}: on the CPU {want}, here {got}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("i", "entry"), entries())
def test_operators(i, entry):
    call = counterpart(entry.op)
    for dtype in islice(dtypes_of(entry, i), None if ALL else 1 + (i % 2)):
        gradients = entry.supports_autograd + (entry.supports_gradgrad and dtype == torch.float64)
        for mine, meta in arguments_of(entry, dtype, 3):
            agree(entry, outcome(call, mine, gradients), outcome(call, meta, gradients))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", VALUES)
def test_what_needs_values_raises(name):
    found = set()
    for entry in ENTRIES[name]:
        dtype = torch.float32 if torch.float32 in entry.dtypes else torch.int64
        for _, meta in arguments_of(entry, dtype, 16):
            got = outcome(counterpart(entry.op), meta, False)
            found |= {got} if isinstance(got, type) else set()
    assert VALUES[name][0] in found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("i", "entry"),
    entries(lambda entry: entry.inplace_variant and torch.float32 in entry.dtypes)[:: 1 if ALL else 2],
)
def test_in_place(i, entry):
    write = counterpart(entry.inplace_variant)

    def call(x, *args, **kwargs):
        x = x.clone()
        view = x.detach()
        assert write(x, *args, **kwargs) is x
        return x, view

    for mine, meta in arguments_of(entry, torch.float32, 2):
        agree(entry, outcome(call, mine, False), outcome(call, meta, False))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("i", "entry"), entries(lambda entry: entry.error_inputs_func)[:: 1 if ALL else 4])
def test_errors(i, entry):
    call = counterpart(entry.op)
    for error in entry.error_inputs("cpu"):
        sample = error.sample_input
        try:
            mine = ours(((sample.input, *sample.args), sample.kwargs))
        except Foreign:
            continue
        want, got = outcome(call, mine, False), outcome(call, as_meta(mine, {}), False)
        if entry.name not in UNCHECKED:
            agree(entry, want, got)


def run(module, args, kwargs):
    """The outcome of a call, with the gradients of the parameters."""
    def call(parameters, *args, **kwargs):
        return module(*args, **kwargs)

    return outcome(call, ((list(module.parameters()), *args), kwargs), True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("entry", "dtype", "training"), list(test_modules.cases())[:: 1 if ALL else 2])
def test_modules_have_the_same_shapes(entry, dtype, training):
    cases = entry.module_inputs_func(entry, device="cpu", dtype=dtype, requires_grad=True, training=training)
    for case in share(cases, 0, 2):
        if dtype == torch.float64:
            case.constructor_input.kwargs["dtype"] = dtype
        try:
            mine, _ = test_modules.both(entry, case.constructor_input)
        except TypeError:
            case.constructor_input.kwargs.pop("dtype")  # a module without parameters
            mine, _ = test_modules.both(entry, case.constructor_input)
        except Foreign:
            continue
        mine.train(training)
        forward = case.forward_input
        if forward is None:
            continue
        try:
            args = ours((forward.args, forward.kwargs))
        except Foreign:
            continue
        mine, meta = copy.deepcopy(mine), copy.deepcopy(mine).to("meta")
        results = []
        for module, given in ((mine, args), (meta, as_meta(args, {}))):
            results.append([run(module, *given), *map(facts_of, module.buffers())])
        if results[1][0] is MODULES.get(entry.module_cls.__name__):
            continue
        assert results[0] == results[1], f"{case.constructor_input.args} {case.constructor_input.kwargs}"


@pytest.mark.parametrize(("entry", "kwargs", "dtype"), list(test_optimizers.samples())[:: 1 if ALL else 3])
def test_optimizers_have_the_same_state(entry, kwargs, dtype):
    mine, _ = test_optimizers.parameters(entry, dtype)
    found = []
    for params in (mine, as_meta(mine, {})):
        optimizer = getattr(mytorch.optim, entry.name)(params, **ours(kwargs))
        for _ in range(2):
            optimizer.zero_grad()
            test_optimizers.loss_of(mytorch, params).backward()
            mytorch.nn.utils.clip_grad_norm_(params, 1.0)
            optimizer.step()
        state = {
            i: {name: facts_of(value) for name, value in entry.items() if name != "step"}
            for i, entry in optimizer.state_dict()["state"].items()
        }
        found.append((state, list(map(facts_of, params))))
    assert found[0] == found[1]


def test_the_tables_name_operators_of_the_database():
    assert VALUES.keys() | UNCHECKED <= set(NAMES)
    assert set(NAMES) >= RANDOM
