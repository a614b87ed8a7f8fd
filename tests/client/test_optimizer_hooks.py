"""Hooks of steps, of one optimizer and of all: calls, arguments and refusals are those of PyTorch."""

import importlib

import pytest

from tests.client.oracle import agree, refuse

pytestmark = pytest.mark.usefixtures("session")


def test_hooks_of_all_optimizers():
    def case(t):
        seen = []
        x = t.ones(2, requires_grad=True)
        optimizer = t.optim.SGD([x], lr=0.1)
        note = lambda when: lambda *args: seen.append((when, args[0] is args[1][0], len(args[1]), sorted(args[2])))  # noqa: E731
        module = importlib.import_module(f"{t.__name__}.optim.optimizer")
        handles = [
            module.register_optimizer_step_pre_hook(note("before any")),
            module.register_optimizer_step_post_hook(note("after any")),
            optimizer.register_step_pre_hook(note("before")),
            optimizer.register_step_post_hook(note("after")),
        ]
        optimizer.step()
        optimizer.step(closure=lambda: None)
        for handle in handles:
            handle.remove()
        optimizer.step()
        return seen

    agree(case)


def test_a_step_hook_replaces_both_arguments_or_none():
    def case(t):
        x = t.ones(2, requires_grad=True)
        optimizer = t.optim.SGD([x], lr=0.1)
        optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: ((args[0], lambda: 3.0), {}))
        return optimizer.step()

    agree(case)

    def wrong(t):
        optimizer = t.optim.SGD([t.ones(2, requires_grad=True)], lr=0.1)
        optimizer.register_step_pre_hook(lambda *given: 3)
        optimizer.step()

    refuse(wrong, RuntimeError, "must return None or a tuple")
