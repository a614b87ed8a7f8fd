"""Java's typed functions: methods of Tensor and Session, static functions for each namespace, and records of results.

Java's stubs are not committed: Maven makes them from proto/ at every build.
"""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.sdk.functions import ROOT, Function, Parameter, functions, schema_hash

FOLDER = ROOT / "client" / "java"
SOURCES = FOLDER / "src" / "main" / "java" / "io" / "github" / "gradwire"
# The types that a parameter may have, each with the method of Call that adds it.
TYPES = {
    "TENSOR": (("Tensor", "tensor"),),
    "TENSOR_OR_NUMBER": (("Tensor", "tensor"), ("Number", "number")),
    "TENSORS": (("List<Tensor>", "tensors"),),
    "NUMBER": (("Number", "number"),),
    "FLOAT": (("double", "real"),),
    "INTEGER": (("long", "integer"),),
    "BOOLEAN": (("boolean", "bool"),),
    "STRING": (("String", "string"),),
    "DTYPE": (("DType", "dtype"),),
    "DEVICE": (("String", "string"),),
    "INTEGERS": (("long[]", "integers"),),
    "FLOATS": (("double[]", "reals"),),
    "NUMBER_OR_STRING": (("Number", "number"), ("String", "string")),
}
FIXED = {"boolean": "bool", "integer": "integer", "string": "string"}
WORDS = {"abstract", "assert", "boolean", "byte", "case", "char", "class", "const", "default", "do", "double", "enum",
         "final", "float", "for", "goto", "if", "import", "int", "long", "native", "new", "package", "return", "short",
         "static", "super", "switch", "this", "throw", "try", "void", "while", "call", "options"}  # fmt: skip
CLASSES = {"nn.functional": "Functional", "linalg": "Linalg", "fft": "Fft", "special": "Special"}
ABOUT = {
    "TensorOps": "Methods of {@link Tensor}: the ops that PyTorch has as methods.",
    "SessionOps": "Methods of {@link Session} that make tensors from no others.",
    "Torch": "Functions of torch that are not methods of {@link Tensor}.",
    "Functional": "Functions of torch.nn.functional that are not methods of {@link Tensor}.",
    "Linalg": "Functions of torch.linalg.",
    "Fft": "Functions of torch.fft.",
    "Special": "Functions of torch.special that torch itself lacks.",
}
Variant = tuple[tuple[str, str], ...]


def camel(name: str) -> str:
    """max_dim is maxDim; a single capital stays."""
    first, *rest = [part for part in re.split(r"[_.]", name) if part]
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def pascal(name: str) -> str:
    made = camel(name)
    return made[:1].upper() + made[1:]


def name_of(function: Function) -> str:
    """The function's name in Java."""
    return camel(function.name) + ("InPlace" if function.in_place else "")


def local(name: str) -> str:
    """A parameter's name in Java."""
    made = camel(name)
    made = made if made[1:2].isupper() else made[:1].lower() + made[1:]
    return f"{made}_" if made in WORDS else made


def component(name: str) -> str:
    """A result's name in a record."""
    made = camel(name)
    return made.lower() if made.isupper() else made[:1].lower() + made[1:]


def record_of(function: Function) -> str:
    """The record of several results, shared by all functions whose results have these names."""
    return "".join(pascal(name) for name in function.results)


