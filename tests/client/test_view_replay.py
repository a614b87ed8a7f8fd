"""Views made again of other bases, and bases of other views, as PyTorch makes them."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import gradwire
from tests.client.oracle import agree

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("session")

_VALUES = torch.rand(4, 6, dtype=torch.float32)
_OTHERS = torch.rand(4, 6, dtype=torch.float32)


def _base(t: Any, values: Any = _VALUES) -> Any:
    return t.tensor(values.tolist())


def _chain(x: Any) -> Any:
    return x[1:].unsqueeze(-1).transpose(0, 1).squeeze(-1)[2]


VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "select": lambda t, x: x.select(1, 2),
    "slice": lambda t, x: x[1:3],
    "steps of a slice": lambda t, x: x[::2, 1::3],
    "an index": lambda t, x: x[0:2, 1],
    "ellipsis": lambda t, x: x[..., None, 1:],
    "expand": lambda t, x: x[:, :1].expand(4, 5),
    "view": lambda t, x: x.view(-1, 3),
    "as_strided": lambda t, x: x.as_strided((2, 2), (1, 2), 1),
    "split": lambda t, x: x.split(2)[1],
    "split of sizes": lambda t, x: x.split([1, 3])[1],
    "chunk": lambda t, x: x.chunk(2, 1)[1],
    "transpose": lambda t, x: x.transpose(0, 1),
    "T": lambda t, x: x.T,
    "permute": lambda t, x: x.permute(1, 0),
    "diagonal": lambda t, x: x.diagonal(1),
    "unfold": lambda t, x: x.unfold(0, 2, 1),
    "unbind": lambda t, x: x.unbind(0)[1],
    "narrow": lambda t, x: x.narrow(0, 1, 2),
    "reshape": lambda t, x: x.reshape(-1),
    "view_as": lambda t, x: x.view_as(x),
    "movedim": lambda t, x: x.movedim(0, 1),
    "complex numbers": lambda t, x: t.view_as_complex(x.view(4, 3, 2)),
    "a part of complex numbers": lambda t, x: t.view_as_complex(x.view(4, 3, 2))[1:, 2],
    "a chain": lambda t, x: _chain(x),
    "alias": lambda t, x: t.ops.aten.alias.default(x),
}


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("name", VIEWS)
def test_of_another_base(name: str, tracked: bool) -> None:
    def told(t: Any) -> Any:
        with t.autograd._force_original_view_tracking(tracked):
            base = _base(t)
            view = VIEWS[name](t, base)
        made = view._view_func(_base(t, _OTHERS))
        unsafe = view._view_func_unsafe(_base(t, _OTHERS))
        return made, made.stride(), made.storage_offset(), made._is_view(), unsafe

    agree(told)


@pytest.mark.parametrize("name", VIEWS)
def test_the_base_of_another_view(name: str) -> None:
    def told(t: Any) -> Any:
        with t.autograd._force_original_view_tracking(True):
            base = _base(t)
            view = VIEWS[name](t, base)
        detached = view.detach()
        made = view._rev_view_func_unsafe(detached)
        return made, made.stride(), made.storage_offset(), made._base is detached, made.data_ptr() == base.data_ptr()

    agree(told)


def test_the_base_of_a_view_that_was_not_tracked_is_refused() -> None:
    def told(t: Any) -> Any:
        view = _base(t)[1]
        with pytest.raises(RuntimeError, match=r"No _rev_view_func\(\) found"):
            view._rev_view_func_unsafe(view.detach())
        with t.autograd._force_original_view_tracking(True):
            tracked = _base(t)[1]
        with pytest.raises(RuntimeError, match="out of bounds for storage"):
            tracked._rev_view_func_unsafe(t.ones(6))
        return _base(t)._rev_view_func_unsafe(view)

    agree(told)


@pytest.mark.parametrize("tracked", [True, False])
def test_other_bases(tracked: bool) -> None:
    """A base of another geometry gives None, unless the program says it knows better; one of another dtype does not."""

    def told(t: Any) -> Any:
        with t.autograd._force_original_view_tracking(tracked):
            base = _base(t)
            view = base[1]
        larger = t.arange(48.0).reshape(8, 6)
        part = larger[2:6]
        turned = t.arange(24.0).reshape(6, 4).t()
        return (
            [view._view_func(each) for each in (larger, part, turned, base.flatten())],
            view._view_func(t.arange(24).reshape(4, 6)),
            view._view_func_unsafe(larger),
            base._view_func(base.clone()),
            base._view_func_unsafe(base.clone()),
        )

    agree(told)


def test_chains_of_which_a_part_is_tracked() -> None:
    def told(t: Any) -> Any:
        tracking = t.autograd._force_original_view_tracking
        made = []
        for flags in ((True, False), (False, True), (False, False)):
            base = _base(t)
            with tracking(flags[0]):
                first = base.split([1, 3])[1]
            with tracking(flags[1]):
                last = first.chunk(2, 1)[1]
            made.append(last._view_func(_base(t, _OTHERS)))
            made.append(last._rev_view_func_unsafe(last.detach()) if any(flags) else None)
        return made

    agree(told)


def test_gradients_reach_the_new_base() -> None:
    def told(t: Any) -> Any:
        with t.autograd._force_original_view_tracking(True):
            view = _chain(_base(t))
        new = _base(t, _OTHERS).requires_grad_()
        view._view_func(new).sin().sum().backward()
        return new.grad

    agree(told)


#: Views whose sizes PyTorch keeps as they are given.
_VISITED = ["select", "expand of all", "view", "as_strided", "split", "split of sizes", "permute", "diagonal"]


@pytest.mark.parametrize("name", _VISITED)
def test_sizes_are_visited(name: str) -> None:
    def told(t: Any) -> Any:
        seen: list[int] = []

        def visit(size: int) -> int:
            seen.append(size)
            return size

        with t.autograd._force_original_view_tracking(True):
            base = _base(t)
            view = base.expand(2, -1, 6) if name == "expand of all" else VIEWS[name](t, base)
        return view._view_func(_base(t, _OTHERS), symint_visitor_fn=visit), seen

    agree(told)


def test_other_sizes_and_tensors() -> None:
    def told(t: Any) -> Any:
        with t.autograd._force_original_view_tracking(True):
            base, new = _base(t), _base(t, _OTHERS)
            view = base.select(1, 2)
            changed = view._view_func(new, symint_visitor_fn=lambda size: size + 1)
            sliced = base[:, 2:3].detach()
            whole = t.ops.aten.slice_inverse(sliced, base, 1, 2, 3, 1)
            other = new[:, 2:3].detach()
            smaller = whole._view_func(other, tensor_visitor_fn=lambda tensor: t.zeros(1, 3))
            return changed, view._view_func(new), whole, smaller, whole._view_func(other), whole.stride()

    agree(told)


def test_sizes_of_other_views_are_refused() -> None:
    with gradwire.autograd._force_original_view_tracking(True):
        base = _base(gradwire)
        view = base[1:]
    with pytest.raises(NotImplementedError, match="symint_visitor_fn"):
        view._view_func(base.clone(), symint_visitor_fn=lambda size: size)


@pytest.mark.parametrize("tracked", [True, False])
def test_a_view_whose_sizes_changed_in_place(tracked: bool) -> None:
    """It is made again as it is now; PyTorch makes a tracked one as it was."""
    with gradwire.autograd._force_original_view_tracking(tracked):
        view = _base(gradwire)[1:3]
    view.t_()
    made = view._view_func_unsafe(_base(gradwire, _OTHERS))
    assert made.tolist() == _OTHERS[1:3].t().tolist()


@pytest.mark.parametrize("tracked", [True, False])
def test_bits_of_another_dtype(tracked: bool) -> None:
    """The view has its dtype again; PyTorch's has that of the base."""
    with gradwire.autograd._force_original_view_tracking(tracked):
        view = _base(gradwire).view(gradwire.int32)[1]
    made = view._view_func(_base(gradwire, _OTHERS))
    assert made.dtype is gradwire.int32
    assert made.tolist() == _OTHERS.view(torch.int32)[1].tolist()


