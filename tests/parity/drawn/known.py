"""What differs for a reason, and where a program ends because PyTorch leaves what follows open."""

from __future__ import annotations

import re
from typing import Any

import torch

#: Refusals that PyTorch finds only after it has written, so the values that follow are by chance.
_HALF_DONE = ("Inplace update to inference tensor", "ZeroDivisionError")

#: A change of the sizes in place, after `retain_grad` or a hook on the same tensor.
_TURNED_AFTER_HOOK = (
    r"match:(r\d+\S*)\.(retain_grad|register_hook)\((.|\n)*\b\1\."
    r"((un)?squeeze|t|transpose|swapaxes|swapdims|as_strided)_\("
)

_TURNED_WITHOUT_RECORD = (
    r"match:(no_grad|inference_mode)\(\): .*\.((un)?squeeze|t|transpose|swapaxes|swapdims|as_strided)_\("
)

_GRADIENTS_IN_INFERENCE = r"match:inference_mode\(\): (q = )?\S+ = t\.autograd\.grad\("

#: Class and phrase of a difference, a word of the line (of the line that made the tensor, after "made:"), and why.
EXCUSED = (
    ("shape", "strid", "made:autograd.grad(", "gradients are dense; PyTorch's may be expanded, and then not writable"),
    ("shape", "contiguous", "made:autograd.grad(", "as above"),
    ("shape", "", "made:linalg.", "decompositions answer row by row here, by columns there"),
    ("shape", "", "made:nonzero(", "positions lie row by row here, by columns there"),
    ("shape", "", "made:argwhere(", "as above"),
    ("loud", "shares its memory with other tensors", "out=", "memory is not resized under other tensors"),
    ("loud", "more than one element of the written-to tensor", "", "PyTorch only warns of it for some ops"),
    ("loud", "cannot be cast", "out=", "reductions do not compute in the dtype of out"),
    ("loud", "can't be cast", "out=", "reductions do not compute in the dtype of out"),
    ("loud", "is being used in an in-place operation", "logical_not_", "PyTorch forgets the check there"),
    ("loud", "is being modified inplace", "logical_not_", "PyTorch forgets the check there"),
    ("loud", "can't detach views", "inference_mode", "PyTorch makes no difference of views there"),
    (
        "flag",
        "requires_grad False",
        r"match:inference_mode\(\): (q = )?\S+\.detach_",
        "detach_() in inference mode leaves the flag in PyTorch",
    ),
    ("flag", "is_leaf True", r"match:inference_mode\(\): (q = )?\S+\.detach_", "as above"),
    ("flag", "grad_fn None", r"match:inference_mode\(\): (q = )?\S+\.detach_", "as above"),
    ("loud", "does not require grad", r"match:inference_mode\(\): (q = )?\S+\.detach_", "as above"),
    ("silent", "Autograd not support dtype", "", "whole numbers never require grad here"),
    ("silent", "more than one element of the written-to", "grad", "gradients are dense, see above"),
    ("silent", "more than one element of the written-to", "made:autograd.grad(", "as above"),
    ("silent", "A view was created in no_grad mode", "made:autograd.grad(", "as above"),
    ("version", "_version", r"match:copy\.copy\(", "a shallow copy counts as changed once in PyTorch"),
    ("name", "FillBackward", "] = ", "a number that is assigned is no tensor here"),
    ("name", "", "made:einsum", "a composite: other last node"),
    ("name", "", "made:index_reduce", "a composite: other last node"),
    ("name", "", "made:fft.", "a composite: other last node"),
    ("flag", "output_nr 0", "made:autograd.grad(", "a gradient's history is of other nodes"),
    ("flag", "inference", "made:copy.copy", "a copy of the proxy on the same bytes"),
    ("flag", "inference False", "made:autograd.grad(", "gradients are ordinary tensors, whatever the mode"),
    ("version", "PyTorch has refused", "made:autograd.grad(", "as above"),
    ("loud", "Inplace update to inference tensor", ".detach()", "detach() of an inference tensor is one"),
    ("version", "_version refused", ".detach()", "detach() of an inference tensor is one, so no version is told"),
    ("silent", "has no attribute 'next_functions'", "inference_mode", "PyTorch finds no node for a leaf's edge there"),
    ("silent", "INTERNAL ASSERT FAILED", "", "a fault of PyTorch's"),
    (
        "silent",
        "A view was created in no_grad mode",
        r"match:.*\.(eq|ne|lt|le|gt|ge)_\(",
        "a comparison written into whole numbers is not recorded here",
    ),
    ("silent", "invalid gradient", "", "a leaf's gradient has the sizes that the leaf has"),
    ("silent", "operator, with a bool tensor", "", "the derivative of a power with a bool exponent is computed"),
    ("loud", "cannot be saved for backward", _GRADIENTS_IN_INFERENCE, "their history saves no inference tensors"),
    ("flag", "requires_grad True", _GRADIENTS_IN_INFERENCE, "with create_graph they have a history, in any mode"),
    ("flag", "is_leaf False", _GRADIENTS_IN_INFERENCE, "as above"),
    ("flag", "grad_fn", _GRADIENTS_IN_INFERENCE, "as above"),
    ("silent", "Inplace update to inference tensor", _GRADIENTS_IN_INFERENCE, "gradients are ordinary tensors"),
    ("flag", "_base None", "made:autograd.grad(", "PyTorch's may be views"),
    ("silent", "Can't detach views", "made:autograd.grad(", "as above"),
    ("silent", "Can't detach views", "made:cov(", "PyTorch's is a view of a tensor that nobody holds"),
    (
        "silent",
        "Inference tensors cannot be saved",
        "checkpoint(",
        "it saves nothing that needs no gradient",
    ),
    ("silent", "refer to a single memory location", "] = ", "the elements that are read and written are the same"),
    ("silent", "refer to a single memory location", "out=", "the result is computed before out is written"),
    ("silent", "modified by an inplace operation", r"match:t\.complex\(", "its backward needs no values here"),
    ("silent", "Inference tensors cannot be saved", _GRADIENTS_IN_INFERENCE, "gradients are ordinary tensors"),
    ("silent", "A view was created in no_grad mode", "made:conv", "PyTorch's is a view of a tensor that nobody holds"),
    ("silent", "detached in-place", "", "what a node has saved is still there"),
    ("silent", "MKL FFT error", "", "a fault of PyTorch's"),
    ("silent", "is output 0 of Pow1", "", "the derivative by the base needs no result"),
    ("silent", "'_unique2' is not implemented", r"match:Shown\.apply", "a node that gets no gradient is not called"),
    ("silent", "is not implemented", "inputs=[", "a node behind the named inputs is not called"),
    ("silent", "A view was created in no_grad mode", "isfinite", "it reads values, not the history"),
    ("silent", "'ComplexHalf'", "", "there is no complex dtype of float16 here"),
    ("value", "nan+nanj", r"match:(\*\*|pow)", "complex 0 to the power of 0 is 1 here"),
    ("value", "nan", "made:unique(", "where nan is sorted to is open"),
    ("value", "-0j", r"match:fft\.", "signs of zeros may differ after a Fourier transform"),
    ("value", "PyTorch has 0", r"match:autograd\.grad\((.|\n)*\.stride\(0\)", "gradients are dense"),
    (
        "value",
        "inf",
        r"match:complex(.|\n)*(reciprocal|rsqrt)",
        "of a complex 0 it is nan in both parts",
    ),
    (
        "value",
        "inf",
        r"match:max_pool(.|\n)*(reciprocal|rsqrt| / |div)",
        "of 0.0 and -0.0 either is the largest",
    ),
    ("value", "nanj", "", "parts of complex results of infinite operands"),
    ("value", "nan", "polygamma(", "at infinity PyTorch has no limit"),
    ("value", "", "slogdet(t.tensor([[float(", "PyTorch's sign of an infinite matrix is open"),
    ("value", "inf", "polygamma(", "at its poles PyTorch answers large numbers"),
    ("value", "inf", "std_mean(", "PyTorch's mean of infinite values is nan or infinite, depending on their order"),
    ("value", "inf", "var_mean(", "as above"),
    ("value", "grad_fn=<Invalid>", "made:repr(", "the history of a view is told where PyTorch only says Invalid"),
    ("flag", "output_nr 0", _TURNED_WITHOUT_RECORD, "new sizes without a record are a node here"),
    ("gradient", "", _TURNED_WITHOUT_RECORD, "a leaf's gradient has the sizes that the leaf has"),
    ("gradient", "", _TURNED_AFTER_HOOK, "PyTorch's hooks stay with the node of the sizes before"),
    ("gradient", "grad [], PyTorch has [", "match:out=", "a leaf's gradient has the sizes that the leaf has"),
    ("gradient", "grad_dtype", r"match:\.data = ", "a gradient of another dtype is not added to the one that is there"),
    ("version", "", r"match:\.data = ", "a tensor with new data counts anew"),
    ("version", "refused", "made:.detach()", "as above"),
    ("shape", "", "made:reversed(", "PyTorch reverses in the order of a view's memory"),
    ("loud", "the tensor's sizes were changed in place after its use", "", "a leaf's gradient has the leaf's sizes"),
    ("loud", "the data of this view's base was replaced", r"match:\.data = ", "PyTorch's views follow any sizes"),
    ("loud", "inputs to be Half", "complex(", "there is no complex dtype of float16 here"),
    ("loud", "another view of its base has been", " != ", "a view that cannot follow its base refuses each use"),
    ("loud", "another view of its base has been", " == ", "as above"),
    ("loud", "another view of its base has been", ".bool()", "as above"),
    ("loud", "another view of its base has been", ".requires_grad_(", "as above"),
    ("loud", "setStorage", "as_strided", "PyTorch's results may lie in larger memory"),
    ("version", "_version", "made:autograd.grad(", "gradients of two inputs are separate"),
    ("version", "_version refused", "made:.data", "data of an inference tensor is one"),
    (
        "version",
        "_version 1, PyTorch has 0",
        r"match:batch_norm\(",
        "PyTorch does not count its update of running statistics",
    ),
    ("version", "_version 0, PyTorch has 1", "cov(", "PyTorch's cov writes into an input of one element"),
    ("value", "", r"match:t\.cov\(r\d+, correction=2, fweights", "as above"),
    ("flag", "retains_grad False", r"match:\.detach_\(\)", "detach_() ends retain_grad()"),
    ("gradient", "", r"match:(retain_grad|inputs=\[)(.|\n)*\.detach_\(\)", "as above"),
    ("value", "", r"match:\[:0\](.|\n)*\.stride\(", "a tensor without elements has the strides of a dense one"),
    ("value", "", r"match:\.unfold\((.|\n)*_\(", "a write into elements that repeat reads them first"),
    ("value", "", r"match:as_strided\((.|\n)*\] = ", "as above"),
    ("value", "", r"match:autograd\.grad\((.|\n)*q = (r\d+\[\d\]); \2\.\w+_\(", "gradients of two inputs are separate"),
    ("silent", "Can't detach views", "made:adaptive_", "PyTorch's is a view of a tensor that nobody holds"),
    ("warning", "PyTorch ['UserWarning']", "'same'", "PyTorch tells of a padded copy that it makes"),
    ("loud", "a second time", "made:lerp", "a node with a saved number is freed too"),
    ("warning", "PyTorch ['UserWarning']", "copy.copy", "the proxy's hooks are not copied"),
    ("warning", "PyTorch ['UserWarning']", r"match:\.eq_\(\(", "it tells of PyTorch's own cast"),
    ("warning", "PyTorch ['UserWarning']", "bucketize", "elements in another order cost no more"),
    ("warning", "PyTorch ['UserWarning']", "searchsorted", "as above"),
    ("warning", "PyTorch ['UserWarning']", ".norm(0)", "PyTorch casts its count of complex elements to real"),
    (
        "warning",
        "warns ['UserWarning']",
        "] = ",
        "complex values are warned of in every assignment",
    ),
    ("kind", "index is out of bounds for dimension with size 0", "", "of several faults another is told first"),
    ("warning", "", "matmul", "PyTorch resizes out on the way of a product"),
    ("warning", "PyTorch ['UserWarning']", "] = ", "writing through an index into expanded tensors is refused here"),
)


