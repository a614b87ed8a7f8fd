// Failures from messages and statuses.
#pragma once

#include <string>

#include "gradwire/errors.hpp"
#include "gradwire/v1/errors.pb.h"

namespace gradwire::detail {

// Codes of gRPC that decide something here.
inline constexpr int invalid_argument = 3;
inline constexpr int unimplemented = 12;
inline constexpr int unavailable = 14;

/// The refusal in a message.
Failure failure_of(const v1::Error& error);
/// The refusal in a call's trailer, serialized, or the status without a reason, if the connection failed.
Failure failure_of(int code, const std::string& message, const std::string& trailer);
/// A mistake that this library finds.
Failure mistake(Reason reason, std::string op, std::string message);
/// Whether the same call may succeed later.
bool may_retry(const Failure& failure) noexcept;
/// Of every use of a closed session.
Failure closed();

}  // namespace gradwire::detail
