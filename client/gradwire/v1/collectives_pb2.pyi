from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CollectiveKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLLECTIVE_KIND_UNSPECIFIED: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_JOIN: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_LEAVE: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_BARRIER: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_ALL_REDUCE: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_REDUCE: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_BROADCAST: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_ALL_GATHER: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_GATHER: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_REDUCE_SCATTER: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_SCATTER: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_ALL_TO_ALL: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_SEND: _ClassVar[CollectiveKind]
    COLLECTIVE_KIND_RECV: _ClassVar[CollectiveKind]

class ReduceOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REDUCE_OP_UNSPECIFIED: _ClassVar[ReduceOp]
    REDUCE_OP_SUM: _ClassVar[ReduceOp]
    REDUCE_OP_AVG: _ClassVar[ReduceOp]
    REDUCE_OP_PRODUCT: _ClassVar[ReduceOp]
    REDUCE_OP_MIN: _ClassVar[ReduceOp]
    REDUCE_OP_MAX: _ClassVar[ReduceOp]
    REDUCE_OP_BAND: _ClassVar[ReduceOp]
    REDUCE_OP_BOR: _ClassVar[ReduceOp]
    REDUCE_OP_BXOR: _ClassVar[ReduceOp]
COLLECTIVE_KIND_UNSPECIFIED: CollectiveKind
COLLECTIVE_KIND_JOIN: CollectiveKind
COLLECTIVE_KIND_LEAVE: CollectiveKind
COLLECTIVE_KIND_BARRIER: CollectiveKind
COLLECTIVE_KIND_ALL_REDUCE: CollectiveKind
COLLECTIVE_KIND_REDUCE: CollectiveKind
COLLECTIVE_KIND_BROADCAST: CollectiveKind
COLLECTIVE_KIND_ALL_GATHER: CollectiveKind
COLLECTIVE_KIND_GATHER: CollectiveKind
COLLECTIVE_KIND_REDUCE_SCATTER: CollectiveKind
COLLECTIVE_KIND_SCATTER: CollectiveKind
COLLECTIVE_KIND_ALL_TO_ALL: CollectiveKind
COLLECTIVE_KIND_SEND: CollectiveKind
COLLECTIVE_KIND_RECV: CollectiveKind
REDUCE_OP_UNSPECIFIED: ReduceOp
REDUCE_OP_SUM: ReduceOp
REDUCE_OP_AVG: ReduceOp
REDUCE_OP_PRODUCT: ReduceOp
REDUCE_OP_MIN: ReduceOp
REDUCE_OP_MAX: ReduceOp
REDUCE_OP_BAND: ReduceOp
REDUCE_OP_BOR: ReduceOp
REDUCE_OP_BXOR: ReduceOp

class CollectiveRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "kind", "group", "rank", "size", "op", "inputs", "outputs", "peer", "any_peer", "tag", "timeout_ms", "grace_ms")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    ANY_PEER_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    kind: CollectiveKind
    group: str
    rank: int
    size: int
    op: ReduceOp
    inputs: _containers.RepeatedScalarFieldContainer[int]
    outputs: _containers.RepeatedScalarFieldContainer[int]
    peer: int
    any_peer: bool
    tag: int
    timeout_ms: int
    grace_ms: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., kind: _Optional[_Union[CollectiveKind, str]] = ..., group: _Optional[str] = ..., rank: _Optional[int] = ..., size: _Optional[int] = ..., op: _Optional[_Union[ReduceOp, str]] = ..., inputs: _Optional[_Iterable[int]] = ..., outputs: _Optional[_Iterable[int]] = ..., peer: _Optional[int] = ..., any_peer: bool = ..., tag: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., grace_ms: _Optional[int] = ...) -> None: ...

class CollectiveResponse(_message.Message):
    __slots__ = ("peer",)
    PEER_FIELD_NUMBER: _ClassVar[int]
    peer: int
    def __init__(self, peer: _Optional[int] = ...) -> None: ...
