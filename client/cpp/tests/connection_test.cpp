// Connections to live servers: TLS and tokens, sessions that move, and the server's Unix socket.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "support.hpp"

namespace {

using namespace gradwire;
using namespace std::chrono_literals;

#define NEEDS(variable_name)                                                                        \
    if (support::variable(variable_name).empty()) {                                                 \
        GTEST_SKIP() << "needs another server: set " << variable_name << ", or run make test-sdks"; \
    }

/// An environment variable until the end of a test.
class Variable {
  public:
    Variable(std::string name, const char* value) : name_(std::move(name)), before_(support::variable(name_.c_str())) {
        value ? ::setenv(name_.c_str(), value, 1) : ::unsetenv(name_.c_str());
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() { before_.empty() ? ::unsetenv(name_.c_str()) : ::setenv(name_.c_str(), before_.c_str(), 1); }

  private:
    const std::string name_;
    const std::string before_;
};

void expect_sum(const Tensor& sum, double wanted) { EXPECT_EQ(sum.item(), wanted); }

/// The options of the server with TLS.
ConnectOptions secured(const char* authority, const std::string& token) {
    ConnectOptions options;
    options.ca = support::variable(authority);
    options.token = token;
    options.patience = 200ms;
    return options;
}

TEST(Connection, ATokenThatNoHeaderHoldsIsRefusedAtOnce) {
    for (const std::string token : {"wr\xc3\xb6ng", "of a file\n"}) {
        ConnectOptions options;
        options.token = token;
        EXPECT_THROW(Session("localhost:1", options), ArgumentValueError);
    }
}

TEST(Tls, TheRightTokenAndAuthorityConnect) {
    NEEDS("GRADWIRE_SECURE");
    Session session(support::variable("GRADWIRE_SECURE"),
                    secured("GRADWIRE_SECURE_CA", support::variable("GRADWIRE_SECURE_TOKEN")));
    expect_sum(session.ones({2}).sum(), 2);
    const std::vector<float> large(1 << 20, 7.f);  // by Upload and Download
    expect_sum(session.tensor(large)[-1], 7);
    EXPECT_EQ(session.tensor(large).to_vector<float>(), large);
    session.close();
}

TEST(Tls, AMissingOrWrongTokenIsRefused) {
    NEEDS("GRADWIRE_SECURE");
    for (const char* token : {"", "wrong"}) {
        try {
            Session session(support::variable("GRADWIRE_SECURE"), secured("GRADWIRE_SECURE_CA", token));
            ADD_FAILURE() << "the token \"" << token << "\" is accepted";
        } catch (const PermissionError& error) {
            EXPECT_EQ(error.reason(), Reason::Unauthenticated);
        }
    }
}

TEST(Tls, AWrongAuthorityOrNoEncryptionIsRefused) {
    NEEDS("GRADWIRE_SECURE");
    const std::string token = support::variable("GRADWIRE_SECURE_TOKEN");
    EXPECT_THROW(Session(support::variable("GRADWIRE_SECURE"), secured("GRADWIRE_SECURE_OTHER_CA", token)),
                 ConnectionError);
    EXPECT_THROW(Session(support::variable("GRADWIRE_SECURE"), secured("no variable", token)), ConnectionError);
}

/// What a mistake of connecting says.
std::string told(const std::string& address, const ConnectOptions& options) {
    try {
        Session session(address, options);
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

TEST(Advice, SaysWhatToDo) {
    NEEDS("GRADWIRE_SECURE");
    NEEDS_A_SERVER();
    const std::string secure = support::variable("GRADWIRE_SECURE");
    const std::string token = support::variable("GRADWIRE_SECURE_TOKEN");
    const char* ca = "GRADWIRE_SECURE_CA";
    ConnectOptions plain;
    plain.patience = 200ms;
    const std::vector<std::pair<std::string, std::string>> cases = {
        {told("127.0.0.1:1", plain), "No server listens there: start `gradwire serve`"},
        {told("127.0.0.1", plain), "No port was given"},
        {told("nowhere.invalid:50051", plain), "The host's name cannot be resolved"},
        {told(secure, secured(ca, "")), "No token was given: set ConnectOptions::token"},
        {told(secure, secured(ca, "wrong")), "The token of ConnectOptions::token is unknown to this server"},
        {told(secure, secured("GRADWIRE_SECURE_OTHER_CA", token)), "The server's certificate is not trusted"},
        {told(secure, plain), "The server seems to use TLS"},
        {told(support::address(), secured(ca, "")), "The server seems not to use TLS"},
    };
    for (const auto& [message, wanted] : cases) EXPECT_NE(message.find("\n  " + wanted), std::string::npos) << message;
}

TEST(Moves, ASessionThatMovesIsFollowed) {
    NEEDS("GRADWIRE_MOVING");
    ConnectOptions options;
    options.patience = 30s;
    options.local_stream = false;
    Session session(support::variable("GRADWIRE_MOVING"), options);
    const auto sum = session.scalar(0.f);
    for (int i = 0; i < 2000; ++i) sum.add_(1);
    expect_sum(sum, 2000);
    EXPECT_GT(session.reconnects(), 0U);
    std::vector<float> large(1 << 20);
    large.back() = 7;
    EXPECT_EQ(session.tensor(large).to_vector<float>(), large);
    session.close();
}

/// How often the stream is opened again while a proxy cuts all connections over TCP.
std::size_t reconnects_behind_a_proxy(bool local_stream) {
    support::Cutter cutter(20'000, 40'000);
    ConnectOptions options;
    options.patience = 60s;
    options.local_stream = local_stream;
    Session session(cutter.address(), options);
    const auto sum = session.scalar(0.f);
    for (int i = 0; i < 20'000; ++i) sum.add_(1.0);
    expect_sum(sum, 20'000);
    return session.reconnects();
}

TEST(LocalStream, IsUsedBesideTheServerUnlessSwitchedOff) {
    NEEDS("GRADWIRE_CUTTING");
#ifdef __linux__
    {
        Variable unset("GRADWIRE_LOCAL_STREAM", nullptr);
        EXPECT_EQ(reconnects_behind_a_proxy(true), 0U) << "the socket passes the proxy by";
        EXPECT_GT(reconnects_behind_a_proxy(false), 0U);
    }
#endif
    Variable off("GRADWIRE_LOCAL_STREAM", "0");
    EXPECT_GT(reconnects_behind_a_proxy(true), 0U);
}

TEST(LocalStream, CarriesTheSameAsGrpc) {
    NEEDS_A_SERVER();
    for (const bool local : {true, false}) {
        ConnectOptions options;
        options.local_stream = local;
        Session session(support::address(), options);
        auto sum = session.tensor({0.f});
        for (int i = 0; i < 1000; ++i) sum += 1.0;
        expect_sum(sum, 1000);
        EXPECT_THROW(sum.sum({.dim = 7}).read(), IndexError);
        EXPECT_EQ(session.reconnects(), 0U);
    }
}

}  // namespace
