"""What repeats one call: a recipe's call in a context, without the session's table of descriptions."""

from __future__ import annotations

from typing import Any

from gradwire_engine import Context, Op
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.repeated import recipe_of_call, recipe_of_change
from gradwire_engine.op.repeated_source import Repeated


def repeated_change(op: Op | Composite, args: tuple[Any, ...], context: Context) -> Repeated | None:
    """What repeats an in-place call with such arguments; None if the op itself must run each time."""
    recipe = recipe_of_change(op, args, context)
    return None if recipe is None else recipe.repeated(context)


def repeated_call(op: Op | Composite, args: tuple[Any, ...], context: Context) -> tuple[Any, Repeated | None]:
    """Apply an op; also return what repeats the call, or None if the op itself must run each time."""
    made, recipe = recipe_of_call(op, args, context)
    return made, None if recipe is None else recipe.repeated(context)
