"""Hooks of all modules: around forwards and backwards, at registrations, and after failures."""

import collections
import contextlib
import gc
import weakref

import numpy as np
import pytest

from tests.client.oracle import agree

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

pytestmark = pytest.mark.usefixtures("session")


def _net(t):
    t.manual_seed(1)
    return t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Tanh(), t.nn.Linear(4, 2))


def test_backward_hooks_see_every_module_and_may_change_gradients():
    given = RNG.standard_normal((2, 3))

    def told(t):
        net, seen = _net(t), []
        of_all = t.nn.modules.module
        handles = [
            of_all.register_module_full_backward_pre_hook(
                lambda module, grads: seen.append(("pre", type(module).__name__, grads[0].detach()))
            ),
            of_all.register_module_full_backward_hook(
                lambda module, ins, outs: (seen.append((type(module).__name__, outs[0].detach())), (ins[0] * 2,))[1]
            ),
        ]
        net[1].register_full_backward_hook(lambda module, ins, outs: seen.append(("own", ins[0].detach())))
        x = t.tensor(given, dtype=t.float32, requires_grad=True)
        net(x).sum().backward()
        for handle in handles:
            handle.remove()
        count = len(seen)
        net(x).sum().backward()
        return *[list(each) for each in seen], count, x.grad, net[0].weight.grad

    agree(told)


def test_forward_hooks_are_called_after_failures_too():
    def told(t):
        net, seen = _net(t), []
        of_all = t.nn.modules.module
        handles = [
            of_all.register_module_forward_hook(
                lambda module, args, output: seen.append((type(module).__name__, output is None)), always_call=True
            ),
            of_all.register_module_forward_hook(
                lambda module, args, kwargs, output: seen.append(sorted(kwargs)), with_kwargs=True
            ),
        ]
        with contextlib.suppress(RuntimeError):
            net(t.ones(2, 5))
        net(input=t.ones(2, 3))
        for handle in handles:
            handle.remove()
        net(t.ones(2, 3))
        return [str(each) for each in seen]

    agree(told)


def test_registrations_are_seen_and_replaced():
    def told(t):
        seen, of_all = [], t.nn.modules.module
        handles = [
            of_all.register_module_parameter_registration_hook(
                lambda module, name, value: seen.append(f"parameter {name}")
            ),
            of_all.register_module_buffer_registration_hook(
                lambda module, name, value: (seen.append(f"buffer {name}"), value if value is None else value + 1)[1]
            ),
            of_all.register_module_module_registration_hook(
                lambda module, name, value: t.nn.Tanh() if isinstance(value, t.nn.ReLU) else None
            ),
        ]
        norm = t.nn.BatchNorm1d(2)
        outer = t.nn.Module()
        outer.layer = t.nn.ReLU()
        outer.add_module("other", t.nn.ReLU())
        outer.weight = t.nn.Parameter(t.ones(1))
        for handle in handles:
            handle.remove()
        last = t.nn.Sequential(t.nn.ReLU())
        return seen, norm.running_mean, repr(outer), repr(last)

    agree(told)


Pair = collections.namedtuple("Pair", "first second")


def test_backward_hooks_keep_named_tuples():
    def told(t):
        class Two(t.nn.Module):
            def forward(self, x):
                return Pair(x * 2, x * 3)

        two = Two()
        two.register_full_backward_hook(lambda module, ins, outs: None)
        made = two(t.ones(2, requires_grad=True))
        return type(made).__name__, made.second.detach()

    agree(told)


def test_handles_and_marks_of_hooks_have_pytorchs_names():
    def told(t):
        module = t.nn.Linear(2, 2)
        seen = []
        pre = module.register_forward_pre_hook(lambda module, args, kwargs: None, with_kwargs=True)
        post = module.register_forward_hook(lambda module, args, kwargs, out: None, with_kwargs=True, always_call=True)
        marks = (
            module._forward_pre_hooks_with_kwargs,
            module._forward_hooks_with_kwargs,
            module._forward_hooks_always_called,
        )
        seen.append([pre.id in marks[0], post.id in marks[1], post.id in marks[2], len(post.hooks_dict_ref())])
        pre.remove()
        post.remove()
        return [*seen, [len(mark) for mark in marks]]

    agree(told)


def test_an_always_called_hook_that_a_library_took_away_hides_no_error():
    def told(t):
        module = t.nn.Linear(2, 2)
        handle = module.register_forward_hook(lambda module, args, out: None, always_call=True)
        module._forward_hooks.pop(handle.id)
        try:
            module(t.ones(3))
        except RuntimeError:
            return "refused"
        return "computed"

    agree(told)


def test_a_hook_of_loading_does_not_keep_its_module():
    def told(t):
        module = t.nn.Linear(2, 2)
        seen = []
        module.register_load_state_dict_pre_hook(lambda module, *rest: seen.append(type(module).__name__))
        module.load_state_dict(module.state_dict())
        weak = weakref.ref(module)
        gc.disable()
        try:
            del module
            return seen, weak() is None
        finally:
            gc.enable()

    agree(told)


def test_always_called_hooks_get_what_the_others_changed_and_keep_the_first_error():
    def told(t):
        seen = []

        class Net(t.nn.Module):
            def forward(self, x, fail=True):
                if fail:
                    raise RuntimeError("of forward")
                return x * 2

        def broken(module, args, result):
            seen.append("broken")
            raise RuntimeError("of the hook")

        net = Net()
        net.register_forward_pre_hook(
            lambda module, args, kwargs: ((args[0] + 1,), {"fail": kwargs["fail"]}), with_kwargs=True
        )
        net.register_forward_hook(broken, always_call=True)
        net.register_forward_hook(
            lambda module, args, kwargs, result: seen.append((args[0].tolist(), kwargs, result)),
            with_kwargs=True,
            always_call=True,
        )
        silenced = pytest.warns(UserWarning, match="silenced as another error was raised in forward: of the hook")
        with silenced, pytest.raises(RuntimeError, match="of forward"):
            net(t.ones(2), fail=True)
        return seen

    agree(told)


def test_backward_hooks_leave_constants_constant_and_warn_of_results_they_cannot_see():
    def told(t):
        seen = []

        class Net(t.nn.Module):
            def forward(self, x, y):
                seen.append((x.requires_grad, y.requires_grad))
                return {"x": x * y}

        net = Net()
        net.register_full_backward_hook(lambda module, ins, outs: seen.append([each is None for each in ins]))
        with pytest.warns(UserWarning, match="module output should be a Tensor or a tuple of Tensors but received"):
            net(t.ones(2, requires_grad=True), t.ones(2))
        layer = t.nn.Bilinear(2, 2, 1)
        layer.register_full_backward_hook(lambda module, ins, outs: seen.append([each is None for each in ins]))
        layer(t.ones(1, 2, requires_grad=True), t.ones(1, 2)).sum().backward()
        return seen

    agree(told)


def test_a_public_hook_of_state_is_not_registered_as_a_private_one():
    def told(t):
        def hook(module, state, prefix, metadata):
            return None

        net = _net(t)
        net.register_state_dict_post_hook(hook)
        with pytest.raises(RuntimeError, match="previously registered via register_state_dict_post_hook"):
            net._register_state_dict_hook(hook)
        return sorted(net.state_dict())

    agree(told)
