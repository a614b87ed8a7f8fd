// Advice for common mistakes of connecting, derived from the texts of gRPC's errors.
#include "advice.hpp"

namespace gradwire::detail {

namespace {

constexpr char no_token[] = "No token was given: set ConnectOptions::token. `gradwire token NAME` makes one.";
constexpr char wrong_token[] = "The token of ConnectOptions::token is unknown to this server, or has expired.";
constexpr char refused[] = "No server listens there: start `gradwire serve`, or check the host and the port.";
constexpr char no_port[] = "No port was given: an address is HOST:PORT. `gradwire serve` tells its address.";
constexpr char no_host[] = "The host's name cannot be resolved: check its spelling, or give its IP address.";
constexpr char speaks_tls[] =
    "The server seems to use TLS: give the authority that signed its certificate as ConnectOptions::ca, or set "
    "ConnectOptions::tls for a public one.";
constexpr char no_tls[] = "The server seems not to use TLS: leave out ConnectOptions::tls, ca and certificate.";
constexpr char distrusted[] =
    "The server's certificate is not trusted: give the authority that signed it as ConnectOptions::ca, and connect to "
    "a name that the certificate contains.";
constexpr char not_ours[] =
    "The server at that port does not speak gRPC, perhaps a web server. Is it the port of `gradwire serve`?";

std::string advice_for(const Failure& failure, const ConnectOptions& options) {
    if (failure.reason == Reason::Unauthenticated) return options.token.empty() ? no_token : wrong_token;
    if (failure.reason != Reason::Unspecified) return {};
    const auto has = [&](const char* text) { return failure.message.find(text) != std::string::npos; };
    if (has("DNS resolution failed")) return no_host;
    if (has(":0: Failed to connect")) return no_port;
    if (has("Connection refused") || has("No such file")) return refused;
    if (distrusts(failure)) return distrusted;
    if (encrypts(options)) return has("wrong version number") || has("WRONG_VERSION_NUMBER") ? no_tls : std::string();
    if (has("parsing HTTP/2")) return not_ours;
    return has("Socket closed") || has("Connection reset") ? speaks_tls : std::string();
}

}  // namespace

bool encrypts(const ConnectOptions& options) noexcept {
    return options.tls || !options.ca.empty() || !options.certificate.empty();
}

bool distrusts(const Failure& failure) noexcept {
    const auto has = [&](const char* text) { return failure.message.find(text) != std::string::npos; };
    return failure.reason == Reason::Unspecified &&
           (has("certificate verify failed") || has("CERTIFICATE_VERIFY_FAILED") || has("not in peer certificate"));
}

Failure advised(Failure failure, const ConnectOptions& options) {
    if (const std::string advice = advice_for(failure, options); !advice.empty()) failure.message += "\n  " + advice;
    return failure;
}

}  // namespace gradwire::detail
