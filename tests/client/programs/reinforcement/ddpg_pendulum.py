import copy
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)


class Pendulum:
    def reset(self):
        self.th, self.thdot = np.random.uniform(-math.pi, math.pi), np.random.uniform(-1, 1)
        return self.obs()

    def obs(self):
        return np.array([math.cos(self.th), math.sin(self.th), self.thdot], dtype=np.float32)

    def step(self, u):
        u = float(np.clip(u, -2, 2))
        cost = ((self.th + math.pi) % (2 * math.pi) - math.pi) ** 2 + 0.1 * self.thdot**2 + 0.001 * u**2
        self.thdot = float(np.clip(self.thdot + (15 * math.sin(self.th) + 3 * u) * 0.05, -8, 8))
        self.th += self.thdot * 0.05
        return self.obs(), -cost


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh())

    def forward(self, s):
        return 2 * self.net(s)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc_s, self.fc_a, self.q, self.out = (
            nn.Linear(3, 64),
            nn.Linear(1, 64),
            nn.Linear(128, 32),
            nn.Linear(32, 1),
        )

    def forward(self, s, a):
        h = torch.cat([F.relu(self.fc_s(s)), F.relu(self.fc_a(a))], dim=1)
        return self.out(F.relu(self.q(h)))


env, actor, critic = Pendulum(), Actor(), Critic()
target_actor, target_critic = copy.deepcopy(actor), copy.deepcopy(critic)
opt_a, opt_c = torch.optim.Adam(actor.parameters(), 5e-4), torch.optim.Adam(critic.parameters(), 1e-3)
buffer = []


def soft_update(net, target, tau=0.01):
    for p_t, p in zip(target.parameters(), net.parameters()):
        p_t.data.copy_(p_t.data * (1.0 - tau) + p.data * tau)


for episode in range(3):
    s, total = env.reset(), 0.0
    for t in range(60):
        a = actor(torch.from_numpy(s)).item() + np.random.normal(0, 0.1)
        s2, r = env.step(a)
        buffer.append((s, [a], [r], s2))
        s, total = s2, total + r
        if len(buffer) >= 64 and t % 2 == 0:
            bs, ba, br, bs2 = (torch.tensor(np.array(x), dtype=torch.float32) for x in zip(*random.sample(buffer, 32)))
            target = br / 10 + 0.98 * target_critic(bs2, target_actor(bs2))
            c_loss = F.smooth_l1_loss(critic(bs, ba), target.detach())
            opt_c.zero_grad()
            c_loss.backward()
            opt_c.step()
            a_loss = -critic(bs, actor(bs)).mean()
            opt_a.zero_grad()
            a_loss.backward()
            opt_a.step()
            soft_update(actor, target_actor)
            soft_update(critic, target_critic)
    print(
        f"episode {episode} reward {total:.1f}",
        "" if len(buffer) < 64 else f"critic {c_loss.item():.4f} actor {a_loss.item():.4f}",
    )