def ends(line: str, error: BaseException | None) -> bool:
    """Whether nothing after this line is compared.

    A backward that failed midway has added some gradients, and a refused call may have resized its `out`.
    """
    open_after = any(word in line for word in ("backward(", "autograd.grad(", "out="))
    return error is not None and (open_after or is_half_done(error))


def is_rounded_apart(line: str, found: list[tuple[str, str]], live: dict[str, torch.Tensor]) -> bool:
    """Whether a line's difference is that `unique` merges other floats, equal but for their last bits."""
    name = line.partition(" = ")[0].rpartition(" ")[2]
    values = live.get(f"{name}[0]", live.get(name))
    counted = any(kind == "shape" and text.startswith(name) for kind, text in found)
    return "unique" in line and counted and values is not None and (values.is_floating_point() or values.is_complex())


def is_half_done(error: BaseException | None) -> bool:
    """Whether PyTorch may have written before it refused."""
    return error is not None and any(phrase in f"{type(error).__name__}: {error}" for phrase in _HALF_DONE)


def align(
    mine: dict[str, Any], its: dict[str, Any], tensor: torch.Tensor, live: list[torch.Tensor], births: dict[int, Any]
) -> bool:
    """Take out of what is seen what only tells how PyTorch made a result inside. Returns whether the program ends.

    A result may be a view of a tensor that nobody holds, may have been written to before anybody saw it, and where
    whole numbers are written with something that requires grad, PyTorch marks them as requiring it, and what follows.
    """
    if its["_base"] and not mine["_base"] and not any(each is tensor._base for each in live):
        its["_base"] = None
    is_whole = not (tensor.is_floating_point() or tensor.is_complex())
    requires_apart = is_whole and its["requires_grad"] and not mine["requires_grad"]
    if requires_apart:
        its.update({name: mine[name] for name in ("requires_grad", "is_leaf", "grad_fn", "output_nr")})
    if not tensor.numel() and "grad_requires" in its and "grad_requires" in mine:
        # The gradient of an empty view ends in zeros without history in PyTorch.
        its["grad_requires"] = mine["grad_requires"]
    one, other = mine["_version"], its["_version"]
    if isinstance(one, int) and isinstance(other, int):
        storage = tensor.untyped_storage()
        _, written = births.setdefault(storage._cdata, (storage, other - one))
        if other - one == written:
            its["_version"] = one
    return bool(requires_apart)


