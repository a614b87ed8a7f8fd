"""Random numbers: seeds, states and separate generators."""

import pytest

import gradwire
from tests.client.oracle import agree, refuse

pytestmark = pytest.mark.usefixtures("session")


def draw(**options):
    return gradwire.rand(5, **options).tolist()


def test_a_seed_starts_the_same_numbers_over():
    gradwire.manual_seed(7)
    first = draw(), draw()
    gradwire.manual_seed(7)
    assert (draw(), draw()) == first
    gradwire.manual_seed(8)
    assert draw() != first[0]
    assert gradwire.initial_seed() == 8


def test_a_restored_state_continues_the_sequence():
    gradwire.manual_seed(7)
    draw()
    state = gradwire.get_rng_state()
    following = draw()
    draw()
    gradwire.set_rng_state(state)
    assert draw() == following


def test_negative_seeds_wrap_and_larger_than_64_bits_are_refused():
    assert gradwire.manual_seed(-1).initial_seed() == 2**64 - 1
    with pytest.raises((ValueError, RuntimeError), match="Overflow"):
        gradwire.manual_seed(2**64)


def test_a_generator_has_numbers_of_its_own():
    gradwire.manual_seed(7)
    undisturbed = draw(), draw()
    generator = gradwire.Generator().manual_seed(3)
    gradwire.manual_seed(7)
    mine = [draw()]
    own = [draw(generator=generator)]
    mine.append(draw())
    own.append(draw(generator=generator))
    assert tuple(mine) == undisturbed
    assert own[0] != own[1]
    generator.manual_seed(3)
    assert [draw(generator=generator), draw(generator=generator)] == own


def test_a_generators_state_can_be_kept():
    generator = gradwire.Generator().manual_seed(3)
    draw(generator=generator)
    state = generator.get_state()
    following = gradwire.normal(0.0, 1.0, (4,), generator=generator).tolist()
    generator.set_state(state)
    assert gradwire.normal(0.0, 1.0, (4,), generator=generator).tolist() == following


def test_every_kind_of_draw_takes_a_generator():
    def all_kinds():
        generator = gradwire.Generator().manual_seed(11)
        weights = gradwire.tensor([0.1, 0.2, 0.7])
        made = [
            gradwire.randn(3, generator=generator),
            gradwire.randint(0, 100, (3,), generator=generator),
            gradwire.randint(100, (3,), generator=generator),
            gradwire.randperm(6, generator=generator),
            gradwire.bernoulli(weights, generator=generator),
            gradwire.multinomial(weights, 2, generator=generator),
        ]
        return [each.tolist() for each in made]

    assert all_kinds() == all_kinds()


def test_two_sessions_draw_apart(session, server_address):
    other = gradwire.connect(server_address)
    with other:
        gradwire.manual_seed(1)
        first = draw()
        gradwire.manual_seed(1)
    with session:
        gradwire.manual_seed(2)
        draw()
    with other:
        assert draw() == first
    other.close()


def test_randint_like_takes_one_bound_and_normal_gives_zero_gradients():
    def case(t):
        t.manual_seed(0)
        mean, std = t.zeros(3, requires_grad=True), t.ones(3, dtype=t.float64, requires_grad=True)
        drawn = t.normal(mean, 1.0)
        drawn.sum().backward()
        t.normal(0.0, std).sum().backward()
        whole = t.randint_like(mean, 5), t.randint_like(mean, 2, 5, dtype=t.int64)
        return (
            *[each.detach() for each in whole],
            drawn.detach(),
            mean.grad,
            std.grad,
            t.normal(0.0, 1.0, (2,), layout=t.strided),
        )

    agree(case)


def test_a_draw_from_a_generator_waits_twice(deferring, monkeypatch):
    generator = gradwire.Generator().manual_seed(3)
    waits, waited = [], type(deferring)._await
    draws = []
    for _ in range(4):
        draws.append(gradwire.rand(2, generator=generator))  # its call site waits at first
        if len(draws) == 2:
            counting = lambda self, *args: (waits.append(1), waited(self, *args))[1]  # noqa: E731
            monkeypatch.setattr(type(deferring), "_await", counting)
    assert len(waits) == 4
    monkeypatch.undo()
    again = gradwire.Generator().manual_seed(3)
    assert [each.tolist() for each in draws] == [gradwire.rand(2, generator=again).tolist() for _ in range(4)]


def test_an_error_in_a_draw_from_a_generator_leaves_the_sessions_numbers(deferring):
    gradwire.manual_seed(4)
    expected = gradwire.rand(3).tolist()
    gradwire.manual_seed(4)
    generator = gradwire.Generator().manual_seed(3)
    with pytest.raises(RuntimeError):
        gradwire.multinomial(gradwire.tensor([-1.0, 1.0]), 1, generator=generator)
    generator.set_state(gradwire.zeros(7, dtype=gradwire.uint8))
    with pytest.raises(ValueError):
        gradwire.rand(3, generator=generator)
    assert gradwire.rand(3).tolist() == expected


def test_numbers_are_drawn_into_out():
    def case(t):
        drawn = []
        for draw in (
            lambda: t.normal(t.zeros(20), 2.0, out=t.empty(20)),
            lambda: t.normal(1.0, t.ones(20), out=t.empty(20, dtype=t.float64)),
            lambda: t.normal(1.0, 0.5, (3,), out=t.empty(0)),
            lambda: t.bernoulli(t.full((4,), 0.5), out=t.empty(4)),
            lambda: t.multinomial(t.full((4,), 0.5), 2, out=t.empty(2, dtype=t.int64)),
            lambda: t.rand(20, out=t.empty(20, dtype=t.float64)),
            lambda: t.randint(5, (2,), out=t.empty(2)),
            lambda: t.randperm(5, out=t.empty(5, dtype=t.int64)),
            lambda: t.arange(3, out=t.empty(3)),
            lambda: t.full((2,), 3, out=t.empty(2)),
            lambda: t.randint_like(t.zeros(4), high=5),
            lambda: t.randint_like(t.zeros(4), 2, high=5),
            lambda: t.randint_like(t.zeros(4), low=2, high=5),
        ):
            t.manual_seed(3)
            drawn.append(draw())
        target = t.empty(3)
        return [*drawn, t.normal(t.zeros(3), 1.0, out=target) is target]

    agree(case)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "phrase"),
    [
        ("uint8", 0, 300, "to - 1 is out of bounds for unsigned char"),
        ("uint8", -1, 3, "from is out of bounds for unsigned char"),
        ("bool", 0, 3, "to - 1 is out of bounds for bool"),
        ("float16", 0, 100000, "to - 1 is out of bounds for c10::Half"),
        ("float16", -100000, 3, "from is out of bounds for c10::Half"),
    ],
)
def test_bounds_beyond_the_dtype_are_refused(dtype, low, high, phrase):
    refuse(lambda t: t.randint_like(t.zeros(2, dtype=getattr(t, dtype)), low, high), RuntimeError, phrase)
    refuse(lambda t: t.randint(low, high, (2,), dtype=getattr(t, dtype)), RuntimeError, phrase)
    refuse(lambda t: t.zeros(2, dtype=getattr(t, dtype)).random_(low, high), RuntimeError, phrase)


def test_low_alone_is_refused():
    refuse(lambda t: t.randint_like(t.zeros(2), 3, low=1), TypeError, "randint_like")
    refuse(lambda t: t.randint_like(t.zeros(2)), TypeError, "randint_like")
