"""Sums of products over named or numbered dimensions."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.linalg import contract
from tests.engine.oracle import Refused, Same, integers, normal, refused, same, torch

A, B = normal(3, 4), normal(4, 5)
INTS = integers(1, 9, 2, 1, dtype="int32"), integers(1, 9, 3, 4, dtype="int32")


def _einsum(equation: str, *operands):
    return contract.einsum(equation, list(operands))


EQUATIONS = [
    ("ij,jk->ik", A, B),
    ("ij,jk", A, B),
    ("ii", normal(3, 3)),
    ("ii->i", normal(3, 3)),
    ("ij->ji", A),
    ("ij->", A),
    ("i,j->ij", normal(3), normal(2)),
    ("bij,bjk->bik", normal(2, 3, 4), normal(2, 4, 2)),
    ("...ij,...j->...i", normal(2, 1, 3, 4), normal(3, 4)),
    ("...,...->...", normal(2, 3), normal(3)),
    ("ij,jk,kl->il", normal(2, 3), normal(3, 4), normal(4, 2)),
    ("ab,bc->ca", normal(1, 4), B),
    ("iij,jk->k", normal(2, 2, 3), normal(3, 2)),
    ("ij,ij->j", normal(1, 4), normal(3, 4)),
    (" i j , j k -> i k ", A, B),
    ("aB,Bc->ac", A, B),
]
SAME = [
    *(same(_einsum, torch.einsum, *each) for each in EQUATIONS),
    same(contract.tensordot, torch.tensordot, normal(2, 3, 4), normal(3, 4, 5)),
    same(contract.tensordot, torch.tensordot, A, B, 0),
    same(contract.tensordot, torch.tensordot, normal(2, 3, 4), normal(4, 5, 2), ([2, 0], [0, 2])),
    same(contract.tensordot, torch.tensordot, A, normal(5, 4), ([-1], [-1])),
    same(contract.tensordot, torch.tensordot, normal(2, 1), normal(3, 4), 1),
    same(contract.tensordot, torch.tensordot, *INTS, 1),
    same(contract.tensordot, torch.tensordot, *INTS, ([1], [1])),
    same(contract.kron, torch.kron, A, normal(2, 2)),
    same(contract.kron, torch.kron, normal(3), normal(2, 2)),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(_einsum, RUN, "more operands were provided", "ij", A, B, theirs=torch.einsum),
    refused(_einsum, RUN, "fewer operands were provided", "ij,jk", A, theirs=torch.einsum),
    refused(
        _einsum, RUN, "(3) does not match the number of dimensions (2) for operand 0", "ijk", A, theirs=torch.einsum
    ),
    refused(_einsum, RUN, "must be in [a-zA-Z]", "i1", A, theirs=torch.einsum),
    refused(_einsum, RUN, "i appears more than once", "ij->ii", A, theirs=torch.einsum),
    refused(_einsum, RUN, "k does not appear", "ij->ik", A, theirs=torch.einsum),
    refused(_einsum, RUN, "4 != 3", "ii", A, theirs=torch.einsum),
    refused(_einsum, RUN, "do not broadcast", "ij,jk->ik", A, A, theirs=torch.einsum),
    refused(_einsum, Reason.ARGUMENT_VALUE, "at least one operand", "i", theirs=torch.einsum),
    refused(contract.tensordot, RUN, "got dims=-1", A, B, -1, theirs=torch.tensordot),
    refused(contract.tensordot, RUN, "got dims=3", A, B, 3, theirs=torch.tensordot),
    refused(contract.tensordot, RUN, "same length", A, B, ([0], [0, 1]), theirs=torch.tensordot),
    refused(
        contract.tensordot,
        RUN,
        "size 3 in dim 0 and second has size 4 in dim 0",
        A,
        B,
        ([0], [0]),
        theirs=torch.tensordot,
    ),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
