// The connection to the server that has the session, or to the next one that may have it.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "advice.hpp"
#include "failures.hpp"
#include "gradwire/session.hpp"
#include "gradwire/v1/service.grpc.pb.h"
#include "wire.hpp"

namespace gradwire::detail {

/// The refusal of a call, or its status without a reason, if the connection failed.
Failure failure_of(const grpc::Status& status, const grpc::ClientContext& context);

/// How long an unreachable server is tried while a session is opened. Later the session's patience counts.
inline constexpr std::chrono::seconds opening{5};

/// Where the session is: the seeds, and the server in use. Threads may share it.
class Connection {
  public:
    Connection(const std::string& addresses, const ConnectOptions& options);

    std::shared_ptr<pb::AutogradService::Stub> stub() const;
    /// The address of the server in use.
    std::string address() const;
    void authenticate(grpc::ClientContext& context) const;
    const ConnectOptions& options() const noexcept { return options_; }

    /// Notes a failure. If the server is gone, or does not have the session, later calls use another one.
    void failed(const Failure& failure);
    /// Opens a stream by gRPC.
    std::unique_ptr<Wire> stream() const;

    /// Opens a session here, or at the server of the cluster that this one names, which is then the one in use. If that
    /// fails, the error says what to do where that is known.
    pb::OpenSessionResponse open(const pb::OpenSessionRequest& request);
    /// Opens a session from a snapshot, as open() does.
    pb::RestoreSessionResponse restore(const pb::RestoreSessionRequest& request);

    /// Makes a unary call, and the same call again while the connection fails. The request should have a request id
    /// where it changes something.
    template <class Request, class Response>
    Response call(grpc::Status (pb::AutogradService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request) {
        return tried(method, request, options_.patience);
    }

  private:
    template <class Request, class Response>
    Response tried(grpc::Status (pb::AutogradService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                   const Request& request, std::chrono::milliseconds patience) {
        auto begun = Clock::now();
        auto pause = first_pause;
        for (;;) {
            grpc::ClientContext context;
            authenticate(context);
            Response response;
            grpc::Status status = (*stub().*method)(&context, request, &response);
            if (status.ok()) return response;
            Failure failure = failure_of(status, context);
            failed(failure);
            if (!may_retry(failure) || distrusts(failure) || Clock::now() - begun > patience) raise(failure);
            std::this_thread::sleep_for(pause);
            pause = std::min(2 * pause, longest_pause);
        }
    }

    template <class Request, class Response>
    Response opened(grpc::Status (pb::AutogradService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    Request request);

    std::shared_ptr<grpc::Channel> channel(const std::string& address) const;
    void use(const std::string& address);

    const ConnectOptions options_;
    std::vector<std::string> seeds_;
    std::shared_ptr<grpc::ChannelCredentials> credentials_;
    mutable std::mutex mutex_;
    std::string address_;
    std::size_t next_ = 1;  // of the seeds
    std::shared_ptr<pb::AutogradService::Stub> stub_;
};

}  // namespace gradwire::detail
