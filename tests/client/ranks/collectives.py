"""A rank of torch.distributed: every function, as PyTorch's gloo has it. Prints what a rank has got, as JSON."""

import datetime
import json
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
found: dict[str, object] = {"rank": rank, "size": size, "initialized": dist.is_initialized()}
assert dist.is_available()


def values(count: int = 4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(count, dtype=torch.float32) * 1.5 + 10 * rank).to(dtype)


for name in ("SUM", "PRODUCT", "MIN", "MAX"):
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
        given = values(dtype=dtype)
        dist.all_reduce(given, op=getattr(dist.ReduceOp, name))
        found[f"{name} {dtype}"] = given.tolist()
for name in ("BAND", "BOR", "BXOR"):
    given = values(dtype=torch.int64)
    dist.all_reduce(given, op=getattr(dist.ReduceOp, name))
    found[name] = given.tolist()

strided = values(6).reshape(2, 3)
dist.broadcast(strided.t().contiguous(), src=1)
given = values()
dist.broadcast(given, src=size - 1)
found["broadcast"] = given.tolist()
given = values()
dist.reduce(given, dst=1)
found["reduce"] = given.tolist() if rank == 1 else None
parts = [torch.zeros(4) for _ in range(size)]
dist.all_gather(parts, values())
found["all_gather"] = [part.tolist() for part in parts]
whole = torch.zeros(4 * size)
dist.all_gather_into_tensor(whole, values())
found["all_gather_into_tensor"] = whole.tolist()
part = torch.zeros(2)
dist.reduce_scatter(part, list(values(2 * size).chunk(size)))
found["reduce_scatter"] = part.tolist()
dist.reduce_scatter_tensor(part, values(2 * size))
found["reduce_scatter_tensor"] = part.tolist()
parts = [torch.zeros(4) for _ in range(size)]
dist.gather(values(), parts if rank == 0 else None, dst=0)
found["gather"] = [part.tolist() for part in parts] if rank == 0 else None
part = torch.zeros(2)
dist.scatter(part, list(values(2 * size).chunk(size)) if rank == 1 else None, src=1)
found["scatter"] = part.tolist()
parts = [torch.zeros(2) for _ in range(size)]
dist.all_to_all_single(whole, values(4 * size))
found["all_to_all_single"] = whole.tolist()

given = torch.zeros(4)
if rank == 0:
    dist.send(values() + 1, dst=1)
    dist.send(values() + 2, dst=1, tag=5)
elif rank == 1:
    found["recv"] = dist.recv(given, src=0)
    found["received"] = given.tolist()
    dist.recv(given, tag=5, src=0)
    found["tagged"] = given.tolist()
received = torch.zeros(4)
receiving = dist.irecv(received, src=(rank - 1) % size)
sending = dist.isend(values(), dst=(rank + 1) % size)
sending.wait()
receiving.wait()
found["ring"] = received.tolist()
ops = [dist.P2POp(dist.irecv, received, (rank + 1) % size), dist.P2POp(dist.isend, values(), (rank - 1) % size)]
for work in dist.batch_isend_irecv(ops):
    work.wait()
found["batch"] = received.tolist()
given = values()
work = dist.all_reduce(given, async_op=True)
found["waited"] = [work.wait(), work.is_completed(), given.tolist()]
dist.barrier()

objects: list[object] = [None] * size
dist.all_gather_object(objects, {"rank": rank, "items": [1, 2.5, "three", None, True], ("a", 1): (rank,)})
found["objects"] = repr(objects)
mine: list[object] = [rank, "x" * rank, {"k": [rank]}]
dist.broadcast_object_list(mine, src=1)
found["broadcast_object_list"] = repr(mine)
scattered: list[object] = [None]
dist.scatter_object_list(scattered, [f"for {each}" for each in range(size)] if rank == 0 else None, src=0)
found["scatter_object_list"] = scattered
gathered: list[object] | None = [None] * size if rank == 0 else None
dist.gather_object(rank * 2, gathered, dst=0)
found["gather_object"] = gathered

pair = dist.new_group([0, 1])
other = dist.new_group([size - 1])
found["groups"] = [dist.get_rank(pair), dist.get_world_size(pair), dist.get_rank(other)]
given = values()
if rank < 2:
    dist.all_reduce(given, group=pair)
    found["ranks"] = [dist.get_process_group_ranks(pair), dist.get_global_rank(pair, 1), dist.get_group_rank(pair, 0)]
found["in a group"] = given.tolist()


def refusal(call: object) -> list[str]:
    try:
        call()  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001 - what kind it is, is compared
        return [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"][:1]
    return ["nothing"]


found["refused"] = [
    refusal(lambda: dist.init_process_group("gloo")),
    refusal(lambda: dist.all_gather(torch.zeros(1), torch.zeros(1))),
    refusal(lambda: dist.all_reduce([1.0])),
    refusal(lambda: dist.send(torch.zeros(1), dst=rank)),
    refusal(lambda: dist.new_group([0, 99])),
    refusal(lambda: dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(4))),
]
dist.destroy_process_group()
found["after"] = [dist.is_initialized(), refusal(dist.get_rank)]
print(json.dumps(found), flush=True)
os._exit(0) if torch.__name__ == "torch" else None
