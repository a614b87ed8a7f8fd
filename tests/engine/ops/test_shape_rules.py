"""The table of shape rules names ops. tests/client/test_shape_rules.py compares the rules with the server."""

from gradwire_engine import REGISTRY
from gradwire_engine.ops import shape_rules


def test_each_name_of_the_table_is_an_op() -> None:
    named = {name for names in shape_rules._RULES.values() for name in names}
    named |= shape_rules._POINTWISE | shape_rules._WITH_CONDITIONS
    assert {name for name in named if name.removesuffix("_") not in REGISTRY} == set()


def test_an_op_has_one_rule() -> None:
    named = [name for names in shape_rules._RULES.values() for name in names]
    assert len(named) == len(set(named))
    assert not shape_rules._POINTWISE & set(named)


def test_elementwise_ops_derive_their_rule_and_ops_on_values_have_none() -> None:
    rules = shape_rules.shape_rules()
    assert (rules["add"], rules["exp"], rules["exp_"], rules["sum"]) == (
        "pointwise",
        "pointwise",
        "pointwise",
        "reduction",
    )
    for name in ("nonzero", "masked_select", "unique", "frexp", "lerp"):
        assert name not in rules
