// A stream by a Unix socket in the abstract namespace: each message follows its length, four bytes, little-endian.
#include "local_stream.hpp"

#ifdef __linux__
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "failures.hpp"
#include "rpc_status.pb.h"
#endif

namespace gradwire::detail {

#ifdef __linux__

namespace {

constexpr std::uint32_t last = 1U << 31;  // in a length: the message is the stream's status, and the last one

Failure refusal_of(const cpp::Status& status) {
    v1::Error made;
    made.set_code(status.code());
    made.set_message(status.message());
    for (const auto& detail : status.details()) {
        cpp::ErrorInfo info;
        v1::Reason reason;
        if (!detail.type_url().ends_with("/google.rpc.ErrorInfo") || !info.ParseFromString(detail.value())) continue;
        if (v1::Reason_Parse("REASON_" + info.reason(), &reason)) made.set_reason(reason);
        *made.mutable_metadata() = info.metadata();
    }
    return failure_of(made);
}

/// A stream by a socket. Another thread may cancel it: it shuts the socket down, and the destructor closes it.
class LocalWire final : public Wire {
  public:
    explicit LocalWire(int socket) : socket_(socket) {}
    LocalWire(const LocalWire&) = delete;
    LocalWire& operator=(const LocalWire&) = delete;
    ~LocalWire() override { ::close(socket_); }

    bool send(const pb::StreamRequest& message) override {
        buffer_.assign(4, '\0');
        if (!message.AppendToString(&buffer_)) return false;
        const auto length = static_cast<std::uint32_t>(buffer_.size() - 4);
        std::memcpy(buffer_.data(), &length, 4);
        for (std::size_t at = 0; at < buffer_.size();) {
            const ssize_t sent = ::send(socket_, buffer_.data() + at, buffer_.size() - at, MSG_NOSIGNAL);
            if (sent < 0 && errno == EINTR) continue;
            if (sent <= 0) return false;
            at += static_cast<std::size_t>(sent);
        }
        return true;
    }

    bool receive(pb::StreamResponse& message) override {
        if (next(message)) return true;
        cancel();  // a sender that waits for room returns
        return false;
    }

    Failure refusal() override {
        if (ended_ && status_.code() != 0) return refusal_of(status_);
        Failure made;
        made.code = unavailable;
        made.message = "the server ended the stream";
        return made;
    }

    void cancel() override { ::shutdown(socket_, SHUT_RDWR); }

  private:
    bool next(pb::StreamResponse& message) {
        std::uint32_t length = 0;
        if (!read(reinterpret_cast<char*>(&length), 4)) return false;
        received_.resize(length & ~last);
        if (!read(received_.data(), received_.size())) return false;
        if (length & last) {
            ended_ = status_.ParseFromString(received_);
            return false;
        }
        return message.ParseFromString(received_);
    }

    bool read(char* to, std::size_t size) {
        while (size > 0) {
            const ssize_t got = ::recv(socket_, to, size, 0);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return false;
            to += got;
            size -= static_cast<std::size_t>(got);
        }
        return true;
    }

    const int socket_;
    std::string buffer_;    // of the thread that sends
    std::string received_;  // of the thread that receives, as all below
    cpp::Status status_;
    bool ended_ = false;
};

}  // namespace

std::unique_ptr<Wire> local_stream(const std::string& name) {
    sockaddr_un address{};
    if (name.empty() || name.size() + 1 > sizeof address.sun_path) return nullptr;
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return nullptr;
    auto wire = std::make_unique<LocalWire>(socket);
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), size) != 0) return nullptr;
    ucred peer{};
    socklen_t length = sizeof peer;
    const bool own = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
    return own ? std::move(wire) : nullptr;
}

#else

std::unique_ptr<Wire> local_stream(const std::string&) { return nullptr; }

#endif

}  // namespace gradwire::detail
