"""Call site: finds the line of the user's program that issued a command, the nearest frame outside this package."""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType

#: The folder of the package gradwire. Code below it is not user code.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class _Internal(dict[str, bool]):
    """Whether a source file belongs to the package, remembered per file name."""

    def __missing__(self, filename: str) -> bool:
        self[filename] = answer = os.path.abspath(filename).startswith(PACKAGE)
        return answer


INTERNAL = _Internal()


def find_call_site(depth: int = 2) -> tuple[CodeType, int]:
    """The user's code object and the offset of the instruction being executed."""
    frame = sys._getframe(depth)
    code = frame.f_code
    while INTERNAL[code.co_filename]:
        outer = frame.f_back
        if outer is None:  # a finalizer or a gradwire thread: report the outermost frame
            break
        frame = outer
        code = frame.f_code
    return code, frame.f_lasti


def line_of(code: CodeType, offset: int) -> int:
    """The line of an instruction."""
    found = code.co_firstlineno
    for start, end, line in code.co_lines():
        if line is not None and start <= offset < end:
            return line
        if line is not None and start <= offset:
            found = line
    return found


def describe_call_site(code: CodeType, offset: int) -> str:
    """The call site as text: file, line, function, and the source line if its file can be read."""
    line = line_of(code, offset)
    text = linecache.getline(code.co_filename, line).strip()
    where = f'File "{code.co_filename}", line {line}, in {code.co_name}'
    return f"{where}\n    {text}" if text else where
