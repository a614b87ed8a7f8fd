"""Loaded programs: a program file on the server, with its tensors, called like functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire._base.errors import GradwireTypeError, GradwireValueError, two_sessions
from gradwire._compile.recordings import read_outputs, run_program
from gradwire._functions.create import from_numpy
from gradwire._graph import commands
from gradwire._io.files import replace_file
from gradwire._proxy.handle import UNKNOWN, Handle
from gradwire._proxy.memo import read_spec
from gradwire._proxy.results import new_proxy
from gradwire._tensor.tensor import Tensor
from gradwire._transport.wire import Value
from gradwire.export._file import programs_of
from gradwire.export._tensors import NotATensor, tensors_by_path
from gradwire.v1 import programs_pb2, service_pb2, snapshots_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol


class LoadedFile:
    """A program file on the server.

    Its programs are attributes and items: `loaded.step(x, y)`, `loaded["step"](x, y)`. If there is only one, the file
    itself may be called. `state` has the file's tensors by name; programs change them. `save` writes a new file.
    """

    def __init__(self, content: bytes, path: str) -> None:
        programs = programs_of(content, path)
        self._file: Any = from_numpy(np.frombuffer(content, np.uint8))
        self._session: SessionProtocol = self._file._session
        request = programs_pb2.LoadProgramRequest(file=self._file._id)
        answer = self._session.wait(service_pb2.Command(load_program=request)).load_program
        #: The file's tensors by name: weights, buffers, optimizer state and counters.
        self.state: dict[str, Tensor] = {
            each.name: new_proxy(self._session, each.spec.id, read_spec(each.spec)) for each in answer.tensors
        }
        #: The programs by name.
        self.programs: dict[str, LoadedProgram] = {}
        for named, loaded in zip(programs, answer.programs, strict=True):
            self.programs[named.name] = LoadedProgram(named.name, loaded, named.data, self.state, self._session)
            self._session.note_program(loaded.hash, None)

    def __getitem__(self, name: str) -> LoadedProgram:
        found = self.programs.get(name)
        if found is None:
            raise KeyError(f"the file has no program {name!r}; it has {', '.join(self.programs)}")
        return found

    def __getattr__(self, name: str) -> LoadedProgram:
        found = self.__dict__.get("programs", {}).get(name)
        if found is None:
            raise AttributeError(f"the file has no program {name!r}; it has {', '.join(self.__dict__['programs'])}")
        return found  # type: ignore[no-any-return]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the only program. Raises ValueError if there are several."""
        if len(self.programs) != 1:
            raise GradwireValueError(f"the file has several programs: {', '.join(self.programs)}; call one by its name")
        return next(iter(self.programs.values()))(*args, **kwargs)

    def __repr__(self) -> str:
        return "\n".join(repr(program) for program in self.programs.values())

    def save(self, path: Any) -> None:
        """Write a program file with the present values of all tensors. An earlier file is replaced as a whole."""
        request = programs_pb2.SaveProgramRequest(file=self._file._id)
        request.tensors.extend(snapshots_pb2.NamedTensor(name=name, id=held._id) for name, held in self.state.items())
        saved = self._session.wait(service_pb2.Command(save_program=request)).save_program.file
        content: Any = new_proxy(self._session, saved.id, read_spec(saved))
        replace_file(os.fspath(path), content.numpy().tobytes())


@dataclass
class _Bytes:
    """A program as the client registers it again if the server dropped it."""

    data: bytes
    hash: bytes


