// Takes training steps of a small network for `python -m benchmarks.languages`: it reads lines "mode steps" and answers
// each with the seconds that they took.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <stdexcept>

#include "gradwire/client.hpp"
#include "gradwire/gradwire.hpp"

namespace {

using namespace gradwire;

constexpr std::int64_t batch = 128;
constexpr std::int64_t sizes[] = {64, 256, 10};
constexpr double rate = 0.01;

/// A step of gradient descent.
Tensor step(const std::vector<Tensor>& parameters, const Tensor& inputs, const Tensor& labels) {
    auto hidden = (inputs.matmul(parameters[0]) + parameters[1]).relu();
    auto loss = functional::cross_entropy(hidden.matmul(parameters[2]) + parameters[3], labels);
    loss.backward();
    NoGradGuard guard;
    for (const Tensor& each : parameters) {
        each.sub_(each.grad() * rate);
        each.zero_grad();
    }
    return loss;
}

/// Takes the steps by single calls of the generated stub, each of which waits.
class Unary {
  public:
    explicit Unary(const Session& session) : stub_(stub(session)) {
        v1::OpenSessionRequest request;
        request.set_client("w2-unary");
        session_ = call(&Stub::OpenSession, request).session_id();
        inputs_ = op("randn", {sized({batch, sizes[0]})});
        v1::Argument dtype;
        dtype.set_name("dtype");
        dtype.set_dtype(v1::DTYPE_INT64);
        labels_ = op("zeros", {sized({batch}), dtype});
        for (int i = 0; i < 2; ++i) {
            parameters_.push_back(op("randn", {sized({sizes[i], sizes[i + 1]})}));
            parameters_.push_back(op("zeros", {sized({sizes[i + 1]})}));
        }
        for (auto each : parameters_) {
            v1::SetRequiresGradRequest ask;
            ask.set_session_id(session_);
            ask.set_tensor(each);
            ask.set_requires_grad(true);
            call(&Stub::SetRequiresGrad, ask);
        }
    }

    void step() {
        v1::ReleaseRequest release;
        release.set_session_id(session_);
        auto apply = [&](const char* name, const std::vector<v1::Argument>& arguments) {
            const auto made = op(name, arguments);
            release.add_tensors(made);
            return tensor(made);
        };
        const auto p = [&](std::size_t place) { return tensor(parameters_[place]); };
        const auto hidden = apply("relu", {apply("add", {apply("matmul", {tensor(inputs_), p(0)}), p(1)})});
        const auto outputs = apply("add", {apply("matmul", {hidden, p(2)}), p(3)});
        const auto loss = apply("cross_entropy", {outputs, tensor(labels_)});
        v1::BackwardRequest backward;
        backward.set_session_id(session_);
        backward.add_tensors(loss.tensor());
        call(&Stub::Backward, backward);
        for (auto each : parameters_) {
            v1::GradRequest ask;
            ask.set_session_id(session_);
            ask.set_tensor(each);
            const auto gradient = call(&Stub::Grad, ask).grad().id();
            release.add_tensors(gradient);
            v1::Argument factor;
            factor.set_float_(rate);
            const auto change = op("mul", {tensor(gradient), factor}, v1::GRAD_MODE_DISABLED);
            release.add_tensors(change);
            op("sub_", {tensor(each), tensor(change)}, v1::GRAD_MODE_DISABLED);
            v1::SetGradRequest clear;
            clear.set_session_id(session_);
            clear.set_tensor(each);
            call(&Stub::SetGrad, clear);
        }
        call(&Stub::Release, release);
    }

  private:
    using Stub = v1::AutogradService::StubInterface;

    template <class Request, class Response>
    Response call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request) {
        grpc::ClientContext context;
        Response response;
        const grpc::Status status = (*stub_.*method)(&context, request, &response);
        if (!status.ok()) throw std::runtime_error(status.error_message());
        return response;
    }

    static v1::Argument tensor(std::uint64_t id) {
        v1::Argument made;
        made.set_tensor(id);
        return made;
    }

    static v1::Argument sized(std::initializer_list<std::int64_t> given) {
        v1::Argument made;
        for (auto size : given) made.mutable_integers()->add_values(size);
        return made;
    }

    std::uint64_t op(const char* name, const std::vector<v1::Argument>& arguments,
                     v1::GradMode mode = v1::GRAD_MODE_ENABLED) {
        v1::OpRequest request;
        request.set_session_id(session_);
        request.set_op(name);
        request.set_grad_mode(mode);
        for (const auto& each : arguments) *request.add_args() = each;
        return call(&Stub::Op, request).outputs(0).id();
    }

    std::shared_ptr<Stub> stub_;
    std::string session_;
    std::uint64_t inputs_ = 0;
    std::uint64_t labels_ = 0;
    std::vector<std::uint64_t> parameters_;
};

/// What a side keeps between the lines.
class Side {
  public:
    explicit Side(Session& session) : unary_(session) {
        session.manual_seed(0);
        for (int i = 0; i < 2; ++i) {
            const auto scale = std::sqrt(static_cast<double>(sizes[i]));
            parameters_.push_back((session.randn({sizes[i], sizes[i + 1]}) / scale).requires_grad_());
            parameters_.push_back(session.zeros({sizes[i + 1]}).requires_grad_());
        }
        bound_ = parameters_;
        bound_.push_back(session.randn({batch, sizes[0]}));
        bound_.push_back(session.randint(0, sizes[2], {batch}));
        std::vector<Input> like;
        for (const Tensor& each : bound_) like.push_back(Input::like(each));
        program_ = session.trace(like, 0, [](Session&, const std::vector<Tensor>& in, const std::vector<Number>&) {
            return std::vector<Tensor>{step({in[0], in[1], in[2], in[3]}, in[4], in[5]).detach()};
        });
    }

    /// Takes steps and reads the last loss.
    void take(const std::string& mode, std::uint32_t steps) {
        Tensor loss;
        if (mode == "repeated") {
            loss = program_.run(bound_, {.repeat = steps})[0];
        } else {
            for (std::uint32_t i = 0; i < steps; ++i) {
                if (mode == "unary") unary_.step();
                if (mode == "stream") loss = step(parameters_, bound_[4], bound_[5]);
                if (mode == "program") loss = program_.run(bound_)[0];
            }
        }
        if (mode != "unary" && !(loss.item() > 0)) throw std::runtime_error("the loss is not positive");
    }

  private:
    Unary unary_;
    std::vector<Tensor> parameters_;
    std::vector<Tensor> bound_;
    Program program_;
};

}  // namespace

int main(int count, char** arguments) {
    if (count < 2) throw std::runtime_error("the server's address is missing");
    Session session(arguments[1]);
    Side side(session);
    std::string mode;
    for (std::uint32_t steps = 0; std::cin >> mode >> steps;) {
        const auto begun = std::chrono::steady_clock::now();
        side.take(mode, steps);
        std::printf("%.9f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
        std::fflush(stdout);
    }
    session.close();
}
