// Which way a session's next stream takes: the server's Unix socket where that works, else gRPC.
#include "streams.hpp"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "local_stream.hpp"

namespace gradwire::detail {

namespace {

constexpr int most_rejected = 2;  // local streams in a row; then one uses gRPC

bool allowed() {
    const char* value = std::getenv("GRADWIRE_LOCAL_STREAM");
    return !value || std::string_view(value) != "0";
}

}  // namespace

/// Notes the socket that a server tells when it attaches a stream: its name changes when the server restarts.
class Streams::Watched final : public Wire {
  public:
    Watched(std::unique_ptr<Wire> wire, Streams& streams, std::string address)
        : wire_(std::move(wire)), streams_(streams), address_(std::move(address)) {}
    bool send(const pb::StreamRequest& message) override { return wire_->send(message); }
    bool receive(pb::StreamResponse& message) override {
        if (!wire_->receive(message)) return false;
        if (message.has_attached()) {
            streams_.rejected_ = 0;
            streams_.local_name_ = message.attached().local_stream();
            streams_.address_ = address_;
        }
        return true;
    }
    Failure refusal() override { return wire_->refusal(); }
    void cancel() override { wire_->cancel(); }

  private:
    const std::unique_ptr<Wire> wire_;
    Streams& streams_;
    const std::string address_;
};

Streams::Streams(Connection& connection, std::string local_name)
    : connection_(connection),
      wanted_(connection.options().local_stream && allowed()),
      local_name_(std::move(local_name)),
      address_(connection.address()) {}

std::unique_ptr<Wire> Streams::connect() {
    const std::string address = connection_.address();
    local_ = false;
    if (wanted_ && address == address_) {
        if (rejected_ < most_rejected) {
            if (auto wire = local_stream(local_name_)) {
                ++rejected_;
                local_ = true;
                return std::make_unique<Watched>(std::move(wire), *this, address);
            }
        } else {
            rejected_ = 0;  // for example, the server has too many connections
        }
    }
    return std::make_unique<Watched>(connection_.stream(), *this, address);
}

void Streams::failed(const Failure& failure) {
    // A broken socket tells nothing of the server: the next stream asks it.
    if (!local_ || failure.reason == Reason::SessionMoved) connection_.failed(failure);
}

}  // namespace gradwire::detail
