import torch

torch.manual_seed(0)
n = 30
pos, vel = torch.randn(n, 3, dtype=torch.float64), torch.zeros(n, 3, dtype=torch.float64)
mass = torch.rand(n, 1, dtype=torch.float64) + 0.5


def acceleration(pos):
    d = pos[None] - pos[:, None]
    inv = (d.pow(2).sum(-1, keepdim=True) + 0.05).pow(-1.5)
    return (d * inv * mass[None]).sum(1)


def energy(pos, vel):
    d = (pos[None] - pos[:, None]).pow(2).sum(-1).add(0.05).sqrt()
    potential = -(mass @ mass.T / d).triu(1).sum()
    return (0.5 * mass * vel.pow(2)).sum() + potential


acc, dt, start = acceleration(pos), 0.01, energy(pos, vel)
for step in range(150):
    vel += acc * dt / 2
    pos += vel * dt
    acc = acceleration(pos)
    vel += acc * dt / 2
    if step % 50 == 49:
        print(step, f"energy {energy(pos, vel):.6f} drift {(energy(pos, vel) - start).abs() / start.abs():.1e}"[:30])
forces = torch.autograd.functional.jacobian(lambda p: energy(p, vel), pos)
print(torch.allclose(-forces / mass, acc, atol=1e-8))
