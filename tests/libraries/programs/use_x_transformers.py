"""A decoder that is trained and generates, and an encoder."""

import torch
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper

torch.manual_seed(0)
model = TransformerWrapper(
    num_tokens=20, max_seq_len=16, attn_layers=Decoder(dim=16, depth=2, heads=2, attn_dim_head=8)
)
trained = AutoregressiveWrapper(model)
tokens = torch.randint(0, 20, (2, 9))
optimizer = torch.optim.Adam(trained.parameters(), lr=1e-3)
for _ in range(2):
    optimizer.zero_grad()
    loss = trained(tokens)
    loss.backward()
    optimizer.step()
assert torch.isfinite(loss).item()
assert trained.generate(tokens[:, :2], 3).shape == (2, 3)
rotary = TransformerWrapper(
    num_tokens=20,
    max_seq_len=16,
    attn_layers=Encoder(dim=16, depth=1, heads=2, attn_dim_head=8, rotary_pos_emb=True, use_rmsnorm=True, ff_glu=True),
)
rotary(tokens).sum().backward()