class LoadedProgram:
    """A program of a file, called with tensors in the order of its inputs, or by their names.

    The answer has the structure of the exported function's: a tensor, or a tuple or dictionary of tensors.
    """

    def __init__(
        self,
        name: str,
        loaded: programs_pb2.LoadedProgram,
        data: bytes,
        state: Mapping[str, Tensor],
        session: SessionProtocol,
    ) -> None:
        self.name = name
        self._session = session
        self._bytes = _Bytes(data, loaded.hash)
        self._ids = list(loaded.inputs)
        self._names = [item.name for item in loaded.signature]
        self._key = (loaded.hash, *self._ids)
        #: Kept alive as long as the program.
        self._state: list[Any] = [state[item.name] for item in loaded.signature if item.state]
        self._changed = [
            state[item.name] for item in loaded.signature if item.state and (item.changed or item.requires_grad)
        ]
        #: The inputs of each call, by name.
        self.inputs = {item.name: item for item in loaded.signature if not item.state}
        #: The outputs.
        self.outputs = list(loaded.outputs)
        self._has_one_output = [each.name for each in self.outputs] == ["output"]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.inputs)}) -> {', '.join(each.name for each in self.outputs)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program once."""
        return self.run(self._bind(args, kwargs))

    def run(
        self, inputs: Mapping[str, Tensor], *, repeat: int = 1, sliced: Sequence[str] = (), stacked: bool = False
    ) -> Any:
        """Run the program `repeat` times in one command; return the last answer.

        `sliced` names inputs of which repetition k takes the k-th rows, as many as the exported input has. With
        `stacked`, return the answers of all repetitions, along a new first dimension. Raises TypeError for missing and
        unknown names.
        """
        self._check_names(inputs)
        unknown = [name for name in sliced if name not in self.inputs]
        if unknown or isinstance(sliced, str):
            raise GradwireTypeError(
                f"{self.name}: sliced must be a list of inputs, not {unknown or sliced}; they are "
                f"{', '.join(self.inputs)}"
            )
        given = [inputs[name] for name in self.inputs]
        session = self._session
        other = next((each._session for each in given if each._session is not session), None)
        if other is not None:
            raise two_sessions(self.name, session, other)
        outputs = [next(session.ids) for _ in self.outputs]
        places = [place for place, tensor_id in enumerate(self._ids) if not tensor_id and self._names[place] in sliced]
        values = [*[each._id for each in given], *outputs]
        specs = tuple([each._fresh() for each in given])
        key = (self._key, repeat, stacked, tuple(places), specs)
        build = self._builder(len(given), repeat, places, stacked)
        read = read_outputs if outputs else None
        found = run_program(
            session, self._bytes, lambda: commands.run(session, "run_program", key, values, build, read)
        )
        for each in self._changed:
            _note_change(each)
        made = [new_proxy(session, one, spec) for one, spec in zip(outputs, found or (), strict=True)]
        session.flush_early()
        if self._has_one_output:
            return made[0]
        return _structured({each.name: tensor for each, tensor in zip(self.outputs, made, strict=True)})

    def _builder(
        self, count: int, repeat: int, places: Sequence[int], stacked: bool
    ) -> Callable[[Sequence[Value]], service_pb2.Command]:
        digest, ids = self._bytes.hash, self._ids

        def build(values: Sequence[Value]) -> service_pb2.Command:
            given = iter(values[:count])
            request = programs_pb2.RunProgramRequest(
                hash=digest,
                inputs=[tensor_id or int(next(given)) for tensor_id in ids],
                repeat=repeat,
                sliced=places,
                stacked=stacked,
                outputs=[int(value) for value in values[count:]],
            )
            return service_pb2.Command(run_program=request)

        return build

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name. Raises TypeError for other arguments than those of the exported function."""
        bound: dict[str, Any] = {}
        names = list(self.inputs)
        for value in args:
            found = self._paths_of(value)
            if len(bound) + len(found) > len(names):
                count = len(bound) + len(found)
                raise GradwireTypeError(f"{self!r} takes {len(names)} tensors, but {count} were given")
            if found:
                bound.update(self._match(names[len(bound)], found))
        for name, value in kwargs.items():
            found = {f"{name}.{path}" if path else name: held for path, held in self._paths_of(value).items()}
            twice = next((each for each in found if each in bound), None)
            if twice is not None:
                raise GradwireTypeError(f"{self.name} got two tensors for its input {twice!r}")
            bound.update(found)
        return bound

    def _paths_of(self, value: Any) -> dict[str, Any]:
        """The tensors of an argument by their paths in it. Raises TypeError for other values than None."""
        try:
            return tensors_by_path(value)
        except NotATensor as error:
            raise GradwireTypeError(
                f"{self.name} takes tensors, not a {error.kind}: other arguments keep the values of the example; its "
                f"inputs are {', '.join(self.inputs) or 'none'}"
            ) from None

    def _match(self, first: str, found: Mapping[str, Any]) -> dict[str, Any]:
        """Give an argument's tensors the names that begin with the parameter of the next input, `first`."""
        if list(found) == [""]:
            return {first: found[""]}
        for prefix in [first[:place] for place, sign in enumerate(first) if sign == "."]:
            named = {f"{prefix}.{path}": held for path, held in found.items()}
            if all(name in self.inputs for name in named):
                return named
        raise GradwireTypeError(
            f"{self.name}: an argument with {', '.join(found)} fits no inputs; they are {', '.join(self.inputs)}"
        )

    def _check_names(self, given: Mapping[str, Any]) -> None:
        unknown = [name for name in given if name not in self.inputs]
        missing = [name for name in self.inputs if name not in given]
        if unknown or missing:
            what = f"has no input {unknown[0]!r}" if unknown else f"lacks its input {missing[0]!r}"
            raise GradwireTypeError(f"{self.name} {what}; its inputs are {', '.join(self.inputs) or 'none'}")
        for name, value in given.items():
            if not isinstance(value, Handle):
                raise GradwireTypeError(f"{self.name}: {name} must be a tensor, not a {type(value).__name__}")


def _note_change(tensor: Any) -> None:
    """Note that a run may have changed a tensor and its gradient."""
    storage = tensor._storage
    if storage is not None:
        storage.written()
        tensor._changes_seen = storage.changes
    if tensor._spec.requires_grad:
        tensor._grad = UNKNOWN


def _structured(outputs: dict[str, Tensor]) -> Any:
    """The outputs in the structure that their names tell: "0", "loss", "a.0"."""
    tree: dict[str, Any] = {}
    for name, tensor in outputs.items():
        *path, last = name.split(".")
        at = tree
        for key in path:
            at = at.setdefault(key, {})
        at[last] = tensor
    return _tupled(tree) if tree else None


def _tupled(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    parts = {key: _tupled(value) for key, value in tree.items()}
    if not parts or not all(key.isdigit() for key in parts):
        return parts
    return tuple([parts.get(str(place)) for place in range(1 + max(map(int, parts)))])


def load_program(f: Any) -> LoadedFile:
    """Load a program file from a path or a binary file, as gradwire.export writes it.

    The tensors and the programs are then on the server, in the present session. Raises RuntimeError for a damaged
    file, and for one that this server cannot read.
    """
    if hasattr(f, "read"):
        return LoadedFile(f.read(), getattr(f, "name", "the file"))
    path = os.fspath(f)
    with open(path, "rb") as file:
        return LoadedFile(file.read(), path)
