"""Go's stubs, and its typed functions as gofmt would format them: one file for each package."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.sdk.functions import ROOT, Function, Parameter, functions, schema_hash
from tools.stubs import PROTOS, compile_protos

LANGUAGE = "Go"
FOLDER = ROOT / "client" / "go"
TYPES = {
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
ADDS = {
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
ZERO = {"float64": 0.0, "int": 0, "bool": False, "string": ""}
FIXED = {"boolean": "Boolean", "integer": "Integer", "string": "String"}
WORDS = {
    "break", "case", "chan", "const", "continue", "default", "defer", "else", "fallthrough", "for", "func", "go",
    "goto", "if", "import", "interface", "map", "package", "range", "return", "select", "struct", "switch", "type",
    "var", "len", "max", "min", "any", "real", "imag", "t", "s", "c", "o", "ctx",
}  # fmt: skip
# PyTorch tells t from T and h from H by case alone.
NAMES = {"T": "ReverseDims", "t": "T", "H": "Adjoint2D", "mT": "MT", "mH": "MH"}
PACKAGES = {"nn.functional": "functional", "linalg": "linalg", "fft": "fft", "special": "special"}
ABOUT = {
    "functional": "Package functional has the functions of torch.nn.functional that are not methods of Tensor.",
    "linalg": "Package linalg has the functions of torch.linalg.",
    "fft": "Package fft has the functions of torch.fft.",
    "special": "Package special has the functions of torch.special that torch itself lacks.",
}
CORE = ("Tensor", "Operand", "DType", "IndexItem", "Session")


def pascal(name: str) -> str:
    """max_dim is MaxDim."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[_.]", name) if part)


def name_of(function: Function) -> str:
    """The function's name in Go."""
    base = NAMES.get(function.name, pascal(function.name))
    return base + "InPlace" if function.in_place else base


def parameter_of(name: str) -> str:
    made = pascal(name)
    made = made[:1].lower() + made[1:]
    return made + "_" if made in WORDS else made


