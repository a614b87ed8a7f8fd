"""Steps of random programs, as lines of source: what may be drawn of the tensors that there are.

A line names the module `t`, earlier results (`r3`, `r5[1]`) and writes to at most one new name, `r{number}`. It is
drawn with PyTorch's tensors at hand, so most lines fit; some are wrong on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from tests.parity import fuzz, fuzz_calls, fuzz_core
from tests.parity.drawn import words

DTYPES = {"float64": 50, "float32": 25, "int64": 9, "bool": 4, "complex128": 7, "int32": 2, "float16": 1, "uint8": 1}
SHAPES = ((), (1,), (2,), (3,), (3,), (2, 3), (2, 3), (3, 2), (3, 3), (2, 2), (2, 2, 3), (1, 3), (3, 1), (0,))
#: Calls whose results or cost have no place in a comparison.
SKIPPED = frozenset(["rrelu", "alpha_dropout", "feature_alpha_dropout", "dropout", "conj", "adjoint"])

assert fuzz_calls.calls is fuzz_core.calls

Maker = Callable[["Writer"], "str | None"]


class Borrowed(fuzz.Made):
    """A tensor of the program that takes the place of one that would be made for a call."""

    expression: str
    given: Any


class BorrowingDraw(fuzz.Draw):
    """Draws arguments of a call of which some are tensors of the program."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer.rng.randrange(1 << 31))
        self.writer = writer

    def shape(self, low: int = 0, high: int = 4, most: int = 4, empty: float = 0.05) -> tuple[int, ...]:
        fit = [value.shape for value in self.writer.live.values() if low <= value.dim() <= high]
        if fit and self.chance(0.8):
            return tuple(fit[self.int(0, len(fit) - 1)])
        return super().shape(low, high, most, empty)

    def dtype(self, among: Any = fuzz.EVERY) -> str:
        known = [str(value.dtype)[6:] for value in self.writer.live.values()]
        fit = [name for name in known if name in among]
        return fit[self.int(0, len(fit) - 1)] if fit and self.chance(0.85) else super().dtype(among)

    def tensor(self, shape: Any, dtype: str | None = None, *args: Any, **named: Any) -> fuzz.Made:
        made = super().tensor(shape, dtype, *args, **named)
        fit = [
            name for name, value in self.writer.live.items()
            if tuple(value.shape) == made.shape and (dtype is None or str(value.dtype)[6:] == dtype)
        ]  # fmt: skip
        if not fit or self.chance(0.15):
            return made
        name = fit[self.int(0, len(fit) - 1)]
        value = self.writer.live[name].detach()
        if value.dtype is torch.complex32:  # NumPy has no such dtype
            return made
        wide = value.float() if value.dtype is torch.bfloat16 else value
        borrowed = Borrowed(wide.resolve_conj().resolve_neg().numpy().copy(), str(value.dtype)[6:], "plain", False)
        borrowed.expression, borrowed.given = name, borrowed.values
        return borrowed


