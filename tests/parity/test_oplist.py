"""The promised ops are there, under PyTorch's names, and their in-place forms too."""

from __future__ import annotations

import importlib

import pytest

import gradwire
import gradwire_engine as engine
from tests.parity import oplist

FIRST, SECOND = oplist.names(oplist.FIRST), oplist.names(oplist.SECOND)
# How many of both lists there must be at least.
PROMISED = 450
# What the client makes of what the server has: no op of its own.
OF_THE_CLIENT = {"tensor", "manual_seed", "Generator", "Tensor.new_tensor"}


@pytest.mark.parametrize("name", FIRST)
def test_every_op_of_the_first_list_is_there(name: str) -> None:
    """In the client, under PyTorch's name, and in the registry."""
    assert oplist.find(gradwire, name) is not None, f"gradwire has no {name}"
    bare = name.removeprefix("nn.functional.").removeprefix("Tensor.")
    assert name in OF_THE_CLIENT or {name, bare, bare.strip("_")} & engine.REGISTRY.keys(), f"no op {name}"


def test_the_client_has_as_many_ops_as_promised() -> None:
    """And none is counted twice."""
    assert len(FIRST) == len(set(FIRST)) and not set(FIRST) & set(SECOND)
    there = [name for name in (*FIRST, *SECOND) if oplist.find(gradwire, name) is not None]
    missing = sorted({*FIRST, *SECOND} - set(there))
    assert len(there) >= PROMISED, f"{len(there)} of {PROMISED}; missing: {', '.join(missing)}"


def test_the_lists_hold_only_names_that_pytorch_has() -> None:
    """So that nothing is counted that nobody would call."""
    torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")
    importlib.import_module("torch.nn.functional")
    assert [name for name in (*FIRST, *SECOND) if oplist.find(torch, name) is None] == []


def test_in_place_forms_are_those_of_pytorch() -> None:
    """Wherever PyTorch's Tensor has an op's form that ends in an underscore, so does the client's."""
    torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")
    missing = {
        name
        for name in (*FIRST, *SECOND)
        if oplist.find(gradwire, name) is not None
        and hasattr(torch.Tensor, f"{name}_")
        and not hasattr(gradwire.Tensor, f"{name}_")
    }
    assert missing == set()
