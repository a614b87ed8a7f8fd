"""Hooks and custom functions are garbage with their graph, and are called as long as a tensor leads to it.

Compared with PyTorch over a real socket.
"""

import gc
import weakref

import pytest

import gradwire
from gradwire._graph.hooks import HeldHooks, HookOfTensor
from gradwire._proxy.shadow_graph import HookHolders
from tests.client.oracle import agree

pytestmark = pytest.mark.usefixtures("session")


class Mark:
    """An object to see whether a hook still lives."""


def identity(t):
    class Identity(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

    return Identity


@pytest.mark.parametrize("place", ["tensor", "node"])
@pytest.mark.parametrize("custom", [False, True])
def test_a_hook_that_holds_its_node_is_called_until_the_graph_is_dropped(place, custom):
    def case(t):
        calls = []

        def made():
            a = t.tensor(1.0, requires_grad=True)
            b = identity(t).apply(a) if custom else a.clone()
            node, mark = b.grad_fn, Mark()

            def hook(*args):
                calls.append(type(node).__name__.startswith(("Clone", "Identity")) and mark is not None)

            (b if place == "tensor" else node).register_hook(hook)
            return b.clone(), weakref.ref(mark)

        out, mark = made()
        out.backward(retain_graph=True)
        gc.collect()
        out.backward(retain_graph=True)
        lives = mark() is not None
        del out
        gc.collect()
        return calls, lives, mark() is None

    agree(case)


def test_a_hook_of_a_leaf_that_holds_its_graph_is_collected():
    """PyTorch keeps it: its collector does not see into the graph in C++."""

    def made():
        x = gradwire.ones(2, requires_grad=True)
        y, mark = (x * x).sum(), Mark()
        x.register_hook(lambda g: g * 2 if y is not None and mark is not None else g)
        y.backward()
        return x.grad.tolist(), weakref.ref(mark)

    for _ in range(3):
        grad, found = made()
        gc.collect()
        assert grad == [4.0, 4.0]
        assert found() is None


@pytest.mark.parametrize("backward", [False, True])
def test_a_context_that_holds_its_result_is_collected(backward):
    def case(t):
        class Function(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, notes):
                ctx.notes, ctx.mark = notes, notes["mark"]
                return x * 3

            @staticmethod
            def backward(ctx, g):
                return g * 3, None

        x = t.ones(2, requires_grad=True)
        notes = {"mark": Mark()}
        found = weakref.ref(notes["mark"])
        out = Function.apply(x, notes)
        notes["out"] = out
        if backward:
            out.sum().backward()
        del out, notes
        gc.collect()
        return x.grad, found() is None

    agree(case)


def test_a_hook_is_called_though_its_tensor_is_gone():
    """Of a graph that saved nothing and is passed twice, and behind a gradient with a graph."""

    def twice(t):
        x, seen = t.ones(2, requires_grad=True), []
        y = x + 1
        y.register_hook(lambda g: seen.append(g.tolist()))
        z = (y + 2).sum()
        del y
        gc.collect()
        z.backward()
        gc.collect()
        z.backward()
        return seen, x.grad

    def behind_a_gradient(t):
        x, seen = t.tensor([1.0, 2.0], requires_grad=True), []
        y = x * x
        (slope,) = t.autograd.grad((y * y).sum(), x, create_graph=True)
        y.register_hook(lambda g: seen.append(1))
        del y
        gc.collect()
        slope.sum().backward()
        return len(seen) > 0, x.grad

    def gradient_first(t):
        x, seen = t.tensor([1.0, 2.0], requires_grad=True), []
        y = x * x
        y.register_hook(lambda g: seen.append(1))
        (slope,) = t.autograd.grad((y * y).sum(), x, create_graph=True)
        count = len(seen)
        del y
        gc.collect()
        slope.sum().backward()
        return len(seen) > count, x.grad

    for case in (twice, behind_a_gradient, gradient_first):
        agree(case)


def test_a_hook_stays_where_its_tensor_is_changed_in_place():
    def of_a_tensor(t):
        x, seen = t.ones(3, requires_grad=True), []
        y = x * 2
        y.register_hook(lambda g: seen.append(g.tolist()))
        y.mul_(3)
        z = y.sum()
        del y
        gc.collect()
        z.backward()
        return seen, x.grad

    def of_a_base(t):
        x, seen = t.ones(3, requires_grad=True), []
        y = x * 2
        y.register_hook(lambda g: seen.append(g.tolist()))
        y[:2].mul_(3)
        z = y.sum()
        del y
        gc.collect()
        z.backward()
        return seen, x.grad

    for case in (of_a_tensor, of_a_base):
        agree(case)


def test_a_removed_hook_of_a_dropped_tensor_changes_nothing():
    def case(t):
        x, seen = t.ones(2, requires_grad=True), []
        y = x * 2
        first, second = y.register_hook(lambda g: seen.append(1)), y.register_hook(lambda g: g * 5)
        first.remove()
        z = y.sum()
        del y
        z.backward(retain_graph=True)
        second.remove()
        z.backward()
        return seen, x.grad

    agree(case)


def test_the_session_forgets_hooks_that_are_collected(session):
    def made():
        x = gradwire.ones(2, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: y)

    before = len(session.hooks)
    for _ in range(5):
        made()
    gc.collect()
    gradwire.ones(1).tolist()
    gradwire.ones(1).tolist()
    assert len(session.hooks) == before


@pytest.mark.parametrize("where", ["tensor", "before", "after"])
@pytest.mark.parametrize("kind", ["op", "function"])
def test_a_hook_of_one_result_is_called_behind_another_though_its_own_is_gone(kind, where):
    def case(t):
        class Two(t.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2, x * 3

            @staticmethod
            def backward(ctx, g, h):
                return 2 * g + 3 * h

        x, seen = t.ones(4, requires_grad=True), []
        first, second = Two.apply(x) if kind == "function" else (x * 2).split(2)
        if where == "tensor":
            first.register_hook(lambda g: seen.append("tensor"))
        elif where == "before":
            first.grad_fn.register_prehook(lambda given: seen.append("before"))
        else:
            first.grad_fn.register_hook(lambda made, given: seen.append("after"))
        del first
        gc.collect()
        second.sum().backward()
        return seen, x.grad

    agree(case)


def test_a_hook_of_one_result_is_called_after_a_first_backward_behind_another():
    def case(t):
        x, seen = t.ones(4, requires_grad=True), []
        first, second = (x + 2).split(2)
        second.sum().backward()
        first.register_hook(lambda g: seen.append("first"))
        del first
        gc.collect()
        second.sum().backward()
        return seen, x.grad

    agree(case)


@pytest.mark.parametrize("kept", ["base", "other view"])
def test_a_function_that_changed_a_view_is_called_though_the_view_is_gone(kept):
    def case(t):
        class Doubled(t.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.mark_dirty(x)
                ctx.factor = 2
                return x.mul_(2)

            @staticmethod
            def backward(ctx, g):
                return g * ctx.factor

        x = t.ones(4, requires_grad=True)
        y = x * 1
        view, other = y[:2], y[1:3]
        Doubled.apply(view)
        out = y if kept == "base" else other
        loss = (out * out).sum()
        del view, other, y, out
        gc.collect()
        loss.backward()
        return x.grad

    agree(case)


def test_hooks_of_a_leaf_whose_flag_was_cleared_for_a_while_are_called_though_it_is_gone():
    def case(t):
        x, seen = t.ones(3, requires_grad=True), []
        x.register_hook(lambda g: seen.append(g.tolist()))
        x.register_post_accumulate_grad_hook(lambda leaf: seen.append("after"))
        x.requires_grad_(False).requires_grad_(True)
        loss = (x * 2).sum()
        del x
        gc.collect()
        loss.backward()
        return seen

    agree(case)


def test_nodes_of_a_backward_share_the_list_of_its_hooks():
    """A list for each node would grow with the square of the functions in a chain."""
    x = gradwire.ones(2, requires_grad=True)
    made = [x]
    for _ in range(20):
        made.append(identity(gradwire).apply(made[-1]))
    made[-1].sum().backward()
    assert len({id(each._edge[1]) for each in made[1:]}) == 1
    assert all(len(each._edge) == 2 for each in made[1:])


def test_what_an_unknown_history_holds_does_not_grow_with_hooks_that_were_dropped():
    holders = HookHolders()
    keeper = holders.keeper()

    def hooked():
        held = HeldHooks()
        hook = HookOfTensor(held, lambda arguments: None)
        holders.add(held)
        return hook

    lasting = [hooked() for _ in range(3)]
    for _ in range(1000):
        hooked()  # the server drops it at once
    assert len(keeper.hooks) <= 64
    assert sum(bool(each.calls) for each in keeper.hooks) == len(lasting)
