import torch

torch.manual_seed(0)
n, actions, gamma = 25, 4, 0.9
P = torch.zeros(actions, n, n)
for s in range(n):
    row, col = divmod(s, 5)
    for a, (dr, dc) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)]):
        r, c = min(max(row + dr, 0), 4), min(max(col + dc, 0), 4)
        P[a, s, r * 5 + c] += 0.8
        P[a, s, s] += 0.2
R = torch.full((n,), -0.04)
R[24], R[12] = 1.0, -1.0
V = torch.zeros(n)
for i in range(200):
    Q = R[None] + gamma * torch.einsum("ast,t->as", P, V)
    new = Q.max(0).values
    if (new - V).abs().max() < 1e-4:
        break
    V = new
policy = Q.argmax(0).reshape(5, 5)
print(i, V.reshape(5, 5))
print("\n".join("".join("^v<>"[a] for a in row) for row in policy.tolist()))
exact = torch.linalg.solve(torch.eye(n) - gamma * P[policy.flatten(), torch.arange(n)], R)
print(torch.dist(exact, V) < 0.01)

Q, state = torch.zeros(n, actions), 0
for step in range(300):
    action = torch.randint(actions, (1,)).item() if torch.rand(()) < 0.3 else Q[state].argmax().item()
    following = torch.multinomial(P[action, state], 1).item()
    Q[state, action] += 0.2 * (R[following] + gamma * Q[following].max() - Q[state, action])
    state = 0 if following == 24 else following
print(Q.max(1).values)
