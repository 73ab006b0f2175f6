"""Recurrent layers over whole sequences: RNN, LSTM, GRU."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Sequence

from ...core.tensor import Tensor
from ...ops import cat, empty, stack, zeros
from .. import functional as F
from .. import init
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from ..parameter import Parameter
from ..utils.rnn import PackedSequence

Input = Tensor | PackedSequence
GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


class RNNBase(Module):
    """Base of RNN, LSTM and GRU: stacked layers, one or two directions, packed sequences.

    The arguments are described in `LSTM`.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".

    Raises:
        ValueError, TypeError: an invalid argument.
    """

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        _check_options(mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        self.mode, self.input_size, self.hidden_size, self.num_layers = (
            mode,
            input_size,
            hidden_size,
            num_layers,
        )
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        directions, size = 2 if bidirectional else 1, proj_size or hidden_size
        gates = GATES[mode] * hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else size * directions
            shapes = {"weight_ih": (gates, inputs), "weight_hh": (gates, size)}
            if bias:
                shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
            if proj_size:
                shapes["weight_hr"] = (proj_size, hidden_size)
            for direction in range(directions):
                end = f"_l{layer}{'_reverse' if direction else ''}"
                for name, shape in shapes.items():
                    setattr(self, name + end, Parameter(empty(shape, device=device, dtype=dtype)))
                self._all_weights.append([name + end for name in shapes])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters from the uniform distribution on ± 1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Does nothing; PyTorch's makes the weights contiguous for cuDNN."""

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        defaults = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0,
            "bidirectional": False,
        }
        given = {name: getattr(self, name) for name in defaults}
        return text + "".join(f", {k}={v}" for k, v in given.items() if v != defaults[k])

    # The forward pass.

    def _run(self, input: Input, states: list[Tensor] | None) -> tuple[Input, list[Tensor]]:
        """Returns the output and the last states, for a tensor or a PackedSequence.

        Args:
            states: the initial hidden (and cell) states, (layers × directions, batch, size) each, without the
                batch if the input has none; None for zeros.
        """
        if isinstance(input, PackedSequence):
            x, sizes, order, back = input
            states = self._first_states(x, int(sizes[0]), states, 2)
            if order is not None:
                states = [s.index_select(1, order) for s in states]
            x, states = self._layers(x, tuple(sizes.tolist()), states)
            if back is not None:
                states = [s.index_select(1, back) for s in states]
            return PackedSequence(x, sizes, order, back), states
        batched = self._is_batched(input, states)
        if not batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
            states = states and [s.unsqueeze(1) for s in states]
        x = input.transpose(0, 1) if self.batch_first and input.ndim == 3 else input
        states = self._first_states(x, x.shape[1], states, 3)
        steps, batch = x.shape[:2]
        if steps == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        y, states = self._layers(x.reshape(steps * batch, self.input_size), (batch,) * steps, states)
        y = y.view(steps, batch, y.shape[1])
        if not batched:
            return y.squeeze(1), [s.squeeze(1) for s in states]
        return y.transpose(0, 1) if self.batch_first else y, states

    def _layers(self, x: Tensor, sizes: Sequence[int], states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        weights, directions = self.all_weights, 2 if self.bidirectional else 1
        last: list[list[Tensor]] = [[] for _ in states]
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for i in range(layer * directions, (layer + 1) * directions):
                y, *ends = self._direction(x, sizes, [s[i] for s in states], i % directions == 1, *weights[i])
                outputs.append(y)
                for found, end in zip(last, ends, strict=True):
                    found.append(end)
            x = outputs[0] if directions == 1 else cat(outputs, 1)
        return x, [stack(found) for found in last]

    def _direction(
        self, x: Tensor, sizes: Sequence[int], states: list[Tensor], reverse: bool, w_ih: Tensor,
        w_hh: Tensor, *others: Tensor,
    ) -> tuple[Tensor, ...]:
        """Returns the output of all steps and the last states of one layer in one direction."""
        b_ih, b_hh = others[:2] if self.bias else (None, None)
        gates = input_gates(self.mode, x, w_ih, b_ih, b_hh)
        w_hr = others[-1] if self.proj_size else None
        return all_steps(self.mode, gates, states, w_hh, b_hh, w_hr, sizes, reverse)

    # Checks.

    def _is_batched(self, input: Tensor, states: list[Tensor] | None) -> bool:
        if input.ndim not in (2, 3):
            raise ValueError(
                f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.ndim}D tensor instead"
            )
        for s in states or ():
            if s.ndim != input.ndim:
                kind = "batched 3-D" if input.ndim == 3 else "unbatched 2-D"
                raise RuntimeError(
                    f"For {kind} input, hx should also be {input.ndim}-D but got {s.ndim}-D tensor"
                )
        return input.ndim == 3

    def _first_states(self, x: Tensor, batch: int, states: list[Tensor] | None, ndim: int) -> list[Tensor]:
        """Returns the initial states, by default zeros, after checking them and the input."""
        weight = getattr(self, self._all_weights[0][0])
        if x.dtype != weight.dtype:
            raise ValueError(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({x.dtype})"
            )
        if x.ndim != ndim:
            raise RuntimeError(f"input must have {ndim} dimensions, got {x.ndim}")
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )
        count = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [self.proj_size or self.hidden_size, self.hidden_size][: 2 if self.mode == "LSTM" else 1]
        shapes = [(count, batch, size) for size in sizes]
        if states is None:
            return [zeros(shape, dtype=x.dtype, device=x.device) for shape in shapes]
        for i, (s, shape) in enumerate(zip(states, shapes, strict=True)):
            if tuple(s.shape) != shape:
                name = f"hidden[{i}]" if len(shapes) > 1 else "hidden"
                raise RuntimeError(f"Expected {name} size {shape}, got {list(s.shape)}")
        return states


