"""functorch's functional modules: a module as a function of its parameters and buffers, given as tuples.

torch.func.functional_call has replaced them; programs of functorch's time still call them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gradwire._base.errors import GradwireValueError, refuse
from gradwire._tensor.ops import stack
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module
from gradwire.nn._norm import _BatchNorm
from gradwire.nn.utils.stateless import functional_call

if TYPE_CHECKING:
    from gradwire.nn._parameter import Parameter

__all__ = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "combine_state_for_ensemble",
    "functional_init",
    "functional_init_with_buffers",
    "make_functional",
    "make_functional_with_buffers",
    "replace_all_batch_norm_modules_",
]


class FunctionalModuleWithBuffers(Module):
    """What `make_functional_with_buffers` returns: `f(params, buffers, *args, **kwargs)`."""

    def __init__(self, stateless_model: Module, param_names: Sequence[str], buffer_names: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names = tuple(param_names)
        self.buffer_names = tuple(buffer_names)

    def forward(self, params: Iterable[Tensor], buffers: Iterable[Tensor], *args: Any, **kwargs: Any) -> Any:
        """The model's result with these parameters and buffers, in the order of their names."""
        state = dict(zip(self.param_names, params, strict=True))
        state.update(zip(self.buffer_names, buffers, strict=True))
        return functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(Module):
    """What `make_functional` returns: `f(params, *args, **kwargs)`."""

    def __init__(self, stateless_model: Module, param_names: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names = tuple(param_names)

    def forward(self, params: Iterable[Tensor], *args: Any, **kwargs: Any) -> Any:
        """The model's result with these parameters, in the order of their names."""
        state = dict(zip(self.param_names, params, strict=True))
        return functional_call(self.stateless_model, state, args, kwargs)


def make_functional(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Parameter, ...]]:
    """A copy of the model as a function of its parameters, and these (functorch.make_functional).

    `disable_autograd_tracking`: the parameters require no gradient. Raises RuntimeError for a model with buffers.
    """
    if any(True for _ in model.buffers()):
        raise refuse(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    made, params, _ = make_functional_with_buffers(model, disable_autograd_tracking)
    return FunctionalModule(made.stateless_model, made.param_names), params


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Parameter, ...], tuple[Tensor, ...]]:
    """A copy of the model as a function of its parameters and buffers, and both (functorch)."""
    model = copy.deepcopy(model)
    params, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    if disable_autograd_tracking:
        for param in params.values():
            param.requires_grad_(False)
    return FunctionalModuleWithBuffers(model, [*params], [*buffers]), tuple(params.values()), tuple(buffers.values())


def combine_state_for_ensemble(
    models: Sequence[Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The first model as a function, and the stacked parameters and buffers of all models (functorch).

    Raises RuntimeError for no model, for models of several classes, and for some that train and some that do not.
    """
    if not models:
        raise refuse("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise refuse("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise refuse("combine_state_for_ensemble: Expected all models to be of the same class.")
    made = [make_functional_with_buffers(model) for model in models]
    return made[0][0], _stacked([params for _, params, _ in made]), _stacked([buffers for _, _, buffers in made])


def functional_init(
    model_class: Callable[..., Module], ensemble_shape: Sequence[int] = (), device: Any = "cpu"
) -> Callable[..., Any]:
    """A function that makes models and returns parameters, `f(parameters, arguments)` and the parameters' names.

    `ensemble_shape` has no entry, or one: as many models are made and their parameters stacked. Raises ValueError for
    more entries. (torch._functorch.make_functional)
    """
    count = _ensemble_size(ensemble_shape)

    def made(*args: Any, **kwargs: Any) -> Any:
        models = [model_class(*args, **kwargs).to(device) for _ in range(count or 1)]
        function, params = make_functional(models[0])
        names = [name for name, _ in models[0].named_parameters()]
        if count is not None:
            params = _stacked([tuple(model.parameters()) for model in models])  # type: ignore[assignment]
        return params, lambda params, inputs: function(params, *inputs), names

    return made


def functional_init_with_buffers(
    model_class: Callable[..., Module], ensemble_shape: Sequence[int] = (), device: Any = "cpu"
) -> Callable[..., Any]:
    """As `functional_init`: parameters, buffers, `f(parameters, buffers, arguments)` and the names of both."""
    count = _ensemble_size(ensemble_shape)

    def made(*args: Any, **kwargs: Any) -> Any:
        models = [model_class(*args, **kwargs).to(device) for _ in range(count or 1)]
        function, params, buffers = make_functional_with_buffers(models[0])
        if count is not None:
            params = _stacked([tuple(model.parameters()) for model in models])  # type: ignore[assignment]
            buffers = _stacked([tuple(model.buffers()) for model in models])

        def called(params: Iterable[Tensor], buffers: Iterable[Tensor], inputs: Sequence[Any]) -> Any:
            return function(params, buffers, *inputs)

        return params, buffers, called, function.param_names, function.buffer_names

    return made


def _ensemble_size(shape: Sequence[int]) -> int | None:
    """How many models are made; None for a single one that is not stacked."""
    if len(shape) > 1:
        raise GradwireValueError("NYI: ensemble_shape with more than 1 element")
    if not shape:
        return None
    if shape[0] <= 0:
        raise GradwireValueError(f"num_models {shape[0]} should be > 0")
    return int(shape[0])


def _stacked(states: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(stack(list(one)).detach() for one in zip(*states, strict=True))


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Take the running statistics from all batch norms of a module, in place (torch.func)."""
    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
