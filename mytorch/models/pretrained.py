"""What all models with a configuration and pretrained weights have in common."""

from __future__ import annotations

from os import PathLike
from typing import ClassVar

import mytorch
from mytorch import nn
from mytorch.backends.device import DeviceLike
from mytorch.backends.dtypes import DTypeLike
from mytorch.nn.functional.quantization import BLOCK

from . import hugging_face
from .config import ModelConfig


class PretrainedModel(nn.Module):
    """The base of models that are made of a `config` and read files of Hugging Face's layout.

    Attributes:
        file_prefix: the first part of most names of tensors in Hugging Face's files, which some lack.
        file_ignored: patterns of the names of tensors there that needn't be parameters here.
        file_renamed: ends of the names of tensors in old files, and the ends that they have now.
        file_transposed: ends of the names of weights that are transposed there.
        file_biases: whether all layers but `lm_head` have a bias there.
    """

    config_class: ClassVar[type[ModelConfig]]
    file_prefix: ClassVar[str]
    file_ignored: ClassVar[tuple[str, ...]] = ()
    file_renamed: ClassVar[dict[str, str]] = {}
    file_transposed: ClassVar[tuple[str, ...]] = ()
    file_biases: ClassVar[bool] = False
    config: ModelConfig

    def require_config(self, config: object) -> None:
        """Raises TypeError unless it is a configuration of this class of models."""
        if not isinstance(config, self.config_class):
            name, wanted = type(self).__name__, self.config_class.__name__
            raise TypeError(f"{name}(): config must be a {wanted}, got {config!r:.60}")

    @property
    def device(self) -> mytorch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    def num_parameters(self) -> int:
        """Returns the number of parameters, quantized ones included; shared weights are counted once."""
        kinds = nn.QuantizedLinear, nn.QuantizedEmbedding
        scales = {m.scales.data_ptr(): m.scales for m in self.modules() if isinstance(m, kinds)}
        quantized = sum(BLOCK * each.numel() for each in scales.values())
        return quantized + sum(p.numel() for p in self.parameters())

    @classmethod
    def from_pretrained(
        cls, path_or_name: str | PathLike, dtype: DTypeLike = "float32", device: DeviceLike = None,
        revision: str | None = None,
    ):
        """Returns the model in a folder or file, or of a name on the Hugging Face Hub, in evaluation mode.

        Args:
            path_or_name: a folder with config.json and model.safetensors (or its parts and their index), a
                safetensors file beside a config.json, or a name such as "openai-community/gpt2", which needs
                the package huggingface_hub.
            dtype, device: of the parameters.
            revision: a branch, tag or commit of a name.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is damaged, is of another kind of model, or has an option that is not
                supported; a tensor is missing, unknown or of another shape.
            ImportError: a name, but huggingface_hub is not installed.
        """
        return hugging_face.load(cls, path_or_name, dtype, device, revision)

    def save_pretrained(self, folder: str | PathLike) -> None:
        """Writes config.json and model.safetensors as Hugging Face's transformers do.

        Raises:
            ValueError: the model has quantized weights, or adapters, for which there is no place in the file.
        """
        hugging_face.save(self, folder)
