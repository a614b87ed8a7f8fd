"""A process ends at once and in order, even while a thread computes in a native library."""

import os
import subprocess
import sys

from gradwire_server.worker import process_end

WAIT = 60.0
BUFFERED = {**os.environ, "PYTHONUNBUFFERED": ""}
CODE = f"""
import atexit, ctypes, sys, threading
from {process_end.__name__} import end_process
atexit.register(lambda: print("registered"))
other = threading.Thread(target=lambda: (threading.Event().wait(0.2), print("joined")))
other.start()
threading.Thread(target=ctypes.CDLL(None).pause, daemon=True).start()
class Destroyed:
    def __del__(self): print("destroyed")
kept = Destroyed()
sys.stdout.write("buffered ")
end_process(7)
"""


def test_threads_are_joined_and_handlers_run_but_nothing_is_destroyed() -> None:
    line = [sys.executable, "-c", CODE]
    done = subprocess.run(line, capture_output=True, text=True, timeout=WAIT, check=False, env=BUFFERED)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == "buffered joined\nregistered\n"


def test_a_reader_that_has_gone_does_not_change_the_status() -> None:
    line = [sys.executable, "-c", CODE]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=BUFFERED) as started:
        assert started.stdout is not None
        started.stdout.close()
        assert started.wait(WAIT) == 7
