"""Small functions of PyTorch's that programs and tests use, compared with PyTorch over a real socket."""

import warnings

import pytest

import gradwire
from tests.client.oracle import agree, refuse, torch

pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize("name", ["data", "requires_grad", "_grad_fn", "_backward_hooks"])
def test_what_describes_a_tensor_cannot_be_deleted(name):
    def case(t):
        with pytest.raises(RuntimeError) as caught:
            delattr(t.ones(2), name)
        return str(caught.value)

    assert case(gradwire) == case(torch)


def test_an_uninitialized_parameter_keeps_its_data():
    def case(t):
        with pytest.raises(RuntimeError) as caught:
            del t.nn.UninitializedParameter().data
        return str(caught.value)

    assert case(gradwire) == case(torch)


def test_a_deleted_attribute_of_the_program_is_gone():
    def case(t):
        x = t.ones(2)
        x.mark = 1
        del x.mark
        return hasattr(x, "mark")

    assert case(gradwire) is case(torch) is False


def test_no_python_runs_when_an_attribute_of_a_tensor_is_set():
    for kind in (gradwire.Tensor, gradwire.nn.Parameter):
        assert kind.__setattr__ is object.__setattr__
        assert kind.__delattr__ is object.__delattr__  # Python would call a class's own for both


def test_a_warning_given_once_is_given_each_time_on_request():
    def case(t):
        x = t.tensor(1.0)
        found = []
        for always in (True, False):
            t.set_warn_always(always)
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    for _ in range(3):
                        assert x.mT is not None
            finally:
                t.set_warn_always(False)
            found.append(len(caught))
        return found

    ours = case(gradwire)
    assert ours == [3, 0]
    assert gradwire.is_warn_always_enabled() is torch.is_warn_always_enabled() is False


def test_statistics_with_the_mean_are_a_plain_tuple():
    for name in ("std_mean", "var_mean"):
        agree(lambda t, name=name: getattr(t, name)(t.tensor([[1.0, 2.0], [4.0, 8.0]]), 0, keepdim=True))
        assert type(getattr(gradwire, name)(gradwire.ones(3))) is tuple


def test_names_of_types():
    assert [gradwire.typename(each) for each in (3, int, "a")] == [torch.typename(each) for each in (3, int, "a")]
    assert gradwire.typename(gradwire.nn.Linear).endswith("Linear")
    assert gradwire.is_storage(gradwire.ones(2).untyped_storage())
    assert not gradwire.is_storage(gradwire.ones(2))


def test_a_generator_returns_itself_when_its_state_is_set():
    one, other = gradwire.Generator(), gradwire.Generator()
    one.manual_seed(3)
    assert other.set_state(one.get_state()) is other
    assert gradwire.rand(2, generator=other).tolist() == gradwire.rand(2, generator=one.manual_seed(3)).tolist()


def test_multithreading_can_be_asked_for_and_read():
    assert gradwire._C._is_multithreading_enabled()
    with gradwire.autograd.set_multithreading_enabled(False):
        assert not gradwire._C._is_multithreading_enabled()
    assert gradwire._C._is_multithreading_enabled()


def test_whether_hooks_of_saved_tensors_are_allowed_can_be_read():
    enabled = gradwire._C._autograd._saved_tensors_hooks_is_enabled
    assert enabled()
    with gradwire.autograd.graph.disable_saved_tensors_hooks("not here"):
        assert not enabled()
    assert enabled()


def test_undefined_gradients_and_accumulating_nodes_have_names():
    def case(t):
        x = t.ones(2, requires_grad=True)
        made = t._C._functions.UndefinedGrad()(x * 2)
        found = t.autograd.grad(made.sum() + x.sum(), x)[0].tolist()
        return found, isinstance((x * 2).grad_fn.next_functions[0][0], t._C._functions.AccumulateGrad)

    assert case(gradwire) == case(torch)


def test_a_weak_reference_tells_whether_the_tensor_is_gone():
    x = gradwire.ones(2)
    reference = gradwire._C._WeakTensorRef(x)
    assert not reference.expired()
    del x
    assert reference.expired()


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x, y: t.einsum(x, [0, 1], y, [1, 2]),
        lambda t, x, y: t.einsum(x, [0, 1], y, [1, 2], [2, 0]),
        lambda t, x, y: t.einsum(x, [30, 2]),
        lambda t, x, y: t.einsum(x, [..., 51], y, [51, ...], [...]),
        lambda t, x, y: t.einsum("ij,jk", x, y),
        lambda t, x, y: t.einsum("ij,jk", [x, y]),
    ],
)
def test_einsum_takes_lists_of_labels(call):
    def case(t):
        x, y = t.arange(6.0).reshape(2, 3), t.arange(6.0).reshape(3, 2)
        x.requires_grad_()
        made = call(t, x, y)
        made.sum().backward()
        return made.detach(), x.grad

    agree(case)


