"""Signature: base of ops and composites, with their name, parameters, argument binding and registry."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from gradwire_engine.core.dtypes import NAMES, TITLES, category
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.schema import REQUIRED, TENSOR_KINDS, Kind, Overload, Param, read_signature

_Function = TypeVar("_Function", bound=Callable[..., Any])
Views = Literal["never", "maybe", "always"]

#: Ops and composites that are called by name.
REGISTRY: dict[str, Signature] = {}


@dataclass(frozen=True)
class UnsupportedDtypes:
    """Dtypes for which PyTorch has no kernel, and its message; see `Signature.unsupported`."""

    kinds: str
    kernel: str
    message: str
    places: tuple[int, ...]
    except_for: tuple[str, ...]
    when: Callable[..., bool] | None


class Signature:
    """Base of ops and composites: name, parameters, argument binding, and supported dtypes."""

    def __init__(self, function: Callable[..., Any], name: str | None, skip: int, doc: str | None = None) -> None:
        self.function = function
        self.name = name or function.__name__.rstrip("_")
        self.params: tuple[Param, ...] = read_signature(function, skip)
        self.doc = inspect.cleandoc(doc or function.__doc__ or "")
        self.arity = len(self.params)
        self.positions = {param.name: place for place, param in enumerate(self.params)}
        self.defaults = tuple(param.default for param in self.params)
        self.keywords = tuple(param.name for param in self.params if param.keyword_only)
        self.positional = self.arity - len(self.keywords)
        self.forward = _by_place(function, skip, self.params) if self.keywords else function
        self.required = max((place + 1 for place, value in enumerate(self.defaults) if value is REQUIRED), default=0)
        self.outputs: tuple[str, ...] = ()
        self.has_in_place = False  # whether there is a form that ends in an underscore
        self.declared_overloads: tuple[Overload, ...] = ()
        #: "always" if the results share the first input's memory, "maybe" if some calls' results do, else "never".
        self.views: Views = "never"
        self.draws = False  # whether a call may draw random numbers
        self.deprecated = ""  # what to use instead; empty for an op that PyTorch has not deprecated
        self.unsupported_dtypes: tuple[UnsupportedDtypes, ...] = ()
        self.cast_positions: tuple[int, ...] = ()
        if not self.name.startswith("_"):
            if self.name in REGISTRY:
                raise ValueError(f"op {self.name} is declared twice")
            REGISTRY[self.name] = self

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Arguments in the parameters' order, with defaults. Raises EngineError: ARGUMENT_TYPE."""
        if not kwargs and self.required <= len(args) <= self.positional:
            return (*args, *self.defaults[len(args) :])
        bound = list(self.defaults)
        if len(args) > self.positional:
            self._refuse(f"takes {self.positional} positional arguments but {len(args)} were given")
        bound[: len(args)] = args
        for name, value in kwargs.items():
            place = self.positions.get(name)
            if place is None:
                self._refuse(f"got an unexpected keyword argument '{name}'; it has {', '.join(self.positions)}")
            elif place < len(args):
                self._refuse(f"got multiple values for argument '{name}'")
            else:
                bound[place] = value
        for place, value in enumerate(bound):
            if value is REQUIRED:
                self._refuse(f"missing 1 required argument: '{self.params[place].name}'")
        return tuple(bound)

    @property
    def overloads(self) -> tuple[Overload, ...]:
        """The ways to call the op, each with its own results. An op without declared ones has one way.

        A parameter of integers or a string makes two.
        """
        declared = self.declared_overloads or (Overload("", self.params, self.outputs),)
        return tuple(each for overload in declared for each in _apart(overload))

    def overload(self, name: str, *, outputs: tuple[str, ...] = ()) -> Callable[[_Function], _Function]:
        """Declare one of several ways to call the op: a decorator of a function that is only a signature.

        name: what tells it from the others, as in PyTorch's declarations. outputs: as the option of `@op`. Its
        parameters are some of the op's. A parameter `x: Literal[True]` has this value in every call of the overload.
        """

        def declare(function: _Function) -> _Function:
            made = Overload(name, read_signature(function, 0), outputs)
            unknown = [param.name for param in made.params if param.name not in self.positions]
            if unknown:
                raise ValueError(f"{self.name} has no parameter {', '.join(unknown)}")
            self.declared_overloads = (*self.declared_overloads, made)
            return function

        return declare

    def variant(self, name: str, outputs: tuple[str, ...] = (), **flags: bool) -> None:
        """Declare the overload that flags select, with the op's other parameters.

        A flag that has its default is no parameter of the overload: a call leaves it out.
        """
        params = tuple(
            replace(param, fixed=flags[param.name], default=REQUIRED, keyword_only=True)
            if param.name in flags
            else param
            for param in self.params
            if param.name not in flags or flags[param.name] is not param.default
        )
        self.declared_overloads = (*self.declared_overloads, Overload(name, params, outputs))

    def unsupported(
        self,
        kinds: str,
        kernel: str = "",
        message: str = "",
        of: Sequence[str] = (),
        except_for: Sequence[str] = (),
        when: Callable[..., bool] | None = None,
    ) -> None:
        """Declare dtypes that the op refuses, as PyTorch does.

        kinds: letters: "b" bool, "i" integer, "f" float, "c" complex.
        except_for: dtypes that are supported nevertheless.
        kernel: PyTorch's name of its kernel, for its usual message. message: another message of PyTorch's.
        of: names of the checked parameters; default: every tensor.
        when: function of the positional arguments that returns whether the refusal applies; default: always.
        Not declared: kernels that PyTorch lacks on CPUs only. These are float16 and bfloat16 of avg_pool3d, ctc_loss,
        pdist, multi_margin_loss, multilabel_margin_loss, and the derivatives of i1 and i1e.
        """
        named = tuple(self.positions[name] for name in of)
        places = named or tuple(place for place, param in enumerate(self.params) if param.kind in TENSOR_KINDS)
        self.unsupported_dtypes = (
            *self.unsupported_dtypes,
            UnsupportedDtypes(kinds, kernel, message, places, tuple(except_for), when),
        )

    def given(self, parameter: str, value: Any) -> Callable[..., bool]:
        """Predicate for `unsupported`: whether this parameter has this value."""
        place = self.positions[parameter]
        return lambda *args: args[place] == value

    def unsupported_error(self, args: Sequence[Any]) -> EngineError | None:
        """Refusal of the first operand with an unsupported dtype, NOT_SUPPORTED or RUNTIME; None if there is none."""
        for rule in self.unsupported_dtypes:
            for place in rule.places:
                dtype = getattr(args[place], "dtype", None)
                if dtype is None or "bifc"[category(dtype)] not in rule.kinds or NAMES[dtype] in rule.except_for:
                    continue
                if rule.when is None or rule.when(*args):
                    message = rule.message or f"\"{rule.kernel}\" not implemented for '{TITLES[dtype]}'"
                    return EngineError(Reason.RUNTIME if rule.message else Reason.NOT_SUPPORTED, message, op=self.name)
        return None

    def _refuse(self, what: str) -> None:
        raise EngineError(Reason.ARGUMENT_TYPE, f"{self.name}() {what}", op=self.name)


