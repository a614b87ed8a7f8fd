"""torch.utils.checkpoint: a region of the graph that saves nothing and is computed again in backward."""

import weakref
from collections.abc import Callable
from typing import Any

from gradwire_engine.autograd.checkpoints import Region, RegionStart
from gradwire_engine.core.context import CURRENT
from tests.engine.torch_like.autograd.graph import not_packing
from tests.engine.torch_like.hooks import ask
from tests.engine.torch_like.modes import enable_grad, is_grad_enabled
from tests.engine.torch_like.tensors import Tensor, unwrap
from tests.refusals import as_python


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool = False, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, called again in backward."""
    if not is_grad_enabled():
        return function(*args, **kwargs)
    regions: list[weakref.ref[Region]] = []  # at most one; the nodes hold it

    def compute() -> tuple[Any, RegionStart, list[Any]]:
        again = bool(regions)
        moment = RegionStart(CURRENT.get().generator, regions[0]() if again else None)
        outputs: list[Any] = []
        try:
            with not_packing():
                result = function(*args, **kwargs)
            outputs = _tensors(result)
        finally:
            moment.end(again)
        return result, moment, outputs

    def again(due: Any) -> None:
        with enable_grad():
            _, moment, outputs = compute()
        with as_python():
            region = regions[0]()
            assert region is not None
            region.refill(moment, outputs)

    result, moment, outputs = compute()
    regions.append(weakref.ref(Region(ask(again), moment, outputs)))
    return result


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return _tensors(list(value.values()))
    if isinstance(value, (tuple, list)):
        return [tensor for each in value for tensor in _tensors(each)]
    return [unwrap(value)] if isinstance(value, Tensor) else []
