"""Training with several processes: the functions of torch.distributed, on MPI and NCCL."""

from . import worlds
from .bucket import GradBucket
from .collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .ddp import DistributedDataParallel
from .device_mesh import DeviceMesh, init_device_mesh
from .environment import is_available
from .errors import DistError, DistMismatch, DistTimeout
from .join import Join, Joinable, JoinHook
from .object_collectives import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from .point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from .process_group import ProcessGroup
from .reduce_op import ReduceOp
from .work import Future, Work
from .world import (
    GroupMember,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_initialized,
    new_group,
)
from .zero import ZeroRedundancyOptimizer
