"""Normalization, embedding, attention."""

from typing import Any

from tests.parity.harness import T, case, edge, in_dtype, ints, once, refuses, s, t

SHAPES = ((5, 3), (4, 3, 5), (2, 3, 2, 4))
MEAN, VAR = t(3, grad=False), t(3, low=0.5, high=2, grad=False)


def weighted(*before: Any, size: tuple[int, ...] = (3,), **kwargs: Any) -> list[Any]:
    """Without weight and bias, with the weight, with both."""
    return [
        s(*before, **kwargs),
        s(*before, **kwargs, weight=t(*size)),
        s(*before, **kwargs, weight=t(*size), bias=t(*size), eps=0.1),
    ]


# By the batch's own statistics every derivative in the direction of a constant is zero: rounding is what is left.
case(
    "batch_norm",
    [one for shape in SHAPES for one in weighted(t(*shape, low=1, high=5), None, None, training=True)],
    [one for shape in SHAPES for one in weighted(t(*shape), MEAN, VAR)],
    s(t(4, 3), MEAN, VAR, training=True),
    torch="nn.functional.batch_norm",
    half=False,
    tolerance=3,
)
case(
    "layer_norm",
    [one for shape in SHAPES for one in weighted(t(*shape), shape[1:], size=shape[1:])],
    s(t(2, 3, 4), (4,), t(4), t(4)),
    s(t(3, 4, layout="F"), (4,)),
    s(t(20, 300), (300,), t(300), t(300)),
    tolerance=3,
)
case(
    "group_norm",
    [one for shape in SHAPES[1:] for n in (1, 3) for one in weighted(t(*shape), n)],
    half=False,
    tolerance=3,
)
case(
    "rms_norm",
    [s(t(*shape), shape[1:]) for shape in SHAPES],
    s(t(2, 3, 4), (4,), t(4)),
    s(t(2, 3, 4), (3, 4), eps=0.1),
    half=False,
)
case("normalize", s(t(3, 4)), s(t(3, 4), 2.0, 0), s(t(3, 4), 1.0), s(t(3, 4), 3.0), s(t(2, 3, 4), 2.0, (1, 2)))
case("cosine_similarity", s(t(3, 4), t(3, 4)), s(t(3, 4), t(3, 4), 0), s(t(2, 3, 4), t(3, 4), -1), node=False)

INDICES = ints([1, 2, 2], [6, 0, 1])
case(
    "embedding",
    s(INDICES, t(7, 3)),
    edge(INDICES, t(7, 3), padding_idx=2),
    edge(INDICES, t(7, 3), padding_idx=-1),
    s(ints(3, 3, dtype="int32"), t(7, 3)),
    once(INDICES, t(7, 3), scale_grad_by_freq=True),
    torch="nn.functional.embedding",
)


def attention(**kwargs: Any) -> list[Any]:
    """Three tensors of queries, keys and values."""
    return [s(t(2, 2, 3, 4), t(2, 2, 5, 4), t(2, 2, 5, 6), **kwargs)]


case(
    "scaled_dot_product_attention",
    attention(),
    attention(scale=0.3),
    attention(attn_mask=t(3, 5)),
    attention(attn_mask=T((3, 5), values=[[True, False, True, True, False]] * 3, dtype="bool", grad=False)),
    s(t(2, 3, 4), t(2, 3, 4), t(2, 3, 4), is_causal=True),
    node=False,
)

REFUSALS = [
    refuses(
        "batch_norm",
        ValueError,
        "Expected more than 1 value per channel when training, got input size torch.Size([1, 3])",
        t(1, 3),
        None,
        None,
        training=True,
        torch="nn.functional.batch_norm",
    ),
    refuses(
        "batch_norm",
        RuntimeError,
        "running_mean should contain 3 elements not 4",
        t(2, 3),
        t(4, grad=False),
        t(4, grad=False),
        torch="nn.functional.batch_norm",
    ),
    refuses(
        "batch_norm",
        RuntimeError,
        "running_mean must be defined in evaluation mode",
        t(2, 3),
        None,
        None,
        torch="nn.functional.batch_norm",
    ),
    refuses(
        "batch_norm",
        RuntimeError,
        "weight should contain 3 elements not 4",
        t(2, 3),
        MEAN,
        VAR,
        t(4),
        torch="nn.functional.batch_norm",
    ),
    refuses(
        "batch_norm",
        ValueError,
        "eps must be positive during training",
        t(2, 3),
        MEAN,
        VAR,
        training=True,
        eps=0.0,
        torch="nn.functional.batch_norm",
    ),
    refuses(
        "layer_norm",
        RuntimeError,
        "Given normalized_shape=[4], expected input with shape [*, 4], but got input of size[2, 3]",
        t(2, 3),
        (4,),
    ),
    refuses("layer_norm", RuntimeError, "Expected weight to be of same shape as normalized_shape", t(2, 3), (3,), t(4)),
    refuses("layer_norm", RuntimeError, "Expected normalized_shape to be at least 1-dimensional", t(2, 3), ()),
    refuses(
        "group_norm",
        RuntimeError,
        "Expected number of channels in input to be divisible by num_groups",
        t(2, 3),
        2,
        torch="nn.functional.group_norm",
    ),
    refuses(
        "group_norm",
        RuntimeError,
        "Expected at least 2 dimensions for input tensor but received 1",
        t(3),
        1,
        torch="nn.functional.group_norm",
    ),
    refuses("embedding", IndexError, "index out of range in self", ints(7), t(7, 3), torch="nn.functional.embedding"),
    refuses("embedding", IndexError, "index out of range in self", ints(-1), t(7, 3), torch="nn.functional.embedding"),
    refuses("embedding", RuntimeError, "'weight' must be 2-D", ints(1), t(7), torch="nn.functional.embedding"),
    refuses(
        "embedding",
        RuntimeError,
        "to have one of the following scalar types: Long, Int",
        t(3),
        t(7, 3),
        torch="nn.functional.embedding",
    ),
    refuses("one_hot", RuntimeError, "Class values must be non-negative", ints(1, -1), 3),
    refuses("one_hot", RuntimeError, "Class values must be smaller than num_classes", ints(1, 5), 3),
]
EXCEPTIONS = {"dropout": "random: tests/parity/test_layers.py holds it against what its mask says"}

case("one_hot", in_dtype("float32", INDICES), in_dtype("float32", INDICES, 9), half=False)
