"""Derivatives that the memo knows by the structure of the graph, so that they need no answer.

A plain backward or grad needs no structure: its leaves are those that it reaches. With `create_graph`, with `inputs`,
or through a gradient that has a graph, only the server knows what results. Its first answer holds for every graph of
the same structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradwire._base.call_site import find_call_site
from gradwire._base.dtypes import get_default_dtype
from gradwire._base.modes import GRAD_ENABLED, is_inference_mode_enabled
from gradwire._functions import saved_tensor_hooks
from gradwire._functions.edges import EdgeTensor
from gradwire._proxy.graph_structure import gradient_nodes, structure_of
from gradwire._proxy.memo import MemoEntry, Spec, read_spec
from gradwire._proxy.results import new_proxy
from gradwire._transport.wire import Build, Value, make_template
from gradwire.v1 import commands_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

#: Nodes of all structures in a session's memo. Beyond, the memo forgets the structures.
_MOST_REMEMBERED = 100_000


class DerivativeMemo:
    """A derivative, and its entry in the memo: None if it is to wait for the answer, and `learn` from it."""

    def __init__(
        self, name: str, session: SessionProtocol, tensors: Sequence[Sequence[Any]], options: tuple[Any, ...]
    ) -> None:
        """`tensors` are the roots, their gradients (or None) and the targets; `options` all else that matters."""
        self._session = session
        self._edges = [None if each is None else each._edge for some in tensors for each in some]
        self._given = [each._id for some in tensors for each in some if each is not None]
        self._structure = structure_of(session, self._edges)
        self.entry: MemoEntry | None = None
        if self._structure is not None:
            self._name, self._call_site = name, find_call_site()
            specs = tuple([tuple([None if each is None else each._spec for each in some]) for some in tensors])
            modes = (GRAD_ENABLED.get(), get_default_dtype())
            code, place = self._call_site
            self._key = (self._name, id(code), place, modes, options, specs, self._structure.key)
            self.entry = session.memo.get(self._key)

    def gradients(self, ids: Sequence[int]) -> tuple[Any, ...]:
        """Proxies of the gradients, which the entry describes. Those with a graph can be differentiated as well."""
        assert self.entry is not None
        made: list[Any] = [None] * len(ids)
        nodes = gradient_nodes(self.entry, self._edges, self._given, ids)
        for place, spec in zip(self.entry.received, self.entry.specs, strict=True):
            made[place] = new_proxy(self._session, ids[place], spec, nodes[place] if spec.requires_grad else None)
        return tuple(made)

    def learn_gradients(
        self, answer: commands_pb2.GradientsResponse, ids: Sequence[int], build: Build, values: Sequence[Value]
    ) -> None:
        """Remember the gradients of an answer, if none is or shows a tensor of the client. An input may have none."""
        if self._structure is None or answer.accumulated or len(answer.gradients) != len(ids):
            return
        given = [(place, each) for place, each in enumerate(answer.gradients) if each.id]
        if any(each.id != ids[place] or each.same_as or each.base for place, each in given):
            return
        specs = tuple([read_spec(each) for _, each in given])
        if not any(spec.tangents or (spec.is_leaf and spec.requires_grad) for spec in specs):
            self._remember(build, values, specs, tuple([place for place, _ in given]))

    def learn_backward(self, accumulated: Sequence[int], build: Build, values: Sequence[Value]) -> None:
        """Remember which leaves received a gradient, if the client knows all of them."""
        if self._structure is None:
            return
        places = {owner._id: place for place, owner in enumerate(self._owners()) if owner is not None}
        if all(one in places for one in accumulated):
            self._remember(build, values, (), tuple([places[one] for one in accumulated]))

    def received(self) -> list[Any]:
        """The leaves that receive a gradient and still exist."""
        assert self.entry is not None
        owners = self._owners()
        return [owner for place in self.entry.received if (owner := owners[place]) is not None]

    def _owners(self) -> list[Any]:
        assert self._structure is not None
        return [leaf.owner() for leaf in self._structure.leaves]

    def _remember(
        self, build: Build, values: Sequence[Value], specs: tuple[Spec, ...], received: tuple[int, ...]
    ) -> None:
        session, structure = self._session, self._structure
        template = make_template(build, values)
        if template is None or structure is None:
            return
        session.remembered_nodes += len(structure.key[-1])
        if session.remembered_nodes > _MOST_REMEMBERED:
            session.remembered_nodes = 0
            for key in [key for key, entry in session.memo.items() if entry.of_structure]:
                del session.memo[key]
        entry = MemoEntry(self._key, self._name, self._call_site, template, specs)
        entry.of_structure, entry.received = True, received
        session.remember(entry)
        self.entry = session.memo.get(self._key)


def may_know(session: SessionProtocol, tensors: Sequence[Any]) -> bool:
    """Whether the structure can tell a derivative by these tensors: nothing but the graph takes part in it."""
    return not (
        session.every_call_waits
        or session.hooks
        or saved_tensor_hooks.CURRENT.get() is not None
        or is_inference_mode_enabled()
        or any(isinstance(each, EdgeTensor) or (each is not None and each._spec.tangents) for each in tensors)
    )
