import torch
from torch.distributions import Beta, Bernoulli

torch.manual_seed(0)
true_means = torch.tensor([0.2, 0.5, 0.55, 0.7])
successes, failures = torch.ones(4), torch.ones(4)
pulls = [0, 0, 0, 0]
for step in range(150):
    samples = Beta(successes, failures).sample()
    arm = torch.argmax(samples).item()
    reward = Bernoulli(true_means[arm]).sample().item()
    successes[arm] += reward
    failures[arm] += 1 - reward
    pulls[arm] += 1
print("Thompson", pulls, [round(v, 3) for v in (successes / (successes + failures)).tolist()])

values, counts = torch.zeros(4), torch.zeros(4)
for step in range(150):
    if torch.rand(1).item() < 0.1:
        arm = torch.randint(0, 4, (1,)).item()
    else:
        arm = values.argmax().item()
    reward = float(torch.rand(1) < true_means[arm])
    counts[arm] += 1
    values[arm] += (reward - values[arm]) / counts[arm]
print("greedy", counts.tolist(), [round(v, 3) for v in values.tolist()])