class JavaClass:
    """A generated class of functions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bodies: list[str] = []
        self.options: dict[str, tuple[Parameter, ...]] = {}
        self.signatures: set[str] = set()

    def add(self, function: Function) -> None:
        """Add a method for each choice of types, without and with options."""
        options = self.options_of(function) if function.options else ""
        fixed = function.required[1:] if self.name == "TensorOps" else function.required
        for variant in itertools.product(*(TYPES[each.kind] for each in fixed)):
            if not self.finds_session(variant):
                continue
            self.method(function, fixed, variant, "")
            if options:
                self.method(function, fixed, variant, options)

    def finds_session(self, variant: Variant) -> bool:
        """Whether a variant of two operands has a tensor, which knows the session."""
        tensors = any(kind in ("Tensor", "List<Tensor>") for kind, _ in variant)
        return self.name in ("TensorOps", "SessionOps") or tensors

    def options_of(self, function: Function) -> str:
        """The class of a function's options; an in-place form shares it if it has the same."""
        name = f"{pascal(function.name)}Options"
        if self.options.get(name, function.options) != function.options:
            name = f"{pascal(name_of(function))}Options"
        if self.options.setdefault(name, function.options) != function.options:
            raise SystemExit(f"two functions have different options {name}")
        return name

    def method(self, function: Function, required: tuple[Parameter, ...], variant: Variant, options: str) -> None:
        name = name_of(function)
        given = [(local(each.name), kind) for each, (kind, _) in zip(required, variant, strict=True)]
        parameters = [f"{kind} {each}" for each, kind in given]
        if given and given[-1][1].endswith("[]") and not options:
            parameters[-1] = parameters[-1].replace("[] ", "... ")
        if options:
            parameters.append(f"Consumer<{options}> options")
        signature = f"{name}({', '.join(each.rsplit(' ', 1)[0] for each in parameters)})"
        if signature in self.signatures:
            raise SystemExit(f"two functions would be {self.name}.{signature}")
        self.signatures.add(signature)
        static = "" if self.name in ("TensorOps", "SessionOps") else "static "
        lines = [*self.doc(function, required)]
        if function.deprecated:
            lines.append("  @Deprecated")
        if name == "clone":
            lines.append("  @Override")
        lines.append(f"  public {static}{self.result(function)} {name}({', '.join(parameters)}) {{")
        lines += self.body(function, required, variant, options)
        lines.append("  }")
        self.bodies.append("\n".join(lines))

    def doc(self, function: Function, required: tuple[Parameter, ...]) -> Iterator[str]:
        path = ".".join(part for part in ("torch", function.namespace) if part)
        where = f"Tensor.{function.op}" if function.method else f"{path}.{function.op.rpartition('.')[2]}"
        text = function.doc.rstrip(".")
        text = text if f"({where})" in text or "(torch." in text else f"{text} ({where})"
        lines = [f"{text}."]
        lines += [f"{local(each.name)} is one of {', '.join(each.choices)}." for each in required if each.choices]
        if not function.results:
            lines.append("Waits, since only the answer has the list's length.")
        lines = [escaped(line) for line in lines]
        if function.deprecated:
            lines.append(f"@deprecated {escaped(function.deprecated)}")
        if len(lines) == 1:
            yield f"  /** {lines[0]} */"
            return
        yield "  /**"
        for line in lines:
            yield f"   * {line}"
        yield "   */"

    @staticmethod
    def result(function: Function) -> str:
        if not function.results:
            return "List<Tensor>"
        return "Tensor" if function.in_place or len(function.results) == 1 else f"Results.{record_of(function)}"

    def body(
        self, function: Function, required: tuple[Parameter, ...], variant: Variant, options: str
    ) -> Iterator[str]:
        session = "(Session) this" if self.name == "SessionOps" else "null"
        chain = f'new Call({session}, "{function.op}")'
        if self.name == "TensorOps":
            chain += '.tensor("", (Tensor) this)'
        for each, (_, adds) in zip(required, variant, strict=True):
            chain += f'.{adds}("", {local(each.name)})'
        for name, (kind, value) in function.fixed:
            told = f'"{value}"' if kind == "string" else str(value).lower()
            chain += f'.{FIXED[kind]}("{name}", {told})'
        if options:
            yield f"    Call call = {chain};"
            yield f"    options.accept(new {options}(call));"
            chain = "call"
        if not function.results:
            yield f"    return {chain}.list();"
        elif function.in_place:
            yield f"    return {chain}.inPlace();"
        elif len(function.results) == 1:
            yield f"    return {chain}.one();"
        else:
            yield f"    Tensor[] made = {chain}.several({len(function.results)});"
            made = ", ".join(f"made[{place}]" for place in range(len(function.results)))
            yield f"    return new Results.{record_of(function)}({made});"

    def options_class(self, name: str, parameters: tuple[Parameter, ...]) -> str:
        lines = [
            f"  /** What {camel(name).removesuffix('Options')} can do without. */",
            f"  public static final class {name} {{",
            "    private final Call call;",
            "",
            f"    {name}(Call call) {{",
            "      this.call = call;",
            "    }",
        ]
        for each in parameters:
            told = "" if each.default is None else f"Default {default_of(each.default)}."
            if each.choices:
                told = f"{told} One of {', '.join(each.choices)}.".strip()
            for kind, adds in TYPES[each.kind]:
                varied = kind.replace("[]", "...")
                lines += [
                    "",
                    f"    /** {escaped(told) or f'Sets {each.name}; unset by default.'} */",
                    f"    public {name} {local(each.name)}({varied} value) {{",
                    f'      call.{adds}("{each.name}", value);',
                    "      return this;",
                    "    }",
                ]
        return "\n".join([*lines, "  }"])

    def text(self) -> str:
        member = self.name in ("TensorOps", "SessionOps")
        lines = [HEAD]
        used = "\n".join(self.bodies)
        imports = ["java.util.List"] if "List<" in used else []
        imports += ["java.util.function.Consumer"] if self.options else []
        lines += [*(f"import {each};" for each in imports), ""] if imports else []
        lines.append(f"/** {ABOUT[self.name]} */")
        lines.append(f"public {'abstract' if member else 'final'} class {self.name} {{")
        if self.name == "SessionOps":
            lines += ["  /** ListOpsResponse.hash of the ops of this version. */"]
            lines += [f'  public static final String OPS_HASH = "{schema_hash()}";', ""]
        lines.append(f"  {'' if member else 'private '}{self.name}() {{}}")
        bodies = [*self.bodies, *(self.options_class(*each) for each in sorted(self.options.items()))]
        return "\n".join(lines) + "".join(f"\n\n{body}" for body in bodies) + "\n}\n"


