"""Small functions of PyTorch that libraries call: checks, hooks of all modules, grouped heads, lists of tensors."""

import pytest

import gradwire
from tests.client.oracle import agree, refuse, torch

pytestmark = pytest.mark.usefixtures("session")

CHECKS = {
    "_check": RuntimeError,
    "_check_index": IndexError,
    "_check_value": ValueError,
    "_check_type": TypeError,
    "_check_not_implemented": NotImplementedError,
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_raises_its_kind_with_its_message(name):
    agree(lambda t: getattr(t, name)(True, lambda: "it is"))
    refuse(lambda t: getattr(t, name)(False, lambda: "it is not"), CHECKS[name], "it is not")
    refuse(lambda t: getattr(t, name)(False), CHECKS[name], "Expected cond to be True")


def test_asserts_raise():
    refuse(lambda t: t._assert(t.tensor(1) > 2, "too small"), AssertionError, "too small")
    refuse(lambda t: t._assert_async(t.tensor(False)), RuntimeError, "Expected")
    refuse(lambda t: t._check_is_size(-1), RuntimeError, "Expected|size")
    agree(lambda t: [t.sym_int(2.0), t.sym_max(2, 3), t.sym_min(2, 3), t.sym_not(True), isinstance(3, t.SymInt)])


def test_hooks_of_all_modules_run_before_their_own_until_removed():
    def case(t):
        seen = []
        module = t.nn.modules.module
        first, second = t.nn.Linear(2, 2), t.nn.Sequential(t.nn.ReLU(), t.nn.Tanh())
        second.register_forward_hook(lambda each, args, output: seen.append("own"))
        handles = [
            module.register_module_forward_pre_hook(lambda each, args: seen.append(("before", type(each).__name__))),
            module.register_module_forward_hook(lambda each, args, output: seen.append(("after", type(each).__name__))),
            module.register_module_forward_hook(
                lambda each, args, named, output: seen.append(sorted(named)), with_kwargs=True
            ),
        ]
        first(t.ones(1, 2))
        second(input=t.ones(1, 2))
        for handle in handles:
            handle.remove()
        first(t.ones(1, 2))
        replaced = module.register_module_forward_hook(lambda each, args, output: output * 0 + 7)
        changed = t.nn.ReLU()(t.ones(2))
        replaced.remove()
        given = module.register_module_forward_pre_hook(lambda each, args: (args[0] - 3,))
        shifted = t.nn.Identity()(t.ones(2))
        given.remove()
        return seen, changed, shifted

    agree(case)


@pytest.mark.parametrize(("heads", "grouped"), [(6, 2), (4, 1), (3, 3)])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads_of_attention_have_pytorchs_values_and_gradients(heads, grouped, causal):
    def case(t):
        def given(count, start):
            made = t.arange(2 * count * 5 * 4, dtype=t.float64).reshape(2, count, 5, 4)
            return ((made + start) * 0.7).sin().requires_grad_()

        query, key, value = given(heads, 1.0), given(grouped, 2.0), given(grouped, 3.0)
        made = t.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)
        (made * made.detach().cos()).sum().backward()
        return made.detach(), query.grad, key.grad, value.grad

    agree(case)


def test_heads_that_do_not_divide_are_refused():
    def case(t):
        ones = t.ones(1, 3, 5, 4), t.ones(1, 2, 5, 4)
        return t.nn.functional.scaled_dot_product_attention(ones[0], ones[1], ones[1], enable_gqa=True)

    refuse(case, RuntimeError, "divide")


@pytest.mark.parametrize("count", [10, 11, 3])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_share_the_samples_as_in_pytorch(count, drop_last, shuffle):
    def case(t):
        kind, found = t.utils.data.distributed.DistributedSampler, []
        for rank in range(4):
            sampler = kind(range(count), 4, rank, shuffle=shuffle, seed=5, drop_last=drop_last)
            sampler.set_epoch(2)
            found.append([len(sampler), *sampler])
        return found

    agree(case)


def test_a_rank_out_of_range_is_refused():
    refuse(lambda t: t.utils.data.distributed.DistributedSampler([1], 2, 2), ValueError, "Invalid rank 2")


