"""Reachable state: walks everything a call can read, from its arguments and the names it looked up.

Every mutable object found gets a snapshot (value_snapshots.py). An object that cannot be inspected (an iterator, a
file, a clock) sets `opaque`; the call is then not replayed. Objects of unknown kinds count as such objects.
"""

from __future__ import annotations

import abc
import decimal
import sys
import types
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from gradwire._compile import value_snapshots
from gradwire._compile.kinds import (
    CONTAINERS,
    OF_CLASSES,
    OF_FUNCTIONS,
    PASSIVE,
    content_of,
    dict_of,
    fetch_of,
    foreign_bases,
    is_fixed,
    is_ours,
    is_special,
    is_trusted_class,
    operators,
    tensor_names,
    title_of,
)
from gradwire._compile.purity import LIBRARY, TRUSTED, has_plain_layout, is_a, is_pure, module_of, reads_all
from gradwire._compile.usage_tracker import CallUsage
from gradwire._compile.value_snapshots import MISSING, PLAIN, Same, ValueSnapshot, plain
from gradwire._proxy.handle import Handle

#: Maximum number of snapshots.
_MOST = 50_000
TOO_MUCH = f"more than {_MOST} objects can be read by it"
# Attributes of this package's objects that do not affect what a call computes.
_IGNORED = frozenset(("_owner", "_steps", "_stepping", "_opt_called", "_scheduled_step"))
# Attributes that Python adds to a class when it is first asked for them.
_LATE = frozenset(("__annotations__", "__annotations_cache__", "__slotnames__", "__signature__"))
_WALKED_PACKAGES = ("gradwire.nn", "gradwire.optim", "gradwire.distributions", "gradwire.amp", "gradwire.func")
_ALWAYS = ("forward", "__call__", "__getattr__", "__getattribute__", "__setattr__")


