// The connection to the server that has the session, or to the next one that may have it.
#include "connection.hpp"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace gradwire::detail {

namespace {

std::string contents(const std::string& path) {
    if (path.empty()) return {};
    std::ifstream file(path, std::ios::binary);
    if (!file) raise(mistake(Reason::ArgumentValue, "", "cannot read " + path));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::shared_ptr<grpc::ChannelCredentials> credentials_of(const ConnectOptions& options) {
    if (!encrypts(options)) return grpc::InsecureChannelCredentials();
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = contents(options.ca);
    ssl.pem_cert_chain = contents(options.certificate);
    ssl.pem_private_key = contents(options.key);
    return grpc::SslCredentials(ssl);
}

std::string trimmed(const std::string& text) {
    auto begin = text.find_first_not_of(" \t");
    return begin == std::string::npos ? std::string() : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// Refuses a token that no header holds: gRPC's own error would show it.
const ConnectOptions& checked(const ConnectOptions& options) {
    const auto visible = [](char each) { return each >= '!' && each <= '~'; };
    if (options.token.size() > 4096 || !std::all_of(options.token.begin(), options.token.end(), visible)) {
        raise(mistake(Reason::ArgumentValue, "",
                      "a token is 1 to 4096 visible ASCII characters; this one is something else"));
    }
    return options;
}

const pb::OpenSessionResponse& session_of(const pb::OpenSessionResponse& answer) { return answer; }
const pb::OpenSessionResponse& session_of(const pb::RestoreSessionResponse& answer) { return answer.session(); }

/// A stream over gRPC.
class GrpcWire final : public Wire {
  public:
    GrpcWire(std::shared_ptr<pb::AutogradService::Stub> stub, const Connection& connection) : stub_(std::move(stub)) {
        connection.authenticate(context_);
        context_.set_initial_metadata_corked(true);  // the first message opens the stream, so that cancel() can end it
        stream_ = stub_->Stream(&context_);
    }
    bool send(const pb::StreamRequest& message) override { return stream_->Write(message); }
    bool receive(pb::StreamResponse& message) override { return stream_->Read(&message); }
    void cancel() override { context_.TryCancel(); }
    Failure refusal() override {
        grpc::Status status = stream_->Finish();
        if (status.ok()) status = {grpc::StatusCode::UNAVAILABLE, "the server ended the stream"};
        return failure_of(status, context_);
    }

  private:
    std::shared_ptr<pb::AutogradService::Stub> stub_;
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReaderWriter<pb::StreamRequest, pb::StreamResponse>> stream_;
};

}  // namespace

Failure failure_of(const grpc::Status& status, const grpc::ClientContext& context) {
    const auto& trailer = context.GetServerTrailingMetadata();
    const auto told = trailer.find("gradwire-error-bin");
    const std::string bytes =
        told == trailer.end() ? std::string() : std::string(told->second.data(), told->second.size());
    return failure_of(status.error_code(), status.error_message(), bytes);
}

Connection::Connection(const std::string& addresses, const ConnectOptions& options)
    : options_(checked(options)), credentials_(credentials_of(options)) {
    std::istringstream list(addresses);
    for (std::string address; std::getline(list, address, ',');) {
        if (auto seed = trimmed(address); !seed.empty()) seeds_.push_back(seed);
    }
    if (seeds_.empty()) raise(mistake(Reason::ArgumentValue, "", "there is no address to connect to"));
    for (const std::string& seed : seeds_) {
        if (!seed.starts_with("http://") && !seed.starts_with("https://")) continue;
        raise(mistake(Reason::ArgumentValue, "", "the address " + seed + " is a URL: give HOST:PORT without a scheme"));
    }
    use(seeds_.front());
}

void Connection::use(const std::string& address) {
    address_ = address;
    stub_ = std::make_shared<pb::AutogradService::Stub>(channel(address));
}

std::shared_ptr<grpc::Channel> Connection::channel(const std::string& address) const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // sessions break and reconnect independently
    return grpc::CreateCustomChannel(address, credentials_, arguments);
}

template <class Request, class Response>
Response Connection::opened(grpc::Status (pb::AutogradService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                              Response*),
                            Request request) {
    const auto patience = std::min<std::chrono::milliseconds>(options_.patience, opening);
    try {
        request.set_follows_endpoint(true);
        Response answer = tried(method, request, patience);
        const auto& session = session_of(answer);
        if (session.endpoint().empty() || !session.session_id().empty()) return answer;
        {
            std::lock_guard lock(mutex_);
            use(session.endpoint());
        }
        request.set_follows_endpoint(false);  // that server opens it, whatever the load is by then
        return tried(method, request, patience);
    } catch (const Error& error) {
        raise(advised(error.failure(), options_));
    }
}

pb::OpenSessionResponse Connection::open(const pb::OpenSessionRequest& request) {
    return opened(&pb::AutogradService::Stub::OpenSession, request);
}

pb::RestoreSessionResponse Connection::restore(const pb::RestoreSessionRequest& request) {
    return opened(&pb::AutogradService::Stub::RestoreSession, request);
}

std::shared_ptr<pb::AutogradService::Stub> Connection::stub() const {
    std::lock_guard lock(mutex_);
    return stub_;
}

std::string Connection::address() const {
    std::lock_guard lock(mutex_);
    return address_;
}

void Connection::authenticate(grpc::ClientContext& context) const {
    if (!options_.token.empty()) context.AddMetadata("authorization", "Bearer " + options_.token);
}

void Connection::failed(const Failure& failure) {
    const bool moved = failure.reason == Reason::SessionMoved;
    const bool gone = failure.reason == Reason::Unspecified && failure.code == grpc::StatusCode::UNAVAILABLE;
    if (!moved && !gone) return;
    auto told = moved ? failure.metadata.find("endpoint") : failure.metadata.end();
    std::lock_guard lock(mutex_);
    std::string target = told == failure.metadata.end() ? std::string() : told->second;
    if (target.empty()) {
        if (seeds_.size() == 1 && address_ == seeds_.front()) return;  // there is no other
        target = seeds_[next_++ % seeds_.size()];
    }
    if (target != address_) use(target);
}

std::unique_ptr<Wire> Connection::stream() const { return std::make_unique<GrpcWire>(stub(), *this); }

}  // namespace gradwire::detail