def test_checks_of_distributions_are_a_setting_of_the_class():
    def case(t):
        before = t.distributions.Distribution._validate_args
        t.distributions.Distribution.set_default_validate_args(False)
        unchecked = t.distributions.Normal(0.0, -1.0).scale
        found = t.distributions.Normal._validate_args
        t.distributions.Distribution.set_default_validate_args(True)
        return before, unchecked, found

    agree(case)


def test_a_divergence_is_registered_for_a_class_beside_distributions():
    def case(t):
        class Own:
            pass

        class Both(Own, t.distributions.Normal):
            pass

        t.distributions.register_kl(Own, Own)(lambda p, q: p.loc - q.loc)
        return t.distributions.kl_divergence(Both(3.0, 1.0), Both(1.0, 1.0))

    agree(case)


def test_a_dependent_constraint_of_an_argument_is_not_checked():
    def case(t):
        class Point(t.distributions.Distribution):
            arg_constraints = {"v": t.distributions.constraints.dependent}  # noqa: RUF012

            def __init__(self, v):
                self.v = v
                super().__init__(v.shape, validate_args=True)

        return Point(t.ones(2)).batch_shape

    agree(case)


def test_a_function_of_layers_can_be_overridden():
    def case(t):
        class Own:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return func.__name__

        return t.nn.functional.linear(Own(), t.ones(2, 2)), t.exp(Own())

    agree(case)


def test_tensors_are_grouped_by_device_and_dtype():
    def case(t):
        group = __import__(f"{t.__name__}.utils._foreach_utils", fromlist=["_"])._group_tensors_by_device_and_dtype
        one, other, third = t.ones(1), t.ones(2).double(), t.ones(3)
        found = group([[one, other, third], [third, None, one]], with_indices=True)
        return [(name, found[t.device("cpu"), getattr(t, name)]) for name in ("float32", "float64")]

    agree(case)


@pytest.mark.parametrize("other", ["detached", "same", "part"])
def test_lists_whose_tensors_share_memory_are_changed_one_after_the_other(other):
    def program(t):
        x = t.arange(4.0)
        tensors = [x, {"detached": x.detach(), "same": x, "part": x[:2]}[other]]
        t._foreach_add_(tensors, 1.0)
        t._foreach_mul_(tensors, [2.0, 3.0])
        t._foreach_addcmul_(tensors, tensors, tensors, value=0.5)
        t._foreach_sqrt_(tensors)
        return [*tensors, *t._foreach_add(tensors, tensors)]

    agree(program)


def test_lists_of_other_lengths_are_refused_before_anything_changes():
    x = gradwire.zeros(2)
    with pytest.raises(RuntimeError, match="got 2 and 1"):
        gradwire._foreach_add_([x, x], [x])
    assert x.tolist() == [0, 0]


def test_an_op_has_overloads_as_objects():
    def told(t):
        op = t.ops.aten.sin
        names = [str(op), repr(op), str(op.default), repr(op.default), op.__name__, op.default.__name__]
        same = op.default is t.ops.aten.sin.default, op.default.overloadpacket is op, op.default == op
        kinds = [isinstance(op.default, kind) for kind in (t._ops.OpOverload, t._ops.OpOverloadPacket)]
        same += *kinds, hasattr(op.default, "other")
        return names, same, t.ops.aten.mul.Tensor.name(), op.default.name(), op.default(t.ones(2))

    agree(told)


def test_a_list_of_a_selective_checkpoint_has_overloads():
    def contexts(t, given):
        from_path = t.utils.checkpoint.create_selective_checkpoint_contexts
        return from_path(given)

    refuse(lambda t: contexts(t, [2]), ValueError, "Expected op in `op_list` to be an OpOverload")
    refuse(lambda t: contexts(t, [t.ops.aten.sin]), ValueError, "update the OpOverloadPacket to a specific OpOverload")
    refuse(lambda t: contexts(t, 2), TypeError, "either a function or a list of ops")
    with pytest.raises(ValueError, match="to be an OpOverload but got"):  # that of another package would keep nothing
        contexts(gradwire, [torch.ops.aten.sin.default])
    assert len(contexts(gradwire, [gradwire.ops.aten.sin.default])) == 2


