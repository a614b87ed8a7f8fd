from gradwire.v1 import commands_pb2 as _commands_pb2
from gradwire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Program(_message.Message):
    __slots__ = ("inputs", "numbers", "steps", "outputs")
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[ProgramInput]
    numbers: int
    steps: _containers.RepeatedCompositeFieldContainer[ProgramStep]
    outputs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, inputs: _Optional[_Iterable[_Union[ProgramInput, _Mapping]]] = ..., numbers: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[ProgramStep, _Mapping]]] = ..., outputs: _Optional[_Iterable[int]] = ...) -> None: ...

class ProgramInput(_message.Message):
    __slots__ = ("dtype", "shape", "device", "requires_grad")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    dtype: _types_pb2.Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    device: str
    requires_grad: bool
    def __init__(self, dtype: _Optional[_Union[_types_pb2.Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., device: _Optional[str] = ..., requires_grad: bool = ...) -> None: ...

class ProgramStep(_message.Message):
    __slots__ = ("create", "op", "backward", "retain_grad", "grad", "gradients", "set_grad", "set_requires_grad", "set_data", "manual_seed")
    CREATE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_FIELD_NUMBER: _ClassVar[int]
    RETAIN_GRAD_FIELD_NUMBER: _ClassVar[int]
    GRAD_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    SET_GRAD_FIELD_NUMBER: _ClassVar[int]
    SET_REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    SET_DATA_FIELD_NUMBER: _ClassVar[int]
    MANUAL_SEED_FIELD_NUMBER: _ClassVar[int]
    create: _commands_pb2.CreateRequest
    op: _commands_pb2.OpRequest
    backward: _commands_pb2.BackwardRequest
    retain_grad: _commands_pb2.RetainGradRequest
    grad: _commands_pb2.GradRequest
    gradients: _commands_pb2.GradientsRequest
    set_grad: _commands_pb2.SetGradRequest
    set_requires_grad: _commands_pb2.SetRequiresGradRequest
    set_data: _commands_pb2.SetDataRequest
    manual_seed: _commands_pb2.ManualSeedRequest
    def __init__(self, create: _Optional[_Union[_commands_pb2.CreateRequest, _Mapping]] = ..., op: _Optional[_Union[_commands_pb2.OpRequest, _Mapping]] = ..., backward: _Optional[_Union[_commands_pb2.BackwardRequest, _Mapping]] = ..., retain_grad: _Optional[_Union[_commands_pb2.RetainGradRequest, _Mapping]] = ..., grad: _Optional[_Union[_commands_pb2.GradRequest, _Mapping]] = ..., gradients: _Optional[_Union[_commands_pb2.GradientsRequest, _Mapping]] = ..., set_grad: _Optional[_Union[_commands_pb2.SetGradRequest, _Mapping]] = ..., set_requires_grad: _Optional[_Union[_commands_pb2.SetRequiresGradRequest, _Mapping]] = ..., set_data: _Optional[_Union[_commands_pb2.SetDataRequest, _Mapping]] = ..., manual_seed: _Optional[_Union[_commands_pb2.ManualSeedRequest, _Mapping]] = ...) -> None: ...

class RegisterProgramRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "hash", "program")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    hash: bytes
    program: bytes
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., hash: _Optional[bytes] = ..., program: _Optional[bytes] = ...) -> None: ...

class RegisterProgramResponse(_message.Message):
    __slots__ = ("programs", "planned_runs", "stepwise_runs", "stepwise_because")
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    PLANNED_RUNS_FIELD_NUMBER: _ClassVar[int]
    STEPWISE_RUNS_FIELD_NUMBER: _ClassVar[int]
    STEPWISE_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    programs: int
    planned_runs: int
    stepwise_runs: int
    stepwise_because: str
    def __init__(self, programs: _Optional[int] = ..., planned_runs: _Optional[int] = ..., stepwise_runs: _Optional[int] = ..., stepwise_because: _Optional[str] = ...) -> None: ...

class RunProgramRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "hash", "inputs", "numbers", "repeat", "sliced", "first", "stacked", "outputs")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    SLICED_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    STACKED_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    hash: bytes
    inputs: _containers.RepeatedScalarFieldContainer[int]
    numbers: _containers.RepeatedScalarFieldContainer[float]
    repeat: int
    sliced: _containers.RepeatedScalarFieldContainer[int]
    first: int
    stacked: bool
    outputs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., hash: _Optional[bytes] = ..., inputs: _Optional[_Iterable[int]] = ..., numbers: _Optional[_Iterable[float]] = ..., repeat: _Optional[int] = ..., sliced: _Optional[_Iterable[int]] = ..., first: _Optional[int] = ..., stacked: bool = ..., outputs: _Optional[_Iterable[int]] = ...) -> None: ...

class RunProgramResponse(_message.Message):
    __slots__ = ("outputs",)
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[_types_pb2.TensorSpec]
    def __init__(self, outputs: _Optional[_Iterable[_Union[_types_pb2.TensorSpec, _Mapping]]] = ...) -> None: ...
