// Which way a session's next stream takes: the server's Unix socket where that works, else gRPC.
#pragma once

#include <memory>
#include <string>

#include "connection.hpp"
#include "wire.hpp"

namespace gradwire::detail {

/// Opens the streams of a session. Only the thread that keeps the session's stream uses it.
class Streams {
  public:
    /// Begins with the socket that OpenSession told.
    Streams(Connection& connection, std::string local_name);

    /// Opens a stream. The one before has ended.
    std::unique_ptr<Wire> connect();
    /// Notes why the stream ended.
    void failed(const Failure& failure);

  private:
    class Watched;

    Connection& connection_;
    const bool wanted_;
    std::string local_name_;
    std::string address_;  // of the server with that socket
    int rejected_ = 0;     // local streams in a row that the server ended before it attached
    bool local_ = false;   // whether the last stream was local
};

}  // namespace gradwire::detail
