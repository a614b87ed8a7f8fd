"""Layers, functions and losses against PyTorch: same weights and inputs, same values, gradients and text."""

import warnings
from functools import partial

import numpy as np
import pytest

import gradwire as gw
from gradwire import nn

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
pytestmark = pytest.mark.usefixtures("session")

RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.standard_normal(shape)


LAYERS = {
    "linear": ("Linear(3, 4)", (5, 3)),
    "linear without bias": ("Linear(3, 4, bias=False)", (2, 5, 3)),
    "linear of a vector": ("Linear(3, 4)", (3,)),
    "conv1d": ("Conv1d(2, 4, 3, padding=1, stride=2)", (2, 2, 9)),
    "conv1d dilated": ("Conv1d(4, 4, 2, dilation=2, groups=2, bias=False)", (2, 4, 9)),
    "conv2d": ("Conv2d(2, 3, 3)", (2, 2, 6, 7)),
    "conv2d same": ("Conv2d(2, 3, 3, padding='same')", (2, 2, 6, 7)),
    "conv2d same with an even kernel": ("Conv2d(2, 3, (2, 4), padding='same', dilation=(1, 3))", (2, 2, 6, 7)),
    "conv1d valid": ("Conv1d(2, 3, 2, padding='valid')", (2, 2, 6)),
    "conv2d uneven": ("Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)", (2, 2, 6, 7)),
    "conv2d of one image": ("Conv2d(2, 3, 3, padding=1)", (2, 5, 5)),
    "batch_norm1d": ("BatchNorm1d(3)", (6, 3)),
    "batch_norm1d sequence": ("BatchNorm1d(3, momentum=None)", (4, 3, 5)),
    "batch_norm1d plain": ("BatchNorm1d(3, affine=False)", (6, 3)),
    "batch_norm1d stateless": ("BatchNorm1d(3, track_running_stats=False)", (6, 3)),
    "batch_norm2d": ("BatchNorm2d(3, eps=1e-3, momentum=0.3)", (4, 3, 2, 5)),
    "layer_norm": ("LayerNorm(5)", (4, 3, 5)),
    "layer_norm of two": ("LayerNorm((3, 5), bias=False)", (4, 3, 5)),
    "layer_norm plain": ("LayerNorm([5], elementwise_affine=False, eps=1e-2)", (3, 5)),
    "dropout off": ("Dropout(0.0)", (3, 4)),
    "relu": ("ReLU()", (3, 4)),
    "sigmoid": ("Sigmoid()", (3, 4)),
    "tanh": ("Tanh()", (3, 4)),
    "gelu": ("GELU()", (3, 4)),
    "gelu tanh": ("GELU(approximate='tanh')", (3, 4)),
    "leaky_relu": ("LeakyReLU(0.2)", (3, 4)),
    "softmax": ("Softmax(dim=1)", (3, 4)),
    "log_softmax": ("LogSoftmax(dim=-1)", (3, 4)),
    "max_pool2d": ("MaxPool2d(2)", (2, 3, 6, 5)),
    "max_pool2d uneven": ("MaxPool2d((3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2))", (2, 3, 7, 6)),
    "max_pool2d ceil": ("MaxPool2d(2, ceil_mode=True)", (2, 3, 5, 5)),
    "avg_pool2d": ("AvgPool2d(2)", (2, 3, 6, 5)),
    "avg_pool2d padded": ("AvgPool2d(3, stride=2, padding=1, count_include_pad=False)", (2, 3, 6, 5)),
    "adaptive_avg_pool2d": ("AdaptiveAvgPool2d((3, 2))", (2, 3, 7, 5)),
    "adaptive_avg_pool2d to one": ("AdaptiveAvgPool2d(1)", (2, 3, 7, 5)),
    "flatten": ("Flatten()", (2, 3, 4)),
    "unflatten": ("Unflatten(1, (2, 3))", (4, 6)),
    "identity": ("Identity(3, some='thing')", (2, 3)),
    "bilinear": ("Bilinear(3, 4, 5)", ((6, 3), (6, 4))),
    "conv1d reflect": ("Conv1d(2, 3, 3, padding=1, padding_mode='reflect')", (2, 2, 6)),
    "conv2d circular": ("Conv2d(2, 3, (3, 2), padding=(1, 0), padding_mode='circular')", (2, 2, 5, 6)),
    "conv2d replicate same": ("Conv2d(2, 3, (2, 3), padding='same', padding_mode='replicate')", (2, 2, 5, 6)),
    "conv3d": ("Conv3d(2, 4, 2, padding=1, stride=(1, 2, 1), groups=2)", (2, 2, 3, 4, 5)),
    "conv_transpose1d": ("ConvTranspose1d(2, 4, 3, stride=2, padding=1, output_padding=1)", (2, 2, 5)),
    "conv_transpose2d": ("ConvTranspose2d(4, 6, (3, 2), stride=(2, 1), groups=2, dilation=(1, 2))", (2, 4, 4, 5)),
    "conv_transpose2d plain": ("ConvTranspose2d(2, 3, 2, bias=False)", (2, 4, 5)),
    "conv_transpose3d": ("ConvTranspose3d(2, 3, 2, 2)", (1, 2, 2, 3, 2)),
    "batch_norm3d": ("BatchNorm3d(2)", (2, 2, 3, 2, 2)),
    "instance_norm1d": ("InstanceNorm1d(3)", (2, 3, 5)),
    "instance_norm1d of one": ("InstanceNorm1d(3, affine=True)", (3, 5)),
    "instance_norm2d": ("InstanceNorm2d(3, affine=True, track_running_stats=True, momentum=0.3)", (2, 3, 4, 5)),
    "instance_norm3d": ("InstanceNorm3d(2, eps=1e-3)", (2, 2, 3, 2, 2)),
    "group_norm": ("GroupNorm(2, 4)", (3, 4, 5)),
    "group_norm plain": ("GroupNorm(4, 4, affine=False, eps=1e-3)", (3, 4, 5)),
    "group_norm without bias": ("GroupNorm(1, 4, bias=False)", (3, 4, 2, 2)),
    "rms_norm": ("RMSNorm(5)", (3, 5)),
    "rms_norm of two": ("RMSNorm((3, 5), eps=1e-3, elementwise_affine=False)", (2, 3, 5)),
    "local_response_norm": ("LocalResponseNorm(2, alpha=0.1, k=2.0)", (2, 5, 4)),
    "dropout1d off": ("Dropout1d(0.0)", (2, 3, 4)),
    "dropout2d off": ("Dropout2d(0.0)", (2, 3, 4, 4)),
    "dropout3d off": ("Dropout3d(0.0)", (2, 3, 2, 2, 2)),
    "alpha_dropout off": ("AlphaDropout(0.0)", (2, 3)),
    "feature_alpha_dropout off": ("FeatureAlphaDropout(0.0)", (2, 3, 4)),
    "elu": ("ELU(0.7)", (3, 4)),
    "celu": ("CELU(1.3)", (3, 4)),
    "selu": ("SELU()", (3, 4)),
    "silu": ("SiLU()", (3, 4)),
    "mish": ("Mish()", (3, 4)),
    "relu6": ("ReLU6()", (3, 4)),
    "hardtanh": ("Hardtanh(-0.5, 0.7)", (3, 4)),
    "hardsigmoid": ("Hardsigmoid()", (3, 4)),
    "hardswish": ("Hardswish()", (3, 4)),
    "threshold": ("Threshold(0.1, 20.0)", (3, 4)),
    "rrelu in a point": ("RReLU(0.2, 0.2)", (3, 4)),
    "glu": ("GLU(1)", (3, 4)),
    "hardshrink": ("Hardshrink(0.3)", (3, 4)),
    "softshrink": ("Softshrink(0.3)", (3, 4)),
    "softplus": ("Softplus(2.0, 1.0)", (3, 4)),
    "softsign": ("Softsign()", (3, 4)),
    "tanhshrink": ("Tanhshrink()", (3, 4)),
    "logsigmoid": ("LogSigmoid()", (3, 4)),
    "softmin": ("Softmin(dim=1)", (3, 4)),
    "softmax2d": ("Softmax2d()", (2, 3, 2, 2)),
    "prelu": ("PReLU()", (3, 4)),
    "prelu per channel": ("PReLU(4, init=0.1)", (3, 4, 2)),
    "max_pool1d": ("MaxPool1d(3, stride=2, padding=1)", (2, 3, 7)),
    "max_pool3d": ("MaxPool3d(2, ceil_mode=True)", (2, 3, 3, 4, 5)),
    "avg_pool1d": ("AvgPool1d(3, stride=2, padding=1, count_include_pad=False)", (2, 3, 7)),
    "avg_pool3d": ("AvgPool3d(2, divisor_override=3)", (2, 3, 4, 4, 4)),
    "lp_pool1d": ("LPPool1d(2, 3, stride=2)", (2, 3, 8)),
    "lp_pool2d": ("LPPool2d(3.0, (2, 3), ceil_mode=True)", (2, 3, 5, 6)),
    "adaptive_avg_pool1d": ("AdaptiveAvgPool1d(3)", (2, 3, 7)),
    "adaptive_avg_pool3d": ("AdaptiveAvgPool3d((2, None, 1))", (2, 3, 4, 3, 5)),
    "adaptive_max_pool1d": ("AdaptiveMaxPool1d(3)", (2, 3, 7)),
    "adaptive_max_pool2d": ("AdaptiveMaxPool2d((3, None))", (2, 3, 7, 4)),
    "adaptive_max_pool3d": ("AdaptiveMaxPool3d(2)", (2, 3, 4, 3, 5)),
    "constant_pad1d": ("ConstantPad1d((1, 2), 3.5)", (2, 3, 4)),
    "constant_pad2d": ("ConstantPad2d(1, 0.5)", (2, 3, 4, 4)),
    "constant_pad3d": ("ConstantPad3d((1, 0, 2, 1, 0, 1), 1.0)", (1, 2, 3, 2, 2)),
    "zero_pad1d": ("ZeroPad1d(2)", (2, 3, 4)),
    "zero_pad2d": ("ZeroPad2d((1, 0, 2, 1))", (2, 3, 4, 4)),
    "zero_pad3d": ("ZeroPad3d(1)", (1, 2, 3, 2, 2)),
    "reflection_pad1d": ("ReflectionPad1d((1, 2))", (2, 3, 4)),
    "reflection_pad2d": ("ReflectionPad2d(1)", (2, 3, 4, 4)),
    "reflection_pad3d": ("ReflectionPad3d(1)", (1, 2, 3, 2, 2)),
    "replication_pad1d": ("ReplicationPad1d((1, 2))", (2, 3, 4)),
    "replication_pad2d": ("ReplicationPad2d(1)", (2, 3, 4, 4)),
    "replication_pad3d": ("ReplicationPad3d(1)", (1, 2, 3, 2, 2)),
    "circular_pad1d": ("CircularPad1d((1, 2))", (2, 3, 4)),
    "circular_pad2d": ("CircularPad2d(1)", (2, 3, 4, 4)),
    "circular_pad3d": ("CircularPad3d(1)", (1, 2, 3, 2, 2)),
    "pixel_shuffle": ("PixelShuffle(2)", (2, 8, 3, 2)),
    "pixel_unshuffle": ("PixelUnshuffle(2)", (2, 3, 4, 6)),
    "channel_shuffle": ("ChannelShuffle(2)", (2, 6, 3, 2)),
    "unfold": ("Unfold((2, 3), padding=1)", (2, 3, 4, 5)),
    "fold": ("Fold((4, 5), (2, 3))", (2, 18, 9)),
    "upsample": ("Upsample(scale_factor=2)", (2, 3, 4, 5)),
    "upsample bilinear": ("Upsample(size=(5, 7), mode='bilinear', align_corners=True)", (2, 3, 4, 5)),
    "upsampling nearest": ("UpsamplingNearest2d(scale_factor=2)", (2, 3, 4, 5)),
    "upsampling bilinear": ("UpsamplingBilinear2d(size=(3, 3))", (2, 3, 4, 5)),
    "cosine_similarity": ("CosineSimilarity()", ((4, 3), (4, 3))),
    "pairwise_distance": ("PairwiseDistance(p=3.0, keepdim=True)", ((4, 3), (4, 3))),
    "sequential": ("Sequential(ReLU(), Linear(4, 2), BatchNorm1d(2))", (5, 4)),
}


