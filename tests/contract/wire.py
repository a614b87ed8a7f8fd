"""Numbers, types and methods of a contract: what a later contract must keep to stay wire-compatible."""

from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)


def breaches(frozen: FileDescriptorSet, present: FileDescriptorSet) -> list[str]:
    """How the present contract breaks the frozen one; empty if it does not. Names of fields are free to change."""
    before, now = _Parts(frozen), _Parts(present)
    found = [f"message {name} is gone" for name in before.messages if name not in now.messages]
    found += [f"enum {name} is gone" for name in before.enums if name not in now.enums]
    for name, message in before.messages.items():
        if name in now.messages:
            found += _in_message(name, message, now.messages[name])
    for name, enum in before.enums.items():
        if name in now.enums:
            found += _in_enum(name, enum, now.enums[name])
    for name, method in before.methods.items():
        if name not in now.methods:
            found.append(f"method {name} is gone")
        elif method != now.methods[name]:
            found.append(f"method {name} was {method}, is {now.methods[name]}")
    return found


class _Parts:
    """Messages, enums and methods by their full names."""

    def __init__(self, files: FileDescriptorSet) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        self.enums: dict[str, EnumDescriptorProto] = {}
        self.methods: dict[str, tuple[object, ...]] = {}
        for file in files.file:
            for message in file.message_type:
                self._add(f"{file.package}.{message.name}", message)
            for enum in file.enum_type:
                self.enums[f"{file.package}.{enum.name}"] = enum
            for service in file.service:
                for each in service.method:
                    told = (each.input_type, each.client_streaming, each.output_type, each.server_streaming)
                    self.methods[f"{file.package}.{service.name}.{each.name}"] = told

    def _add(self, name: str, message: DescriptorProto) -> None:
        self.messages[name] = message
        for nested in message.nested_type:
            self._add(f"{name}.{nested.name}", nested)
        for enum in message.enum_type:
            self.enums[f"{name}.{enum.name}"] = enum


def _in_message(name: str, before: DescriptorProto, now: DescriptorProto) -> Iterator[str]:
    present = {field.number: field for field in now.field}
    for field in before.field:
        later = present.get(field.number)
        if later is None:
            if not any(span.start <= field.number < span.end for span in now.reserved_range):
                yield f"{name}: field {field.number} ({field.name}) is gone and its number not reserved"
        elif _meaning(before, field) != _meaning(now, later):
            yield f"{name}: field {field.number} was {_meaning(before, field)}, is {_meaning(now, later)}"


def _meaning(message: DescriptorProto, field: FieldDescriptorProto) -> tuple[object, ...]:
    """What decides how a field's bytes are read."""
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    kind = FieldDescriptorProto.Type.Name(field.type)
    return kind, field.type_name, FieldDescriptorProto.Label.Name(field.label), "" if field.proto3_optional else oneof


def _in_enum(name: str, before: EnumDescriptorProto, now: EnumDescriptorProto) -> Iterator[str]:
    present = {value.number: value.name for value in now.value}
    for value in before.value:
        later = present.get(value.number)
        if later is None:
            if not any(span.start <= value.number <= span.end for span in now.reserved_range):
                yield f"{name}: value {value.number} ({value.name}) is gone and its number not reserved"
        elif later != value.name:
            yield f"{name}: value {value.number} was {value.name}, is {later}"
