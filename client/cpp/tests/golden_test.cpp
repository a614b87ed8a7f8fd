// The bytes of tests/conformance/golden.json: words of prepared calls, programs, trailers of refusals.
#include "core.hpp"
#include "failures.hpp"
#include "support.hpp"

namespace {

using namespace gradwire;
using support::Json;

const Json& golden() {
    static const Json read = Json::parse(support::contents(support::conformance() + "/golden.json"));
    return read;
}

/// A core without a server, for tensors of given ids.
std::shared_ptr<detail::Core> offline() {
    static detail::pb::Program program;
    return detail::Core::recording(std::make_unique<detail::Recorder>(program));
}

Tensor tensor_of(const std::shared_ptr<detail::Core>& core, const Json& id) {
    return core->adopt(static_cast<std::uint64_t>(id.integer()));
}

Argument argument(const std::shared_ptr<detail::Core>& core, const Json& given) {
    const auto [kind, value] = *given.members().begin();
    if (kind == "tensor") return tensor_of(core, value);
    if (kind == "float") return value.number();
    if (kind == "integer") return value.integer();
    if (kind == "integers") return Integers(value.integers());
    if (kind == "boolean") return value.flag();
    if (kind == "index") return std::vector<IndexItem>{0};
    if (kind != "tensors") throw std::runtime_error("unknown kind " + kind);
    std::vector<Tensor> list;
    for (const Json& id : value.items()) list.push_back(tensor_of(core, id));
    return list;
}

TEST(Golden, WordsOfPreparedCalls) {
    for (const Json& vector : golden()["prepared_calls"].items()) {
        const auto core = offline();
        Call call(core, vector["op"].text());
        for (const Json& each : vector["args"].items()) call.arg(argument(core, each));
        for (const auto& [name, each] : vector["named"].members()) call.named(name, argument(core, each));
        detail::Operation operation{call, GradMode::Enabled, {}};
        for (auto id : vector["outputs"].integers()) operation.outputs.push_back(static_cast<std::uint64_t>(id));
        std::string key;
        if (vector["op"].text() == "getitem") {
            EXPECT_FALSE(detail::append_key(operation, key)) << "an index would be prepared, but has no words";
            continue;
        }
        EXPECT_TRUE(detail::append_key(operation, key));
        std::string words;
        detail::append_words(operation, static_cast<std::uint32_t>(vector["number"].integer()), words);
        EXPECT_EQ(support::hex(words), vector["words"].text()) << vector["op"].text();
    }
}

TEST(Golden, HashesOfPrograms) {
    for (const Json& vector : golden()["programs"].items()) {
        detail::pb::Program program;
        ASSERT_TRUE(program.ParseFromString(support::unhex(vector["bytes"].text())));
        const auto hash = detail::sha256(program.SerializeAsString());
        EXPECT_EQ(support::hex({hash.begin(), hash.end()}), vector["sha256"].text());
    }
}

TEST(Golden, TrailersOfRefusals) {
    for (const Json& vector : golden()["errors"].items()) {
        const Failure told = detail::failure_of(14, "cut", support::unhex(vector["bytes"].text()));
        EXPECT_EQ(name_of(told.reason), vector["reason"].text());
        EXPECT_EQ(told.message, vector["message"].text());
        EXPECT_EQ(told.code, vector["code"].integer());
        EXPECT_EQ(told.op, vector["metadata"]["op"].text());
        EXPECT_EQ(told.shape.size(), 2U);
    }
}

}  // namespace