def input_gates(mode: str, x: Tensor, w_ih: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor:
    """Returns the inputs' contribution to the gates, in one product for all steps, with the biases."""
    return F.linear(x, w_ih, b_ih if b_ih is None or mode == "GRU" else b_ih + b_hh)


def all_steps(
    mode: str, gates: Tensor, states: list[Tensor], w_hh: Tensor, b_hh: Tensor | None, w_hr: Tensor | None,
    sizes: Sequence[int], reverse: bool = False,
) -> tuple[Tensor, ...]:
    """Calls `F.lstm_steps`, `F.gru_steps` or `F.rnn_steps`, by the mode."""
    if mode == "LSTM":
        return F.lstm_steps(gates, *states, w_hh, w_hr, sizes, reverse)
    if mode == "GRU":
        return F.gru_steps(gates, *states, w_hh, b_hh, sizes, reverse)
    return F.rnn_steps(gates, *states, w_hh, mode.removeprefix("RNN_").lower(), sizes, reverse)


def _check_options(
    mode: str, input_size: int, hidden_size: int, num_layers: int, bias: bool, batch_first: bool,
    dropout: float, proj_size: int,
) -> None:
    if mode not in GATES:
        raise ValueError(f"Unrecognized RNN mode: {mode}")
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(f"dropout should be a number in range [0, 1], a probability, got {dropout}")
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            f"dropout={dropout} is applied between layers, so with num_layers=1 it is without effect",
            stacklevel=5,
        )
    for name, value, kind in (
        ("bias", bias, bool), ("batch_first", batch_first, bool),
        ("input_size", input_size, int), ("hidden_size", hidden_size, int),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero, got {value}")
    if proj_size < 0:
        raise ValueError(
            f"proj_size should be a positive integer or zero to disable projections, got {proj_size}"
        )
    if proj_size >= hidden_size:
        raise ValueError(f"proj_size has to be smaller than hidden_size, got {proj_size} and {hidden_size}")


class RNN(RNNBase):
    """h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), or relu, in several layers.

    Arguments, shapes and attributes are those of `LSTM`, without cell states and projection.

    Args:
        nonlinearity: "tanh" or "relu".

    Source: Elman, 1990. https://doi.org/10.1207/s15516709cog1402_1

    >>> output, h = nn.RNN(2, 4, batch_first=True)(mytorch.ones(3, 5, 2))
    >>> output.shape, h.shape
    (Size([3, 5, 4]), Size([1, 3, 4]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: DeviceLike = None, dtype: DTypeLike = None, **unknown: object,
    ):
        _refuse(unknown)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, device=device, dtype=dtype,
        )
        self.nonlinearity = nonlinearity

    def forward(self, input: Input, hx: Tensor | None = None) -> tuple[Input, Tensor]:
        output, (h,) = self._run(input, None if hx is None else [hx])
        return output, h


class LSTM(RNNBase):
    """Long short-term memory, in several layers.

        i, f, u, o = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh
        c_t = σ(f) c_(t-1) + σ(i) tanh(u)
        h_t = σ(o) tanh(c_t)                        (W_hr times that with `proj_size`)

    Args:
        input_size, hidden_size: features of x and of c.
        num_layers: stacked layers: the input of one is the output of the previous one.
        bias: whether to add b_ih and b_hh.
        batch_first: the batch is the first dimension of input and output, not the second.
        dropout: the probability to drop an output of a layer, except the last, in training.
        bidirectional: add an LSTM from the last step to the first; the outputs are concatenated.
        proj_size: features of h, less than `hidden_size`; 0: hidden_size, without W_hr.

    Shape:
        input: (steps, batch, input_size), or without the batch, or a PackedSequence.
        hx: (h_0, c_0), each (layers × directions, batch, features); default zeros.
        output: (steps, batch, directions × features of h), and (h_n, c_n).

    Attributes:
        weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0: of layer 0; `_l1`, … of the others,
            `_l0_reverse`, … of the other direction.

    Raises:
        RuntimeError, ValueError: shapes or dtypes do not match.

    Source: Hochreiter & Schmidhuber, 1997. https://doi.org/10.1162/neco.1997.9.8.1735

    >>> output, (h, c) = nn.LSTM(2, 4, batch_first=True)(mytorch.ones(3, 5, 2))
    >>> output.shape, h.shape, c.shape
    (Size([3, 5, 4]), Size([1, 3, 4]), Size([1, 3, 4]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size,
            device, dtype,
        )

    def forward(
        self, input: Input, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Input, tuple[Tensor, Tensor]]:
        output, states = self._run(input, None if hx is None else list(hx))
        return output, tuple(states)


class GRU(RNNBase):
    """Gated recurrent units, in several layers.

        r, z = σ(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh)
        n    = tanh(W_in x_t + b_in + r (W_hn h_(t-1) + b_hn))
        h_t  = (1 - z) n + z h_(t-1)

    Arguments, shapes and attributes are those of `LSTM`, without cell states and projection.

    Source: Cho et al., 2014. https://arxiv.org/abs/1406.1078

    >>> output, h = nn.GRU(2, 4, batch_first=True)(mytorch.ones(3, 5, 2))
    >>> output.shape, h.shape
    (Size([3, 5, 4]), Size([1, 3, 4]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: DeviceLike = None, dtype: DTypeLike = None, **unknown: object,
    ):
        _refuse(unknown)
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            device=device, dtype=dtype,
        )

    def forward(self, input: Input, hx: Tensor | None = None) -> tuple[Input, Tensor]:
        output, (h,) = self._run(input, None if hx is None else [hx])
        return output, h


def _refuse(unknown: dict[str, object]) -> None:
    if "proj_size" in unknown:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
    if unknown:
        raise TypeError(f"unexpected keyword arguments: {', '.join(unknown)}")
