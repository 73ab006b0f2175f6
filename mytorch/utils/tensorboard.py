"""`SummaryWriter`: writes TensorBoard's files by the package tensorboardX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.array import Array
from ..core.tensor import Tensor, raw_of

try:
    from tensorboardX import SummaryWriter as _Writer
except ImportError as error:
    raise ImportError("SummaryWriter needs the package tensorboardX: pip install tensorboardX") from error

__all__ = ["SummaryWriter"]


class SummaryWriter(_Writer):
    """tensorboardX's, which takes Tensors and Arrays: `writer.add_scalar("loss", loss, step)`.

    `add_graph` raises: there is no graph of a module that TensorBoard can draw.
    """

    def add_graph(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("add_graph(): mytorch doesn't trace modules")


def _in_numpy(x: object) -> Any:
    """Returns Tensors and Arrays as NumPy arrays, also in lists and dicts; anything else as it is."""
    if isinstance(x, (Tensor, Array)):
        raw = np.asarray(raw_of(x, "cpu"))
        return raw.astype(np.float32) if raw.dtype.kind == "V" or raw.dtype == np.float16 else raw
    if isinstance(x, dict):
        return {key: _in_numpy(value) for key, value in x.items()}
    return type(x)(map(_in_numpy, x)) if type(x) in (list, tuple) else x


def _taking_tensors(name: str) -> Callable:
    function = getattr(_Writer, name)

    def call(self: SummaryWriter, *args, **kwargs):
        return function(self, *map(_in_numpy, args), **_in_numpy(kwargs))

    call.__name__, call.__doc__ = name, function.__doc__
    return call


for _name in (
    "audio", "embedding", "histogram", "hparams", "image", "images", "mesh", "pr_curve", "scalar", "scalars",
    "video",
):
    setattr(SummaryWriter, f"add_{_name}", _taking_tensors(f"add_{_name}"))