@pytest.mark.parametrize("inverse", [True, False])
def test_inner_functions_of_unique(inverse):
    def told(t):
        x = t.tensor([3.0, 1.0, 3.0, 2.0])
        return *t._unique(x, return_inverse=inverse), *t._unique2(x, True, inverse, True), *t._VF.unique_dim(x, 0)

    agree(told)


def test_resize_is_a_function_of_autograd():
    def told(t):
        import importlib

        resize = importlib.import_module(f"{t.__name__}.autograd._functions").Resize
        x = t.arange(6.0, requires_grad=True)
        y = resize.apply(x.clone(), (2, 3))
        (y * y).sum().backward()
        return y.detach(), x.grad

    agree(told)


def test_ops_of_the_profiler_mark_a_range():
    def told(t):
        with t.autograd.profiler.profile() as profile:
            handle = t.ops.profiler._record_function_enter("a range", None)
            t.ones(3) * 2
            t.ops.profiler._record_function_exit(handle)
        return [event.count for event in profile.function_events if event.name == "a range"]

    agree(told)


def _custom(t, name, function):
    """An op of the library, made anew for each test."""
    return f"{t.__name__}_{name}::op", t.library.custom_op(f"{t.__name__}_{name}::op", function, mutates_args=())


def test_a_derivative_takes_names_and_defaults():
    def told(t):
        def scaled(x: t.Tensor, factor: float = 2.0, *, shift: float = 1.0) -> t.Tensor:
            return x.detach() * factor + shift

        def setup(ctx, inputs, keyword_only_inputs, output):
            seen.append((len(inputs), inputs[1], keyword_only_inputs["shift"]))
            ctx.factor = inputs[1]

        seen, x = [], t.ones(2, requires_grad=True)
        name, op = _custom(t, "named", scaled)
        t.library.register_autograd(name, lambda ctx, grad: (grad * ctx.factor * 10, None), setup_context=setup)
        made = [op(x), op(x, 3.0), op(x=x, factor=4.0), op(x, shift=5.0)]
        return [(y.detach(), t.autograd.grad(y.sum(), x)[0]) for y in made], seen

    agree(told)


def test_an_op_that_is_made_anew_has_no_rules_of_the_earlier_one():
    def made(t, x):
        def product(x: t.Tensor) -> t.Tensor:
            return x @ x

        for _ in range(2):
            _, op = _custom(t, "anew", product)
            with t.autocast("cpu"):
                found = op(x)
            op.register_autocast("cpu", t.float32)
            op.register_autograd(lambda ctx, grad: grad * 7)
        return found

    agree(lambda t: made(t, t.eye(2)).dtype == t.bfloat16)
    x = gradwire.eye(2, requires_grad=True)
    made(gradwire, x).sum().backward()
    assert x.grad.tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("by_object", [True, False])
def test_an_op_is_cast_by_its_own_rule_of_autocast(by_object):
    def told(t):
        def product(x: t.Tensor, y: t.Tensor) -> t.Tensor:
            seen.append([str(each.dtype).rpartition(".")[2] for each in (x, y, x @ x)])
            return x @ x + 1

        seen, x = [], (t.arange(9.0).reshape(3, 3) * 0.1).requires_grad_()
        name, op = _custom(t, f"cast{by_object}", product)
        register = op.register_autocast if by_object else lambda *rule: t.library.register_autocast(name, *rule)
        register("cpu", t.float16)
        register("cuda", t.bfloat16)
        register("cpu", t.float32)  # has no effect
        op.register_autograd(lambda ctx, grad: (grad * 2, None))
        with t.autocast("cpu"):
            first = op(x, x.long())
            with t.autocast("cpu", enabled=False):
                second = op(x, x)
            third = op(x.double(), x)
        (slope,) = t.autograd.grad(first.float().sum(), x)
        return first.detach(), second.detach(), third.dtype == t.float64, slope, seen

    agree(told)
    refuse(lambda t: t.library.register_autocast("a::b", "vulkan", t.float16), ValueError, "does not support autocast")
