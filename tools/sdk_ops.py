"""Write the other languages' typed functions from the answer to ListOps, or with --check name the stale files.

`functions` says what every language needs: one function for each overload that a user may call, with required and
optional parameters apart. Below it, a writer for each language. A new language adds a writer to WRITERS.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_engine import REGISTRY
from gradwire_server.session.op_schemas import schemas

ROOT = Path(__file__).resolve().parent.parent
GO = ROOT / "client" / "go"
NAMES = {value: name.removeprefix("PARAMETER_KIND_") for name, value in service_pb2.ParameterKind.items()}
# In PyTorch none of these is called by its name; the clients have indexing for them.
LEFT_OUT = {"getitem", "setitem", "setitem_"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function. `default` is the Argument's kind and value, absent for None."""

    name: str
    kind: str
    optional: bool
    default: tuple[str, Any] | None
    keyword_only: bool
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Function:
    """An overload of an op as a function of a language."""

    op: str
    name: str  # in PyTorch's spelling, with the overload's name: "max_dim"
    namespace: str  # "", "nn.functional", "linalg", "fft", "special"
    method: bool
    in_place: bool
    required: tuple[Parameter, ...]
    options: tuple[Parameter, ...]
    fixed: tuple[tuple[str, tuple[str, Any]], ...]
    results: tuple[str, ...]  # empty for a list of unknown length
    doc: str
    deprecated: str


def functions() -> list[Function]:
    """All functions, sorted by op."""
    return [each for op in schemas(REGISTRY).ops if _is_public(op) for each in _of_op(op)]


def schema_hash() -> str:
    """What ListOpsResponse.hash is for these functions."""
    return schemas(REGISTRY).hash


def _is_public(op: service_pb2.OpSchema) -> bool:
    return op.name not in LEFT_OUT and (op.function or op.method or (op.in_place and bool(op.namespace)))


def _of_op(op: service_pb2.OpSchema) -> Iterator[Function]:
    base = op.name.rpartition(".")[2].removesuffix("_") if op.in_place else op.name.rpartition(".")[2]
    for overload in op.overloads:
        given = [each for each in overload.parameters if not each.HasField("fixed")]
        required = [each for each in given if not each.HasField("default") and not each.keyword_only]
        if required != list(overload.parameters)[: len(required)]:
            raise SystemExit(f"{op.name}: a required parameter does not come first, so it has no place")
        yield Function(
            op=op.name,
            name=f"{base}_{overload.name}" if overload.name else base,
            namespace=op.namespace,
            method=op.method,
            in_place=op.in_place,
            required=tuple(_parameter(each) for each in required),
            options=tuple(_parameter(each) for each in given if each not in required),
            fixed=tuple((each.name, _argument(each.fixed)) for each in overload.parameters if each.HasField("fixed")),
            results=() if overload.returns_list else tuple(overload.results),
            doc=op.doc.splitlines()[0] if op.doc else "",
            deprecated=op.deprecated,
        )


def _parameter(given: service_pb2.Parameter) -> Parameter:
    default = _argument(given.default) if given.HasField("default") else None
    return Parameter(
        name=given.name,
        kind=NAMES[given.kind],
        optional=given.optional,
        default=None if default is None or default[0] == "none" else default,
        keyword_only=given.keyword_only,
        choices=tuple(given.choices),
    )


def _argument(given: Any) -> tuple[str, Any]:
    kind = given.WhichOneof("kind")
    value = getattr(given, kind)
    return kind, list(value.values) if kind in ("integers", "floats") else value


# Go

GO_TYPES = {
    "TENSOR": "*Tensor",
    "TENSOR_OR_NUMBER": "Operand",
    "TENSORS": "[]*Tensor",
    "NUMBER": "any",
    "FLOAT": "float64",
    "INTEGER": "int",
    "BOOLEAN": "bool",
    "STRING": "string",
    "DTYPE": "DType",
    "DEVICE": "string",
    "INTEGERS": "[]int",
    "FLOATS": "[]float64",
    "INDEX": "[]IndexItem",
    "NUMBER_OR_STRING": "any",
}
GO_ADDS = {
    "TENSOR": "Tensor",
    "TENSOR_OR_NUMBER": "Operand",
    "TENSORS": "Tensors",
    "NUMBER": "Number",
    "FLOAT": "Float",
    "INTEGER": "Integer",
    "BOOLEAN": "Boolean",
    "STRING": "String",
    "DTYPE": "DType",
    "DEVICE": "String",
    "INTEGERS": "Integers",
    "FLOATS": "Floats",
    "INDEX": "Index",
    "NUMBER_OR_STRING": "Number",
}
GO_ZERO = {"float64": 0.0, "int": 0, "bool": False, "string": ""}
GO_FIXED = {"boolean": "Boolean", "integer": "Integer", "string": "String"}
GO_WORDS = {
    "break", "case", "chan", "const", "continue", "default", "defer", "else", "fallthrough", "for", "func", "go",
    "goto", "if", "import", "interface", "map", "package", "range", "return", "select", "struct", "switch", "type",
    "var", "len", "max", "min", "any", "real", "imag", "t", "s", "c", "o", "ctx",
}  # fmt: skip
# PyTorch tells t from T and h from H by case alone.
GO_NAMES = {"T": "ReverseDims", "t": "T", "H": "Adjoint2D", "mT": "MT", "mH": "MH"}
GO_PACKAGES = {"nn.functional": "functional", "linalg": "linalg", "fft": "fft", "special": "special"}
GO_ABOUT = {
    "functional": "Package functional has the functions of torch.nn.functional that are not methods of Tensor.",
    "linalg": "Package linalg has the functions of torch.linalg.",
    "fft": "Package fft has the functions of torch.fft.",
    "special": "Package special has the functions of torch.special that torch itself lacks.",
}
GO_CORE = ("Tensor", "Operand", "DType", "IndexItem", "Session")


