// What a session is behind its handle. Tensors keep it, so it outlives the session, but does nothing after its end.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "gradwire/session.hpp"
#include "gradwire/v1/service.pb.h"

namespace grpc {
class ClientContext;
}

namespace gradwire::detail {

namespace pb = ::gradwire::v1;

class Connection;
class Streams;
class Writer;

/// A call to send: its mode, and the ids for its results.
struct Operation {
    const Call& call;
    GradMode mode;
    std::vector<std::uint64_t> outputs;
};

/// Takes a session's commands: the writer of a live session, or the recorder of a program.
class Sink {
  public:
    virtual ~Sink() = default;
    /// Adds a command that is answered only if it fails.
    virtual void send(pb::Command&& command) = 0;
    /// Adds a call of an op.
    virtual void op(const Operation& operation) = 0;
    /// Adds a command and waits for its answer, which may be a refusal. Throws if the session is over.
    virtual pb::Result ask(pb::Command&& command) = 0;
    /// Waits until all commands are answered, at most until a time. False if the time has passed.
    virtual bool wait(std::optional<std::chrono::steady_clock::time_point> until) = 0;
    /// The first refusal of a quiet command since the last call.
    virtual std::optional<Failure> take_failure() = 0;
    /// Replaces a refusal that follows from an earlier one by that one.
    virtual Failure origin(Failure failure) = 0;
};

/// Ids to release. A tensor's destructor adds to it, which neither waits nor throws; the next batch takes them.
class Releases {
  public:
    void add(std::uint64_t id) noexcept;
    /// At most so many ids, so that a message stays small.
    std::vector<std::uint64_t> take(std::size_t most);
    bool empty() const;
    /// Ignores ids from now on.
    void close() noexcept;

  private:
    mutable std::mutex mutex_;
    std::vector<std::uint64_t> ids_;
    bool closed_ = false;
};

/// What a hook or a custom function is given where a backward stops at it. A tensor is empty where there is none.
struct HookArguments {
    std::vector<Tensor> gradients;
    std::vector<Tensor> others;  // a node's gradients of outputs, or what a custom function saved
    Tensor leaf;
};
/// Returns the gradients that replace the given ones, or nothing to leave these.
using HookFunction = std::function<std::optional<std::vector<Tensor>>(const HookArguments& given)>;

using Hash = std::array<std::uint8_t, 32>;
Hash sha256(std::string_view bytes);

/// A session's state.
class Core : public std::enable_shared_from_this<Core> {
  public:
    /// Of a live session: opens it. Throws if that fails.
    static std::shared_ptr<Core> open(const std::string& addresses, const ConnectOptions& options);
    /// Of a session from a snapshot, whose named tensors it also returns.
    static std::shared_ptr<Core> restore(const std::string& addresses, const std::string& name,
                                         const ConnectOptions& options, std::map<std::string, Tensor>& tensors);
    /// Of a program that is recorded.
    static std::shared_ptr<Core> recording(std::unique_ptr<Sink> sink);
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;
    ~Core();

    Sink& sink() noexcept { return *sink_; }
    bool live() const noexcept { return writer_ != nullptr; }
    const pb::OpenSessionResponse& opened() const noexcept { return opened_; }
    Connection& connection() const noexcept { return *connection_; }
    Writer* writer() const noexcept { return writer_; }
    Releases& releases() noexcept { return *releases_; }
    std::string request_id();

    std::uint64_t new_id() noexcept { return next_id_.fetch_add(1, std::memory_order_relaxed); }
    /// A tensor with a fresh id.
    Tensor new_tensor() { return adopt(new_id()); }
    /// A tensor of an id that is released with it.
    Tensor adopt(std::uint64_t id);
    /// Sends a command and waits. An earlier refusal is thrown first, then this command's.
    pb::Result ask(pb::Command&& command);

    std::uint64_t add_hook(HookFunction function);
    bool has_hooks() const;
    /// The hook's function, or null.
    std::shared_ptr<const HookFunction> hook(std::uint64_t number) const;
    void drop_hooks(const std::vector<std::uint64_t>& numbers);

