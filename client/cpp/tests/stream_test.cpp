// Promises that a live server does not put to the test on demand: a scripted one withholds credit, forgets and moves.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "scripted.hpp"

namespace {

using namespace gradwire;
using namespace scripted;
using namespace std::chrono_literals;

/// Reads a stream in a thread, so that a script sees how much comes before it answers.
class Inbox {
  public:
    explicit Inbox(scripted::Stream& stream) : thread_([this, &stream] { read(stream); }) {}
    ~Inbox() { thread_.join(); }
    Inbox(const Inbox&) = delete;
    Inbox& operator=(const Inbox&) = delete;
    /// Waits for a batch, or the end of the stream.
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return over_ || !sizes_.empty(); });
    }
    /// The sizes of the batches that came since the last call; none at the end.
    std::vector<std::size_t> take() {
        std::lock_guard lock(mutex_);
        return std::exchange(sizes_, {});
    }

  private:
    void read(scripted::Stream& stream) {
        v1::StreamRequest request;
        while (stream.Read(&request)) {
            if (!request.has_batch()) continue;
            std::lock_guard lock(mutex_);
            sizes_.push_back(request.batch().ByteSizeLong());
            changed_.notify_all();
        }
        std::lock_guard lock(mutex_);
        over_ = true;
        changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::size_t> sizes_;
    bool over_ = false;
    std::thread thread_;
};

void add_ones(Session& session, int count) {
    const auto one = session.tensor({1.f});
    for (int i = 0; i < count; ++i) one.add_(1.0);
}

template <class Function>
Reason reason_of(Function function) {
    try {
        function();
    } catch (const Error& error) {
        return error.reason();
    }
    return Reason::Unspecified;
}

TEST(Stream, CreditAndBatchesUnderWayAreBounded) {
    constexpr std::size_t credit = 40'000;  // suffices for the largest batch
    std::size_t most = 0;
    std::size_t batches = 0;
    Scripted server([&](const v1::StreamAttach&, grpc::ServerContext&, scripted::Stream& stream) {
        attached(stream, credit);
        Inbox inbox(stream);
        for (;;) {
            inbox.wait();
            std::vector<std::size_t> held;
            std::size_t size_of_held = 0;
            // More may come, as much as the client dares to send. The first time, some must.
            const auto until = std::chrono::steady_clock::now() + 20s;
            do {
                std::this_thread::sleep_for(5ms);
                for (std::size_t size : inbox.take()) {
                    held.push_back(size);
                    size_of_held += size;
                }
            } while (most == 0 && size_of_held < credit / 4 && std::chrono::steady_clock::now() < until);
            if (held.empty()) return grpc::Status::OK;
            most = std::max(most, size_of_held);
            batches = std::max(batches, held.size());
            for (std::size_t size : held) answer(stream, size);
        }
    });
    {
        Session session(server.address());
        for (int i = 0; i < 100; ++i) add_ones(session, 100);
        session.close();
    }
    EXPECT_LE(most, credit);
    EXPECT_GE(most, credit / 4);
    EXPECT_LE(batches, 8U);
}

TEST(Stream, UnansweredBatchesAreSentAgainUnchanged) {
    std::string first;
    std::string second;
    std::vector<std::uint32_t> attempts;
    Scripted server([&](const v1::StreamAttach& attach, grpc::ServerContext& context, scripted::Stream& stream) {
        attempts.push_back(attach.attempt());
        attached(stream, 1 << 20);
        v1::StreamRequest request;
        stream.Read(&request);
        if (attempts.size() == 1) {
            first = request.SerializeAsString();
            return grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut");
        }
        if (attempts.size() == 2) return refuse(context, v1::REASON_STREAM_TAKEN, grpc::StatusCode::ABORTED);
        second = request.SerializeAsString();
        answer(stream, 0);
        return drained(stream);
    });
    Session session(server.address());
    add_ones(session, 10);
    session.wait();
    EXPECT_FALSE(first.empty());
    EXPECT_EQ(first, second);
    EXPECT_EQ(session.reconnects(), 2U);
    session.close();
    ASSERT_EQ(attempts.size(), 3U);
    EXPECT_LT(attempts[0], attempts[1]);
    EXPECT_LT(attempts[1], attempts[2]);
}

TEST(Stream, FewAndSmallBatchesFollowABreak) {
    std::atomic<int> attempts = 0;
    std::vector<std::size_t> together;  // batches that came before the next answer, after the break
    Scripted server([&](const v1::StreamAttach&, grpc::ServerContext& context, scripted::Stream& stream) {
        attached(stream, 1 << 20);
        Inbox inbox(stream);
        if (++attempts == 1) {
            inbox.wait();
            std::this_thread::sleep_for(20ms);  // the client has several batches under way
            context.TryCancel();                // the inbox reads to the end
            return grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut");
        }
        for (;;) {
            inbox.wait();
            std::this_thread::sleep_for(10ms);  // more may come
            const auto held = inbox.take();
            if (held.empty()) return grpc::Status::OK;
            together.push_back(held.size());
            for (std::size_t size : held) answer(stream, size);
        }
    });
    Session session(server.address());
    add_ones(session, 4000);
    session.wait();
    session.close();
    EXPECT_EQ(attempts, 2);
    ASSERT_GE(together.size(), 2U);
    EXPECT_EQ(together[0], 1U);
    EXPECT_LE(together[1], 2U);
}

