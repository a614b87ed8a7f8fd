"""Programs that travel: functions and modules as files that any language can run (torch.export).

`gradwire.export(step, x, y, path="model.safetensors")` writes a file, `gradwire.load_program` loads one.
`export.export` and `export.save` are PyTorch's spelling.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from gradwire._base.errors import GradwireValueError
from gradwire._base.wiring import wired
from gradwire._io.files import replace_file
from gradwire._tensor.tensor import Tensor
from gradwire.export._file import content_of, signature
from gradwire.export._loaded import LoadedFile, LoadedProgram, load_program
from gradwire.export._recording import RecordedFunction, record
from gradwire.export._tensors import input_names
from gradwire.v1 import programs_pb2

__all__ = ["Dim", "ExportedProgram", "LoadedFile", "LoadedProgram", "dims", "export", "load", "load_program", "save"]

_PROGRAM = "program"


class Dim:
    """A dimension that may have any size (torch.export.Dim). Only first dimensions may, all by the same Dim.

    `Dim.DYNAMIC` and `Dim.AUTO` stand for one without a name; `Dim.STATIC` for a fixed size.
    """

    DYNAMIC: Any
    AUTO: Any
    STATIC: Any

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        self.name = name
        self.min = min
        self.max = max

    def __repr__(self) -> str:
        return f"Dim({self.name!r})"


Dim.DYNAMIC, Dim.AUTO, Dim.STATIC = Dim("dynamic"), Dim("auto"), Dim("static")


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several dimensions (torch.export.dims)."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ExportedProgram:
    """A recorded function with its tensors, as `export` returns it. `module()` is callable; `save` writes a file."""

    def __init__(self, recorded: RecordedFunction | None, loaded: LoadedFile | None = None) -> None:
        self._recorded = recorded
        self._loaded = loaded

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """The tensors by name: copies of weights, buffers, optimizer state and counters."""
        if self._recorded is not None:
            return dict(self._recorded.state)
        assert self._loaded is not None
        return dict(self._loaded.state)

    def module(self) -> LoadedProgram:
        """The program with tensors of its own, as a function of the inputs."""
        return self._load()[_PROGRAM]

    def _load(self) -> LoadedFile:
        if self._loaded is None:
            self._loaded = LoadedFile(self._content(), "the exported program")
        return self._loaded

    def _content(self) -> bytes:
        assert self._recorded is not None
        return _content({_PROGRAM: self})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse, as PyTorch does. Raises RuntimeError."""
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def __repr__(self) -> str:
        if self._recorded is None:
            return f"ExportedProgram({self._loaded!r})"
        file = programs_pb2.ProgramFile()
        file.programs.add(name=_PROGRAM, program=self._recorded.data)
        return f"ExportedProgram({signature(file)})"


def export(
    mod: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: Sequence[str] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Record a module or function with example arguments (torch.export.export).

    The function may be a training step: tensors that it reads, optimizers and schedulers become state of the program.
    It is called with the arguments, and everything that it changed is put back. Python's branches and numbers are those
    of the example. `dynamic_shapes` marks first dimensions that may have any size: {"x": {0: Dim("batch")}}.

    Raises RuntimeError for a function that no program can repeat: it reads values, keeps tensors, has hooks, or changes
    an option that has no rule. The other options are PyTorch's and have no effect.
    """
    given = dict(kwargs or {})
    return ExportedProgram(record(mod, tuple(args), given, _dynamic(mod, args, given, dynamic_shapes)))


def _dynamic(mod: Any, args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Any) -> list[str]:
    """Names of the inputs whose first dimension is dynamic. Raises ValueError for other dimensions."""
    if shapes is None:
        return []
    names = list(input_names(mod, args, kwargs))
    if isinstance(shapes, (list, tuple)):
        if len(shapes) != len(names):
            raise GradwireValueError(f"dynamic_shapes has {len(shapes)} entries for {len(names)} tensor arguments")
        shapes = dict(zip(names, shapes, strict=True))
    found: list[str] = []
    for name, sizes in shapes.items():
        each = dict(enumerate(sizes)) if isinstance(sizes, (list, tuple)) else dict(sizes or {})
        moving = [dim for dim, size in each.items() if isinstance(size, Dim) and size is not Dim.STATIC]
        if moving and moving != [0]:
            raise GradwireValueError(f"dynamic_shapes: only the first dimension of {name} may be dynamic, not {moving}")
        found += [name] if moving else []
    return found


def save(
    ep: ExportedProgram | Mapping[str, ExportedProgram],
    f: Any,
    *,
    extra_files: Any = None,
    opset_version: Any = None,
    pickle_protocol: int = 2,
) -> None:
    """Write a program file to a path or binary file (torch.export.save).

    A dictionary of programs makes one file with several, which share the tensors that they have in common. Raises
    ValueError for a loaded program. The other options have no effect.
    """
    programs = {_PROGRAM: ep} if isinstance(ep, ExportedProgram) else dict(ep)
    if isinstance(ep, ExportedProgram) and ep._recorded is None:
        raise GradwireValueError("save: use the save method of the loaded file")
    content = _content(programs)
    if hasattr(f, "write"):
        f.write(content)
    else:
        replace_file(os.fspath(f), content)


def _content(programs: Mapping[str, ExportedProgram]) -> bytes:
    """A file's content. What two programs share has one name, the first program's."""
    state: dict[str, Tensor] = {}
    data: dict[str, bytes] = {}
    names: dict[Any, str] = {}
    for program_name, each in programs.items():
        recorded = each._recorded
        if recorded is None:
            raise GradwireValueError(f"save: {program_name} was loaded; save the file that it was loaded from")
        program = programs_pb2.Program()
        program.CopyFrom(recorded.program)
        given = {item.name for item in program.inputs if not item.state}
        for item in program.inputs:
            if not item.state:
                continue
            source, value = recorded.sources[item.name], recorded.state[item.name]
            if source not in names:
                name = item.name
                while name in state or name in given:
                    name = f"{program_name}.{name}"
                names[source], state[name] = name, value
            if names[source] in given:
                raise GradwireValueError(f"save: {program_name} has an input with a tensor's name: {names[source]!r}")
            item.name = names[source]
        data[program_name] = program.SerializeToString(deterministic=True)
    return content_of(data, state)


def load(f: Any, *, extra_files: Any = None, expected_opset_version: Any = None) -> ExportedProgram:
    """Load a file with one program (torch.export.load); `load_program` loads any."""
    loaded = load_program(f)
    if list(loaded.programs) != [_PROGRAM]:
        raise GradwireValueError(f"the file has the programs {', '.join(loaded.programs)}: use gradwire.load_program")
    return ExportedProgram(None, loaded)


class _CallableModule(ModuleType):
    """This module as a function: `gradwire.export(step, x, y, path=...)`."""

    def __call__(
        self, function: Any, /, *args: Any, path: Any = None, dynamic: Sequence[str] = (), **kwargs: Any
    ) -> Any:
        """Record a function with example inputs, and write it to a file (`path`: a path or binary file).

        A dictionary of ExportedProgram makes a file with several programs. `dynamic` names inputs whose first dimension
        may have any size. Without a path, return the ExportedProgram. Raises as `export` does.
        """
        if isinstance(function, Mapping):
            if args or kwargs or path is None:
                raise GradwireValueError("export(programs, path=…) takes no further arguments")
            save(function, path)
            return None
        made = ExportedProgram(record(function, args, kwargs, dynamic))
        if path is None:
            return made
        save(made, path)
        return made

    def __getattr__(self, name: str) -> Any:
        return wired("attribute")("export", name)


sys.modules[__name__].__class__ = _CallableModule
