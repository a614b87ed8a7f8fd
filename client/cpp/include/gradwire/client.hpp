/// @file
/// The stub of the unary calls, for what the library does not cover. It needs the headers of gRPC.
#pragma once

#include <grpcpp/client_context.h>

#include <memory>

#include "gradwire/session.hpp"
#include "gradwire/v1/service.grpc.pb.h"

namespace gradwire {

/// The stub of the server that has the session. It shares the session's connection. After the session has moved to
/// another server, ask again.
std::shared_ptr<v1::AutogradService::StubInterface> stub(const Session& session);

/// Adds the session's token to a call, if it has one.
void authenticate(const Session& session, grpc::ClientContext& context);

}  // namespace gradwire
