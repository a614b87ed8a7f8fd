"""TypeScript's stubs, as protoc-gen-es writes them, and its typed functions."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.sdk.functions import ROOT, Function, Parameter, functions, schema_hash
from tools.stubs import PROTOS, compile_protos

LANGUAGE = "TypeScript"
FOLDER = ROOT / "client" / "typescript"
TYPES = {
    "TENSOR": "Tensor",
    "TENSOR_OR_NUMBER": "Operand",
    "TENSORS": "readonly Tensor[]",
    "NUMBER": "Numeric",
    "FLOAT": "number | ProgramNumber",
    "INTEGER": "number",
    "BOOLEAN": "boolean",
    "STRING": "string",
    "DTYPE": "DType",
    "DEVICE": "string",
    "INTEGERS": "number | readonly number[]",
    "FLOATS": "readonly number[]",
    "INDEX": "readonly IndexItem[]",
    "NUMBER_OR_STRING": "Numeric | string",
}
# The methods of Call.
ADDS = {
    "TENSOR": "tensor",
    "TENSOR_OR_NUMBER": "operand",
    "TENSORS": "tensors",
    "NUMBER": "number",
    "FLOAT": "float",
    "INTEGER": "integer",
    "BOOLEAN": "boolean",
    "STRING": "string",
    "DTYPE": "dtype",
    "DEVICE": "string",
    "INTEGERS": "integers",
    "FLOATS": "floats",
    "INDEX": "index",
    "NUMBER_OR_STRING": "number",
}
# What takes null as None.
NULLABLE = {"TENSOR", "TENSOR_OR_NUMBER", "NUMBER", "NUMBER_OR_STRING"}
WORDS = {"function", "new", "this", "var", "in", "with", "default", "session", "options", "call"}
METHODS, TORCH = "ops.ts", "torch.ts"
FILES = {"nn.functional": "functional.ts", "linalg": "linalg.ts", "fft": "fft.ts", "special": "special.ts"}
ABOUT = {
    METHODS: "The ops as methods of tensors and, where they need no tensor, of sessions.",
    TORCH: "The functions of torch that are not methods of a tensor.",
    "functional.ts": "The functions of torch.nn.functional that are not methods of a tensor.",
    "linalg.ts": "The functions of torch.linalg.",
    "fft.ts": "The functions of torch.fft.",
    "special.ts": "The functions of torch.special that torch itself lacks.",
}
IMPORTS = {
    "Tensor": "./tensor.js",
    "Session": "./session.js",
    "DType": "./values.js",
    "IndexItem": "./call.js",
    "Numeric": "./call.js",
    "Operand": "./call.js",
    "ProgramNumber": "./call.js",
}
WIDTH = 120


def camel(name: str) -> str:
    """max_dim is maxDim."""
    first, *others = [part for part in re.split(r"[_.]", name) if part]
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def parameter_of(name: str) -> str:
    made = camel(name)
    return made + "_" if made in WORDS else made


class TypeScriptFile:
    """The functions of a file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.options: list[str] = []
        self.functions: list[str] = []
        self.of_tensors: list[str] = []
        self.of_sessions: list[str] = []
        self.names: set[str] = set()

    def add(self, function: Function) -> None:
        name = camel(function.name) + ("_" if function.in_place else "")
        tensors = any(each.kind.startswith("TENSOR") for each in function.required)
        required = function.required
        if function.method:
            receiver, into, indent = "this: Tensor", self.of_tensors, "  "
            required = required[1:]
        elif self.name == METHODS:
            receiver, into, indent = "this: Session", self.of_sessions, "  "
        else:
            receiver, into, indent = "" if tensors else "session: Session", self.functions, ""
        unique = f"{receiver}.{name}"
        if unique in self.names:
            raise SystemExit(f"two functions would be {unique}")
        self.names.add(unique)
        arguments = [receiver] if receiver else []
        arguments += [f"{parameter_of(each.name)}: {kind_of(each)}" for each in required]
        if function.options:
            options = self.options_of(function, name)
            arguments.append(f"options: {options} = {{}}")
        head = f"{name}({', '.join(arguments)}): {result_of(function)} {{"
        if not indent:
            head = f"export function {head}"
        lines = [*doc_of(function), *wrapped(head), *body_of(function, receiver), "}"]
        into.append("\n".join(indent + line for line in lines))

    def options_of(self, function: Function, name: str) -> str:
        base = name.removesuffix("_") + ("InPlace" if function.in_place else "")
        options = base[:1].upper() + base[1:] + "Options"
        lines = [f"/** What `{name}` can do without. */", f"export interface {options} {{"]
        for each in function.options:
            if each.default is not None:
                lines.append(f"  /** {default_of(each.default)} if not given. */")
            lines.append(f"  {camel(each.name)}?: {kind_of(each)};")
        self.options.append("\n".join([*lines, "}"]))
        return options

    def text(self) -> str:
        bodies = [*self.options, *self.functions]
        if self.name == METHODS:
            bodies.append(f'/** ListOpsResponse.hash of these ops. */\nexport const OPS_HASH = "{schema_hash()}";')
            for name, about, methods in (
                ("TensorMethods", "The ops that are methods of a tensor.", self.of_tensors),
                ("SessionMethods", "The ops that make tensors of nothing.", self.of_sessions),
            ):
                body = "\n\n".join(methods)
                bodies.append(f"/** {about} */\nexport abstract class {name} {{\n{body}\n}}")
        text = "\n\n".join(bodies)
        imports: dict[str, list[str]] = {}
        for name, module in IMPORTS.items():
            if re.search(rf"\b{name}\b", text):
                imports.setdefault(module, []).append(name)
        lines = ['import { Call } from "./call.js";']
        lines += [f'import type {{ {", ".join(names)} }} from "{module}";' for module, names in sorted(imports.items())]
        head = "// Written by tools/sdk_ops.py from the answer to ListOps; do not edit.\n\n"
        return f"{head}/** {ABOUT[self.name]} */\n\n" + "\n".join(lines) + f"\n\n{text}\n"


