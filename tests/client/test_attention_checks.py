"""Sizes that attention refuses: class and words of the refusals are those of PyTorch."""

import pytest

import gradwire
from tests.client.oracle import torch

pytestmark = pytest.mark.usefixtures("session")

# Query, key, value, padding and mask; the embedding has 4 numbers, in 2 heads.
SIZES = {
    "query": ((4,), (3, 4), (3, 4), None, None),
    "key": ((2, 3, 4), (3, 4), (2, 3, 4), None, None),
    "unbatched value": ((3, 4), (3, 4), (2, 3, 4), None, None),
    "padding": ((3, 4), (3, 4), (3, 4), (2, 3), None),
    "batched padding": ((2, 3, 4), (2, 3, 4), (2, 3, 4), (3,), None),
    "mask": ((2, 3, 4), (2, 3, 4), (2, 3, 4), None, (3,)),
    "unbatched mask": ((3, 4), (3, 4), (3, 4), None, (3,)),
    "sizes of the mask": ((3, 4), (3, 4), (3, 4), None, (2, 3, 5)),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    def said(t):
        layer = t.nn.MultiheadAttention(4, 2)
        made = [None if sizes is None else t.ones(sizes) for sizes in SIZES[name]]
        with pytest.raises(AssertionError) as caught:
            layer(*made[:3], key_padding_mask=made[3], attn_mask=made[4])
        return str(caught.value).splitlines()[0]  # a line about the module follows

    assert said(gradwire) == said(torch)


@pytest.mark.parametrize("static", ["static_k", "static_v"])
def test_a_bias_is_not_added_to_what_is_given_projected(static):
    def said(t):
        x, one = t.ones(3, 2, 4), t.ones(1, 1, 4)
        weights = t.ones(12, 4), t.ones(12), one, one, False, 0.0, t.ones(4, 4), t.ones(4)
        with pytest.raises(AssertionError) as caught:
            t.nn.functional.multi_head_attention_forward(x, x, x, 4, 2, *weights, **{static: t.ones(4, 3, 2)})
        return str(caught.value).splitlines()[0]  # a line about the module follows

    assert said(gradwire) == said(torch)
