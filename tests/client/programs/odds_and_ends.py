import os, time, math, copy
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.backends.cudnn as cudnn
from collections import OrderedDict
from _kit import *

seed = 0
torch.manual_seed(seed)
torch.cuda.manual_seed_all(seed)
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False
torch.use_deterministic_algorithms(True)
cudnn.benchmark = True
torch.set_num_threads(1)
torch.set_printoptions(precision=3, sci_mode=False)
torch.set_default_dtype(torch.float64)
device = torch.device(
    "cuda:0" if torch.cuda.is_available() else ("mps" if torch.backends.mps.is_available() else "cpu")
)
print(device)
m = nn.Sequential(OrderedDict([("fc1", nn.Linear(4, 8)), ("act", nn.SiLU()), ("fc2", nn.Linear(8, 2))])).to(device)
det(m)
print(m.fc1, m[0] is m.fc1, len(m), m[-1], [n for n, _ in m.named_parameters()])
use_amp = False
scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
opt = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(3):
    x, y = randn(6, 4).to(device, non_blocking=True), randint(0, 2, (6,)).to(device)
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16, enabled=use_amp):
        out = m(x)
        loss = F.cross_entropy(out, y, weight=torch.tensor([1.0, 2.0]))
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad(set_to_none=True)
    say(loss.item())
accum = 2
opt.zero_grad()
for i in range(4):
    loss = m(randn(3, 4)).pow(2).mean() / accum
    loss.backward()
    if (i + 1) % accum == 0:
        opt.step()
        opt.zero_grad()
        say(loss.item())
ckpt = {"epoch": 3, "model_state_dict": m.state_dict(), "optimizer_state_dict": opt.state_dict(), "loss": loss.item()}
torch.save(ckpt, FOLDER + "checkpoint.tar")
c = torch.load(FOLDER + "checkpoint.tar", map_location=device)
m2 = copy.deepcopy(m)
m2.load_state_dict(c["model_state_dict"])
o2 = torch.optim.AdamW(m2.parameters(), lr=0.5)
o2.load_state_dict(c["optimizer_state_dict"])
print(c["epoch"], o2.param_groups[0]["lr"])
say(*m2.parameters())
for mm, oo in ((m, opt), (m2, o2)):
    X = torch.ones(2, 4)
    l = mm(X).sum()
    oo.zero_grad()
    l.backward()
    oo.step()
    say(*mm.parameters())
print(m.load_state_dict(m2.state_dict()))
try:
    m.load_state_dict({"fc1.weight": torch.zeros(1)})
except RuntimeError as e:
    print("size mismatch" in str(e), "Missing key" in str(e))
with torch.no_grad():
    m.fc1.weight[0, 0] = 5.0
    m.fc1.weight.fill_(0.5)
    m.fc1.bias.data = torch.zeros(8)
    m.fc2.weight.mul_(2)
    print(m.fc1.weight)
m.fc1.weight.requires_grad = False
print(
    sum(p.numel() for p in m.parameters()),
    any(p.is_cuda for p in m.parameters()),
    next(m.parameters()).device,
    next(m.parameters()).dtype,
)
print(torch.cuda.device_count() >= 0, torch.cuda.is_available() in (True, False), torch.version.cuda is None or True)
# focal / dice / distillation losses
t = randn(4, 3).requires_grad_()
s = randn(4, 3)
T = 2.0
kd = F.kl_div(F.log_softmax(t / T, dim=1), F.softmax(s / T, dim=1), reduction="batchmean") * T * T
kd.backward()
say(kd, t.grad)
p = torch.sigmoid(randn(2, 1, 4, 4))
tgt = (randn(2, 1, 4, 4) > 0).double()
inter = (p * tgt).sum(dim=(1, 2, 3))
say((1 - (2 * inter + 1) / (p.sum(dim=(1, 2, 3)) + tgt.sum(dim=(1, 2, 3)) + 1)).mean())
say(
    F.triplet_margin_loss(randn(4, 3), randn(4, 3), randn(4, 3)),
    F.cosine_embedding_loss(randn(4, 3), randn(4, 3), torch.tensor([1, -1, 1, -1])),
    F.cosine_similarity(randn(2, 3), randn(2, 3)),
    F.normalize(randn(2, 3), dim=-1),
)
z = F.normalize(randn(6, 4), dim=1)
sim = z @ z.T / 0.5
sim.fill_diagonal_(-9e15)
say(F.cross_entropy(sim, torch.tensor([3, 4, 5, 0, 1, 2])))


# jit/compile passthrough
@torch.compile
def foo(x):
    return torch.sin(x) + torch.cos(x)


say(foo(torch.ones(2)))
f = torch.compile(m)
say(f(torch.ones(1, 4)))
start = time.time()
torch.cuda.synchronize() if torch.cuda.is_available() else None
print(
    torch.tensor(3.0).item(),
    float(torch.tensor(2)),
    int(torch.tensor(2.9)),
    bool(torch.tensor(1)),
    f"{torch.tensor(1.5):.2f}",
    "%.3f" % torch.tensor(2.0),
    np.mean([torch.tensor(1.0), torch.tensor(3.0)]),
    math.sqrt(torch.tensor(4.0)),
    round(torch.tensor(1.234).item(), 1),
    sum([torch.tensor(1), torch.tensor(2)]),
    max(torch.tensor(1), torch.tensor(2)),
    [*range(3)][torch.tensor(1)],
    sorted([torch.tensor(2), torch.tensor(1)]),
)
for i, row in enumerate(torch.arange(4).view(2, 2)):
    print(i, row)
a, b = torch.tensor([1, 2])
print(
    a,
    b,
    len(torch.zeros(3, 2)),
    1,
    2,
    reversed(torch.arange(3)),
    hash(a) == hash(a),
    a is a,
    torch.tensor([1.0]).numpy().dtype,
    np.asarray(torch.ones(2)),
    np.array([torch.tensor(1.0), torch.tensor(2.0)]),
    torch.from_numpy(np.arange(3)) + 1,
    np.sin(torch.ones(1)),
)
