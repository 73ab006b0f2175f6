"""mytorch: a deep-learning framework to read and to train with.

It looks like PyTorch and stands on NumPy and CuPy.
"""

import contextlib
import importlib
import os
from math import e, inf, nan, pi

from .backends import tune  # isort: skip - before NumPy is loaded, where that can still be chosen

tune.at_import()

from numpy import dtype

from . import aliases as _aliases
from . import (
    autograd,
    backends,
    cuda,
    func,
    linalg,
    methods,
    nn,
    numpy_protocol,
    ops,
    optim,
    utils,
    version,
)
from .autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .backends import dtypes
from .backends.cublas import get_float32_matmul_precision, set_float32_matmul_precision
from .backends.determinism import (
    are_deterministic_algorithms_enabled,
    is_deterministic_algorithms_warn_only_enabled,
    use_deterministic_algorithms,
)
from .backends.device import device, get_default_device, set_default_device
from .backends.dtypes import *
from .backends.threads import get_num_threads, set_num_threads
from .core.array import Array
from .core.printing import set_printoptions
from .core.tensor import Size, Tensor
from .func import vmap
from .nn.functional import (
    adaptive_avg_pool1d,
    avg_pool1d,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_similarity,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
    tensor_methods,
    use_fused,
)
from .nn.functional.tensor_methods import *
from .ops import *
from .ops import arrays as _arrays
from .ops import cast as _cast
from .ops import out as _out
from .ops.memory_formats import *
from .random import (
    Generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from .serialization import load, save
from .version import __version__

_arrays.make_them_take_arrays(globals(), [*ops.__all__, *tensor_methods.__all__])
globals().update({name: _out.accepts_out(globals()[name]) for name in _out.NAMES})

globals().update(_cast.typed("cpu"))

_parallel = {"DistributedDataParallel": "distributed", "SyncBatchNorm": "distributed.sync_batch_norm"}
_aliases.ABOVE.update({"mytorch.nn": _parallel, "mytorch.nn.parallel": _parallel})

_LATER = {
    "accelerate": None, "Accelerator": "accelerate", "amp": None, "autocast": "amp",
    "capture": "compiler", "compile": "compiler", "compiler": None, "debug": None, "distributed": None,
    "distributions": None, "fft": None, "get_autocast_dtype": "amp", "GradScaler": "amp",
    "is_autocast_enabled": "amp", "multiprocessing": None, "profiler": None,
    "quantize": "nn.quantization", "stream": None, "summary": "stream.summary",
}


_import_later, _own_names = _aliases.lazily(globals(), _LATER)


def __getattr__(name: str):
    """Imports what most programs don't need at its first use."""
    if name == "bfloat16":
        return dtypes.bfloat16
    if name.startswith("_foreach_"):
        return getattr(_import_later("foreach"), name)
    return _import_later(name)


def __dir__() -> list[str]:
    """Returns the names that can be had: `bfloat16` where its package is."""
    with contextlib.suppress(ImportError):
        return sorted({*_own_names(), dtypes.bfloat16.name})
    return _own_names()


_aliases.show_own_names()

if "MYTORCH_INSTRUCTION_LOG" in os.environ:  # each operation is a line of this file: see stream/log.py
    importlib.import_module(".stream.log", __name__).start_from_environment()
