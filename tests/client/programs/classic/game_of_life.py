import torch
import torch.nn.functional as F

torch.manual_seed(0)
board = (torch.rand(24, 24) < 0.3).int()
kernel = torch.ones(1, 1, 3, 3)
kernel[0, 0, 1, 1] = 0
for generation in range(60):
    padded = F.pad(board[None, None].float(), (1, 1, 1, 1), mode="circular")
    neighbours = F.conv2d(padded, kernel)[0, 0].int()
    board = ((neighbours == 3) | ((board == 1) & (neighbours == 2))).int()
    if generation % 15 == 14:
        print(generation, board.sum().item(), "alive")
print("\n".join("".join(".#"[cell] for cell in row) for row in board[:6].tolist()))
glider = torch.zeros(8, 8, dtype=torch.int)
for r, c in ((0, 1), (1, 2), (2, 0), (2, 1), (2, 2)):
    glider[r, c] = 1
for _ in range(4):
    around = sum(torch.roll(glider, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - glider
    glider = ((around == 3) | ((glider == 1) & (around == 2))).int()
print(glider.nonzero().tolist())
