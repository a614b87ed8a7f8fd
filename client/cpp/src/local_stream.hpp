// A stream by a Unix socket of the server's machine, without gRPC.
#pragma once

#include <memory>

#include "gradwire/session.hpp"
#include "gradwire/v1/service.pb.h"
#include "wire.hpp"

namespace gradwire::detail {

/// Opens a stream by the server's socket. Null if there is none, or it cannot be used: then gRPC carries the stream.
std::unique_ptr<Wire> local_stream(const pb::OpenSessionResponse& opened, const ConnectOptions& options);

}  // namespace gradwire::detail
