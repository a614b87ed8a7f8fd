/// @file
/// What can go wrong: refusals of the server, mistakes that this library finds, and broken connections.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradwire/reasons.hpp"

namespace gradwire {

/// What is known of a refusal. A refused command has changed nothing on the server.
struct Failure {
    /// What is wrong, for programs.
    Reason reason = Reason::Unspecified;
    /// The gRPC status code that belongs to the reason.
    int code = 0;
    /// What is wrong, for people, in PyTorch's words where PyTorch has some.
    std::string message{};
    /// Name of the refused op; empty if there is none.
    std::string op{};
    /// The parameter or field at fault; empty if it is not one alone.
    std::string argument{};
    /// Shape of the op's first tensor; empty if not told, or without dimensions.
    std::vector<std::int64_t> shape{};
    /// All details. The keys depend on the reason.
    std::map<std::string, std::string> metadata{};
    /// The command that failed first, if this one only depends on it.
    std::uint64_t root_seq = 0;
};

/// Base of all exceptions of this library. `what()` has op, message and reason.
class Error : public std::runtime_error {
  public:
    explicit Error(Failure failure);
    /// All that is known.
    const Failure& failure() const noexcept { return failure_; }
    /// What is wrong, for programs.
    Reason reason() const noexcept { return failure_.reason; }
    /// The refused op; empty if there is none.
    const std::string& op() const noexcept { return failure_.op; }
    /// Details, whose keys depend on the reason.
    const std::map<std::string, std::string>& metadata() const noexcept { return failure_.metadata; }

  private:
    Failure failure_;
};

/// Wrong number, name or kind of arguments. TypeError in Python.
class ArgumentTypeError : public Error {
    using Error::Error;
};
/// A value that is not allowed. ValueError in Python.
class ArgumentValueError : public Error {
    using Error::Error;
};
/// A dimension or an index out of range. IndexError in Python.
class IndexError : public Error {
    using Error::Error;
};
/// An unknown op, or a case that an op does not support. NotImplementedError in Python.
class NotSupportedError : public Error {
    using Error::Error;
};
/// The result would exceed a limit of bytes. MemoryError in Python.
class MemoryError : public Error {
    using Error::Error;
};
/// A deadline passed. TimeoutError in Python.
class TimeoutError : public Error {
    using Error::Error;
};
/// The caller is not authenticated, or may not do this. PermissionError in Python.
class PermissionError : public Error {
    using Error::Error;
};
/// The server is not reachable, or gave no answer for as long as the session tries. ConnectionError in Python.
class ConnectionError : public Error {
    using Error::Error;
};
/// A use of a closed session.
class ClosedError : public Error {
    using Error::Error;
};

/// Throws the exception that belongs to the failure's reason; Error itself for those that are RuntimeError in Python.
[[noreturn]] void raise(const Failure& failure);

}  // namespace gradwire
