"""PyTorch's operator database: each operator compiled beside itself, with its gradients.

Inputs are of each dtype that the operator has, and lie in memory as they come, transposed, with gaps,
reversed or expanded. In an ordinary run an operator takes float32 as it comes, and the next of all pairs of a
dtype and a layout; with MYTORCH_TEST_ALL=1 it takes all of them.
"""

from itertools import islice, product

import numpy as np
import pytest
import torch

import mytorch
from mytorch.nn import functional as F
from mytorch.utils.nested import leaves, mapped

from .share import ALL
from .test_operators import ENTRIES, NAMES, label_of, samples
from .translate import DTYPES, Foreign, counterpart, ours

UNINITIALIZED = {"empty", "new_empty", "empty_like", "empty_strided"}
# What runs eagerly, by the reason.
EAGER = {
    "depends on the data": "argwhere histogram index_put masked_select nonzero unique unique_consecutive "
    "__getitem__",
    "largest value": "bincount",
    "element": "histogram item linspace nn.functional.ctc_loss tensor_split",
    "view of what it got": "T __getitem__ broadcast_tensors broadcast_to chunk diagonal dsplit expand "
    "expand_as flatten hsplit mT meshgrid movedim narrow nn.functional.pixel_shuffle "
    "nn.functional.pixel_unshuffle permute ravel reshape reshape_as select split split_with_sizes squeeze t "
    "tensor_split transpose unbind unflatten unfold unsqueeze view view_as vsplit",
}
LAYOUTS = {
    "as it comes": lambda a: a.copy(),
    "transposed": lambda a: np.array(a, order="F"),
    "with gaps": lambda a: np.repeat(a, 2, -1)[..., ::2] if a.ndim else a.copy(),
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a.copy(),
    "expanded": lambda a: np.array(a[:1]).repeat(1, 0) if a.ndim and len(a) else a.copy(),
}
KNOWN = [entry for name in NAMES if name not in UNINITIALIZED for entry in ENTRIES[name]]
CASES = [pytest.param(i, entry, id=label_of(entry)) for i, entry in enumerate(KNOWN)]


def pairs_of(entry, i):
    """The dtypes and layouts of this run."""
    dtypes = [dtype for dtype in DTYPES if dtype in entry.dtypes]
    pairs = [*product(dtypes, LAYOUTS)]
    first = (torch.float32, "as it comes")
    if ALL:
        return pairs
    rest = [pair for pair in pairs if pair != first]
    return [first] * (first in pairs) + ([rest[7 * i % len(rest)]] if rest else [])


def arguments_of(sample, layout):
    mine = ours(sample)
    mine = mine if len(mine) == 2 and isinstance(mine[1], dict) else (mine, {})
    memo = {}

    def laid_out(x):
        if not isinstance(x, mytorch.Tensor) or x.dtype.kind == "c":
            return x
        if id(x) not in memo:
            raw = x.detach().numpy()
            y = mytorch.Tensor(LAYOUTS[layout](raw))
            y = y.expand(raw.shape) if layout == "expanded" else y
            memo[id(x)] = x, y.requires_grad_(x.requires_grad)
        return memo[id(x)][1]

    return mapped(laid_out, mine)


def tensors(x):
    return [y for y in leaves(tuple(x)) if isinstance(y, mytorch.Tensor)]


def outcome(call, arguments, differentiable):
    """Results, gradients, what needs a gradient, and what is no tensor; or the class of the error."""
    mytorch.manual_seed(3)
    args, kwargs = arguments
    out = call(*args, **kwargs)
    outs = tensors((out,))
    roots = [y for y in outs if y.requires_grad]
    if differentiable and roots:
        sum(y.abs().sum() if y.dtype.kind == "c" else y.sum() for y in roots).backward()
    arrays = [y.detach().numpy() for y in outs]
    arrays += [x.grad.numpy() for x in tensors((args, kwargs)) if x.grad is not None]
    others = [x for x in leaves((out,)) if not isinstance(x, mytorch.Tensor)]
    return arrays, [y.requires_grad for y in outs], [*map(steps, outs)], others


def steps(y):
    """Its strides, of the dims that have more than one element: any views, and refusals to view, follow."""
    return [step for n, step in zip(y.shape, y.stride(), strict=True) if n > 1] if y.numel() else []


def compare(entry, sample, layout):
    """Asserts that an operator gives the same, with the same strides, or the same error, compiled and not."""
    call = counterpart(entry.op)
    try:
        want = outcome(call, arguments_of(sample, layout), entry.supports_autograd)
    except Foreign:
        return
    except Exception as error:
        want = error
    compiled = mytorch.compile(lambda *args, **kwargs: call(*args, **kwargs), fullgraph=True)
    try:
        ours = outcome(compiled, arguments_of(sample, layout), entry.supports_autograd)
    except Exception as error:
        reasons = [reason for reason, names in EAGER.items() if entry.name in names.split()]
        if any([reason in str(error) for reason in reasons]):
            return
        cause = error.__cause__ if str(error).startswith("compile(fullgraph=True)") else error
        if not isinstance(want, Exception) or type(cause) is not type(want):
            raise
        return
    assert not isinstance(want, Exception), f"eager raises {want!r}"
    assert ours[1:] == want[1:] and len(ours[0]) == len(want[0])
    for a, b in zip(ours[0], want[0], strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        tolerance = {"float16": (1e-2, 1e-2), "bfloat16": (5e-2, 5e-2)}.get(str(a.dtype), (1e-3, 1e-4))
        if a.dtype.kind in "fVc":
            a, b = (x if x.dtype.kind == "c" else x.astype(np.float64) for x in (a, b))
            np.testing.assert_allclose(a, b, *tolerance)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("i", "entry"), CASES)
def test_a_compiled_operator(i, entry):
    failures = []
    for dtype, layout in pairs_of(entry, i):
        for _, sample in islice(samples(entry, dtype), 1, 2):
            try:
                with F.use_fused(False):
                    compare(entry, sample, layout)
            except Exception as error:
                text = " ".join(str(error).split())
                failures.append(f"- {dtype}, {layout}: {type(error).__name__}: {text[:400]}")
    assert not failures, "\n".join(failures[:6])
