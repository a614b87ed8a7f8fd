"""Programs of Studio's playground with PyTorch's answers: what they print, or their error and its line.

    python -m tests.studio.programs [--check]

writes tests/studio/programs.json, or fails if it is stale. `write_random` makes programs of random ops.
"""

import argparse
import contextlib
import io
import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).with_name("programs.json")
_RANDOM = 24  # programs
_STATEMENTS = 8

PROGRAMS = {
    "a leaf accumulates 6, 12, 18": """
x = torch.tensor(3.0, requires_grad=True)
for i in range(3):
    (x ** 2).backward()
    print(x.grad)
""",
    "leaves and results": """
w = torch.tensor([1.0, 2.0], requires_grad=True)
x = torch.tensor([3.0, 4.0])
scaled = x * 10
product = w * scaled
loss = product.sum()
for t in [w, x, scaled, product, loss]:
    print(t.requires_grad, t.is_leaf, t.grad_fn is None, t.grad is None)
print(w, x, scaled, product, loss)
loss.backward()
print(w.grad, x.grad, f"{w.grad=}")
""",
    "retain_grad": """
w = torch.tensor([1.0, 2.0], requires_grad=True)
h = w * 3
h.retain_grad()
print(h.retains_grad, w.retains_grad)
h.sum().backward()
print(h.grad, w.grad)
""",
    "a second backward is refused": """
w = torch.tensor([1.0, 2.0], requires_grad=True)
y = (w * w).sum()
y.backward()
y.backward()
""",
    "backward needs a scalar": """
w = torch.ones(2, 3, requires_grad=True)
(w * 2).backward()
""",
    "backward with a gradient": """
w = torch.ones(2, 3, requires_grad=True)
(w * 2).backward(torch.arange(6.0).reshape(2, 3))
print(w.grad)
""",
    "second derivatives": """
a = torch.tensor(3.0, requires_grad=True)
(first,) = torch.autograd.grad(a**3, a, create_graph=True)
(second,) = torch.autograd.grad(first, a, create_graph=True)
(third,) = torch.autograd.grad(second, a)
print(first.item(), second.item(), third.item(), first.is_leaf, third.requires_grad)
print(first, second, third)
""",
    "a leaf that is changed in place": """
w = torch.ones(2, requires_grad=True)
w += 1
""",
    "a saved value that is changed in place": """
w = torch.tensor([1.0, 2.0], requires_grad=True)
y = w.exp()
z = y * 2
y += 1
z.sum().backward()
""",
    "in place under no_grad": """
w = torch.tensor([1.0, 2.0], requires_grad=True)
(w * w).sum().backward()
with torch.no_grad():
    w -= 0.1 * w.grad
w.grad = None
print(w, w.is_leaf, w._version)
""",
    "detach and data": """
w = torch.tensor([1.0, 2.0], requires_grad=True)
d = w.detach()
print(d, d.requires_grad, d.is_leaf)
w.data -= 1
print(w, d)
w.data = torch.tensor([5.0, 6.0])
print(w, w.is_leaf)
""",
    "integers have no gradients": """
x = torch.tensor([1, 2], requires_grad=True)
""",
    "tensors of lists": """
print(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1.5, 2], [3, 4]]), torch.tensor([True, False]))
print(torch.tensor(5), torch.tensor(2.5), torch.tensor([]), torch.tensor([[]]), torch.tensor([1, 2.5]))
print(torch.tensor([1, 2], dtype=torch.float64), torch.tensor([1.7, -1.7], dtype=torch.int64))
print(torch.tensor([1.0, 2.0], dtype=torch.float16), torch.tensor(3, dtype=torch.bool))
""",
    "a ragged list": """
x = torch.tensor([[1, 2], [3]])
""",
    "printed tensors": """
print(torch.arange(12).reshape(3, 4))
print(torch.arange(24.0).reshape(2, 3, 4) / 7)
print(torch.tensor([1e-5, 1.0]), torch.tensor([1e9, 1.0]), torch.tensor([0.1, 1000.5]), torch.tensor([1.0, 20000.0]))
print(torch.zeros(3), torch.ones(2, 0), torch.full((2, 2), 0.03125), torch.tensor([0.09375, 1.5]))
print(torch.arange(1200).reshape(30, 40))
print(torch.arange(2000.0))
print(torch.linspace(0, 1, 30))
print(torch.tensor([float("inf"), 1.0]), torch.tensor([float("nan"), 1.5]), -torch.tensor([0.0, 1.0]))
print(torch.tensor(1e-7), torch.tensor(123456789.0), torch.tensor([-1.0, 2.0], dtype=torch.float64))
""",
    "numbers as Python writes them": """
print(1.0, 1e16, 1e-5, 0.1 + 0.2, 1 / 3, -0.0, 1e22, 123456.789, 5 // 2, -5 // 2, -5 % 3, 5.5 % 2, 2**10, 2**-1)
print(7 // 2.0, 1e100, True + 1, not 0, 3 == 3.0, 10**15, 1.5e300 * 10)
print(1 < 2 < 3, 1 < 3 < 2, "a" in ["a", "b"], 3 not in (1, 2), None is None, 2 and 3, 0 or "x")
print([1, 2.0, "a", None, True], (1,), (), [], ["it's", 'say "x"'])
print(-7 // 2, round(2.5), round(3.7), abs(-3), max(1, 5, 2))
print(f"{3.14159:.2f} {42} {'s'} {2 + 2=} {1e-7:.3e} {5:4d}|{2.0:8.3f}|{'ab':>4}")
""",
    "indexing": """
x = torch.arange(24.0).reshape(2, 3, 4)
print(x[0, 1], x[1, 2, 3], x[..., 0], x[:, 1:3, ::2].shape, x[None].shape, x[-1, -1])
print(x[torch.tensor([0, 1, 0])].shape, x[x > 20], x.T.shape if x.dim() == 2 else x.mT.shape)
y = torch.zeros(3, 3)
y[1] = 5
y[0, 2] += 2
y[:, 0] = torch.tensor([7.0, 8.0, 9.0])
print(y)
""",
    "an index out of range": """
x = torch.zeros(3)
print(x[5])
""",
    "shapes that do not match": """
a = torch.ones(2, 3)
b = torch.ones(4, 5)
print("before")
c = a @ b
""",
    "operators with numbers on the left": """
x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
print(2 + x, 2 - x, 2 * x, 2 / x, 2 ** x, 2 < x, 2 // x.detach(), 5 % x.detach())
print(x > 1, x == 2, -x, +x, x / 2, x // 2, x % 3, x ** 0.5, (x > 1) & (x < 4), ~(x > 1))
""",
    "several results": """
x = torch.tensor([[1.0, 5.0], [7.0, 3.0]])
values, places = x.max(dim=1)
print(values, places)
print(x.max(), x.sum(dim=0, keepdim=True), x.mean(), x.std(), x.argmax())
top = x.sort(descending=True)
print(top.values, top.indices)
a, b = x
print(a, b)
print(x.split(1), torch.stack([a, b]), torch.cat([a, b], dim=0), x.unbind(1))
""",
    "functions, lambdas and comprehensions": """
def f(x, k=2):
    if k == 0:
        return x
    return f(x * 2, k - 1)
g = lambda a, b=3: a + b
print(f(1), f(torch.ones(2), k=1), g(1), g(b=1, a=1), [i * i for i in range(5) if i % 2 == 0])
total = 0
while total < 10:
    total += 3
    if total == 6:
        continue
print(total, sum([1, 2, 3]), list(range(3)), [(i, c) for i, c in enumerate("ab")])
""",
    "hooks": """
w = torch.tensor([1.0, 2.0], requires_grad=True)
h = w * 2
handle = h.register_hook(lambda g: g * 10)
h.sum().backward()
print(w.grad)
handle.remove()
w.grad = None
(w * 2).sum().backward()
print(w.grad)
""",
    "a neuron": """
x = torch.tensor([1.0, 2.0])
w = torch.tensor([0.5, -0.25], requires_grad=True)
b = torch.tensor(0.1, requires_grad=True)
for step in range(20):
    y = torch.sigmoid(x @ w + b)
    loss = (y - 1.0) ** 2
    loss.backward()
    with torch.no_grad():
        w -= 0.5 * w.grad
        b -= 0.5 * b.grad
    w.grad = None
    b.grad = None
print(w, b, loss)
""",
    "a layer and its loss": """
import torch.nn.functional as F
torch.manual_seed(3)
x = torch.randn(4, 3)
w = torch.randn(2, 3, requires_grad=True)
b = torch.zeros(2, requires_grad=True)
loss = F.cross_entropy(F.relu(F.linear(x, w, b)), torch.tensor([0, 1, 1, 0]))
loss.backward()
print(loss, w.grad, b.grad)
print(F.mse_loss(x, torch.zeros(4, 3)), x.softmax(dim=1).sum())
print(x.view(2, 6).shape, x.permute(1, 0).shape, x.reshape(-1).shape)
""",
    "dtypes": """
x = torch.arange(3)
print(x.float(), x.double(), x.to(torch.int32), x.dtype, x.float().mean().dtype, torch.float32, (x / 2).dtype)
print(x.size(), x.size(0))
print(x.numel(), len(x), x.tolist(), x.sum().item(), float(x[1]), int(torch.tensor(2.7)), bool(torch.tensor(0)))
""",
    "an unknown name": """
x = 1
print(y)
""",
    "an unknown method": """
x = torch.ones(2)
x.sigmoidd()
""",
    "a wrong number of names": """
a, b, c = torch.ones(2)
""",
    "an ambiguous truth": """
if torch.ones(2):
    pass
""",
    "unused inputs": """
a = torch.tensor(1.0, requires_grad=True)
b = torch.tensor(1.0, requires_grad=True)
print(torch.autograd.grad(a * 2, [a, b], allow_unused=True))
torch.autograd.grad(a * 2, [b])
""",
    "no_grad nests": """
a = torch.tensor(1.0, requires_grad=True)
with torch.no_grad():
    b = a * 2
    with torch.enable_grad():
        c = a * 2
print(b.requires_grad, c.requires_grad, torch.is_grad_enabled())
""",
    "retain_graph": """
a = torch.tensor(2.0, requires_grad=True)
y = a * a
y.backward(retain_graph=True)
y.backward()
print(a.grad)
""",
    "unsupported operands": """
x = torch.ones(2)
print(x + "a")
""",
    "requires_grad of a result": """
a = torch.ones(2, requires_grad=True)
b = a * 2
b.requires_grad = False
""",
}


