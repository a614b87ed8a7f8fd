import torch
import torch.nn as nn


class PatchEmbedding(nn.Module):
    def __init__(self, image=24, patch=6, channels=3, width=64):
        super().__init__()
        self.proj = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)

    def forward(self, x):
        x = self.proj(x).flatten(2).transpose(1, 2)
        return torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed


class Attention(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        attn = ((q @ k.transpose(-2, -1)) * self.scale).softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(dim), Attention(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, depth=2, classes=5):
        super().__init__()
        self.embed = PatchEmbedding()
        self.blocks = nn.ModuleList([Block(64) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, classes)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


torch.manual_seed(42)
images, labels = torch.randn(96, 3, 24, 24), torch.randint(0, 5, (96,))
images += labels.view(-1, 1, 1, 1) * 0.3
model = ViT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
for epoch in range(3):
    perm = torch.randperm(96)
    losses = []
    for idx in perm.chunk(4):
        logits = model(images[idx])
        loss = nn.functional.cross_entropy(logits, labels[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(epoch, [f"{value:.3f}" for value in losses])
print(logits.argmax(-1).tolist())
