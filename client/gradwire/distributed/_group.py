"""Process groups: the ranks of a distributed program, each with a session (torch.distributed)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from gradwire._base.errors import GradwireError, GradwireRuntimeError, GradwireValueError, two_sessions
from gradwire._graph import commands
from gradwire._proxy.handle import Handle
from gradwire._proxy.results import update_in_place
from gradwire._session.session import Session
from gradwire._session.sessions import current_session, has_server
from gradwire._transport.wire import Value
from gradwire.v1 import collectives_pb2 as pb
from gradwire.v1 import service_pb2

default_pg_timeout = timedelta(minutes=30)
_NOT_INITIALIZED = "Default process group has not been initialized, please make sure to call init_process_group."
_NO_SERVER = (
    "the ranks need one server: start the program with `gradwire run --nproc {size} script.py`, or start a server and "
    "set GRADWIRE_ADDRESS for all ranks"
)


class Backend(str):
    """A backend's name (torch.distributed.Backend). All of them mean the server's own collectives."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    backend_list: ClassVar[list[str]] = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI]

    def __new__(cls, name: str) -> Backend:
        """The name in lower case. Raises ValueError if it is no string."""
        if not isinstance(name, str):
            raise GradwireValueError(f"Backend constructor parameter must be string-ish: {name}")
        return super().__new__(cls, name.lower())


class ProcessGroup:
    """Some of the ranks (torch.distributed.ProcessGroup). `ranks` are their numbers among all ranks."""

    def __init__(self, name: str, ranks: Sequence[int], rank: int, backend: str, timeout: timedelta) -> None:
        self.group_name = name
        self.ranks = list(ranks)
        self.backend = Backend(backend)
        self.session: Session = current_session()
        self.timeout_ms = max(1, int(timeout.total_seconds() * 1000))
        self._rank = rank
        #: Receives that irecv() began and nobody has waited for, oldest first.
        self.pending: list[Any] = []
        self.exchange(
            pb.COLLECTIVE_KIND_JOIN, fields={"rank": rank, "size": len(self.ranks), "grace_ms": _grace()}, waits=True
        )

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def name(self) -> str:
        """The backend's name."""
        return str(self.backend)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name!r}: rank {self._rank} of {self.size()}>"

    def exchange(
        self,
        kind: int,
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        *,
        writes: Sequence[Any] = (),
        fields: dict[str, Any] | None = None,
        waits: bool = False,
    ) -> pb.CollectiveResponse | None:
        """Take part in a collective. `writes` are the tensors that receive values.

        The first call at a call site waits for its answer, and so does one with `waits`. Later ones are sent at once,
        since other ranks wait for them; an error is raised by the next call that waits.
        """
        session = self.session
        tensors = [*inputs, *outputs]
        for each in tensors:
            if not isinstance(each, Handle):
                raise TypeError(f"Invalid type for tensor: expected a tensor, but got {type(each).__name__}")
            if each._session is not session:
                raise two_sessions("distributed", session, each._session)
            each._fresh()  # type: ignore[attr-defined]
        facts = {"timeout_ms": self.timeout_ms, **(fields or {})}

        def build(values: Sequence[Value]) -> service_pb2.Command:
            ids = [int(value) for value in values]
            request = pb.CollectiveRequest(kind=kind, group=self.group_name, **facts)  # type: ignore[arg-type]
            request.inputs.extend(ids[: len(inputs)])
            request.outputs.extend(ids[len(inputs) :])
            return service_pb2.Command(collective=request)

        if session.recorder is not None:
            session.recorder.add_arguments(tensors, ())
        values = [each._id for each in tensors]
        answer = None
        if waits:
            answer = session.wait(build(values)).collective
        else:
            key = (kind, self.group_name, *facts.items(), len(inputs), *(each._spec for each in tensors))
            commands.run(session, "collective", key, values, build)
            session.flush()
        for each in writes:
            update_in_place(each, each._spec, [], False)
        return answer

    def leave(self) -> None:
        """Leave the group. A broken group, or a closed session, has nothing to leave."""
        try:
            self.exchange(pb.COLLECTIVE_KIND_LEAVE, waits=True)
        except GradwireError as error:
            if error.late:
                raise


def _grace() -> int:
    """Milliseconds for which a rank may be without connection: GRADWIRE_RANK_GRACE, in seconds; 0 is the default."""
    return int(float(os.environ.get("GRADWIRE_RANK_GRACE", "0") or 0) * 1000)


@dataclass
class _World:
    """The process's groups: the default one, and the names of others."""

    default: ProcessGroup | None = None
    groups: list[ProcessGroup] = field(default_factory=list)
    count: Any = field(default_factory=lambda: itertools.count(1))
    inits: Any = field(default_factory=lambda: itertools.count(1))


WORLD = _World()


