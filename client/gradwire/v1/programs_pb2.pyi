from gradwire.v1 import collectives_pb2 as _collectives_pb2
from gradwire.v1 import commands_pb2 as _commands_pb2
from gradwire.v1 import files_pb2 as _files_pb2
from gradwire.v1 import snapshots_pb2 as _snapshots_pb2
from gradwire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RuleOperator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RULE_OPERATOR_UNSPECIFIED: _ClassVar[RuleOperator]
    RULE_OPERATOR_ADD: _ClassVar[RuleOperator]
    RULE_OPERATOR_SUBTRACT: _ClassVar[RuleOperator]
    RULE_OPERATOR_MULTIPLY: _ClassVar[RuleOperator]
    RULE_OPERATOR_DIVIDE: _ClassVar[RuleOperator]
    RULE_OPERATOR_POWER: _ClassVar[RuleOperator]
    RULE_OPERATOR_NEGATE: _ClassVar[RuleOperator]
    RULE_OPERATOR_MODULO: _ClassVar[RuleOperator]
    RULE_OPERATOR_FLOOR: _ClassVar[RuleOperator]
    RULE_OPERATOR_MINIMUM: _ClassVar[RuleOperator]
    RULE_OPERATOR_MAXIMUM: _ClassVar[RuleOperator]
    RULE_OPERATOR_COSINE: _ClassVar[RuleOperator]
    RULE_OPERATOR_EXPONENTIAL: _ClassVar[RuleOperator]
    RULE_OPERATOR_ROUND_TO_FLOAT32: _ClassVar[RuleOperator]
    RULE_OPERATOR_LESS: _ClassVar[RuleOperator]
    RULE_OPERATOR_LESS_OR_EQUAL: _ClassVar[RuleOperator]
    RULE_OPERATOR_EQUAL: _ClassVar[RuleOperator]
    RULE_OPERATOR_SELECT: _ClassVar[RuleOperator]
RULE_OPERATOR_UNSPECIFIED: RuleOperator
RULE_OPERATOR_ADD: RuleOperator
RULE_OPERATOR_SUBTRACT: RuleOperator
RULE_OPERATOR_MULTIPLY: RuleOperator
RULE_OPERATOR_DIVIDE: RuleOperator
RULE_OPERATOR_POWER: RuleOperator
RULE_OPERATOR_NEGATE: RuleOperator
RULE_OPERATOR_MODULO: RuleOperator
RULE_OPERATOR_FLOOR: RuleOperator
RULE_OPERATOR_MINIMUM: RuleOperator
RULE_OPERATOR_MAXIMUM: RuleOperator
RULE_OPERATOR_COSINE: RuleOperator
RULE_OPERATOR_EXPONENTIAL: RuleOperator
RULE_OPERATOR_ROUND_TO_FLOAT32: RuleOperator
RULE_OPERATOR_LESS: RuleOperator
RULE_OPERATOR_LESS_OR_EQUAL: RuleOperator
RULE_OPERATOR_EQUAL: RuleOperator
RULE_OPERATOR_SELECT: RuleOperator

class Program(_message.Message):
    __slots__ = ("inputs", "numbers", "steps", "outputs", "rules", "described")
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    DESCRIBED_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[ProgramInput]
    numbers: int
    steps: _containers.RepeatedCompositeFieldContainer[ProgramStep]
    outputs: _containers.RepeatedScalarFieldContainer[int]
    rules: _containers.RepeatedCompositeFieldContainer[NumberRule]
    described: _containers.RepeatedCompositeFieldContainer[ProgramOutput]
    def __init__(self, inputs: _Optional[_Iterable[_Union[ProgramInput, _Mapping]]] = ..., numbers: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[ProgramStep, _Mapping]]] = ..., outputs: _Optional[_Iterable[int]] = ..., rules: _Optional[_Iterable[_Union[NumberRule, _Mapping]]] = ..., described: _Optional[_Iterable[_Union[ProgramOutput, _Mapping]]] = ...) -> None: ...

