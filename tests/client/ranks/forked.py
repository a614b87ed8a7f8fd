"""Runs a script with PyTorch as several ranks: forks of one process, since to import PyTorch takes most of the time.

The arguments are the number of ranks, a folder for a file of each rank's output, the script and its arguments.
"""

import importlib
import os
import runpy
import sys
from pathlib import Path

for module in ("torch.distributed", "torch.nn.parallel", "torch.optim", "torch.utils.data"):
    importlib.import_module(module)
size, folder = int(sys.argv[1]), Path(sys.argv[2])
sys.argv = sys.argv[3:]
for rank in range(size):
    if os.fork() == 0:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        os.dup2(os.open(folder / str(rank), os.O_WRONLY | os.O_CREAT), 1)
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
ended = [os.wait()[1] for _ in range(size)]
sys.exit(any(ended))