# PyTorch keeps constants of these (a sixth, celu's 1 / alpha) in single precision.
SINGLE = ("CELU", "Hardsigmoid", "Hardswish")


def built(library, text):
    """The layer that an expression makes of a library's classes, in float64."""
    return eval(text, dict(vars(library))).double()


def weights_copied(ours, theirs):
    """Fill both with the same drawn values, running statistics too, and check that they hold the same."""
    assert list(ours.state_dict()) == list(theirs.state_dict())
    state = {}
    for key, tensor in theirs.state_dict().items():
        value = np.abs(draw(*tensor.shape)) + 0.1 if tensor.is_floating_point() else np.zeros(tensor.shape, np.int64)
        tensor.copy_(torch.from_numpy(np.asarray(value)))
        state[key] = gw.tensor(value)
    ours.load_state_dict(state)


def assert_same(ours, theirs, rtol=1e-9):
    assert ours.shape == tuple(theirs.shape)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=rtol, atol=1e-11)


@pytest.mark.parametrize(("text", "shape"), LAYERS.values(), ids=LAYERS.keys())
# PyTorch's word on its own speed.
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_layer_computes_and_differentiates_as_pytorch(text, shape):
    ours, theirs = built(nn, text), built(torch.nn, text)
    weights_copied(ours, theirs)
    for training in (True, True, False):
        ours.train(training)
        theirs.train(training)
        drawn = [draw(*each) for each in (shape if isinstance(shape[0], tuple) else [shape])]
        inputs = [gw.tensor(x, requires_grad=True) for x in drawn]
        their_inputs = [torch.tensor(x, requires_grad=True) for x in drawn]
        rtol = 1e-7 if any(name in text for name in SINGLE) else 1e-9
        out, expected = ours(*inputs), theirs(*their_inputs)
        assert_same(out, expected, rtol)
        seed = draw(*expected.shape)
        out.backward(gw.tensor(seed))
        expected.backward(torch.tensor(seed))
        for a, b in zip(inputs, their_inputs, strict=True):
            assert_same(a.grad, b.grad, rtol)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert_same(p.grad, q.grad, rtol)
        for p, q in zip(ours.buffers(), theirs.buffers(), strict=True):
            assert_same(p, q)


