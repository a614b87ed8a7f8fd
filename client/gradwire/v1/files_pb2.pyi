from gradwire.v1 import snapshots_pb2 as _snapshots_pb2
from gradwire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SaveFileRequest(_message.Message):
    __slots__ = ("session_id", "name", "tensors", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    name: str
    tensors: _containers.RepeatedCompositeFieldContainer[_snapshots_pb2.NamedTensor]
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, session_id: _Optional[str] = ..., name: _Optional[str] = ..., tensors: _Optional[_Iterable[_Union[_snapshots_pb2.NamedTensor, _Mapping]]] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SaveFileResponse(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileSummary
    def __init__(self, file: _Optional[_Union[FileSummary, _Mapping]] = ...) -> None: ...

class FileSummary(_message.Message):
    __slots__ = ("name", "bytes", "saved_unix_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SAVED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    bytes: int
    saved_unix_ms: int
    def __init__(self, name: _Optional[str] = ..., bytes: _Optional[int] = ..., saved_unix_ms: _Optional[int] = ...) -> None: ...

class LoadFileRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "name", "ids", "device", "grad_mode")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    GRAD_MODE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    name: str
    ids: _containers.RepeatedScalarFieldContainer[int]
    device: str
    grad_mode: _types_pb2.GradMode
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., name: _Optional[str] = ..., ids: _Optional[_Iterable[int]] = ..., device: _Optional[str] = ..., grad_mode: _Optional[_Union[_types_pb2.GradMode, str]] = ...) -> None: ...

class LoadFileResponse(_message.Message):
    __slots__ = ("tensors", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[LoadedTensor]
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, tensors: _Optional[_Iterable[_Union[LoadedTensor, _Mapping]]] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class LoadedTensor(_message.Message):
    __slots__ = ("name", "spec")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: _types_pb2.TensorSpec
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[_types_pb2.TensorSpec, _Mapping]] = ...) -> None: ...

class ListFilesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListFilesResponse(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[FileSummary]
    def __init__(self, files: _Optional[_Iterable[_Union[FileSummary, _Mapping]]] = ...) -> None: ...

class DeleteFileRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteFileResponse(_message.Message):
    __slots__ = ("freed_bytes",)
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    freed_bytes: int
    def __init__(self, freed_bytes: _Optional[int] = ...) -> None: ...