    /// Notes that a program is the most recently run one. Says whether the server may have forgotten it.
    bool ran(const Hash& hash);
    /// Whether the server still has a program.
    bool has(const Hash& hash) const;
    /// Notes the programs of a file as the most recently run ones, in the server's order: first those that it had.
    void loaded(const std::vector<Hash>& programs);
    /// Held from the note of a run until its command is queued: no other run may come before a registration.
    std::mutex& running() noexcept { return running_; }

    /// Ends the session without waiting for commands, and tells the server. Does nothing the second time.
    void end() noexcept;
    bool ended() const;

  private:
    Core() = default;
    static std::shared_ptr<Core> begin(std::unique_ptr<Connection> connection, pb::OpenSessionResponse opened);
    void keep_alive();

    pb::OpenSessionResponse opened_;
    std::unique_ptr<Connection> connection_;
    std::unique_ptr<Streams> streams_;
    std::unique_ptr<Sink> sink_;
    Writer* writer_ = nullptr;  // the sink of a live session
    const std::shared_ptr<Releases> releases_ = std::make_shared<Releases>();
    std::atomic<std::uint64_t> next_id_{1};
    std::atomic<std::uint64_t> requests_{0};
    std::string prefix_;  // of request ids

    std::mutex running_;
    mutable std::mutex mutex_;  // all below
    std::unordered_map<std::uint64_t, std::shared_ptr<const HookFunction>> hooks_;
    std::deque<Hash> recent_;  // programs, the most recently run last
    bool ended_ = false;
    grpc::ClientContext* renewing_ = nullptr;  // the call of keep_alive under way
    std::condition_variable stopped_;
    std::thread keeper_;
};

/// An id that is released when the last tensor of it dies.
struct Handle {
    Handle(std::shared_ptr<Core> its_core, std::uint64_t its_id, bool released_with_it)
        : core(std::move(its_core)), id(its_id), released(released_with_it) {}
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() {
        if (released) core->releases().add(id);
    }

    const std::shared_ptr<Core> core;
    const std::uint64_t id;
    const bool released;  // not of ids that others release
};

/// Lists of a call's argument, which are rare.
struct Lists {
    std::string text;
    std::vector<std::int64_t> integers;
    std::vector<double> floats;
    std::vector<Tensor> tensors;
    std::vector<IndexItem> items;
};

/// What the stream needs of a call.
pb::OpRequest request_of(const Operation& operation);
/// Appends what two calls must have in common to be calls of one prepared op: all but ids and floats. False if the op
/// cannot be prepared.
bool append_key(const Operation& operation, std::string& key);
/// Appends a prepared call: the op's number, then its places.
void append_words(const Operation& operation, std::uint32_t number, std::string& words);

/// The core of a tensor. Throws if it is empty.
const std::shared_ptr<Core>& core_of(const Tensor& tensor, const char* op);
/// The core that lists of tensors share. Empty tensors are skipped; null if there is no other. Throws if they differ.
std::shared_ptr<Core> common_core(const char* op, std::initializer_list<const std::vector<Tensor>*> lists);

/// Sends values in chunks, and returns the finished transfer.
pb::Transfer upload(Core& core, std::string_view data);
/// Fetches a transfer's bytes.
void download(Core& core, const pb::Transfer& transfer, char* data);

/// The recorder of a program.
class Recorder final : public Sink {
  public:
    explicit Recorder(pb::Program& program) : program_(program) {}
    void send(pb::Command&& command) override;
    void op(const Operation& operation) override;
    pb::Result ask(pb::Command&& command) override;
    bool wait(std::optional<std::chrono::steady_clock::time_point> until) override;
    std::optional<Failure> take_failure() override { return {}; }
    Failure origin(Failure failure) override { return failure; }

  private:
    pb::Program& program_;
};

template <class Repeated>
void add_ids(const std::vector<Tensor>& tensors, Repeated* ids) {
    for (const Tensor& each : tensors) ids->Add(each.id());
}

}  // namespace gradwire::detail