REPRS = [text for text, _ in LAYERS.values()] + [
    "Conv2d(2, 4, 3, padding='same', dilation=2, groups=2, bias=False)",
    "ReLU(inplace=True)",
    *(
        f"{name}(inplace=True)"
        for name in ["ELU", "CELU", "SELU", "SiLU", "Mish", "ReLU6", "Hardtanh", "Hardsigmoid", "Hardswish", "RReLU"]
    ),
    "Threshold(1.0, 2.0, True)",
    "RReLU(0.1, 0.3)",
    "ConvTranspose2d(2, 4, 3, stride=2, output_padding=1, groups=2, bias=False)",
    "Dropout2d(0.3)",
    "AlphaDropout(0.1, inplace=True)",
    "EmbeddingBag(5, 3, mode='sum', padding_idx=1, max_norm=2.0, norm_type=1.0, scale_grad_by_freq=True)",
    "MaxUnpool2d(2, stride=1)",
    "Upsample(scale_factor=(2.0, 3.0))",
    "TripletMarginLoss(p=1.0)",
    "CTCLoss()",
    "GaussianNLLLoss()",
    "LPPool3d(2, 3)",
    "LeakyReLU(inplace=True)",
    "Embedding(5, 3, padding_idx=-1)",
    "Embedding(5, 3, max_norm=1.0, norm_type=1.0, scale_grad_by_freq=True)",
    "Dropout(0.2, inplace=True)",
    "Sequential()",
    "Sequential(Sequential(ReLU(), Linear(1, 2)), ModuleList([ReLU(), ReLU(), Tanh()]))",
    "ModuleList([Sequential(ReLU(), Linear(2, 2)), Sequential(ReLU(), Linear(2, 2)), Tanh()])",
    "ModuleDict({'a': ReLU(), 'b': Linear(1, 1)})",
    "ParameterList([Linear(2, 3).weight, Linear(2, 3).bias])",
    "MSELoss()",
    "CrossEntropyLoss(label_smoothing=0.1)",
    "KLDivLoss(reduction='batchmean')",
]


