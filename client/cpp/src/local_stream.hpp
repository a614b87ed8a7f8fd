// A stream by a Unix socket of the server's machine, without gRPC.
#pragma once

#include <memory>
#include <string>

#include "wire.hpp"

namespace gradwire::detail {

/// Opens a stream by the socket of a name. Null if it is absent, or another user's: then gRPC carries the stream.
std::unique_ptr<Wire> local_stream(const std::string& name);

}  // namespace gradwire::detail
