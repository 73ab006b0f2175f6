"""One call in both, compared: values, dtypes, shapes, first and second gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

import mytorch

from .translate import DTYPES, array, ours

TOLERANCE = {"float16": (4e-3, 1e-3), "float32": (2e-5, 1e-5), "float64": (1e-7, 1e-7)}  # (rtol, atol)
OF_DOUBLE = {"float16": 1e-2, "float32": 1e-4}  # of the largest value: see `compare_with_double`
SECOND = (1e-5, 1e-6)  # for gradients of gradients, which lose digits twice, in float64


def leaves(x: Any) -> Iterator[Any]:
    """What is in nested tuples, lists and dicts, in order."""
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (tuple, list)):
        for v in x:
            yield from leaves(v)
    else:
        yield x


def same(got: Any, want: Any, what: str, values: bool = True, tolerance: tuple | None = None) -> None:
    """Assert that `got` is as PyTorch's `want`; without `values`, in kind, dtype and shape only."""
    if not isinstance(want, torch.Tensor):
        want = DTYPES.get(want, want) if isinstance(want, torch.dtype) else want
        assert got == want, f"{what}: {got!r}, PyTorch has {want!r}"
        return
    assert isinstance(got, (mytorch.Tensor, mytorch.Array)), f"{what} is a {type(got).__name__}, no tensor"
    shape = tuple(got.shape)
    assert shape == tuple(want.shape), f"{what} has shape {shape}, PyTorch {tuple(want.shape)}"
    assert got.dtype == DTYPES[want.dtype], f"{what} has dtype {got.dtype}, PyTorch {want.dtype}"
    if values:
        rtol, atol = tolerance or TOLERANCE.get(str(got.dtype), (0, 0))
        np.testing.assert_allclose(
            array(got).astype(np.float64), array(want).astype(np.float64), rtol, atol, err_msg=what
        )


def compare(
    call: Callable, their_call: Callable, arguments: tuple, values: bool = True, grad: bool = False,
    second: bool = False,
) -> None:
    """Assert that `call(*args, **kwargs)` gives what PyTorch's does, for `arguments` = (args, kwargs).

    Args:
        values: False for random results: dtypes and shapes only.
        grad: compare the gradients with respect to all tensors that require one.
        second: compare the gradients of those gradients, too.
    """
    mine, theirs = ours(arguments), arguments
    inputs = [(m, t) for m, t in zip(leaves(mine), leaves(theirs), strict=True) if _wants_grad(t)]
    want = list(leaves(their_call(*theirs[0], **theirs[1])))
    got = list(leaves(call(*mine[0], **mine[1])))
    assert len(got) == len(want), f"{len(got)} results, PyTorch gives {len(want)}"
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        same(g, w, f"result {i}" if len(want) > 1 else "the result", values)
    if grad and inputs:
        for g, w in zip(got, want, strict=True):
            if isinstance(w, torch.Tensor):
                assert g.requires_grad == w.requires_grad, f"requires_grad is {g.requires_grad}"
        _gradients(got, want, inputs, values, second)


def compare_with_double(
    call: Callable, their_call: Callable, arguments: tuple, values: bool = True, grad: bool = False
) -> None:
    """As `compare`, but the values are those of PyTorch in float64: for functions where PyTorch itself has
    rounding errors beyond its dtype, because it adds in float16 or sums numbers of 10000."""
    compare(call, their_call, arguments, False, grad)
    if not values:
        return
    mine, theirs = ours(arguments), _doubled(arguments, {})
    inputs = [(m, t) for m, t in zip(leaves(mine), leaves(theirs), strict=True) if _wants_grad(t)]
    got, want = list(leaves(call(*mine[0], **mine[1]))), list(leaves(their_call(*theirs[0], **theirs[1])))
    pairs = [(g, w) for g, w in zip(got, want, strict=True) if _wants_grad(w)]
    if grad and pairs and inputs:
        for gradients, more in zip((got, want), _pull(pairs, inputs, 3, False), strict=True):
            gradients += more
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if isinstance(w, torch.Tensor) and w.numel() and g is not None:
            most = array(w)[np.isfinite(array(w))]
            room = OF_DOUBLE[str(g.dtype)] * max(np.abs(most).max(initial=0), 0.1)
            np.testing.assert_allclose(array(g).astype(np.float64), array(w), 0, room, err_msg=f"number {i}")


def compare_as_good(
    call: Callable, their_call: Callable, arguments: tuple, values: bool = True, grad: bool = False
) -> None:
    """As `compare`, but what is compared are the errors against PyTorch in float64: ours is at most twice
    PyTorch's own, plus what rounding the result to bfloat16 costs."""
    compare(call, their_call, arguments, False, grad)
    if not values:
        return
    mine, double = ours(arguments), _doubled(arguments, {})
    everything = [
        _with_gradients(list(leaves(function(*args, **kwargs))), list(leaves((args, kwargs))), grad)
        for function, (args, kwargs) in ((call, mine), (their_call, arguments), (their_call, double))
    ]
    for i, (got, theirs, want) in enumerate(zip(*everything, strict=True)):
        if isinstance(theirs, torch.Tensor) and theirs.numel() and got is not None:
            _as_good(array(got), array(theirs), array(want), f"number {i}")