def _apart(overload: Overload) -> tuple[Overload, ...]:
    """An overload with integers or a string for a parameter, as two."""
    for place, param in enumerate(overload.params):
        if param.kind is Kind.INTEGERS_OR_STRING:
            before, after = overload.params[:place], overload.params[place + 1 :]
            numbers = replace(param, kind=Kind.INTEGERS, choices=())
            text = replace(param, kind=Kind.STRING, default=REQUIRED, keyword_only=True)
            return (
                replace(overload, params=(*before, numbers, *after)),
                replace(overload, name=param.name, params=(*before, text, *after)),
            )
    return (overload,)


def _by_place(function: Callable[..., Any], skip: int, params: Sequence[Param]) -> Callable[..., Any]:
    """The function with its keyword-only parameters as last positional ones, so a call needs no dict.

    The wrapper is source text, as in dataclasses, so its keywords are known to the compiler. `python -m benchmarks
    tricks` measures it: a chain of small ops takes about 1.1 times as long with a dict per call.
    """
    names = [*[f"_{place}" for place in range(skip)], *[param.name for param in params]]
    passed = [*names[:skip], *[f"{each.name}={each.name}" if each.keyword_only else each.name for each in params]]
    source = f"lambda {', '.join(names)}: _function({', '.join(passed)})"
    return eval(source, {"_function": function})  # type: ignore[no-any-return]
