// Values above the limit for one message: they travel in chunks, and go on after a broken call where it broke.
#include <algorithm>
#include <cstring>

#include "connection.hpp"
#include "core.hpp"

namespace gradwire::detail {

namespace {

constexpr std::size_t default_chunk = 256 << 10;
constexpr std::size_t least_chunk = 4 << 10;  // to which chunks shrink while calls break before one has arrived

/// Of a call that ended well, but without all bytes: it is tried again.
Failure ended_early() {
    Failure made;
    made.code = grpc::StatusCode::UNAVAILABLE;
    made.message = "the transfer ended early";
    return made;
}

/// Makes one call of Upload, in messages of `chunk` bytes. Without data, it asks how many bytes have arrived.
std::optional<Failure> upload_from(Core& core, const pb::UploadStart& start, std::string_view data, std::size_t chunk,
                                   pb::UploadResponse& state) {
    grpc::ClientContext context;
    core.connection().authenticate(context);
    const auto stub = core.connection().stub();
    auto stream = stub->Upload(&context, &state);
    pb::UploadRequest request;
    *request.mutable_start() = start;
    bool sent = stream->Write(request);
    while (sent && !data.empty()) {
        const std::size_t size = std::min(chunk, data.size());
        request.mutable_data()->assign(data.data(), size);
        data.remove_prefix(size);
        sent = stream->Write(request);
    }
    if (sent) stream->WritesDone();
    const grpc::Status status = stream->Finish();
    if (status.ok()) return {};
    return failure_of(status, context);
}

/// Repeats a part of a transfer until it succeeds. Gives up after the session's patience without progress.
template <class Part>
void resumed(Core& core, Part part) {
    auto since = Clock::now();
    auto pause = first_pause;
    for (;;) {
        bool progress = false;
        const std::optional<Failure> failure = part(progress);
        if (!failure) return;
        core.connection().failed(*failure);
        if (progress) {
            since = Clock::now();
            pause = first_pause;
        }
        if (!may_retry(*failure) || Clock::now() - since > core.connection().options().patience) raise(*failure);
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, longest_pause);
    }
}

}  // namespace

pb::Transfer upload(Core& core, std::string_view data) {
    pb::UploadStart start;
    start.set_session_id(core.opened().session_id());
    start.set_total_bytes(data.size());
    start.set_request_id(core.request_id());
    std::uint64_t arrived = 0;
    std::string transfer;
    const std::size_t told = core.opened().limits().chunk_bytes();
    const std::size_t most = told == 0 ? default_chunk : told;
    std::size_t chunk = most;
    bool sent = false;
    resumed(core, [&](bool& progress) -> std::optional<Failure> {
        pb::UploadResponse state;
        if (auto failure = upload_from(core, start, {}, chunk, state)) return failure;
        progress = state.received_bytes() > arrived;
        if (progress) {
            chunk = std::min(2 * chunk, most);
        } else if (sent) {  // a chunk arrives as a whole or not at all
            chunk = std::max(chunk / 2, std::min(least_chunk, most));
        }
        sent = true;
        arrived = std::min<std::uint64_t>(state.received_bytes(), data.size());
        transfer = state.transfer_id();
        if (arrived == data.size()) return {};
        pb::UploadStart rest = start;
        rest.set_transfer_id(transfer);
        rest.set_offset(arrived);
        if (auto failure = upload_from(core, rest, data.substr(arrived), chunk, state)) return failure;
        return state.received_bytes() == data.size() ? std::nullopt : std::optional(ended_early());
    });
    pb::Transfer made;
    made.set_transfer_id(transfer);
    made.set_total_bytes(data.size());
    return made;
}

void download(Core& core, const pb::Transfer& transfer, char* data) {
    const std::uint64_t size = transfer.total_bytes();
    std::uint64_t at = 0;
    resumed(core, [&](bool& progress) -> std::optional<Failure> {
        grpc::ClientContext context;
        core.connection().authenticate(context);
        pb::DownloadRequest request;
        request.set_session_id(core.opened().session_id());
        request.set_transfer_id(transfer.transfer_id());
        request.set_offset(at);
        const auto stub = core.connection().stub();
        auto stream = stub->Download(&context, request);
        pb::DownloadResponse part;
        while (stream->Read(&part)) {
            if (part.offset() != at || part.data().size() > size - at) {
                context.TryCancel();
                stream->Finish();
                return mistake(Reason::Internal, "", "the server sent other bytes than those of the transfer");
            }
            std::memcpy(data + at, part.data().data(), part.data().size());
            at += part.data().size();
            progress = true;
        }
        const grpc::Status status = stream->Finish();
        if (at == size) return {};
        return status.ok() ? ended_early() : failure_of(status, context);
    });
}

}  // namespace gradwire::detail
