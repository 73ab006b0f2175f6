"""PyTorch's module database: a PyTorch state_dict loads as it is, and the module then computes the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

import mytorch
from tests.nn.test_layers import LAYERS

from .compare import array, compare, same
from .names import DOUBLE_MODULES, MODULES
from .share import ALL, share
from .translate import Foreign, ours

ENTRIES = {entry.module_cls.__name__: entry for entry in module_db}
LISTED = [name for name in MODULES.split() if name in ENTRIES]


def cases() -> Iterator:
    """Each module in float32 and in float64, one of them for training, the other one for evaluation; the next
    module the other way round. With MYTORCH_TEST_ALL=1 all four."""
    for i, name in enumerate(LISTED):
        for dtype in (torch.float32, torch.float64)[name in DOUBLE_MODULES :]:
            for training in (True, False):
                chosen = training == ((dtype == torch.float32) == (i % 2 == 0))
                if dtype in ENTRIES[name].dtypes and (ALL or chosen):
                    mode = "train" if training else "eval"
                    yield pytest.param(ENTRIES[name], dtype, training, id=f"{name}-{str(dtype)[6:]}-{mode}")


def both(entry, constructor):
    """Our module and PyTorch's, with PyTorch's initial values."""
    theirs = entry.module_cls(*constructor.args, **constructor.kwargs)
    modules = {
        id(x): encoder_layer(x) for x in constructor.args if isinstance(x, torch.nn.TransformerEncoderLayer)
    }
    args, kwargs = ours((constructor.args, constructor.kwargs), modules)
    mine = getattr(mytorch.nn, entry.module_cls.__name__)(*args, **kwargs)
    state = {key: ours(value) for key, value in theirs.state_dict().items()}
    assert list(mine.state_dict()) == list(state), "state_dict: other keys, or another order"
    for key, value in mine.state_dict().items():
        assert (value.shape, value.dtype) == (state[key].shape, state[key].dtype), f"state_dict: {key}"
    mine.load_state_dict(state)
    return mine, theirs


def encoder_layer(theirs: torch.nn.TransformerEncoderLayer) -> mytorch.nn.Module:
    """Ours with the same arguments: PyTorch's TransformerEncoder takes a layer to copy."""
    name = {torch.nn.functional.relu: "relu", torch.nn.functional.gelu: "gelu"}[theirs.activation]
    return mytorch.nn.TransformerEncoderLayer(
        theirs.linear1.in_features, theirs.self_attn.num_heads, theirs.linear1.out_features,
        theirs.dropout.p, name, theirs.norm1.eps, theirs.self_attn.batch_first, theirs.norm_first,
        theirs.linear1.bias is not None, dtype=ours(theirs.linear1.weight.dtype),
    )


def is_random(module: torch.nn.Module, training: bool) -> bool:
    rates = [getattr(m, "p", 0) for m in module.modules() if "Dropout" in type(m).__name__]
    rates += [m.dropout for m in module.modules() if isinstance(getattr(m, "dropout", None), float)]
    return training and any(rate > 0 for rate in rates)


def check(entry, dtype: torch.dtype, training: bool, case) -> None:
    mine, theirs = both(entry, case.constructor_input)
    mine.train(training), theirs.train(training)
    assert repr(mine) == repr(theirs).replace("NonDynamicallyQuantizable", "")
    forward = case.forward_input
    if forward is None:
        return
    values = not is_random(theirs, training)
    parameters = (list(mine.parameters()), list(theirs.parameters()))

    def run(module, own):
        # the parameters come as arguments, so that their gradients are compared, too
        return lambda parameters, args, kwargs: module(*args, **kwargs)

    arguments = (([], forward.args, forward.kwargs), {})
    compare(run(mine, parameters[0]), run(theirs, parameters[1]), arguments, values, grad=True)
    if values:
        compare_parameters(mine, theirs, forward)
    for key, value in theirs.state_dict().items():  # running statistics
        same(mine.state_dict()[key], value, key)