def test_einsum_refuses_lists_as_pytorchs_does():
    refuse(lambda t: t.einsum(t.ones(2)), ValueError, "must specify the equation string and at least one operand, or")
    refuse(lambda t: t.einsum(t.ones(2), [52]), ValueError, r"not within the valid range \[0, 52\)")
    refuse(lambda t: t.einsum(t.ones(2), [-1]), ValueError, r"not within the valid range \[0, 52\)")


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_tensor_of_times_repeats_its_places(dtype):
    def case(t):
        times = t.tensor([2, 0, 3], dtype=getattr(t, dtype))
        named = t.repeat_interleave(repeats=times)
        return t.repeat_interleave(times), t.repeat_interleave(times, output_size=5), named

    agree(case)


def test_times_that_pytorch_refuses_are_refused():
    refuse(lambda t: t.repeat_interleave(t.ones(2, 2).long()), RuntimeError, "only accept 1D vector as repeat")
    refuse(
        lambda t: t.repeat_interleave(t.ones(2)), NotImplementedError, '"repeat_interleave_cpu" not implemented for \'F'
    )
    refuse(lambda t: t.repeat_interleave(t.tensor([-1, 2])), RuntimeError, "repeats can not be negative")
    refuse(
        lambda t: t.repeat_interleave(t.tensor([1, 2]), output_size=5), RuntimeError, "allocated size does not match"
    )


def test_a_wrong_output_size_is_refused():
    def repeat(t, repeats):
        return t.repeat_interleave(t.tensor([3, 4]), repeats, output_size=5)

    refuse(lambda t: repeat(t, 2), RuntimeError, "Invalid output_size, expected 4 but got 5")
    refuse(lambda t: repeat(t, t.tensor([2])), RuntimeError, "allocated size does not match required size")
    refuse(lambda t: repeat(t, t.tensor([2, 1])), RuntimeError, "allocated size does not match required size")


def test_denormal_numbers_are_not_flushed():
    assert gradwire.set_flush_denormal(True) is False
    assert float(gradwire.tensor(1e-40) * 1.0) > 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int16", "bool"])
def test_a_tensor_of_a_file(dtype, tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(1, 2)) * 64)

    def case(t):
        return [t.from_file(str(path), size=size, dtype=getattr(t, dtype)) for size in (0, 1, 5)]

    agree(case)
    refuse(lambda t: t.from_file(str(path), size=100, dtype=getattr(t, dtype), shared=False), RuntimeError, "of file")
    with pytest.raises(NotImplementedError, match="shared=True"):
        gradwire.from_file(str(path), shared=True, size=1)


def test_new_memory_of_elements():
    def case(t):
        made = t.TypedStorage(5, dtype=t.float64)
        return t.is_storage(made), len(made), str(made.dtype), made.nbytes()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agree(case)


def test_the_mode_of_gradients_layout_changes_no_value():
    def case(t):
        x = t.zeros(2, 3).t().requires_grad_()
        with t.autograd.enforce_grad_layout_policy(False):
            (x * 2).sum().backward()
        return x.grad

    agree(case)


def test_names_of_classes_and_handles():
    def case(t):
        x = t.ones(2, requires_grad=True)
        handle = t.autograd.graph.register_multi_grad_hook([x], print)
        handle.remove()
        mask = t.tensor([True, False])
        made = t.masked._ops.logaddexp(x.detach(), x.detach(), input_mask=mask, other_mask=mask)
        return type(handle).__name__, t.typename(t.nn.Parameter).partition(".")[2], made

    agree(case)


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", "bfloat16", "complex64"])
def test_powers_as_columns(dtype, increasing):
    def case(t):
        x = t.tensor([1, 2, 3, 5]).to(getattr(t, dtype))
        return [t.vander(x, count, increasing) for count in (None, 0, 1, 2, 5)]

    agree(case)
    refuse(lambda t: t.vander(t.ones(2), -1), RuntimeError, "N must be non-negative")


