"""Codebooks: vector quantization, its residual form, and finite scalars."""

import torch
from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize

torch.manual_seed(0)
x = torch.randn(2, 10, 8, requires_grad=True)
quantized, indices, loss = VectorQuantize(dim=8, codebook_size=16, decay=0.8, commitment_weight=1.0)(x)
(quantized.sum() + loss.sum()).backward()
assert indices.shape == (2, 10) and torch.isfinite(x.grad).all()
assert ResidualVQ(dim=8, num_quantizers=2, codebook_size=16)(x)[0].shape == x.shape
assert torch.isfinite(FSQ(levels=[4, 3, 3], dim=8)(x)[0]).all()
