"""Hooks of leaves: what they keep alive, and what is collected, compared with PyTorch over a real socket."""

import copy
import gc
import weakref

import pytest

import gradwire
from tests.client.oracle import torch

pytestmark = pytest.mark.usefixtures("session")


def test_a_hook_that_holds_its_leaf_is_collected_with_it():
    def case(t):
        x = t.ones(3, requires_grad=True)
        calls = []

        class Hook:
            def __call__(self, leaf):
                calls.append(leaf is self.leaf)

        hook = Hook()
        hook.leaf = x
        x.register_post_accumulate_grad_hook(hook)
        (x * 2).sum().backward()
        y = (x * 3).sum()
        found = weakref.ref(hook)
        del hook, x
        gc.collect()
        lives = found() is not None  # the graph of y still leads to the leaf
        y.backward()
        del y
        gc.collect()
        return calls, lives, found() is None

    called, lives, _ = case(torch)
    for _ in range(3):
        assert case(gradwire) == (called, lives, True)


def test_a_copied_leaf_has_none_of_its_hooks():
    def case(t):
        x = t.ones(3, requires_grad=True)
        calls = []
        handle = x.register_post_accumulate_grad_hook(lambda leaf: calls.append(leaf.grad.tolist()))
        copied = copy.deepcopy(x)
        copied.sum().backward()
        x.requires_grad_(False)
        x.requires_grad_(True)
        x.sum().backward()
        handle.remove()
        x.sum().backward()
        return calls

    assert case(gradwire) == case(torch)


def test_a_hook_may_return_its_leaf_and_no_other_tensor():
    def case(t):
        x = t.ones(2, requires_grad=True)
        x.register_post_accumulate_grad_hook(lambda leaf: leaf.sub_(leaf.grad))
        x.sum().backward()
        y = t.ones(2, requires_grad=True)
        y.register_post_accumulate_grad_hook(lambda leaf: leaf.detach())
        with pytest.raises(RuntimeError, match="should return None"):
            y.sum().backward()
        return x.tolist()

    assert case(gradwire) == case(torch) == [0.0, 0.0]
