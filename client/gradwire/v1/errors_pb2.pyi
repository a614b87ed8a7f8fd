from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_SESSION_NOT_FOUND: _ClassVar[Reason]
    REASON_SESSION_EXPIRED: _ClassVar[Reason]
    REASON_SESSION_MOVED: _ClassVar[Reason]
    REASON_SESSION_LIMIT: _ClassVar[Reason]
    REASON_TENSOR_NOT_FOUND: _ClassVar[Reason]
    REASON_TENSOR_EXISTS: _ClassVar[Reason]
    REASON_TRANSFER_NOT_FOUND: _ClassVar[Reason]
    REASON_OP_UNKNOWN: _ClassVar[Reason]
    REASON_NOT_SUPPORTED: _ClassVar[Reason]
    REASON_ARGUMENT_TYPE: _ClassVar[Reason]
    REASON_ARGUMENT_VALUE: _ClassVar[Reason]
    REASON_SHAPE: _ClassVar[Reason]
    REASON_DTYPE: _ClassVar[Reason]
    REASON_DIM_OUT_OF_RANGE: _ClassVar[Reason]
    REASON_INDEX_OUT_OF_RANGE: _ClassVar[Reason]
    REASON_DEVICE_UNAVAILABLE: _ClassVar[Reason]
    REASON_DEVICE_MISMATCH: _ClassVar[Reason]
    REASON_PAYLOAD_SIZE: _ClassVar[Reason]
    REASON_GRADIENT_NEEDS_SCALAR: _ClassVar[Reason]
    REASON_NO_GRAD_FN: _ClassVar[Reason]
    REASON_GRAPH_FREED: _ClassVar[Reason]
    REASON_VERSION_CONFLICT: _ClassVar[Reason]
    REASON_LEAF_IN_PLACE: _ClassVar[Reason]
    REASON_UNUSED_INPUT: _ClassVar[Reason]
    REASON_REQUIRES_GRAD: _ClassVar[Reason]
    REASON_MEMORY_LIMIT: _ClassVar[Reason]
    REASON_TENSOR_LIMIT: _ClassVar[Reason]
    REASON_MESSAGE_TOO_LARGE: _ClassVar[Reason]
    REASON_DEADLINE_EXCEEDED: _ClassVar[Reason]
    REASON_CANCELLED: _ClassVar[Reason]
    REASON_DEPENDENCY_FAILED: _ClassVar[Reason]
    REASON_SEQUENCE_GAP: _ClassVar[Reason]
    REASON_EPOCH_MISMATCH: _ClassVar[Reason]
    REASON_PROTOCOL_VERSION: _ClassVar[Reason]
    REASON_MALFORMED: _ClassVar[Reason]
    REASON_UNAVAILABLE: _ClassVar[Reason]
    REASON_INTERNAL: _ClassVar[Reason]
    REASON_RESULT_FORGOTTEN: _ClassVar[Reason]
    REASON_RUNTIME: _ClassVar[Reason]
    REASON_UNAUTHENTICATED: _ClassVar[Reason]
    REASON_PERMISSION_DENIED: _ClassVar[Reason]
    REASON_STREAM_TAKEN: _ClassVar[Reason]
    REASON_PROGRAM_UNKNOWN: _ClassVar[Reason]
    REASON_PROGRAM_LIMIT: _ClassVar[Reason]
    REASON_COMPUTE_LIMIT: _ClassVar[Reason]
    REASON_TRAFFIC_LIMIT: _ClassVar[Reason]
    REASON_OP_LIMIT: _ClassVar[Reason]
    REASON_SNAPSHOT_NOT_FOUND: _ClassVar[Reason]
    REASON_SNAPSHOT_LIMIT: _ClassVar[Reason]
    REASON_SNAPSHOT_DAMAGED: _ClassVar[Reason]
    REASON_STORAGE: _ClassVar[Reason]
    REASON_GROUP_BROKEN: _ClassVar[Reason]
    REASON_COLLECTIVE_MISMATCH: _ClassVar[Reason]
REASON_UNSPECIFIED: Reason
REASON_SESSION_NOT_FOUND: Reason
REASON_SESSION_EXPIRED: Reason
REASON_SESSION_MOVED: Reason
REASON_SESSION_LIMIT: Reason
REASON_TENSOR_NOT_FOUND: Reason
REASON_TENSOR_EXISTS: Reason
REASON_TRANSFER_NOT_FOUND: Reason
REASON_OP_UNKNOWN: Reason
REASON_NOT_SUPPORTED: Reason
REASON_ARGUMENT_TYPE: Reason
REASON_ARGUMENT_VALUE: Reason
REASON_SHAPE: Reason
REASON_DTYPE: Reason
REASON_DIM_OUT_OF_RANGE: Reason
REASON_INDEX_OUT_OF_RANGE: Reason
REASON_DEVICE_UNAVAILABLE: Reason
REASON_DEVICE_MISMATCH: Reason
REASON_PAYLOAD_SIZE: Reason
REASON_GRADIENT_NEEDS_SCALAR: Reason
REASON_NO_GRAD_FN: Reason
REASON_GRAPH_FREED: Reason
REASON_VERSION_CONFLICT: Reason
REASON_LEAF_IN_PLACE: Reason
REASON_UNUSED_INPUT: Reason
REASON_REQUIRES_GRAD: Reason
REASON_MEMORY_LIMIT: Reason
REASON_TENSOR_LIMIT: Reason
REASON_MESSAGE_TOO_LARGE: Reason
REASON_DEADLINE_EXCEEDED: Reason
REASON_CANCELLED: Reason
REASON_DEPENDENCY_FAILED: Reason
REASON_SEQUENCE_GAP: Reason
REASON_EPOCH_MISMATCH: Reason
REASON_PROTOCOL_VERSION: Reason
REASON_MALFORMED: Reason
REASON_UNAVAILABLE: Reason
REASON_INTERNAL: Reason
REASON_RESULT_FORGOTTEN: Reason
REASON_RUNTIME: Reason
REASON_UNAUTHENTICATED: Reason
REASON_PERMISSION_DENIED: Reason
REASON_STREAM_TAKEN: Reason
REASON_PROGRAM_UNKNOWN: Reason
REASON_PROGRAM_LIMIT: Reason
REASON_COMPUTE_LIMIT: Reason
REASON_TRAFFIC_LIMIT: Reason
REASON_OP_LIMIT: Reason
REASON_SNAPSHOT_NOT_FOUND: Reason
REASON_SNAPSHOT_LIMIT: Reason
REASON_SNAPSHOT_DAMAGED: Reason
REASON_STORAGE: Reason
REASON_GROUP_BROKEN: Reason
REASON_COLLECTIVE_MISMATCH: Reason

class Error(_message.Message):
    __slots__ = ("code", "reason", "message", "metadata", "root_seq")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ROOT_SEQ_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: Reason
    message: str
    metadata: _containers.ScalarMap[str, str]
    root_seq: int
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[_Union[Reason, str]] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., root_seq: _Optional[int] = ...) -> None: ...
