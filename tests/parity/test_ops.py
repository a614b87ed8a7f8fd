"""Every op of the tables against PyTorch, and its derivatives against finite differences."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

import pytest

import gradwire_engine as engine
from tests.parity import harness
from tests.parity.harness import Case, Refusal, check_against_torch, check_by_differences, check_refusal

TABLES = [
    importlib.import_module(f"tests.parity.tables.{path.stem}")
    for path in sorted((pathlib.Path(__file__).parent / "tables").glob("*.py"))
]
CASES: list[Case] = [made for name in harness.TABLE for made in harness.TABLE[name]]
REFUSALS: list[Refusal] = [refusal for table in TABLES for refusal in getattr(table, "REFUSALS", ())]
# Differentiable ops that no table holds, each with the reason.
EXCEPTIONS: dict[str, str] = {
    **{name: reason for table in TABLES for name, reason in getattr(table, "EXCEPTIONS", {}).items()}
}


def _name(made: Any) -> str:
    return str(made)


@pytest.mark.parametrize("made", CASES, ids=_name)
def test_op_agrees_with_pytorch(made: Case) -> None:
    """Value, shape, dtype, node, first and second derivative."""
    pytest.importorskip("torch", reason="PyTorch is what is compared with")
    check_against_torch(made)


@pytest.mark.parametrize("made", [made for made in CASES if made.order], ids=_name)
def test_derivatives_agree_with_differences(made: Case) -> None:
    """First and second derivative in a random direction, in float64."""
    check_by_differences(made)


@pytest.mark.parametrize("refusal", REFUSALS, ids=_name)
def test_op_refuses_as_pytorch_does(refusal: Refusal) -> None:
    """The same class and phrase."""
    check_refusal(refusal)


def test_every_op_is_in_a_table() -> None:
    """So that no op is added without being compared."""
    assert engine.REGISTRY.keys() - harness.TABLE.keys() - EXCEPTIONS.keys() == set()
    assert EXCEPTIONS.keys() <= engine.REGISTRY.keys(), "an exception for an op that is gone"
    assert all(EXCEPTIONS.values()), "an exception without a reason"
