// Sessions: opening, waiting, values, and the end.
#include "gradwire/session.hpp"

#include <algorithm>

#include "connection.hpp"
#include "core.hpp"
#include "failures.hpp"
#include "gradwire/client.hpp"
#include "writer.hpp"

namespace gradwire {

using namespace detail;  // NOLINT: this library's own

Session::Session(const std::string& addresses, const ConnectOptions& options) : core_(Core::open(addresses, options)) {}

Session::~Session() {
    if (core_) core_->end();
}

Session& Session::operator=(Session&& other) noexcept {
    if (this != &other) {
        if (core_) core_->end();
        core_ = std::move(other.core_);
    }
    return *this;
}

Tensor Session::from_bytes(DType dtype, std::string_view bytes, const Integers& shape) {
    std::size_t expected = size_of(dtype);
    std::string told;
    for (std::int64_t size : shape.values()) {
        expected *= static_cast<std::size_t>(std::max<std::int64_t>(0, size));
        told += (told.empty() ? "" : ", ") + std::to_string(size);
    }
    if (expected != bytes.size()) {
        if (size_of(dtype) > 0 && bytes.size() % size_of(dtype) == 0) {
            raise(mistake(Reason::PayloadSize, "",
                          "shape '[" + told + "]' is invalid for input of size " +
                              std::to_string(bytes.size() / size_of(dtype))));
        }
        raise(mistake(Reason::PayloadSize, "create",
                      "shape [" + told + "] of " + std::string(name_of(dtype)) + " has " + std::to_string(expected) +
                          " bytes, not " + std::to_string(bytes.size())));
    }
    pb::Command command;
    auto* request = command.mutable_create();
    request->set_grad_mode(static_cast<pb::GradMode>(grad_mode()));
    auto describe = [&](auto* values) {
        values->set_dtype(static_cast<pb::Dtype>(dtype));
        values->mutable_shape()->Add(shape.values().begin(), shape.values().end());
    };
    if (core_->live() && bytes.size() > core_->opened().limits().max_inline_bytes()) {
        *request->mutable_transfer() = upload(*core_, bytes);
        describe(request->mutable_transfer());
    } else {
        request->mutable_payload()->set_data(bytes.data(), bytes.size());
        describe(request->mutable_payload());
    }
    Tensor made = core_->new_tensor();
    request->set_id(made.id());
    core_->sink().send(std::move(command));
    return made;
}

void Session::wait() {
    core_->sink().wait({});
    if (auto failure = core_->sink().take_failure()) raise(*failure);
}

bool Session::wait_for(std::chrono::milliseconds time) {
    if (!core_->sink().wait(Clock::now() + time)) return false;
    if (auto failure = core_->sink().take_failure()) raise(*failure);
    return true;
}

void Session::cancel() {
    if (!core_->live()) return;
    pb::CancelRequest request;
    request.set_session_id(core_->opened().session_id());
    core_->connection().call(&pb::AutogradService::Stub::Cancel, request);
}

void Session::close() {
    if (!core_->live() || core_->ended()) return;
    std::exception_ptr failed;
    try {
        wait();
    } catch (const Error&) {
        failed = std::current_exception();  // thrown after the end
    }
    core_->end();
    if (failed) std::rethrow_exception(failed);
}

void Session::manual_seed(std::int64_t seed) {
    pb::Command command;
    command.mutable_manual_seed()->set_seed(seed);
    command.mutable_manual_seed()->set_algorithm(pb::RANDOM_ALGORITHM_MT19937);
    core_->sink().send(std::move(command));
}

// Snapshots

namespace {

/// The connection of a session that is open.
Connection& connection_of(const Core& core, const char* op) {
    if (!core.live()) raise(mistake(Reason::NotSupported, op, "a program has no snapshots"));
    if (core.ended()) raise(closed());
    return core.connection();
}

}  // namespace

void Session::save(const std::string& name, const std::map<std::string, Tensor>& tensors,
                   std::chrono::milliseconds live) {
    Connection& connection = connection_of(*core_, "save");
    pb::SaveSessionRequest request;
    request.set_session_id(id());
    request.set_name(name);
    request.set_ttl_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(0, live.count())));
    for (const auto& [key, tensor] : tensors) {
        if (core_of(tensor, "save") != core_) {
            raise(mistake(Reason::ArgumentValue, "save", "\"" + key + "\" is a tensor of another session"));
        }
        auto* named = request.add_tensors();
        named->set_name(key);
        named->set_id(tensor.id());
    }
    wait();
    connection.call(&pb::AutogradService::Stub::SaveSession, request);
}

std::vector<Snapshot> Session::snapshots() const {
    const auto answer =
        connection_of(*core_, "snapshots").call(&pb::AutogradService::Stub::ListSnapshots, pb::ListSnapshotsRequest());
    std::vector<Snapshot> made;
    for (const auto& each : answer.snapshots()) {
        const std::chrono::milliseconds saved(each.saved_unix_ms());
        made.push_back({each.name(), each.bytes(), each.tensors(), std::chrono::system_clock::time_point(saved),
                        std::chrono::milliseconds(each.ttl_left_ms())});
    }
    return made;
}

void Session::delete_snapshot(const std::string& name) {
    pb::DeleteSnapshotRequest request;
    request.set_name(name);
    connection_of(*core_, "delete_snapshot").call(&pb::AutogradService::Stub::DeleteSnapshot, request);
}

Restored restore(const std::string& addresses, const std::string& name, const ConnectOptions& options) {
    std::map<std::string, Tensor> tensors;
    auto core = Core::restore(addresses, name, options, tensors);
    return {Session(std::move(core)), std::move(tensors)};
}

const std::string& Session::id() const noexcept { return core_->opened().session_id(); }

std::size_t Session::reconnects() const { return core_->live() ? core_->writer()->reconnects() : 0; }

std::shared_ptr<v1::AutogradService::StubInterface> stub(const Session& session) {
    return session.core()->connection().stub();
}

void authenticate(const Session& session, grpc::ClientContext& context) {
    session.core()->connection().authenticate(context);
}

}  // namespace gradwire
