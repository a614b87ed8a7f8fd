// What a session is behind its handle: its ids, hooks, programs, lease, and its end.
#include "core.hpp"

#include <openssl/sha.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "connection.hpp"
#include "streams.hpp"
#include "writer.hpp"

namespace gradwire::detail {

// Ids to release

void Releases::add(std::uint64_t id) noexcept {
    try {
        std::lock_guard lock(mutex_);
        if (!closed_) ids_.push_back(id);
    } catch (const std::exception&) {
        // A destructor cannot tell that memory is short. The server frees the tensor with the session.
    }
}

std::vector<std::uint64_t> Releases::take(std::size_t most) {
    std::lock_guard lock(mutex_);
    if (ids_.size() <= most) return std::exchange(ids_, {});
    const auto middle = ids_.end() - static_cast<std::ptrdiff_t>(most);
    std::vector<std::uint64_t> taken(middle, ids_.end());
    ids_.erase(middle, ids_.end());
    return taken;
}

bool Releases::empty() const {
    std::lock_guard lock(mutex_);
    return ids_.empty();
}

void Releases::close() noexcept {
    std::lock_guard lock(mutex_);
    closed_ = true;
    ids_.clear();
}

// Opening

namespace {

/// A request with what opening and restoring have in common.
template <class Request>
Request requested(const ConnectOptions& options) {
    Request request;
    request.set_client(options.client.empty() ? std::string("gradwire-cpp/") + version : options.client);
    request.set_device_type(options.device_type);
    request.set_lease_ms(static_cast<std::uint32_t>(std::max<std::int64_t>(0, options.lease.count())));
    return request;
}

}  // namespace

std::shared_ptr<Core> Core::open(const std::string& addresses, const ConnectOptions& options) {
    auto connection = std::make_unique<Connection>(addresses, options);
    auto opened = connection->open(requested<pb::OpenSessionRequest>(options));
    return begin(std::move(connection), std::move(opened));
}

std::shared_ptr<Core> Core::restore(const std::string& addresses, const std::string& name,
                                    const ConnectOptions& options, std::map<std::string, Tensor>& tensors) {
    auto connection = std::make_unique<Connection>(addresses, options);
    auto request = requested<pb::RestoreSessionRequest>(options);
    request.set_name(name);
    request.set_named_only(true);
    pb::RestoreSessionResponse answer = connection->restore(request);
    auto core = begin(std::move(connection), std::move(*answer.mutable_session()));
    std::unordered_map<std::uint64_t, Tensor> known;  // a tensor may have several names
    for (const auto& each : answer.tensors()) {
        Tensor& tensor = known[each.spec().id()];
        if (!tensor.defined()) tensor = core->adopt(each.spec().id());
        tensors.emplace(each.name(), tensor);
    }
    return core;
}

std::shared_ptr<Core> Core::begin(std::unique_ptr<Connection> connection, pb::OpenSessionResponse opened) {
    std::shared_ptr<Core> core(new Core);
    Core* self = core.get();
    core->connection_ = std::move(connection);
    core->opened_ = std::move(opened);
    if (core->opened_.first_id() == 0) {
        raise(mistake(Reason::ProtocolVersion, "", "the server gives this client no ids; it is too old"));
    }
    core->next_id_ = core->opened_.first_id();
    std::random_device random;
    char prefix[17];
    std::snprintf(prefix, sizeof prefix, "%08x%08x", random(), random());
    core->prefix_ = prefix;
    Writer::Links links;
    core->streams_ = std::make_unique<Streams>(*core->connection_, core->opened_.local_stream());
    links.connect = [streams = core->streams_.get()] { return streams->connect(); };
    links.failed = [streams = core->streams_.get()](const Failure& failure) { streams->failed(failure); };
    links.dropped = [self](const std::vector<std::uint64_t>& hooks) { self->drop_hooks(hooks); };
    auto writer = std::make_unique<Writer>(std::move(links), core->opened_, core->connection_->options().patience,
                                           core->releases_);
    core->writer_ = writer.get();
    core->sink_ = std::move(writer);
    core->keeper_ = std::thread([self] { self->keep_alive(); });
    return core;
}

std::shared_ptr<Core> Core::recording(std::unique_ptr<Sink> sink) {
    std::shared_ptr<Core> core(new Core);
    core->releases_->close();  // ids are slots, which the server frees
    core->sink_ = std::move(sink);
    return core;
}

Core::~Core() { end(); }

std::string Core::request_id() { return prefix_ + "-" + std::to_string(requests_.fetch_add(1)); }

// Tensors

Tensor Core::adopt(std::uint64_t id) { return Tensor(std::make_shared<Handle>(shared_from_this(), id, true)); }

pb::Result Core::ask(pb::Command&& command) {
    pb::Result result = sink_->ask(std::move(command));
    if (auto earlier = sink_->take_failure()) raise(*earlier);
    if (result.has_error()) raise(sink_->origin(failure_of(result.error())));
    return result;
}

// Hooks

std::uint64_t Core::add_hook(HookFunction function) {
    const std::uint64_t number = new_id();
    auto kept = std::make_shared<const HookFunction>(std::move(function));
    std::lock_guard lock(mutex_);
    hooks_.emplace(number, std::move(kept));
    return number;
}

bool Core::has_hooks() const {
    std::lock_guard lock(mutex_);
    return !hooks_.empty();
}

std::shared_ptr<const HookFunction> Core::hook(std::uint64_t number) const {
    std::lock_guard lock(mutex_);
    auto found = hooks_.find(number);
    return found == hooks_.end() ? nullptr : found->second;
}

void Core::drop_hooks(const std::vector<std::uint64_t>& numbers) {
    std::vector<std::shared_ptr<const HookFunction>> dropped;  // die after the lock: a function may own anything
    std::lock_guard lock(mutex_);
    for (std::uint64_t number : numbers) {
        auto found = hooks_.find(number);
        if (found == hooks_.end()) continue;
        dropped.push_back(std::move(found->second));
        hooks_.erase(found);
    }
}

// Programs

bool Core::ran(const Hash& hash) {
    std::lock_guard lock(mutex_);
    auto found = std::find(recent_.begin(), recent_.end(), hash);
    const bool forgotten = found == recent_.end();
    if (!forgotten) recent_.erase(found);
    recent_.push_back(hash);
    if (auto most = opened_.limits().max_programs(); most > 0 && recent_.size() > most) recent_.pop_front();
    return forgotten;
}

bool Core::has(const Hash& hash) const {
    std::lock_guard lock(mutex_);
    return std::find(recent_.begin(), recent_.end(), hash) != recent_.end();
}

void Core::loaded(const std::vector<Hash>& programs) {
    std::vector<Hash> fresh;
    for (const Hash& hash : programs) {
        if (has(hash)) {
            ran(hash);
        } else {
            fresh.push_back(hash);
        }
    }
    for (const Hash& hash : fresh) ran(hash);
}

Hash sha256(std::string_view bytes) {
    Hash made;
    SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), made.data());
    return made;
}

