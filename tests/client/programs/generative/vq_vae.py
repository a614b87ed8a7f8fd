import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class VectorQuantizer(nn.Module):
    def __init__(self, num_embeddings, dim, cost=0.25):
        super().__init__()
        self.embedding = nn.Embedding(num_embeddings, dim)
        self.embedding.weight.data.uniform_(-1 / num_embeddings, 1 / num_embeddings)
        self.num, self.cost = num_embeddings, cost

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        flat = inputs.view(-1, inputs.shape[-1])
        distances = (
            flat.pow(2).sum(1, keepdim=True)
            + self.embedding.weight.pow(2).sum(1)
            - 2 * flat @ self.embedding.weight.t()
        )
        indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(indices.shape[0], self.num)
        encodings.scatter_(1, indices, 1)
        quantized = torch.matmul(encodings, self.embedding.weight).view(inputs.shape)
        loss = F.mse_loss(quantized, inputs.detach()) + self.cost * F.mse_loss(quantized.detach(), inputs)
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity


encoder = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 4, 2, 1))
decoder = nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))
vq = VectorQuantizer(16, 8)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *vq.parameters()], lr=2e-3)
data = torch.rand(32, 1, 16, 16).cumsum(-1) / 16
for i in range(12):
    batch = data[torch.randint(0, 32, (16,))]
    vq_loss, quantized, perplexity = vq(encoder(batch))
    recon_error = F.mse_loss(decoder(quantized), batch)
    optimizer.zero_grad()
    (recon_error + vq_loss).backward()
    optimizer.step()
    if i % 4 == 3:
        print(f"{i + 1} iterations recon_error: {recon_error.item():.4f} perplexity: {perplexity.item():.3f}")
