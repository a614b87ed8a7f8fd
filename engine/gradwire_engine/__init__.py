"""Autograd on NumPy and CuPy. Start with graph/tensor.py, op/op.py, graph/graph.py, autograd/backward_pass.py.

`call` applies an op by name; `lookup` finds its declaration; the modules of `gradwire_engine.ops` declare them.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from gradwire_engine import ops
from gradwire_engine.autograd import forward as _forward  # noqa: F401 registers forward-mode differentiation
from gradwire_engine.autograd.backward import Backward, Gradients, backward, gradients
from gradwire_engine.core.context import PAUSE, Account, Command, Context, Interrupt, activate, grad_mode
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.random import Generator
from gradwire_engine.graph.tensor import (
    Tensor,
    data,
    detach,
    detach_from_base,
    retain_grad,
    set_data,
    set_grad,
    set_requires_grad,
    tensor,
)
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.op import Op
from gradwire_engine.op.signature import REGISTRY as SIGNATURES
from gradwire_engine.ops import operators

operators.attach()
#: An op or a composite; every Signature is one of the two.
REGISTRY = cast("dict[str, Op | Composite]", SIGNATURES)


def lookup(name: str) -> tuple[Op | Composite, bool]:
    """Find an op by name; also return whether the name is that of its in-place form (`add_`).

    Raises EngineError: OP_UNKNOWN, with the most similar names.
    """
    found = REGISTRY.get(name)
    if found is not None:
        return found, False
    found = REGISTRY.get(name[:-1]) if name.endswith("_") else None
    if found is not None and found.has_in_place:
        return found, True
    near = difflib.get_close_matches(name, REGISTRY, n=3)
    hint = f"; the nearest are {', '.join(near)}" if near else ""
    raise EngineError(Reason.OP_UNKNOWN, f"there is no op {name!r}{hint}", op=name)


def call(name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """Apply an op by name; return a Tensor, or a tuple or list of Tensors. Raises EngineError."""
    op, in_place = lookup(name)
    bound = op.bind(args, dict(kwargs or {}))
    return op.in_place(bound) if in_place else op.apply(bound)


__all__ = [
    "PAUSE",
    "REGISTRY",
    "Account",
    "Backward",
    "Command",
    "Composite",
    "Context",
    "EngineError",
    "Generator",
    "Gradients",
    "Interrupt",
    "Op",
    "Reason",
    "Tensor",
    "activate",
    "backward",
    "call",
    "data",
    "detach",
    "grad_mode",
    "gradients",
    "lookup",
    "ops",
    "retain_grad",
    "set_data",
    "detach_from_base",
    "set_grad",
    "set_requires_grad",
    "tensor",
]
