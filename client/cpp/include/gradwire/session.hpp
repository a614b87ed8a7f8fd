/// @file
/// Sessions: what holds tensors on a server.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/autograd.hpp"
#include "gradwire/program.hpp"
#include "gradwire/tensor.hpp"
#include "gradwire/version.hpp"

namespace gradwire {

/// How a session is opened.
struct ConnectOptions {
    /// Authenticates every call with "authorization: Bearer <token>".
    std::string token{};
    /// Encrypts the connection. A `ca` or `certificate` implies it.
    bool tls = false;
    /// A PEM file of trusted authorities; empty means gRPC's list.
    std::string ca{};
    /// PEM files of a client certificate and its key, if the server requires one.
    std::string certificate{};
    std::string key{};
    /// How long the session lives without traffic; 0 takes the server's default. The session renews it until its end.
    std::chrono::milliseconds lease{0};
    /// How long a broken connection is tried again before the session fails.
    std::chrono::milliseconds patience{120'000};
    /// The name that the server's log shows.
    std::string client{};
    /// The type of a device that the session needs, such as "cuda". A cluster opens it at a server that has one. If no
    /// server has, the error's reason is DEVICE_UNAVAILABLE.
    std::string device_type{};
    /// Uses the server's Unix socket for the stream if the server is on this machine and of this user: a round trip
    /// then takes less time. The environment variable GRADWIRE_LOCAL_STREAM=0 switches it off, too. Linux only.
    bool local_stream = true;
};

/// A snapshot, as its owner sees it.
struct Snapshot {
    std::string name{};
    /// Bytes on the server's disk.
    std::uint64_t bytes = 0;
    /// Number of tensors.
    std::uint64_t tensors = 0;
    /// When it was made, by the server's clock.
    std::chrono::system_clock::time_point saved{};
    /// Time until the server deletes it; 0 for no end.
    std::chrono::milliseconds time_left{0};
};

/// Holds tensors on a server. Ops only queue commands; they are sent in batches, and their failures surface at the next
/// wait or read.
///
/// Threads may share a session: commands are applied in the order of their calls. The session ends when the object
/// dies; close() also tells of failures. Tensors may outlive it, but are then of no use.
class Session : public detail::SessionMethods {
  public:
    /// Opens a session on the server at an address: "host:port" or "unix:/path", or several of them, separated by
    /// commas, of one cluster. Waits. Throws ConnectionError, or PermissionError for a wrong token.
    explicit Session(const std::string& addresses, const ConnectOptions& options = {});
    explicit Session(std::shared_ptr<detail::Core> core) noexcept : core_(std::move(core)) {}
    /// Ends the session without waiting for commands: the server drops what it holds. Throws nothing.
    ~Session();
    Session(Session&&) noexcept = default;
    Session& operator=(Session&& other) noexcept;

    /// A leaf with one dimension of values, or with another shape. The values are in row-major order.
    template <Element T>
    Tensor tensor(std::initializer_list<T> values, const Integers& shape = {}) {
        return tensor(std::vector<T>(values), shape);
    }
    /// Is tensor() of a vector.
    template <Element T>
    Tensor tensor(const std::vector<T>& values, const Integers& shape = {}) {
        if constexpr (std::is_same_v<T, bool>) {
            std::string bytes(values.size(), '\0');
            for (std::size_t i = 0; i < values.size(); ++i) bytes[i] = values[i] ? 1 : 0;
            return from_bytes(DType::Bool, bytes, shape.given() ? shape : sizes(values.size()));
        } else {
            return tensor(std::span<const T>(values), shape);
        }
    }
    /// Is tensor() of a span.
    template <Element T>
    Tensor tensor(std::span<const T> values, const Integers& shape = {}) {
        return from_bytes(dtype_of<T>(), {reinterpret_cast<const char*>(values.data()), values.size_bytes()},
                          shape.given() ? shape : sizes(values.size()));
    }
    /// A leaf without dimensions.
    template <Element T>
    Tensor scalar(T value) {
        return from_bytes(dtype_of<T>(), {reinterpret_cast<const char*>(&value), sizeof value}, Integers(none()));
    }
    /// A leaf of little-endian bytes in row-major order. Large values travel in chunks: it then returns when the server
    /// has them. Throws ArgumentValueError if the bytes do not fit the shape.
    Tensor from_bytes(DType dtype, std::string_view bytes, const Integers& shape);

    /// Sends all commands and returns when they are answered. Throws the first refusal since the last wait or read.
    void wait();
    /// Is wait(), but returns false if the time passes first. The commands go on.
    bool wait_for(std::chrono::milliseconds time);
    /// Stops the session's running and waiting commands, which fail with Reason::Cancelled. May be called while another
    /// thread waits.
    void cancel();
    /// Waits for all commands and ends the session; the server frees what it holds. Throws the first refusal since the
    /// last wait or read. Does nothing the second time.
    void close();

    /// Seeds the session's random generator, which draws PyTorch's numbers on the CPU (torch.manual_seed).
    void manual_seed(std::int64_t seed);
    /// Makes a program of what a function does, and registers it. The function gets a session that records, stand-ins
    /// for the inputs, and placeholders for the numbers. It may use only tensors of that session, reads none, and
    /// returns the outputs. Nothing is computed until the program runs. Waits.
    Program trace(const std::vector<Input>& inputs, std::size_t numbers, const Program::Function& function);
    /// Loads a program file, given its bytes. Waits.
    ProgramFile load_program(std::string_view file);

    /// Stores the session under a name: values, gradients, the graph and the random generator. restore() opens it, and
    /// returns the given tensors by their names. A snapshot of that name is replaced. The server keeps it for `live`,
    /// or with 0 as long as it keeps any. The server needs --state-dir. Waits, and throws the first refusal since the
    /// last wait or read.
    void save(const std::string& name, const std::map<std::string, Tensor>& tensors = {},
              std::chrono::milliseconds live = std::chrono::milliseconds(0));
    /// Lists the caller's snapshots on the session's server, by name. Waits.
    std::vector<Snapshot> snapshots() const;
    /// Deletes a snapshot of the caller's on the session's server. Waits.
    void delete_snapshot(const std::string& name);

    /// The session's id. Keep it secret: it gives access to the session.
    const std::string& id() const noexcept;
    /// How often the stream was opened again after a broken connection.
    std::size_t reconnects() const;
    /// The session's part in the library.
    const std::shared_ptr<detail::Core>& core() const noexcept { return core_; }

  private:
    static Integers sizes(std::size_t size) { return {static_cast<std::int64_t>(size)}; }
    static std::vector<std::int64_t> none() { return {}; }

    std::shared_ptr<detail::Core> core_;
};

/// A session from a snapshot.
struct Restored {
    Session session;
    /// The tensors that were saved under names.
    std::map<std::string, Tensor> tensors{};
};

/// Opens a new session from a snapshot that Session::save made. The addresses and options are those of Session. Waits.
/// Throws Error with Reason::SnapshotNotFound if there is none of that name.
Restored restore(const std::string& addresses, const std::string& name, const ConnectOptions& options = {});

}  // namespace gradwire
