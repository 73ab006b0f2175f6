"""mytorch: a deep-learning framework to read and to train with.

It looks like PyTorch and stands on NumPy and CuPy.
"""

from .backends import tune  # isort: skip - before NumPy is loaded, where that can still be chosen

tune.at_import()

from . import autograd, cuda, methods, nn, numpy_protocol, optim, utils
from ._array import Array
from .autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .device import device
from .dtypes import *
from .nn.functional import use_fused
from .nn.functional.attached import log_softmax, softmax
from .ops import *
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
from .tensor import Size, Tensor
from .version import __version__

autograd.load()
