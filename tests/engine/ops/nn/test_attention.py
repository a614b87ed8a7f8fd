"""Similarity of vectors, and attention with masks, scales and heads."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn import attention
from tests.engine.oracle import Refused, Same, bools, given, normal, refused, same, torch

F = torch.nn.functional
Q, K, V = normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 6)
WIDE = {"embed_dim_to_check": 4, "num_heads": 2, "add_zero_attn": False, "dropout_p": 0.0}
PROJECTED = {
    **WIDE,
    "in_proj_weight": normal(12, 4),
    "in_proj_bias": normal(12),
    "bias_k": None,
    "bias_v": None,
    "out_proj_weight": normal(4, 4),
    "out_proj_bias": normal(4),
}
APART = {
    **PROJECTED,
    "in_proj_weight": None,
    "use_separate_proj_weight": True,
    "q_proj_weight": normal(4, 4),
    "k_proj_weight": normal(4, 3),
    "v_proj_weight": normal(4, 2),
}
X = normal(3, 2, 4)
CAUSAL = given(np.triu(np.ones((3, 3)), 1), "bool", False)
ALONE = (attention.multi_head_attention_forward, lambda *args, **named: FORWARD[1](*args, **named)[0])
FORWARD = (attention.multi_head_attention_forward, F.multi_head_attention_forward)
DOT = (attention.scaled_dot_product_attention, F.scaled_dot_product_attention)
SAME = [
    same(attention.normalize, F.normalize, normal(3, 4)),
    same(attention.normalize, F.normalize, normal(3, 4), 1.0, 0, 10.0),
    same(attention.normalize, F.normalize, given([[0.0, 0.0], [3.0, 4.0]]), smooth=False),
    same(attention.cosine_similarity, F.cosine_similarity, normal(3, 4), normal(4)),
    same(attention.cosine_similarity, F.cosine_similarity, normal(3, 4), normal(3, 4), 0),
    same(attention.cosine_similarity, F.cosine_similarity, given([[0.0, 0.0]]), given([[3.0, 4.0]]), smooth=False),
    same(*DOT, Q, K, V),
    same(*DOT, Q, K, V, normal(3, 5)),
    same(*DOT, Q, K, V, given([[1, 0, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]], "bool", False)),
    same(*DOT, Q, K, V, given([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]], "bool", False)),
    same(*DOT, Q, K, V, given(np.where(np.tri(3, 5, -1), 0.5, -np.inf), "float64", False)),
    same(*DOT, Q, normal(5, 4), normal(5, 6), given([[1, 0, 1, 0, 1], [0] * 5, [1] * 5], "bool", False)),
    same(*DOT, Q, normal(2, 3, 4), normal(2, 3, 6), is_causal=True),
    same(*DOT, Q, K, V, scale=0.1),
    same(*FORWARD, X, X, X, **PROJECTED),
    same(*FORWARD, X, X, X, **PROJECTED, attn_mask=CAUSAL),
    same(*FORWARD, X, X, X, **PROJECTED, key_padding_mask=given([[0, 1, 0], [0, 0, 0]], "bool", False)),
    same(*FORWARD, X, X, X, **PROJECTED, average_attn_weights=False),
    same(*ALONE, X, X, X, **{**PROJECTED, "need_weights": False}, attn_mask=CAUSAL),
    same(
        *ALONE,
        X,
        X,
        X,
        **{**PROJECTED, "need_weights": False},
        key_padding_mask=given([[0, 1, 0], [1, 1, 1]], "bool", False),
    ),
    same(*FORWARD, X, normal(5, 2, 3), normal(5, 2, 2), **APART),
    same(*FORWARD, X, X, X, **{**PROJECTED, "add_zero_attn": True}),
    same(*FORWARD, X, X, X, **{**PROJECTED, "bias_k": normal(1, 1, 4), "bias_v": normal(1, 1, 4)}),
]
BAD = Reason.ARGUMENT_VALUE
REFUSED = [
    refused(
        DOT[0], Reason.RUNTIME, "should not be set when is_causal", Q, K, V, bools(3, 5), is_causal=True, theirs=DOT[1]
    ),
    refused(DOT[0], Reason.NOT_SUPPORTED, "enable_gqa", Q, K, V, enable_gqa=True),
    refused(FORWARD[0], BAD, "received 1-D query", normal(4), X, X, **PROJECTED),
    refused(FORWARD[0], BAD, "not 2-D and 3-D", X, normal(3, 4), X, **PROJECTED),
    refused(FORWARD[0], BAD, "embedding dimension of 4, but got 5", *[normal(3, 2, 5)] * 3, **PROJECTED),
    refused(FORWARD[0], BAD, "embed_dim 4 not divisible by num_heads 3", X, X, X, **{**PROJECTED, "num_heads": 3}),
    refused(FORWARD[0], BAD, "[5, 2, 4] does not match value shape [3, 2, 4]", X, normal(5, 2, 4), X, **PROJECTED),
    refused(FORWARD[0], BAD, "in_proj_weight is None", X, X, X, **{**PROJECTED, "in_proj_weight": None}),
    refused(
        FORWARD[0],
        Reason.RUNTIME,
        "2D attn_mask is [2, 2], but should be [3, 3]",
        X,
        X,
        X,
        **PROJECTED,
        attn_mask=bools(2, 2),
    ),
    refused(FORWARD[0], Reason.RUNTIME, "Need attn_mask", X, X, X, **PROJECTED, is_causal=True, theirs=FORWARD[1]),
    refused(FORWARD[0], BAD, "shape of (2, 3), but got [2, 2]", X, X, X, **PROJECTED, key_padding_mask=bools(2, 2)),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
