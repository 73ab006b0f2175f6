"""
Files of Hugging Face's transformers: a folder with config.json and the weights, as safetensors.

    config.json                       the kind of model ("model_type") and its configuration
    model.safetensors                 all weights, or
    model.safetensors.index.json      {"weight_map": {tensor: file}} for weights in several files

Source: the layout, https://huggingface.co/docs/transformers/main_classes/model
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

import mytorch
from mytorch import nn
from mytorch.backends import tune
from mytorch.backends.device import DeviceLike
from mytorch.backends.dtypes import DTypeLike
from mytorch.core.tensor import from_raw
from mytorch.utils import atomic_write
from mytorch.utils.reading import open_regular, read_json
from mytorch.utils.safetensors_file import SafetensorsFile
from mytorch.utils.writing import finite_json_text

if TYPE_CHECKING:
    from .pretrained import PretrainedModel

PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt"]  # files of a model that are downloaded


def find(path_or_name: str | os.PathLike, revision: str | None = None) -> Path:
    """Returns the folder or file of a model; downloads one of the Hugging Face Hub, which is then cached.

    Raises:
        FileNotFoundError: no such file, and it isn't a name on the hub either.
        ImportError: it may be a name on the hub, but the package huggingface_hub is not installed.
        OSError: the download fails, or a file differs from its hash.
    """
    path = Path(path_or_name).expanduser()
    if path.exists():
        return path
    name = os.fspath(path_or_name)
    is_file = path.suffix in (".safetensors", ".gguf")
    if is_file or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise FileNotFoundError(f"{name}: no such folder or file, and no name of the form owner/model")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ImportError(
            f"{name} is no local path; a model of that name needs the package huggingface_hub: "
            "pip install huggingface_hub"
        ) from None
    start = time.time()
    # It continues broken downloads and draws progress bars.
    folder = Path(snapshot_download(name, revision=revision, allow_patterns=PATTERNS))
    check_hashes(folder, start - 1)
    return folder


def check_hashes(folder: Path, since: float) -> None:
    """Compares the large files that came into a folder of the hub's cache with their SHA-256.

    The package itself compares their sizes. A large file is a link there, to one whose name is its hash.

    Args:
        since: only files that changed after this time are read.

    Raises:
        OSError: a file differs; it is removed.
    """
    for path in sorted(folder.iterdir()):
        content = path.resolve()
        if not re.fullmatch("[0-9a-f]{64}", content.name) or content.stat().st_mtime < since:
            continue
        found = hashlib.sha256()
        with content.open("rb") as file:
            while chunk := file.read(1 << 20):
                found.update(chunk)
        if found.hexdigest() != content.name:
            content.unlink()
            path.unlink()
            raise OSError(
                f"{path.name} was damaged on its way: its SHA-256 is {found.hexdigest()[:8]}…, the hub's is "
                f"{content.name[:8]}…; it was removed, so that another try downloads it again"
            )


def weight_files(path: Path) -> list[Path]:
    """Returns the safetensors files of a model in a folder, or the file itself.

    Raises:
        FileNotFoundError: there are none.
        ValueError: the index is damaged.
    """
    if not path.is_dir():
        return [path]
    index = path / "model.safetensors.index.json"
    if (path / "model.safetensors").exists() or not index.exists():
        return [path / "model.safetensors"]
    content = read_json(index)
    names = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(names, dict) or not names or not all(isinstance(n, str) for n in names.values()):
        raise ValueError(f"{index} is damaged: it has no weight_map of tensors and files")
    if any(Path(name).name != name for name in names.values()):
        raise ValueError(f"{index} is damaged: a file name in it has folders")
    return [path / name for name in sorted(set(names.values()))]


def read_weights(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the names and values of all tensors, one at a time.

    Raises:
        OSError: a file is missing or can't be read.
        ValueError: a file is damaged; the message names it.
    """
    for name in weight_files(path):
        with open_regular(name) as file:
            try:
                weights = SafetensorsFile(file)
                for tensor in weights.entries:
                    yield tensor, weights.read(tensor)
            except ValueError as error:
                raise ValueError(f"can't load {name}: {error}") from error


