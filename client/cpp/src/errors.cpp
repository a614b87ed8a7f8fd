// Failures from messages and statuses, and the exceptions that they become.
#include "gradwire/errors.hpp"

#include <charconv>

#include "failures.hpp"

namespace gradwire {

namespace {

constexpr char closed_message[] = "the session is closed";

std::string sentence(const Failure& failure) {
    std::string made = failure.op.empty() ? failure.message : failure.op + ": " + failure.message;
    if (failure.reason != Reason::Unspecified) made.append(" (").append(name_of(failure.reason)).append(")");
    return made;
}

/// Reads "[2, 3]".
std::vector<std::int64_t> shape_of(std::string_view text) {
    std::vector<std::int64_t> shape;
    if (text.size() < 2 || text.front() != '[' || text.back() != ']') return shape;
    const char* at = text.data() + 1;
    const char* end = text.data() + text.size() - 1;
    while (at < end) {
        std::int64_t size = 0;
        auto [next, wrong] = std::from_chars(at, end, size);
        if (wrong != std::errc()) return {};
        shape.push_back(size);
        at = next;
        while (at < end && (*at == ',' || *at == ' ')) ++at;
    }
    return shape;
}

std::string value_of(const std::map<std::string, std::string>& metadata, const char* key) {
    auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
}

}  // namespace

std::string_view name_of(Reason reason) noexcept {
    // The descriptor's names live as long as the program.
    auto* value = v1::Reason_descriptor()->FindValueByNumber(static_cast<int>(reason));
    constexpr std::string_view prefix = "REASON_";
    return value ? std::string_view(value->name()).substr(prefix.size()) : std::string_view("UNKNOWN");
}

Error::Error(Failure failure) : std::runtime_error(sentence(failure)), failure_(std::move(failure)) {}

void raise(const Failure& failure) {
    switch (failure.reason) {
        case Reason::ArgumentType:
            throw ArgumentTypeError(failure);
        case Reason::ArgumentValue:
        case Reason::PayloadSize:
        case Reason::MessageTooLarge:
        case Reason::Malformed:
            throw ArgumentValueError(failure);
        case Reason::DimOutOfRange:
        case Reason::IndexOutOfRange:
            throw IndexError(failure);
        case Reason::OpUnknown:
        case Reason::NotSupported:
            throw NotSupportedError(failure);
        case Reason::MemoryLimit:
            throw MemoryError(failure);
        case Reason::DeadlineExceeded:
            throw TimeoutError(failure);
        case Reason::Unauthenticated:
        case Reason::PermissionDenied:
            throw PermissionError(failure);
        case Reason::Unavailable:
            throw ConnectionError(failure);
        case Reason::Unspecified:
            if (failure.message == closed_message) throw ClosedError(failure);
            throw ConnectionError(failure);
        default:
            throw Error(failure);
    }
}

namespace detail {

Failure failure_of(const v1::Error& error) {
    Failure made;
    made.reason = static_cast<Reason>(error.reason());
    made.code = error.code();
    made.message = error.message();
    made.metadata = {error.metadata().begin(), error.metadata().end()};
    made.op = value_of(made.metadata, "op");
    made.argument = value_of(made.metadata, "argument");
    made.shape = shape_of(value_of(made.metadata, "shape"));
    made.root_seq = error.root_seq();
    return made;
}

Failure failure_of(int code, const std::string& message, const std::string& trailer) {
    v1::Error told;
    if (!trailer.empty() && told.ParseFromString(trailer)) return failure_of(told);
    Failure made;
    made.code = code;
    made.message = message;
    return made;
}

Failure mistake(Reason reason, std::string op, std::string message) {
    Failure made;
    made.reason = reason;
    made.code = invalid_argument;
    made.message = std::move(message);
    made.op = std::move(op);
    return made;
}

bool may_retry(const Failure& failure) noexcept {
    switch (failure.reason) {
        case Reason::Unavailable:
        case Reason::StreamTaken:
        case Reason::SessionMoved:
            return true;
        case Reason::Unspecified:
            return failure.code != unimplemented && failure.code != invalid_argument;
        default:
            return false;
    }
}

Failure closed() {
    Failure made;
    made.message = closed_message;
    return made;
}

}  // namespace detail
}  // namespace gradwire
