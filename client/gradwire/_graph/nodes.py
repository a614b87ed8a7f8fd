"""Nodes: the user's interface to the reverse graph: `grad_fn`, `next_functions` and `gradwire.graph(t)`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gradwire._base import dtypes
from gradwire._base.errors import GradwireTypeError
from gradwire._base.wiring import wired
from gradwire._graph import commands
from gradwire._graph.graph import Graph, GraphLeaf, GraphNode
from gradwire._graph.hooks import RemovableHandle, hook_after, hook_before
from gradwire._graph.saved_tensors import raw_saved_value, saved_value
from gradwire._proxy.handle import UNKNOWN, Handle
from gradwire._proxy.memo import read_spec
from gradwire._proxy.shadow_graph import forget_dropped_leaves
from gradwire._session.nodes import fetch_nodes
from gradwire.v1 import commands_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

# Sequence number of AccumulateGrad nodes on the server, and in PyTorch.
_LAST, _OF_LEAVES = 1 << 62, (1 << 64) - 1
# Nodes whose `name()` includes PyTorch's namespace, unlike their class name.
_NAMESPACED = ("AccumulateGrad", "CopyBackwards", "CopySlices", "NotImplemented")


class Node:
    """A node of the reverse graph (torch.autograd.graph.Node). Nodes are equal if their server ids are equal."""

    #: Of a sparse result's node: the number of its stored elements, what makes such a tensor of values, and whether
    #: the second operand was sparse, too.
    stored: tuple[int, Callable[[Any], Any], bool] | None = None

    def __init__(self, name: str, root: Handle, node_id: int = 0) -> None:
        self._name = name
        # The tensor keeps the node alive on the server. Id 0 means the tensor's own node.
        self._root = root
        self._edge = root._edge
        self._node_id = node_id
        self._message: commands_pb2.GraphNode | None = None

    def name(self) -> str:
        """PyTorch's name of the node: "MulBackward0", "torch::autograd::AccumulateGrad"."""
        return f"torch::autograd::{self._name}" if self._name in _NAMESPACED else self._name

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that receive this node's gradients, each with its output number."""
        return tuple(
            [(None if edge.node == 0 else self._neighbour(edge.node), edge.output) for edge in self._load().edges]
        )

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after backward has passed the node; what it returns, unless None,
        replaces the gradients of the inputs. (torch.autograd.graph.Node.register_hook)
        """
        return hook_after(self._root, self._number(), hook)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(grad_outputs)` before backward passes the node; what it returns, unless None, replaces them.

        (torch.autograd.graph.Node.register_prehook)
        """
        return hook_before(self._root, self._number(), hook)

    def __call__(self, *gradients: Any, **named: Any) -> Any:
        """The gradients of the node's inputs for gradients of its results, as `call_node` says."""
        if named:
            raise GradwireTypeError("keyword arguments are not supported")
        return wired("call_node")(self, gradients)

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the program's notes on the node; it is kept as long as the tensor this node came from."""
        notes: dict[int, dict[Any, Any]] = self._root.__dict__.setdefault("_node_metadata", {})
        return notes.setdefault(self._load().id, {})

    def _sequence_nr(self) -> int:
        """When the node was made: of those that are ready, backward visits the one with the largest number first."""
        made = commands.counters(self._root, self._number()).sequence
        return _OF_LEAVES if made == _LAST else made

    def _set_sequence_nr(self, number: int) -> None:
        """Let the node count as made at another time. Raises RuntimeError for the node of a leaf."""
        commands.counters(self._root, self._number(), sequence=number)

    def _number(self) -> int:
        """The node's id on the server. 0 means the root tensor's node, while the tensor still has that node."""
        if not self._node_id and self._root._edge is not self._edge:
            self._load()
        return self._node_id

    @property
    def variable(self) -> Any:
        """The leaf of an AccumulateGrad node. Raises AttributeError for other nodes."""
        message = self._load()
        if not message.HasField("leaf"):
            raise AttributeError(f"'{self._name}' object has no attribute 'variable'")
        known = self._root._session.watched.get(message.leaf.id)
        if known is None:
            known = saved_value(self, "variable")
            known._grad = UNKNOWN
            forget_dropped_leaves(self._root._edge)
        return known

    def __getattr__(self, name: str) -> Any:
        """`_saved_<name>`: the value saved under that name. `_raw_saved_<name>`: what stands for it, for hooks.

        The node of a custom function has the attributes of its context, as in PyTorch.
        """
        found = None
        if name.startswith("_saved_"):
            found = self._at_its_places(name, saved_value(self, name.removeprefix("_saved_")))
        elif name.startswith("_raw_saved_"):
            key = name.removeprefix("_raw_saved_")
            found = raw_saved_value(self, "saved_tensors" if key == "tensors" else key)
        elif not name.startswith("__"):
            edge, context = self._root.__dict__.get("_function_context", (None, None))
            if context is not None and edge is self._edge and self._node_id in (0, self._root_id()):
                return getattr(context, name)
        if found is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name)
        return found

    def _at_its_places(self, name: str, value: Any) -> Any:
        """A saved value, as a sparse tensor if it is that: one that was an operand or the result of a sparse op."""
        if self.stored is None or not isinstance(value, Handle):
            return value
        count, make, both = self.stored
        known = name in ("_saved_self", "_saved_result") or (both and name == "_saved_other")
        return make(value) if known and value._spec.shape[:1] == (count,) else value

    def _root_id(self) -> int:
        """The id of the root tensor's own node, if it is known."""
        held = self._root.__dict__.get("_nodes")
        return -1 if held is None or held[0] is not self._edge else int(held[1].root)

    def _load(self) -> commands_pb2.GraphNode:
        if self._message is None:
            nodes = _nodes_of(self._root)
            self._node_id = self._node_id or nodes.root
            self._message = nodes.by_id[self._node_id]
        return self._message

    def leads_to(self, node_id: int) -> bool:
        """Whether a node is behind the same tensor."""
        return node_id in _nodes_of(self._root).by_id

    def _neighbour(self, node_id: int) -> Node:
        message = _nodes_of(self._root).by_id[node_id]
        held = _held(self._root._session, message.name)
        found = held.find(node_id)
        if found is None:
            found = class_of(message.name)(message.name, self._root, node_id)
            found._message = message
            held.numbered[node_id] = found
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        if self is other:
            return True
        if self._root._session is not other._root._session:
            return False
        return self._load().id == other._load().id

    def __hash__(self) -> int:
        return hash(self._load().id)

    def __repr__(self) -> str:
        return f"<{self._name} object at {id(self):#x}>"