def test_tracking_as_context_function_and_decorator() -> None:
    def told(t: Any) -> Any:
        tracking, enabled = t.autograd._force_original_view_tracking, t.autograd.is_view_replay_enabled
        seen = [enabled()]
        with tracking(True):
            seen.append(enabled())
            with tracking(False):
                seen.append(enabled())
            seen.append(enabled())
        seen.append(enabled())
        decorated = tracking(True)(enabled)
        seen += [enabled(), decorated(), enabled()]
        tracking(True)
        seen.append(t._C._is_view_replay_enabled())
        t._C._set_view_replay_enabled(False)
        return [*seen, enabled()]

    agree(told)


@pytest.mark.parametrize("around", [True, False])
def test_tracking_around_other_contexts(around: bool) -> None:
    """Ops compute the same while views are tracked: in place, in vmap, and with saved-tensor hooks."""

    def told(t: Any) -> Any:
        with t.autograd._force_original_view_tracking(True) if around else nullcontext():
            x = _base(t).requires_grad_()
            y = x * 2
            y[1:].transpose(0, 1)[2].mul_(3)
            with t.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: each):
                z = t.func.vmap(lambda row: row[1:].exp())(y)
            z[0, t.tensor([1, 2])].sum().backward()
            return x.grad, y, z

    agree(told)
