import torch

torch.manual_seed(1)
dt = 0.1
F = torch.tensor([[1, dt, 0, 0], [0, 1, 0, 0], [0, 0, 1, dt], [0, 0, 0, 1]], dtype=torch.float64)
H = torch.tensor([[1.0, 0, 0, 0], [0, 0, 1, 0]], dtype=torch.float64)
Q, R = torch.eye(4, dtype=torch.float64) * 1e-3, torch.eye(2, dtype=torch.float64) * 0.1
truth, measured = [torch.tensor([0.0, 1.0, 0.0, 0.5], dtype=torch.float64)], []
for _ in range(50):
    truth.append(F @ truth[-1])
    measured.append(H @ truth[-1] + torch.randn(2, dtype=torch.float64) * 0.3)
x, P = torch.zeros(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
errors, log_likelihood = [], 0.0
for z, state in zip(measured, truth[1:]):
    x, P = F @ x, F @ P @ F.T + Q
    S = H @ P @ H.T + R
    K = torch.linalg.solve(S, H @ P).T
    innovation = z - H @ x
    x, P = x + K @ innovation, (torch.eye(4, dtype=torch.float64) - K @ H) @ P
    log_likelihood += torch.distributions.MultivariateNormal(torch.zeros(2, dtype=torch.float64), S).log_prob(
        innovation
    )
    errors.append((H @ (x - state)).norm())
print(f"log likelihood {log_likelihood.item():.4f}")
print("errors", torch.stack(errors)[::10])
print("last state", x)
