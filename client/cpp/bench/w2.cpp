// Measures steps, large values and memory for `python -m benchmarks.languages`, which documents the lines that it
// reads, and answers each with the seconds that the work took.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <stdexcept>

#include "gradwire/client.hpp"
#include "gradwire/gradwire.hpp"

namespace {

using namespace gradwire;

using Clock = std::chrono::steady_clock;
using Sizes = std::array<std::int64_t, 3>;

constexpr std::int64_t batch = 128;
constexpr Sizes sizes{64, 256, 10};
constexpr std::int64_t small_batch = 4;
constexpr Sizes small_sizes{8, 8, 4};
constexpr double rate = 0.01;

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

void require(bool holds, const char* message) {
    if (!holds) throw std::runtime_error(message);
}

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

/// A network's parameters, then a batch of inputs and labels.
std::vector<Tensor> network(Session& session, const Sizes& widths, std::int64_t rows) {
    std::vector<Tensor> made;
    for (std::size_t i = 0; i < 2; ++i) {
        const auto scale = std::sqrt(static_cast<double>(widths[i]));
        made.push_back((session.randn({widths[i], widths[i + 1]}) / scale).requires_grad_());
        made.push_back(session.zeros({widths[i + 1]}).requires_grad_());
    }
    made.push_back(session.randn({rows, widths[0]}));
    made.push_back(session.randint(0, widths[2], {rows}));
    return made;
}

Tensor step(const std::vector<Tensor>& bound) { return step({bound.begin(), bound.begin() + 4}, bound[4], bound[5]); }

/// Takes the steps by single calls of the generated stub, each of which waits. Its large values are bare calls, too.
class Unary {
  public:
    explicit Unary(const Session& session) : stub_(stub(session)) {
        v1::OpenSessionRequest request;
        request.set_client("w2-unary");
        request.set_lease_ms(3'600'000);
        const auto opened = call(&Stub::OpenSession, request);
        session_ = opened.session_id();
        chunk_ = opened.limits().chunk_bytes();
        inputs_ = op("randn", {sized({batch, sizes[0]})});
        v1::Argument dtype;
        dtype.set_name("dtype");
        dtype.set_dtype(v1::DTYPE_INT64);
        labels_ = op("zeros", {sized({batch}), dtype});
        for (std::size_t i = 0; i < 2; ++i) {
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

    double upload(std::size_t bytes) {
        const std::string data(bytes, '\0');
        const auto begun = Clock::now();
        grpc::ClientContext context;
        v1::UploadResponse told;
        const auto stream = stub_->Upload(&context, &told);
        v1::UploadRequest request;
        request.mutable_start()->set_session_id(session_);
        request.mutable_start()->set_total_bytes(bytes);
        bool sent = stream->Write(request);
        for (std::size_t at = 0; sent && at < bytes; at += chunk_) {
            request.mutable_data()->assign(data, at, chunk_);
            sent = stream->Write(request);
        }
        stream->WritesDone();
        checked(stream->Finish());
        const double seconds = seconds_since(begun);
        v1::CreateRequest create;
        create.set_session_id(session_);
        create.mutable_transfer()->set_transfer_id(told.transfer_id());
        create.mutable_transfer()->set_dtype(v1::DTYPE_UINT8);
        create.mutable_transfer()->add_shape(static_cast<std::int64_t>(bytes));
        create.mutable_transfer()->set_total_bytes(bytes);
        release(call(&Stub::Create, create).tensor().id());
        return seconds;
    }

    double download(std::size_t bytes) {
        const auto held = op("ones", {sized({static_cast<std::int64_t>(bytes / sizeof(float))})});
        v1::ReadRequest read;
        read.set_session_id(session_);
        read.set_tensor(held);
        v1::DownloadRequest request;
        request.set_session_id(session_);
        request.set_transfer_id(call(&Stub::Read, read).transfer().transfer_id());
        const auto begun = Clock::now();
        grpc::ClientContext context;
        const auto stream = stub_->Download(&context, request);
        std::size_t received = 0;
        for (v1::DownloadResponse part; stream->Read(&part);) received += part.data().size();
        checked(stream->Finish());
        const double seconds = seconds_since(begun);
        require(received == bytes, "not all bytes came");
        release(held);
        return seconds;
    }

  private:
    using Stub = v1::AutogradService::StubInterface;

    template <class Request, class Response>
    Response call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request) {
        grpc::ClientContext context;
        Response response;
        const grpc::Status status = (*stub_.*method)(&context, request, &response);
        checked(status);
        return response;
    }

    static void checked(const grpc::Status& status) {
        if (!status.ok()) throw std::runtime_error(status.error_message());
    }

    void release(std::uint64_t id) {
        v1::ReleaseRequest request;
        request.set_session_id(session_);
        request.add_tensors(id);
        call(&Stub::Release, request);
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
    std::size_t chunk_ = 0;
    std::uint64_t inputs_ = 0;
    std::uint64_t labels_ = 0;
    std::vector<std::uint64_t> parameters_;
};

/// What a side keeps between the lines.
class Side {
  public:
    explicit Side(Session& session) : session_(session), unary_(session) {
        session.manual_seed(0);
        bound_ = network(session, sizes, batch);
        small_ = network(session, small_sizes, small_batch);
        std::vector<Input> like;
        for (const Tensor& each : bound_) like.push_back(Input::like(each));
        program_ = session.trace(like, 0, [](Session&, const std::vector<Tensor>& in, const std::vector<Number>&) {
            return std::vector<Tensor>{step(in).detach()};
        });
    }

    /// Returns the seconds of a line's work.
    double measure(const std::string& mode, std::uint32_t count) {
        const std::size_t bytes = static_cast<std::size_t>(count) << 20;
        if (mode == "upload") return upload(bytes);
        if (mode == "download") return download(bytes);
        if (mode == "bare-upload") return unary_.upload(bytes);
        if (mode == "bare-download") return unary_.download(bytes);
        const auto begun = Clock::now();
        take(mode, count);
        return seconds_since(begun);
    }

  private:
    /// Takes steps and reads the last loss.
    void take(const std::string& mode, std::uint32_t steps) {
        if (mode == "unary") {
            for (std::uint32_t i = 0; i < steps; ++i) unary_.step();
            return;
        }
        Tensor loss;
        if (mode == "repeated") {
            loss = program_.run(bound_, {.repeat = steps})[0];
        } else {
            for (std::uint32_t i = 0; i < steps; ++i) {
                if (mode == "stream") loss = step(bound_);
                if (mode == "memory") loss = step(small_);
                if (mode == "program") loss = program_.run(bound_)[0];
            }
        }
        require(loss.defined(), "unknown mode");
        require(loss.item() > 0, "the loss is not positive");
    }

    double upload(std::size_t bytes) {
        const std::vector<float> values(bytes / sizeof(float));
        const auto begun = Clock::now();
        const Tensor made = session_.tensor(values);
        session_.wait();
        return seconds_since(begun);
    }

    double download(std::size_t bytes) {
        const Tensor held = session_.ones({static_cast<std::int64_t>(bytes / sizeof(float))});
        session_.wait();
        const auto begun = Clock::now();
        const auto values = held.to_vector<float>();
        const double seconds = seconds_since(begun);
        require(values.size() == bytes / sizeof(float) && values.back() == 1, "the values are wrong");
        return seconds;
    }

    Session& session_;
    Unary unary_;
    std::vector<Tensor> bound_;
    std::vector<Tensor> small_;
    Program program_;
};

}  // namespace

int main(int count, char** arguments) {
    if (count < 2) throw std::runtime_error("the server's address is missing");
    Session session(arguments[1]);
    {
        Side side(session);
        std::string mode;
        for (std::uint32_t work = 0; std::cin >> mode >> work;) {
            std::printf("%.9f\n", side.measure(mode, work));
            std::fflush(stdout);
        }
    }
    session.close();
}
