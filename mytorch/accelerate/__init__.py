"""Training on one device or many, in single or half precision, with the same script."""

from ..amp.grad_scaler import GradScaler
from ..amp.mixed_precision import MixedPrecisionOptimizer
from ..amp.precision import half_parameters
from .accelerator import Accelerator
from .checkpoint import CheckpointError
from .launchers import debug_launcher, notebook_launcher
from .loader import skip_first_batches
from .memory import find_executable_batch_size, release_memory
from .operations import broadcast, gather, gather_object, pad_across_processes, reduce
from .random_state import set_seed
from .tracking import JsonlTracker, Tracker

__all__ = [
    "Accelerator", "CheckpointError", "GradScaler", "JsonlTracker", "MixedPrecisionOptimizer", "Tracker",
    "broadcast", "debug_launcher", "find_executable_batch_size", "gather", "gather_object", "half_parameters",
    "notebook_launcher", "pad_across_processes", "reduce", "release_memory", "set_seed", "skip_first_batches",
]
