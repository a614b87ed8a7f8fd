"""Random programs whose session is stored and restored after each step.

`python -m tests.client.stored_programs` runs many. Each must continue as an undisturbed run does: values, gradients,
flags, versions, node names, shared bytes and refusals.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradwire
from gradwire.utils.checkpoint import checkpoint


class _Twice(gradwire.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * g


class _Changes(gradwire.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        x.mul_(1.5)
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 1.5


class _Looks(gradwire.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


class _Two(gradwire.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        ctx.set_materialize_grads(factor > 0.5)
        made, marks = x * factor, x > 0.5
        ctx.mark_non_differentiable(marks)
        ctx.save_for_backward(made)
        ctx.factor = factor
        return made, x.exp(), marks

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any, _: Any) -> Any:
        (made,) = ctx.saved_tensors
        first = 0 if g is None else g * ctx.factor
        return (first if h is None else first + h * (made / ctx.factor).exp()), None


@gradwire.compile
def _compiled(a: Any, b: Any) -> Any:
    return (a * a).sum() * b, a.sin() + b


class Program:
    """Draws steps on a pool of tensors and takes them; `state` tells all there is to tell of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        gradwire.manual_seed(seed)
        x = gradwire.tensor([[0.5, 1.0, 1.5], [0.25, -0.5, 2.0]], dtype=gradwire.float64, requires_grad=True)
        w = gradwire.tensor([1.5, 0.5, -0.75], dtype=gradwire.float64, requires_grad=True)
        self.pool = [x, w, x * 1.5, gradwire.ones(2, 3, dtype=gradwire.float64), w * 1.0]
        self.handles: list[Any] = []
        self.edges: list[Any] = []
        self.optimizers: list[Any] = []
        self.hook_calls: list[Any] = []
        self.log: list[str] = []
        kinds = "view change compute quiet turn differ differ hook function part leave flag keep drop split draw"
        kinds += " bend bend several ours nest improve prepared watch"
        self.kinds = [getattr(self, name) for name in kinds.split()]

    def step(self) -> None:
        """One of them; what is refused is told, too."""
        kept, kind = list(self.pool), self.rng.choice(self.kinds)
        p, q = self.rng.choice(self.pool), self.rng.choice(self.pool)
        choice = self.rng.random()
        try:
            kind(p, q, choice)
            gradwire.sync()
            self.log.append(f"{kind.__name__} {choice:.2f}")
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            self.pool = kept
            self.log.append(f"{kind.__name__} {choice:.2f}: {error}")
            if getattr(error, "reason", None) in ("INTERNAL", "UNAVAILABLE", "SESSION_NOT_FOUND", "EPOCH_MISMATCH"):
                raise
            gradwire.sync()  # a backward whose hook failed is given up

    def _one(self, ways: tuple[Callable[[], Any], ...], choice: float) -> Any:
        return ways[int(choice * len(ways))]()

    def view(self, p: Any, q: Any, choice: float) -> None:
        ways = (
            lambda: p[0],
            lambda: p[1:],
            lambda: p[:],
            lambda: p.t(),
            lambda: p.reshape(-1),
            lambda: p.unsqueeze(0),
            lambda: p.view(p.shape),
            lambda: p.detach(),
            lambda: p.data,
            lambda: p.expand(2, *p.shape),
            lambda: p.as_strided((2,), (1,)),
            lambda: p.diagonal(),
            lambda: p.squeeze(),
            lambda: p.flatten(),
            lambda: p[p > 0.4],
            lambda: p.contiguous(),
            lambda: p[..., None].movedim(0, -1),
            lambda: p.unfold(0, 2, 1),
        )
        self.pool.append(self._one(ways, choice))

    def split(self, p: Any, q: Any, choice: float) -> None:
        ways = (lambda: p.unbind(0), lambda: p.chunk(2), lambda: p.split(1), lambda: p.tensor_split(2))
        self.pool.extend(self._one(ways, choice)[:2])

    def change(self, p: Any, q: Any, choice: float) -> None:
        other = q.clone()
        ways = (
            lambda: p.mul_(other),
            lambda: p.add_(other),
            lambda: p.mul_(1.25),
            lambda: p.sin_(),
            lambda: p.copy_(other),
            lambda: p.zero_(),
            lambda: p.__setitem__(0, other[0]),
            lambda: p.__setitem__(p > 0.5, 0.25),
            lambda: p[-1].add_(1.0),
            lambda: p.exp_(),
            lambda: p.__setitem__(0, 0.75),
            lambda: p.__setitem__((slice(None), 1), 1.5),
            lambda: p.index_add_(0, gradwire.tensor([0]), other[:1]),
            lambda: p.masked_fill_(p > 1.0, 0.5),
            lambda: p.data.mul_(1.1),
            lambda: p.detach_(),
            lambda: p.fill_(other[0]),
            lambda: p.__setitem__(-1, 1.5),
        )
        self._one(ways, choice)

    def compute(self, p: Any, q: Any, choice: float) -> None:
        ways = (
            lambda: p * q,
            lambda: p + q,
            lambda: p.sin(),
            lambda: p.exp(),
            lambda: gradwire.cat([p, q]),
            lambda: p.sum(0),
            lambda: p.max(0).values,
            lambda: p.cumsum(0),
            lambda: gradwire.stack([p, p]),
            lambda: p.sort().values,
            lambda: gradwire.nn.functional.dropout(p, 0.5),
            lambda: p.clone(),
            lambda: p.float(),
            lambda: p.std(),
            lambda: gradwire.einsum("...i,...i->...", p, p),
            lambda: p.prod(0),
            lambda: p @ q.t(),
            lambda: p.gather(0, (p[:1] > 9).long()),
        )
        self.pool.append(self._one(ways, choice))

    def draw(self, p: Any, q: Any, choice: float) -> None:
        ways = (
            lambda: gradwire.rand_like(p),
            lambda: p.detach().clone().normal_(),
            lambda: p.uniform_(),
            lambda: p.clone().bernoulli_(0.5),
        )
        self.pool.append(self._one(ways, choice))

    def quiet(self, p: Any, q: Any, choice: float) -> None:
        modes = gradwire.no_grad, gradwire.inference_mode, gradwire.no_grad
        with modes[int(choice * 100) % 3]():
            ways = (
                lambda: p.mul_(1.5) and None,
                lambda: p[0],
                lambda: p * 2,
                lambda: p.view(p.shape),
                lambda: p.unbind(0)[0],
                lambda: p.__setitem__(0, 0.5),
                lambda: p.t(),
                lambda: p.fill_(0.5) and None,
            )
            try:
                made = self._one(ways, choice)
            except RuntimeError as error:
                if "bool" in str(error).lower() or "ambiguous" in str(error):
                    return
                raise
        if made is not None:
            self.pool.append(made)

    def turn(self, p: Any, q: Any, choice: float) -> None:
        ways = (
            lambda: p.t_(),
            lambda: p.unsqueeze_(0),
            lambda: p.squeeze_(),
            lambda: p.transpose_(0, 1),
            lambda: p.swapaxes_(0, -1),
            lambda: p.as_strided_((2,), (1,)),
            lambda: p.data.unsqueeze_(0),
        )
        if choice < 0.5:
            self._one(ways, choice * 2)
        else:
            with gradwire.no_grad():
                self._one(ways, choice * 2 - 1)

    def differ(self, p: Any, q: Any, choice: float) -> None:
        value = (p * p).sum()
        if choice < 0.7:
            value.backward(retain_graph=choice < 0.5, create_graph=choice < 0.05)
        elif choice < 0.75 and self.edges:
            edge = self.rng.choice(self.edges)
            found = gradwire.autograd.grad(
                edge,
                [each for each in self.pool if each.is_leaf and each.requires_grad],
                gradwire.tensor(1.0),
                allow_unused=True,
            )
        else:
            roots = [each for each in self.pool if each.is_leaf and each.requires_grad]
            found = gradwire.autograd.grad(value, roots, create_graph=choice < 0.85, allow_unused=True)
            self.pool.extend([each * 1 for each in found if each is not None][:2])

    def hook(self, p: Any, q: Any, choice: float) -> None:
        def note(kind: str) -> Callable[..., Any]:
            def called(*given: Any) -> None:
                self.hook_calls.append((kind, len(given)))

            return called

        ways = (
            lambda: p.register_hook(note("tensor")),
            lambda: p.register_hook(lambda g: g * 2),
            lambda: p.register_post_accumulate_grad_hook(note("leaf")),
            lambda: p.grad_fn.register_hook(note("node")),
            lambda: p.grad_fn.register_prehook(note("before")),
            lambda: self.handles.pop(0).remove(),
        )
        try:
            made = self._one(ways, choice)
        except (AttributeError, IndexError):
            return
        if made is not None:
            self.handles.append(made)

    def function(self, p: Any, q: Any, choice: float) -> None:
        ways = (lambda: _Twice.apply(p), lambda: _Changes.apply(p), lambda: _Looks.apply(p))
        self.pool.append(self._one(ways, choice))

    def part(self, p: Any, q: Any, choice: float) -> None:
        def inner(a: Any) -> Any:
            return gradwire.nn.functional.dropout(a.sin() * a, 0.3).exp()

        def pack(a: Any) -> Any:
            return a.detach().clone()

        if choice < 0.5:
            self.pool.append(checkpoint(inner, p, use_reentrant=False))
        else:
            with gradwire.autograd.graph.saved_tensors_hooks(pack, lambda a: a):
                self.pool.append(inner(p))

    def leave(self, p: Any, q: Any, choice: float) -> None:
        if choice < 0.4:
            p.detach_()
        elif choice < 0.7:
            p.data = q.detach().clone()
        elif p.grad_fn is not None:
            self.edges.append(gradwire.autograd.graph.get_gradient_edge(p))

    def flag(self, p: Any, q: Any, choice: float) -> None:
        p.requires_grad_(choice < 0.7)

    def keep(self, p: Any, q: Any, choice: float) -> None:
        if choice < 0.6:
            p.retain_grad()
        elif choice < 0.8:
            p.grad = None
        else:
            p.grad = p.detach().clone()

    def bend(self, p: Any, q: Any, choice: float) -> None:
        ways = (
            lambda: gradwire.complex(p, p).real,
            lambda: gradwire.complex(p, p * 2).imag,
            lambda: gradwire.view_as_real(gradwire.complex(p, p)),
            lambda: gradwire.view_as_complex(gradwire.stack([p, p], -1)),
            lambda: p.conj(),
            lambda: p.real,
            lambda: p.as_strided((2, 2), (1, 1)),
            lambda: p.as_strided((1,), (1,), 1),
            lambda: p.expand(3, *p.shape)[1],
            lambda: p.mT,
            lambda: p.narrow(0, 0, 1),
            lambda: p.swapaxes(0, -1),
            lambda: p.view(-1)[::2],
            lambda: p.unflatten(-1, (-1, 1)),
            lambda: p.view(gradwire.int64),
            lambda: p.requires_grad_().detach(),
        )
        self.pool.append(self._one(ways, choice))

    def several(self, p: Any, q: Any, choice: float) -> None:
        given = [each for each in (p, q) if each.requires_grad]
        mode = "all" if choice < 0.5 else "any"

        def called(found: Any) -> None:
            self.hook_calls.append((mode, len(found) if isinstance(found, (list, tuple)) else 1))

        self.handles.append(gradwire.autograd.graph.register_multi_grad_hook(given, called, mode=mode))

    def ours(self, p: Any, q: Any, choice: float) -> None:
        first, second, marks = _Two.apply(p, 0.25 + choice)
        self.pool.extend([first, second, first * marks][int(choice * 3) :])

    def nest(self, p: Any, q: Any, choice: float) -> None:
        def inner(a: Any) -> Any:
            return a.sin() * a

        def outer(a: Any) -> Any:
            return checkpoint(inner, a.exp(), use_reentrant=False) * a

        if choice < 0.4:
            self.pool.append(checkpoint(outer, p, use_reentrant=False))
        elif choice < 0.6:
            self.pool.append(checkpoint(outer, p, use_reentrant=choice < 0.5))
        elif choice < 0.8:
            with gradwire.autograd.graph.saved_tensors_hooks(lambda a: a * 1, lambda a: a):
                self.pool.append(_Two.apply(p, 0.75)[0] * q)
        else:
            with gradwire.autograd.graph.save_on_cpu():
                self.pool.append(checkpoint(inner, p, use_reentrant=False) * p)

    def improve(self, p: Any, q: Any, choice: float) -> None:
        if choice > 0.5 and self.optimizers:
            self.rng.choice(self.optimizers).step()
            return
        leaves = [each for each in self.pool if each.is_leaf and each.requires_grad and not each.is_inference()]
        kinds = (
            lambda: gradwire.optim.SGD(leaves, lr=0.01, momentum=0.9),
            lambda: gradwire.optim.Adam(leaves, lr=0.01),
            lambda: gradwire.optim.RMSprop(leaves, lr=0.01, momentum=0.5),
        )
        self.optimizers.append(self._one(kinds, choice * 2 if choice < 0.5 else 0.0))
        self.optimizers[-1].step()

    def prepared(self, p: Any, q: Any, choice: float) -> None:
        for _ in range(1 + int(choice * 4)):
            made = _compiled(p, q)
        self.pool.append(made[choice < 0.5])

    def watch(self, p: Any, q: Any, choice: float) -> None:
        def turned(g: Any) -> Any:
            return None if g is None else g + g.sum() * 0.5  # None: no gradient reached the node

        def changed(leaf: Any) -> None:
            if leaf.grad is not None:
                leaf.grad.mul_(0.5)

        if choice < 0.6:
            self.handles.append(p.register_hook(turned))
        else:
            self.handles.append(p.register_post_accumulate_grad_hook(changed))

    def drop(self, p: Any, q: Any, choice: float) -> None:
        if len(self.pool) > 8:
            self.pool = [each for each in self.pool if each is not p]

    def state(self) -> list[Any]:
        """What each tensor is."""
        return [self._describe(each) for each in self.pool] + [self.hook_calls, self.log]

    def _describe(self, tensor: Any) -> Any:
        log = [tensor.tolist(), str(tensor.dtype), tuple(tensor.stride()), tensor.requires_grad, tensor.is_inference()]
        if not tensor.is_inference():
            log.append(tensor._version)
        try:
            log += [tensor.is_leaf, None if tensor.grad_fn is None else tensor.grad_fn.name()]
        except RuntimeError as error:
            return [*log, str(error)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            grad = tensor.grad
        return [
            *log,
            tensor.retains_grad,
            None if grad is None else (grad.tolist(), grad.requires_grad, grad._version),
        ]


def run(seed: int, steps: int, between: Callable[[], None] = lambda: None) -> list[Any]:
    """All looks at a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = Program(seed)
        states = []
        for _ in range(steps):
            program.step()
            between()
            states.append(program.state())
        return states


def compare(server: Any, seed: int, steps: int) -> None:
    """Run a program undisturbed, then with its session put away after each step. Raises AssertionError."""
    plain = gradwire.connect(server.address)
    try:
        expected = run(seed, steps)
    finally:
        plain.close()
    stored = gradwire.connect(server.address)
    try:
        states = run(seed, steps, server.put_away)
    finally:
        stored.close()
    for number, (found, wanted) in enumerate(zip(states, expected, strict=True)):
        assert repr(found) == repr(wanted), f"seed {seed}, step {number}: {_first_difference(found, wanted)}"


def _first_difference(found: Any, wanted: Any) -> str:
    for place, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if repr(one) != repr(other):
            return f"at {place}: {one} is not {other}"
    return f"{len(found)} tensors, not {len(wanted)}"


def main(arguments: list[str]) -> None:
    """So many seeds from one on."""
    from tests.server.test_durability import Storing

    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--logs", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(arguments)
    log = logging.StreamHandler()
    log.setFormatter(logging.Formatter("%(message)s %(error)s", defaults={"error": ""}))
    logging.getLogger("gradwire.server").addHandler(log)
    with tempfile.TemporaryDirectory() as folder:
        server = Storing(Path(folder), logs=options.logs)
        wrong = 0
        for seed in range(options.first, options.first + options.seeds):
            try:
                compare(server, seed, options.steps)
            except Exception as error:  # noqa: BLE001 - told, and the next seed tried
                wrong += 1
                if options.verbose:
                    traceback.print_exc()
                print(f"seed {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        server.stop()
    print(f"{options.seeds} seeds, {wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(sys.argv[1:])
