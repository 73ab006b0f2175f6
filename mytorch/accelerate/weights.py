"""The part of the Accelerator that gives away a model's weights, for those who come after the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.tensor import Tensor
from ..nn.module import Module
from ..serialization import save
from . import world
from .mixed_precision import MixedPrecisionOptimizer
from .optimizer import AcceleratedOptimizer


class Weights:
    """get_state_dict, save, save_model."""

    _optimizers: list[AcceleratedOptimizer]

    def get_state_dict(self, model: Module, unwrap: bool = True) -> dict[str, Tensor]:
        """The model's state_dict, of a half-precision model with the float32 weights behind it.

        Args:
            unwrap: names are those of the model; False gives them as the prepared model has them.
        """
        model = self.unwrap_model(model) if unwrap else model
        state = model.state_dict(keep_vars=True)
        tensors = list(state.values())
        for optimizer in self._optimizers:
            if isinstance(optimizer.optimizer, MixedPrecisionOptimizer):
                tensors = optimizer.optimizer.masters_of(tensors)
        return {name: tensor.detach() for name, tensor in zip(state, tensors, strict=True)}

    def save(self, obj: Any, f: Any) -> None:
        """`mytorch.save`, by the main process only."""
        if world.rank() == 0:
            save(obj, f)

    def save_model(self, model: Module, save_directory: Any) -> None:
        """Write `get_state_dict(model)` into <save_directory>/model.safetensors, on the main process.

        All processes call this, and go on when the file is there.
        """
        state, folder = self.get_state_dict(model), Path(save_directory)

        def write() -> None:
            folder.mkdir(parents=True, exist_ok=True)
            save(state, folder / "model.safetensors")

        world.on_main(write)
