"""The part of the Accelerator that exports a model's weights after the training."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from ..amp.mixed_precision import MixedPrecisionOptimizer
from ..core.tensor import Tensor
from ..nn.module import Module
from ..serialization import save
from . import world
from .optimizer import AcceleratedOptimizer


class Weights:
    """get_state_dict, save, save_model."""

    _optimizers: list[AcceleratedOptimizer]

    def get_state_dict(self, model: Module, unwrap: bool = True) -> dict[str, Tensor]:
        """Returns the model's state_dict, with the float32 masters of half-precision weights.

        Args:
            unwrap: False takes the names of the prepared model instead of the original one's.
        """
        model = self.unwrap_model(model) if unwrap else model
        state = model.state_dict(keep_vars=True)
        tensors = list(state.values())
        for optimizer in self._optimizers:
            if isinstance(optimizer.optimizer, MixedPrecisionOptimizer):
                tensors = optimizer.optimizer.masters_of(tensors)
        return {name: tensor.detach() for name, tensor in zip(state, tensors, strict=True)}

    def save(self, obj: object, f: str | PathLike[str]) -> None:
        """Saves with `mytorch.save`, in the main process only."""
        if world.rank() == 0:
            save(obj, f)

    def save_model(self, model: Module, save_directory: str | PathLike[str]) -> None:
        """Saves `get_state_dict(model)` to <save_directory>/model.safetensors, in the main process.

        All processes call this, and return when the file exists.
        """
        state, folder = self.get_state_dict(model), Path(save_directory)

        def write() -> None:
            folder.mkdir(parents=True, exist_ok=True)
            save(state, folder / "model.safetensors")

        world.on_main(write)
