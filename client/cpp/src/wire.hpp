// What carries the messages of one stream: gRPC, or a Unix socket on the same machine.
#pragma once

#include <chrono>

#include "gradwire/errors.hpp"
#include "gradwire/v1/service.pb.h"

namespace gradwire::detail {

namespace pb = ::gradwire::v1;

using Clock = std::chrono::steady_clock;

// Pauses between tries, which double.
inline constexpr std::chrono::milliseconds first_pause{10};
inline constexpr std::chrono::milliseconds longest_pause{1000};

/// One stream. A thread sends while another receives; any thread may cancel.
class Wire {
  public:
    virtual ~Wire() = default;
    /// Sends a message. False if the stream is over: receive() then fails, too.
    virtual bool send(const pb::StreamRequest& message) = 0;
    /// Waits for a message. False at the end of the stream: then send() fails soon, too.
    virtual bool receive(pb::StreamResponse& message) = 0;
    /// Why receive() failed. Called once, after it did and after the last send().
    virtual Failure refusal() = 0;
    /// Ends the stream: send() and receive() return soon.
    virtual void cancel() = 0;
};

}  // namespace gradwire::detail