def compare_parameters(mine, theirs, forward) -> None:
    """The gradients of the parameters, of one more call, for the sum of all its results."""
    results = []
    given = (forward.args, forward.kwargs)
    for module, (args, kwargs) in ((theirs, given), (mine, ours(given))):
        out = module(*args, **kwargs)
        out = [o for o in (out if isinstance(out, tuple) else (out,)) if o is not None]
        total = sum((o * o).sum() for o in out if not isinstance(o, tuple))
        if total.requires_grad:
            total.backward()
        results.append([p.grad for p in module.parameters()])
    names = [name for name, _ in theirs.named_parameters()]
    for name, want, got in zip(names, *results, strict=True):
        assert (got is None) == (want is None), f"{name}.grad is {got}, PyTorch has {want}"
        if want is not None:
            scale = max(float(np.abs(array(want)).max(initial=0)), 1)
            single = want.dtype == torch.float32
            same(
                got, want, f"{name}.grad", tolerance=(1e-4, 2e-5 * scale) if single else (1e-7, 1e-9 * scale)
            )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("entry", "dtype", "training"), list(cases()))
def test_modules(entry, dtype, training):
    failures, count = [], 0
    torch.manual_seed(0)
    samples = entry.module_inputs_func(
        entry, device="cpu", dtype=dtype, requires_grad=True, training=training
    )
    for i, case in enumerate(share(samples, int(dtype == torch.float64), 16)):
        if dtype == torch.float64:
            case.constructor_input.kwargs["dtype"] = dtype
        try:
            try:
                check(entry, dtype, training, case)
            except TypeError as error:
                if "dtype" not in str(error) or "dtype" not in case.constructor_input.kwargs:
                    raise
                case.constructor_input.kwargs.pop("dtype")  # a module without parameters
                check(entry, dtype, training, case)
        except Foreign:
            continue
        except Exception as error:
            text = " ".join(str(error).split())
            what = f"{case.desc} {case.constructor_input.args} {case.constructor_input.kwargs}"
            failures.append(f"- {i} {what[:150]}: {type(error).__name__}: {text[:400]}")
        count += 1
    assert count, "no sample could be used"
    assert not failures, f"{len(failures)} of {count} fail:\n" + "\n".join(failures[:6])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in LISTED if ENTRIES[n].module_error_inputs_func is not None])
def test_errors(name):
    """What PyTorch refuses is refused with the same class of error."""
    entry, failures = ENTRIES[name], []
    errors = entry.module_error_inputs_func(
        entry, device="cpu", dtype=torch.float32, requires_grad=False, training=True
    )
    for i, error in enumerate(errors):
        case = error.module_error_input
        try:
            args, kwargs = ours((case.constructor_input.args, case.constructor_input.kwargs))
            forward_args, forward_kwargs = (), {}
            if case.forward_input is not None:
                forward_args, forward_kwargs = ours((case.forward_input.args, case.forward_input.kwargs))
        except Foreign:
            continue
        in_constructor = error.error_on == ModuleErrorEnum.CONSTRUCTION_ERROR
        what = f"- {i} {case.constructor_input.args}: PyTorch raises {error.error_type.__name__}"
        module = None
        try:
            module = getattr(mytorch.nn, name)(*args, **kwargs)
            if not in_constructor:
                module(*forward_args, **forward_kwargs)
        except error.error_type as raised:
            assert in_constructor or module is not None, f"{what} in forward, here the constructor: {raised}"
        except Exception as other:
            failures.append(f"{what}, here {type(other).__name__}: {other}")
        else:
            failures.append(f"{what}, here nothing raises")
    assert not failures, "\n".join(failures)


def test_modules_that_the_database_lacks_have_cases_elsewhere():
    missing = {name for name in MODULES.split() if name not in ENTRIES}
    assert missing == {"Identity", "Flatten", "Unflatten", "Hardsigmoid", "TripletMarginLoss"}
    assert missing <= LAYERS.keys()
