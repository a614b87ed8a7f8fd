"""Saved values: their versions, and the names under which a node shows them."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, tensor
from gradwire_engine.graph.saved import Saved, saved_bytes, saved_values
from gradwire_engine.op.declaration import OPS


def test_a_change_in_place_after_saving_is_a_version_conflict() -> None:
    leaf = tensor(np.ones(2, np.float32), requires_grad=True)
    made = OPS["mul"](leaf, leaf)
    saved = Saved(made, -1)
    assert saved.value(made.node, "other") is made.array
    made.storage.changed()
    with pytest.raises(EngineError, match="is at version 1; expected version 0 instead") as raised:
        saved.value(made.node, "other")
    assert raised.value.reason is Reason.VERSION_CONFLICT


def test_an_input_is_saved_with_its_node_and_an_output_without() -> None:
    leaf = tensor(np.ones(2, np.float32), requires_grad=True)
    made = OPS["exp"](leaf)
    assert Saved(made, -1).node is made.node
    output = Saved(made, 0)
    assert output.node is None
    assert output.tensor(made.node, "result").node is made.node


def test_saved_values_have_the_names_of_the_formulas() -> None:
    leaf = tensor(np.ones(2, np.float32), requires_grad=True)
    node = OPS["mul"](leaf, leaf).node
    assert [name for name, _ in saved_values(node)] == ["other", "input"]
    assert saved_bytes(node) == 2 * leaf.array.nbytes