class Writer:
    """Draws a program's lines. `live` are PyTorch's tensors by the expression that names each."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.live: dict[str, torch.Tensor] = {}
        self.optimizers: list[str] = []
        self.number = 0

    def line(self) -> str:
        """The next line."""
        while True:
            kinds = words.FIRST if len(self.live) < 3 else words.KINDS
            kinds = kinds if self.live else {"create": 1}
            (kind,) = self.rng.choices(list(kinds), list(kinds.values()))
            text = getattr(self, f"_{kind}")()
            if not text or ("median" in text and self._names_expanded(text)):
                continue
            if kind not in ("create", "back", "grads", "optimize") and self.chance(0.15):
                mode = self.pick("no_grad()", "no_grad()", "no_grad()", "enable_grad()", "inference_mode()")
                text = f"with t.{mode}: {text}"
            return text

    def _names_expanded(self, text: str) -> bool:
        """Whether a line has a tensor with repeated elements. Of such, PyTorch's median writes to other memory."""
        return any(0 in value.stride() and name in text for name, value in self.live.items())

    # Drawing.

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def some(self, fits: Callable[[torch.Tensor], bool] = lambda value: True) -> str | None:
        """The name of one of the tensors that fit, rather a late one."""
        fit = [name for name, value in self.live.items() if fits(value)]
        return self.rng.choices(fit, range(1, len(fit) + 1))[0] if fit else None

    def any(self) -> str:
        return self.some() or "t.ones(2)"  # where nothing is there yet

    def with_grad(self) -> str | None:
        return self.some(lambda value: value.requires_grad)

    def beside(self, name: str) -> str:
        """An operand that fits beside a tensor: a tensor that broadcasts, or a number."""
        if self.chance(0.3) or name not in self.live:
            return self.number_text()
        target = self.live[name]

        def fits(value: torch.Tensor) -> bool:
            return _broadcasts(value.shape, target.shape) and not _overlaps_unseen(value, target)

        return self.some(fits) or self.number_text()

    def number_text(self) -> str:
        return str(self.pick(2, 3, 0.5, -1.5, 1.25, True, 0, -2, "(1+2j)" if self.chance(0.2) else 1))

    def dim(self, value: torch.Tensor) -> int:
        count = max(value.dim(), 1)
        return self.rng.randrange(-count, count) if self.chance(0.97) else count + 1

    def dtype(self) -> str:
        return self.rng.choices(list(DTYPES), list(DTYPES.values()))[0]

    def literal(self, shape: tuple[int, ...], dtype: str) -> str:
        """Nested lists of values."""

        def fill(sizes: tuple[int, ...]) -> Any:
            return [fill(sizes[1:]) for _ in range(sizes[0])] if sizes else self._value(dtype)

        return str(fill(shape))

    def _value(self, dtype: str) -> Any:
        if dtype == "bool":
            return self.chance(0.5)
        if "int" in dtype:
            return self.rng.randrange(0 if dtype == "uint8" else -3, 4)
        real = round(self.rng.uniform(-2, 2), 2)
        return complex(real, round(self.rng.uniform(-2, 2), 2)) if dtype.startswith("complex") else real

    def assigned(self, text: str | None) -> str | None:
        """The line that gives a result a name."""
        return None if text is None else f"r{self.number} = {text}"

    # Kinds of steps.

    def _create(self) -> str | None:
        dtype, shape = self.dtype(), self.pick(*SHAPES)
        flag = ""
        if (dtype.startswith(("float", "complex")) and self.chance(0.6)) or self.chance(0.01):
            flag = ", requires_grad=True"
        if self.chance(0.75):
            text = f"t.tensor({self.literal(shape, dtype)}, dtype=t.{dtype}{flag})"
            return self.assigned(text.replace(", dtype=t.float32", "") if self.chance(0.3) else text)
        return self.assigned(self.pick(*words.CREATED).format(shape=shape, dtype=dtype, flag=flag, x=self.any()))

    def _unary(self) -> str | None:
        name = self.pick(*words.UNARY)
        x = self.any()
        return self.assigned(f"{x}.{name}()" if self.chance(0.5) and hasattr(torch.Tensor, name) else f"t.{name}({x})")

    def _binary(self) -> str | None:
        x = self.any()
        y = self.beside(x)
        if self.chance(0.6):
            x, y = (y, x) if self.chance(0.3) else (x, y)
            return self.assigned(f"{x} {self.pick(*words.OPERATORS)} {y}")
        return self.assigned(f"t.{self.pick(*words.BINARY)}({x}, {y})")

    def _reduce(self) -> str | None:
        x = self.any()
        value, name = self.live[x], self.pick(*words.REDUCED)
        if self.chance(0.5) and name not in ("cumsum", "cumprod", "softmax", "log_softmax", "logsumexp", "cummax"):
            return self.assigned(f"{x}.{name}()")
        keep = ", keepdim=True" if self.chance(0.3) and name not in words.ALONG else ""
        return self.assigned(f"{x}.{name}({self.dim(value)}{keep})")

    def _join(self) -> str | None:
        x = self.any()
        shape = self.live[x].shape
        y = self.some(lambda value: value.shape == shape) or x
        mask = self.some(lambda value: value.dtype is torch.bool and _broadcasts(value.shape, shape)) or f"({x} == {y})"
        return self.assigned(
            self.pick(*words.JOINED).format(x=x, y=y, z=self.beside(x), m=mask, d=self.rng.randrange(2))
        )

    def _product(self) -> str | None:
        x = self.some(lambda value: value.dim() in (1, 2))
        if x is None:
            return None
        value = self.live[x]
        inner = value.shape[-1]
        y = self.some(lambda other: other.dim() in (1, 2) and other.shape[0] == inner and other.dtype is value.dtype)
        if y is None:
            return self.assigned(f"{x} @ {x}.t()")
        return self.assigned(self.pick("{} @ {}", "t.matmul({}, {})", "{}.matmul({})").format(x, y))

    def _call(self) -> str | None:
        name = self.pick(*(name for name in fuzz.CALLS if name.partition("/")[0] not in SKIPPED))
        if "dropout" in name:
            return None
        draw = BorrowingDraw(self)
        try:
            args, named = fuzz.CALLS[name](draw)
        except ValueError:  # no argument fits what was borrowed
            return None
        path = name.partition("/")[0]
        home = next((home for home, module in words.homes(torch) if _find(module, path) is not None), None)
        given = [_source(value) for value in args] + [f"{key}={_source(value)}" for key, value in named.items()]
        return self.assigned(f"{home}.{path}({', '.join(given)})")

    def _view(self) -> str | None:
        x = self.any()
        value = self.live[x]
        n, d = value.numel(), self.dim(value)
        e = self.dim(value)
        size = value.shape[d] if value.dim() and -value.dim() <= d < value.dim() else 1
        dims = list(range(value.dim()))
        self.rng.shuffle(dims)
        return self.assigned(self.pick(*words.VIEWS).format(
            x=x, d=d, e=e, n=n, dims=tuple(dims), i=self.rng.randrange(max(size, 1)), half=max(size // 2, 1),
            sizes=tuple(value.shape), turned=tuple(reversed(value.shape)),
            wide=(2, *value.shape), s=self.rng.randrange(1, 3),
        ))  # fmt: skip

    def _change(self) -> str | None:
        x = self.some(_may_be_written)
        if x is None:
            return None
        value = self.live[x]
        y = self.beside(x)
        same = self.some(lambda other: _broadcasts(other.shape, value.shape) and other is not value) or "t.ones(())"
        text = self.pick(*words.CHANGES).format(
            x=x, y=y, same=same, d=self.dim(value), m=f"({x} > 0.3)", c=self.number_text()
        )
        return f"q = {x}; {text}"

    def _turn(self) -> str | None:
        x = self.some(lambda value: value.dim() < 4)
        if x is None:
            return None
        value = self.live[x]
        text = self.pick(*words.TURNS).format(
            x=x, d=self.dim(value), e=self.dim(value), turned=tuple(value.shape)[::-1], strides=value.stride()[::-1]
        )
        return f"with t.no_grad(): {text}" if self.chance(0.4) else f"q = {x}; {text}"

    def _unique(self) -> str | None:
        return self.assigned(self.pick(*words.UNIQUES).format(x=self.any()))

    def _overlap(self) -> str | None:
        x = self.some(lambda value: 0 in value.stride() and value._base is not None)
        if x is not None and self.chance(0.7):
            return f"q = {x}; " + self.pick(*words.OVERLAPS).format(x=x, c=self.number_text())
        x = self.some(lambda value: not _may_be_written(value) and 0 not in value.stride())
        if x is not None:
            return f"q = {x}; " + self.pick(*words.PARTLY).format(x=x, c=self.number_text())
        x = self.any()
        shape = tuple(self.live[x].shape)
        return self.assigned(
            self.pick(f"{x}.expand({(2, *shape)})", f"{x}.flatten().unfold(0, 2, 1)", f"{x}.reshape(-1)[:1].expand(3)")
        )

    def _custom(self) -> str | None:
        x = self.with_grad() if self.chance(0.8) else self.any()
        if x is None:
            return None
        y = self.some(lambda value: value.shape == self.live[x].shape) or x
        return self.assigned(self.pick(*words.CUSTOMS).format(x=x, y=y))

    def _assign(self) -> str | None:
        x = self.some(lambda value: value.dim() > 0 and _may_be_written(value))
        if x is None:
            return None
        other = self.any()
        value = self.pick(
            self.number_text(), self.number_text(), other, f"{other}[0]", f"{x} * 2", f"{x}.clone()", f"{other}.sum()"
        )
        return f"{x}[{self._key(x)}] = {value}"

    def _index(self) -> str | None:
        x = self.some(lambda value: value.dim() > 0)
        return None if x is None else self.assigned(f"{x}[{self._key(x)}]")

    def _key(self, x: str) -> str:
        size = max(self.live[x].shape[0], 1)
        i, j = self.rng.randrange(-size, size), self.rng.randrange(size)
        return self.pick(*words.KEYS).format(x=x, i=i, j=j)

    def _flag(self) -> str | None:
        return self.pick(*words.FLAGS).format(x=self.any())

    def _hook(self) -> str | None:
        x = self.with_grad()
        return None if x is None else self.pick(*words.HOOKS).format(x=x)

    def _back(self) -> str | None:
        x = self.with_grad() if self.chance(0.97) else self.any()
        if x is None:
            return None
        y = self.with_grad() or x
        leaf = self.some(_is_leaf) or y
        return self.pick(*words.BACKWARDS).format(x=x, y=y, leaf=leaf)

    def _derive(self) -> str | None:
        x, y = self.with_grad(), self.with_grad()
        leaf = self.some(_is_leaf) or y
        return None if x is None else self.assigned(self.pick(*words.DERIVED).format(x=x, y=y, leaf=leaf))

    def _grads(self) -> str | None:
        x = self.some(lambda value: _is_leaf(value) and value.grad is not None) or self.with_grad()
        if x is None:
            return None
        return self.pick(*words.GRADS).format(x=x, n=self.number)

    def _out(self) -> str | None:
        x = self.any()
        taken = self.live[x].untyped_storage().data_ptr()
        out = self.some(lambda value: _may_be_written(value) and value.untyped_storage().data_ptr() != taken)
        if out is None:
            return None
        return self.pick(*words.OUTS).format(x=x, y=self.beside(x), out=out, n=self.number)

    def _convert(self) -> str | None:
        return self.assigned(self.pick(*words.CONVERSIONS).format(x=self.any(), y=self.any(), dtype=self.dtype()))

    def _glance(self) -> str | None:
        return self.assigned(self.pick(*words.GLANCES).format(x=self.any(), y=self.any()))

    def _drop(self) -> str | None:
        names = [name for name in self.live if name.isidentifier()]
        return f"del {self.rng.choice(names)}" if len(names) > 3 else None

    def _optimize(self) -> str | None:
        if self.optimizers and self.chance(0.7):
            action = self.pick("step()", "step()", "zero_grad()", "zero_grad(set_to_none=False)")
            return f"{self.rng.choice(self.optimizers)}.{action}"
        leaves = [n for n, value in self.live.items() if _is_leaf(value)]
        if not leaves:
            return None
        name = f"o{self.number}"
        self.optimizers.append(name)
        return f"{name} = t.optim.{self.pick(*words.OPTIMIZERS).format(p=', '.join(leaves[:2]))}"


def _broadcasts(shape: Any, target: Any) -> bool:
    """Whether a shape broadcasts to another."""
    padded = (1,) * (len(target) - len(shape)) + tuple(shape)
    return len(padded) == len(target) and all(n in (1, m) for n, m in zip(padded, target, strict=True))


def _may_be_written(value: torch.Tensor) -> bool:
    """Whether what is written is not by chance: elements that share memory must be refused, or must not be."""
    if 0 in value.stride():
        return value._base is not None  # of a gradient that is expanded in PyTorch, and dense here
    places = {0}
    for size, stride in zip(value.shape, value.stride(), strict=True):
        places = {place + stride * step for place in places for step in range(size)}
    return len(places) == max(value.numel(), 0) or not value.numel()


def _overlaps_unseen(value: torch.Tensor, written: torch.Tensor) -> bool:
    """Whether elements that share memory lie in what may be written: PyTorch does not see it, and what stays varies."""
    return 0 in value.stride() and value.untyped_storage().data_ptr() == written.untyped_storage().data_ptr()


def _is_leaf(value: torch.Tensor) -> bool:
    """Whether it is a leaf that requires grad; a view that was left behind refuses to tell."""
    try:
        return value.requires_grad and value.is_leaf
    except RuntimeError:
        return False


def _find(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part, None)
    return module


def _source(value: Any) -> str:
    """An argument as source."""
    if isinstance(value, Borrowed) and value.values is value.given:
        return value.expression
    if isinstance(value, fuzz.Made):
        text = f"t.tensor({value.values.tolist()}, dtype=t.{value.dtype}).reshape({value.shape})"
        return text.replace("nan", "float('nan')").replace("inf", "float('inf')")
    if isinstance(value, fuzz.D):
        return f"t.{value.name}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_source, value))}{',' * (len(value) == 1)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_source, value))}]"
    if isinstance(value, float):
        return f"float('{value}')"
    return repr(value)
