"""Where in the user's program a command was issued: the nearest frame that is not of this package."""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType

#: The folder of the package gradwire: code below it is no code of the user.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class _Internal(dict[str, bool]):
    """Whether a source file belongs to the package, remembered per file name."""

    def __missing__(self, filename: str) -> bool:
        self[filename] = answer = os.path.abspath(filename).startswith(PACKAGE)
        return answer


INTERNAL = _Internal()


def find_place(depth: int = 2) -> tuple[CodeType, int]:
    """The user's code object and the offset of the instruction it is executing."""
    frame = sys._getframe(depth)
    code = frame.f_code
    while INTERNAL[code.co_filename]:
        outer = frame.f_back
        if outer is None:  # a finalizer or a thread of our own: the place is ourselves
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


def describe_place(code: CodeType, offset: int) -> str:
    """The place for a person: file, line, function and the line's text where it can be had."""
    line = line_of(code, offset)
    text = linecache.getline(code.co_filename, line).strip()
    where = f'File "{code.co_filename}", line {line}, in {code.co_name}'
    return f"{where}\n    {text}" if text else where
