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
    "create": CommandFacts("Create", is_step=True, makes="id", step_sets=("payload",)),
    "op": CommandFacts("Op", is_step=True, makes="outputs"),
    "backward": CommandFacts("Backward", is_step=True, may_suspend=True, zero_is_none=("gradients",), differentiates=True),
    "retain_grad": CommandFacts("RetainGrad", is_step=True),
    "grad": CommandFacts("Grad", is_step=True, makes="id"),
    "gradients": CommandFacts("Gradients", is_step=True, may_suspend=True, makes="results", zero_is_none=("grad_outputs",), differentiates=True),
    "set_grad": CommandFacts("SetGrad", is_step=True, zero_is_none=("grad",)),
    "set_requires_grad": CommandFacts("SetRequiresGrad", is_step=True),
    "set_data": CommandFacts("SetData", is_step=True),
    "manual_seed": CommandFacts("ManualSeed", is_step=True, step_sets=("seed", "state")),
    "describe": CommandFacts("Describe", read_only=True, left_out_of_programs=True),
    "read": CommandFacts("Read", read_only=True, answers_values=True),
    "release": CommandFacts("Release", left_out_of_programs=True),
    "graph": CommandFacts("Graph", read_only=True, left_out_of_programs=True),
    "calls": CommandFacts("Calls", has_rpc=False),
    "prepare": CommandFacts("Prepare", has_rpc=False),
    "register_program": CommandFacts("RegisterProgram"),
    "run_program": CommandFacts("RunProgram", makes="outputs", differentiates=True),
    "register_hook": CommandFacts("RegisterHook", runs_client_code=True),
    "remove_hook": CommandFacts("RemoveHook", runs_client_code=True),
    "resume_backward": CommandFacts("ResumeBackward", may_suspend=True, differentiates=True, runs_client_code=True),
    "record_function": CommandFacts("RecordFunction", runs_client_code=True),
    "checkpoint": CommandFacts("Checkpoint", runs_client_code=True),
    "name_edge": CommandFacts("NameEdge", makes="edge", runs_client_code=True),
    "pack_saved": CommandFacts("PackSaved", runs_client_code=True),
    "saved_value": CommandFacts("SavedValue"),
    "load_program": CommandFacts("LoadProgram", makes="ids"),
    "save_program": CommandFacts("SaveProgram", makes="id"),
    "collective": CommandFacts("Collective", is_step=True),
    "set_counters": CommandFacts("SetCounters"),
}
