"""Dtype rules: which ops have one, and which node records them."""

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine import REGISTRY
from gradwire_engine.core.schema import REQUIRED, TENSOR_KINDS
from gradwire_engine.ops.dtype_rules import dtype_rules
from gradwire_engine.ops.shape_rules import shape_rules

RULES = dtype_rules()
# Rules whose ops take floating tensors alone.
FLOATS = ("floats", "numbers")


def test_only_ops_with_a_shape_rule_have_one():
    assert set(RULES) < set(shape_rules())


@pytest.mark.parametrize("op", ["gather", "index_select", "celu", "gcd"])
def test_ops_that_the_server_may_refuse_for_more_than_dtypes_have_none(op):
    assert op in shape_rules()
    assert op not in RULES


def test_truth_values_are_no_targets():
    assert RULES["eq"][0] == "truth"
    assert "eq_" not in RULES


def is_of_tensors_alone(name):
    """Whether an elementwise op has a node for each call, and needs no numbers."""
    rule, node, _ = RULES[name]
    if rule not in FLOATS or not node or name not in REGISTRY or shape_rules()[name] != "pointwise":
        return False
    return all(param.kind in TENSOR_KINDS or param.default is not REQUIRED for param in REGISTRY[name].params)


@pytest.mark.parametrize("op", [name for name in RULES if is_of_tensors_alone(name)])
def test_the_node_is_that_of_the_engine(op):
    operands = [
        engine.Tensor(np.full(2, 0.5, np.float32), requires_grad=True)
        for param in REGISTRY[op].params
        if param.kind in TENSOR_KINDS
    ]
    assert REGISTRY[op](*operands).grad_fn.name == RULES[op][1]
