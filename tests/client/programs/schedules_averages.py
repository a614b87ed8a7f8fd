import torch
import torch.optim as optim
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import *
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn, get_ema_multi_avg_fn
from _kit import *

torch.set_default_dtype(torch.float64)
net = det(torch.nn.Linear(3, 2))
X, Y = randn(8, 3), randn(8, 2)


def go(make, n=20, arg=None, **kw):
    p = [v.detach().clone().requires_grad_() for v in net.parameters()]
    o = optim.SGD([{"params": [p[0]]}, {"params": [p[1]], "lr": 0.05}], lr=0.1, momentum=0.9)
    s = make(o)
    for i in range(n):
        l = (X @ p[0].T + p[1] - Y).pow(2).mean()
        o.zero_grad()
        l.backward()
        o.step()
        s.step(l.item()) if arg else s.step()
        say([float(g["lr"]) for g in o.param_groups][0], float(o.param_groups[1]["lr"]))
    say(*p)
    print(sorted(s.state_dict()))


go(lambda o: StepLR(o, 3, 0.5))
go(lambda o: MultiStepLR(o, [3, 7], 0.1))
go(lambda o: ExponentialLR(o, 0.9))
go(lambda o: CosineAnnealingLR(o, 10, eta_min=1e-3))
go(lambda o: OneCycleLR(o, max_lr=0.2, total_steps=25))
go(lambda o: OneCycleLR(o, max_lr=[0.2, 0.1], epochs=5, steps_per_epoch=5, three_phase=True, anneal_strategy="linear"))
go(lambda o: ReduceLROnPlateau(o, "min", patience=2, factor=0.5), arg=1)
go(lambda o: LambdaLR(o, lambda e: 0.95**e))
go(lambda o: LambdaLR(o, [lambda e: 0.95**e, lambda e: 1 / (e + 1)]))
go(lambda o: SequentialLR(o, [LinearLR(o, 0.1, total_iters=4), ExponentialLR(o, 0.9)], milestones=[4]))
go(lambda o: CosineAnnealingWarmRestarts(o, T_0=4, T_mult=2))
go(lambda o: ConstantLR(o))
go(lambda o: PolynomialLR(o, 8, 2.0))
go(lambda o: CyclicLR(o, 0.01, 0.1, 4, mode="triangular2"))
go(lambda o: MultiplicativeLR(o, lambda e: 0.95))
go(lambda o: ChainedScheduler([ConstantLR(o, 0.1, 2), ExponentialLR(o, 0.9)]))
o = optim.Adam(net.parameters())
s = torch.optim.lr_scheduler.StepLR(o, 2)
sd = {"m": net.state_dict(), "o": o.state_dict(), "s": s.state_dict(), "epoch": 1}
s.load_state_dict(sd["s"])
o.load_state_dict(sd["o"])
print(s.get_last_lr(), s.last_epoch, o)
# noam
sch = LambdaLR(
    optim.Adam(net.parameters(), lr=1, betas=(0.9, 0.98), eps=1e-9),
    lr_lambda=lambda step: 8**-0.5 * min(max(step, 1) ** -0.5, max(step, 1) * 4**-1.5),
)
sch.optimizer.step()
sch.step()
say(sch.get_last_lr()[0])
# EMA + SWA
m = det(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)))
swa = AveragedModel(m)
ema = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))
opt = optim.SGD(m.parameters(), lr=0.1)
ss = SWALR(opt, swa_lr=0.05, anneal_epochs=3)
for i in range(6):
    l = (m(X) - Y).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    ss.step()
    ema.update_parameters(m)
    swa.update_parameters(m) if i > 2 else None
    say(opt.param_groups[0]["lr"])
update_bn([X], swa)
swa.eval()
say(swa(X))
ema.eval()
say(*ema.module.parameters())
print(int(swa.n_averaged))


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {n: p.data.clone() for n, p in model.named_parameters() if p.requires_grad}

    def update(self, model):
        for n, p in model.named_parameters():
            self.shadow[n] = ((1.0 - self.decay) * p.data + self.decay * self.shadow[n]).clone()

    def apply(self, model):
        for n, p in model.named_parameters():
            p.data = self.shadow[n]


e = EMA(m, 0.9)
e.update(m)
e.apply(m)
say(*m.parameters())


class MySGD(optim.Optimizer):
    def __init__(self, params, lr=1e-2):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                d_p = p.grad
                state = self.state[p]
                if len(state) == 0:
                    state["buf"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                state["buf"].mul_(0.9).add_(d_p)
                p.add_(state["buf"], alpha=-group["lr"])
        return loss


o = MySGD(m.parameters())
for _ in range(3):
    l = (m(X) - Y).pow(2).mean()
    o.zero_grad()
    l.backward()
    o.step()
    say(l.item())
