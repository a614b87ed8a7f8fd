"""Containers: modules that hold modules or parameters in order or by name."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, overload

from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module, indented
from gradwire.nn._parameter import Parameter, set_owner


class _Sequence(Module):
    """Modules under the names "0", "1", ...: what Sequential and ModuleList share."""

    def _position(self, index: int) -> int:
        count, index = len(self), operator.index(index)
        if not -count <= index < count:
            raise IndexError(f"index {index} is out of range")
        return index % count

    def _values(self) -> list[Any]:
        return list(self._modules.values())

    def _fill(self, modules: Iterable[Any]) -> None:
        """Hold these modules and no others, numbered."""
        kept = list(modules)
        self._modules.clear()
        for place, module in enumerate(kept):
            self.add_module(str(place), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values())

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[self._position(index)], module)

    def __delitem__(self, index: int | slice) -> None:
        kept = self._values()
        if isinstance(index, slice):
            del kept[index]
        else:
            del kept[self._position(index)]
        self._fill(kept)

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns this container."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put a module before the one at `index`."""
        if not isinstance(module, Module):
            raise TypeError(f"{type(module)} is not a Module subclass")
        kept = self._values()
        kept.insert(index, module)
        self._fill(kept)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end; returns this container."""
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, index: int = -1) -> Module:
        """Take a module out and return it."""
        taken: Module = self._values()[self._position(index)]
        del self[index]
        return taken


class Sequential(_Sequence):
    """Modules called one after the other: `Sequential(a, b)` or `Sequential(OrderedDict(name=a, ...))`.

    Like torch.nn.Sequential.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            self._fill(args)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._values()[self._position(index)]

    def forward(self, input: Any) -> Any:
        """The last module's result."""
        for module in self._modules.values():
            assert module is not None
            input = module(input)
        return input


class ModuleList(_Sequence):
    """Modules in a list, registered; it has no forward. Like torch.nn.ModuleList."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self._fill(modules or ())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ModuleList: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(self._values()[index])
        return self._values()[self._position(index)]

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        self.extend(modules)
        return self

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        # Neighbours that print alike are shown once, with their count.
        lines, start = [], 0
        for text, group in groupby(repr(module) for module in self):
            count = len(list(group))
            label = f"({start}): " if count == 1 else f"({start}-{start + count - 1}): {count} x "
            lines.append(indented(label + text))
            start += count
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"


class ModuleDict(Module):
    """Modules by name, registered. Like torch.nn.ModuleDict."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of name and module."""
        return self._modules.items()

    def pop(self, key: str) -> Any:
        """Take a module out and return it."""
        return self._modules.pop(key)

    def clear(self) -> None:
        """Hold nothing any more."""
        self._modules.clear()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Hold these modules too; of the same name, the new one is kept."""
        for name, module in modules.items() if isinstance(modules, Mapping | ModuleDict) else modules:
            self[name] = module


class ParameterList(Module):
    """Parameters in a list, registered; other tensors become parameters. Like torch.nn.ParameterList."""

    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def _fill(self, values: Iterable[Tensor]) -> None:
        kept = list(values)
        self._parameters.clear()
        self.extend(kept)

    def _position(self, index: int) -> int:
        count, index = len(self), operator.index(index)
        if not -count <= index < count:
            raise IndexError(f"index {index} is out of range")
        return index % count

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._parameters.values()))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ParameterList: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._parameters[str(self._position(index))]

    def __setitem__(self, index: int, value: Tensor) -> None:
        self._hold(str(self._position(index)), value)

    def __iadd__(self, values: Iterable[Tensor]) -> ParameterList:
        return self.extend(values)

    def _hold(self, name: str, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"ParameterList holds tensors, not {type(value).__name__}")
        made = value if isinstance(value, Parameter) else Parameter(value)
        self._parameters[name] = made
        set_owner(made, self, name)

    def append(self, value: Tensor) -> ParameterList:
        """Add a parameter at the end; returns this list."""
        self._hold(str(len(self)), value)
        return self

    def extend(self, values: Iterable[Tensor]) -> ParameterList:
        """Add parameters at the end; returns this list."""
        for value in list(values):
            self.append(value)
        return self

    def pop(self, index: int = -1) -> Any:
        """Take a parameter out and return it."""
        kept = list(self)
        taken = kept.pop(self._position(index))
        self._fill(kept)
        return taken

    def extra_repr(self) -> str:
        """The kind, dtype and size of each parameter."""
        lines = []
        for place, param in enumerate(self):
            size = "x".join(map(str, param.shape))
            where = "" if param.device.type == "cpu" else f" ({param.device})"
            lines.append(f"  ({place}): Parameter containing: [{param.dtype} of size {size}{where}]")
        return "\n".join(lines)


class ParameterDict(Module):
    """Parameters and other objects by name; tensors become parameters. Like torch.nn.ParameterDict.

    Each is an attribute of its name, so parameters are registered.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, _name_of(key))

    def __setitem__(self, key: str, value: Any) -> None:
        name = _name_of(key)
        if isinstance(value, Tensor):
            self._forget(name, but="_parameters")  # of another object
            self.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value))
        else:
            setattr(self, name, value)
        self._keys[name] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, _name_of(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __or__(self, other: Any) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        """The parameters and other objects."""
        return (self[key] for key in self._keys)

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of name and object."""
        return ((key, self[key]) for key in self._keys)

    def get(self, key: str, default: Any = None) -> Any:
        """The object of a name, or `default`."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The object of a name, which is `default` if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Take an object out and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take the last object out and return it with its name."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def clear(self) -> None:
        """Hold nothing any more."""
        for key in list(self._keys):
            del self[key]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Another dictionary of these names, each with the same object."""
        return ParameterDict([(key, default) for key in keys])

    def copy(self) -> ParameterDict:
        """Another dictionary of the same objects."""
        return ParameterDict(self)

    def update(self, parameters: Any) -> None:
        """Hold these too; of the same name, the new one is kept. Those of a plain mapping are sorted by name."""
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but got "
                + type(parameters).__name__
            )
        if isinstance(parameters, OrderedDict | ParameterDict):
            pairs = parameters.items()
        else:
            pairs = sorted(parameters.items()) if isinstance(parameters, Mapping) else parameters
        for place, pair in enumerate(pairs):
            if not isinstance(pair, Iterable):
                raise TypeError(
                    f"ParameterDict update sequence element #{place} should be Iterable; is{type(pair).__name__}"
                )
            if len(pair) != 2:
                raise ValueError(
                    f"ParameterDict update sequence element #{place} has length {len(pair)}; 2 is required"
                )
            self[pair[0]] = pair[1]

    def extra_repr(self) -> str:
        """The kind, dtype and size of each parameter, and the type of other objects."""
        lines = []
        for name, param in self.items():
            if not isinstance(param, Tensor):
                lines.append(f"  ({name}): Object of type: {type(param).__name__}")
                continue
            size = "x".join(map(str, param.shape))
            where = "" if param.device.type == "cpu" else f" ({param.device})"
            kind = param.detach().type()
            lines.append(f"  ({name}): Parameter containing: [{kind} of size {size}{where}]")
        return "\n".join(lines)


def _name_of(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(
            "Index given to ParameterDict cannot be used as a key as it is not a string "
            f"(type is '{type(key).__name__}'). Open an issue on github if you need non-string keys."
        )
    return key