class _HeldNodes:
    """The node objects of one class that a program holds: a node has one object as long as it is held."""

    def __init__(self) -> None:
        self.numbered: weakref.WeakValueDictionary[int, Node] = weakref.WeakValueDictionary()
        #: Those whose id was not asked for yet, by the object's.
        self.others: weakref.WeakValueDictionary[int, Node] = weakref.WeakValueDictionary()

    def may_be_held(self, tensor: Handle) -> bool:
        """Whether a held object without an id may be this tensor's node, as one of several results of a node may be."""
        return any(tensor._spec.output_nr != each._root._spec.output_nr for each in list(self.others.values()))

    def find(self, node_id: int) -> Node | None:
        """The object of a node. Asks for the ids that are not known yet."""
        for each in list(self.others.values()):
            self.others.pop(id(each), None)
            if each._node_id or (each._root._edge is each._edge and not each._root._spec.outdated):
                self.numbered.setdefault(each._load().id, each)
        return self.numbered.get(node_id)


_HELD: weakref.WeakKeyDictionary[SessionProtocol, dict[str, _HeldNodes]] = weakref.WeakKeyDictionary()


def _held(session: SessionProtocol, name: str) -> _HeldNodes:
    of_session = _HELD.setdefault(session, {})
    return of_session.setdefault(name, _HeldNodes())


class _Nodes:
    """The graph behind one tensor, as first fetched."""

    def __init__(self, root: int, by_id: dict[int, commands_pb2.GraphNode]) -> None:
        self.root = root
        self.by_id = by_id


def _nodes_of(root: Handle) -> _Nodes:
    held = root.__dict__.get("_nodes")
    if held is None or held[0] is not root._edge:
        roots, nodes = fetch_nodes(root._session, [root])
        held = (root._edge, _Nodes(roots[0], {node.id: node for node in nodes}))
        root.__dict__["_nodes"] = held
    nodes_held: _Nodes = held[1]
    return nodes_held


