"""Attention in several heads."""

from typing import Any

from tests.parity.harness import Sample, case, mask, s, t, torch


def _without_none(*args: Any, **kwargs: Any) -> Any:
    """PyTorch's results; where weights are not wanted, the output alone."""
    output, weights = torch.nn.functional.multi_head_attention_forward(*args, **kwargs)
    return output if weights is None else (output, weights)


def _call(query: Any, key: Any, value: Any, *more: Any, biased: bool = True, **named: Any) -> Any:
    """A sample of width 4 in 2 heads."""
    bias = (t(12), *(more or (None, None))) if biased else (None, *(more or (None, None)))
    made = s(
        query,
        key,
        value,
        4,
        2,
        t(12, 4),
        *bias,
        named.pop("add_zero_attn", False),
        0.0,
        t(4, 4),
        t(4) if biased else None,
        **named,
    )
    return made if named.get("need_weights", True) else Sample(made.args, made.kwargs, smooth=False, order=1)


Q, K = t(3, 2, 4), t(5, 2, 4)
case(
    "multi_head_attention_forward",
    _call(Q, Q, Q),
    _call(Q, K, K, need_weights=False),
    _call(Q, K, K, biased=False, average_attn_weights=False),
    _call(t(3, 4), t(5, 4), t(5, 4)),
    _call(t(3, 4), t(5, 4), t(5, 4), average_attn_weights=False),
    _call(Q, K, K, t(1, 1, 4), t(1, 1, 4), attn_mask=t(3, 5)),
    _call(Q, Q, Q, add_zero_attn=True, key_padding_mask=mask([False, True, False], [False, False, False])),
    _call(
        Q,
        Q,
        Q,
        attn_mask=mask([False, True, True], [False, False, True], [False, False, False]),
        is_causal=True,
        need_weights=False,
    ),
    _call(Q, K, K, attn_mask=t(4, 3, 5)),
    s(
        Q,
        K,
        K,
        4,
        2,
        None,
        t(12),
        None,
        None,
        False,
        0.0,
        t(4, 4),
        t(4),
        use_separate_proj_weight=True,
        q_proj_weight=t(4, 4),
        k_proj_weight=t(4, 4),
        v_proj_weight=t(4, 4),
    ),
    torch=_without_none,
    node=False,
    half=False,
)