HEAD = """// Code generated by tools/sdk_ops.py from the answer to ListOps. DO NOT EDIT.
package io.github.gradwire;
"""


def escaped(text: str) -> str:
    """Text for javadoc."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def default_of(default: tuple[str, Any]) -> str:
    kind, value = default
    return str(value).lower() if kind == "boolean" else str(value)


def results(all_functions: list[Function]) -> str:
    """The file of the records."""
    records = {record_of(each): each.results for each in all_functions if len(each.results) > 1}
    lines = [
        HEAD,
        "/** Results of ops that return several tensors, by PyTorch's names. */",
        "public final class Results {",
    ]
    lines.append("  private Results() {}")
    for name, names in sorted(records.items()):
        fields = ", ".join(f"Tensor {component(each)}" for each in names)
        lines += ["", f"  /** Named results: {', '.join(names)}. */", f"  public record {name}({fields}) {{}}"]
    return "\n".join([*lines, "}", ""])


def class_of(function: Function) -> str:
    """The class that has a function."""
    if function.method and function.op != "where":  # Tensor.where's receiver is not the condition
        return "TensorOps"
    if not any(each.kind in ("TENSOR", "TENSORS", "TENSOR_OR_NUMBER") for each in function.required):
        if function.namespace:
            raise SystemExit(f"{function.op} has no tensor to know the session by")
        return "SessionOps"
    return CLASSES[function.namespace] if function.namespace else "Torch"


def files() -> dict[Path, str]:
    """The generated files."""
    all_functions = functions()
    made = {name: JavaClass(name) for name in ABOUT}
    for function in all_functions:
        made[class_of(function)].add(function)
    texts = {name: each.text() for name, each in made.items()} | {"Results": results(all_functions)}
    return {SOURCES / f"{name}.java": text for name, text in texts.items()}
