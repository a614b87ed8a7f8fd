"""Failed ids: the ids that failed commands were to give to their results, each with the cause."""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gradwire_server.common.errors import Refusal

MAX_FAILED_IDS = 100_000
_MAX_QUOTE = 400


@dataclass(slots=True)
class Failure:
    """Cause of a failed id: the command that failed first."""

    seq: int
    writer: int
    reason: str
    message: str


class FailedIds(OrderedDict[int, Failure]):
    """Failures by id, oldest first.

    Invariants: no id here names a tensor, since a tensor table removes the ids that it binds. There are at most
    MAX_FAILED_IDS ids; the oldest are forgotten.
    """

    def add(self, ids: Iterable[int], refusal: Refusal, seq: int, writer: int, bound: Collection[int]) -> None:
        """Note the result ids of a failed command, with their root cause. Ids that are 0 or `bound` are left out."""
        root = int(refusal.metadata["tensor"]) if refusal.reason == "DEPENDENCY_FAILED" else 0
        failure = self.get(root) or Failure(seq, writer, refusal.reason, refusal.message[:_MAX_QUOTE])
        for tensor_id in ids:
            if tensor_id and tensor_id not in bound:
                self[tensor_id] = failure
        while len(self) > MAX_FAILED_IDS:
            self.popitem(last=False)

    def refusal(self, tensor_id: int) -> Refusal:
        """Refusal for an id without a tensor: DEPENDENCY_FAILED or TENSOR_NOT_FOUND."""
        failure = self.get(tensor_id)
        if failure is None:
            message = (
                f"no tensor {tensor_id} in this session: it was released, or it is the gradient of a tensor that has "
                "none. A tensor that is not a leaf gets a gradient only after retain_grad()"
            )
            return Refusal("TENSOR_NOT_FOUND", message, tensor=tensor_id)
        return Refusal(
            "DEPENDENCY_FAILED",
            f"tensor {tensor_id} is the result of command {failure.seq}, which failed: {failure.message}",
            root_seq=failure.seq,
            tensor=tensor_id,
            root_reason=failure.reason,
            root_writer=failure.writer,
        )
