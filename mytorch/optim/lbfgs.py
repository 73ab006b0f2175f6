from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backends.device import in_kind_of
from ..core.grad_mode import enable_grad, no_grad
from ..core.tensor import Tensor, from_raw, raw_of
from ..ops import cat, view_as_complex, view_as_real, zeros_like
from ..ops.inplace import write
from .line_search import Point, strong_wolfe
from .optimizer import Optimizer
from .param_groups import ParamGroup, Params


class LBFGS(Optimizer):
    """L-BFGS: steps along -H g, where H approximates the inverse of the Hessian by the last changes of g.

        s = p_k - p_(k-1),  y = g_k - g_(k-1)       the last history_size pairs with s y > 1e-10
        p <- p - t H g                              t = lr, or by a line search

    `step` needs a closure, which computes the loss and its gradients, and calls it several times. There is
    one group of parameters only.

    Args:
        params: see `Optimizer`.
        lr: the step, in the first iteration divided by the sum of |g| if that is above 1.
        max_iter: iterations in one call of `step`.
        max_eval: calls of the closure in it; by default 1.25 max_iter.
        tolerance_grad: `step` ends when no |g| is larger.
        tolerance_change: it ends when the loss or all parameters change less.
        history_size: the number of pairs.
        line_search_fn: "strong_wolfe" or None.

    State, of the first parameter: `n_iter`, `func_evals`, `d` (the direction), `t`, `old_dirs` (y),
    `old_stps` (s), `ro` (1 / s y), `H_diag`, `prev_flat_grad`, `prev_loss`.

    Raises:
        ValueError: a negative lr, or several groups.
        RuntimeError: another line search; when `step` is called.

    Source: Nocedal & Wright, "Numerical Optimization", 2006, algorithm 7.4, equation 7.20.
    https://doi.org/10.1007/978-0-387-40065-5

    >>> w = mytorch.ones(2, requires_grad=True)
    >>> optimizer = optim.LBFGS([w])
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (w**2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure)
    tensor(2.00000, grad_fn=<sum>)
    """

    def __init__(
        self, params: Params, lr: float = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ):
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, got shape {list(lr.shape)}")
        if not lr >= 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        })
        if len(self.param_groups) != 1:
            raise ValueError(
                "LBFGS doesn't support per-parameter options (parameter groups), "
                f"got {len(self.param_groups)}"
            )

    @no_grad()
    def step(self, closure: Callable[[], object]) -> Any:
        """Runs up to `max_iter` iterations, and returns the closure's first result.

        Args:
            closure: computes the loss and its gradients; called at least once.
        """
        group, params = self.param_groups[0], self.param_groups[0]["params"]
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError(f"only 'strong_wolfe' is supported, got line_search_fn={search!r}")
        state = self.state[params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        result, loss, grad = _evaluated(closure, params)
        if state["n_iter"]:
            _lay_beside(state, grad)
        evals = 1
        state["func_evals"] += 1
        if _largest(grad) <= group["tolerance_grad"]:
            return result
        for iteration in range(1, group["max_iter"] + 1):
            t, slope = _next_direction(state, group, grad, loss)
            if slope > -group["tolerance_change"]:
                break
            is_last, start = iteration == group["max_iter"], Point(0.0, loss, grad, slope)
            point, used = _advance(closure, params, group, state["d"], start, t, evals, is_last)
            state["t"], loss, grad = point.t, point.loss, point.grad
            evals += used
            state["func_evals"] += used
            if is_last or evals >= group["max_eval"] or _has_converged(state, group, point):
                break
        return result


def _lay_beside(state: dict, grad: Tensor) -> None:
    """Makes the vectors of the state arrays of the gradient's kind: a step within a block leaves others."""
    if state["prev_flat_grad"].device is grad.device:
        return

    def laid(x: Tensor) -> Tensor:
        return from_raw(in_kind_of(raw_of(x), grad.device))

    for name in ("d", "prev_flat_grad"):
        state[name] = laid(state[name])
    for name in ("old_dirs", "old_stps"):
        state[name][:] = map(laid, state[name])


def _advance(closure, params, group, direction, start, t, evals, is_last):
    """Moves the parameters by one step; returns the point that was reached, and its evaluations."""
    if group["line_search_fn"] is not None:
        most = group["max_eval"] - evals
        point, used = _search(closure, params, direction, start, t, group["tolerance_change"], most)
        _move(params, point.t, direction)
        return point, used
    _move(params, t, direction)
    if is_last:  # no iteration would use the loss
        return start._replace(t=t), 0
    _, loss, grad = _evaluated(closure, params)
    return Point(t, loss, grad, 0.0), 1


def _has_converged(state: dict, group: ParamGroup, point: Point) -> bool:
    tolerance = group["tolerance_change"]
    return (
        _largest(point.grad) <= group["tolerance_grad"]
        or abs(point.t) * _largest(state["d"]) <= tolerance
        or abs(point.loss - state["prev_loss"]) < tolerance
    )


def _next_direction(state: dict, group: ParamGroup, grad: Tensor, loss: float) -> tuple[float, float]:
    """Sets the direction and the rest of the state; returns the first step and the slope."""
    state["n_iter"] += 1
    if state["n_iter"] == 1:
        state.update(d=-grad, old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
    else:
        _remember(state, grad - state["prev_flat_grad"], state["d"] * state["t"], group["history_size"])
        state["d"] = _times_inverse(state, -grad)
    lr = float(group["lr"])
    t = min(1.0, 1.0 / float(grad.abs().sum())) * lr if state["n_iter"] == 1 else lr
    state.update(prev_flat_grad=grad, prev_loss=loss, t=t)
    return t, float(grad.dot(state["d"]))


def _remember(state: dict, y: Tensor, s: Tensor, size: int) -> None:
    """Adds the changes of gradient and parameters to the history, unless the curvature is too small."""
    ys = float(y.dot(s))
    if ys > 1e-10:
        for name, value in (("old_dirs", y), ("old_stps", s), ("ro", 1.0 / ys)):
            state[name].append(value)
            del state[name][:-size]
        state["H_diag"] = ys / float(y.dot(y))


def _times_inverse(state: dict, q: Tensor) -> Tensor:
    """Returns H q, by the recursion over the history and back."""
    pairs = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
    factors = []
    for y, s, rho in reversed(pairs):
        factors.append(rho * float(s.dot(q)))
        q = q - factors[-1] * y
    q = q * state["H_diag"]
    for y, s, rho in pairs:
        q = q + (factors.pop() - rho * float(y.dot(q))) * s
    return q


def _search(closure, params, direction, start, t, tolerance, most):
    """Returns the point of a line search, with the parameters as they were before it, and its evaluations."""
    before = [p.clone() for p in params]

    def evaluate(t: float) -> Point:
        _move(params, t, direction)
        _, loss, grad = _evaluated(closure, params)
        for p, value in zip(params, before, strict=True):
            write(p, value.data)
        return Point(t, loss, grad, float(grad.dot(direction)))

    return strong_wolfe(evaluate, start, t, tolerance / max(_largest(direction), 1e-300), most)


def _evaluated(closure: Callable[[], object], params: list[Tensor]) -> tuple[Any, float, Tensor]:
    """Returns the closure's result, the loss as a number, and the gradient as one vector."""
    with enable_grad():
        result = closure()
    grads = [_as_real(zeros_like(p) if p.grad is None else Tensor(p.grad)).reshape(-1) for p in params]
    return result, float(result), cat(grads).clone()


def _move(params: list[Tensor], t: float, direction: Tensor) -> None:
    start = 0
    for p in params:
        before = _as_real(p.detach())
        moved = before + t * direction[start : start + before.numel()].reshape(before.shape)
        write(p, (view_as_complex(moved) if p.is_complex() else moved).data)
        start += before.numel()


def _as_real(x: Tensor) -> Tensor:
    return view_as_real(x) if x.is_complex() else x


def _largest(x: Tensor) -> float:
    return float(x.abs().max())