class NumberRule(_message.Message):
    __slots__ = ("number", "input", "terms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    number: int
    input: int
    terms: _containers.RepeatedCompositeFieldContainer[RuleTerm]
    def __init__(self, number: _Optional[int] = ..., input: _Optional[int] = ..., terms: _Optional[_Iterable[_Union[RuleTerm, _Mapping]]] = ...) -> None: ...

class RuleTerm(_message.Message):
    __slots__ = ("constant", "input", "number", "operator")
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    constant: float
    input: int
    number: int
    operator: RuleOperator
    def __init__(self, constant: _Optional[float] = ..., input: _Optional[int] = ..., number: _Optional[int] = ..., operator: _Optional[_Union[RuleOperator, str]] = ...) -> None: ...

class ProgramOutput(_message.Message):
    __slots__ = ("name", "dtype", "shape", "dynamic")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: _types_pb2.Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    dynamic: bool
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[_types_pb2.Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., dynamic: bool = ...) -> None: ...

class ProgramInput(_message.Message):
    __slots__ = ("dtype", "shape", "device", "requires_grad", "name", "state", "changed", "dynamic")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_FIELD_NUMBER: _ClassVar[int]
    dtype: _types_pb2.Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    device: str
    requires_grad: bool
    name: str
    state: bool
    changed: bool
    dynamic: bool
    def __init__(self, dtype: _Optional[_Union[_types_pb2.Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., device: _Optional[str] = ..., requires_grad: bool = ..., name: _Optional[str] = ..., state: bool = ..., changed: bool = ..., dynamic: bool = ...) -> None: ...

class ProgramStep(_message.Message):
    __slots__ = ("create", "op", "backward", "retain_grad", "grad", "gradients", "set_grad", "set_requires_grad", "set_data", "manual_seed", "collective")
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
    COLLECTIVE_FIELD_NUMBER: _ClassVar[int]
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
    collective: _collectives_pb2.CollectiveRequest
    def __init__(self, create: _Optional[_Union[_commands_pb2.CreateRequest, _Mapping]] = ..., op: _Optional[_Union[_commands_pb2.OpRequest, _Mapping]] = ..., backward: _Optional[_Union[_commands_pb2.BackwardRequest, _Mapping]] = ..., retain_grad: _Optional[_Union[_commands_pb2.RetainGradRequest, _Mapping]] = ..., grad: _Optional[_Union[_commands_pb2.GradRequest, _Mapping]] = ..., gradients: _Optional[_Union[_commands_pb2.GradientsRequest, _Mapping]] = ..., set_grad: _Optional[_Union[_commands_pb2.SetGradRequest, _Mapping]] = ..., set_requires_grad: _Optional[_Union[_commands_pb2.SetRequiresGradRequest, _Mapping]] = ..., set_data: _Optional[_Union[_commands_pb2.SetDataRequest, _Mapping]] = ..., manual_seed: _Optional[_Union[_commands_pb2.ManualSeedRequest, _Mapping]] = ..., collective: _Optional[_Union[_collectives_pb2.CollectiveRequest, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("programs", "planned_runs", "stepwise_runs", "stepwise_because", "not_captured_because")
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    PLANNED_RUNS_FIELD_NUMBER: _ClassVar[int]
    STEPWISE_RUNS_FIELD_NUMBER: _ClassVar[int]
    STEPWISE_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    NOT_CAPTURED_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    programs: int
    planned_runs: int
    stepwise_runs: int
    stepwise_because: str
    not_captured_because: str
    def __init__(self, programs: _Optional[int] = ..., planned_runs: _Optional[int] = ..., stepwise_runs: _Optional[int] = ..., stepwise_because: _Optional[str] = ..., not_captured_because: _Optional[str] = ...) -> None: ...

class RunProgramRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "hash", "inputs", "numbers", "repeat", "sliced", "first", "stacked", "outputs", "named")
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
    NAMED_FIELD_NUMBER: _ClassVar[int]
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
    named: _containers.RepeatedCompositeFieldContainer[_snapshots_pb2.NamedTensor]
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., hash: _Optional[bytes] = ..., inputs: _Optional[_Iterable[int]] = ..., numbers: _Optional[_Iterable[float]] = ..., repeat: _Optional[int] = ..., sliced: _Optional[_Iterable[int]] = ..., first: _Optional[int] = ..., stacked: bool = ..., outputs: _Optional[_Iterable[int]] = ..., named: _Optional[_Iterable[_Union[_snapshots_pb2.NamedTensor, _Mapping]]] = ...) -> None: ...

class RunProgramResponse(_message.Message):
    __slots__ = ("outputs",)
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[_types_pb2.TensorSpec]
    def __init__(self, outputs: _Optional[_Iterable[_Union[_types_pb2.TensorSpec, _Mapping]]] = ...) -> None: ...

class ProgramFile(_message.Message):
    __slots__ = ("version", "schema", "producer", "programs")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    version: int
    schema: str
    producer: str
    programs: _containers.RepeatedCompositeFieldContainer[NamedProgram]
    def __init__(self, version: _Optional[int] = ..., schema: _Optional[str] = ..., producer: _Optional[str] = ..., programs: _Optional[_Iterable[_Union[NamedProgram, _Mapping]]] = ...) -> None: ...

class NamedProgram(_message.Message):
    __slots__ = ("name", "program")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    program: bytes
    def __init__(self, name: _Optional[str] = ..., program: _Optional[bytes] = ...) -> None: ...

class LoadProgramRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "file", "ids")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    file: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., file: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ...) -> None: ...

class LoadProgramResponse(_message.Message):
    __slots__ = ("programs", "tensors")
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    programs: _containers.RepeatedCompositeFieldContainer[LoadedProgram]
    tensors: _containers.RepeatedCompositeFieldContainer[_files_pb2.LoadedTensor]
    def __init__(self, programs: _Optional[_Iterable[_Union[LoadedProgram, _Mapping]]] = ..., tensors: _Optional[_Iterable[_Union[_files_pb2.LoadedTensor, _Mapping]]] = ...) -> None: ...

class LoadedProgram(_message.Message):
    __slots__ = ("name", "hash", "inputs", "signature", "outputs", "rules", "numbers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    hash: bytes
    inputs: _containers.RepeatedScalarFieldContainer[int]
    signature: _containers.RepeatedCompositeFieldContainer[ProgramInput]
    outputs: _containers.RepeatedCompositeFieldContainer[ProgramOutput]
    rules: _containers.RepeatedCompositeFieldContainer[NumberRule]
    numbers: int
    def __init__(self, name: _Optional[str] = ..., hash: _Optional[bytes] = ..., inputs: _Optional[_Iterable[int]] = ..., signature: _Optional[_Iterable[_Union[ProgramInput, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[ProgramOutput, _Mapping]]] = ..., rules: _Optional[_Iterable[_Union[NumberRule, _Mapping]]] = ..., numbers: _Optional[int] = ...) -> None: ...

class SaveProgramRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "file", "tensors", "id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    file: int
    tensors: _containers.RepeatedCompositeFieldContainer[_snapshots_pb2.NamedTensor]
    id: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., file: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[_snapshots_pb2.NamedTensor, _Mapping]]] = ..., id: _Optional[int] = ...) -> None: ...

class SaveProgramResponse(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: _types_pb2.TensorSpec
    def __init__(self, file: _Optional[_Union[_types_pb2.TensorSpec, _Mapping]] = ...) -> None: ...
