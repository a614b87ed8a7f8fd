"""One operator's samples on both sides: the function, its method, its in-place and `out=` forms, its refusals."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import gradwire as gw
from tests.parity.opinfo import compare
from tests.parity.opinfo.translate import Missing, Translator, function, named

DTYPES = ("float32", "float64", "complex64", "int64", "bool", "float16", "bfloat16")
KINDS = ("function", "method", "inplace", "out", "error")
#: Operators whose results are not written.
_UNWRITTEN = {
    "empty", "new_empty", "empty_like", "empty_strided", "empty_permuted", "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip
_SEED = 20261


@dataclasses.dataclass
class Outcome:
    """What one call of one sample came to."""

    kind: str
    dtype: str
    sample: int
    outcome: str  # agrees, differs, refused (by gradwire only), accepted (by gradwire only), missing
    text: str = ""


def full_name(op: Any) -> str:
    """The operator's name with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def outcomes(op: Any, most: int, kinds: tuple[str, ...] = KINDS, dtypes: tuple[str, ...] = DTYPES) -> Iterator[Outcome]:
    """The outcomes of an operator's samples, at most so many for each dtype."""
    supported = op.supported_dtypes("cpu")
    for dtype in dtypes:
        if getattr(torch, dtype) in supported:
            yield from _of_dtype(op, getattr(torch, dtype), most, kinds)
    if "error" in kinds and op.error_inputs_func is not None:
        yield from _refusals(op)


def _of_dtype(op: Any, dtype: torch.dtype, most: int, kinds: tuple[str, ...]) -> Iterator[Outcome]:
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(_SEED)
    compare.tolerate(op, dtype)
    samples = op.sample_inputs("cpu", dtype, requires_grad=grad)
    for number, sample in enumerate(itertools.islice(samples, most)):
        for kind, form in _forms(op).items():
            if kind in kinds and not (kind == "inplace" and _is_broadcast(sample)):
                state = torch.get_rng_state()
                outcome = _one(op, sample, form, kind, grad and _differentiated(op, kind))
                torch.set_rng_state(state)
                if outcome is not None:
                    yield Outcome(kind, str(dtype).removeprefix("torch."), number, *outcome)


def _differentiated(op: Any, kind: str) -> bool:
    return kind != "out" and (kind != "inplace" or op.supports_inplace_autograd)


def _is_broadcast(sample: Any) -> bool:
    return bool(getattr(sample, "broadcasts_input", False))


def _forms(op: Any) -> dict[str, Callable[..., Any]]:
    """PyTorch's functions by the kind of call."""
    forms = {"function": op.op, "method": op.method_variant, "inplace": op.inplace_variant}
    if op.supports_out:
        forms["out"] = op.op
    return {kind: form for kind, form in forms.items() if form is not None}


class _Call:
    """A sample's arguments on both sides, made anew for each form."""

    def __init__(self, op: Any, sample: Any, kind: str, grad: bool) -> None:
        self.op, self.sample, self.kind, self.grad = op, sample, kind, grad
        self.values = Translator()

    def theirs(self, form: Callable[..., Any]) -> tuple[Any, list[Any]]:
        torch.manual_seed(_SEED)
        args = [self.sample.input, *self.sample.args]
        inputs = _leaves([args, self.sample.kwargs]) if self.grad else []
        with torch.set_grad_enabled(self.grad):
            if self.kind == "inplace":
                args[0] = _changed(args[0], torch)
            return form(*args, **self.sample.kwargs), inputs

    def ours(self, form: Callable[..., Any], inputs: list[Any]) -> tuple[Any, list[Any]]:
        gw.manual_seed(_SEED)
        args = self.values.value([self.sample.input, *self.sample.args])
        kwargs = self.values.value(self.sample.kwargs)
        given = [self.values.value(one) for one in inputs]
        with gw.set_grad_enabled(self.grad):
            if self.kind == "inplace":
                args[0] = _changed(args[0], gw)
            return form(*args, **kwargs), given


def _changed(value: Any, library: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)([_changed(one, library) for one in value])
    return value.clone() if isinstance(value, library.Tensor) else value


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    for one in compare.tensors(value):
        if isinstance(one, torch.Tensor) and one.requires_grad and not any(one is other for other in found):
            found.append(one)
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _one(op: Any, sample: Any, form: Callable[..., Any], kind: str, grad: bool) -> tuple[str, str] | None:
    """Outcome and text of one call, or None where PyTorch itself refuses."""
    call = _Call(op, sample, kind, grad)
    with _quiet():
        try:
            theirs, inputs = call.theirs(form)
            wanted = None if theirs is NotImplemented else _derivatives(sample, theirs, inputs, None, torch)
        except Exception:  # noqa: BLE001 - whatever either library raises is an outcome
            return None
        try:
            ours, given = call.ours(function(form), inputs)
            if kind == "out":
                _with_out(call, form, theirs)
            grads = None if wanted is None else _derivatives(sample, ours, given, wanted[1], gw)
            _compared(call, form, (theirs, wanted), (ours, grads))
        except compare.Difference as error:
            return "differs", str(error)
        except Missing as error:
            return "missing", str(error)
        except Exception as error:  # noqa: BLE001 - whatever either library raises is an outcome
            return "refused", _brief(error)
    return "agrees", ""


def _compared(call: _Call, form: Callable[..., Any], theirs: Any, ours: Any) -> None:
    """Compare results and gradients; where values differ, ours may be as near to a more precise computation.

    PyTorch's tests of its references have the same rule.
    """
    plain = call.op.name not in _UNWRITTEN
    try:
        _pairs(call, theirs, ours, (None, None), plain)
    except compare.Difference:
        precise = _precise(call, form, theirs[1]) if plain else None
        if precise is None:
            raise
        _pairs(call, theirs, ours, precise, plain)


