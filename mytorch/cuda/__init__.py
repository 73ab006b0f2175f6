"""The GPUs that CuPy finds, with PyTorch's names: devices, streams and events, memory, random numbers,
graphs.

It can be imported, and asked `is_available()`, without a GPU and without CuPy.
"""

from ..aliases import lazily as _lazily
from ..backends.device import device_count, is_available
from ..ops.cast import typed as _typed
from .devices import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_bf16_supported,
    set_device,
    synchronize,
)
from .graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_step
from .memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import Event, Stream, current_stream, default_stream, set_stream, stream

globals().update(_typed("cuda"))

__getattr__, __dir__ = _lazily(globals())