def answer(code: str) -> dict[str, Any]:
    """What PyTorch answers: `printed`, and `error` with `type`, `message` and `line` if it refuses."""
    import torch

    said = io.StringIO()
    error = None
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(code, "<program>", "exec"), {"torch": torch, "F": torch.nn.functional})
        except Exception as caught:  # noqa: BLE001  # any refusal is an answer
            trace = caught.__traceback__
            line = 0
            while trace is not None:
                if trace.tb_frame.f_code.co_filename == "<program>":
                    line = trace.tb_lineno
                trace = trace.tb_next
            error = {"type": type(caught).__name__, "message": str(caught), "line": line}
    return {"printed": said.getvalue(), "error": error}


def committed() -> str:
    """The text of the committed file."""
    cases = [{"name": name, "code": code.lstrip("\n"), **answer(code.lstrip("\n"))} for name, code in PROGRAMS.items()]
    return json.dumps(cases, indent=1) + "\n"


_UNARY = ("sin", "exp", "tanh", "sigmoid", "relu", "abs", "neg", "cumsum(dim=0)", "softmax(dim=-1)", "flip(0)")
_BINARY = ("+", "-", "*", "/", "@")
_REDUCE = ("sum()", "mean()", "max()", "sum(dim=0)", "amax(dim=-1)", "std()", "prod()", "logsumexp(dim=0)")