@pytest.mark.parametrize("text", REPRS)
def test_module_prints_as_pytorch(text):
    assert repr(built(nn, text)) == repr(built(torch.nn, text))


@pytest.mark.parametrize("options", ["", ", padding_idx=1", ", max_norm=0.7", ", scale_grad_by_freq=True"])
def test_embedding_gathers_rows_and_adds_up_their_gradients(options):
    ours, theirs = (built(library, f"Embedding(5, 3{options})") for library in (nn, torch.nn))
    weights_copied(ours, theirs)
    picks = [[1, 2, 2], [4, 1, 0]]
    out, expected = ours(gw.tensor(picks)), theirs(torch.tensor(picks))
    assert_same(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert_same(ours.weight.grad, theirs.weight.grad)
    assert_same(ours.weight, theirs.weight)


@pytest.mark.parametrize("text", ["EmbeddingBag(5, 3)", "EmbeddingBag(5, 3, mode='sum', padding_idx=1)",
                                  "EmbeddingBag(5, 3, mode='max')"])  # fmt: skip
def test_embedding_bag_joins_rows(text):
    ours, theirs = built(nn, text), built(torch.nn, text)
    weights_copied(ours, theirs)
    picks = [1, 2, 2, 4, 1, 0]
    for options in ({}, {"offsets": [0, 4]}):
        shaped = picks if options else [picks[:3], picks[3:]]
        given = {name: gw.tensor(value) for name, value in options.items()}
        out = ours(gw.tensor(shaped), **given)
        expected = theirs(torch.tensor(shaped), **{name: torch.tensor(value) for name, value in options.items()})
        assert_same(out, expected)
        out.square().sum().backward()
        expected.square().sum().backward()
        assert_same(ours.weight.grad, theirs.weight.grad)


def test_transposed_convolution_makes_the_size_that_is_asked_for():
    text = "ConvTranspose2d(2, 3, 3, stride=2, padding=1)"
    ours, theirs = built(nn, text), built(torch.nn, text)
    weights_copied(ours, theirs)
    x = draw(1, 2, 4, 4)
    assert_same(ours(gw.tensor(x), output_size=[8, 7]), theirs(torch.tensor(x), output_size=[8, 7]))
    for library, layer in ((gw, ours), (torch, theirs)):
        with pytest.raises(ValueError, match="requested an output size"):
            layer(library.tensor(x), output_size=[9, 9])


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_puts_values_back(dims):
    x = draw(2, 3, *(4,) * dims)
    results = []
    for library in (gw, torch):
        a = library.tensor(x, requires_grad=True)
        pooled, places = getattr(library.nn, f"MaxPool{dims}d")(2, return_indices=True)(a)
        out = getattr(library.nn, f"MaxUnpool{dims}d")(2)(pooled, places)
        (out**2).sum().backward()
        results.append((out, a.grad))
    for ours, theirs in zip(*results, strict=True):
        assert_same(ours, theirs)


def test_embedding_starts_with_zeros_at_its_padding_and_can_be_given():
    assert nn.Embedding(4, 2, padding_idx=2).weight[2].tolist() == [0.0, 0.0]
    frozen = nn.Embedding.from_pretrained(gw.ones(3, 2))
    assert not frozen.weight.requires_grad
    assert frozen(gw.tensor([0, 2])).shape == (2, 2)


def test_max_pool_tells_where_its_values_were():
    x = draw(2, 3, 6, 5)
    ours = nn.MaxPool2d(2, return_indices=True)(gw.tensor(x))
    theirs = torch.nn.MaxPool2d(2, return_indices=True)(torch.tensor(x))
    assert type(ours) is tuple
    for a, b in zip(ours, theirs, strict=True):
        assert_same(a, b)


# Losses: expression, and what input and target are made of.

SCORES, CLASSES = draw(6, 4), np.array([0, 3, 2, 1, -100, 2])
LOGS = np.log(np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True))
PROBABILITIES = 1 / (1 + np.exp(-draw(5, 3)))
BITS = (draw(5, 3) > 0).astype(float)
POINTS, AIMS = 2 * draw(5, 3), 2 * draw(5, 3)
POSITIVE = np.array([0.5, 1.0, 2.0, 0.25])
WEIGHTS = np.abs(draw(5, 3))

