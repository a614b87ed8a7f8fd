// Promises that need a live server: typed ops, errors, releases, threads, bulk, programs and files.
#include <grpcpp/client_context.h>

#include <atomic>
#include <cmath>
#include <iostream>
#include <limits>
#include <thread>

#include "digits.hpp"
#include "exported.hpp"
#include "gradwire/client.hpp"
#include "line.hpp"
#include "support.hpp"

namespace {

using namespace gradwire;

void expect_values(const Tensor& tensor, const std::vector<double>& wanted) {
    const auto found = tensor.to_doubles();
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-4) << "at " << i;
}

/// The error that a function throws.
template <class Function>
Failure failure_of(Function function) {
    try {
        function();
    } catch (const Error& error) {
        return error.failure();
    }
    ADD_FAILURE() << "no error";
    return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::uint64_t tensors_of(Session& session) {
    session.wait();
    grpc::ClientContext context;
    authenticate(session, context);
    v1::DescribeRequest request;
    v1::DescribeResponse response;
    request.set_session_id(session.id());
    EXPECT_TRUE(stub(session)->Describe(&context, request, &response).ok());
    return response.tensor_count();
}

#define NEEDS_A_SESSION() \
    NEEDS_A_SERVER();     \
    Session session(support::address())

// The code of README.md, but for the address.
void readme(const std::string& address) {
    // README begins
    gradwire::Session session(address);
    auto x = session.tensor({0.f, 1.f, 2.f, 3.f});
    auto y = session.tensor({-1.f, 2.f, 5.f, 8.f});
    auto w = session.tensor({0.f}).requires_grad_();
    for (int step = 0; step < 300; ++step) {
        auto loss = gradwire::functional::mse_loss(x * w - 1, y);
        loss.backward();
        gradwire::NoGradGuard guard;
        w -= w.grad() * 0.1;
        w.zero_grad();
    }
    double slope = w.item();
    std::cout << slope << "\n";  // 3
    // README ends
    EXPECT_NEAR(slope, 3, 1e-4);
}

TEST(Readme, Trains) {
    NEEDS_A_SERVER();
    readme(support::address());
}

TEST(Readme, IsTested) {
    const std::string page = support::contents(GRADWIRE_SOURCE "/README.md");
    const std::string tested = support::contents(GRADWIRE_SOURCE "/tests/session_test.cpp");
    const auto cut = [](const std::string& text, const std::string& from, const std::string& to) {
        const auto begin = text.find(from) + from.size();
        return text.substr(begin, text.find(to, begin) - begin);
    };
    std::string block = cut(page, "```cpp\n", "```");
    const std::string manual = support::contents(GRADWIRE_SOURCE "/../../docs/languages/cpp.md");
    EXPECT_EQ(block, cut(manual, "```cpp\n", "```"));
    const std::string given = "\"127.0.0.1:50051\"";
    ASSERT_TRUE(contains(block, given));
    block.replace(block.find(given), given.size(), "address");
    std::string indented;
    std::istringstream lines(block);
    for (std::string line; std::getline(lines, line);) indented += "    " + line + "\n";
    EXPECT_EQ(indented, cut(tested, "// README begins\n", "    // README ends"));
}

TEST(Examples, ALineIsFitted) {
    NEEDS_A_SERVER();
    const auto [slope, intercept] = fit_line(support::address());
    EXPECT_NEAR(slope, 3, 1e-3);
    EXPECT_NEAR(intercept, -1, 1e-3);
}

TEST(Examples, AnExportedModelTrainsAsInPyTorch) {
    NEEDS_A_SERVER();
    const auto losses = train_exported(support::address(), support::conformance());
    ASSERT_FALSE(losses.empty());
    for (const auto& [found, wanted] : losses) EXPECT_NEAR(found, wanted, 1e-5 * wanted);
    const std::string told = support::variable("GRADWIRE_LOSSES");
    if (told.empty()) return;
    const std::vector<double> pythons = support::Json::parse(told).reals();
    ASSERT_EQ(losses.size(), pythons.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
        EXPECT_EQ(losses[i].first, pythons[i]) << "Python's client has another loss in step " << i;
    }
}

TEST(Examples, DigitsAreLearned) {
    NEEDS_A_SERVER();
    EXPECT_GE(digits::train(support::address(), GRADWIRE_SOURCE "/../../examples/data/digits.csv.gz", 30), 0.93);
}

TEST(Ops, AreThoseOfTheServer) {
    NEEDS_A_SESSION();
    grpc::ClientContext context;
    authenticate(session, context);
    v1::ListOpsRequest request;
    v1::ListOpsResponse response;
    request.set_known_hash(ops_hash);
    ASSERT_TRUE(stub(session)->ListOps(&context, request, &response).ok());
    EXPECT_EQ(response.hash(), ops_hash) << "run `python -m tools.sdk_ops`";
    EXPECT_EQ(response.ops_size(), 0);
}

TEST(Ops, TakeTypedArguments) {
    NEEDS_A_SESSION();
    const auto a = session.tensor({3.f, 1.f, 2.f, 6.f, 5.f, 4.f}, {2, 3});
    const auto [values, indices] = a.sort({.descending = true});
    expect_values(values, {3, 2, 1, 6, 5, 4});
    expect_values(indices, {0, 2, 1, 0, 1, 2});
    const auto [best, at] = a.max_dim(1);
    expect_values(best, {3, 6});
    expect_values(at, {0, 0});
    expect_values(a.max(), {6});
    expect_values(a.sum({.dim = 0}), {9, 6, 6});
    expect_values(a.sum({.dim = {0, 1}, .keepdim = true}), {21});
    expect_values(a.clamp({.min = 2, .max = 4.5}), {3, 2, 2, 4.5, 4.5, 4});
    expect_values(cat({a, a}).sum(), {42});
    expect_values(session.arange(4), {0, 1, 2, 3});
    expect_values(a.index({1, slice(0, 2)}), {6, 5});
    expect_values(a[-1], {6, 5, 4});
    expect_values(a.index({ellipsis, new_axis, 0}).squeeze(), {3, 6});
    expect_values(a[a > 4], {6, 5});
    expect_values((a + 1).set_index({slice(), 0}, 0.0), {0, 2, 3, 0, 6, 5});
    expect_values(a.softmax(1).sum(), {2});
    expect_values(1 - a / 2, {-0.5, 0.5, 0, -2, -1.5, -1});
    expect_values(functional::leaky_relu(-a), {-0.03, -0.01, -0.02, -0.06, -0.05, -0.04});
    expect_values(linalg::norm(a), {std::sqrt(91)});
    expect_values(fft::fft(a).abs().sum({.dim = {1}}), {6 + 2 * std::sqrt(3), 15 + 2 * std::sqrt(3)});
    for (const auto& scalar : {session.zeros({}), session.full({}, 0.0), session.tensor({0.f}).reshape({})}) {
        EXPECT_TRUE(scalar.shape().empty());
        EXPECT_EQ(scalar.item(), 0);
    }
    const auto parts = a.split_int(2, {.dim = 1});
    ASSERT_EQ(parts.size(), 2U);
    expect_values(parts[1], {2, 4});
    expect_values(session.scalar(2.5f), {2.5});
    EXPECT_TRUE(session.scalar(2.5f).shape().empty());
}

TEST(Errors, HavePyTorchsSentences) {
    NEEDS_A_SESSION();
    const auto a = session.tensor({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}, {2, 3});
    const auto failed = a.matmul(a);
    const Failure told = failure_of([&] { failed.exp().read(); });
    EXPECT_EQ(told.reason, Reason::Shape);
    EXPECT_EQ(told.op, "matmul");
    EXPECT_EQ(told.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_TRUE(contains(told.message, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)")) << told.message;
    const auto leaf = session.tensor({1.f}).requires_grad_();
    leaf.add_(1);
    const Failure second = failure_of([&] { session.wait(); });
    EXPECT_EQ(second.reason, Reason::LeafInPlace);
    EXPECT_TRUE(contains(second.message, "a leaf Variable that requires grad is being used in an in-place operation"));
    session.wait();  // a failure is told once
    expect_values(a.sum(), {21});
    EXPECT_EQ(failure_of([&] { failed.read(); }).reason, Reason::Shape)
        << "a failed tensor fails with the first reason";
    EXPECT_THROW(Call("nonsense").arg(a).one().read(), NotSupportedError);
    EXPECT_THROW(a.index({7}).read(), IndexError);
    EXPECT_THROW(a.sum({.dim = 5}).read(), IndexError);
}

TEST(Errors, MistakesFoundHereAreThrownAtOnce) {
    NEEDS_A_SESSION();
    Session other(support::address());
    const auto a = session.tensor({1.f});
    const auto b = other.tensor({1.f});
    EXPECT_THROW(a.add(b), ArgumentValueError);
    EXPECT_THROW(cat({a, Tensor()}), ArgumentTypeError);
    const Failure shaped = failure_of([&] { session.tensor({1.f, 2.f}, {3}); });
    EXPECT_EQ(shaped.reason, Reason::PayloadSize);
    EXPECT_TRUE(contains(shaped.message, "shape '[3]' is invalid for input of size 2")) << shaped.message;
    EXPECT_THROW(session.from_bytes(DType::Float32, "123", {1}), ArgumentValueError);
    EXPECT_TRUE(contains(failure_of([] { Tensor() + 1; }).message, "Expected a proper Tensor"));
    EXPECT_THROW(Tensor().read(), ArgumentTypeError);
    EXPECT_THROW(a.set_grad(b), ArgumentValueError);
    EXPECT_THROW(a.mul(std::numeric_limits<std::uint64_t>::max()), ArgumentValueError);  // not -1
    // Text that no message can hold would end the session.
    for (const char* text : {"\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
        EXPECT_THROW(Call(text).arg(a).one(), ArgumentValueError);
        EXPECT_THROW(functional::mse_loss(a, a, {.reduction = text}), ArgumentValueError);
    }
    EXPECT_TRUE(contains(failure_of([&] { Call("día_不_\xf0\x9f\x98\x80").arg(a).one().read(); }).message, "día_不_"));
    EXPECT_EQ(failure_of([&] { a.to_vector<std::int64_t>(); }).reason, Reason::Dtype);
    const Failure told = failure_of([&] { session.tensor({1.f, 2.f}).item(); });
    EXPECT_TRUE(contains(told.message, "a Tensor with 2 elements cannot be converted to Scalar"));
    session.wait();
}

TEST(Sessions, AreOpenedWhereADeviceIs) {
    NEEDS_A_SERVER();
    const auto asked = [](const char* type) { return Session(support::address(), {.device_type = type}); };
    asked("cpu").close();
    EXPECT_EQ(failure_of([&] { asked("abacus"); }).reason, Reason::DeviceUnavailable);
}

TEST(Sessions, AClosedOneSaysSo) {
    NEEDS_A_SESSION();
    const auto a = session.tensor({1.f});
    session.close();
    EXPECT_THROW(a.add(1).read(), ClosedError);
    EXPECT_THROW(session.wait(), ClosedError);
    session.close();
}

TEST(Sessions, AClosedOneRefusesOpsAtOnce) {
    NEEDS_A_SESSION();
    const auto a = session.tensor({1.f}).requires_grad_();
    const auto loss = a * 2;
    auto hook = a.register_hook([](const Tensor&) {});
    session.close();
    EXPECT_THROW(a + 1, ClosedError);
    EXPECT_THROW(session.tensor({1.f}), ClosedError);
    EXPECT_THROW(loss.backward(), ClosedError);
    hook.remove();
}

TEST(Errors, AMissingGradientIsTold) {
    NEEDS_A_SESSION();
    const auto w = session.tensor({1.f, 2.f}).requires_grad_();
    const auto hidden = w * 2;
    hidden.sum().backward();
    const auto kept = hidden.grad();
    for (const Failure& told :
         {failure_of([&] { hidden.grad().read(); }), failure_of([&] { (hidden.grad() * 2).read(); }),
          failure_of([&] { kept.describe(); })}) {
        EXPECT_EQ(told.reason, Reason::TensorNotFound);
        EXPECT_TRUE(contains(told.message, "call .retain_grad() on it before backward()")) << told.message;
    }
    expect_values(w.grad(), {2, 2});
}

TEST(Sessions, CloseTellsTheFirstRefusal) {
    NEEDS_A_SESSION();
    const auto a = session.tensor({1.f, 2.f}, {1, 2});
    a.matmul(a);
    EXPECT_EQ(failure_of([&] { session.close(); }).reason, Reason::Shape);
}

TEST(Sessions, NoServer) {
    ConnectOptions options;
    options.patience = std::chrono::milliseconds(50);
    EXPECT_THROW(Session("127.0.0.1:1", options), ConnectionError);
    EXPECT_THROW(Session(" , "), ArgumentValueError);
    EXPECT_THROW(Session("http://127.0.0.1:50051"), ArgumentValueError);
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_THROW(Session("127.0.0.1:1"), ConnectionError);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60)) << "it waits for its patience";
    options.ca = "/nowhere/ca.pem";
    EXPECT_THROW(Session("127.0.0.1:1", options), ArgumentValueError);
}

TEST(Sessions, AnotherSeedIsUsedIfOneIsGone) {
    NEEDS_A_SERVER();
    Session session("127.0.0.1:1, " + support::address());
    expect_values(session.tensor({1.f}) + 1, {2});
}

TEST(Memory, DroppedTensorsAreReleased) {
    NEEDS_A_SESSION();
    const auto a = session.tensor({1.f, 2.f, 3.f});
    Tensor kept;
    for (int i = 0; i < 2000; ++i) kept = (a * 2 + 1).exp().sum();
    EXPECT_LE(tensors_of(session), 70U);
    expect_values(kept, {std::exp(3) + std::exp(5) + std::exp(7)});
    std::vector<Tensor> many(10'000);
    for (Tensor& each : many) each = a + 1;
    EXPECT_GE(tensors_of(session), many.size());
    many.clear();
    EXPECT_LE(tensors_of(session), 10U) << "many at once are released by one wait";
}

TEST(Memory, TensorsMayOutliveTheirSession) {
    NEEDS_A_SERVER();
    Tensor late;
    {
        Session session(support::address());
        late = session.tensor({1.f}) + 1;
        late.register_hook([late](const Tensor&) { return late; });  // a hook that owns its tensor
    }
    EXPECT_THROW(late.read(), ClosedError);
}

TEST(Threads, ShareASession) {
    NEEDS_A_SESSION();
    const auto sum = session.tensor({0.f});
    std::vector<std::thread> threads;
    std::atomic<int> failures = 0;
    for (int thread = 0; thread < 8; ++thread) {
        threads.emplace_back([&] {
            for (int i = 0; i < 100; ++i) {
                sum.add_(1.0);
                if ((sum + 1.0).to_doubles().size() != 1) ++failures;
            }
        });
    }
    for (auto& each : threads) each.join();
    EXPECT_EQ(failures, 0);
    expect_values(sum, {800});
}

TEST(Threads, NoGradConcernsOneThread) {
    NEEDS_A_SESSION();
    const auto leaf = session.tensor({1.f}).requires_grad_();
    NoGradGuard guard;
    bool recorded = false;
    std::thread([&] { recorded = (leaf * 2).describe().requires_grad; }).join();
    EXPECT_TRUE(recorded);
    EXPECT_FALSE((leaf * 2).describe().requires_grad);
}

TEST(Values, OfEveryType) {
    NEEDS_A_SESSION();
    const auto round = [&](auto values) {
        using T = typename decltype(values)::value_type;
        EXPECT_EQ(session.tensor(values).template to_vector<T>(), values);
    };
    round(std::vector<float>{1.5, -2});
    round(std::vector<double>{1.5, -2});
    round(std::vector<std::int8_t>{1, -2});
    round(std::vector<std::int16_t>{1, -2});
    round(std::vector<std::int32_t>{1, -2});
    round(std::vector<std::int64_t>{1, std::numeric_limits<std::int64_t>::min()});
    round(std::vector<std::uint8_t>{1, 255});
    round(std::vector<std::uint16_t>{1, 65535});
    round(std::vector<std::uint32_t>{1, 4294967295});
    round(std::vector<std::uint64_t>{1, std::numeric_limits<std::uint64_t>::max()});
    round(std::vector<bool>{true, false});
    round(std::vector<std::complex<float>>{{0, 1}, 2});
    round(std::vector<std::complex<double>>{{0, 1}, 2});
    const auto half = session.from_bytes(DType::Float16, support::unhex("003c010000fc55b5"), {4});
    const auto values = half.to_doubles();
    EXPECT_EQ(values[0], 1);
    EXPECT_EQ(values[1], std::ldexp(1, -24));
    EXPECT_EQ(values[2], -std::numeric_limits<double>::infinity());
    EXPECT_EQ(values[3], -0.333251953125);
}

TEST(Values, LargeOnesTravelInChunks) {
    NEEDS_A_SESSION();
    std::string data(8 << 20, '\0');
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
    EXPECT_TRUE(session.from_bytes(DType::Uint8, data, {8 << 20}).read().data == data);
}

TEST(Programs, MistakesAreTold) {
    NEEDS_A_SESSION();
    const auto outer = session.tensor({1.f, 2.f, 3.f});
    using Body = std::function<Tensor(const Tensor&)>;
    const auto trace = [&](const Body& body) {
        return session.trace({{.shape = {3}}}, 0, [&](Session&, const std::vector<Tensor>& inputs, const auto&) {
            return std::vector<Tensor>{body(inputs[0])};
        });
    };
    EXPECT_THROW(trace([&](const Tensor& x) { return x + outer; }), ArgumentValueError);
    EXPECT_THROW(trace([&](const Tensor&) { return outer; }), ArgumentValueError);
    EXPECT_THROW(trace([](const Tensor& x) { return x.item() > 0 ? x : x + 1; }), NotSupportedError);
    EXPECT_THROW(trace([](const Tensor& x) { return Call("nonsense").arg(x).one(); }), Error);
    EXPECT_THROW(trace([](const Tensor& x) {
                     x.register_hook([](const Tensor& gradient) { return gradient; });
                     return x;
                 }),
                 NotSupportedError);
    const Program twice = trace([](const Tensor& x) { return x * 2.0; });
    expect_values(twice.run({outer})[0], {2, 4, 6});
    EXPECT_THROW(twice.run({session.tensor({1.f})})[0].read(), Error);
    EXPECT_THROW(twice.run({}), ArgumentTypeError);
}

TEST(Programs, ThoseThatTheServerForgetsAreRegisteredAgain) {
    NEEDS_A_SESSION();
    grpc::ClientContext context;
    authenticate(session, context);
    v1::ServerInfoResponse info;
    ASSERT_TRUE(stub(session)->ServerInfo(&context, {}, &info).ok());
    const auto most = info.limits().max_programs();
    if (most > 300) GTEST_SKIP() << "the server keeps too many programs for a test: " << most;
    const auto x = session.tensor({1.f});
    std::vector<Program> programs;
    for (std::uint64_t i = 0; i < most + 2; ++i) {
        programs.push_back(
            session.trace({{.shape = {1}}}, 0, [&](Session&, const std::vector<Tensor>& inputs, const auto&) {
                return std::vector<Tensor>{inputs[0] + static_cast<double>(i)};
            }));
    }
    for (std::size_t i = 0; i < programs.size(); ++i) {
        EXPECT_EQ(programs[i].run({x})[0].item(), 1 + static_cast<double>(i));
    }
}

TEST(Programs, FilesWhoseProgramsTheServerForgetsAreLoadedAgain) {
    NEEDS_A_SESSION();
    grpc::ClientContext context;
    authenticate(session, context);
    v1::ServerInfoResponse info;
    ASSERT_TRUE(stub(session)->ServerInfo(&context, {}, &info).ok());
    const ProgramFile model = session.load_program(support::contents(support::conformance() + "/model.safetensors"));
    const auto x = session.ones({6, 4});
    const auto y = session.tensor(std::vector<std::int64_t>(6));
    const auto loss = [&] { return model.program().run({{"x", x}, {"y", y}})[0].item(); };
    const double before = loss();
    for (std::uint64_t i = 0; i < info.limits().max_programs(); ++i) {
        session.trace({{.shape = {1}}}, 0, [&](Session&, const std::vector<Tensor>& inputs, const auto&) {
            return std::vector<Tensor>{inputs[0] + static_cast<double>(i)};
        });
    }
    const double after = loss();
    EXPECT_LT(after, before);
    EXPECT_LT(loss(), after);
}

// A number that a conversion cuts is no size.
static_assert(!std::is_constructible_v<Integers, double>);
static_assert(std::is_constructible_v<Integers, int> && std::is_constructible_v<Floats, int>);

TEST(Programs, FilesOfNonsenseAreRefused) {
    NEEDS_A_SESSION();
    EXPECT_THROW(session.load_program("no file"), Error);
    const ProgramFile model = session.load_program(support::contents(support::conformance() + "/model.safetensors"));
    EXPECT_EQ(model.program().inputs(), (std::vector<std::string>{"x", "y"}));
    EXPECT_THROW(model.program("nonsense"), ArgumentValueError);
    EXPECT_THROW(model.program().place("nonsense"), ArgumentValueError);
}

}  // namespace
