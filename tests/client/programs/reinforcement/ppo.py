import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from _cartpole import CartPole
from torch.distributions import Categorical

learning_rate, gamma, lmbda, eps_clip, K_epoch, T_horizon = 0.0005, 0.98, 0.95, 0.1, 3, 20
torch.manual_seed(0)


class PPO(nn.Module):
    def __init__(self):
        super().__init__()
        self.data = []
        self.fc1, self.fc_pi, self.fc_v = nn.Linear(4, 256), nn.Linear(256, 2), nn.Linear(256, 1)
        self.optimizer = optim.Adam(self.parameters(), lr=learning_rate)

    def pi(self, x, softmax_dim=0):
        return F.softmax(self.fc_pi(F.relu(self.fc1(x))), dim=softmax_dim)

    def v(self, x):
        return self.fc_v(F.relu(self.fc1(x)))

    def make_batch(self):
        s, a, r, s_prime, prob, done = (list(each) for each in zip(*self.data))
        self.data = []
        return (
            torch.tensor(s, dtype=torch.float),
            torch.tensor(a),
            torch.tensor(r),
            torch.tensor(s_prime, dtype=torch.float),
            torch.tensor(done, dtype=torch.float),
            torch.tensor(prob),
        )

    def train_net(self):
        s, a, r, s_prime, done_mask, prob_a = self.make_batch()
        for _ in range(K_epoch):
            td_target = r + gamma * self.v(s_prime) * done_mask
            delta = (td_target - self.v(s)).detach().numpy()
            advantage_lst, advantage = [], 0.0
            for delta_t in delta[::-1]:
                advantage = gamma * lmbda * advantage + delta_t[0]
                advantage_lst.append([advantage])
            advantage_lst.reverse()
            advantage = torch.tensor(advantage_lst, dtype=torch.float)
            pi_a = self.pi(s, softmax_dim=1).gather(1, a)
            ratio = torch.exp(torch.log(pi_a) - torch.log(prob_a))
            surr1, surr2 = ratio * advantage, torch.clamp(ratio, 1 - eps_clip, 1 + eps_clip) * advantage
            loss = -torch.min(surr1, surr2) + F.smooth_l1_loss(self.v(s), td_target.detach())
            self.optimizer.zero_grad()
            loss.mean().backward()
            self.optimizer.step()
        return loss.mean().item()


env, model, score = CartPole(3), PPO(), 0.0
for n_epi in range(6):
    s, done = env.reset().tolist(), False
    while not done:
        for t in range(T_horizon):
            prob = model.pi(torch.tensor(s).float())
            a = Categorical(prob).sample().item()
            s_prime, r, done, info = env.step(a)
            s_prime = s_prime.tolist()
            model.data.append((s, [a], [r / 100.0], s_prime, [prob[a].item()], [0 if done else 1]))
            s = s_prime
            score += r
            if done:
                break
        loss = model.train_net()
    print(f"# of episode :{n_epi}, score : {score:.1f}, loss {loss:.4f}")
    score = 0.0
