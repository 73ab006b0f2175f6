"""Steps that all ranks skip together: the flag of a `GradScaler` over the processes of its group."""

from __future__ import annotations

from ..amp.grad_scaler import GradScaler
from ..backends.device import RawArray
from ..core.tensor import from_raw
from .collectives import all_reduce
from .process_group import ProcessGroup
from .reduce_op import ReduceOp
from .world import get_world_size, is_initialized


def reduce_found_inf(flag: RawArray, group: ProcessGroup | None = None) -> None:
    """Sets the flag on all ranks if it is set on one, in place."""
    if is_initialized() and get_world_size(group) > 1:
        all_reduce(from_raw(flag), op=ReduceOp.MAX, group=group)


GradScaler.reduce_found_inf = staticmethod(reduce_found_inf)
