"""Reduces large tensors again and again, while views, saved values and changes in place come and go between."""

import hashlib
import json

import torch
import torch.distributed as dist

SIZE = 1 << 20  # elements, 4 MiB
TURNS = 6


def numbers(seed: int) -> torch.Tensor:
    """Integers, so that every order of a sum has the same bits."""
    return ((torch.arange(SIZE) * (2 * seed + 3)) % 101 - 50).to(torch.float32)


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found: dict[str, object] = {"rank": rank}
    kept, weight = numbers(rank), numbers(rank + 7).requires_grad_()
    view = numbers(rank + 9)
    row = view.view(1024, 1024)[5]
    for turn in range(TURNS):
        dist.all_reduce(kept)
        kept.remainder_(97)
        dist.all_reduce(view, dist.ReduceOp.MAX)
        view.sub_(rank)
        weight.grad = None if turn == 3 else weight.grad  # another tensor from then on
        (weight * kept).sum().backward()
        gradient = weight.grad
        dist.all_reduce(gradient)
        gradient.remainder_(89)
        alias = kept[::2] if turn > 3 else kept.clone()
        found[str(turn)] = [digest(each) for each in (kept, view, row, gradient, alias)]
    print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
