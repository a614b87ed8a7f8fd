"""Checks of attention's sizes in the client: PyTorch makes them in Python and raises AssertionError."""

from __future__ import annotations

from gradwire._tensor.tensor import Tensor


def check_attention(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int
) -> None:
    """Raise AssertionError unless query, key, value and both masks are all batched, or all unbatched."""
    dims = query.ndim
    if dims not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {dims}-D query tensor")
    start = f"For {'batched' if dims == 3 else 'unbatched'} ({dims}-D) `query`, expected"
    if key.ndim != dims or value.ndim != dims:
        raise AssertionError(
            f"{start} `key` and `value` to be {dims}-D but found {key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    if padding is not None and padding.ndim != dims - 1:
        raise AssertionError(
            f"{start} `key_padding_mask` to be `None` or {dims - 1}-D but found {padding.ndim}-D tensor instead"
        )
    if mask is None:
        return
    if mask.ndim not in (2, 3):
        raise AssertionError(f"{start} `attn_mask` to be `None`, 2-D or 3-D but found {mask.ndim}-D tensor instead")
    wanted = (heads, query.shape[0], key.shape[0])
    if dims == 2 and mask.ndim == 3 and tuple(mask.shape) != wanted:
        raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {mask.shape}")
