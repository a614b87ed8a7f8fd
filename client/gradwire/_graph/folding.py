"""Folding: joins the nodes of a reverse graph by the calls of modules that made them, so that a large graph is legible.

At depth 0 each outermost call is one group, at depth 1 each call that those made, and so on. Neighbouring calls of
equal modules are joined: six equal layers are one group of six calls. A call's commands follow each other and edges
lead to earlier ones, so a group makes no cycle. Where commands are not known it might: a group in a cycle is opened.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gradwire._session.module_calls import ModuleCall

if TYPE_CHECKING:
    from gradwire._graph.graph import GraphNode

#: A graph with more nodes is folded unless the caller says otherwise, to at most so many cards.
LEGIBLE = 40


class Folded:
    """The groups of a graph: for each its calls and its nodes. A node outside of them stands alone."""

    def __init__(self, groups: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
        #: (calls, nodes) by the id of the group's first node.
        self.groups = groups
        #: The first node of the group that has a node.
        self.head = {node: head for head, (_, nodes) in groups.items() for node in nodes}

    def cards(self, ids: Iterable[int]) -> list[int]:
        """The ids of the nodes and groups that are drawn for the nodes."""
        return list(dict.fromkeys(self.head.get(id_, id_) for id_ in ids))


def folded(nodes: Sequence[GraphNode], calls: Sequence[ModuleCall], depth: int | bool | None) -> Folded:
    """Fold calls deeper than `depth`. None folds a graph that is too large, and only as far as it must."""
    if depth is False or not calls or (depth is None and len(nodes) <= LEGIBLE):
        return Folded({})
    if depth is not None:
        return _at_depth(nodes, calls, int(depth) if depth is not True else 0)
    best = _at_depth(nodes, calls, 0)
    for deeper in range(1, 1 + max(len(_chain(calls, node.call)) for node in nodes)):
        found = _at_depth(nodes, calls, deeper)
        if len(found.cards(node.id for node in nodes)) > LEGIBLE:
            break
        best = found
    return best


def _chain(calls: Sequence[ModuleCall], call: int) -> list[int]:
    """A call and the calls around it, from the outermost on."""
    chain = []
    while call >= 0:
        chain.append(call)
        call = calls[call].parent
    return chain[::-1]


def _at_depth(nodes: Sequence[GraphNode], calls: Sequence[ModuleCall], depth: int) -> Folded:
    chains = {call: _chain(calls, call) for call in {node.call for node in nodes}}
    by_call: dict[int, list[GraphNode]] = {}
    for node in nodes:
        chain = chains[node.call]
        if len(chain) > depth:
            by_call.setdefault(chain[depth], []).append(node)
    runs = _runs(by_call, nodes, calls)
    while True:
        made = _with_leaves(
            {members[0].id: (run, members) for run in runs if (members := _members(run, by_call))}, nodes
        )
        torn = _in_cycles(nodes, made)
        if not torn:
            return made
        # A run is opened to its calls first, a call to its nodes.
        runs = [
            part
            for run in runs
            for part in ([run] if by_call[run[0]][0].id not in torn else [(call,) for call in run] if run[1:] else [])
        ]


def _members(run: tuple[int, ...], by_call: Mapping[int, list[GraphNode]]) -> list[GraphNode]:
    return [node for call in run for node in by_call[call]]


def _runs(
    by_call: Mapping[int, list[GraphNode]], nodes: Sequence[GraphNode], calls: Sequence[ModuleCall]
) -> list[tuple[int, ...]]:
    """Neighbouring calls with one caller, joined where class, parameters and inner modules are equal."""
    leaves = {node.id: node.leaf.shape for node in nodes if node.leaf is not None}

    def form(call: int) -> tuple[object, ...]:
        # The first layer lacks the nodes that lead to an input without grad, so parameters count more than nodes.
        base = len(_chain(calls, call))
        inside = {tuple(calls[each].kind for each in _chain(calls, node.call)[base:]) for node in by_call[call]}
        shapes = sorted(leaves[target] for node in by_call[call] for target, _ in node.edges if target in leaves)
        names = [] if shapes else sorted(node.name for node in by_call[call])
        return (calls[call].parent, calls[call].kind, sorted(inside), shapes, names)

    return [tuple(run) for _, run in itertools.groupby(sorted(by_call), key=form)]


def _with_leaves(heads: Mapping[int, tuple[tuple[int, ...], list[GraphNode]]], nodes: Sequence[GraphNode]) -> Folded:
    """The groups, each with the leaves that only its nodes use."""
    head_of = {node.id: head for head, (_, members) in heads.items() for node in members}
    users: dict[int, set[int]] = {}
    for node in nodes:
        for target, _ in node.edges:
            users.setdefault(target, set()).add(head_of.get(node.id, 0))
    inside: dict[int, list[int]] = {head: [node.id for node in members] for head, (_, members) in heads.items()}
    for node in nodes:
        groups = users.get(node.id, set())
        if not node.edges and node.id not in head_of and len(groups) == 1 and 0 not in groups:
            inside[next(iter(groups))].append(node.id)
    return Folded({head: (run, tuple(inside[head])) for head, (run, _) in heads.items() if len(inside[head]) > 1})


def _in_cycles(nodes: Sequence[GraphNode], made: Folded) -> set[int]:
    """The groups that are in a cycle or behind one."""
    edges = {
        (source, target)
        for node in nodes
        for each, _ in node.edges
        if (source := made.head.get(node.id, node.id)) != (target := made.head.get(each, each)) and each
    }
    waiting: dict[int, int] = {}
    targets: dict[int, list[int]] = {}
    for source, target in edges:
        waiting[target] = waiting.get(target, 0) + 1
        targets.setdefault(source, []).append(target)
    ready = [id_ for id_ in made.cards(node.id for node in nodes) if not waiting.get(id_)]
    for id_ in ready:  # the loop also visits what is added during it
        for target in targets.get(id_, ()):
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return {id_ for id_, left in waiting.items() if left and id_ in made.groups}
