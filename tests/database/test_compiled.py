"""PyTorch's operator database: each operator compiled beside itself, with its gradients."""

from itertools import islice

import numpy as np
import pytest
import torch

import mytorch
from mytorch.nn import functional as F
from mytorch.stream.programs.nested import leaves

from .test_operators import ENTRIES, NAMES, label_of, samples
from .translate import Foreign, counterpart, ours

UNINITIALIZED = {"empty", "new_empty", "empty_like", "empty_strided"}
# What runs eagerly, by the reason.
EAGER = {
    "depends on the data": "argwhere histogram index_put masked_select nonzero unique unique_consecutive",
    "element": "histogram item linspace nn.functional.ctc_loss tensor_split",
    "view of what it got": "T __getitem__ broadcast_tensors broadcast_to chunk diagonal dsplit expand "
    "expand_as flatten hsplit mT meshgrid movedim narrow nn.functional.pixel_shuffle "
    "nn.functional.pixel_unshuffle permute ravel reshape reshape_as select split split_with_sizes squeeze t "
    "tensor_split transpose unbind unflatten unfold unsqueeze view view_as vsplit",
}  # fmt: skip
CASES = [
    pytest.param(entry, id=label_of(entry))
    for name in NAMES if name not in UNINITIALIZED
    for entry in ENTRIES[name] if torch.float32 in entry.dtypes
]  # fmt: skip


def arguments_of(sample):
    mine = ours(sample)
    return mine if len(mine) == 2 and isinstance(mine[1], dict) else (mine, {})


def tensors(x):
    return [y for y in leaves(tuple(x)) if isinstance(y, mytorch.Tensor)]


def outcome(call, sample, differentiable):
    """Results, gradients, what needs a gradient, and what is no tensor."""
    mytorch.manual_seed(3)
    args, kwargs = arguments_of(sample)
    out = call(*args, **kwargs)
    outs = tensors((out,))
    roots = [y for y in outs if y.requires_grad]
    if differentiable and roots:
        sum(y.abs().sum() if y.dtype.kind == "c" else y.sum() for y in roots).backward()
    arrays = [y.detach().numpy() for y in outs]
    arrays += [x.grad.numpy() for x in tensors((args, kwargs)) if x.grad is not None]
    others = [x for x in leaves((out,)) if not isinstance(x, mytorch.Tensor)]
    return arrays, [y.requires_grad for y in outs], others


@pytest.mark.parametrize("entry", CASES)
def test_a_compiled_operator(entry):
    call = counterpart(entry.op)
    for _, sample in islice(samples(entry, torch.float32), 1, 2):
        try:
            arguments_of(sample)
        except Foreign:
            continue
        with F.use_fused(False):
            want = outcome(call, sample, entry.supports_autograd)
            compiled = mytorch.compile(lambda *args, **kwargs: call(*args, **kwargs), fullgraph=True)
            try:
                ours = outcome(compiled, sample, entry.supports_autograd)
            except RuntimeError as error:
                reasons = [reason for reason, names in EAGER.items() if entry.name in names.split()]
                if not any([reason in str(error) for reason in reasons]):
                    raise
                continue
        assert ours[1:] == want[1:] and len(ours[0]) == len(want[0])
        for a, b in zip(ours[0], want[0], strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, 1e-3, 1e-4)
