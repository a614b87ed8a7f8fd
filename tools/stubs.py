"""Generate client/gradwire/v1 from proto/, or with --check compare what is committed with what would be generated.

Uses the oldest grpcio-tools the project supports: stubs of a newer one refuse older runtimes at import.

The options of commands (options.proto) become a plain table. The stubs are made without them: a stub with options
imports descriptor_pb2, which costs every program milliseconds at its start.
"""

import argparse
import filecmp
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("gradwire", "v1")
PROTOS = sorted(str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto" / PACKAGE).glob("*.proto"))
OPTIONS = str(PACKAGE / "options.proto")
TABLE = "command_facts.py"
_OPTION = re.compile(r"\s*\[\(command_facts\) = \{[^}]*\}\]")

_TABLE_BEGINS = '''\
"""Facts about commands, from the options of Command's fields in service.proto. Written by `make stubs`; do not edit."""

from typing import NamedTuple


class CommandFacts(NamedTuple):
    """What is true of a command, whatever its request holds; options.proto says what each fact means."""

    #: RPC of the command, or the message's name of a command that comes only in batches.
    method: str
    #: Whether it is also an RPC.
    has_rpc: bool = True
    #: Whether a program may have it as a step.
    is_step: bool = False
    #: Whether it may stop at a hook: its answer has a HookCall.
    may_suspend: bool = False
'''


def protos(folder: Path) -> list[str]:
    """Write what messages follow, proto/ without the options of commands, below `folder`; return the files' names."""
    written = [name for name in PROTOS if name != OPTIONS]
    for name in written:
        text = (ROOT / "proto" / name).read_text("utf-8").replace(f'import "{OPTIONS}";\n', "")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(_OPTION.sub("", text), "utf-8")
    return written


def compile_protos(folder: Path, *arguments: str) -> None:
    """Run protoc on the protos of `folder`."""
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    if protoc.main(["protoc", f"-I{folder}", f"-I{well_known}", *arguments]) != 0:
        raise SystemExit("protoc failed")


def generate(target: Path) -> None:
    """Write the message modules, their type stubs, the service stub and the table of facts below `target`."""
    with tempfile.TemporaryDirectory() as folder:
        names = protos(Path(folder))
        compile_protos(Path(folder), f"--python_out={target}", f"--pyi_out={target}", *names)
        compile_protos(Path(folder), f"--grpc_python_out={target}", str(PACKAGE / "service.proto"))
    (target / PACKAGE / TABLE).write_text(table(), "utf-8")


def table() -> str:
    """The text of the table of facts."""
    pool = DescriptorPool()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "descriptors")
        compile_protos(ROOT / "proto", "--include_imports", f"--descriptor_set_out={made}", *PROTOS)
        for file in FileDescriptorSet.FromString(made.read_bytes()).file:
            pool.Add(file)
    facts = pool.FindMessageTypeByName("gradwire.v1.CommandFacts")
    lines = [_TABLE_BEGINS.rstrip("\n")]
    lines += [
        f"    {field.name}: {_annotation(field)} = {_text(_plain(field, field.default_value))}"
        for field in facts.fields
    ]
    lines += ["", "", "#: By the command's name in Command.", "FACTS: dict[str, CommandFacts] = {"]
    lines += [f'    "{name}": CommandFacts({", ".join(row)}),' for name, row in _rows(pool)]
    return "\n".join([*lines, "}", ""])


def _rows(pool: Any) -> Iterator[tuple[str, list[str]]]:
    """Each command's name and its arguments of CommandFacts."""
    options = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
    extension = pool.FindExtensionByName("gradwire.v1.command_facts")
    methods = pool.FindServiceByName("gradwire.v1.AutogradService").methods_by_name
    steps = pool.FindMessageTypeByName("gradwire.v1.ProgramStep").fields_by_name
    results = pool.FindMessageTypeByName("gradwire.v1.Result").fields_by_name
    for field in pool.FindMessageTypeByName("gradwire.v1.Command").oneofs_by_name["command"].fields:
        name, request = field.name, field.message_type
        method = request.name.removesuffix("Request")
        extensions: Any = options.FromString(field.GetOptions().SerializeToString()).Extensions
        facts = {fact.name: _plain(fact, value) for fact, value in extensions[extension].ListFields()}
        for told in (*facts.get("zero_is_none", ()), *facts.get("step_sets", ()), facts.get("makes", "")):
            if told and told not in request.fields_by_name:
                raise SystemExit(f"{name}: {told} is no field of {request.name}")
        row = [f'"{method}"']
        row += ["has_rpc=False"] * (method not in methods)
        row += ["is_step=True"] * (name in steps)
        row += ["may_suspend=True"] * (name in results and "due" in results[name].message_type.fields_by_name)
        yield name, [*row, *(f"{fact}={_text(value)}" for fact, value in facts.items())]


def _annotation(field: Any) -> str:
    kind = {field.TYPE_STRING: "str", field.TYPE_BOOL: "bool"}[field.type]
    return f"tuple[{kind}, ...]" if field.is_repeated else kind


def _plain(field: Any, value: Any) -> Any:
    return tuple(value) if field.is_repeated else value


def _text(value: object) -> str:
    return repr(value).replace("'", '"')


def stale_stubs() -> list[str]:
    """Names of the generated files that differ from the committed ones."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh, committed = Path(folder) / PACKAGE, ROOT / "client" / PACKAGE
        names = {path.name for base in (fresh, committed) for path in base.glob("*_pb2*.py*")} | {TABLE}
        return sorted(name for name in names if not _same(fresh / name, committed / name))


def _same(left: Path, right: Path) -> bool:
    return left.exists() and right.exists() and filecmp.cmp(left, right, shallow=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a stub is stale")
    if not parser.parse_args().check:
        generate(ROOT / "client")
    elif stale := stale_stubs():
        sys.exit(f"stale stubs: {', '.join(stale)}; run `make stubs`")


if __name__ == "__main__":
    main()