def _with_gradients(results: list, inputs: list, grad: bool) -> list:
    """The results, and their gradients with respect to those of the inputs that want one."""
    outs, inputs = ([x for x in xs if getattr(x, "requires_grad", False)] for xs in (results, inputs))
    inputs = list({id(x): x for x in inputs}.values())
    if not (grad and outs and inputs):
        return results
    library = torch if isinstance(outs[0], torch.Tensor) else mytorch
    exact = [np.round(v * 64) / 64 for v in _weights(outs, 3)]  # which every dtype can hold
    weights = [library.tensor(v).to(x.dtype) for v, x in zip(exact, outs, strict=True)]
    return [*results, *library.autograd.grad(outs, inputs, weights, allow_unused=True)]


def _as_good(got: np.ndarray, theirs: np.ndarray, want: np.ndarray, what: str) -> None:
    got, theirs, want = (a.astype(np.float64) for a in (got, theirs, want))
    known = np.isfinite(theirs) & np.isfinite(want)
    np.testing.assert_array_equal(np.where(known, 0, got), np.where(known, 0, theirs), err_msg=what)
    got, theirs, want = (np.where(known, a, 0) for a in (got, theirs, want))
    room = 2 * np.abs(theirs - want).max() + 2.0**-8 * np.abs(want) + 1e-9
    worst = np.argmax(np.abs(got - want) - room)
    g, t, w = (a.reshape(-1)[worst] for a in (got, theirs, want))
    assert np.all(np.abs(got - want) <= room), f"{what} is {g}, PyTorch has {t}, in float64 {w}"


def _doubled(x: Any, memo: dict) -> Any:
    if isinstance(x, torch.Tensor):
        if id(x) not in memo and x.is_floating_point():
            memo[id(x)] = x.detach().double().requires_grad_(x.requires_grad)
        return memo.get(id(x), x)
    if isinstance(x, (tuple, list)):
        return type(x)(_doubled(v, memo) for v in x)
    if x is torch.bfloat16:
        return torch.float64
    return {k: _doubled(v, memo) for k, v in x.items()} if isinstance(x, dict) else x


def _wants_grad(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad


def _gradients(got: list, want: list, inputs: list, values: bool, second: bool) -> None:
    pairs = [(g, w) for g, w in zip(got, want, strict=True) if _wants_grad(w)]
    if not pairs:
        return
    inputs = list({id(t): (m, t) for m, t in inputs}.values())
    mine, theirs = _pull(pairs, inputs, 3, second)
    for i, (g, w) in enumerate(zip(mine, theirs, strict=True)):
        _same_gradient(g, w, f"gradient {i}", values)
    if second:
        pairs = [(g, w) for g, w in zip(mine, theirs, strict=True) if w is not None and w.requires_grad]
        if pairs:
            for i, (g, w) in enumerate(zip(*_pull(pairs, inputs, 4, False), strict=True)):
                _same_gradient(g, w, f"second gradient {i}", values, SECOND)


def _weights(outputs: list, seed: int) -> list:
    """Random gradients of the outputs."""
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.uniform(0.2, 1, tuple(x.shape))) for x in outputs]


def _pull(pairs: list, inputs: list, seed: int, create_graph: bool) -> tuple[Iterable, Iterable]:
    """Gradients of both with respect to the inputs, for the same random gradients of the outputs."""
    outputs = [w for _, w in pairs]
    weights = _weights(outputs, seed)
    cotangents = [torch.tensor(v).to(w.dtype) for v, w in zip(weights, outputs, strict=True)]
    theirs = torch.autograd.grad(
        outputs, [t for _, t in inputs], cotangents, create_graph=create_graph, allow_unused=True
    )
    more = {"create_graph": True} if create_graph else {}
    # PyTorch may give a graph to a gradient that depends on nothing, as that of a convolution's bias.
    recorded = [
        (g, mytorch.tensor(v).to(DTYPES[w.dtype]))
        for (g, w), v in zip(pairs, weights, strict=True)
        if g.requires_grad
    ]
    if not recorded:
        return [None] * len(inputs), theirs
    mine = mytorch.autograd.grad(
        [g for g, _ in recorded], [m for m, _ in inputs], [v for _, v in recorded], allow_unused=True, **more
    )
    return mine, theirs


def _same_gradient(g: Any, w: Any, what: str, values: bool, tolerance: tuple | None = None) -> None:
    if w is None or g is None:  # nothing and zeros are the same
        rest = w if g is None else g
        assert rest is None or not array(rest).any(), f"{what} is {g}, PyTorch has {w}"
    else:
        same(g, w, what, values, tolerance)