LOSSES = {
    "mse": ("MSELoss({r})", POINTS, AIMS),
    "l1": ("L1Loss({r})", POINTS, AIMS),
    "smooth l1": ("SmoothL1Loss({r}, beta=0.5)", POINTS, AIMS),
    "smooth l1 without a bend": ("SmoothL1Loss({r}, beta=0.0)", POINTS, AIMS),
    "huber": ("HuberLoss({r}, delta=1.5)", POINTS, AIMS),
    "kl": ("KLDivLoss({r})", LOGS, np.exp(LOGS[::-1]).copy()),
    "kl of logarithms": ("KLDivLoss({r}, log_target=True)", LOGS, LOGS[::-1].copy()),
    "nll": ("NLLLoss({r})", LOGS, CLASSES),
    "nll weighted": ("NLLLoss(weight=tensor(POSITIVE), {r})", LOGS, CLASSES),
    "cross entropy": ("CrossEntropyLoss({r})", SCORES, CLASSES),
    "cross entropy ignoring": ("CrossEntropyLoss(ignore_index=2, {r})", SCORES, np.abs(CLASSES) % 4),
    "cross entropy weighted": ("CrossEntropyLoss(tensor(POSITIVE), {r}, label_smoothing=0.2)", SCORES, CLASSES),
    "cross entropy of probabilities": ("CrossEntropyLoss({r}, label_smoothing=0.1)", SCORES, np.exp(LOGS[::-1]).copy()),
    "cross entropy of pixels": ("CrossEntropyLoss({r})", draw(2, 3, 4, 2), RNG.integers(0, 3, (2, 4, 2))),
    "mse weighted": ("partial(functional.mse_loss, weight=tensor(WEIGHTS), {r})", POINTS, AIMS),
    "l1 weighted": ("partial(functional.l1_loss, weight=tensor(WEIGHTS), {r})", POINTS, AIMS),
    "huber weighted": ("partial(functional.huber_loss, weight=tensor(WEIGHTS), {r})", POINTS, AIMS),
    "bce": ("BCELoss({r})", PROBABILITIES, BITS),
    "bce weighted": ("BCELoss(weight=tensor(POSITIVE[:3]), {r})", PROBABILITIES, BITS),
    "bce with logits": ("BCEWithLogitsLoss({r})", 9 * POINTS, BITS),
    "bce with logits weighted": ("BCEWithLogitsLoss({r}, pos_weight=tensor(POSITIVE[:3]))", POINTS, BITS),
}


