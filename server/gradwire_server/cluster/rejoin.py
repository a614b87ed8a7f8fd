"""Rejoin: what the watch of a machine that joined becomes when Ray has ended there. It joins again.

Ray ends on a machine that its head has counted as lost, such as after a partition. Sessions continue elsewhere
meanwhile. Only a refusal that stays, such as another token, is an end. Each try is a new program: what Ray leaves in a
process disturbs no other try.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from gradwire_server.cluster.checks import Refused
from gradwire_server.cluster.head_record import FileRecord
from gradwire_server.cluster.machine import NodeOptions, end_by_signals, run_node

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 20.0  # seconds before a try, of which chance takes up to half


def become_rejoin(options: str, wait: float = _FIRST_WAIT, said: str = "") -> NoReturn:
    """Replace this process by one that joins again. `said` is why it could not, as it was told already."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "gradwire_server.cluster.rejoin", options, str(wait), said])


def main(text: str, wait: str, said: str) -> int:
    """Join, or wait and become the next try; the exit status. A signal ends it in success."""
    options = NodeOptions.of_json(text)
    try:
        end_by_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        time.sleep(float(wait) * random.uniform(0.5, 1.0))
        if FileRecord(Path(options.state_dir)).ended:
            print(f"{options.endpoint} does not join again: `gradwire cluster down` has ended the cluster", flush=True)
            return 0
        run_node(options)
    except SystemExit:  # a signal
        return 0
    except Refused as error:
        print(f"Error: {options.endpoint} does not join again: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # noqa: BLE001 - it may pass, and is told
        why = str(error) or repr(error)
        if why != said:
            print(f"{options.endpoint} cannot join yet, and tries again: {why}", file=sys.stderr)
        become_rejoin(text, min(2 * float(wait), _LONGEST_WAIT), why)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