// The lease and the end

/// Renews the lease three times in its length.
void Core::keep_alive() {
    using std::chrono::milliseconds;
    const auto period = std::max(milliseconds(opened_.lease_ms()) / 3, milliseconds(10));
    pb::KeepAliveRequest request;
    request.set_session_id(opened_.session_id());
    for (;;) {
        grpc::ClientContext context;
        {
            std::unique_lock lock(mutex_);
            if (stopped_.wait_for(lock, period, [&] { return ended_; })) return;
            renewing_ = &context;
        }
        connection_->authenticate(context);
        context.set_deadline(std::chrono::system_clock::now() + std::max(period, milliseconds(1000)));
        pb::KeepAliveResponse response;
        const grpc::Status status = connection_->stub()->KeepAlive(&context, request, &response);
        {
            std::lock_guard lock(mutex_);
            renewing_ = nullptr;
        }
        if (status.ok()) continue;
        Failure failure = failure_of(status, context);
        connection_->failed(failure);
        if (!may_retry(failure) && failure.reason != Reason::Unspecified) return writer_->kill(std::move(failure));
    }
}

bool Core::ended() const {
    std::lock_guard lock(mutex_);
    return ended_;
}

void Core::end() noexcept {
    std::unordered_map<std::uint64_t, std::shared_ptr<const HookFunction>> hooks;  // may own tensors, which own this
    {
        std::lock_guard lock(mutex_);
        if (std::exchange(ended_, true)) return;
        hooks.swap(hooks_);
        if (renewing_) renewing_->TryCancel();
    }
    if (!writer_) return;
    stopped_.notify_all();
    if (keeper_.joinable()) keeper_.join();
    writer_->kill(closed());
    writer_->join();
    grpc::ClientContext context;
    connection_->authenticate(context);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    pb::CloseSessionRequest request;
    request.set_session_id(opened_.session_id());
    pb::CloseSessionResponse response;
    // If the server cannot be told, the lease runs out.
    connection_->stub()->CloseSession(&context, request, &response);
}

}  // namespace gradwire::detail
