"""Counts of floating-point operations of matrix products and convolutions (torch.utils.flop_counter).

Only what the client calls is counted: the server computes backward, whose ops no mode sees.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradwire._base.refused import refusal
from gradwire._base.wiring import wired
from gradwire._proxy.handle import Handle
from gradwire.utils._python_dispatch import TorchDispatchMode

__all__ = ["FlopCounterMode", "flop_registry", "register_flop_formula"]

_OWN: dict[str, Callable[..., int]] = {}
#: By the object of an op: what counts its operations.
flop_registry: dict[Any, Callable[..., int]] = {}


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorate a function that counts the operations of ops: of the arguments' shapes, and `out_shape`.

    get_raw: the function gets the arguments themselves, and `out_val`.
    """

    def register(formula: Callable[..., int]) -> Callable[..., int]:
        counting = formula if get_raw else _of_shapes(formula)
        for each in targets if isinstance(targets, (list, tuple)) else [targets]:
            flop_registry[each] = counting
        return formula

    return register


def _of_shapes(formula: Callable[..., int]) -> Callable[..., int]:
    def counting(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        return formula(*_shapes(args), out_shape=_shapes(out_val), **_shapes(kwargs))

    return counting


def _shapes(value: Any) -> Any:
    """A value with the shapes of the tensors in it."""
    if isinstance(value, Handle):
        return tuple(value._spec.shape)
    if isinstance(value, (tuple, list)):
        return type(value)([_shapes(each) for each in value])
    if isinstance(value, dict):
        return {key: _shapes(each) for key, each in value.items()}
    return value


def _counts(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register the formula of ops of ATen by name."""

    def register(formula: Callable[..., int]) -> Callable[..., int]:
        _OWN.update(dict.fromkeys(names, _of_shapes(formula)))
        return formula

    return register


@_counts("mm")
def mm_flop(a_shape: Sequence[int], b_shape: Sequence[int], *_: Any, **__: Any) -> int:
    """Operations of a product of matrices."""
    return 2 * a_shape[0] * a_shape[1] * b_shape[1]


@_counts("addmm")
def addmm_flop(self_shape: Any, a_shape: Sequence[int], b_shape: Sequence[int], **_: Any) -> int:
    """Operations of a product of matrices to which something is added: those of the product."""
    return mm_flop(a_shape, b_shape)


@_counts("bmm")
def bmm_flop(a_shape: Sequence[int], b_shape: Sequence[int], **_: Any) -> int:
    """Operations of a batch of products."""
    return 2 * a_shape[0] * a_shape[1] * a_shape[2] * b_shape[2]


@_counts("baddbmm")
def baddbmm_flop(self_shape: Any, a_shape: Sequence[int], b_shape: Sequence[int], **_: Any) -> int:
    """Operations of a batch of products to which something is added."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(
    x_shape: Sequence[int], w_shape: Sequence[int], out_shape: Sequence[int], transposed: bool = False
) -> int:
    """Operations of a convolution of these shapes."""
    positions = (x_shape if transposed else out_shape)[2:]
    return 2 * math.prod(positions) * math.prod(w_shape) * x_shape[0]


@_counts("convolution", "_convolution")
def conv_flop(
    x_shape: Any,
    w_shape: Any,
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,
    *_: Any,
    out_shape: Any = None,
    **__: Any,
) -> int:
    """Operations of a convolution."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


def sdpa_flop_count(query_shape: Sequence[int], key_shape: Sequence[int], value_shape: Sequence[int]) -> int:
    """Operations of attention: of the products of queries and keys, and of weights and values."""
    batch, heads, queries, size = query_shape
    keys, values = key_shape[-2], value_shape[-1]
    return bmm_flop((batch * heads, queries, size), (batch * heads, size, keys)) + bmm_flop(
        (batch * heads, queries, keys), (batch * heads, keys, values)
    )


@_counts(
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention", "scaled_dot_product_attention"
)
def sdpa_flop(query_shape: Any, key_shape: Any, value_shape: Any, *_: Any, **__: Any) -> int:
    """Operations of attention."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


def _multi_head_flop(*args: Any, out_val: Any = None, **_: Any) -> int:
    """Operations of multi-head attention, which is one op here: projections, scores and weighted values."""
    query, key, value, embedding, heads = args[:5]
    if query.ndim != 3:
        raise refusal("utils.flop_counter.FlopCounterMode", "no multi-head attention without a batch")
    (targets, batch), (sources, _), size = query.shape[:2], key.shape[:2], embedding // heads
    inputs: int = sum(2 * math.prod(each.shape) * embedding for each in (query, key, value))
    products = 2 * 2 * batch * heads * targets * sources * size
    return int(inputs + products + 2 * targets * batch * embedding * embedding)


_OWN["multi_head_attention_forward"] = _multi_head_flop
# Ops that are products in PyTorch, whose parts no mode sees here.
_UNKNOWN = frozenset(["einsum", "linalg_multi_dot"])


class FlopCounterMode(TorchDispatchMode):
    """Counts, inside, the operations of matrix products, convolutions and attention, by module.

    depth: how deep the table goes; None for all. custom_mapping: formulas by op, as `register_flop_formula` takes them.
    """

    def __init__(
        self, mods: Any = None, depth: int | None = 2, display: bool = True, custom_mapping: Any = None
    ) -> None:
        super().__init__()
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        self._formulas = {
            key: value if getattr(value, "_get_raw", False) else _of_shapes(value)
            for key, value in (custom_mapping or {}).items()
        }
        self._path: list[str] = ["Global"]
        self._names: dict[int, str] = {}
        self._hooks: list[Any] = []

    def get_total_flops(self) -> int:
        """All operations."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """The operations by module and op: "Global" for all, "Net.layer" for a module's."""
        return {key: dict(value) for key, value in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as a table."""
        depth = self.depth if depth is None else depth
        deepest = 999999 if depth is None else depth
        total = max(self.get_total_flops(), 1)
        rows = [("Module", "FLOP", "% Total")]
        for name in ["Global", *sorted(each for each in self.flop_counts if each != "Global")]:
            level = 0 if name == "Global" else name.count(".") + 1
            if level > deepest or name not in self.flop_counts:
                continue
            count = sum(self.flop_counts[name].values())
            rows.append((" " * level + name, _with_unit(count, total), f"{count / total:.2%}"))
            for op, each in self.flop_counts[name].items():
                rows.append((" " * level + f" - {op}", _with_unit(each, total), f"{each / total:.2%}"))
        return _aligned(rows)

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self._hooks = [
            wired("register_module_forward_pre_hook")(self._enter),
            wired("register_module_forward_hook")(self._leave, always_call=True),
        ]
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        for each in self._hooks:
            each.remove()
        if self.display:
            print(self.get_table(self.depth))

    def _enter(self, module: Any, inputs: Any) -> None:
        if id(module) not in self._names:
            start = type(module).__name__
            for name, each in module.named_modules():
                self._names.setdefault(id(each), f"{start}.{name}" if name else start)
        self._path.append(self._names[id(module)])

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        if len(self._path) > 1:
            self._path.pop()

    def _formula(self, packet: Any) -> Callable[..., int] | None:
        for table in (self._formulas, flop_registry):
            if packet in table:
                return table[packet]
        name = packet._qualname
        return _OWN.get(name.removeprefix("aten::")) if name.startswith("aten::") else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        packet = func.overloadpacket
        formula = self._formula(packet)
        if formula is None and packet._qualname.removeprefix("aten::") in _UNKNOWN:
            raise refusal("utils.flop_counter.FlopCounterMode", f"the products of {packet} are not shown to modes")
        if formula is not None:
            count = formula(*args, **kwargs, out_val=made)
            for each in set(self._path):
                self.flop_counts[each][packet] += count
        return made


def _with_unit(count: int, total: int) -> str:
    """A count with the unit that the total has."""
    unit = min(3, max(0, (len(str(total)) - 1) // 3))
    number = count / 1000**unit
    return f"{number:.3f}{['', 'K', 'M', 'B'][unit]}" if unit else str(count)


def _aligned(rows: Iterable[tuple[str, str, str]]) -> str:
    table = list(rows)
    widths = [max(len(row[at]) for row in table) for at in range(3)]
    table.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2]))
    return "\n".join(
        f"{one.ljust(widths[0])}  {two.rjust(widths[1])}  {three.rjust(widths[2])}".rstrip()
        for one, two, three in table
    )
