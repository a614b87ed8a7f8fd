"""The tensor table: a session's tensors by id. Several ids may name one tensor."""

from collections.abc import Iterable, Sequence

from gradwire_engine import Tensor
from gradwire_engine.graph.graph import AccumulateGrad
from gradwire_server.common.errors import Refusal
from gradwire_server.common.protocol import CLIENT_IDS
from gradwire_server.session.state.failures import FailedIds


class TensorTable:
    """Tensors by id.

    Invariants:

    - `names` has one id of each tensor in `store`; `aliases` has all ids of each tensor with more than one.
    - `next_id` only grows, so the server never chooses an id twice.
    - `deferred_releases` has the ids that a batch releases. They are released after its answer, before another call.
    - `max_tensors` limits `store`. worker/quotas.py lowers it to what the principal has left.

    A session inherits the table, so the lookups of each op cost no second attribute.
    """

    def __init__(self, max_tensors: int) -> None:
        self.max_tensors = max_tensors
        self.store: dict[int, Tensor] = {}
        self.names: dict[Tensor, int] = {}
        self.aliases: dict[Tensor, set[int]] = {}
        self.failed_ids = FailedIds()
        self.next_id = CLIENT_IDS
        self.deferred_releases: Sequence[int] = ()

    def tensor(self, tensor_id: int) -> Tensor:
        """The tensor of that id. Raises Refusal: TENSOR_NOT_FOUND, DEPENDENCY_FAILED."""
        found = self.store.get(tensor_id)
        if found is None:
            raise self.failed_ids.refusal(tensor_id)
        return found

    def tensors(self, ids: Iterable[int]) -> list[Tensor]:
        """The tensors of those ids. Raises Refusal as `tensor` does."""
        return [self.tensor(tensor_id) for tensor_id in ids]

    def check_new(self, tensor_id: int) -> None:
        """Check that an id can name a new tensor. Raises Refusal: TENSOR_EXISTS, ARGUMENT_VALUE, TENSOR_LIMIT."""
        store = self.store
        if tensor_id not in store and tensor_id < CLIENT_IDS and len(store) < self.max_tensors:
            return
        if tensor_id in store:
            raise Refusal("TENSOR_EXISTS", f"the session has a tensor {tensor_id} already", tensor=tensor_id)
        if tensor_id >= CLIENT_IDS:
            raise Refusal(
                "ARGUMENT_VALUE", f"a client chooses ids below 2^52, not {tensor_id}", argument="id", tensor=tensor_id
            )
        self.check_room(1)

    def check_room(self, count: int) -> None:
        """Check that `count` more tensors can be named. Raises Refusal: TENSOR_LIMIT."""
        limit, held = self.max_tensors, len(self.store)
        if held + count > limit:
            raise Refusal(
                "TENSOR_LIMIT",
                f"the session names at most {limit} tensors; {held} and {count} more are over it",
                limit=limit,
            )

    def check_all_new(self, ids: Sequence[int]) -> None:
        """Check ids as `check_new` does, for several or no new tensors; the server chooses an id for 0."""
        seen: set[int] = set()
        self.check_room(max(1, len(ids)))
        for tensor_id in ids:
            if tensor_id and tensor_id in seen:
                raise Refusal("TENSOR_EXISTS", f"id {tensor_id} is given to two results", tensor=tensor_id)
            self.check_new(tensor_id)
            seen.add(tensor_id)

    def bind(self, tensor_id: int, tensor: Tensor) -> int:
        """Name a tensor by an id, for 0 one that the server chooses. Call `check_new` first."""
        if not tensor_id:
            tensor_id = self.next_id
            self.next_id += 1
        self.store[tensor_id] = tensor
        if self.names.setdefault(tensor, tensor_id) != tensor_id:
            self.aliases.setdefault(tensor, {self.names[tensor]}).add(tensor_id)
        if self.failed_ids:
            self.failed_ids.pop(tensor_id, None)
        return tensor_id

    def allot(self, ids: Sequence[int], count: int) -> list[int]:
        """Ids for `count` new tensors: the client's, or the server's where the client gave none or 0."""
        allotted = list(ids) + [0] * (count - len(ids))
        for index, tensor_id in enumerate(allotted):
            if not tensor_id:
                allotted[index] = self.next_id
                self.next_id += 1
        return allotted

    def release(self, tensor_id: int) -> bool:
        """Forget an id; return whether it named a tensor."""
        tensor = self.store.pop(tensor_id, None)
        if tensor is None:
            if self.failed_ids:
                self.failed_ids.pop(tensor_id, None)
            return False
        others = self.aliases.get(tensor) if self.aliases else None
        if others is None:
            del self.names[tensor]
            return True
        others.discard(tensor_id)
        self.names[tensor] = min(others)
        if len(others) == 1:
            del self.aliases[tensor]
        return True

    def release_all(self, ids: Iterable[int]) -> int:
        """Forget ids; return how many named a tensor."""
        if self.aliases or self.failed_ids:
            return sum([self.release(tensor_id) for tensor_id in ids])
        forget, names = self.store.pop, self.names
        released = 0
        for tensor_id in ids:
            tensor = forget(tensor_id, None)
            if tensor is not None:
                del names[tensor]
                released += 1
        return released

    def apply_deferred_releases(self) -> None:
        """Forget the ids in `deferred_releases`."""
        deferred_releases, self.deferred_releases = self.deferred_releases, ()
        self.release_all(deferred_releases)

    def id_of(self, tensor: Tensor) -> int:
        """The id that names a tensor, or 0."""
        return self.names.get(tensor, 0)

    def ids_of(self, tensors: Iterable[Tensor]) -> list[int]:
        """All ids that name these tensors."""
        ids: list[int] = []
        for tensor in tensors:
            name = self.names.get(tensor)
            if name is not None:
                ids.extend(sorted(self.aliases[tensor]) if tensor in self.aliases else (name,))
        return ids

    def leaf_id(self, node: AccumulateGrad) -> int:
        """Id of the leaf tensor of a node, or 0."""
        return self.names.get(node.variable, 0)

    def clear(self) -> None:
        """Forget all ids, and break reference cycles made by `create_graph`."""
        for tensor in self.store.values():
            if tensor.state is not None:
                tensor.state.grad = None
        self.store.clear()
        self.names.clear()
        self.aliases.clear()
        self.failed_ids.clear()
