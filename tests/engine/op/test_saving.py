"""What an op saves: the values that its needed formulas name, each once, and in their order."""

import numpy as np
import pytest

from gradwire_engine import tensor
from gradwire_engine.graph.graph import Meta
from gradwire_engine.graph.saved import Saved
from gradwire_engine.op.saving import Saving, meta_of

SOURCES = {
    "input": ("input", 0),
    "other": ("input", 1),
    "alpha": ("argument", 2),
    "out": ("output", 0),
    "input_meta": ("meta", 0),
    "parts": ("inputs", 3),
    "parts_meta": ("metas", 3),
}
X, Y = tensor(np.ones(2), True), tensor(np.full(3, 2.0))
ARGS = (X, Y, 0.5, [X, Y])
OUT = tensor(np.zeros(2))


def _saving(*formulas):
    return Saving(formulas, SOURCES.__getitem__)


def test_a_value_that_two_formulas_name_is_saved_once() -> None:
    plan = _saving((0, lambda g, other, alpha: g, ("other", "alpha")), (1, lambda g, alpha: g, ("alpha",)))
    assert plan.names == ["other", "alpha"]
    other, alpha = plan.save(ARGS, (OUT,))
    assert isinstance(other, Saved)
    assert alpha == 0.5
    assert [places for _, _, places, _ in plan.formulas] == [None, (1,)]
    assert plan.lone is None


@pytest.mark.parametrize(
    ("name", "kind"), [("out", Saved), ("input_meta", Meta), ("parts", list), ("parts_meta", list), ("alpha", float)]
)
def test_each_kind_of_source_is_saved_as_formulas_want_it(name: str, kind: type) -> None:
    plan = _saving((0, lambda g: g, (name, "other")))
    saved, _ = plan.save(ARGS, (OUT,))
    assert type(saved) is kind
    if kind is list:
        wanted = Saved if name == "parts" else Meta
        assert [type(each) for each in saved] == [wanted, wanted]


def test_the_only_saved_argument_is_taken_by_its_place() -> None:
    assert _saving((0, lambda g: g, ("other",))).lone == 1
    assert _saving((0, lambda g: g, ("alpha",))).save(ARGS, (OUT,)) == (0.5,)
    number = _saving((0, lambda g: g, ("other",)))
    assert number.save((X, 3.0), (OUT,)) == (3.0,)


def test_a_plan_tells_whether_it_holds_tensors() -> None:
    assert _saving((0, lambda g: g, ("out",))).saves_tensors
    assert _saving((0, lambda g: g, ("parts",))).saves_tensors
    assert not _saving((0, lambda g: g, ("input_meta", "alpha"))).saves_tensors


def test_a_formula_whose_first_parameter_is_gs_takes_all_gradients() -> None:
    plan = _saving((0, lambda g: g, ()), (1, lambda gs: gs, ()))
    assert [takes_all for *_, takes_all in plan.formulas] == [False, True]


def test_meta_tells_shape_dtype_and_device() -> None:
    meta = meta_of(tensor(np.zeros((2, 3), np.float32)))
    assert (meta.shape, meta.dtype, meta.device) == ((2, 3), np.float32, "cpu")
