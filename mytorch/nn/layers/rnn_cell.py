"""Recurrent layers, one step at a time: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import math

from ...core.tensor import Tensor
from ...ops import empty, zeros
from .. import init
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from ..parameter import Parameter
from .rnn import GATES, all_steps, input_gates


class RNNCellBase(Module):
    """What the cells share.

    Attributes:
        weight_ih: (gates × hidden_size, input_size).
        weight_hh: (gates × hidden_size, hidden_size).
        bias_ih, bias_hh: (gates × hidden_size,), or None. All begin uniformly on ± 1 / sqrt(hidden_size).
    """

    mode: str

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size

        def parameter(*shape: int) -> Parameter:
            return Parameter(empty(shape, device=device, dtype=dtype))

        self.weight_ih, self.weight_hh = parameter(rows, input_size), parameter(rows, hidden_size)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, parameter(rows) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        text += "" if self.bias is True else f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text + ("" if nonlinearity == "tanh" else f", nonlinearity={nonlinearity}")

    def _step(self, input: Tensor, states: list[Tensor] | None, count: int = 1) -> list[Tensor]:
        """Returns the `count` next states."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        for i, s in enumerate(states or ()):
            if s.ndim not in (1, 2):
                which = "hidden" if count == 1 else f"hx[{i}]"
                raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {s.ndim}D instead")
        batched = input.ndim == 2
        x = input if batched else input.unsqueeze(0)
        if states is None:
            shape = (x.shape[0], self.hidden_size)
            states = [zeros(shape, dtype=x.dtype, device=x.device) for _ in range(count)]
        elif not batched:
            states = [s.unsqueeze(0) for s in states]
        self._check(x, states)
        gates = input_gates(self.mode, x, self.weight_ih, self.bias_ih, self.bias_hh)
        _, *states = all_steps(self.mode, gates, states, self.weight_hh, self.bias_hh, None, (x.shape[0],))
        return states if batched else [s.squeeze(0) for s in states]

    def _check(self, x: Tensor, states: list[Tensor]) -> None:
        if x.shape[1] != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {x.shape[1]} expected {self.input_size}"
            )
        for i, s in enumerate(states):
            if s.ndim != 2 or s.shape[0] != x.shape[0]:
                raise RuntimeError(
                    f"Input batch size {x.shape[0]} doesn't match hidden{i} of shape {tuple(s.shape)}"
                )
            if s.shape[1] != self.hidden_size:
                raise RuntimeError(
                    f"hidden{i} has inconsistent hidden_size: got {s.shape[1]}, expected {self.hidden_size}"
                )


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu; see `RNN`.

    Args:
        input: (batch, input_size), or (input_size,).
        hx: (batch, hidden_size), or (hidden_size,); default zeros.

    >>> nn.RNNCell(2, 4)(mytorch.ones(3, 2)).shape
    Size([3, 4])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    @property
    def mode(self) -> str:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return f"RNN_{self.nonlinearity.upper()}"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, None if hx is None else [hx])[0]


class LSTMCell(RNNCellBase):
    """One step of an `LSTM`: from (h, c) to the next (h, c).

    Args:
        input: (batch, input_size), or (input_size,).
        hx: h and c, each (batch, hidden_size), or (hidden_size,); default zeros.

    >>> h, c = nn.LSTMCell(2, 4)(mytorch.ones(3, 2))
    >>> h.shape, c.shape
    (Size([3, 4]), Size([3, 4]))
    """

    mode = "LSTM"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(input_size, hidden_size, bias, GATES["LSTM"], device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return tuple(self._step(input, None if hx is None else list(hx), 2))


class GRUCell(RNNCellBase):
    """One step of a `GRU`.

    Args:
        input: (batch, input_size), or (input_size,).
        hx: (batch, hidden_size), or (hidden_size,); default zeros.

    >>> nn.GRUCell(2, 4)(mytorch.ones(3, 2)).shape
    Size([3, 4])
    """

    mode = "GRU"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(input_size, hidden_size, bias, GATES["GRU"], device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, None if hx is None else [hx])[0]