class GoFile:
    """The functions of a Go package."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.core = package == "gradwire"
        self.bodies: list[str] = []
        self.names: set[str] = set()
        self.waits = False

    def kind(self, parameter: Parameter) -> str:
        text = TYPES[parameter.kind]
        return text if self.core else re.sub(rf"\b({'|'.join(CORE)})\b", r"gradwire.\1", text)

    def of_package(self, name: str) -> str:
        return name if self.core else f"gradwire.{name}"

    def add(self, function: Function) -> None:
        name = name_of(function)
        receiver, parameters = self.receiver(function)
        unique = f"{receiver.split()[-1] if receiver else ''}.{name}"
        if unique in self.names:
            raise SystemExit(f"two functions would be {unique}")
        self.names.add(unique)
        # Methods of several types, and functions, may share a name; their options may not.
        options = f"{name}Options"
        if function.options:
            self.options(function, name, options)
        arguments = [f"{parameter_of(each.name)} {self.kind(each)}" for each in parameters]
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
            told = "" if each.default is None else f"default {default_of(each.default)}"
            if each.choices:
                told = f"{told}; one of {', '.join(each.choices)}".removeprefix("; ")
            pointer = "*" if self.by_pointer(each) else ""
            lines.append(f"\t{pascal(each.name)} {pointer}{self.kind(each)}" + (f" // {told}" if told else ""))
        self.bodies.append("\n".join([*lines, "}"]))

    def by_pointer(self, parameter: Parameter) -> bool:
        """Whether the zero value would mean something else than the default."""
        kind = TYPES[parameter.kind]
        if kind not in ZERO:
            return False
        default = None if parameter.default is None else parameter.default[1]
        if kind == "string":
            return False  # no op takes an empty string
        return default is None or default != ZERO[kind]

    def results(self, function: Function) -> str:
        tensor = self.of_package("Tensor")
        if not function.results:
            return f"([]*{tensor}, error)"
        if function.in_place or len(function.results) == 1:
            return f"*{tensor}"
        return "(" + ", ".join(f"{parameter_of(each)}" for each in function.results) + f" *{tensor})"

    def body(self, function: Function, receiver: str) -> Iterator[str]:
        session = "s" if receiver.startswith("s ") else "nil"
        chain = f'\tc := {self.of_package("NewCall")}({session}, "{function.op}")'
        for place, each in enumerate(function.required):
            value = "t" if receiver.startswith("t ") and place == 0 else parameter_of(each.name)
            chain += f'.{ADDS[each.kind]}("", {value})'
        for name, (kind, value) in function.fixed:
            told = f'"{value}"' if kind == "string" else str(value).lower()
            chain += f'.{FIXED[kind]}("{name}", {told})'
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
        kind = TYPES[each.kind]
        value = f"*{field}" if self.by_pointer(each) else field
        unset = {"bool": f"{field}", "string": f'{field} != ""', "DType": f"{field} != 0"}
        unset |= {"int": f"{field} != 0", "float64": f"{field} != 0"}
        yield f"\t\tif {f'{field} != nil' if self.by_pointer(each) or kind not in unset else unset[kind]} {{"
        yield f'\t\t\tc.{ADDS[each.kind]}("{each.name}", {value})'
        yield "\t\t}"

    def text(self) -> str:
        imports = ['"context"'] if self.waits else []
        if not self.core:
            imports.append('gradwire "github.com/gradwire/gradwire/client/go"')
        head = "// Code generated by tools/sdk_ops.py from the answer to ListOps. DO NOT EDIT.\n\n"
        if not self.core:
            head += f"// {ABOUT[self.package]}\n"
        head += f"package {self.package}\n"
        if imports:
            head += "\nimport (\n" + "".join(f"\t{each}\n" for each in imports) + ")\n"
        if self.core:
            head += f'\n// OpsHash is ListOpsResponse.hash of the ops below.\nconst OpsHash = "{schema_hash()}"\n'
        return head + "".join(f"\n{body}\n" for body in self.bodies)


def default_of(default: tuple[str, Any]) -> str:
    kind, value = default
    return f'"{value}"' if kind == "string" else str(value).lower()


def files() -> dict[Path, str]:
    """The generated files."""
    made = {package: GoFile(package) for package in ("gradwire", *PACKAGES.values())}
    for function in functions():
        package = "gradwire" if function.method else PACKAGES.get(function.namespace, "gradwire")
        made[package].add(function)
    return {
        FOLDER / ("ops.go" if package == "gradwire" else f"{package}/{package}.go"): _aligned(file.text())
        for package, file in made.items()
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


# Stubs

STUBS = ("**/*.pb.go",)
MODULE = "github.com/gradwire/gradwire/client/go"
PLUGINS = ("protoc-gen-go", "protoc-gen-go-grpc")


def missing() -> str:
    """What the stubs' generation lacks here, or nothing."""
    absent = [name for name in PLUGINS if not _plugin(name)]
    return f"{' and '.join(absent)} are not installed; see tools/sdk_stubs.py" if absent else ""


def generate(target: Path) -> None:
    """Write the package gradwirepb below `target`."""
    options = [f"--{kind}_opt=module={MODULE}" for kind in ("go", "go-grpc")]
    named = [f"--plugin={name}={_plugin(name)}" for name in PLUGINS]
    compile_protos(ROOT / "proto", *named, f"--go_out={target}", f"--go-grpc_out={target}", *options, *PROTOS)


def _plugin(name: str) -> str | None:
    """Where a plugin is: on the PATH, or where `go install` puts it."""
    if found := shutil.which(name):
        return found
    if not shutil.which("go"):
        return None
    asked = subprocess.run(["go", "env", "GOBIN", "GOPATH"], capture_output=True, text=True, check=True)
    own, path = asked.stdout.splitlines()
    return shutil.which(name, path=own or os.path.join(path, "bin"))