SIGNS = np.sign(draw(5))
# Losses of several inputs: expression, inputs, and what is no input that a gradient goes to.
MORE_LOSSES = {
    "poisson": ("PoissonNLLLoss({r}, full=True)", [POINTS], [np.abs(AIMS)]),
    "poisson of rates": ("PoissonNLLLoss(log_input=False, {r})", [np.abs(POINTS)], [np.abs(AIMS)]),
    "gaussian": ("GaussianNLLLoss({r}, full=True)", [POINTS], [AIMS, np.abs(draw(5, 3)) + 0.1]),
    "hinge embedding": ("HingeEmbeddingLoss({r}, margin=0.8)", [POINTS], [2 * BITS - 1]),
    "soft margin": ("SoftMarginLoss({r})", [POINTS], [2 * BITS - 1]),
    "multilabel margin": ("MultiLabelMarginLoss({r})", [draw(2, 4)], [np.array([[3, 0, -1, 1], [1, -1, 0, 0]])]),
    "multilabel soft margin": ("MultiLabelSoftMarginLoss({r})", [POINTS], [BITS]),
    "multi margin": ("MultiMarginLoss({r}, p=2, margin=0.7)", [SCORES], [np.abs(CLASSES) % 4]),
    "cosine embedding": ("CosineEmbeddingLoss({r}, margin=0.1)", [draw(5, 3), draw(5, 3)], [SIGNS]),
    "margin ranking": ("MarginRankingLoss({r}, margin=0.2)", [draw(5), draw(5)], [SIGNS]),
    "triplet": ("TripletMarginLoss({r}, margin=0.5, swap=True)", [draw(5, 3), draw(5, 3), draw(5, 3)], []),
    "triplet with distance": ("TripletMarginWithDistanceLoss({r}, swap=True)", [draw(5, 3) for _ in range(3)], []),
    "ctc": (
        "CTCLoss({r})",
        [np.log(np.abs(draw(6, 2, 4)) + 0.1)],
        [np.array([[1, 2], [3, 1]]), np.array([6, 5]), np.array([2, 1])],
    ),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("text", "inputs", "rest"), MORE_LOSSES.values(), ids=MORE_LOSSES.keys())
def test_loss_of_several_inputs_is_pytorchs(text, inputs, rest, reduction):
    text = text.format(r=f"reduction={reduction!r}")
    results = []
    for library in (gw, torch):
        loss = eval(text, dict(vars(library.nn)))
        given = [library.tensor(x, requires_grad=True) for x in inputs]
        value = loss(*given, *(library.tensor(x) for x in rest))
        value.sum().backward()
        results.append((value, *(x.grad for x in given)))
    for ours, theirs in zip(*results, strict=True):
        assert_same(ours, theirs)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("text", "input", "target"), LOSSES.values(), ids=LOSSES.keys())
def test_loss_computes_and_differentiates_as_pytorch(text, input, target, reduction):
    text = text.format(r=f"reduction={reduction!r}")
    results = []
    for library in (gw, torch):
        names = {"tensor": library.tensor, "partial": partial, "POSITIVE": POSITIVE, "WEIGHTS": WEIGHTS}
        loss = eval(text, {**vars(library.nn), **names})
        x = library.tensor(input, requires_grad=True)
        value = loss(x, library.tensor(target))
        value.sum().backward()
        results.append((value, x.grad))
    for ours, theirs in zip(*results, strict=True):
        assert_same(ours, theirs)


def test_kl_batchmean_divides_by_the_batch():
    target = np.exp(LOGS[::-1]).copy()
    ours = nn.KLDivLoss(reduction="batchmean")(gw.tensor(LOGS), gw.tensor(target))
    assert_same(ours, torch.nn.KLDivLoss(reduction="batchmean")(torch.tensor(LOGS), torch.tensor(target)))


