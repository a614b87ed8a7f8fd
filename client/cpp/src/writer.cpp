// Numbers a session's commands, sends them over one stream after another, and keeps what is not answered.
#include "writer.hpp"

#include <algorithm>
#include <random>

#include "failures.hpp"

namespace gradwire::detail {

namespace {

constexpr std::uint64_t send_at = 64;            // commands at which a batch is sent while few are under way
constexpr std::uint64_t grow_to = 1024;          // commands up to which a batch grows while many are under way
constexpr std::size_t most_sent = 8;             // batches under way; the server stops reading at 16
constexpr std::size_t most_roots = 1024;         // refusals that are remembered for commands that depend on them
constexpr std::size_t most_failures = 64;        // refusals of quiet commands kept until the next wait
constexpr std::size_t most_releases = 4096;      // ids of one Release
constexpr std::uint64_t largest_prepared = 256;  // bytes of a prepared op
// Streams that break since the last answer to a batch, and times the patience; then no connection seems to carry it.
constexpr int most_patiences = 10;
constexpr int patience_parts = 4;  // a stream that lasts for one has carried its batches: the server computes

constexpr char no_gradient[] =
    "the tensor has no gradient: no backward has reached it. The .grad attribute of a Tensor that is not a leaf won't "
    "be "
    "populated by backward(). If you want the gradient of a non-leaf Tensor, call .retain_grad() on it before "
    "backward()";

/// A pause that ends a little early or late, so that clients spread.
std::chrono::milliseconds jittered(std::chrono::milliseconds pause) {
    thread_local std::minstd_rand random{std::random_device{}()};
    return pause / 2 + std::chrono::milliseconds(random() % static_cast<unsigned>(pause.count()));
}

}  // namespace

Writer::Writer(Links links, const pb::OpenSessionResponse& opened, std::chrono::milliseconds patience,
               std::shared_ptr<Releases> releases)
    : links_(std::move(links)),
      opened_(opened),
      patience_(patience),
      releases_(std::move(releases)),
      window_(most_sent),
      thread_([this] { run(); }) {}

Writer::~Writer() {
    kill(closed());
    join();
}

// Commands that wait for the next batch

void Writer::send(pb::Command&& command) {
    command.set_quiet(true);
    Lock lock(mutex_);
    check_alive();
    if (command.has_grad()) gradients_[asked_++ % gradients_.size()] = command.grad().id();
    add(lock, std::move(command), nullptr);
}

/// Throws if the writer has ended: a program that reads nothing would not notice.
void Writer::check_alive() const {
    if (dead_) raise(*dead_);
}

void Writer::add(Lock& lock, pb::Command&& command, Waiter* waiter) {
    const std::uint64_t size = command.ByteSizeLong() + 8;
    const std::uint64_t most = opened_.limits().max_message_bytes();
    if (count_ > 0 && most > 0 && bytes_ + size + 1024 > most) cut();
    end_calls();
    *commands_->add_commands() = std::move(command);
    if (waiter) waiting_[next_] = waiter;
    bytes_ += size;
    counted(lock);
}

/// Follows every command: sends a batch that is large enough, and waits while it can grow no more.
void Writer::counted(Lock& lock) {
    ++next_;
    ++count_;
    if (count_ < send_at) return;
    std::uint64_t most = grow_to;
    if (auto limit = opened_.limits().max_batch_commands(); limit > 0) most = std::min<std::uint64_t>(most, limit);
    settled_.wait(lock, [&] {
        const bool full = count_ >= most || bytes_ >= static_cast<std::uint64_t>(grow_bytes());
        return !full || queue_.size() < most_sent || dead_;
    });
    if (queue_.size() < most_sent || dead_) cut();
}

/// The bytes to which a batch grows: a larger message hardly passes a connection that breaks all the time.
int Writer::grow_bytes() const noexcept { return window_ < most_sent ? 2 << 10 : 8 << 10; }

void Writer::end_calls() {
    if (calls_ == 0) return;
    auto* calls = commands_->add_commands()->mutable_calls();
    calls->set_count(calls_);
    calls->mutable_words()->swap(words_);
    calls_ = 0;
}

/// Adds a call: the second time and later as a call of a prepared op.
void Writer::op(const Operation& operation) {
    Lock lock(mutex_);
    check_alive();
    key_.clear();
    const bool can = append_key(operation, key_);
    auto known = can ? prepared_.find(key_) : prepared_.end();
    if (known == prepared_.end()) {
        if (!can || !seen_.contains(key_) || !prepare(lock, operation)) {
            if (can && seen_.size() < 4 * opened_.limits().max_prepared()) seen_.insert(key_);
            pb::Command command;
            command.set_quiet(true);
            *command.mutable_op() = request_of(operation);
            add(lock, std::move(command), nullptr);
            return;
        }
        // Waiting in add() let other threads change key_.
        key_.clear();
        append_key(operation, key_);
        known = prepared_.find(key_);
    }
    const std::size_t before = words_.size();
    append_words(operation, known->second, words_);
    ++calls_;
    bytes_ += words_.size() - before;
    counted(lock);
}

/// Adds a Prepare under key_, if the server allows one more.
bool Writer::prepare(Lock& lock, const Operation& operation) {
    pb::OpRequest request = request_of(operation);
    if (prepared_.size() >= opened_.limits().max_prepared() || request.ByteSizeLong() > largest_prepared) return false;
    const auto number = static_cast<std::uint32_t>(prepared_.size());
    prepared_.emplace(key_, number);
    seen_.erase(key_);
    pb::Command command;
    command.set_quiet(true);
    command.mutable_prepare()->set_number(number);
    *command.mutable_prepare()->mutable_op() = std::move(request);
    add(lock, std::move(command), nullptr);
    return true;
}

/// Makes a batch of the commands that wait. Releases are its end: the server answers before it frees.
void Writer::cut() {
    if (auto ids = releases_->take(most_releases); !ids.empty()) {
        end_calls();
        pb::Command& command = *commands_->add_commands();
        command.set_quiet(true);
        command.mutable_release()->mutable_tensors()->Add(ids.begin(), ids.end());
        ++next_;
    }
    end_calls();
    if (commands_->commands_size() == 0) return;
    Batch made;
    made.last = next_ - 1;
    made.waiting.swap(waiting_);
    commands_->set_first_seq(first_);
    made.message = std::make_shared<pb::StreamRequest>();
    made.message->set_allocated_batch(commands_.release());
    commands_ = std::make_unique<pb::RunRequest>();
    first_ = next_;
    count_ = bytes_ = 0;
    if (dead_) {
        settled_.notify_all();  // who waits for an answer sees that there is none
        return;
    }
    queue_.push_back(std::move(made));
    sendable_.notify_one();
}

// Waiting

pb::Result Writer::ask(pb::Command&& command) {
    Waiter waiter;
    Lock lock(mutex_);
    add(lock, std::move(command), &waiter);
    cut();
    settled_.wait(lock, [&] { return waiter.done || dead_; });
    if (!waiter.done) {
        Failure failure = *dead_;
        lock.unlock();
        raise(failure);
    }
    return std::move(waiter.result);
}

bool Writer::wait(std::optional<std::chrono::steady_clock::time_point> until) {
    Lock lock(mutex_);
    do cut();
    while (!dead_ && !releases_->empty());
    const std::uint64_t last = queue_.empty() ? 0 : queue_.back().last;
    auto settled = [&] { return dead_ || queue_.empty() || queue_.front().last > last; };
    if (until) {
        if (!settled_.wait_until(lock, *until, settled)) return false;
    } else {
        settled_.wait(lock, settled);
    }
    if (dead_) {
        Failure failure = *dead_;
        lock.unlock();
        raise(failure);
    }
    return true;
}

/// The others are dropped: most follow from the first.
std::optional<Failure> Writer::take_failure() {
    Lock lock(mutex_);
    if (failures_.empty()) return {};
    Failure first = std::move(failures_.front());
    failures_.clear();
    return first;
}

Failure Writer::origin(Failure failure) {
    Lock lock(mutex_);
    auto root = roots_.find(failure.root_seq);
    return failure.root_seq != 0 && root != roots_.end() ? root->second : explained(std::move(failure));
}

/// Tells of a missing gradient as such. The server knows only that its id names no tensor.
Failure Writer::explained(Failure failure) const {
    if (failure.reason != Reason::TensorNotFound) return failure;
    const auto told = failure.metadata.find("tensor");
    if (told == failure.metadata.end()) return failure;
    const bool gradient = std::any_of(gradients_.begin(), gradients_.end(),
                                      [&](std::uint64_t id) { return id != 0 && std::to_string(id) == told->second; });
    if (gradient) failure.message = no_gradient;
    return failure;
}

std::size_t Writer::reconnects() const {
    Lock lock(mutex_);
    return reconnects_;
}

void Writer::kill(Failure failure) {
    Lock lock(mutex_);
    if (dead_) return;
    dead_ = std::move(failure);
    queue_.clear();
    sent_ = 0;
    cut();
    releases_->close();
    if (wire_) wire_->cancel();
    sendable_.notify_all();
    settled_.notify_all();
    pausing_.notify_all();
}

void Writer::join() {
    if (thread_.joinable()) thread_.join();
}

// The stream

/// Counts a stream that broke after its start was answered. Changes the failure, and returns true, if so many broke for
/// so long that no connection seems to carry the next batch. A server that answers a stream's start only would
/// otherwise be tried for ever. One batch may compute for longer than the patience.
bool Writer::uncarried(BrokenStreams& broken, Clock::duration lasted, Failure& failure) const {
    Lock lock(mutex_);
    if (queue_.empty() || lasted > patience_ / patience_parts) {
        broken = {};
        return false;
    }
    if (broken.count == 0 || broken.acknowledged != acknowledged_) {
        broken = {.count = 0, .since = Clock::now(), .acknowledged = acknowledged_};
    }
    ++broken.count;
    if (broken.count < most_patiences || Clock::now() - broken.since <= most_patiences * patience_) return false;
    failure.reason = Reason::Unavailable;
    failure.message = std::to_string(broken.count) + " connections broke in " +
                      std::to_string((most_patiences * patience_).count()) + " ms before a batch of " +
                      std::to_string(queue_.front().size) + " bytes was answered: " + failure.message;
    return true;
}

/// Keeps a stream open until the writer ends.
void Writer::run() {
    std::optional<Clock::time_point> since;  // of the first failure after the last answer
    BrokenStreams broken;
    auto pause = first_pause;
    for (;;) {
        Failure failure;
        const auto began = Clock::now();
        const bool progress = stream(failure);
        {
            Lock lock(mutex_);
            if (dead_) return;
        }
        if (progress) {
            since.reset();
            pause = first_pause;
        }
        if (!since) since = Clock::now();
        if (!may_retry(failure)) return kill(std::move(failure));
        if (progress && uncarried(broken, Clock::now() - began, failure)) return kill(std::move(failure));
        if (Clock::now() - *since > patience_) {
            failure.reason = Reason::Unavailable;
            failure.message = "no answer for " + std::to_string(patience_.count()) + " ms: " + failure.message;
            return kill(std::move(failure));
        }
        links_.failed(failure);
        Lock lock(mutex_);
        if (pausing_.wait_for(lock, jittered(pause), [&] { return dead_.has_value(); })) return;
        pause = std::min(2 * pause, longest_pause);
    }
}

/// Opens a stream, sends all that is not answered, and tells how it ended. Returns whether it had an answer.
bool Writer::stream(Failure& failure) {
    std::unique_ptr<Wire> wire = links_.connect();
    pb::StreamRequest attach;
    {
        Lock lock(mutex_);
        if (dead_) return false;
        wire_ = wire.get();
        streaming_ = true;
        sent_ = 0;
        credit_ = 0;
        attached_ = false;
        if (++attempt_ > 1) {
            ++reconnects_;
            window_ = 1;  // an answer comes before the next break
        }
        auto* request = attach.mutable_attach();
        request->set_session_id(opened_.session_id());
        request->set_writer(opened_.writer());
        request->set_epoch(opened_.epoch());
        request->set_acknowledged_seq(acknowledged_);
        request->set_attempt(attempt_);
        request->set_joined_answers(true);
        told_ = acknowledged_;
    }
    bool progress = false;
    std::thread sending;
    if (wire->send(attach)) sending = std::thread([&] { sender(*wire); });
    pb::StreamResponse message;
    while (wire->receive(message)) {
        progress = true;
        received(message);
        message.Clear();
    }
    {
        Lock lock(mutex_);
        streaming_ = false;  // no cancel(): it would hide the reason from refusal()
        sendable_.notify_all();
    }
    if (sending.joinable()) sending.join();
    {
        Lock lock(mutex_);
        wire_ = nullptr;
    }
    failure = wire->refusal();
    return progress;
}

void Writer::received(pb::StreamResponse& message) {
    std::vector<std::uint64_t> dropped;
    {
        Lock lock(mutex_);
        credit_ += static_cast<std::int64_t>(message.credit_bytes());
        if (message.has_attached()) attached_ = true;
        if (message.has_batch()) {
            const auto& hooks = message.batch().dropped_hooks();
            dropped.assign(hooks.begin(), hooks.end());
            answered(std::max<std::uint32_t>(1, message.batches()), *message.mutable_batch());
            settled_.notify_all();
        }
        sendable_.notify_one();
    }
    if (!dropped.empty()) links_.dropped(dropped);
}

/// Takes batches from the queue, of which the last one has the results.
void Writer::answered(std::size_t count, pb::RunResponse& run) {
    count = std::min(count, queue_.size());
    if (count == 0) return;
    Waiting waiting;
    for (std::size_t taken = 0; taken < count; ++taken) {
        acknowledged_ = queue_.front().last;
        waiting.merge(queue_.front().waiting);
        queue_.pop_front();
    }
    sent_ -= std::min(sent_, count);
    window_ = std::min(2 * window_, most_sent);
    for (pb::Result& result : *run.mutable_results()) {
        auto waiter = waiting.find(result.seq());
        const bool quiet = waiter == waiting.end();
        if (result.has_error()) refused(result.seq(), result.error(), quiet);
        if (quiet) continue;
        waiter->second->result.Swap(&result);
        waiter->second->done = true;
        waiting.erase(waiter);
    }
    for (auto& [seq, waiter] : waiting) {
        waiter->result.mutable_error()->set_reason(pb::REASON_INTERNAL);
        waiter->result.mutable_error()->set_message("the server gave no answer to command " + std::to_string(seq));
        waiter->done = true;
    }
}

/// Remembers a refusal, as the origin of others and, of a quiet command, for the next wait.
void Writer::refused(std::uint64_t seq, const pb::Error& told, bool quiet) {
    Failure failure = explained(failure_of(told));
    const bool follows = failure.reason == Reason::DependencyFailed;
    if (quiet && failures_.size() < most_failures && !(follows && roots_.contains(failure.root_seq))) {
        failures_.push_back(failure);
    }
    if (follows) return;
    if (root_order_.size() == most_roots) {
        roots_.erase(root_order_.front());
        root_order_.pop_front();
    }
    roots_.insert_or_assign(seq, std::move(failure));
    root_order_.push_back(seq);
}

/// Sends batches while there is credit, and acknowledges answers before a pause.
void Writer::sender(Wire& wire) {
    while (auto message = next_message()) {
        if (!wire.send(*message)) return;  // receive() tells why
    }
}

/// Waits for a message that may be sent; null if the stream is over.
std::shared_ptr<const pb::StreamRequest> Writer::next_message() {
    Lock lock(mutex_);
    for (;;) {
        if (!streaming_ || dead_) return nullptr;
        if (attached_ && sent_ < std::min(queue_.size(), window_)) {
            Batch& batch = queue_[sent_];
            if (!batch.stamped) {
                batch.message->mutable_batch()->set_acknowledged_seq(acknowledged_);
                batch.size = static_cast<std::int64_t>(batch.message->batch().ByteSizeLong());
                batch.stamped = true;
            }
            if (credit_ >= batch.size) {
                credit_ -= batch.size;
                ++sent_;
                told_ = std::max(told_, batch.message->batch().acknowledged_seq());
                return batch.message;
            }
        }
        if (attached_ && queue_.empty() && acknowledged_ > told_ + send_at) {
            told_ = acknowledged_;
            auto message = std::make_shared<pb::StreamRequest>();
            message->mutable_acknowledge()->set_acknowledged_seq(acknowledged_);
            return message;
        }
        sendable_.wait(lock);
    }
}

}  // namespace gradwire::detail