def _find(word: str, line: str, places: dict[str, str]) -> bool:
    """Whether a word of an entry is in the line, or in those that made its tensors; or a pattern in the program."""
    if word.startswith("match:"):
        return re.search(word.removeprefix("match:"), places["match:"]) is not None
    return word.removeprefix("made:") in places["made:"] if word.startswith("made:") else word in line


def lies_otherwise(mine: dict[str, Any], its: dict[str, Any]) -> bool:
    """Whether a result that is no view lies in memory in another order; then programs end, for views of it differ.

    Of operands that do not lie row by row PyTorch makes a result like the first, NumPy one row by row.
    """
    odd = mine["stride"] != its["stride"] and not (mine["_base"] or its["_base"]) and mine["shape"] == its["shape"]
    if odd and None not in (mine["stride"], its["stride"]) and 0 not in its["stride"]:
        its.update(stride=mine["stride"], contiguous=mine["contiguous"])
        return True
    return False


def excused(line: str, lines: list[str], one: tuple[str, str]) -> bool:
    """Whether a difference is one of those that are documented in docs/coming-from-pytorch.md."""
    kind, text = one
    named = re.match(r"(?:when repeated: )?(r\d+)", text)
    names = [named[1]] if named else re.findall(r"r\d+", line)
    made = "\n".join(each for each in lines if any(f"{name} = " in each for name in names))
    places = {"made:": made, "match:": "\n".join(lines)}
    return any(
        kind == which and phrase.lower() in text.lower() and _find(word, line, places)
        for which, phrase, word, _ in EXCUSED
    )