def test_older_words_for_reduction_are_understood():
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.MSELoss(size_average=False).reduction == "sum"
    with pytest.warns(UserWarning, match="reduction='none'"):
        assert nn.functional.l1_loss(gw.ones(2), gw.zeros(2), reduce=False).shape == (2,)


def test_loss_of_different_shapes_warns_or_is_refused():
    with pytest.warns(UserWarning, match="different to the input size"):
        nn.functional.mse_loss(gw.ones(2, 2), gw.ones(2))
    with pytest.raises(ValueError, match="must be the same as input size"):
        nn.BCEWithLogitsLoss()(gw.ones(2, 2), gw.ones(2))


# Functions: expression in F and x, input.

FUNCTIONS = [
    "F.relu(x, inplace=False)", "F.elu(x, 0.7)", "F.celu(x, 1.3)", "F.selu(x)", "F.silu(x)", "F.mish(x)",
    "F.relu6(4 * x)", "F.hardtanh(x, -0.5, 0.7)", "F.hardsigmoid(3 * x)", "F.hardswish(3 * x)",
    "F.threshold(x, 0.1, 20.0)", "F.softplus(x)", "F.softplus(x, 2, 1)", "F.softsign(x)", "F.logsigmoid(x)",
    "F.tanhshrink(x)", "F.hardshrink(x)", "F.softshrink(x, 0.3)", "F.glu(x)", "F.softmin(x, dim=0)",
    "F.normalize(x)", "F.normalize(x, p=1.0, dim=0)",
    "F.normalize(x * 0)", "F.pad(x, (1, 2, 0, 1), value=3.0)",
    "F.leaky_relu(x * 2, 0.3, inplace=True)", "F.elu(x * 2, inplace=True)", "F.relu(x * 2, inplace=True)",
    "F.silu(x * 2, inplace=True)", "F.dropout(x, 1.0)", "F.dropout(x, 0.5, training=False)",
    "F.gelu(x, approximate='tanh')", "F.softmax(x, -1)", "F.linear(x, x)", "F.sigmoid(x)", "F.tanh(x)",
]  # fmt: skip


@pytest.mark.parametrize("text", FUNCTIONS)
def test_function_computes_and_differentiates_as_pytorch(text):
    values = draw(4, 6)
    results = []
    for library in (gw, torch):
        x = library.tensor(values, requires_grad=True)
        out = eval(text, {"F": library.nn.functional, "x": x})
        out.square().sum().backward()
        results.append((out, x.grad))
    for ours, theirs in zip(*results, strict=True):
        # PyTorch keeps some constants (a sixth, celu's 1 / alpha) in single precision.
        assert_same(ours, theirs, rtol=1e-7)


def test_implicit_softmax_dimension_warns():
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        out = nn.Softmax()(gw.ones(2, 4))
    assert out.sum(1).tolist() == [1.0, 1.0]


def test_one_hot_counts_classes():
    assert nn.functional.one_hot(gw.tensor([0, 2]), 4).tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]


# Randomness: distributions, not sequences.


def test_dropout_keeps_the_mean_and_follows_its_own_mask_back():
    gw.manual_seed(3)
    x = gw.ones(20_000, requires_grad=True)
    out = nn.Dropout(0.25)(x)
    kept = out.detach().numpy()
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((kept == 0).mean() - 0.25) < 0.02
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), kept)


def test_dropout_in_place_changes_its_input():
    x = gw.ones(100)
    out = nn.functional.dropout(x, 0.5, inplace=True)
    assert out is x
    assert set(x.tolist()) == {0.0, 2.0}


def test_dropout_probability_is_checked():
    for make in (nn.Dropout, lambda p: nn.functional.dropout(gw.ones(1), p)):
        with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
            make(1.5)


DEFAULTS = ["Linear(40, 300)", "Conv2d(6, 50, 3)", "Conv1d(8, 60, 5, groups=2)", "Embedding(300, 40)"]
DEFAULTS += ["Bilinear(20, 10, 8)", "Conv3d(4, 20, 3)", "ConvTranspose2d(8, 30, 3)", "EmbeddingBag(300, 40)"]


@pytest.mark.parametrize("text", DEFAULTS)
def test_first_values_have_pytorchs_distribution(text):
    gw.manual_seed(1)
    torch.manual_seed(1)
    ours, theirs = built(nn, text), built(torch.nn, text)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same_distribution(p, q)