def _program(draw: random.Random) -> str:
    """Random statements over square matrices; any of them may be refused."""
    lines = [
        f"torch.manual_seed({draw.randrange(100)})",
        f"n = {draw.randint(1, 4)}",
        "a = torch.randn(n, n, requires_grad=True)",
        "b = torch.rand(n, n) + 0.5",
        "c = torch.arange(float(n))",
    ]
    names = ["a", "b", "c"]
    for number in range(_STATEMENTS):
        one, other = draw.choice(names), draw.choice(names)
        made = f"t{number}"
        kind = draw.randrange(7)
        if kind == 0:
            op = draw.choice(_UNARY)
            lines.append(f"{made} = {one}.{op if '(' in op else op + '()'}")
        elif kind == 1:
            lines.append(f"{made} = {one} {draw.choice(_BINARY)} {other}")
        elif kind == 2:
            lines.append(f"{made} = {draw.choice(('2', '0.5', '-1'))} {draw.choice('+-*/')} {one}")
        elif kind == 3:
            lines.append(f"{made} = {one}[{draw.choice(('0', '-1', '...', ':1', '::2', 'None'))}]")
        elif kind == 4:
            lines.append(f"{made} = {one}.{draw.choice(_REDUCE)}")
        elif kind == 5:
            lines.append(f"{made} = torch.where({one} > {other}, {one}, {other} * 2)")
        else:
            lines.append(f"{made} = {one}.{draw.choice(('detach()', 'clone()', 'T', 'reshape(-1)', 'unsqueeze(0)'))}")
        if draw.random() < 0.2:
            lines.append(f"{made} {draw.choice(('+=', '*=', '-='))} {draw.choice(('2', one))}")
        names.append(made)
        lines.append(f"print({made}.shape, {made}.requires_grad, {made}.is_leaf)")
    lines += [f"loss = ({names[-1]} * 1.0).sum()", "loss.backward()", "print(a.grad is None)"]
    lines += ["print([round(v, 2) for v in a.grad.reshape(-1).tolist()])", "print(f'{loss.item():.2f}')"]
    return "\n".join(lines) + "\n"


def write_random(path: Path, seed: int) -> None:
    """Write random programs with PyTorch's answers."""
    draw = random.Random(seed)
    codes = [_program(draw) for _ in range(_RANDOM)]
    cases = [{"name": f"random {seed}.{i}", "code": code, **answer(code)} for i, code in enumerate(codes)]
    path.write_text(json.dumps(cases), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the file is stale")
    check = parser.parse_args().check
    text = committed()
    if check and COMMITTED.read_text("utf-8") != text:
        sys.exit("stale answers of PyTorch for the playground; run `python -m tests.studio.programs`")
    if not check:
        COMMITTED.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
