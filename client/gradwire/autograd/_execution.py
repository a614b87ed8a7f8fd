"""What the backward under way is going to do (torch._C._current_graph_task_execution_order and its kin).

The client knows where the pass begins and ends. It fetches the graph between, and follows the server's order: of the
nodes whose gradients are complete, the one that was made last comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._graph.hook_runner import CURRENT_PASS, Pass
from gradwire._graph.nodes import Node, grad_fn_of
from gradwire._proxy.handle import Handle
from gradwire._proxy.shadow_graph import Edge, Leaf
from gradwire._session.nodes import fetch_nodes
from gradwire.autograd._ready_queue import Entry, pop, push
from gradwire.autograd.grad_mode import is_multithreading_enabled
from gradwire.v1 import commands_pb2


class _Task:
    """The graph of a pass.

    `nodes` are those behind its roots. `executed` are the ids of those that run, None for all. `captured` are the ids
    of those at which `autograd.grad` takes gradients.
    """

    def __init__(self, this: Pass) -> None:
        session = this.roots[0]._session
        ids, fetched = fetch_nodes(session, this.roots)
        self.roots = [number for number in ids if number]
        self.nodes = {node.id: node for node in fetched}
        ends = {number for each in this.targets for number in self.places_of(each)}
        self.captured = ends if this.captures else set()
        self.executed = self._leading_to(ends) if this.targets else None

    def places_of(self, tensor: Any) -> Iterator[int]:
        """The id of the node at which a tensor's gradient arrives, if it is behind the roots."""
        node = grad_fn_of(tensor)
        if node is not None:
            yield node._load().id
            return
        yield from (each.id for each in self.nodes.values() if each.HasField("leaf") and each.leaf.id == tensor._id)

    def _leading_to(self, ends: set[int]) -> set[int]:
        users: dict[int, list[int]] = {}
        for node in self.nodes.values():
            for edge in node.edges:
                users.setdefault(edge.node, []).append(node.id)
        found = ends & self.nodes.keys()
        waiting = list(found)
        while waiting:
            for user in users.get(waiting.pop(), ()):
                if user not in found:
                    found.add(user)
                    waiting.append(user)
        return found

    def runs(self, number: int) -> bool:
        """Whether the node of that id runs. Raises RuntimeError for a leaf's whose gradient `autograd.grad` takes."""
        if number not in self.nodes:
            return False
        if self.executed is None:
            return True
        if number in self.captured and not self.nodes[number].edges:
            raise refuse(
                "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). "
                "This is currently not supported."
            )
        return number in self.executed

    def order(self) -> list[int]:
        """The ids of the nodes that run, in their order."""
        left = Counter(edge.node for node in self.nodes.values() for edge in node.edges)
        ready: list[Entry] = []
        for number in self.roots:
            push(ready, self._entry(self.nodes[number]))
        made = []
        while ready:
            node = self.nodes[pop(ready)[1]]
            made.append(node.id)
            for edge in node.edges:
                if not edge.node or (self.executed is not None and edge.node not in self.executed):
                    continue
                left[edge.node] -= 1
                if not left[edge.node]:
                    push(ready, self._entry(self.nodes[edge.node]))
        return made

    @staticmethod
    def _entry(node: commands_pb2.GraphNode) -> Entry:
        return -node.sequence, node.id


def current_graph_task_execution_order() -> list[Node]:
    """The nodes that the backward under way runs, in order.

    Raises RuntimeError outside of a backward, and unless `set_multithreading_enabled(False)` is in force.
    """
    this = CURRENT_PASS.get()
    if this is None or not this.roots:
        raise refuse("_current_graph_task_execution_order should only be called during the backward pass")
    if is_multithreading_enabled():
        raise refuse(
            "get_current_graph_task_execution_order expects the current backward to be executed with multithreading "
            "disabled, e.g. by running:\n\nwith torch.autograd.set_multithreading_enabled(False):\n    ..."
        )
    task = _Task(this)
    return [_object(this.roots, number) for number in task.order()]


def _object(roots: Sequence[Any], number: int) -> Node:
    """The object of a node behind one of the roots."""
    for root in roots:
        node = grad_fn_of(root)
        if node is not None:
            if node._load().id == number:
                return node
            if node.leads_to(number):
                return node._neighbour(number)
    raise AssertionError(f"no node {number} is behind the roots of the backward")


def count_executed(this: Pass, places: Sequence[tuple[Handle, Edge]]) -> int | None:
    """At how many of these tensors a backward runs the node, or has run it; None if nobody can tell any more.

    A tensor comes with its edge at the moment that is meant: an in-place change may have moved it.

    The client knows it, but of a part of a graph, of inputs and of results of one node. Then it asks the server. Raises
    RuntimeError for a leaf of which `autograd.grad` takes the gradient.
    """
    reachable = this.reachable
    if reachable is not None and reachable.known and not this.targets:
        reached = {id(edge) for edge in (*reachable.leaves, *reachable.nodes)}
        missing = [edge for _, edge in places if id(edge) not in reached]
        if all(type(edge) is Leaf for edge in missing):
            return len(places) - len(missing)
    if not this.roots or any(tensor._edge is not edge for tensor, edge in places):
        return None
    task = _Task(this)
    return sum(task.runs(number) for tensor, _ in places for number in task.places_of(tensor))


def will_engine_execute_node(node: Node) -> bool:
    """Whether the backward under way runs a node, or has run it.

    Raises RuntimeError for another object, outside of a backward, and for a leaf's node of which `autograd.grad` takes
    the gradient.
    """
    if not isinstance(node, Node):
        raise refuse(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    this = CURRENT_PASS.get()
    if this is None or not this.roots:
        raise refuse("_get_should_execute_nodes should only be called during the backward pass")
    return _Task(this).runs(node._load().id)
