"""Object code in this process's memory, without LLVM: loading LLVM takes as long as a training step.

The compiler (compiler.py) writes ELF files in which each address is one of 64 bits (its large code model). To load one
is to copy its sections, and to write the addresses of its symbols. Only x86-64 on Linux is read here. `load` leaves
other files, and files with anything else in them, to LLVM. But a file that calls a function that the process does not
have is refused: LLVM would load it, and the call would end the process.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

_MACHINE = 62  # x86-64
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_ADDRESS = struct.Struct("<Q")
_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
_RELOCATABLE = 1
# Kinds of sections, and flags of those that take memory.
_BITS, _SYMBOLS, _RELOCATIONS, _NO_BITS, _OLD_RELOCATIONS = 1, 2, 4, 8, 9
_WRITTEN, _ALLOCATED, _EXECUTED, _THREAD_LOCAL = 1, 2, 4, 1 << 10
_UNWINDING = b".eh_frame"  # tables for exceptions, of which the code raises none
_UNDEFINED, _ABSOLUTE, _RESERVED = 0, 0xFFF1, 0xFF00
_KINDS = range(4)  # of symbols: anything, data, functions, sections
_ADDRESS_64 = 1  # R_X86_64_64: a symbol's address and a number
#: Keeps an object for ever. Found at import: when the interpreter ends, ctypes may be gone.
_keep = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
_READ, _READ_WRITE, _READ_EXECUTE = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE, mmap.PROT_READ | mmap.PROT_EXEC


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _Unknown(Exception):
    """The file has something that only LLVM loads."""


class ObjectCode:
    """Loaded object code. Its memory is freed with it. address: of the symbol that was asked for.

    When the interpreter ends, the memory stays: daemon threads may still run the code, as they run LLVM's.
    """

    __slots__ = ("_memory", "address")

    def __init__(self, memory: mmap.mmap, address: int) -> None:
        self._memory, self.address = memory, address

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing, keep: Callable[[object], None] = _keep) -> None:
        if ends():
            keep(self._memory)


def load(code: bytes, symbol: str) -> ObjectCode | None:
    """Load a file of this machine; None: LLVM must load it.

    Raises OSError if memory cannot hold code, RuntimeError if the process does not have a function that it calls.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        return _Loading(code).done(symbol)
    except (_Unknown, struct.error, IndexError, ValueError, OverflowError):  # numbers that a damaged file may have
        return None


class _Loading:
    """One file's sections on their way into memory."""

    def __init__(self, code: bytes) -> None:
        """Read the sections' headers. Raises _Unknown."""
        self._code = code
        ident, kind, machine, _, _, _, self._at, _, _, _, _, size, count, names = _HEADER.unpack_from(code)
        if not ident.startswith(_IDENT) or kind != _RELOCATABLE or machine != _MACHINE or size != _SECTION.size:
            raise _Unknown
        self._sections = [_Section(*_SECTION.unpack_from(code, self._at + size * place)) for place in range(count)]
        self._names = self._sections[names]
        #: By section: its offset in the memory.
        self._places: dict[int, int] = {}

    def done(self, symbol: str) -> ObjectCode:
        """The loaded file. Raises _Unknown, OSError, RuntimeError."""
        spans, size = self._place_all()
        memory = mmap.mmap(-1, max(size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=_READ_WRITE)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for place, offset in self._places.items():
            section = self._sections[place]
            if section.kind == _BITS:
                memory[offset : offset + section.size] = self._content(section)
        for section in self._sections:
            if section.kind == _RELOCATIONS and section.info in self._places:
                self._relocate(memory, section)
            elif section.kind == _OLD_RELOCATIONS:
                raise _Unknown
        address = self._find(symbol)
        for begin, end, protection in spans:
            _protect(self._start + begin, end - begin, protection)
        return ObjectCode(memory, address)

    def _place_all(self) -> tuple[list[tuple[int, int, int]], int]:
        """Give each section its place; returns spans of pages with their protection, and the bytes of all."""
        spans, end = [], 0
        for protection in (_READ_EXECUTE, _READ):  # variables would be others in a fork, and kernels have none
            begin = end
            for place, section in enumerate(self._sections):
                if self._protection(section) == protection:
                    end += -end % max(1, section.alignment)
                    self._places[place] = end
                    end += section.size
            end += -end % mmap.PAGESIZE
            if end > begin:
                spans.append((begin, end, protection))
        return spans, end

    def _protection(self, section: _Section) -> int | None:
        """How a section's memory is protected; None if it takes none. Raises _Unknown."""
        if not section.flags & _ALLOCATED or not section.size or self._name(section) == _UNWINDING:
            return None
        if section.kind not in (_BITS, _NO_BITS) or section.flags & (_THREAD_LOCAL | _WRITTEN):
            raise _Unknown
        if section.alignment > mmap.PAGESIZE:
            raise _Unknown
        return _READ_EXECUTE if section.flags & _EXECUTED else _READ

    def _content(self, section: _Section) -> bytes:
        content = self._code[section.offset : section.offset + section.size]
        if len(content) != section.size:
            raise _Unknown
        return content

    def _name(self, section: _Section) -> bytes:
        return self._text(self._names, section.name)

    def _text(self, strings: _Section, at: int) -> bytes:
        begin = strings.offset + at
        return self._code[begin : self._code.index(b"\0", begin)]

    def _relocate(self, memory: mmap.mmap, section: _Section) -> None:
        """Write the addresses that a section needs. Raises _Unknown, RuntimeError."""
        target, begin = self._sections[section.info], self._places[section.info]
        symbols = self._sections[section.link]
        for offset, info, addend in _RELOCATION.iter_unpack(self._content(section)):
            if info & 0xFFFFFFFF != _ADDRESS_64 or offset + _ADDRESS.size > target.size:
                raise _Unknown
            address = self._address(symbols, info >> 32) + addend
            _ADDRESS.pack_into(memory, begin + offset, address)

    def _address(self, symbols: _Section, number: int) -> int:
        """The address of a symbol of the file, or of one of the process. Raises _Unknown, RuntimeError."""
        at = symbols.offset + number * _SYMBOL.size
        name, about, _, place, value, _ = _SYMBOL.unpack_from(self._code, at)
        if about & 0xF not in _KINDS:
            raise _Unknown
        if place == _UNDEFINED:
            return _address_in_process(self._text(self._sections[symbols.link], name))
        if place == _ABSOLUTE:
            return int(value)
        if place >= _RESERVED or place not in self._places:
            raise _Unknown
        return self._start + self._places[place] + int(value)

    def _find(self, wanted: str) -> int:
        """The address of code that the file defines under a name. Raises _Unknown."""
        for symbols in self._sections:
            if symbols.kind == _SYMBOLS:
                strings = self._sections[symbols.link]
                for number, entry in enumerate(_SYMBOL.iter_unpack(self._content(symbols))):
                    if entry[3] in self._places and self._text(strings, entry[0]) == wanted.encode():
                        section = self._sections[entry[3]]
                        if not section.flags & _EXECUTED or entry[4] >= section.size:
                            raise _Unknown
                        return self._address(symbols, number)
        raise _Unknown


def _address_in_process(name: bytes) -> int:
    """The address of a function that is loaded, such as memset. Raises RuntimeError."""
    try:
        return ctypes.cast(ctypes.CDLL(None)[name.decode()], ctypes.c_void_p).value or 0
    except AttributeError:
        raise RuntimeError(f"the process has no function {name.decode()}") from None


def _protect(address: int, size: int, protection: int) -> None:
    """Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), protection):
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")
