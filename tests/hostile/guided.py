"""Coverage-guided fuzzing of decoding and dispatch: `python -m tests.hostile.guided -runs=100000 [folder]`.

atheris measures which code of the server and the engine an input reaches, and mutates inputs that reach more. It begins
with random messages. Its findings stay in the folder, if one is given. The flags are libFuzzer's.
"""

import logging
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gradwire_server", "gradwire_engine"]):
    from tests.hostile.dispatch import METHODS, Dispatch, corpus

_FIRST = 500


def main(arguments: list[str]) -> None:
    """Fuzz; ends with the process, by a crash's status if there is one."""
    logging.disable(logging.CRITICAL)
    dispatch = Dispatch()

    def one(data: bytes) -> None:
        if data:
            dispatch.take(METHODS[data[0] % len(METHODS)], data[1:])

    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(corpus(seed=1, count=_FIRST)):
            (Path(folder) / str(number)).write_bytes(data)
        given = [each for each in arguments if not each.startswith("-")]
        flags = [each for each in arguments if each.startswith("-")]
        atheris.Setup([sys.argv[0], "-timeout=60", "-max_len=8192", *flags, *given, folder], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
