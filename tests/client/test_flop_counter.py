"""FlopCounterMode counts what PyTorch's counts, by module and op. Over a real socket."""

import warnings

import pytest

import gradwire
from gradwire.utils import flop_counter
from tests.client.oracle import torch

pytestmark = pytest.mark.usefixtures("session")

torch_counter = pytest.importorskip("torch.utils.flop_counter")


def counts(t, call, **options):
    home = flop_counter if t is gradwire else torch_counter
    with home.FlopCounterMode(display=False, **options) as mode:
        call(t)
    found = {name: {str(op): count for op, count in each.items()} for name, each in mode.get_flop_counts().items()}
    return mode.get_total_flops(), {name: each for name, each in found.items() if each}


def network(t):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = t.nn.Linear(4, 8)
            self.rest = t.nn.Sequential(t.nn.Linear(8, 8), t.nn.ReLU(), t.nn.Linear(8, 2))

        def forward(self, x):
            return self.rest(self.first(x))

    return Net()(t.ones(3, 4))


CALLS = {
    "mm": lambda t: t.ones(3, 4) @ t.ones(4, 5),
    "bmm": lambda t: t.ones(2, 3, 4) @ t.ones(2, 4, 5),
    "addmm": lambda t: t.addmm(t.ones(5), t.ones(3, 4), t.ones(4, 5)),
    "baddbmm": lambda t: t.baddbmm(t.ones(2, 3, 5), t.ones(2, 3, 4), t.ones(2, 4, 5)),
    "folded": lambda t: t.ones(2, 3, 4) @ t.ones(4, 5),
    "einsum": lambda t: t.einsum("bij,bjk->bik", t.ones(2, 3, 4), t.ones(2, 4, 5)),
    "tensordot": lambda t: t.tensordot(t.ones(2, 3, 4), t.ones(4, 3, 5), ([1, 2], [1, 0])),
    "conv1d": lambda t: t.nn.functional.conv1d(t.ones(2, 3, 9), t.ones(4, 3, 3), stride=2),
    "conv2d": lambda t: t.nn.functional.conv2d(t.ones(2, 3, 8, 8), t.ones(4, 3, 3, 3), padding=1),
    "groups": lambda t: t.nn.functional.conv2d(t.ones(2, 4, 8, 8), t.ones(4, 2, 3, 3), groups=2),
    "transposed": lambda t: t.nn.functional.conv_transpose2d(t.ones(2, 3, 8, 8), t.ones(3, 4, 3, 3)),
    "attention": lambda t: t.nn.functional.scaled_dot_product_attention(*[t.ones(2, 2, 3, 4)] * 3),
    "attention without heads": lambda t: t.nn.functional.scaled_dot_product_attention(*[t.ones(2, 3, 4)] * 3),
    "modules": network,
    "no product": lambda t: t.ones(3).sin() + 1,
}


@pytest.mark.parametrize("name", CALLS)
def test_counts_are_pytorchs(name):
    assert counts(gradwire, CALLS[name]) == counts(torch, CALLS[name])


def test_multi_head_attention_counts_its_products():
    def attend(t):
        return t.nn.MultiheadAttention(8, 2, batch_first=True)(t.ones(2, 5, 8), t.ones(2, 7, 8), t.ones(2, 7, 8))

    assert counts(gradwire, attend)[0] == counts(torch, attend)[0] > 0


def test_a_formula_of_ones_own_counts():
    def formula(shape, *_, out_shape=None, **__):
        return 10 * shape[0] + out_shape[0]

    for t in (gradwire, torch):
        assert counts(t, lambda t: t.ones(3).sin(), custom_mapping={t.ops.aten.sin: formula})[0] == 33


def test_products_that_no_mode_sees_are_refused():
    with pytest.raises(NotImplementedError, match="linalg_multi_dot are not shown"):
        counts(gradwire, lambda t: t.linalg.multi_dot([t.ones(3, 4), t.ones(4, 5), t.ones(5, 2)]))


def test_backward_is_not_counted():
    def step(t):
        w = t.ones(4, 5, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (t.ones(3, 4) @ w).sum().backward()

    assert counts(gradwire, step)[0] == counts(gradwire, CALLS["mm"])[0] < counts(torch, step)[0]


def test_the_table_names_modules_and_shares(capsys):
    with flop_counter.FlopCounterMode() as mode:
        network(gradwire)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Module", "FLOP", "%", "Total"]
    assert lines[2].split() == ["Global", "672", "100.00%"]
    assert any(each.split() == ["Net.first", "192", "28.57%"] for each in lines)
    assert "Net.rest.0" not in mode.get_table(depth=2)
    assert "Net.rest.0" in mode.get_table(depth=3)
