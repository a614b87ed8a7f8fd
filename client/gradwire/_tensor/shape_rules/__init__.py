"""Shape rules: sizes and strides of an op's results, from its arguments' sizes and the numbers given.

A rule gets the arguments of a call and returns a (sizes, strides) pair per result. Strides are () for a contiguous
result, as in a Spec. A rule answers None if it does not know the result, or if the server may refuse the call. The
caller then waits, so the server's error is raised in the call itself. Rules take any arguments, and do not raise.
The engine names each op's rule (`gradwire_engine/ops/shape_rules.py`). Dtype and flags of the results are no matter of
rules (inference.py).
"""

from __future__ import annotations

from gradwire._tensor.shape_rules.combining import (
    cat,
    dot,
    gather,
    index_select,
    linear,
    matmul,
    pad,
    repeat,
    roll,
    sort,
    stack,
    topk,
)
from gradwire._tensor.shape_rules.creation import (
    creation,
    creation_like,
    identity,
    number_range,
    permutation,
    random_integers,
    steps,
)
from gradwire._tensor.shape_rules.elementwise import (
    all_close,
    along,
    converted,
    copied,
    deviation,
    drawn,
    drawn_integers,
    dropout,
    extremum,
    length,
    like,
    log_of_sums,
    pointwise,
    reduction,
    triangle,
)
from gradwire._tensor.shape_rules.layers import (
    attention,
    batch_norm,
    class_loss,
    elementwise_loss,
    embedding,
    embedding_bag,
    layer_norm,
    recurrent,
)
from gradwire._tensor.shape_rules.sizes import Rule, Shapes
from gradwire._tensor.shape_rules.views import (
    MAY_COPY,
    chunk,
    contiguous,
    detach,
    diagonal,
    expand,
    expanded_as,
    flatten,
    getitem,
    item_kinds,
    last_two,
    matrix_t,
    narrow,
    permute,
    reshape,
    select,
    setitem,
    split,
    squeeze,
    transpose,
    unbind,
    unsqueeze,
    viewed_as,
)
from gradwire._tensor.shape_rules.windows import adaptive_pooling, convolution, pooling, transposed_convolution

__all__ = ["MAY_COPY", "RULES", "Rule", "Shapes", "item_kinds"]

#: Rules by name.
RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        pointwise, like, triangle, along, reduction, length, extremum, creation, creation_like, random_integers,
        number_range, steps, identity, permutation, getitem, setitem, select, narrow, reshape, flatten, expand,
        unsqueeze, squeeze, transpose, last_two, matrix_t, permute, unbind, split, chunk, diagonal, matmul, linear,
        stack, cat, index_select, gather, embedding, repeat, pad, topk, sort, roll, dropout, drawn, layer_norm,
        deviation, detach, copied, converted, elementwise_loss, class_loss, embedding_bag, convolution,
        batch_norm, pooling, adaptive_pooling, recurrent, contiguous, viewed_as, expanded_as, log_of_sums,
        drawn_integers, transposed_convolution, dot, all_close, attention,
    )
}  # fmt: skip
