"""What the snippets in other languages call and set exists in the contract, under that language's generated name."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradwire.v1 import commands_pb2, service_pb2, types_pb2

PAGE = Path(__file__).parents[2] / "docs" / "other-languages.md"
FILES = [module.DESCRIPTOR for module in (commands_pb2, service_pb2, types_pb2)]
MESSAGES = {name: message for file in FILES for name, message in file.message_types_by_name.items()}
ENUMS = {name: enum for file in FILES for name, enum in file.enum_types_by_name.items()}
(SERVICE,) = service_pb2.DESCRIPTOR.services_by_name.values()
CALLS = set(SERVICE.methods_by_name)
# What a session needs, and so what every snippet has to show.
SHOWN = {"OpenSession", "Create", "Op", "Backward", "Grad", "Read", "CloseSession"}


def camel(name: str) -> str:
    """session_id is SessionId."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def snake(name: str) -> str:
    """OpenSession is open_session."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def enum_value(enum: str, value: str) -> str:
    """DTYPE_FLOAT32 of Dtype is Float32, as C# and Rust shorten it."""
    return camel(value.removeprefix(snake(enum).upper() + "_").lower())


def snippet(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return found[0]


def literals(code: str, opening: str) -> Iterator[tuple[str, str]]:
    """Name and inside, without what is nested in it, of each `Name {…}`; `opening` has a group for the name."""
    for match in re.finditer(opening + r"\s*\{", code):
        depth, inside = 1, ""
        for character in code[match.end() :]:
            depth += (character in "{([") - (character in "})]")
            if depth == 0:
                break
            inside += character if depth == 1 else ""
        yield match[1], inside


def check_fields(code: str, opening: str, field: str, name_of: Callable[[str], str]) -> None:
    """Each `Name {field…}` is a message, with that field, or the name of a oneof."""
    some = False
    for name, inside in literals(code, opening):
        if name not in MESSAGES:
            continue
        message = MESSAGES[name]
        known = {name_of(each) for each in [*message.fields_by_name, *message.oneofs_by_name]}
        given = set(re.findall(field, inside))
        assert given <= known, f"{name} has no {given - known}"
        some = some or bool(given)
    assert some


def test_go():
    code = snippet("go")
    wrappers = {f"{name}_{camel(field.name)}" for name, m in MESSAGES.items() for o in m.oneofs for field in o.fields}
    values = {f"{name}_{value}" for name, enum in ENUMS.items() for value in enum.values_by_name}
    assert set(re.findall(r"pb\.(\w+)", code)) <= {*MESSAGES, *wrappers, *values, "NewAutogradServiceClient"}
    check_fields(code, r"pb\.(\w+)", r"(\w+):", camel)
    assert set(re.findall(r"client\.(\w+)\(", code)) == SHOWN
    fields = {camel(field) for message in MESSAGES.values() for field in message.fields_by_name}
    assert set(re.findall(r"\.Get(\w+)\(\)", code)) <= fields


def test_java():
    code = snippet("java")
    packages = {file.GetOptions().java_package for file in FILES}
    assert set(re.findall(r"import ([\w.]+gradwire[\w.]*)\.\*", code)) == packages
    assert set(re.findall(r"(\w+)\.newBuilder\(\)", code)) <= set(MESSAGES)
    for name, chain in re.findall(r"(\w+)\.newBuilder\(\)(.*?)\.build\(\)", code, re.DOTALL):
        fields = MESSAGES[name].fields_by_name.values()
        setters = {("add" if field.is_repeated else "set") + camel(field.name) for field in fields}
        assert set(re.findall(r"\.((?:set|add)\w+)\(", chain)) <= setters, name
    assert set(re.findall(r"stub\.(\w+)\(", code)) == {call[0].lower() + call[1:] for call in SHOWN}
    getters = {f"get{camel(field)}" for message in MESSAGES.values() for field in message.fields_by_name}
    assert set(re.findall(r"\.(get\w+)\(", code)) <= {*getters, "getFloat"}
    assert set(re.findall(r"Dtype\.(\w+)", code)) <= set(ENUMS["Dtype"].values_by_name)


def test_rust():
    code = snippet("rust")
    check_fields(code, r"\b([A-Z]\w+)", r"(?:^|,)\s*([a-z_]\w*)(?=\s*(?::(?!:)|,|$))", str)
    assert set(re.findall(r"client\.(\w+)\(", code)) == {snake(call) for call in SHOWN}
    for scope, oneof, variant in re.findall(r"\b([a-z_]+)::([A-Z]\w+)::([A-Z]\w+)", code):
        message = MESSAGES[camel(scope)]
        assert variant in {camel(field.name) for field in message.oneofs_by_name[snake(oneof)].fields}
    for value in re.findall(r"Dtype::(\w+)", code):
        assert value in {enum_value("Dtype", name) for name in ENUMS["Dtype"].values_by_name}


def test_csharp():
    """Of names alone: there is no dotnet among the tests' toolchains that could compile the block."""
    code = snippet("csharp")
    assert set(re.findall(r"new (\w+Request|Payload|Argument)\b", code)) <= set(MESSAGES)
    check_fields(code, r"new (\w+)", r"(\w+) =", camel)
    assert set(re.findall(r"client\.(\w+)\(", code)) == SHOWN
    for value in re.findall(r"Dtype\.(\w+)", code):
        assert value in {enum_value("Dtype", name) for name in ENUMS["Dtype"].values_by_name}


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (test_go, "RequiresGrad: true", "NeedsGrad: true"),
        (test_go, "Argument_Tensor", "Argument_Vector"),
        (test_java, "setRequiresGrad", "setNeedsGrad"),
        (test_java, "stub.backward(", "stub.backwards("),
        (test_rust, "requires_grad: true", "needs_grad: true"),
        (test_rust, "Source::Payload", "Source::Values"),
        (test_csharp, "RequiresGrad = true", "NeedsGrad = true"),
        (test_csharp, "Dtype.Float32", "Dtype.Single"),
    ],
)
def test_a_name_that_does_not_exist_is_found(check, right, wrong, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    text = PAGE.read_text("utf-8")
    assert right in text
    page.write_text(text.replace(right, wrong), "utf-8")
    monkeypatch.setitem(globals(), "PAGE", page)
    with pytest.raises((AssertionError, KeyError)):
        check()


@pytest.mark.parametrize("language", ["Go", "TypeScript", "Rust", "Java"])
def test_a_page_s_times_are_those_of_the_table(language):
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    header = next(row for row in rows if row[0] == "mode")
    table = [row[header.index(language)].split()[0] for row in rows[rows.index(header) + 2 :][:4]]
    page = (PAGE.parent / "languages" / f"{language.lower()}.md").read_text("utf-8")
    own = page[page.index("| mode | ms | use |") :].splitlines()[2:6]
    assert [line.strip("| ").split(" | ")[1] for line in own] == table