class ReachableState:
    """One walk over everything that can be read.

    With `usage`, the names that the call used count. Without it, all names in the code of the found functions count.
    That is a superset of what a call can read, except that installed code is left out.
    """

    def __init__(self, usage: CallUsage | None = None, learned: Iterable[CallUsage] = ()) -> None:
        self.usage = usage
        self.snapshots: list[ValueSnapshot] = []
        self.handles: dict[int, Handle] = {}
        #: Optimizers' learning rates. They may vary between calls but not within a call.
        self.rates: dict[int, Any] = {}
        self.opaque: str | None = None
        #: Whether the limit of snapshots was reached, so the walk is incomplete.
        self.exceeded = False
        self.codes: set[types.CodeType] = set()
        #: By value id: the value's number in the order of discovery.
        self.numbers: dict[int, int] = {}
        #: Ids of values without a snapshot; these compare by identity.
        self._without_snapshot: set[int] = set()
        self._roots: list[Any] = []
        self._learned = list(learned)
        self._strict = usage is None or usage.reads_rates
        self._names: tuple[str, ...] = tuple(sorted(usage.attributes)) if usage is not None else ()
        self._reads_all = any(each.reads_all for each in ([usage] if usage is not None else self._learned))
        self._finds_reader = False
        self._has_numpy = False
        self._found_names: set[str] = set()
        #: Values whose snapshots depend on the names.
        self._read_by_name: list[tuple[Any, str]] = []
        self._has_layers = False
        #: By a class's id, since a metaclass may call two classes equal: the slots that are read.
        self._members: dict[int, list[Any]] = {}
        self._queue: deque[tuple[Any, str]] = deque()
        self._key: tuple[Any, ...] | None = None

    def walk(self, roots: Iterable[Any]) -> ReachableState:
        """Look at the roots and at everything they hold."""
        self._roots = list(roots)
        self._pass()
        if self.usage is None:
            while not self.exceeded and not self._found_names.issubset(self._names):
                self._names = tuple(sorted(self._found_names.union(self._names)))
                self._look_for_names()
        elif not self.exceeded and self._finds_reader and not self._reads_all:
            self.usage.reads_all = self._reads_all = self._strict = self.usage.reads_rates = True
            self._pass()
        self._add_ours()
        return self

    def _pass(self) -> None:
        self.snapshots.clear()
        self.numbers.clear()
        self.handles.clear()
        self.rates.clear()
        self.codes.clear()
        self._without_snapshot.clear()
        self._members.clear()
        for root in self._roots:
            self._enqueue(root, "an argument or the function")
        for usage in self._learned if self.usage is None else [self.usage]:
            self._add_used(usage)
        self._follow()

    def _follow(self) -> None:
        """Look at what is queued, and at everything it holds."""
        while self._queue and len(self.snapshots) < _MOST:
            value, name = self._queue.popleft()
            count = len(self.snapshots)
            self._inspect(value, name)
            if len(self.snapshots) == count:
                self._without_snapshot.add(id(value))
        if self._queue:
            self._refuse(TOO_MUCH)
            self.exceeded = True
            self._queue.clear()

    def _look_for_names(self) -> None:
        """Look again at what is read by name, since names were found behind it.

        Further snapshots of a value are no matter before a call: `changed_since` joins their names.
        """
        again, self._read_by_name = self._read_by_name, []
        for value, name in again:
            self._inspect(value, name)
        self._follow()

    def _add_used(self, usage: CallUsage) -> None:
        import builtins

        if self.usage is None:
            self._found_names |= usage.attributes
        for held, names in usage.globals.values():
            labels = tuple(sorted(names))
            self._add(held, value_snapshots.of_names, labels)
            self._add(builtins.__dict__, value_snapshots.of_names, tuple(name for name in labels if name not in held))
        if usage.modules:
            self._add(sys.modules, value_snapshots.of_names, tuple(sorted(usage.modules)))

    def _add_ours(self) -> None:
        """Look at this package's assignable parts: methods of tensors, functions of layers."""
        from gradwire._tensor.tensor import Tensor

        names = {name for name in self._names if name in tensor_names()}.union(operators())
        self.snapshots.append(ValueSnapshot(Tensor, value_snapshots.of_attributes, tuple(sorted(names))))
        functional = sys.modules.get("gradwire.nn.functional")
        if functional is not None and self._has_layers:
            held = functional.__dict__
            functions = tuple(name for name in held if is_a(held[name], types.FunctionType))
            self.snapshots.append(ValueSnapshot(held, value_snapshots.of_names, functions))
        # Before a call it is unknown whether the call reads these.
        if self.usage is None or self.usage.reads_abstract:
            self.snapshots.append(ValueSnapshot(abc, value_snapshots.of_abstract))
        if self.usage is None or self._has_numpy:
            self.snapshots.append(ValueSnapshot(np, value_snapshots.of_numpy))

    # Discovery of values.

    def _enqueue(self, value: Any, name: str) -> None:
        """Number a value and queue it, unless it is plain, fixed or already numbered."""
        kind = type(value)
        if kind in PLAIN or value is MISSING or id(value) in self.numbers:
            return
        if kind in CONTAINERS:  # none of the questions below is about them
            self.numbers[id(value)] = len(self.numbers)
            self._queue.append((value, name))
            return
        self._finds_reader = self._finds_reader or reads_all(value)
        self._has_numpy = self._has_numpy or value is np or module_of(type(value)).startswith("numpy")
        if value is np.datetime64:
            self._refuse("it uses numpy.datetime64, which may read the clock")
        if is_fixed(value):
            return
        self.numbers[id(value)] = len(self.numbers)
        self._queue.append((value, name))

    def _add(self, value: Any, fetch: value_snapshots.Fetch, labels: Any = None, name: str = "") -> ValueSnapshot:
        snapshot = ValueSnapshot(value, fetch, labels)
        self.snapshots.append(snapshot)
        names = labels if is_a(labels, tuple) and len(labels) == len(snapshot.items) else ()
        numbers = self.numbers
        for place, item in enumerate(snapshot.items):
            if item is MISSING or type(item) in PLAIN or id(item) in numbers:
                continue
            named = names[place] if names and is_a(names[place], str) else name
            self._enqueue(item, named)
        return snapshot

    def _refuse(self, why: str) -> None:
        if self.opaque is None:
            self.opaque = why

    def _inspect(self, value: Any, name: str) -> None:
        container = CONTAINERS.get(type(value))
        if container is not None:
            self._add(value, container, name=name)
        elif is_a(value, Handle):
            self._add_tensor(value)
        elif is_a(value, types.FunctionType):
            self._read_by_name.append((value, name))
            self._add_function(value, name)
        elif module_of(type(value)) == "decimal" or value is decimal.Decimal:
            self._add(value, value_snapshots.of_decimal)
        elif is_a(value, type):
            self._read_by_name.append((value, name))
            self._add_class(value, name)
        elif is_a(value, types.ModuleType) and type(value) is types.ModuleType:
            self._read_by_name.append((value, name))
            self._add_module(value)
        elif hasattr(type(value), "__guard__"):
            self._add(value, value_snapshots.of_guard, name=name)
        else:
            fetch = fetch_of(value)
            if fetch is not None:
                self._add(value, fetch, name=name)
            elif is_a(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
                self._add_builtin(value, name)
            elif value is sys.modules or not has_plain_layout(type(value)):
                self._add_opaque(value, name)
            else:
                self._add_instance(value, name)

    def _add_opaque(self, value: Any, name: str) -> None:
        where = self.usage.where(name) if self.usage is not None else ""
        self._refuse(f"it uses {name!r} ({title_of(type(value))}), which cannot be compared{where}")

    def _add_builtin(self, value: Any, name: str) -> None:
        owner = getattr(value, "__self__", None)
        if is_a(value, types.BuiltinFunctionType) and not is_pure(value):
            where = self.usage.where(name) if self.usage is not None else ""
            self._refuse(f"it uses {name!r}, which depends on or changes more than its arguments{where}")
        elif owner is not None and not is_a(owner, (types.ModuleType, type)):
            self._add(value, value_snapshots.of_builtin, name=name)

    def _add_tensor(self, value: Handle) -> None:
        self.handles[value._id] = value
        held: Any = value.__dict__
        labels = self._names
        if self.usage is None:  # before a call, what is not set on it stands for itself: `_same_tensor`
            labels = tuple(sorted(held.keys() - {"_view"} - _IGNORED)) if held else ()
        elif self._reads_all:
            labels = tuple(sorted({*labels, *held} - {"_view"} - _IGNORED))
        self._add(value, value_snapshots.of_tensor, labels)
        if not is_ours(type(value)):
            self._enqueue(type(value), type(value).__name__)

    # Functions.

    def _add_function(self, value: types.FunctionType, name: str) -> None:
        code = value.__code__
        internal = TRUSTED[code.co_filename]
        runs = self._runs(code)
        deep = runs or (internal and value.__closure__ is not None)
        self._add(value, value_snapshots.of_function if deep else value_snapshots.of_code, name=code.co_name)
        if self._names and value.__dict__ and not internal:
            if self._reads_all:
                self._add(value.__dict__, value_snapshots.of_dict)
            else:
                self._add(value.__dict__, value_snapshots.of_names, self._names)
        if not LIBRARY[code.co_filename]:
            self._add_shown(value, OF_FUNCTIONS)
        if not deep:
            return
        self.codes.add(code)
        free = code.co_freevars
        if self.usage is not None and not internal:
            free = tuple(each for each in free if each in self.usage.cells)
        self._add(value, value_snapshots.of_cells, free)
        if self.usage is None and not internal:
            self._add_static(code, value.__globals__)

    def _add_shown(self, value: Any, shown: tuple[str, ...]) -> None:
        """Look at mutable descriptive attributes of a function or class that its `__dict__` does not hold."""
        labels = tuple(name for name in shown if self._reads_all or name in self._names)
        if labels:
            self._add(value, value_snapshots.of_shown, labels)

    def _runs(self, code: types.CodeType) -> bool:
        if self.usage is not None:
            return code in self.usage.codes
        return not LIBRARY[code.co_filename] or any(code in usage.codes for usage in self._learned)

    def _add_static(self, code: types.CodeType, held: dict[str, Any]) -> None:
        names, inner = set(code.co_names), [code]
        while inner:
            for constant in inner.pop().co_consts:
                if is_a(constant, types.CodeType):
                    names.update(constant.co_names)
                    inner.append(constant)
                elif is_a(constant, str):
                    names.add(constant)
        self._found_names |= names
        labels = tuple(sorted(names))
        self._add(held, value_snapshots.of_names, labels)
        import builtins

        self._add(builtins.__dict__, value_snapshots.of_names, tuple(each for each in labels if each not in held))

    # Classes, modules, objects.

    def _add_class(self, value: type[Any], name: str) -> None:
        if not value.__flags__ & (1 << 9) or not has_plain_layout(value):
            self._add(value, value_snapshots.of_kind)
            return
        self._add(value, value_snapshots.of_bases)
        if is_trusted_class(value):  # an attribute that is new may stand for an inherited one
            self._add(value, value_snapshots.of_class_count, _LATE)
        if not is_ours(value) and is_trusted_class(value):
            self._add(value, value_snapshots.of_class, tuple(each for each in self._names if each in value.__dict__))
            return
        labels = {each for each in (*self._names, *_ALWAYS) if each in value.__dict__ or not is_ours(value)}
        if not is_ours(value):
            self._add(value, value_snapshots.of_class_names)
            for each, held in value.__dict__.items():
                if self.usage is None or self._reads_all or self._is_used(held) or is_special(each, held):
                    labels.add(each)
            labels -= PASSIVE
            self._add_shown(value, OF_CLASSES)
            if type(value) not in (type, abc.ABCMeta) and is_trusted_class(type(value)):
                labels = {*value.__dict__} - PASSIVE  # the metaclass reads them
        elif "forward" in value.__dict__ or "step" in value.__dict__:
            labels |= {"forward", "step", "_update"}
        self._add(value, value_snapshots.of_class, tuple(sorted(labels)))
        if type(value) is not type and not is_trusted_class(type(value)):
            self._enqueue(type(value), type(value).__name__)

    def _is_used(self, held: Any) -> bool:
        """Whether a class attribute is, or wraps, a function that the call ran."""
        if is_a(held, property):
            return any(self._is_used(each) for each in (held.fget, held.fset, held.fdel))
        held = getattr(held, "__func__", getattr(held, "func", held))
        held = getattr(held, "__wrapped__", held) if not is_a(held, types.FunctionType) else held
        return is_a(held, types.FunctionType) and (
            self._runs(held.__code__) or (TRUSTED[held.__code__.co_filename] and held.__closure__ is not None)
        )

    def _add_module(self, value: types.ModuleType) -> None:
        labels: tuple[str, ...] = (*self._names, "__getattr__")
        if self._reads_all and not LIBRARY[getattr(value, "__file__", None) or ""]:
            held = value.__dict__
            kept = {each for each in held if not each.startswith("__")}
            calls = {each for each in kept if is_a(held[each], types.BuiltinFunctionType)}
            # Their identity counts; their effect is watched when they are called.
            self.snapshots.append(ValueSnapshot(held, value_snapshots.of_names, tuple(sorted(calls))))
            labels = tuple(sorted({*labels, *(kept - calls)}))
        if value.__name__.partition(".")[0] == "gradwire":
            labels = self._names
        self._add(value.__dict__, value_snapshots.of_names, labels)

    def _add_instance(self, value: Any, name: str) -> None:
        kind = type(value)
        if module_of(kind).partition(".")[0] == "gradwire" and not module_of(kind).startswith(_WALKED_PACKAGES):
            return
        self._add(value, value_snapshots.of_kind, name=name)
        content = content_of(value)
        if content is not None:
            self._add(value, content, name=name)
        held = dict_of(value)
        self._has_layers = self._has_layers or "_modules" in (held or ())
        if hasattr(kind, "__has_param_groups__"):
            self._read_by_name.append((value, name))
            self._add_optimizer(value)
        elif is_a(held, dict):
            labels = self._labels_of(kind, held)
            if labels is None:
                self._add(held, value_snapshots.of_dict, name=name)
            else:
                self._read_by_name.append((value, name))
                self._add(held, value_snapshots.of_names, labels, name)
                if foreign_bases(kind) == "all":  # an attribute that is new may stand for one of the class
                    self._add(held, value_snapshots.of_count, _IGNORED)
        self._add_slots(value, kind)

    def _labels_of(self, kind: type[Any], held: dict[str, Any]) -> tuple[str, ...] | None:
        """Attributes of an object that count; None for all."""
        ours = foreign_bases(kind)
        if self.usage is None or self._reads_all or ours == "all":
            if not _IGNORED & held.keys():
                return None
            return tuple(sorted({*self._names, *held} - _IGNORED))
        if ours == "module":
            own = (each for each in held if each.startswith("_") or each == "training")
            return tuple(sorted({*self._names, *own, "forward"} - _IGNORED))
        return self._names

    def _add_slots(self, value: Any, kind: type[Any]) -> None:
        members = self._members.get(id(kind))
        if members is None:
            members = self._members[id(kind)] = [
                member
                for base in kind.__mro__
                for name, member in base.__dict__.items()
                if is_a(member, types.MemberDescriptorType)
                and (self.usage is None or self._reads_all or name in self.usage.attributes)
            ]
        if members:
            self._add(value, value_snapshots.of_slots, tuple(members))

    def _add_optimizer(self, value: Any) -> None:
        """Look at an optimizer's options without learning rates, and its state without step counts.

        Only differences between step counts matter. If the call reads rates, all attributes get a snapshot.
        """
        held = value.__dict__
        self.rates.update((id(group), group.get("lr")) for group in value.param_groups)
        self._add(value, value_snapshots.of_steps)
        self._add(held, value_snapshots.of_count, _IGNORED)
        if self._strict:
            self._add(held, value_snapshots.of_names, tuple(sorted({*self._names, *held} - _IGNORED)))
            return
        excluded = {"param_groups", "state", "defaults"} | _IGNORED
        self._add(held, value_snapshots.of_names, tuple(sorted({*self._names, *held} - excluded)))
        # Not queued: code that reaches a group by another way may read its rate.
        self.snapshots.append(ValueSnapshot(held, value_snapshots.of_names, ("param_groups", "state")))
        self.snapshots.append(ValueSnapshot(value.param_groups, value_snapshots.of_list))
        self.snapshots.append(ValueSnapshot(value.state, value_snapshots.of_dict))
        for group in value.param_groups:
            self._add(group, value_snapshots.of_names, tuple(name for name in group if name != "lr"))
        for param, state in value.state.items():
            self._enqueue(param, "a parameter")
            self._add(state, value_snapshots.of_names, tuple(name for name in state if name != "step"))

    # Results.

    def key(self) -> tuple[Any, ...]:
        """Key that is equal for different objects with the same structure and values."""
        if self._key is None:
            self._key = self._make_key()
        return self._key

    def _make_key(self) -> tuple[Any, ...]:
        parts: list[Any] = [self._identity(root) for root in self._roots]
        parts.extend(
            (snapshot.fetch, snapshot.labels, tuple([self._identity(item) for item in snapshot.items]))
            for snapshot in self.snapshots
        )
        return tuple(parts)

    def _identity(self, item: Any) -> Any:
        if type(item) in PLAIN:
            return plain(item)
        number = self.numbers.get(id(item))
        if number is None or id(item) in self._without_snapshot or is_a(item, (Handle, type, types.ModuleType)):
            return Same(item)
        return number

    def changed_since(self, before: ReachableState) -> str | None:
        """Name of something that changed since `before`; None if nothing did."""
        held = {(id(snapshot.value), snapshot.fetch): snapshot for snapshot in before.snapshots}
        names: dict[int, dict[str, Any]] = {}
        for snapshot in before.snapshots:
            if snapshot.fetch in _NAMED:
                names.setdefault(id(snapshot.value), {}).update(zip(snapshot.labels, snapshot.items, strict=True))
            elif snapshot.fetch is value_snapshots.of_dict:
                count = len(snapshot.items) // 2
                pairs = zip(snapshot.items[:count], snapshot.items[count:], strict=True)
                names.setdefault(id(snapshot.value), {}).update(pair for pair in pairs if is_a(pair[0], str))
        met = {id(snapshot.value) for snapshot in before.snapshots}
        for snapshot in self.snapshots:
            if id(snapshot.value) not in met and _is_of_library(snapshot.value):
                continue  # a name of this package or of Python that was loaded during the call
            known = names.get(id(snapshot.value))
            if snapshot.fetch in _NAMED:
                for name, item in zip(snapshot.labels, snapshot.items, strict=True):
                    was = MISSING if known is None else known.get(name, MISSING)
                    if not value_snapshots.same_item(was, item) and not (
                        was is MISSING and _loads_late(snapshot.value)
                    ):
                        return str(getattr(name, "__name__", name))
            elif snapshot.fetch is value_snapshots.of_tensor:
                was_look = held.get((id(snapshot.value), snapshot.fetch))
                if was_look is None or not _same_tensor(was_look, snapshot):
                    return str(getattr(snapshot.value, "name", None) or "a tensor")
            elif snapshot.fetch is not value_snapshots.of_code:
                was_look = held.get((id(snapshot.value), snapshot.fetch))
                if was_look is None or not value_snapshots.same_items(was_look.items, snapshot.items):
                    return title_of(type(snapshot.value))
        return None

    def missing_code(self) -> types.CodeType | None:
        """Code that ran but belongs to no found function and is not nested in one; None if there is none."""
        if self.usage is None:
            return None
        inside = [*self.codes]
        known = set(inside)
        while inside:
            for constant in inside.pop().co_consts:
                if is_a(constant, types.CodeType) and constant not in known:
                    known.add(constant)
                    inside.append(constant)
        for code in self.usage.codes:
            if code not in known and code.co_name not in ("<module>", "__del__"):
                return code
        return None


_NAMED = (
    value_snapshots.of_names,
    value_snapshots.of_class,
    value_snapshots.of_cells,
    value_snapshots.of_slots,
    value_snapshots.of_attributes,
)


def _is_of_library(value: Any) -> bool:
    """Whether a value is a function or class of this package or of a trusted module."""
    if is_a(value, types.FunctionType):
        return TRUSTED[value.__code__.co_filename] and value.__closure__ is None
    return is_a(value, type) and (module_of(value) == "builtins" or is_trusted_class(value))


def _loads_late(held: Any) -> bool:
    """Whether a dictionary holds the globals of a module of this package, which loads names lazily."""
    return type(held) is dict and str(held.get("__name__")).partition(".")[0] == "gradwire"


def _same_tensor(before: ValueSnapshot, after: ValueSnapshot) -> bool:
    """Whether a tensor's description and the attributes set on it are unchanged."""
    held = dict(zip(before.labels, before.items[4:], strict=True))
    set_on_it = zip(after.labels, after.items[4:], strict=True)
    return value_snapshots.same_items(before.items[:4], after.items[:4]) and all(
        value_snapshots.same_item(held.get(name, MISSING), item) for name, item in set_on_it
    )
