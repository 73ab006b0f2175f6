"""Is a gradient right? Compare it with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..core.grad_mode import enable_grad, no_grad
from ..core.tensor import Tensor, from_raw
from .gradients import grad


def gradcheck(
    function: Callable[..., object], inputs: Tensor | Sequence[object], *, eps: float = 1e-6,
    atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
) -> bool:
    """Check the gradients of `function` at `inputs` against central differences,

        d f / d x_i  ≈  (f(x + eps e_i) - f(x - eps e_i)) / (2 eps).

    Args:
        function: takes the inputs, returns a Tensor or several; random in nothing.
        inputs: the arguments; those that are float64 tensors requiring grad are checked.
        eps: half the distance of the two points.
        atol, rtol: allowed difference of the two Jacobians.
        raise_exception: raise on a difference, else return False.

    Returns:
        True if all agree.

    Raises:
        RuntimeError: they differ (the message has both numbers), or an output depends on no input.
        ValueError: no input requires grad, or one that does is not float64.

    >>> x = mytorch.ones(2, dtype=mytorch.float64, requires_grad=True)
    >>> mytorch.autograd.gradcheck(mytorch.exp, [x])
    True
    """
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("gradcheck expects at least one input tensor that requires grad")
    for i in checked:
        if inputs[i].dtype != np.float64:
            raise ValueError(f"gradcheck needs float64 for its differences; input {i} is {inputs[i].dtype}")
    for i in checked:
        numeric = _numeric(function, inputs, i, eps)
        for o, (n, a) in enumerate(zip(numeric, _analytic(function, inputs, i), strict=True)):
            wrong = ~np.isclose(a, n, rtol=rtol, atol=atol, equal_nan=True)
            if wrong.any():
                if not raise_exception:
                    return False
                row, column = np.argwhere(wrong)[0]
                raise RuntimeError(
                    f"Jacobian mismatch for output {o} with respect to input {i}: element {column} of the "
                    f"output by element {row} of the input is {n[row, column]:.8g} by differences, "
                    f"{a[row, column]:.8g} by backward ({wrong.sum()} of {wrong.size} entries differ)"
                )
    return True


def gradgradcheck(
    function: Callable[..., object], inputs: Tensor | Sequence[object],
    grad_outputs: Tensor | Sequence[Tensor] | None = None, *, eps: float = 1e-6, atol: float = 1e-5,
    rtol: float = 1e-3, raise_exception: bool = True,
) -> bool:
    """Check the gradients of the gradients of `function`, as `gradcheck` checks the gradients.

    Args:
        grad_outputs: the gradients of the outputs to begin with; random ones by default.
    """
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        shapes = [out.shape for out in _outputs(function, inputs) if out.requires_grad]
        grad_outputs = [Tensor(rng.standard_normal(shape), requires_grad=True) for shape in shapes]
    grad_outputs = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)

    def gradients(*arguments: object) -> tuple[Tensor, ...]:
        with enable_grad():
            xs = list(arguments[: len(inputs)])
            for i in checked:
                xs[i] = xs[i] if xs[i].requires_grad else xs[i].detach().requires_grad_()
            outs = [out for out in _outputs(function, tuple(xs)) if out.requires_grad]
            wanted, given = [xs[i] for i in checked], arguments[len(inputs) :]
            return grad(outs, wanted, given, create_graph=True, allow_unused=True, materialize_grads=True)

    how = {"eps": eps, "atol": atol, "rtol": rtol, "raise_exception": raise_exception}
    return gradcheck(gradients, (*inputs, *grad_outputs), **how)


def _outputs(function: Callable, inputs: tuple) -> list[Tensor]:
    result = function(*inputs)
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [r for r in results if isinstance(r, Tensor) and r.is_floating_point()]


def _numeric(function: Callable, inputs: tuple, i: int, eps: float) -> list[np.ndarray]:
    """One (input size, output size) Jacobian for each output, by differences."""
    base = inputs[i].detach().cpu().numpy()
    rows = []
    for index in np.ndindex(base.shape):
        sides = []
        for step in (eps, -eps):
            moved = base.copy()
            moved[index] += step
            x = from_raw(moved).to(inputs[i].device)
            with no_grad():
                outs = _outputs(function, (*inputs[:i], x, *inputs[i + 1 :]))
            sides.append([o.detach().cpu().numpy().ravel().copy() for o in outs])
        rows.append([(up - down) / (2 * eps) for up, down in zip(*sides, strict=True)])
    return [np.stack(columns) for columns in zip(*rows, strict=True)]


def _analytic(function: Callable, inputs: tuple, i: int) -> list[np.ndarray]:
    """The same Jacobians, a column for each backward."""
    results = []
    for out in _outputs(function, inputs):
        if not out.requires_grad:
            if getattr(function, "__name__", "") == "gradients":
                results.append(np.zeros((inputs[i].numel(), out.numel())))  # a gradient that is constant
                continue
            raise RuntimeError(
                "gradcheck: an output does not depend on the inputs by anything differentiable"
            )
        columns = []
        for index in np.ndindex(out.shape):
            one = np.zeros(out.shape)
            one[index] = 1
            (g,) = grad(
                out, inputs[i], from_raw(one).to(out.device),
                retain_graph=True, allow_unused=True, materialize_grads=True,
            )
            columns.append(g.cpu().numpy().ravel())
        results.append(np.stack(columns, axis=1))
    return results