def load(
    model_class: type[PretrainedModel], path_or_name: str | os.PathLike, dtype: DTypeLike, device: DeviceLike,
    revision: str | None, options: Mapping[str, Any] = MappingProxyType({}), **changes: object,
) -> PretrainedModel:
    """Returns a pretrained model; see `PretrainedModel.from_pretrained`.

    Args:
        options: arguments of the class beside the configuration.
        changes: fields of the configuration that replace those of the file.
    """
    path = find(path_or_name, revision)
    if path.suffix == ".pt" or path.suffix == ".bin":
        raise ValueError(f"{path} is a pickle; only safetensors and GGUF files are read")
    config_path = (path if path.is_dir() else path.parent) / "config.json"
    content = read_json(config_path)
    is_ours = isinstance(content, dict) and "model_type" not in content  # of `config.save`
    kind = model_class.config_class
    config = kind.from_dict(content, config_path) if is_ours else kind.from_hugging_face(content, config_path)
    with nn.init.skipped():
        model = model_class(replace(config, **changes), **options).to(dtype=dtype, device=device)
    weights, known = read_weights(path), {name for name, _ in model.named_parameters()}
    fill(model, weights if is_ours else (_entry(model, known, *entry) for entry in weights), path)
    return model.eval()


def _entry(model: PretrainedModel, known: set[str], name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """Returns the name and value here of a tensor in Hugging Face's file; "" if it is no parameter."""
    ours = name if name.startswith(model.file_prefix) else f"{model.file_prefix}{name}"
    for old, new in model.file_renamed.items():
        if ours.endswith(old):
            ours = ours.removesuffix(old) + new
    if name in known:
        ours = name
    elif ours not in known and any(fnmatch(name, pattern) for pattern in model.file_ignored):
        ours = ""
    return ours, array.T if name.endswith(model.file_transposed) else array


@mytorch.no_grad()
def fill(model: PretrainedModel, weights: Iterable[tuple[str, np.ndarray]], path: Path) -> None:
    """Copies the weights of these names into the parameters of a model; "" is none of them.

    Raises:
        ValueError: a tensor is missing, unknown, or of another shape.
    """
    parameters = dict(model.named_parameters())
    missing, unknown = set(parameters), []
    for name, array in weights:
        if name not in parameters:
            if name:
                unknown.append(name)
            continue
        parameter = parameters[name]
        if tuple(parameter.shape) != array.shape:
            raise ValueError(
                f"{path}: tensor {name} has shape {array.shape}, the model's has {tuple(parameter.shape)}"
            )
        parameter.copy_(from_raw(array))
        missing.discard(name)
    array = None  # the last one's memory, too
    tune.release_freed_memory(sum(p.nbytes for p in parameters.values()))
    for what, names in (("has no", sorted(missing)), ("has unknown", sorted(unknown))):
        if names:
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise ValueError(f"{path} {what} tensors {shown}")


def save(model: PretrainedModel, folder: str | os.PathLike) -> None:
    """Writes a model; see `PretrainedModel.save_pretrained`."""
    folder = Path(folder)
    if adapters := nn.utils.lora_state_dict(model):
        raise ValueError(f"merge_lora(model) first: {next(iter(adapters))} has no place in such a file")
    quantized = (nn.QuantizedLinear, nn.QuantizedEmbedding)
    if layers := [name for name, module in model.named_modules() if isinstance(module, quantized)]:
        raise ValueError(f"save the model before it is quantized: {layers[0]} has no place in such a file")
    folder.mkdir(parents=True, exist_ok=True)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    tensors = {
        name: (p.T if name.endswith(model.file_transposed) else p).contiguous()
        for name, p in parameters.items()
    }
    if model.file_biases:  # zeros for those that the model lacks
        for name, module in model.named_modules():
            if module._parameters.get("bias", module) is None and module is not model.lm_head:
                tensors[f"{name}.bias"] = mytorch.zeros(len(module.weight), dtype=module.weight.dtype)
    content = {**model.config.to_hugging_face(), "dtype": str(next(iter(tensors.values())).dtype)}
    text = finite_json_text(content, indent=2) + "\n"
    mytorch.save(tensors, folder / "model.safetensors")
    with atomic_write(folder / "config.json") as partial:
        partial.write_text(text)
