"""Facts about commands, from the options of Command's fields in service.proto. Written by `make stubs`; do not edit."""

from typing import NamedTuple


class CommandFacts(NamedTuple):
    """What is true of a command, whatever its request holds; options.proto says what each fact means."""

    #: RPC of the command, or the message's name of a command that comes only in batches.
    method: str
    #: Its number in Command.
    number: int
    #: Whether it is also an RPC.
    has_rpc: bool = True
    #: Whether a program may have it as a step.
    is_step: bool = False
    #: Whether it may stop at a hook: its answer has a HookCall.
    may_suspend: bool = False
    makes: str = ""
    zero_is_none: tuple[str, ...] = ()
    read_only: bool = False
    answers_values: bool = False
    differentiates: bool = False
    runs_client_code: bool = False
    left_out_of_programs: bool = False
    step_sets: tuple[str, ...] = ()


#: By the command's name in Command.
FACTS: dict[str, CommandFacts] = {
    "create": CommandFacts("Create", 1, is_step=True, makes="id", step_sets=("payload",)),
    "op": CommandFacts("Op", 2, is_step=True, makes="outputs"),
    "backward": CommandFacts("Backward", 3, is_step=True, may_suspend=True, zero_is_none=("gradients",), differentiates=True),
    "retain_grad": CommandFacts("RetainGrad", 4, is_step=True),
    "grad": CommandFacts("Grad", 5, is_step=True, makes="id"),
    "gradients": CommandFacts("Gradients", 6, is_step=True, may_suspend=True, makes="results", zero_is_none=("grad_outputs",), differentiates=True),
    "set_grad": CommandFacts("SetGrad", 7, is_step=True, zero_is_none=("grad",)),
    "set_requires_grad": CommandFacts("SetRequiresGrad", 8, is_step=True),
    "set_data": CommandFacts("SetData", 9, is_step=True),
    "manual_seed": CommandFacts("ManualSeed", 10, is_step=True, step_sets=("seed", "state")),
    "describe": CommandFacts("Describe", 11, read_only=True, left_out_of_programs=True),
    "read": CommandFacts("Read", 12, read_only=True, answers_values=True),
    "release": CommandFacts("Release", 13, left_out_of_programs=True),
    "graph": CommandFacts("Graph", 14, read_only=True, left_out_of_programs=True),
    "calls": CommandFacts("Calls", 15, has_rpc=False),
    "prepare": CommandFacts("Prepare", 16, has_rpc=False),
    "register_program": CommandFacts("RegisterProgram", 40),
    "run_program": CommandFacts("RunProgram", 41, makes="outputs", differentiates=True),
    "register_hook": CommandFacts("RegisterHook", 42, runs_client_code=True),
    "remove_hook": CommandFacts("RemoveHook", 43, runs_client_code=True),
    "resume_backward": CommandFacts("ResumeBackward", 44, may_suspend=True, differentiates=True, runs_client_code=True),
    "record_function": CommandFacts("RecordFunction", 45, runs_client_code=True),
    "checkpoint": CommandFacts("Checkpoint", 46, runs_client_code=True),
    "name_edge": CommandFacts("NameEdge", 70, makes="edge", runs_client_code=True),
    "pack_saved": CommandFacts("PackSaved", 71, runs_client_code=True),
    "saved_value": CommandFacts("SavedValue", 72),
}
