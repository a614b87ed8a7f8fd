"""DistributedDataParallel: trains a module on several ranks, each with a part of the batch (torch.nn.parallel).

All ranks begin with rank 0's parameters. After each backward their gradients are averaged, in buckets of megabytes. The
server does that between the ranks' sessions; no gradient comes to the client. So the ranks' parameters stay equal,
bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from gradwire import distributed as dist
from gradwire._base import dtypes
from gradwire._base.errors import GradwireRuntimeError
from gradwire._base.modes import is_grad_enabled
from gradwire._base.refused import refusal
from gradwire._functions.backward import call_after_backward
from gradwire._functions.create import tensor, zeros_like
from gradwire._graph.sparse_gradients import is_sparse
from gradwire._tensor.tensor import Tensor
from gradwire.distributed._collectives import broadcast_coalesced
from gradwire.distributed._group import ProcessGroup, group_of
from gradwire.nn._module import Module

__all__ = ["DistributedDataParallel"]

_MIB = 1 << 20
_FIRST_BUCKET = _MIB  # bytes: the gradients that are ready first begin early, as in PyTorch
_UNFINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
    "your module has parameters that were not used in producing loss. You can enable unused parameter detection by "
    "passing the keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by "
    "making sure all `forward` function outputs participate in calculating loss.\nParameters which did not receive "
    "grad for rank {rank}: {names}\nParameter indices which did not receive grad for rank {rank}: {places}"
)

_LATE = (
    "the gradients were averaged after the first backward of this forward, which did not reach the parameters {names}. "
    "With find_unused_parameters or static_graph, call backward once, for the sum of the losses."
)


def _buckets(tensors: Sequence[Tensor], first: int, most: int) -> list[list[int]]:
    """Places of tensors in buckets: each of one dtype and device, of about `most` bytes, the first one of `first`."""
    made: list[list[int]] = []
    open_buckets: dict[Any, tuple[list[int], int]] = {}
    for place, each in enumerate(tensors):
        key = (each.dtype, each.device)
        held, size = open_buckets.get(key, ([], 0))
        if held and size + each.nbytes > (first if made and made[0] is held else most):
            held, size = [], 0
        if not held:
            made.append(held)
        held.append(place)
        open_buckets[key] = held, size + each.nbytes
    return made


class DistributedDataParallel(Module):
    """Averages the module's gradients over the ranks after each backward (torch.nn.parallel.DistributedDataParallel).

    Its `module` is the given one; names in its state_dict begin with "module.". Buffers are those of rank 0 at each
    forward. Options about PyTorch's memory and streams have no effect. Raises RuntimeError for a module without
    parameters that require a gradient, and if the ranks' parameters differ in number, shape or dtype.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        for name, given in (
            ("mixed_precision", mixed_precision),
            ("device_mesh", device_mesh),
            ("delay_all_reduce_named_params", delay_all_reduce_named_params),
        ):
            if given is not None:
                raise refusal(f"nn.parallel.DistributedDataParallel({name}=…)", "gradients are reduced after backward")
        found = group_of(process_group)
        if found is None:
            raise GradwireRuntimeError("this process is not in the process group")
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(name, each) for name, each in module.named_parameters() if name not in ignored]
        self._names = [name for name, each in named if each.requires_grad]
        self._reduced = [each for _, each in named if each.requires_grad]
        if not self._reduced:
            raise GradwireRuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                "gradient."
            )
        self.module = module
        self.process_group = found
        self.dim = dim
        self.device_ids = None if not device_ids else list(device_ids)
        self.output_device = output_device
        self.device = self._reduced[0].device
        self.broadcast_buffers = True if broadcast_buffers is None else broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.static_graph = static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * _MIB)
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self._ignored = ignored
        self._places = {id(each): place for place, each in enumerate(self._reduced)}
        # Both sets stay the same objects: a compiled function that replaced one would change what it closes over.
        self._armed = False  # whether a forward ran whose gradients are yet to be averaged
        self._ready: set[int] = set()  # places of parameters that a backward has reached since
        self._left_out: set[int] = set()  # places without gradient when the others were averaged
        if init_sync:
            self._begin_equal([each for _, each in named])
        call_after_backward(self)

    def _begin_equal(self, parameters: Sequence[Tensor]) -> None:
        """Take rank 0's parameters and buffers. Raises RuntimeError if the ranks' modules differ."""
        counts: list[Any] = [None] * self.process_group.size()
        described = [[list(each.shape), str(each.dtype)] for each in parameters]
        dist.all_gather_object(counts, described, self.process_group)
        for rank, other in enumerate(counts):
            if len(other) != len(counts[0]):
                raise GradwireRuntimeError(
                    f"DDP expects same model across all ranks, but Rank 0 has {len(counts[0])} params, while rank "
                    f"{rank} has inconsistent {len(other)} params."
                )
            for place, (one, two) in enumerate(zip(counts[0], other, strict=True)):
                if one != two:
                    raise GradwireRuntimeError(
                        f"[{rank}]: params[{place}] in this process with sizes {two[0]} and dtype {two[1]} appears not "
                        f"to match sizes {one[0]} and dtype {one[1]} of the same param in process 0."
                    )
        self._broadcast([*parameters, *self._own_buffers()])

    def _own_buffers(self) -> list[Tensor]:
        return [each for name, each in self.module.named_buffers() if name not in self._ignored]

    def _broadcast(self, tensors: Sequence[Tensor]) -> None:
        for bucket in _buckets(tensors, 250 * _MIB, 250 * _MIB):
            broadcast_coalesced([tensors[place] for place in bucket], 0, self.process_group)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result. The next backward averages the gradients, except within `no_sync`."""
        syncs = is_grad_enabled() and self.require_backward_grad_sync
        if syncs:
            self._refuse_unfinished()
        if self.broadcast_buffers and self.require_forward_param_sync:
            buffers = self._own_buffers()
            if buffers:
                self._broadcast(buffers)
        made = self.module(*inputs, **kwargs)
        if is_grad_enabled():
            self.require_forward_param_sync = self.require_backward_grad_sync
        self._left_out.clear()
        if syncs:
            self._armed = True
        return made

    def _refuse_unfinished(self) -> None:
        """Raise RuntimeError if backwards have reached some of the parameters, and not the others."""
        if not self._armed or not self._ready:
            return
        places = self._missing()
        self._armed = False
        self._ready.clear()
        raise GradwireRuntimeError(
            _UNFINISHED.format(
                rank=self.process_group.rank(),
                names=", ".join(self._names[place] for place in places),
                places=" ".join(map(str, places)),
            )
        )

    def _missing(self) -> list[int]:
        """Places of parameters that no backward has reached since the last forward."""
        return [place for place, each in enumerate(self._reduced) if place not in self._ready and each.requires_grad]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leave the gradients as they are. They add up, and the first backward after the block averages the sum."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def after_backward(self, reached: Sequence[Any]) -> None:
        """Average the gradients, after the backward that reached the last of the parameters.

        Several losses of one forward may have a backward each, unless unused parameters are to be found: the first
        backward tells which these are. Raises RuntimeError if another one reaches them, as PyTorch does.
        """
        if not self._armed and not self._left_out:
            return
        places = {self._places[id(each)] for each in reached if id(each) in self._places}
        if not places:
            return
        if not self._armed:
            if late := sorted(places & self._left_out):
                raise GradwireRuntimeError(_LATE.format(names=", ".join(self._names[place] for place in late)))
            return
        self._ready |= places
        missing = self._missing()
        finds = self.find_unused_parameters or self.static_graph
        if missing and not finds:
            return
        ready, self._armed = sorted(self._ready), False
        self._ready.clear()
        self._left_out.update(missing)
        self._average(self._used_anywhere(ready, missing) if finds else ready)

    def _used_anywhere(self, places: Sequence[int], missing: Sequence[int]) -> Sequence[int]:
        """Places of parameters that any rank used. Those that only others used get a gradient of zeros."""
        count = len(self._reduced)
        own = set(places)
        used = tensor([int(place in own) for place in range(count)], dtype=dtypes.int32)
        dist.all_reduce(used, group=self.process_group)
        if not missing:
            return places
        counts = used.tolist()  # waits; a rank that used all parameters need not
        for place in missing:
            parameter = self._reduced[place]
            if counts[place] and parameter.grad is None:
                parameter.grad = zeros_like(parameter)
        return [place for place in range(count) if counts[place]]

    def _average(self, places: Sequence[int]) -> None:
        # The last parameters' gradients are ready first.
        gradients = [self._reduced[place].grad for place in reversed(places)]
        if any(is_sparse(each) for each in gradients):
            raise refusal("nn.parallel.DistributedDataParallel with sparse gradients", "use sparse=False")
        for bucket in _buckets(gradients, _FIRST_BUCKET, self.bucket_bytes_cap):
            dist.all_reduce_coalesced(
                [gradients[place] for place in bucket], dist.ReduceOp.AVG, group=self.process_group
            )

    def register_comm_hook(self, state: object, hook: Any) -> None:
        """Raise NotImplementedError: gradients are averaged on the server."""
        raise refusal("nn.parallel.DistributedDataParallel.register_comm_hook", "gradients are averaged on the server")

    def join(self, *args: Any, **kwargs: Any) -> Any:
        """Raise NotImplementedError: ranks need equal numbers of batches, as DistributedSampler gives."""
        raise refusal(
            "nn.parallel.DistributedDataParallel.join",
            "ranks need equal numbers of batches; DistributedSampler gives them",
        )

    def __getstate__(self) -> dict[str, Any]:
        """Attributes for pickle and copies, without the group."""
        state = super().__getstate__()
        del state["process_group"], state["_places"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of `__getstate__`, with the default group."""
        super().__setstate__(state)
        group = group_of(None)
        assert group is not None
        self.process_group = group
        self._places = {id(each): place for place, each in enumerate(self._reduced)}
        call_after_backward(self)

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, params_and_buffers_to_ignore: Any) -> None:
        """Leave out parameters and buffers by their names, as PyTorch's method does."""
        module._ddp_params_and_buffers_to_ignore = list(params_and_buffers_to_ignore)
