// Numbers a session's commands, sends them over one stream after another, and keeps what is not answered.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core.hpp"
#include "wire.hpp"

namespace gradwire::detail {

/// The commands of a live session.
class Writer final : public Sink {
  public:
    /// How the writer reaches the server, and whom it tells.
    struct Links {
        /// Opens a stream. Throws nothing; null with a failure if it cannot.
        std::function<std::unique_ptr<Wire>()> connect;
        /// Is told each failure of a stream, before the next is opened.
        std::function<void(const Failure&)> failed;
        /// Is told which hooks the server has dropped.
        std::function<void(const std::vector<std::uint64_t>&)> dropped;
    };

    Writer(Links links, const pb::OpenSessionResponse& opened, std::chrono::milliseconds patience,
           std::shared_ptr<Releases> releases);
    ~Writer() override;

    void send(pb::Command&& command) override;
    void op(const Operation& operation) override;
    pb::Result ask(pb::Command&& command) override;
    bool wait(std::optional<std::chrono::steady_clock::time_point> until) override;
    std::optional<Failure> take_failure() override;
    Failure origin(Failure failure) override;

    /// Ends everything with a failure. Does nothing the second time.
    void kill(Failure failure);
    /// Waits for the end of the writer's thread. After kill().
    void join();
    std::size_t reconnects() const;

  private:
    /// Who waits for an answer.
    struct Waiter {
        bool done = false;
        pb::Result result{};
    };
    using Waiting = std::unordered_map<std::uint64_t, Waiter*>;
    /// A message of commands, kept until its answer comes.
    struct Batch {
        std::shared_ptr<pb::StreamRequest> message;
        std::uint64_t last = 0;
        std::int64_t size = 0;
        bool stamped = false;  // its acknowledgement is set: it is sent again unchanged
        Waiting waiting;
    };
    /// The streams that broke since the last answer to a batch.
    struct BrokenStreams {
        int count = 0;
        std::chrono::steady_clock::time_point since{};  // when the first broke
        std::uint64_t acknowledged = 0;
    };
    using Lock = std::unique_lock<std::mutex>;

    void add(Lock& lock, pb::Command&& command, Waiter* waiter);
    void counted(Lock& lock);
    int grow_bytes() const noexcept;
    void end_calls();
    bool prepare(Lock& lock, const Operation& operation);
    void cut();
    void run();
    bool stream(Failure& failure);
    bool uncarried(BrokenStreams& broken, std::chrono::steady_clock::duration lasted, Failure& failure) const;
    void received(pb::StreamResponse& message);
    void answered(std::size_t count, pb::RunResponse& run);
    void refused(std::uint64_t seq, const pb::Error& told, bool quiet);
    Failure explained(Failure failure) const;
    void check_alive() const;
    void sender(Wire& wire);
    std::shared_ptr<const pb::StreamRequest> next_message();

    const Links links_;
    const pb::OpenSessionResponse opened_;
    const std::chrono::milliseconds patience_;
    const std::shared_ptr<Releases> releases_;

    mutable std::mutex mutex_;
    std::condition_variable sendable_;  // batches, credit, attached and dead, for the thread that sends
    std::condition_variable settled_;   // answers and dead, for threads that wait
    std::condition_variable pausing_;   // dead, for the pause between streams

    // Commands that wait for the next batch.
    std::unique_ptr<pb::RunRequest> commands_ = std::make_unique<pb::RunRequest>();
    std::string words_;
    std::uint32_t calls_ = 0;
    std::uint64_t count_ = 0;
    std::uint64_t bytes_ = 0;
    Waiting waiting_;
    std::uint64_t first_ = 1;  // seq of the first of them
    std::uint64_t next_ = 1;   // seq of the next command
    std::unordered_map<std::string, std::uint32_t> prepared_;
    std::unordered_set<std::string> seen_;
    std::string key_;

    // Batches that are not answered, in order; those before sent_ were sent on the present stream.
    std::deque<Batch> queue_;
    std::size_t sent_ = 0;
    std::size_t window_;  // batches that may be under way: few after a break
    std::int64_t credit_ = 0;
    bool attached_ = false;
    bool streaming_ = false;
    std::uint64_t acknowledged_ = 0;
    std::uint64_t told_ = 0;  // acknowledged by a message
    std::uint32_t attempt_ = 0;
    std::size_t reconnects_ = 0;
    Wire* wire_ = nullptr;
    std::optional<Failure> dead_;

    std::array<std::uint64_t, 256> gradients_{};  // ids for gradients that were asked for last
    std::size_t asked_ = 0;                       // how many gradients were asked for
    std::deque<Failure> failures_;
    std::unordered_map<std::uint64_t, Failure> roots_;
    std::deque<std::uint64_t> root_order_;

    std::thread thread_;
};

}  // namespace gradwire::detail
