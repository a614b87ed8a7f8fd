"""Annotations of shapes and dtypes, checked."""

import torch
from jaxtyping import Float, Int

assert isinstance(torch.ones(2, 3), Float[torch.Tensor, "a b"])
assert not isinstance(torch.ones(2, 3), Float[torch.Tensor, "a a"])
assert isinstance(torch.ones(2, dtype=torch.int64), Int[torch.Tensor, "n"])
assert not isinstance(torch.ones(2), Int[torch.Tensor, "n"])
