"""Ranks that wait for rank 1, which does nothing. They print its loss, when they hear of it and the reason."""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group()
value = torch.ones(3)
dist.all_reduce(value)
value.tolist()
print("met", os.getpid(), flush=True)
if dist.get_rank() == 1:
    time.sleep(1000)
try:
    dist.all_reduce(value)
    value.tolist()
except dist.DistBackendError as error:
    print("told", time.time(), error.reason, error, flush=True)
