// A server that does what a live one does not do on demand.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gradwire/v1/service.grpc.pb.h"
#include "support.hpp"

namespace scripted {

namespace v1 = gradwire::v1;
using Stream = grpc::ServerReaderWriter<v1::StreamResponse, v1::StreamRequest>;
using Script =
    std::function<grpc::Status(const v1::StreamAttach& attach, grpc::ServerContext& context, Stream& stream)>;

inline grpc::Status refuse(grpc::ServerContext& context, v1::Reason reason, grpc::StatusCode code,
                           const std::string& endpoint = "") {
    v1::Error error;
    error.set_code(code);
    error.set_reason(reason);
    error.set_message("scripted");
    if (!endpoint.empty()) (*error.mutable_metadata())["endpoint"] = endpoint;
    context.AddTrailingMetadata("gradwire-error-bin", error.SerializeAsString());
    return {code, "scripted"};
}

/// A server whose streams follow a script.
class Scripted : public v1::AutogradService::Service {
  public:
    explicit Scripted(Script script) : script_(std::move(script)) {
        grpc::ServerBuilder builder;
        int port = 0;
        builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
        builder.RegisterService(this);
        server_ = builder.BuildAndStart();
        address_ = "127.0.0.1:" + std::to_string(port);
    }
    ~Scripted() override { server_->Shutdown(std::chrono::system_clock::now()); }

    const std::string& address() const { return address_; }
    std::atomic<int> fails{0};  // OpenSession calls that still fail
    std::atomic<int> renewed{0};
    std::string token;
    std::string endpoint;           // of another server, which is to open the sessions
    std::atomic<int> following{0};  // requests that may be answered with an endpoint
    std::atomic<int> staying{0};    // requests that may not

    grpc::Status OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest* request,
                             v1::OpenSessionResponse* response) override {
        ++(request->follows_endpoint() ? following : staying);
        if (request->follows_endpoint() && !endpoint.empty()) {
            response->set_endpoint(endpoint);
            return grpc::Status::OK;
        }
        const auto& metadata = context->client_metadata();
        const auto found = metadata.find("authorization");
        token = found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
        if (fails > 0) {
            --fails;
            return {grpc::StatusCode::UNAVAILABLE, "not yet"};
        }
        response->set_session_id("s");
        response->set_writer(1);
        response->set_epoch(1);
        response->set_lease_ms(60);
        response->set_first_id(1);
        response->set_last_id(1ULL << 40);
        auto& limits = *response->mutable_limits();
        limits.set_max_message_bytes(1 << 20);
        limits.set_max_inline_bytes(1 << 16);
        limits.set_max_batch_commands(1024);
        limits.set_max_prepared(4);
        return grpc::Status::OK;
    }
    grpc::Status KeepAlive(grpc::ServerContext*, const v1::KeepAliveRequest*, v1::KeepAliveResponse*) override {
        ++renewed;
        return grpc::Status::OK;
    }
    grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest*,
                              v1::CloseSessionResponse*) override {
        return grpc::Status::OK;
    }
    grpc::Status Stream(grpc::ServerContext* context, scripted::Stream* stream) override {
        v1::StreamRequest first;
        if (!stream->Read(&first)) return {grpc::StatusCode::UNAVAILABLE, "no attach"};
        return script_(first.attach(), *context, *stream);
    }

  private:
    Script script_;
    std::string address_;
    std::unique_ptr<grpc::Server> server_;
};

inline void attached(Stream& stream, std::uint64_t credit) {
    v1::StreamResponse response;
    response.mutable_attached()->set_epoch(1);
    response.set_credit_bytes(credit);
    stream.Write(response);
}

inline void answer(Stream& stream, std::uint64_t credit, std::uint32_t batches = 1) {
    v1::StreamResponse response;
    response.mutable_batch();
    response.set_credit_bytes(credit);
    response.set_batches(batches);
    stream.Write(response);
}

/// Waits for the end of a stream.
inline grpc::Status drained(Stream& stream) {
    v1::StreamRequest request;
    while (stream.Read(&request)) {
    }
    return grpc::Status::OK;
}

}  // namespace scripted
