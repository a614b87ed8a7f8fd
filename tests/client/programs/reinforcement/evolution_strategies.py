import torch
from _cartpole import CartPole
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


@torch.no_grad()
def fitness(seed):
    env = CartPole(seed)
    state, total = env.reset(), 0.0
    for _ in range(40):
        state, reward, done, _ = env.step(policy(torch.as_tensor(state)).argmax().item())
        total += reward
        if done:
            break
    return total


theta = parameters_to_vector(policy.parameters()).detach().clone()
for generation in range(4):
    noise = torch.randn(6, theta.numel())
    scores = []
    for eps in noise:
        for sign in (1, -1):
            vector_to_parameters(theta + sign * 0.3 * eps, policy.parameters())
            scores.append(fitness(generation))
    scores = torch.tensor(scores)
    ranks = (scores - scores.mean()) / (scores.std() + 1e-8)
    theta += 0.1 / (6 * 0.3) * (ranks.view(6, 2) @ torch.tensor([1.0, -1.0])) @ noise
    print(generation, f"mean {scores.mean():.2f} max {scores.max():.0f} norm {theta.norm():.3f}")