def pascal(name: str) -> str:
    """max_dim is MaxDim."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[_.]", name) if part)


def go_name(function: Function) -> str:
    """The function's name in Go."""
    base = GO_NAMES.get(function.name, pascal(function.name))
    return base + "InPlace" if function.in_place else base


def go_parameter(name: str) -> str:
    made = pascal(name)
    made = made[:1].lower() + made[1:]
    return made + "_" if made in GO_WORDS else made


class GoFile:
    """The functions of a Go package."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.core = package == "gradwire"
        self.bodies: list[str] = []
        self.names: set[str] = set()
        self.waits = False

    def kind(self, parameter: Parameter) -> str:
        text = GO_TYPES[parameter.kind]
        return text if self.core else re.sub(rf"\b({'|'.join(GO_CORE)})\b", r"gradwire.\1", text)

    def of_package(self, name: str) -> str:
        return name if self.core else f"gradwire.{name}"

    def add(self, function: Function) -> None:
        name = go_name(function)
        receiver, parameters = self.receiver(function)
        unique = f"{receiver.split()[-1] if receiver else ''}.{name}"
        if unique in self.names:
            raise SystemExit(f"two functions would be {unique}")
        self.names.add(unique)
        # Methods of several types, and functions, may share a name; their options may not.
        options = f"{name}Options"
        if function.options:
            self.options(function, name, options)
        arguments = [f"{go_parameter(each.name)} {self.kind(each)}" for each in parameters]
        if not function.results:
            self.waits = True
            arguments.insert(0, "ctx context.Context")
        if function.options:
            arguments.append(f"options ...{options}")
        head = f"func {f'({receiver}) ' if receiver else ''}{name}({', '.join(arguments)}) {self.results(function)} {{"
        lines = [*self.doc(function, name), head, *self.body(function, receiver), "}"]
        self.bodies.append("\n".join(lines))

    def receiver(self, function: Function) -> tuple[str, tuple[Parameter, ...]]:
        """The receiver, and the parameters but for it."""
        if not self.core:
            return "", function.required
        if function.method and function.required:
            return "t *Tensor", function.required[1:]
        if not any(each.kind in ("TENSOR", "TENSORS") for each in function.required):
            return "s *Session", function.required
        return "", function.required

    def doc(self, function: Function, name: str) -> list[str]:
        path = ".".join(part for part in ("torch", function.namespace) if part)
        where = f"Tensor.{function.op}" if function.method else f"{path}.{function.op.rpartition('.')[2]}"
        text = function.doc.rstrip(".")
        text = text if f"({where})" in text or "(torch." in text else f"{text} ({where})"
        lines = [f"// {name}: {text}."]
        lines += [f"// {each.name} is one of {', '.join(each.choices)}." for each in function.required if each.choices]
        if function.deprecated:
            lines += ["//", f"// Deprecated: {function.deprecated}"]
        return lines

    def options(self, function: Function, name: str, options: str) -> None:
        lines = [f"// {options} are what {name} can do without.", f"type {options} struct {{"]
        for each in function.options:
            told = "" if each.default is None else f"default {go_default(each.default)}"
            if each.choices:
                told = f"{told}; one of {', '.join(each.choices)}".removeprefix("; ")
            pointer = "*" if self.by_pointer(each) else ""
            lines.append(f"\t{pascal(each.name)} {pointer}{self.kind(each)}" + (f" // {told}" if told else ""))
        self.bodies.append("\n".join([*lines, "}"]))

    def by_pointer(self, parameter: Parameter) -> bool:
        """Whether the zero value would mean something else than the default."""
        kind = GO_TYPES[parameter.kind]
        if kind not in GO_ZERO:
            return False
        default = None if parameter.default is None else parameter.default[1]
        if kind == "string":
            return False  # no op takes an empty string
        return default is None or default != GO_ZERO[kind]

    def results(self, function: Function) -> str:
        tensor = self.of_package("Tensor")
        if not function.results:
            return f"([]*{tensor}, error)"
        if function.in_place or len(function.results) == 1:
            return f"*{tensor}"
        return "(" + ", ".join(f"{go_parameter(each)}" for each in function.results) + f" *{tensor})"

    def body(self, function: Function, receiver: str) -> Iterator[str]:
        session = "s" if receiver.startswith("s ") else "nil"
        chain = f'\tc := {self.of_package("NewCall")}({session}, "{function.op}")'
        for place, each in enumerate(function.required):
            value = "t" if receiver.startswith("t ") and place == 0 else go_parameter(each.name)
            chain += f'.{GO_ADDS[each.kind]}("", {value})'
        for name, (kind, value) in function.fixed:
            told = f'"{value}"' if kind == "string" else str(value).lower()
            chain += f'.{GO_FIXED[kind]}("{name}", {told})'
        yield chain
        if function.options:
            yield "\tfor _, o := range options {"
            for each in function.options:
                yield from self.option(each)
            yield "\t}"
        if not function.results:
            yield "\treturn c.List(ctx)"
        elif function.in_place:
            yield "\treturn c.InPlace()"
        elif len(function.results) == 1:
            yield "\treturn c.One()"
        elif len(function.results) == 2:
            yield "\treturn c.Two()"
        else:
            yield f"\tmade := c.Several({len(function.results)})"
            yield "\treturn " + ", ".join(f"made[{place}]" for place in range(len(function.results)))

    def option(self, each: Parameter) -> Iterator[str]:
        field = f"o.{pascal(each.name)}"
        kind = GO_TYPES[each.kind]
        value = f"*{field}" if self.by_pointer(each) else field
        unset = {"bool": f"{field}", "string": f'{field} != ""', "DType": f"{field} != 0"}
        unset |= {"int": f"{field} != 0", "float64": f"{field} != 0"}
        yield f"\t\tif {f'{field} != nil' if self.by_pointer(each) or kind not in unset else unset[kind]} {{"
        yield f'\t\t\tc.{GO_ADDS[each.kind]}("{each.name}", {value})'
        yield "\t\t}"

    def text(self) -> str:
        imports = ['"context"'] if self.waits else []
        if not self.core:
            imports.append('gradwire "github.com/gradwire/gradwire/client/go"')
        head = "// Code generated by tools/sdk_ops.py from the answer to ListOps. DO NOT EDIT.\n\n"
        if not self.core:
            head += f"// {GO_ABOUT[self.package]}\n"
        head += f"package {self.package}\n"
        if imports:
            head += "\nimport (\n" + "".join(f"\t{each}\n" for each in imports) + ")\n"
        if self.core:
            head += f'\n// OpsHash is ListOpsResponse.hash of the ops below.\nconst OpsHash = "{schema_hash()}"\n'
        return head + "".join(f"\n{body}\n" for body in self.bodies)


def go_default(default: tuple[str, Any]) -> str:
    kind, value = default
    return f'"{value}"' if kind == "string" else str(value).lower()


def go_files() -> dict[Path, str]:
    """The generated files of Go, formatted as gofmt would."""
    files = {package: GoFile(package) for package in ("gradwire", *GO_PACKAGES.values())}
    for function in functions():
        package = "gradwire" if function.method else GO_PACKAGES.get(function.namespace, "gradwire")
        files[package].add(function)
    return {
        GO / ("ops.go" if package == "gradwire" else f"{package}/{package}.go"): _aligned(file.text())
        for package, file in files.items()
    }


def _aligned(text: str) -> str:
    """Align the fields and comments of structs as gofmt does."""

    def align(match: re.Match[str]) -> str:
        rows = [re.match(r"\t(\S+) (\S+)(?: (// .*))?$", line) for line in match[2].splitlines()]
        fields = [row.groups() for row in rows if row]
        names = max(len(name) for name, _, _ in fields)
        lines = []
        for place, (name, kind, comment) in enumerate(fields):
            if comment is None:
                lines.append(f"\t{name:{names}} {kind}")
                continue
            # Comments align within a run of lines that have one.
            first = last = place
            while first > 0 and fields[first - 1][2]:
                first -= 1
            while last + 1 < len(fields) and fields[last + 1][2]:
                last += 1
            kinds = max(len(each[1]) for each in fields[first : last + 1])
            lines.append(f"\t{name:{names}} {kind:{kinds}} {comment}")
        return match[1] + "\n".join(lines) + "\n}"

    return re.sub(r"(type \w+ struct \{\n)(.*?)\n\}", align, text, flags=re.DOTALL)


WRITERS = (go_files,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is stale")
    check = parser.parse_args().check
    files = {path: text for writer in WRITERS for path, text in writer().items()}
    stale = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    if check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"stale functions of other languages: {names}; run `python -m tools.sdk_ops`")
    if not check:
        for path in stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], "utf-8")


if __name__ == "__main__":
    main()
