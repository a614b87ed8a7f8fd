"""Several processes that train one model (torch.distributed): groups of ranks, and collectives between them.

Each rank is a program with a session of its own. Their server, or the nodes of a cluster, exchange the tensors.
`gradwire run --nproc 4 train.py` starts the server and the ranks.
"""

from __future__ import annotations

from gradwire._base.errors import GradwireGroupError as DistBackendError
from gradwire._base.errors import GradwireRuntimeError as DistError
from gradwire._base.wiring import names_of_paths
from gradwire.distributed._collectives import (
    P2POp,
    ReduceOp,
    Work,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    gather,
    irecv,
    isend,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from gradwire.distributed._group import (
    Backend,
    GroupMember,
    ProcessGroup,
    always,
    default_pg_timeout,
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
from gradwire.distributed._objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)

#: PyTorch's newer names.
all_gather_single, reduce_scatter_single = all_gather_into_tensor, reduce_scatter_tensor
is_available = always(True)
is_gloo_available = always(True)
is_nccl_available = always(True)
is_mpi_available = is_ucc_available = is_xccl_available = always(False)
is_torchelastic_launched = always(False)


def is_backend_available(backend: str) -> bool:
    """Whether init_process_group takes a backend's name as one that exists (torch.distributed)."""
    return backend.lower() in ("gloo", "nccl")


__all__ = [
    "Backend",
    "DistBackendError",
    "DistError",
    "GroupMember",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "default_pg_timeout",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
]

__getattr__ = names_of_paths(__name__)