class _GroupType(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group; None before init_process_group."""
        return WORLD.default

    @property
    def NON_GROUP_MEMBER(cls) -> int:
        """What new_group returns to a process that is not part of the group."""
        return NON_GROUP_MEMBER


NON_GROUP_MEMBER = -100
group = _GroupType("group", (), {"__doc__": "The default group as a constant (torch.distributed.group)."})
GroupMember = _GroupType("GroupMember", (), {"__doc__": "As `group` (torch.distributed.GroupMember)."})


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Form the default group, and wait until all ranks have (torch.distributed.init_process_group).

    Rank and size come from the arguments, else from RANK and WORLD_SIZE. All ranks use one gradwire server, or nodes
    of one cluster. Programs with the same MASTER_ADDR and MASTER_PORT, or the same `init_method`, form a group. Every
    `backend` means the server's own collectives. Raises ValueError without rank or size, and RuntimeError if ranks
    disagree or are missing after `timeout`.
    """
    if WORLD.default is not None:
        raise GradwireValueError("trying to initialize the default process group twice!")
    if store is not None and (world_size < 0 or rank < 0):
        raise AssertionError("world_size and rank must be positive if using store")
    given = _rank_and_size(init_method, rank, world_size)
    if not has_server() and given[1] > 1:
        raise GradwireRuntimeError(_NO_SERVER.format(size=given[1]))
    name = f"{_run_name(init_method)}/{group_name}/{next(WORLD.inits)}"
    made = ProcessGroup(name, range(given[1]), given[0], backend or "gloo", timeout or default_pg_timeout)
    WORLD.default = made
    WORLD.groups.append(made)


def _rank_and_size(init_method: str | None, rank: int, world_size: int) -> tuple[int, int]:
    query = dict(part.partition("=")[::2] for part in (init_method or "").partition("?")[2].split("&"))
    found = []
    for value, name, variable in ((rank, "rank", "RANK"), (world_size, "world_size", "WORLD_SIZE")):
        text = str(value) if value >= 0 else query.get(name) or os.environ.get(variable, "")
        if not text.lstrip("-").isdigit():
            raise GradwireValueError(
                f"Error initializing torch.distributed using env:// rendezvous: environment variable {variable} "
                "expected, but not set"
            )
        found.append(int(text))
    if not 0 <= found[0] < found[1]:
        raise GradwireValueError(f"rank {found[0]} is not between 0 and the world size, {found[1]}")
    return found[0], found[1]


def _run_name(init_method: str | None) -> str:
    """What the ranks of one program have in common."""
    run = os.environ.get("GRADWIRE_RUN_ID") or os.environ.get("TORCHELASTIC_RUN_ID") or ""
    place = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    method = (init_method or "env://").partition("?")[0]
    return f"{run}|{place if method == 'env://' else method}"[-150:]


def destroy_process_group(group: Any = None) -> None:
    """Leave a group, or without one all groups (torch.distributed.destroy_process_group)."""
    if group == NON_GROUP_MEMBER:
        return
    gone: list[Any] = [group] if group is not None and group is not WORLD.default else list(WORLD.groups)
    if not gone:
        raise GradwireRuntimeError(_NOT_INITIALIZED)
    for each in gone:
        if each not in WORLD.groups:
            raise GradwireValueError("Invalid process group specified or has been destroyed.")
        WORLD.groups.remove(each)
        if each is WORLD.default:
            WORLD.default = None
        each.leave()


def is_initialized() -> bool:
    """Whether there is a default group (torch.distributed.is_initialized)."""
    return WORLD.default is not None


def group_of(given: Any) -> ProcessGroup | None:
    """The group of an argument: the default for None; None where this process is no member. Raises ValueError."""
    if given == NON_GROUP_MEMBER:
        return None
    if given is None:
        if WORLD.default is None:
            raise GradwireValueError(_NOT_INITIALIZED)
        return WORLD.default
    if not isinstance(given, ProcessGroup):
        raise TypeError(f"expected a process group, but got {type(given).__name__}")
    if given not in WORLD.groups:
        raise GradwireValueError("Invalid process group specified or has been destroyed.")
    return given


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some ranks; all ranks call it, in the same order (torch.distributed.new_group).

    A rank that is not part of it gets GroupMember.NON_GROUP_MEMBER. Raises RuntimeError for ranks that do not exist.
    """
    world = group_of(None)
    assert world is not None
    chosen = world.ranks if ranks is None else sorted(ranks) if sort_ranks else list(ranks)
    if len(chosen) > world.size():
        raise GradwireValueError(
            "the new group's world size should be less or equal to the world size set by init_process_group"
        )
    if len(set(chosen)) != len(chosen):
        raise GradwireValueError(f"duplicate ranks in {chosen}")
    if any(not 0 <= each < world.size() for each in chosen):
        raise GradwireValueError("The new group's rank should be within the world_size set by init_process_group")
    if use_local_synchronization:
        name = f"{world.group_name}/{','.join(map(str, chosen))}"[-190:]
    else:
        name = f"{world.group_name}/{next(WORLD.count)}"
    if world.rank() not in chosen:
        return NON_GROUP_MEMBER
    limit = timeout or timedelta(milliseconds=world.timeout_ms)
    made = ProcessGroup(name, chosen, chosen.index(world.rank()), backend or world.backend, limit)
    WORLD.groups.append(made)
    return made


def get_rank(group: ProcessGroup | None = None) -> int:
    """This process's rank; -1 if it is not in the group (torch.distributed.get_rank)."""
    found = group_of(group)
    return -1 if found is None else found.rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Number of ranks; -1 if this process is not in the group (torch.distributed.get_world_size)."""
    found = group_of(group)
    return -1 if found is None else found.size()


def get_backend(group: ProcessGroup | None = None) -> Backend:
    """The backend's name that was given (torch.distributed.get_backend)."""
    found = group_of(group)
    if found is None:
        raise GradwireValueError("Invalid process group specified")
    return found.backend


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """The ranks' numbers among all ranks (torch.distributed.get_process_group_ranks)."""
    found = group_of(group)
    return [] if found is None else list(found.ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The number among all ranks of a group's rank (torch.distributed.get_global_rank). Raises ValueError."""
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise GradwireValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """A group's rank of a number among all ranks (torch.distributed.get_group_rank). Raises ValueError."""
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise GradwireValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks.index(global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """LOCAL_RANK, or the fallback (torch.distributed.get_node_local_rank). Raises RuntimeError without either."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise GradwireRuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank.")
    return int(fallback_rank)


def always(answer: bool) -> Callable[..., bool]:
    """A function that gives one answer, for questions about PyTorch's libraries."""
    return lambda *args, **kwargs: answer
