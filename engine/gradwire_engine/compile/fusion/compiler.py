"""The compiler process: `python -I compiler.py`, started by compiler_process.py. Imports nothing but llvmlite.

Its first line says whether it can compile: a JSON object, {} or with the reason "unusable". Then each line of standard
input is LLVM's assembly as a JSON string. Each is answered by a line, a JSON object: "code", the object code in base64,
or "error". In a process of its own, a compilation takes no interpreter lock, and a failure inside LLVM ends no worker.
The process ends when its input does.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys

NICENESS = 10


def compiled(assembly: str) -> bytes:
    """Object code of a module for this machine. Raises RuntimeError: the assembly is not valid."""
    import llvmlite.binding as llvm

    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        # LLVM may load code and constants more than 2 GiB apart, and aborts if an address of 32 bits does not reach.
        reloc="static",
        codemodel="large",
    )
    module = llvm.parse_assembly(assembly)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def prepared() -> dict[str, str]:
    """Load LLVM; "unusable" says why that is not possible."""
    try:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    except (ImportError, OSError, RuntimeError) as error:
        return {"unusable": str(error) or type(error).__name__}
    return {}


def main() -> None:
    """Compile what standard input names, until it ends."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    told = prepared()
    print(json.dumps(told), flush=True)
    if told:
        return
    for line in sys.stdin:
        try:
            answer = {"code": base64.b64encode(compiled(json.loads(line))).decode()}
        except RuntimeError as error:
            answer = {"error": str(error) or type(error).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
