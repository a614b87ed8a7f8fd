// Custom functions, hooks of nodes and snapshots, against a live server.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "support.hpp"

namespace {

using namespace gradwire;
using Gradients = std::vector<Tensor>;
using Values = std::vector<float>;

#define NEEDS_A_SESSION() \
    NEEDS_A_SERVER();     \
    Session session(support::address())

/// What the error of a function says.
template <class Work>
std::string told(Work work) {
    try {
        work();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The code of docs/languages/cpp.md.
// Manual begins
struct Square : gradwire::Function<Square> {
    static Tensor forward(AutogradContext& context, const Tensor& x) {
        context.save_for_backward({x});
        return x * x;
    }
    static std::vector<Tensor> backward(AutogradContext& context, const std::vector<Tensor>& gradients) {
        return {context.get_saved_variables()[0] * gradients[0] * 2};
    }
};
// Manual ends

TEST(Functions, TheManualsIsTested) {
    const std::string tested = support::contents(GRADWIRE_SOURCE "/tests/function_test.cpp");
    const std::string begins = "// Manual begins\n";
    const auto begin = tested.find(begins) + begins.size();
    const std::string block = tested.substr(begin, tested.find("// Manual ends", begin) - begin);
    EXPECT_TRUE(contains(support::contents(GRADWIRE_SOURCE "/../../docs/languages/cpp.md"), "```cpp\n" + block));
}

TEST(Functions, HaveTheProgramsDerivativeWhichCanBeDifferentiated) {
    NEEDS_A_SESSION();
    const auto x = session.tensor({1.f, 2.f, 3.f}).requires_grad_();
    const auto y = Square::apply(x);
    EXPECT_EQ(y.grad_fn().name(), "SquareBackward");
    const auto first = grad({y.sum()}, {x}, {.create_graph = true})[0];
    EXPECT_EQ(first.to_vector<float>(), (Values{2, 4, 6}));
    first.sum().backward();
    EXPECT_EQ(x.grad().to_vector<float>(), (Values{2, 2, 2}));
}

/// a + scale * the sum of the others, and which elements of it are positive.
template <class Unused>
struct Weighted : Function<Weighted<Unused>> {
    static Gradients forward(AutogradContext& context, const Tensor& a, double scale, const Gradients& others) {
        auto sum = a;
        for (const Tensor& each : others) sum = sum + each * scale;
        context.saved_data["scale"] = scale;
        const auto positive = (sum > 0).to({.dtype = DType::Float32});
        context.mark_non_differentiable({positive});
        return {sum, positive};
    }
    static Gradients backward(AutogradContext& context, const Gradients& gradients) {
        const double scale = std::any_cast<double>(context.saved_data.at("scale"));
        return {gradients[0], Tensor(), gradients[0] * scale, gradients[0] * scale * 2};
    }
};

TEST(Functions, TakeNumbersAndListsAndMayHaveSeveralResults) {
    NEEDS_A_SESSION();
    const auto a = session.tensor({1.f, -9.f}).requires_grad_();
    const auto b = session.tensor({2.f, 3.f}).requires_grad_();
    const auto results = Weighted<int>::apply(a, 0.5, Gradients{b, b});
    EXPECT_EQ(results[0].to_vector<float>(), (Values{3, -6}));
    EXPECT_EQ(results[1].to_vector<float>(), (Values{1, 0}));
    EXPECT_FALSE(results[1].describe().requires_grad);
    EXPECT_EQ(results[0].grad_fn().name(), "WeightedBackward");
    results[0].sum().backward();
    EXPECT_EQ(a.grad().to_vector<float>(), (Values{1, 1}));
    EXPECT_EQ(b.grad().to_vector<float>(), (Values{1.5, 1.5}));
}

struct Doubled : Function<Doubled> {
    static Tensor forward(AutogradContext& context, const Tensor& x) {
        x.mul_(2);
        context.mark_dirty({x});
        return x;
    }
    static Gradients backward(AutogradContext&, const Gradients& gradients) { return {gradients[0] * 2}; }
};

struct Identity : Function<Identity> {
    static Tensor forward(AutogradContext&, const Tensor& x) { return x; }
    static Gradients backward(AutogradContext&, const Gradients& gradients) { return {gradients[0] * 7}; }
};

TEST(Functions, MayChangeOrReturnTheirInputs) {
    NEEDS_A_SESSION();
    const auto x = session.tensor({1.f, 2.f}).requires_grad_();
    const auto changed = x * 3;
    Doubled::apply(changed);
    EXPECT_EQ(changed.to_vector<float>(), (Values{6, 12}));
    Identity::apply(changed).sum().backward();
    EXPECT_EQ(x.grad().to_vector<float>(), (Values{42, 42}));
    EXPECT_TRUE(contains(told([&] {
                             Doubled::apply(x);
                             session.wait();
                         }),
                         "a leaf Variable that requires grad"));
}

struct Undefined : Function<Undefined> {
    static inline bool defined = true;
    static Gradients forward(AutogradContext& context, const Tensor& x) {
        context.set_materialize_grads(false);
        return {x * 1, x * 1};
    }
    static Gradients backward(AutogradContext&, const Gradients& gradients) {
        defined = gradients[1].defined();
        return {gradients[0]};
    }
};

TEST(Functions, GetNoZerosIfTheyWantNone) {
    NEEDS_A_SESSION();
    const auto x = session.tensor({1.f}).requires_grad_();
    Undefined::apply(x)[0].backward();
    EXPECT_FALSE(Undefined::defined);
}

TEST(Functions, RecordNothingWithoutAGraph) {
    NEEDS_A_SESSION();
    const auto x = session.tensor({3.f}).requires_grad_();
    {
        NoGradGuard guard;
        EXPECT_FALSE(Square::apply(x).describe().requires_grad);
    }
    InferenceModeGuard guard;
    EXPECT_EQ(Square::apply(x).item(), 9);
}

struct TooMany : Function<TooMany> {
    static Tensor forward(AutogradContext&, const Tensor& x) { return x * 1; }
    static Gradients backward(AutogradContext&, const Gradients& gradients) { return {gradients[0], gradients[0]}; }
};

struct ForANumber : Function<ForANumber> {
    static Tensor forward(AutogradContext&, double factor, const Tensor& x) { return x * factor; }
    static Gradients backward(AutogradContext&, const Gradients& gradients) { return {gradients[0], gradients[0]}; }
};

struct Foreign : Function<Foreign> {
    static Tensor forward(AutogradContext& context, const Tensor& x, const Tensor& foreign) {
        context.save_for_backward({foreign});
        return x * 1;
    }
    static Gradients backward(AutogradContext&, const Gradients& gradients) { return gradients; }
};

TEST(Functions, MistakesAreTold) {
    NEEDS_A_SESSION();
    Session other(support::address());
    const auto x = session.tensor({1.f, 2.f}).requires_grad_();
    const auto foreign = other.tensor({1.f});
    EXPECT_TRUE(contains(told([&] { TooMany::apply(x).sum().backward(); }),
                         "function TooManyBackward returned an incorrect number of gradients (expected 1, got 2)"));
    EXPECT_TRUE(contains(told([&] { ForANumber::apply(2.0, x).sum().backward(); }),
                         "ForANumberBackward returned a gradient different than None at position 1, but the "
                         "corresponding forward input was not a Variable"));
    EXPECT_THROW(Foreign::apply(x, foreign), ArgumentValueError);
    EXPECT_THROW(Square::apply(Tensor()), ArgumentTypeError);
    EXPECT_THROW(session.trace({{.shape = {2}}}, 0,
                               [](Session&, const Gradients& inputs, const auto&) {
                                   return Gradients{Square::apply(inputs[0])};
                               }),
                 NotSupportedError);
    EXPECT_EQ((x * 2).to_vector<float>(), (Values{2, 4})) << "the session survives";
}

TEST(Functions, AreForgottenWithTheirGraphs) {
    NEEDS_A_SESSION();
    const auto held = std::make_shared<int>(0);
    struct Holding : Function<Holding> {
        static Tensor forward(AutogradContext& context, const Tensor& x, std::shared_ptr<int> value) {
            context.saved_data["held"] = std::move(value);
            const auto result = x * 2;
            context.save_for_backward({x, result});
            return result;
        }
        static Gradients backward(AutogradContext&, const Gradients& gradients) { return {gradients[0] * 2, {}}; }
    };
    const auto x = session.tensor({1.f}).requires_grad_();
    for (int i = 0; i < 20; ++i) Holding::apply(x, held).backward();
    EXPECT_EQ(x.grad().item(), 40);
    for (int i = 0; i < 1000 && held.use_count() > 1; ++i) {  // the server tells it in an answer
        session.wait();
        x.describe();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(held.use_count(), 1);
}

TEST(Nodes, HooksSeeAndReplaceGradients) {
    NEEDS_A_SESSION();
    const auto a = session.tensor({2.f}).requires_grad_();
    const auto b = session.tensor({5.f});
    const auto product = a * b;
    EXPECT_EQ(product.grad_fn().name(), "MulBackward0");
    EXPECT_EQ(a.grad_fn().name(), "");
    std::vector<float> seen;
    auto before =
        product.grad_fn().register_prehook([](const Gradients& outputs) { return Gradients{outputs[0] * 10}; });
    auto after = product.grad_fn().register_hook([&](const Gradients& inputs, const Gradients& outputs) {
        seen = {inputs[0].to_vector<float>()[0], inputs[1].defined() ? 1.f : 0.f, outputs[0].to_vector<float>()[0]};
        return Gradients{session.tensor({7.f}), Tensor()};
    });
    product.backward({.retain_graph = true});
    EXPECT_EQ(seen, (Values{50, 0, 10}));
    EXPECT_EQ(a.grad().item(), 7);
    before.remove();
    after.remove();
    a.zero_grad();
    int calls = 0;
    const auto counted = [&](const auto&...) { return ++calls, Gradients(); };
    product.grad_fn().register_prehook(counted);
    product.grad_fn().register_hook(counted);
    product.backward();
    EXPECT_EQ(a.grad().item(), 5);
    EXPECT_EQ(calls, 2);
}

TEST(Hooks, RunWithoutAGraphAsInPyTorch) {
    NEEDS_A_SESSION();
    const auto w = session.tensor({1.f, 2.f}).requires_grad_();
    std::vector<bool> recorded;
    const auto looking =
        w.register_hook([&](const Tensor& gradient) { recorded.push_back((gradient * w).describe().requires_grad); });
    const auto stepping =
        w.register_post_accumulate_grad_hook([](const Tensor& leaf) { leaf.sub_(leaf.grad() * 0.5); });
    w.sum().backward();
    EXPECT_EQ(w.to_vector<float>(), (Values{0.5, 1.5}));
    grad({w.sum()}, {w}, {.create_graph = true});
    EXPECT_EQ(recorded, (std::vector<bool>{false, true})) << "a graph is recorded for create_graph alone";
}

TEST(Snapshots, GoOnWhereTheyWereSaved) {
    NEEDS_A_SESSION();
    const std::string name = "cpp-snapshot";
    const auto w = session.tensor({1.f, 2.f, 3.f}).requires_grad_();
    const auto loss = (w * w).sum();
    session.manual_seed(3);
    try {
        session.save(name, {{"w", w}, {"loss", loss}, {"again", w}}, std::chrono::minutes(1));
    } catch (const NotSupportedError& error) {
        GTEST_SKIP() << error.what();
    }
    const auto drawn = session.rand({3}).to_vector<float>();
    {
        NoGradGuard guard;
        w.mul_(100);
    }
    const auto listed = session.snapshots();
    const auto found = std::find_if(listed.begin(), listed.end(), [&](const auto& each) { return each.name == name; });
    ASSERT_NE(found, listed.end());
    EXPECT_GT(found->bytes, 0U);
    EXPECT_GT(found->tensors, 0U);
    EXPECT_GT(found->time_left, std::chrono::milliseconds(0));
    EXPECT_LE(found->time_left, std::chrono::minutes(1));
    {
        auto [second, tensors] = restore(support::address(), name);
        EXPECT_EQ(tensors.size(), 3U);
        EXPECT_EQ(tensors.at("w").to_vector<float>(), (Values{1, 2, 3}));
        EXPECT_EQ(second.rand({3}).to_vector<float>(), drawn);
        tensors.at("loss").backward();
        EXPECT_EQ(tensors.at("again").grad().to_vector<float>(), (Values{2, 4, 6}));
        EXPECT_NE(second.id(), session.id());
        second.close();
    }
    session.delete_snapshot(name);
    try {
        restore(support::address(), name);
        ADD_FAILURE() << "a deleted snapshot is restored";
    } catch (const Error& error) {
        EXPECT_EQ(error.reason(), Reason::SnapshotNotFound);
    }
}

TEST(Snapshots, MistakesAreTold) {
    NEEDS_A_SESSION();
    Session other(support::address());
    const auto foreign = other.tensor({1.f});
    EXPECT_TRUE(contains(told([&] {
                             session.save("cpp-mistake", {{"w", foreign}});
                         }),
                         "\"w\" is a tensor of another session"));
    EXPECT_THROW(session.save("cpp-mistake", {{"w", Tensor()}}), ArgumentTypeError);
    EXPECT_THROW(session.save("no/name"), ArgumentValueError);
    session.close();
    EXPECT_THROW(session.save("cpp-mistake"), ClosedError);
    EXPECT_THROW(session.snapshots(), ClosedError);
}

}  // namespace