def assert_same_distribution(ours, theirs):
    """The same spread and bounds, as far as some thousand numbers tell."""
    a, b = ours.detach().numpy().ravel(), theirs.detach().numpy().ravel()
    spread = b.std()
    tolerance = 6 * spread / np.sqrt(len(b))
    assert abs(a.mean() - b.mean()) < tolerance
    assert abs(a.std() - spread) < tolerance
    quantiles = [0.1, 0.25, 0.5, 0.75, 0.9]
    np.testing.assert_allclose(np.quantile(a, quantiles), np.quantile(b, quantiles), atol=2 * tolerance)


INITS = [
    "uniform_(t, -1.0, 3.0)", "normal_(t, 2.0, 0.5)", "xavier_uniform_(t, gain=2.0)", "xavier_normal_(t)",
    "kaiming_uniform_(t, nonlinearity='relu')", "kaiming_normal_(t, mode='fan_out')", "kaiming_uniform_(t, a=5**0.5)",
    "trunc_normal_(t, 0.5, 1.0, -0.5, 2.0)", "constant_(t, 0.25)", "ones_(t)", "zeros_(t)",
]  # fmt: skip


@pytest.mark.parametrize("text", INITS)
def test_init_fills_with_pytorchs_distribution(text):
    gw.manual_seed(2)
    torch.manual_seed(2)
    results = []
    for library in (gw, torch):
        tensor = library.nn.Parameter(library.zeros(60, 40, 2))
        assert eval(text, dict(vars(library.nn.init), t=tensor)) is tensor
        assert tensor.is_leaf
        results.append(tensor)
    if text.startswith(("constant", "ones", "zeros")):
        assert_same(*results)
    else:
        assert_same_distribution(*results)


def test_gains_are_pytorchs():
    for name in ("linear", "conv2d", "conv_transpose1d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert nn.init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        nn.init.calculate_gain("nothing")


def test_fans_need_two_dimensions():
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        nn.init.kaiming_uniform_(gw.zeros(3))


# Refusals of constructors and inputs.


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("Conv2d(3, 4, 3, groups=2)", "in_channels must be divisible by groups"),
        ("Conv2d(4, 3, 3, groups=2)", "out_channels must be divisible by groups"),
        ("Conv2d(4, 4, 3, groups=0)", "groups must be a positive integer"),
        ("Conv2d(4, 4, 3, padding='most')", "Invalid padding string"),
        ("Conv2d(4, 4, 3, padding='same', stride=2)", "padding='same' is not supported for strided convolutions"),
        ("Conv2d(4, 4, 3, padding_mode='odd')", "padding_mode"),
        ("BatchNorm1d(2)(ones(2, 2, 2, 2))", "expected 2D or 3D input"),
        ("BatchNorm2d(2)(ones(2, 2))", "expected 4D input"),
        ("BatchNorm1d(2)(ones(1, 2))", "Expected more than 1 value per channel when training"),
    ],
)
def test_refusals_are_pytorchs(text, phrase):
    for library in (gw, torch):
        with pytest.raises(ValueError, match=phrase):
            eval(text, {**vars(library.nn), "ones": library.ones})


def test_device_and_dtype_reach_the_parameters():
    layer = nn.Linear(2, 3, device="cpu", dtype=gw.float64)
    assert layer.weight.dtype is layer.bias.dtype is gw.float64
    assert nn.BatchNorm1d(2, dtype=gw.float64).running_var.dtype is gw.float64


def test_nothing_here_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))(
            gw.ones(3, 1, 4, 4)
        )


# Utilities.


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1000.0])
def test_clipped_gradients_are_pytorchs(norm_type, max_norm):
    x = draw(4, 3)
    results = []
    for library in (gw, torch):
        params = [library.tensor(x, requires_grad=True), library.tensor(x[0], requires_grad=True)]
        (params[0] ** 3 * params[1]).sum().backward()
        total = library.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
        results.append((total, params[0].grad, params[1].grad))
    for ours, theirs in zip(*results, strict=True):
        assert_same(ours, theirs)


def test_gradients_are_clamped_by_value():
    w = gw.tensor([1.0, -3.0], requires_grad=True)
    (w**2).sum().backward()
    nn.utils.clip_grad_value_([w, gw.ones(1, requires_grad=True)], 2.5)
    assert w.grad.tolist() == [2.0, -2.5]


def test_infinite_norm_is_refused_where_asked():
    w = gw.tensor([1.0], requires_grad=True)
    w.grad = gw.tensor([float("inf")])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)


def test_parameters_go_to_a_vector_and_back():
    layer = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (9,)
    nn.utils.vector_to_parameters(gw.arange(9.0), layer.parameters())
    assert layer.weight.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert layer.bias.tolist() == [6.0, 7.0, 8.0]
    assert layer.weight.is_leaf
    assert layer.weight.requires_grad