def _pairs(call: _Call, theirs: Any, ours: Any, precise: Any, plain: bool) -> None:
    compare.results("result", theirs[0], ours[0], grads=call.grad, values=plain, precise=precise[0])
    if theirs[1] is not None:
        compare.gradients("gradient", theirs[1][0], ours[1][0], precise[1] and precise[1][0])


_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def _precise(call: _Call, form: Callable[..., Any], wanted: Any) -> tuple[Any, Any] | None:
    """PyTorch's results and gradients with numbers of twice the digits, or None where they do not apply."""
    made: dict[int, torch.Tensor] = {}

    def wider(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return _WIDER.get(value, value)
        if value.dtype not in _WIDER:
            return value
        if id(value) not in made:
            leaf = value.detach().to(_WIDER[value.dtype])
            made[id(value)] = leaf.requires_grad_(value.requires_grad)
        return made[id(value)]

    again = _Call(call.op, call.sample.transform(wider), call.kind, call.grad)
    try:
        results, inputs = again.theirs(form)
        if not made or wanted is None:
            return (results, None) if made else None
        return results, _derivatives(again.sample, results, inputs, [wider(one) for one in wanted[1]], torch)
    except Exception:  # noqa: BLE001 - without it the plain comparison holds
        return None


def _brief(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]} ({last.name}:{last.lineno})"


def _with_out(call: _Call, form: Callable[..., Any], theirs: Any) -> None:
    """The same call into given memory."""
    places = _map(theirs, lambda one: torch.empty_like(one).fill_(0))
    with torch.no_grad():
        form(call.sample.input, *call.sample.args, **call.sample.kwargs, out=places)
    given = _map(theirs, lambda one: gw.zeros(tuple(one.shape), dtype=named(str(one.dtype).removeprefix("torch."))))
    args = call.values.value([call.sample.input, *call.sample.args])
    with gw.no_grad():
        function(form)(*args, **call.values.value(call.sample.kwargs), out=given)
    compare.results("out", places, given, grads=False, values=call.op.name not in _UNWRITTEN)


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value.detach())
    return tuple(_map(one, change) for one in value)


def _derivatives(
    sample: Any, result: Any, inputs: list[Any], given: Any, library: Any
) -> tuple[list[Any], list[Any]] | None:
    """Gradients by random gradients of the results, and these."""
    if not inputs:
        return None
    process = sample.output_process_fn_grad
    result = (process if library is torch else function(process))(result)
    outputs = [one for one in _dense(result, library) if isinstance(one, library.Tensor) and one.requires_grad]
    if given is None:
        given = [_random(one) for one in outputs]
    elif len(outputs) != len(given):
        raise compare.Difference(f"{len(outputs)} differentiable results instead of {len(given)}")
    if not outputs:
        return [None] * len(inputs), []
    values = Translator()
    directions = given if library is torch else _dense([values.value(one) for one in given], gw)
    return list(library.autograd.grad(outputs, inputs, directions, allow_unused=True)), given


def _dense(result: Any, library: Any) -> list[Any]:
    """The parts of a result; gradwire's sparse ones, which are no tensors, as dense ones."""
    sparse = (gw.sparse.CompressedTensor, gw.sparse.SparseTensor) if library is gw else ()
    return [one.to_dense() if isinstance(one, sparse) else one for one in compare.tensors(result)]


def _random(output: torch.Tensor) -> torch.Tensor:
    """A random gradient of a result, in its layout."""
    if output.layout == torch.sparse_csr:
        parts = (output.crow_indices(), output.col_indices(), _random(output.detach().values()))
        return torch.sparse_csr_tensor(*parts, output.shape)
    return torch.randn(output.shape, dtype=torch.float32 if output.dtype.itemsize < 4 else output.dtype).to(
        output.dtype
    )


def _refusals(op: Any) -> Iterator[Outcome]:
    torch.manual_seed(_SEED)
    for number, wrong in enumerate(op.error_inputs("cpu")):
        sample = wrong.sample_input
        with _quiet():
            try:
                op.op(sample.input, *sample.args, **sample.kwargs)
                continue
            except Exception as error:  # noqa: BLE001 - whatever either library raises is an outcome
                theirs = error
            yield Outcome("error", "", number, *_refusal(op, sample, theirs))


def _refusal(op: Any, sample: Any, theirs: Exception) -> tuple[str, str]:
    values = Translator()
    try:
        args = values.value([sample.input, *sample.args])
        kwargs = values.value(sample.kwargs)
        result = function(op.op)(*args, **kwargs)
        for one in compare.tensors(result):
            if isinstance(one, gw.Tensor):
                compare.read(one)
    except Missing as error:
        return "missing", str(error)
    except Exception as error:  # noqa: BLE001 - whatever either library raises is an outcome
        wanted = next(
            kind for kind in type(theirs).__mro__ if kind.__module__ in ("builtins", "torch._C", "torch.linalg")
        )
        if type(theirs).__name__ == type(error).__name__ or isinstance(error, wanted):
            return "agrees", "" if _words(theirs, error) else f"words: {_text(error)} / {_text(theirs)}"
        return "differs", f"{type(error).__name__}: {_text(error)} instead of {type(theirs).__name__}: {_text(theirs)}"
    return "accepted", f"{type(theirs).__name__}: {_text(theirs)}"


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:150]


def _words(theirs: Exception, ours: Exception) -> bool:
    """Whether half of the words of PyTorch's first sentence are in ours."""
    words = {word.strip(".,:;'\"()[]").lower() for word in _text(theirs).split() if len(word) > 3}
    text = str(ours).lower()
    return sum(word in text for word in words) * 2 >= len(words)
