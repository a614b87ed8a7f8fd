"""Runs a scenario's steps on a library with PyTorch's interface: on PyTorch to record answers, on gradwire to compare.

README.md in this folder describes the steps. `Recorder` writes PyTorch's answers into the steps. `Checker` compares.
"""

import hashlib
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Step = dict[str, Any]
# Compared by their values; the others by their bytes.
READABLE = ("float32", "float64", "int32", "int64", "bool")
# Values beyond this number are compared by a hash of their bytes.
MOST_VALUES = 4096
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
MODES = {"no_grad": "no_grad", "inference": "inference_mode"}


class HookError(Exception):
    """What a hook with `fails` raises."""


class Interpreter:
    """Runs steps; `tensors` has the tensors by their names in the scenario."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib
        self.tensors: dict[str, Any] = {}
        self.programs: dict[str, tuple[Step, dict[Any, Callable[..., Any]]]] = {}
        self.hooks: dict[str, Any] = {}
        self.called: list[str] = []
        self.round = 0
        self.numbers: tuple[float, ...] = ()

    def run(self, steps: list[Step]) -> None:
        """Run the steps in order. A step with `refused` must raise."""
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        """Run one step."""
        getattr(self, f"do_{step['do']}")(step)

    # Tensors

    def do_tensor(self, step: Step) -> None:
        self.tensors[step["out"]] = self.made(step)

    def made(self, step: Step) -> Any:
        """A leaf of a step's values."""
        shape, name = step["shape"], step["dtype"]
        dtype = getattr(self.lib, name)
        if "ramp" in step:
            values = np.arange(math.prod(shape)) % step["ramp"]
            made = self.lib.from_numpy(values.astype(name)).reshape(shape)
        elif "hex" in step:
            data = np.frombuffer(bytes.fromhex(step["hex"]), np.uint8).copy()
            made = self.lib.from_numpy(data).view(dtype).reshape(shape)
        else:
            values = [float(value) if isinstance(value, str) else value for value in step["values"]]
            made = self.lib.tensor(values, dtype=dtype).reshape(shape)
        return made.detach().requires_grad_(step.get("requires_grad", False))

    def do_forget(self, step: Step) -> None:
        del self.tensors[step["of"]]

    def do_seed(self, step: Step) -> None:
        self.lib.manual_seed(step["seed"])

    def do_wait(self, step: Step) -> None:
        pass

    def do_sleep(self, step: Step) -> None:
        pass

    # Ops

    def do_op(self, step: Step) -> None:
        function, args = self.called_op(step["op"], [self.argument(each) for each in step.get("args", [])])
        named = {name: self.argument(each) for name, each in step.get("named", {}).items()}
        with getattr(self.lib, MODES.get(step.get("mode", ""), "enable_grad"))():
            results = function(*args, **named)
        out = step.get("out")
        if isinstance(out, list):
            self.tensors.update(zip(out, results, strict=True))
        elif out is not None:
            self.tensors[out] = results

    def called_op(self, name: str, args: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
        """The function or method that an op's name means, and its arguments."""
        if name == "getitem":
            return (lambda tensor, index: tensor[index]), args
        if name == "setitem_":
            return (lambda tensor, index, value: tensor.__setitem__(index, value)), args
        for module in (self.lib, self.lib.nn.functional):
            found: Any = module
            for part in name.split("."):
                found = getattr(found, part, None)
            if found is not None and not name.endswith("_"):
                return found, args
        return getattr(args[0], name), args[1:]

    def argument(self, given: dict[str, Any]) -> Any:
        ((kind, value),) = given.items()
        match kind:
            case "tensor":
                return self.tensors[value]
            case "tensors":
                return [self.tensors[each] for each in value]
            case "dtype":
                return getattr(self.lib, value)
            case "complex":
                return complex(*value)
            case "none":
                return None
            case "index":
                return tuple(self.index_item(each) for each in value)
            case "round":
                return value * self.round
            case "number":
                return self.numbers[value]
            case "float":
                return float(value)
            case _:
                return value

    def index_item(self, given: dict[str, Any]) -> Any:
        ((kind, value),) = given.items()
        return {
            "slice": lambda: slice(*value),
            "ellipsis": lambda: ...,
            "new_axis": lambda: None,
            "tensor": lambda: self.tensors[value],
        }.get(kind, lambda: value)()

    # Gradients

    def several(self, names: list[str | None] | None) -> list[Any] | None:
        return None if names is None else [None if name is None else self.tensors[name] for name in names]

    def do_backward(self, step: Step) -> None:
        self.lib.autograd.backward(
            self.several(step["tensors"]),
            self.several(step.get("gradients")),
            retain_graph=step.get("retain_graph"),
            create_graph=step.get("create_graph", False),
            inputs=self.several(step.get("inputs")),
        )

    def do_gradients(self, step: Step) -> None:
        found = self.lib.autograd.grad(
            self.several(step["outputs"]),
            self.several(step["inputs"]),
            self.several(step.get("grad_outputs")),
            retain_graph=step.get("retain_graph"),
            create_graph=step.get("create_graph", False),
            allow_unused=step.get("allow_unused", False),
        )
        assert [each is None for each in found] == [name is None for name in step["out"]], step
        self.tensors.update((name, each) for name, each in zip(step["out"], found, strict=True) if name)

    def do_grad(self, step: Step) -> None:
        self.tensors[step["out"]] = self.tensors[step["of"]].grad

    def do_no_grad_of(self, step: Step) -> None:
        assert self.tensors[step["of"]].grad is None, step

    def do_set_grad(self, step: Step) -> None:
        self.tensors[step["of"]].grad = None if step["to"] is None else self.tensors[step["to"]]

    def do_retain_grad(self, step: Step) -> None:
        self.tensors[step["of"]].retain_grad()

    def do_requires_grad(self, step: Step) -> None:
        self.tensors[step["of"]].requires_grad_(step["to"])

    def do_set_data(self, step: Step) -> None:
        self.tensors[step["of"]].data = self.tensors[step["to"]]

    # Hooks

    def do_hook(self, step: Step) -> None:
        def hook(tensor: Any) -> Any:
            self.called.append(step["name"])
            if step.get("fails"):
                raise HookError(step["name"])
            return tensor * step["factor"] if "factor" in step else None

        tensor = self.tensors[step["of"]]
        register = {"tensor": "register_hook", "accumulated": "register_post_accumulate_grad_hook"}[step["kind"]]
        self.hooks[step["name"]] = getattr(tensor, register)(hook)

    def do_node_hook(self, step: Step) -> None:
        def hook(gradients: Any, *_: Any) -> Any:
            self.called.append(step["name"])
            return tuple(None if each is None else each * step["factor"] for each in gradients)

        node = self.tensors[step["of"]].grad_fn
        register = {"after": node.register_hook, "before": node.register_prehook}[step["kind"]]
        self.hooks[step["name"]] = register(hook)

    def do_square(self, step: Step) -> None:
        class Square(self.lib.autograd.Function):  # type: ignore[misc,name-defined]
            @staticmethod
            def forward(context: Any, x: Any) -> Any:
                context.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(context: Any, gradient: Any) -> Any:
                return gradient * context.saved_tensors[0] * step["factor"]

        self.tensors[step["out"]] = Square.apply(self.tensors[step["of"]])

    def do_remove_hook(self, step: Step) -> None:
        self.hooks[step["hook"]].remove()

    # Programs

    def do_program(self, step: Step) -> None:
        self.programs[step["name"]] = (step, {})

    def do_run(self, step: Step) -> None:
        program = self.programs[step["program"]][0]
        inputs, numbers = self.several(step["inputs"]) or [], step.get("numbers", [])
        sliced, rows = step.get("sliced", []), program["inputs"]
        results = []
        for repetition in range(step.get("repeat", 1)):
            given = list(inputs)
            for place in sliced:
                count = rows[place]["shape"][0]
                given[place] = inputs[place][repetition * count : (repetition + 1) * count]
            results.append(body(self.lib, program, tuple(numbers), tuple(given)))
        stacked = step.get("stacked")
        last = [self.lib.stack(each) for each in zip(*results, strict=True)] if stacked else results[-1]
        self.tensors.update(zip(step["out"], last, strict=True))

    # Repetition

    def do_repeat(self, step: Step) -> None:
        for self.round in range(step["times"]):
            Interpreter.run(self, step["steps"])


def body(lib: Any, program: Step, numbers: tuple[float, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run a program's steps once and return its outputs. It uses nothing that changes, so that it can be compiled."""
    inner = Interpreter(lib)
    inner.numbers = numbers
    inner.tensors.update(zip((each["name"] for each in program["inputs"]), inputs, strict=True))
    inner.run(program["steps"])
    return tuple(inner.tensors[name].detach() for name in program["outputs"])


def literal(lib: Any, tensor: Any) -> dict[str, Any]:
    """A tensor's dtype, shape and values as a scenario has them."""
    tensor = tensor.detach()
    name = str(tensor.dtype).split(".")[-1]
    shape = list(tensor.shape)
    if name in READABLE and math.prod(shape) <= MOST_VALUES:
        values = [_told(value) for value in tensor.reshape(-1).tolist()]
        return {"dtype": name, "shape": shape, "values": values}
    data = tensor.contiguous().reshape(-1)
    data = (data.view(lib.uint8) if name != "uint8" else data).numpy().tobytes()
    if math.prod(shape) > MOST_VALUES:
        return {"dtype": name, "shape": shape, "sha256": hashlib.sha256(data).hexdigest()}
    return {"dtype": name, "shape": shape, "hex": data.hex()}


def _told(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


class Recorder(Interpreter):
    """Runs steps on PyTorch and writes its answers into them."""

    def step(self, step: Step) -> None:
        if "refused" not in step:
            super().step(step)
            return
        try:
            super().step(step)
        except KeyError:
            return  # a failed step made no tensor
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, HookError) as error:
            step["pytorch"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        else:
            raise AssertionError(f"PyTorch does not refuse {step}")

    def do_read(self, step: Step) -> None:
        step["expect"] = literal(self.lib, self.tensors[step["of"]])

    def do_describe(self, step: Step) -> None:
        step["expect"] = described(self.tensors[step["of"]])

    def do_hooks_run(self, step: Step) -> None:
        step["expect"] = self.called
        self.called = []


def described(tensor: Any) -> dict[str, Any]:
    """What a TensorSpec tells, by PyTorch's attributes."""
    return {
        "dtype": str(tensor.dtype).split(".")[-1],
        "shape": list(tensor.shape),
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "grad_fn": "" if tensor.grad_fn is None else tensor.grad_fn.name(),
        "retains_grad": tensor.retains_grad,
        "is_view": tensor._is_view(),
        "version": tensor._version,
    }


class Checker(Interpreter):
    """Runs steps on gradwire's Python client and compares with PyTorch's answers."""

    def __init__(self, lib: Any, session: Any = None) -> None:
        super().__init__(lib)
        self.session = session
        self.failed: dict[str, str] = {}

    def step(self, step: Step) -> None:
        reason = step.get("refused")
        if reason is None:
            super().step(step)
            return
        failure = self.failure(step)
        if isinstance(failure, HookError):
            assert reason == "HOOK", step
        elif isinstance(failure, KeyError):
            assert failure.args[0] in self.failed, step
        else:
            # A client may find what is wrong before it sends, by the same reason.
            assert failure.reason == reason, f"{step}: {failure.reason}: {failure}"
            expected = step["pytorch"].split(":")[0]
            assert expected in {each.__name__ for each in type(failure).__mro__}, f"{step}: {type(failure)}"
        for name in [step["out"]] if isinstance(step.get("out"), str) else step.get("out", []):
            self.failed[name] = reason
            self.tensors.pop(name, None)

    def failure(self, step: Step) -> Any:
        """The error of a step that must be refused, at once or at a wait right after it."""
        try:
            super().step(step)
            self.do_wait(step)
        except (HookError, KeyError, self.lib.GradwireError) as error:
            return error
        raise AssertionError(f"not refused: {step}")

    def do_wait(self, step: Step) -> None:
        self.lib.zeros(()).item()

    def do_sleep(self, step: Step) -> None:
        time.sleep(step["seconds"])

    def do_read(self, step: Step) -> None:
        compare(literal(self.lib, self.tensors[step["of"]]), step["expect"], step)

    def do_describe(self, step: Step) -> None:
        found = described(self.tensors[step["of"]])
        assert found == step["expect"], f"{step}: {found}"

    def do_hooks_run(self, step: Step) -> None:
        assert self.called == step["expect"], f"{step}: {self.called}"
        self.called = []

    def do_run(self, step: Step) -> None:
        program, compiled = self.programs[step["program"]]
        rows = program["inputs"]
        numbers = tuple(step.get("numbers", []))
        sliced = step.get("sliced", [])
        options: dict[str, Any] = {}
        if sliced:
            options["batch_size"] = rows[sliced[0]]["shape"][0]
            options["sliced"] = tuple(rows[place]["name"] for place in sliced)
        elif step.get("repeat", 1) > 1:
            options["repeat"] = step["repeat"]
        if step.get("stacked"):
            options["stacked"] = True
        key = (*sorted(options.items()), numbers)
        if key not in compiled:
            compiled[key] = self.compiled(program, numbers, options)
        results = compiled[key](*(self.several(step["inputs"]) or []))
        self.tensors.update(zip(step["out"], results, strict=True))

    def compiled(self, program: Step, numbers: tuple[float, ...], options: dict[str, Any]) -> Callable[..., Any]:
        """The program as a compiled function whose parameters have the inputs' names."""
        names = [each["name"] for each in program["inputs"]]
        lib = self.lib
        scope = {"body": lambda *inputs: body(lib, program, numbers, inputs)}
        exec(f"def run({', '.join(names)}):\n    return body({', '.join(names)})", scope)  # names: compile's `sliced`
        return self.lib.compile(scope["run"], **options)  # type: ignore[no-any-return]


def compare(found: dict[str, Any], expected: dict[str, Any], step: Step) -> None:
    """Fail if values differ beyond the dtype's tolerance, or dtype, shape or bytes differ at all."""
    assert (found["dtype"], found["shape"]) == (expected["dtype"], expected["shape"]), f"{step}: {found}"
    tolerance = TOLERANCE.get(expected["dtype"])
    if tolerance is None or "values" not in expected:
        assert found == expected, f"{step}: {found}"
        return
    for at, (one, other) in enumerate(zip(found["values"], expected["values"], strict=True)):
        one, other = float(one), float(other)
        near = one == other or (math.isnan(one) and math.isnan(other))
        assert near or abs(one - other) <= tolerance * max(1.0, abs(other)), f"{step}: [{at}] is {one}, not {other}"