def test_an_output_that_is_part_of_a_tensor_takes_another_shape():
    def case(t):
        base = t.zeros(4, 6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            filled = t.linspace(0, 1, 8, out=base.narrow(1, 2, 2))
            made = t.logspace(0, 1, 3, out=base.narrow(1, 0, 2))
            t.add(t.ones(5), 2, out=base[3])
        return base, filled, made, made.stride()

    agree(case)
    base = gradwire.zeros(3)
    part = base[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="shares its memory"):
            gradwire.arange(5.0, out=part)


@pytest.mark.parametrize(
    "write",
    [
        lambda t, part: t.sub(part.t().clone(), 0, out=part),
        lambda t, part: t.mul(t.ones(2, 3).t(), t.arange(6.0).view(2, 3).t(), out=part),
        lambda t, part: t.cumsum(t.arange(6.0).view(2, 3).t(), 0, out=part),
        lambda t, part: t.neg(t.arange(3.0).expand(2, 3).t(), out=part),
        lambda t, part: t.where(part.t().clone() > 2, t.zeros(()), t.ones(2, 3).t(), out=part),
        lambda t, part: t.cat([t.arange(2.0).view(1, 2).t(), t.arange(4.0).view(2, 2).t()], 1, out=part.view(3, 2)),
        lambda t, part: t.cat([t.arange(3.0).view(1, 3).t(), t.arange(3.0).view(1, 3).t()], 1, out=part),
    ],
)
def test_an_output_of_another_shape_lies_in_memory_as_the_result_and_its_views_see_that(write):
    def case(t):
        part = t.arange(6.0).view(2, 3)
        view = part.t()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = write(t, part)
        return made, made.stride(), view

    agree(case)


def test_where_and_the_products_of_matrices_write_to_out():
    def case(t):
        x = t.arange(4.0).view(2, 2) + 1
        made, powers, chain = t.empty(2, 2), t.empty(0), t.empty(0)
        t.where(x > 2, x, t.zeros(()), out=made)
        t.where(made > 0, made, x, out=x)
        t.matrix_power(x, 3, out=powers)
        t.chain_matmul(x, x, out=chain)
        return made, x, powers, chain

    agree(case)
    refuse(
        lambda t: t.where(t.ones(2) > 0, t.ones(2), t.ones(2), out=t.empty(2, dtype=t.float64)),
        RuntimeError,
        "Expected out type to be Float but got Double",
    )
    refuse(lambda t: t.where(t.ones(2) > 0, out=t.empty(2)), TypeError, "where")


def test_where_refuses_numbers_with_an_out():
    for given in ((1.0, 2.0), (gradwire.ones(2), 2)):
        own = [torch.ones(2) if isinstance(each, gradwire.Tensor) else each for each in given]
        with pytest.raises(TypeError, match="must be Tensor, not") as theirs:
            torch.where(torch.ones(2) > 0, *own, out=torch.empty(2))
        with pytest.raises(TypeError) as ours:
            gradwire.where(gradwire.ones(2) > 0, *given, out=gradwire.empty(2))
        assert str(ours.value) == str(theirs.value)


def test_a_chain_of_one_matrix_is_copied_to_out_and_none_is_refused():
    def case(t):
        x, out = t.arange(4.0).view(2, 2), t.empty(2, 2)
        made = t.chain_matmul(x, out=out)
        x += 1
        return made is out, out

    agree(case)
    refuse(lambda t: t.chain_matmul(), RuntimeError, "Expected one or more matrices")


@pytest.mark.parametrize("name", ["complex", "polar"])
def test_parts_of_complex_numbers(name):
    for one, two in (("int64", "int64"), ("float32", "int64"), ("float32", "float64")):

        def case(t, one=one, two=two):
            with pytest.raises(RuntimeError) as caught:
                getattr(t, name)(t.ones(2, dtype=getattr(t, one)), t.ones(2, dtype=getattr(t, two)))
            return str(caught.value)

        found, wanted = case(gradwire), case(torch)
        assert found == wanted
    refuse(lambda t: getattr(t, name)(t.ones(2), t.ones(2), out=t.ones(2)), RuntimeError, "for argument 'out'")


def test_the_largest_of_all_dimensions():
    agree(lambda t: [t.amax(t.arange(6.0).view(2, 3), None), t.arange(6.0).view(2, 3).amin(dim=None, keepdim=True)])


def test_functions_are_forked_and_waited_for_by_their_old_names():
    def case(t):
        made = t.jit._wait(t.jit._fork(lambda x, y: x * y, t.tensor([1.0, 2.0]), t.tensor(3.0)))
        return made, t.jit.wait(t.jit.fork(t.sin, made))

    agree(case)