_CLASSES: dict[str, type[Node]] = {}


def class_of(name: str) -> type[Node]:
    """A class with the node's name, so `type(y.grad_fn).__name__` equals it."""
    if name not in _CLASSES:
        _CLASSES[name] = type(name, (Node,), {})
    return _CLASSES[name]


def grad_fn_of(tensor: Handle) -> Node | None:
    """The node that made a tensor; None for a leaf. Returns the same object while it is referenced."""
    name = tensor._spec.grad_fn
    if not name:
        return None
    edge, held = tensor.__dict__.get("_grad_fn", (None, None))
    node: Node | None = held() if held is not None and edge is tensor._edge else None
    if node is None:
        objects = _held(tensor._session, name)
        node = class_of(name)(name, tensor)
        # Where a program came to the same node by another way, it has that way's object.
        edge, node_id = tensor.__dict__.get("_node_id", (None, 0))
        if edge is tensor._edge and node_id:
            node._node_id = node_id
            node = objects.find(node_id) or objects.numbered.setdefault(node_id, node)
        elif objects.numbered or objects.may_be_held(tensor):
            node = objects.find(node._load().id) or node
        if id(node) not in objects.others and objects.numbered.get(node._node_id) is not node:
            objects.others[id(node)] = node
        # A weak reference, because the node references the tensor.
        tensor.__dict__["_grad_fn"] = (tensor._edge, weakref.ref(node))
    return node


def name_node(tensor: Handle) -> None:
    """Ask for the id of the node that a program holds of a tensor, before an in-place op gives the tensor another."""
    edge, held = tensor.__dict__["_grad_fn"]
    node: Node | None = held()
    if node is not None and edge is tensor._edge:
        node._load()


def graph(
    *tensors: Handle, params: Mapping[str, Handle] | None = None, saved: bool = False, fold: int | bool | None = None
) -> Graph:
    """The reverse graph behind tensors, to print (DOT), save (.svg, .dot) or show in a notebook.

    `params` names leaves; a module's parameters already have names. With `saved`, each node lists its values saved for
    backward. `fold` draws calls of modules as one card each: those deeper than a number (0: the outermost calls). False
    draws every node. None folds a graph above 40 nodes, as far as it must.

    Raises TypeError unless all arguments are tensors.
    """
    if not tensors or not all(isinstance(each, Handle) for each in tensors):
        raise GradwireTypeError("graph() takes tensors, one or several")
    session = tensors[0]._session
    names = {tensor._id: name for name, tensor in (params or {}).items()}
    roots, nodes = fetch_nodes(session, tensors, saved)
    calls, inner = session.module_calls([node.command for node in nodes])
    return Graph(
        calls=calls,
        fold=fold,
        nodes=tuple(
            GraphNode(
                id=node.id,
                name=node.name,
                edges=tuple((edge.node, edge.output) for edge in node.edges),
                leaf=_leaf(session, node, names),
                saved_bytes=node.saved_bytes,
                freed=node.freed,
                retains_grad=node.retains_grad,
                saved=tuple(
                    f"{each.name} {dtypes.BY_CODE[each.dtype].name} {tuple(each.shape)}" for each in node.saved
                ),
                made_at=session.made_at(node.command),
                call=inner.get(node.command, -1),
            )
            for node in nodes
        ),
        roots=tuple(dict.fromkeys(root for root in roots if root)),
    )


def _leaf(session: SessionProtocol, node: commands_pb2.GraphNode, names: dict[int, str]) -> GraphLeaf | None:
    if not node.HasField("leaf"):
        return None
    spec = read_spec(node.leaf)
    owner: Any = session.watched.get(node.leaf.id)
    name = names.get(node.leaf.id) or getattr(owner, "name", None)
    return GraphLeaf(
        name=name if isinstance(name, str) else None,
        shape=tuple(spec.shape),
        dtype=spec.dtype.name,
        requires_grad=spec.requires_grad,
        device=node.leaf.device,
        version=node.leaf.version,
        has_grad=node.leaf.has_grad,
    )
