"""What the programs share: numbers that do not depend on the library's generator, and printing in full precision."""

import tempfile

import numpy as np
import torch

FOLDER = tempfile.mkdtemp() + "/"
_rng = np.random.RandomState(0)


def det(model, scale=0.3):
    """Give a model weights that are the same in both libraries."""
    rng = np.random.RandomState(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)) * scale))
    return model


def randn(*shape):
    return torch.from_numpy(np.asarray(_rng.standard_normal(shape))).to(torch.get_default_dtype())


def randint(low, high, shape):
    return torch.from_numpy(_rng.randint(low, high, shape)).long()


def say(*values):
    for v in values:
        if hasattr(v, "detach"):
            v = v.detach()
            print("T", tuple(v.shape), v.dtype, v.double().reshape(-1).tolist())
        elif isinstance(v, float):
            print("F", repr(v))
        else:
            print("V", v)
