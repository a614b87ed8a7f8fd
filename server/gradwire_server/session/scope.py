"""Tensor scope: where the commands of a session, and the steps of a program, find and name tensors.

A handler that takes a `TensorScope` runs in both: in a `Session`, whose ids last until they are released, and in a
repetition of a program (`RunScope` in interpreter.py), whose slots last until their last use.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from gradwire_engine import Account, Context, Tensor
from gradwire_engine.autograd.repeated_backward import PassMemo
from gradwire_server.common.limits import Limits
from gradwire_server.session.state.group_table import GroupTable
from gradwire_server.session.state.hook_table import HookTable
from gradwire_server.session.state.transfers import Transfers


class TensorScope(Protocol):
    """What handlers need to create, change and differentiate tensors. Ids are a session's, or slots of a run."""

    limits: Limits
    account: Account  # admits and counts the bytes
    grad_context: Context  # records a graph; its generator is the session's
    transfers: Transfers  # the session's
    hooks: HookTable  # the session's
    groups: GroupTable  # the session's
    passes: PassMemo | None  # None in a program's run, which plans its passes itself

    def context(self, grad_mode: int, default_dtype: int = 0) -> Context:
        """Engine context for a grad mode and default dtype. Raises Refusal: ARGUMENT_VALUE, DTYPE."""

    def enter(self, context: Context) -> None:
        """Activate a context for the following ops."""

    def tensor(self, tensor_id: int, /) -> Tensor:
        """The tensor of an id. Raises Refusal."""

    def tensors(self, ids: Iterable[int], /) -> list[Tensor]:
        """The tensors of several ids. Raises Refusal."""

    def id_of(self, tensor: Tensor, /) -> int:
        """The id that names a tensor, or 0."""

    def ids_of(self, tensors: Iterable[Tensor], /) -> list[int]:
        """All ids that name these tensors."""

    def check_new(self, tensor_id: int, /) -> None:
        """Check that an id can name a new tensor. Raises Refusal."""

    def check_all_new(self, ids: Sequence[int], /) -> None:
        """Check several ids as `check_new` does. Raises Refusal."""

    def check_room(self, count: int, /) -> None:
        """Check that `count` more tensors can be named. Raises Refusal: TENSOR_LIMIT."""

    def bind(self, tensor_id: int, tensor: Tensor, /) -> int:
        """Name a tensor by an id; return the id."""
