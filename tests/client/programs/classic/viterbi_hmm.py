import torch

torch.manual_seed(0)
start = torch.tensor([0.6, 0.4]).log()
transition = torch.tensor([[0.7, 0.3], [0.4, 0.6]]).log()
emission = torch.tensor([[0.1, 0.4, 0.5], [0.6, 0.3, 0.1]]).log()
observations = torch.randint(0, 3, (40,))


def forward(obs):
    alpha = start + emission[:, obs[0]]
    for o in obs[1:]:
        alpha = torch.logsumexp(alpha.unsqueeze(1) + transition, 0) + emission[:, o]
    return torch.logsumexp(alpha, 0)


def viterbi(obs):
    score, back = start + emission[:, obs[0]], []
    for o in obs[1:]:
        best, index = (score.unsqueeze(1) + transition).max(0)
        back.append(index)
        score = best + emission[:, o]
    state = score.argmax().item()
    path = [state]
    for index in reversed(back):
        state = index[state].item()
        path.append(state)
    return score.max().item(), path[::-1]


print(f"log likelihood {forward(observations).item():.4f}")
score, path = viterbi(observations)
print(f"{score:.4f}", "".join(map(str, path)))
logits = torch.zeros(2, 3, requires_grad=True)
optimizer = torch.optim.Adam([logits], lr=0.2)
for step in range(6):
    emission = logits.log_softmax(1)
    loss = -forward(observations)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.3f}", logits.softmax(1))
