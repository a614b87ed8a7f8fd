"""Names of torch.utils._pytree, on the nested values of `func._pytree`; further containers can be registered."""

from __future__ import annotations

import collections
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

__all__ = [
    "SUPPORTED_NODES",
    "LeafSpec",
    "PyTree",
    "TreeSpec",
    "register_pytree_node",
    "tree_all",
    "tree_any",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_structure",
    "tree_unflatten",
]

PyTree = Any
Context = Any
FlattenFunc = Callable[[Any], tuple[Iterable[Any], Any]]
UnflattenFunc = Callable[[Any, Any], Any]


class NodeDef(NamedTuple):
    """How containers of a class are taken apart and put together."""

    type: Any
    flatten_fn: FlattenFunc
    unflatten_fn: UnflattenFunc


class TreeSpec:
    """The form of a nested value: a container's class, what else rebuilds it, and its children's forms."""

    def __init__(self, type: Any, context: Any, children_specs: Sequence[TreeSpec]) -> None:
        self.type = type
        self.context = context
        self.children_specs = list(children_specs)
        self.num_leaves: int = sum(child.num_leaves for child in children_specs)
        self.num_children = len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether it is a leaf."""
        return False

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The nested value with these leaves."""
        return tree_unflatten(leaves, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves))

    def _parts(self) -> tuple[Any, ...]:
        return (self.type, self.context, self.children_specs)

    def __repr__(self) -> str:
        return f"TreeSpec({getattr(self.type, '__name__', self.type)}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """The form of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.num_leaves = 1

    def is_leaf(self) -> bool:
        """True."""
        return True

    def __repr__(self) -> str:
        return "*"


_NAMED = collections.namedtuple  # stands for all classes of named tuples

SUPPORTED_NODES: dict[Any, NodeDef] = {
    each.type: each
    for each in (
        NodeDef(list, lambda tree: (tree, None), lambda children, context: list(children)),
        NodeDef(tuple, lambda tree: (tree, None), lambda children, context: tuple(children)),
        NodeDef(
            dict,
            lambda tree: (tree.values(), list(tree)),
            lambda children, keys: dict(zip(keys, children, strict=True)),
        ),
        NodeDef(
            OrderedDict,
            lambda tree: (tree.values(), list(tree)),
            lambda children, keys: OrderedDict(zip(keys, children, strict=True)),
        ),
        NodeDef(
            defaultdict,
            lambda tree: (tree.values(), [tree.default_factory, list(tree)]),
            lambda children, context: defaultdict(context[0], zip(context[1], children, strict=True)),
        ),
        NodeDef(deque, lambda tree: (tree, tree.maxlen), lambda children, longest: deque(children, maxlen=longest)),
        NodeDef(_NAMED, lambda tree: (tree, type(tree)), lambda children, kind: kind(*children)),
    )
}


def register_pytree_node(cls: type[Any], flatten_fn: FlattenFunc, unflatten_fn: UnflattenFunc, **options: Any) -> None:
    """Let a class's instances be containers: `flatten_fn` returns the children and what else rebuilds one."""
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn)


class MappingKey(NamedTuple):
    """A place in a dictionary."""

    key: Any


class SequenceKey(NamedTuple):
    """A place in a list or tuple."""

    idx: int


class GetAttrKey(NamedTuple):
    """A place in an object."""

    name: str


def _dict_flatten(tree: Any) -> tuple[list[Any], Any]:
    return list(tree.values()), list(tree)


def _dict_unflatten(children: Iterable[Any], keys: Any) -> dict[Any, Any]:
    return dict(zip(keys, children, strict=False))


def _dict_flatten_with_keys(tree: Any) -> tuple[list[tuple[MappingKey, Any]], Any]:
    return [(MappingKey(key), value) for key, value in tree.items()], list(tree)


def _list_flatten(tree: Any) -> tuple[Any, Any]:
    return tree, None


def _list_unflatten(children: Iterable[Any], context: Any) -> list[Any]:
    return list(children)


_register_pytree_node = register_pytree_node


def register_dataclass(cls: type[Any], **options: Any) -> None:
    """Let a dataclass's instances be containers of their fields."""
    names = list(cls.__dataclass_fields__)
    register_pytree_node(
        cls,
        lambda value: ([getattr(value, name) for name in names], None),
        lambda children, context: cls(**dict(zip(names, children, strict=True))),
    )


def is_namedtuple_instance(tree: Any) -> bool:
    """Whether it is a named tuple."""
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


_is_namedtuple_instance = is_namedtuple_instance


def _get_node_type(tree: Any) -> Any:
    """The key of a value in `SUPPORTED_NODES`, if it is a container."""
    return _NAMED if type(tree) not in SUPPORTED_NODES and is_namedtuple_instance(tree) else type(tree)


def _children(tree: Any, is_leaf: Callable[[Any], bool] | None) -> tuple[list[Any], Any, Any] | None:
    """A container's children, class and context; None for a leaf."""
    kind = _get_node_type(tree)
    if kind not in SUPPORTED_NODES or (is_leaf is not None and is_leaf(tree)):
        return None
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return list(children), kind, context


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves from left to right, and the form. None is a leaf."""
    found = _children(tree, is_leaf)
    if found is None:
        return [tree], LeafSpec()
    children, kind, context = found
    leaves: list[Any] = []
    specs = []
    for child in children:
        more, spec = tree_flatten(child, is_leaf)
        leaves.extend(more)
        specs.append(spec)
    return leaves, TreeSpec(kind, context, specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The nested value of that form. Raises ValueError for another number of leaves."""
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(given)} but the spec refers to a pytree that "
            f"holds {treespec.num_leaves} items."
        )
    return _rebuild(iter(given), treespec)


def _rebuild(leaves: Iterator[Any], spec: TreeSpec) -> Any:
    if spec.is_leaf():
        return next(leaves)
    children = [_rebuild(leaves, child) for child in spec.children_specs]
    return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves from left to right."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The form."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The nested value with the function's results for the leaves; further trees give further arguments."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    return tree_unflatten([func(*each) for each in zip(leaves, *others, strict=True)], spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Call the function with each leaf, and return the tree."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(kinds: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Decorator: the function applies to values of these types, others stay."""

    def of_kind(value: Any) -> bool:
        return isinstance(value, kinds) if isinstance(kinds, (type, tuple)) else bool(kinds(value))

    return lambda func: lambda value: func(value) if of_kind(value) else value


def tree_map_only(
    kinds: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """The nested value with the function's results for the leaves of these types."""
    return tree_map(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    kinds: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Call the function with each leaf of these types, and return the tree."""
    return tree_map_(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether it holds for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether it holds for a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec) -> list[Any] | None:
    """The leaves of a tree that is a prefix of the form; None if it is none."""
    if treespec.is_leaf():
        return [tree]
    found = _children(tree, None)
    if found is None:
        return [tree] * treespec.num_leaves
    children, kind, _ = found
    if kind is not treespec.type or len(children) != treespec.num_children:
        return None
    leaves: list[Any] = []
    for child, spec in zip(children, treespec.children_specs, strict=True):
        more = _broadcast_to_and_flatten(child, spec)
        if more is None:
            return None
        leaves.extend(more)
    return leaves
