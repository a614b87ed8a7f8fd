"""Ops that run and then fail: for tests of retries, refusals and logs."""

from collections.abc import Callable
from typing import Any

import pytest

from gradwire_server.session import tensor_commands


def fail_after_running(patch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Patch the server's ops. After a call of the returned function, the next op runs and then raises MemoryError.

    The op has drawn its random numbers and numbered its nodes; its outputs are released.
    """
    real, pending = tensor_commands.apply_op, [0]

    def apply_op(scope: Any, *args: Any) -> None:
        real(scope, *args)
        if pending[0]:
            pending[0] -= 1
            for tensor_id in args[2]:
                scope.release(tensor_id)
            raise MemoryError

    def fail_next() -> None:
        pending[0] = 1

    patch.setattr(tensor_commands, "apply_op", apply_op)
    return fail_next