TEST(Stream, ForgottenResultsEndTheSession) {
    Scripted server([](const v1::StreamAttach&, grpc::ServerContext& context, scripted::Stream& stream) {
        attached(stream, 1 << 20);
        v1::StreamRequest request;
        stream.Read(&request);
        return refuse(context, v1::REASON_RESULT_FORGOTTEN, grpc::StatusCode::DATA_LOSS);
    });
    Session session(server.address());
    const auto tensor = session.tensor({1.f});
    EXPECT_EQ(reason_of([&] { tensor.read(); }), Reason::ResultForgotten);
    EXPECT_EQ(reason_of([&] { session.wait(); }), Reason::ResultForgotten);
}

TEST(Stream, PatienceEnds) {
    Scripted server([](const v1::StreamAttach&, grpc::ServerContext&, scripted::Stream&) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "never");
    });
    ConnectOptions options;
    options.patience = 50ms;
    Session session(server.address(), options);
    add_ones(session, 1);
    EXPECT_THROW(session.wait(), ConnectionError);
}

// A stream that lasted has carried its batches.
TEST(Stream, ALongComputationOutlastsBrokenStreams) {
    const auto patience = 300ms;
    Scripted server([&](const v1::StreamAttach& attach, grpc::ServerContext&, scripted::Stream& stream) {
        const grpc::Status broken(grpc::StatusCode::UNAVAILABLE, "scripted");
        if (attach.attempt() == 10) return broken;  // an outage
        attached(stream, 1 << 20);
        v1::StreamRequest request;
        stream.Read(&request);
        if (attach.attempt() > 10) {
            answer(stream, 1 << 20);
            return drained(stream);
        }
        if (attach.attempt() == 9) std::this_thread::sleep_for(11 * patience);
        return broken;
    });
    ConnectOptions options;
    options.patience = patience;
    Session session(server.address(), options);
    add_ones(session, 1);
    EXPECT_NO_THROW(session.wait());
}

TEST(Stream, JoinedAnswersAnswerSeveralBatches) {
    Scripted server([](const v1::StreamAttach&, grpc::ServerContext&, scripted::Stream& stream) {
        attached(stream, 1 << 20);
        v1::StreamRequest request;
        for (int i = 0; i < 3; ++i) stream.Read(&request);
        answer(stream, 0, 3);
        return drained(stream);
    });
    Session session(server.address());
    add_ones(session, 2 * 64);
    session.wait();
    session.close();
}

TEST(Stream, AMovedSessionIsFollowed) {
    std::atomic<int> batches = 0;
    Scripted second([&](const v1::StreamAttach&, grpc::ServerContext&, scripted::Stream& stream) {
        attached(stream, 1 << 20);
        v1::StreamRequest request;
        while (stream.Read(&request)) {
            if (!request.has_batch()) continue;
            ++batches;
            answer(stream, request.batch().ByteSizeLong());
        }
        return grpc::Status::OK;
    });
    Scripted first([&](const v1::StreamAttach&, grpc::ServerContext& context, scripted::Stream&) {
        return refuse(context, v1::REASON_SESSION_MOVED, grpc::StatusCode::UNAVAILABLE, second.address());
    });
    Session session(first.address());
    add_ones(session, 1);
    session.wait();
    EXPECT_GE(batches, 1);
    session.close();
}

grpc::Status answered(const v1::StreamAttach&, grpc::ServerContext&, scripted::Stream& stream) {
    attached(stream, 1 << 20);
    v1::StreamRequest request;
    while (stream.Read(&request)) {
        if (request.has_batch()) answer(stream, request.batch().ByteSizeLong());
    }
    return grpc::Status::OK;
}

TEST(Opening, AClustersOtherServerOpensTheSession) {
    std::atomic<int> streams = 0;
    Scripted second([&](const auto& attach, auto& context, auto& stream) {
        ++streams;
        return answered(attach, context, stream);
    });
    Scripted first([](const auto&, auto&, auto&) { return grpc::Status(grpc::StatusCode::NOT_FOUND, "no session"); });
    first.endpoint = second.address();
    second.endpoint = first.address();  // it is not asked to place the session
    Session session(first.address());
    add_ones(session, 1);
    session.wait();
    session.close();
    EXPECT_EQ(streams, 1);
    EXPECT_EQ(first.following, 1);
    EXPECT_EQ(first.staying, 0);
    EXPECT_EQ(second.following, 0);
    EXPECT_EQ(second.staying, 1);
}

TEST(Opening, ASeedOpensTheSessionIfTheOtherServerIsGone) {
    Scripted seed(answered);
    seed.endpoint = "127.0.0.1:1";
    Session session(seed.address());
    add_ones(session, 1);
    session.wait();
    session.close();
    EXPECT_EQ(seed.staying, 1);
}

TEST(Stream, TheLeaseIsRenewedAndOpeningIsTriedAgain) {
    Scripted server(
        [](const v1::StreamAttach&, grpc::ServerContext&, scripted::Stream& stream) { return drained(stream); });
    server.fails = 2;
    ConnectOptions options;
    options.token = "secret";
    Session session(server.address(), options);
    EXPECT_EQ(server.fails, 0);
    EXPECT_EQ(server.token, "Bearer secret");
    for (int i = 0; i < 500 && server.renewed < 3; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_GE(server.renewed, 3);
}

TEST(Stream, AWaitMayEndEarly) {
    Scripted server([](const v1::StreamAttach&, grpc::ServerContext&, scripted::Stream& stream) {
        attached(stream, 1 << 20);
        return drained(stream);
    });
    Session session(server.address());
    add_ones(session, 1);
    EXPECT_FALSE(session.wait_for(20ms));
}

TEST(Stream, ASessionDiesWithoutAnswers) {
    Scripted server(
        [](const v1::StreamAttach&, grpc::ServerContext&, scripted::Stream& stream) { return drained(stream); });
    Tensor late;
    {
        Session session(server.address());
        add_ones(session, 5);
        late = session.tensor({1.f});
    }
    EXPECT_THROW(late.read(), ClosedError);
}

}  // namespace
