"""Compiled functions and the modes of a thread: what a function leaves, it leaves at every call."""

import pytest

import mytorch
from mytorch.core.grad_mode import _state
from mytorch.nn.functional import variant


def without_grad(x):
    y = x * 2
    mytorch.set_grad_enabled(False)
    return y, y * 2


def without_kernels(x):
    mytorch.use_fused(False)
    return (x * 2,)


def by_references(x):
    mytorch.use_fused(auto=True)
    return (x * 2,)


def in_a_block(x):
    mytorch.autocast("cpu", dtype=mytorch.bfloat16).__enter__()
    return (x @ x,)


def described(function, requires_grad):
    """What it returns of a matrix, and the modes that it leaves, which are then those of before."""
    kept = _state.recording, _state.autocast, mytorch.use_fused.default, variant.thread.variant
    try:
        x = mytorch.ones(2, 2, requires_grad=requires_grad)
        results = [(y.requires_grad, y.dtype, y.tolist()) for y in function(x)]
        left = _state.recording, str(_state.autocast), mytorch.use_fused.default, variant.variant()
        return results, left
    finally:
        _state.recording, _state.autocast, mytorch.use_fused.default, variant.thread.variant = kept


@pytest.mark.filterwarnings("ignore:mytorch.compile")
@pytest.mark.parametrize("function", [without_grad, without_kernels, by_references, in_a_block])
def test_a_compiled_function_leaves_what_it_leaves_eagerly(function):
    for requires_grad in (False, True):
        wanted, compiled = described(function, requires_grad), mytorch.compile(function)
        assert [described(compiled, requires_grad) for _ in range(4)] == [wanted] * 4


def test_which_line_leaves_another_mode_is_said():
    with pytest.raises(RuntimeError, match=r"test_modes.py:\d+: .* that grad mode is another"):
        mytorch.compile(without_grad, fullgraph=True)(mytorch.ones(2))
    assert mytorch.is_grad_enabled()
