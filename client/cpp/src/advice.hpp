// Advice for common mistakes of connecting.
#pragma once

#include "gradwire/session.hpp"

namespace gradwire::detail {

/// Whether the options ask for TLS.
bool encrypts(const ConnectOptions& options) noexcept;
/// Whether a connection failed because of the server's certificate: trying again does not help.
bool distrusts(const Failure& failure) noexcept;
/// The failure of opening a session, with what to do about it where that is known.
Failure advised(Failure failure, const ConnectOptions& options);

}  // namespace gradwire::detail
