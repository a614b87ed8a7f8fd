// Values above the limit for one message, on connections that carry less than one chunk.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "scripted.hpp"

namespace {

using namespace gradwire;
using namespace std::chrono_literals;

std::vector<std::uint8_t> numbered(std::size_t size) {
    std::vector<std::uint8_t> made(size);
    for (std::size_t i = 0; i < size; ++i) made[i] = static_cast<std::uint8_t>(i % 251);
    return made;
}

grpc::Status answering(const v1::StreamAttach&, grpc::ServerContext&, scripted::Stream& stream) {
    scripted::attached(stream, 1 << 20);
    v1::StreamRequest request;
    while (stream.Read(&request)) {
        if (request.has_batch()) scripted::answer(stream, 1 << 20);
    }
    return grpc::Status::OK;
}

/// A server whose uploads break at each message above a size.
class SmallMessages final : public scripted::Scripted {
  public:
    explicit SmallMessages(std::size_t most) : Scripted(answering), most_(most) {}
    std::string received;
    std::size_t largest = 0;  // of all messages that came

    grpc::Status Upload(grpc::ServerContext*, grpc::ServerReader<v1::UploadRequest>* reader,
                        v1::UploadResponse* response) override {
        v1::UploadRequest request;
        if (!reader->Read(&request)) return {grpc::StatusCode::UNAVAILABLE, "no start"};
        if (!request.start().transfer_id().empty() && request.start().offset() != received.size()) {
            return {grpc::StatusCode::INVALID_ARGUMENT, "a wrong offset"};
        }
        while (reader->Read(&request)) {
            largest = std::max(largest, request.data().size());
            if (request.data().size() > most_) return {grpc::StatusCode::UNAVAILABLE, "the connection broke"};
            received += request.data();
        }
        response->set_transfer_id("t");
        response->set_received_bytes(received.size());
        return grpc::Status::OK;
    }

  private:
    const std::size_t most_;
};

TEST(Bulk, AnUploadWhoseChunksDoNotArriveSendsSmallerOnes) {
    SmallMessages server(10'000);
    ConnectOptions options;
    options.patience = 20s;
    Session session(server.address(), options);
    const auto data = numbered(300'000);
    session.tensor(data);
    session.wait();
    EXPECT_TRUE(server.received == std::string(data.begin(), data.end())) << server.received.size();
    EXPECT_GT(server.largest, 100'000U);
}

TEST(Bulk, LargeValuesGoThroughConnectionsThatCarryLessThanAChunk) {
    if (support::variable("GRADWIRE_CUTTING").empty()) GTEST_SKIP() << "needs a proxy: run make test-sdks";
    support::Cutter cutter(100'000, 1'000'000);  // the server's chunk is 1 MiB
    ConnectOptions options;
    options.local_stream = false;
    Session session(cutter.address(), options);
    const auto data = numbered(5 << 20);
    EXPECT_TRUE(session.tensor(data).to_vector<std::uint8_t>() == data);
    session.close();
    EXPECT_GT(cutter.cuts(), 1);
}

// Each connection attaches, so the server answers; but it breaks before the batch has arrived.
TEST(Bulk, ABatchThatNoConnectionCarriesEndsWithAnError) {
    if (support::variable("GRADWIRE_CUTTING").empty()) GTEST_SKIP() << "needs a proxy: run make test-sdks";
    support::Cutter cutter(100'000, 100'000);
    ConnectOptions options;
    options.local_stream = false;
    options.patience = 800ms;
    Session session(cutter.address(), options);
    try {
        session.tensor(numbered(800'000)).read();  // within the limit of one message
        ADD_FAILURE() << "it arrived";
    } catch (const ConnectionError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find(" connections broke in 8000 ms before a batch of 800"), std::string::npos) << message;
    }
}

}  // namespace