def kind_of(parameter: Parameter) -> str:
    made = " | ".join(f'"{each}"' for each in parameter.choices) if parameter.choices else TYPES[parameter.kind]
    if parameter.kind == "NUMBER_OR_STRING" and parameter.choices:
        made = f"Numeric | {made}"
    return f"{made} | null" if parameter.optional and parameter.kind in NULLABLE else made


def result_of(function: Function) -> str:
    if not function.results:
        return "Promise<Tensor[]>"
    if function.in_place or len(function.results) == 1:
        return "Tensor"
    names = [parameter_of(each) for each in function.results]
    named = all(name.isidentifier() for name in names)
    return "[" + ", ".join(f"{name}: Tensor" if named else "Tensor" for name in names) + "]"


def doc_of(function: Function) -> list[str]:
    path = ".".join(part for part in ("torch", function.namespace) if part)
    where = f"Tensor.{function.op}" if function.method else f"{path}.{function.op.rpartition('.')[2]}"
    text = function.doc.rstrip(".")
    text = text if f"({where})" in text or "(torch." in text else f"{text} ({where})"
    text = f"{text}.".replace("*/", "* /")
    if not function.deprecated:
        return [f"/** {text} */"]
    return ["/**", f" * {text}", " *", f" * @deprecated {function.deprecated}", " */"]


def wrapped(head: str) -> list[str]:
    """A long head with a line for each parameter."""
    if len(head) + 2 <= WIDTH:
        return [head]
    begin, _, rest = head.partition("(")
    inside, _, end = rest.rpartition("): ")
    return [f"{begin}(", *(f"  {each}," for each in inside.split(", ")), f"): {end}"]


def body_of(function: Function, receiver: str) -> Iterator[str]:
    session = {"this: Session": ", this", "session: Session": ", session"}.get(receiver, "")
    chain = f'new Call("{function.op}"{session})'
    for place, each in enumerate(function.required):
        value = "this" if receiver == "this: Tensor" and place == 0 else parameter_of(each.name)
        chain += f'.{ADDS[each.kind]}("", {value})'
    for name, (kind, fixed) in function.fixed:
        told = f'"{fixed}"' if kind == "string" else str(fixed).lower()
        chain += f'.{kind}("{name}", {told})'
    end = {0: "list()", 1: "one()"}.get(len(function.results), f"several({len(function.results)})")
    if function.in_place:
        end = "inPlace()"
    cast = f" as {result_of(function)}" if end.startswith("several") else ""
    if not function.options:
        yield f"  return {chain}.{end}{cast};"
        return
    yield f"  const call = {chain};"
    for each in function.options:
        field = f"options.{camel(each.name)}"
        yield f'  if ({field} !== undefined) call.{ADDS[each.kind]}("{each.name}", {field});'
    yield f"  return call.{end}{cast};"


def default_of(default: tuple[str, Any]) -> str:
    kind, value = default
    return f'"{value}"' if kind == "string" else str(value).lower()


def files() -> dict[Path, str]:
    """The generated files."""
    made = {name: TypeScriptFile(name) for name in ABOUT}
    for function in functions():
        tensors = any(each.kind in ("TENSOR", "TENSORS") for each in function.required)
        name = TORCH if tensors else METHODS
        made[METHODS if function.method else FILES.get(function.namespace, name)].add(function)
    return {FOLDER / "src" / name: file.text() for name, file in made.items()}


# Stubs

STUBS = ("src/gen/**/*_pb.ts",)
PLUGIN = "protoc-gen-es"


def missing() -> str:
    """What the stubs' generation lacks here, or nothing."""
    return "" if _plugin() else f"{PLUGIN} is not installed; run `npm ci` in client/typescript"


def generate(target: Path) -> None:
    """Write the messages and the service below `target`/src/gen."""
    folder = target / "src" / "gen"
    folder.mkdir(parents=True, exist_ok=True)
    options = "--es_opt=target=ts,import_extension=js"
    compile_protos(ROOT / "proto", f"--plugin={PLUGIN}={_plugin()}", f"--es_out={folder}", options, *PROTOS)


def _plugin() -> str | None:
    """Where the plugin is: among the package's own modules, or on the PATH."""
    return shutil.which(PLUGIN, path=str(FOLDER / "node_modules" / ".bin")) or shutil.which(PLUGIN)
