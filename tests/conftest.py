"""What makes a run say the same of the same code, wherever it runs and whatever the order of the tests.

Hypothesis draws the same examples in every run; GRADWIRE_HYPOTHESIS=fresh draws others. Compiled files are kept and
PyTorch and BLAS compute with one thread, which together save a third of the suite's processor time.
"""

import gc
import logging
import os
import signal
import sys
import zlib
from collections.abc import Generator

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

# A machine that keeps no compiled files would compile the packages again in each server that a test starts, and
# pytest would rewrite every assertion again in each of its workers.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_UNCHECKED = (
    HealthCheck.too_slow,  # it and the next two depend on how quick the machine is
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.function_scoped_fixture,  # a session serves all examples of a test
)

settings.register_profile("same", deadline=None, database=None, derandomize=True, suppress_health_check=_UNCHECKED)
settings.register_profile("fresh", deadline=None, database=None, suppress_health_check=_UNCHECKED, print_blob=True)
settings.load_profile("fresh" if os.environ.get("GRADWIRE_HYPOTHESIS") == "fresh" else "same")

# A shell starts what it runs in the background with Ctrl-C ignored, and so do the processes that this one starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Two processes more than -n auto starts: some tests wait, for a server's start or a backoff, and use no core."""
    count = yield
    return count if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else count + 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting tests makes only what stays, so the garbage collector would look for garbage in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def keep() -> None:
    """What there is stays: a million objects, which the collector need not look through at each call of it."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    keep()
    # One process tests on each processor already; threads that wait for each other there spin.
    threadpool_limits(1, user_api="blas")
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws from its module's RNG does not depend on which tests came before in the process."""
    drawn = getattr(getattr(item, "module", None), "RNG", None)
    if drawn is not None:
        drawn.bit_generator.state = np.random.default_rng(zlib.crc32(item.name.encode())).bit_generator.state


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A library that configures logging disables the loggers there are: in every later test of the process."""
    if nextitem is not None and nextitem.path != item.path:
        keep()  # modules that the tests imported, and what they cached
    assert not logging.getLogger("gradwire.server").disabled, "the test disabled the server's logger; use a subprocess"
