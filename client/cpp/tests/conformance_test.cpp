// The scenarios of tests/conformance, whose README.md describes the steps.
#include <openssl/sha.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "support.hpp"

namespace {

using namespace gradwire;
using support::Json;

struct HookError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void require(bool holds, const std::string& message) {
    if (!holds) throw std::runtime_error(message);
}

/// Its derivative has a factor of the step.
struct Square : Function<Square> {
    static Tensor forward(AutogradContext& context, const Tensor& x, double factor) {
        context.save_for_backward({x});
        context.saved_data["factor"] = factor;
        return x * x;
    }
    static std::vector<Tensor> backward(AutogradContext& context, const std::vector<Tensor>& gradients) {
        const auto factor = std::any_cast<double>(context.saved_data.at("factor"));
        return {gradients[0] * context.get_saved_variables()[0] * factor, Tensor()};
    }
};

/// Runs steps in a session, or records them in that of a program.
class Runner {
  public:
    explicit Runner(Session& session) : session_(session) {}

    /// Runs a step, and compares its refusal with the expected one.
    void checked(const Json& step) {
        const std::string expected = step["refused"].text();
        if (expected.empty()) return run(step);
        try {
            run(step);
            session_.wait();
        } catch (const HookError&) {
            return require(expected == "HOOK", "the hook's error instead of " + expected);
        } catch (const Error& error) {
            if (expected == "DEPENDENCY_FAILED") return;  // or the first error
            require(name_of(error.reason()) == expected, std::string(error.what()) + " instead of " + expected);
            return require(!error.failure().message.empty(), "there is no message");
        }
        // The cause of a dependency was reported before; only a read must tell it again.
        require(expected == "DEPENDENCY_FAILED" && step["do"].text() != "read", "no refusal instead of " + expected);
    }

    std::map<std::string, Tensor> tensors;

  private:
    void run(const Json& step) {
        const std::string what = step["do"].text();
        if (what == "tensor") return leaf(step);
        if (what == "op") return op(step);
        if (what == "backward") {
            BackwardOptions options{.gradients = several(step["gradients"]), .inputs = several(step["inputs"])};
            options.retain_graph = step["retain_graph"].flag();
            options.create_graph = step["create_graph"].flag();
            return backward(several(step["tensors"]), options);
        }
        if (what == "gradients") return gradients(step);
        if (what == "grad") {
            tensors[step["out"].text()] = of(step).grad();
        } else if (what == "no_grad_of") {
            require(!of(step).has_grad(), "there is a gradient");
        } else if (what == "set_grad") {
            of(step).set_grad(step["to"].null() ? Tensor() : tensors.at(step["to"].text()));
        } else if (what == "set_data") {
            of(step).set_data(tensors.at(step["to"].text()));
        } else if (what == "requires_grad") {
            of(step).requires_grad_(step["to"].flag());
        } else if (what == "retain_grad") {
            of(step).retain_grad();
        } else if (what == "forget") {
            tensors.erase(step["of"].text());
        } else if (what == "hook") {
            hook(step);
        } else if (what == "node_hook") {
            node_hook(step);
        } else if (what == "square") {
            tensors[step["out"].text()] = Square::apply(of(step), step["factor"].number());
        } else if (what == "remove_hook") {
            hooks_.at(step["hook"].text()).remove();
        } else if (what == "hooks_run") {
            std::vector<std::string> expected;
            for (const Json& each : step["expect"].items()) expected.push_back(each.text());
            require(called_ == expected, std::to_string(called_.size()) + " other hooks ran");
            called_.clear();
        } else if (what == "read") {
            read(step);
        } else if (what == "describe") {
            describe(step);
        } else if (what == "program") {
            program(step);
        } else if (what == "run") {
            RunOptions options{.numbers = step["numbers"].reals(), .stacked = step["stacked"].flag()};
            if (!step["repeat"].null()) options.repeat = static_cast<std::uint32_t>(step["repeat"].integer());
            for (auto place : step["sliced"].integers()) options.sliced.push_back(static_cast<std::uint32_t>(place));
            name_all(step["out"], programs_.at(step["program"].text()).run(several(step["inputs"]), options));
        } else if (what == "repeat") {
            const auto steps = step["steps"].items();
            for (std::int64_t round = 0; round < step["times"].integer(); ++round) {
                round_ = round;
                for (const Json& each : steps) run(each);
            }
        } else if (what == "seed") {
            session_.manual_seed(step["seed"].integer());
        } else if (what == "wait") {
            session_.wait();
        } else if (what == "sleep") {
            std::this_thread::sleep_for(std::chrono::duration<double>(step["seconds"].number()));
        } else {
            throw std::runtime_error("unknown step " + what);
        }
    }

    const Tensor& of(const Json& step) { return tensors.at(step["of"].text()); }

    std::vector<Tensor> several(const Json& names) {
        std::vector<Tensor> made;
        for (const Json& each : names.items()) made.push_back(each.null() ? Tensor() : tensors.at(each.text()));
        return made;
    }

    void name_all(const Json& names, const std::vector<Tensor>& made) {
        const auto list = names.items();
        require(list.size() == made.size(), std::to_string(made.size()) + " results");
        for (std::size_t i = 0; i < list.size(); ++i) {
            require(list[i].null() == !made[i].defined(), "result " + std::to_string(i) + " is there, or is not");
            if (!list[i].null()) tensors[list[i].text()] = made[i];
        }
    }

    void leaf(const Json& step) {
        const DType dtype = support::dtype_of(step["dtype"].text());
        const Integers shape(step["shape"].integers());
        Tensor made;
        if (!step["ramp"].null()) {
            std::int64_t count = 1;
            for (auto size : shape.values()) count *= size;
            std::vector<float> values(static_cast<std::size_t>(count));
            for (std::int64_t i = 0; i < count; ++i) {
                values[static_cast<std::size_t>(i)] = static_cast<float>(i % step["ramp"].integer());
            }
            made = session_.tensor(values, shape);
        } else if (!step["hex"].null()) {
            made = session_.from_bytes(dtype, support::unhex(step["hex"].text()), shape);
        } else if (dtype == DType::Float32) {
            const auto values = step["values"].reals();
            made = session_.tensor(std::vector<float>(values.begin(), values.end()), shape);
        } else {
            require(dtype == DType::Int64, "values of " + step["dtype"].text());
            made = session_.tensor(step["values"].integers(), shape);
        }
        if (step["requires_grad"].flag()) made.requires_grad_();
        tensors[step["out"].text()] = made;
    }

    void op(const Json& step) {
        std::optional<GradModeGuard> guard;
        if (step["mode"].text() == "no_grad") guard.emplace(GradMode::Disabled);
        if (step["mode"].text() == "inference") guard.emplace(GradMode::Inference);
        Call call(session_, step["op"].text());
        for (const Json& each : step["args"].items()) call.arg(argument(each));
        for (const auto& [name, each] : step["named"].members()) call.named(name, argument(each));
        const Json out = step["out"];
        if (out.null()) {
            call.in_place();
        } else if (out.is_string()) {
            tensors[out.text()] = call.one();
        } else if (step["op"].text() == "split") {  // ListOps says that only the answer tells how many
            name_all(out, call.list());
        } else {
            name_all(out, call.several(out.items().size()));
        }
    }

    Argument argument(const Json& given) {
        const auto [kind, value] = *given.members().begin();
        if (kind == "tensor") return tensors.at(value.text());
        if (kind == "tensors") return several(value);
        if (kind == "float") return value.real();
        if (kind == "integer") return value.integer();
        if (kind == "boolean") return value.flag();
        if (kind == "string") return value.text();
        if (kind == "dtype") return support::dtype_of(value.text());
        if (kind == "integers") return Integers(value.integers());
        if (kind == "floats") return Floats(value.reals());
        if (kind == "complex") return std::complex<double>(value.reals().at(0), value.reals().at(1));
        if (kind == "none") return nullptr;
        if (kind == "round") return value.number() * static_cast<double>(round_);
        if (kind == "number") return Number{static_cast<std::uint32_t>(value.integer())};
        require(kind == "index", "unknown argument " + kind);
        std::vector<IndexItem> items;
        for (const Json& each : value.items()) items.push_back(item(each));
        return items;
    }

    IndexItem item(const Json& given) {
        const auto [kind, value] = *given.members().begin();
        if (kind == "integer") return value.integer();
        if (kind == "boolean") return value.flag();
        if (kind == "new_axis") return new_axis;
        if (kind == "tensor") return tensors.at(value.text());
        if (kind == "ellipsis") return ellipsis;
        Slice made;
        const auto bounds = value.items();
        if (!bounds.at(0).null()) made.start = bounds[0].integer();
        if (!bounds.at(1).null()) made.stop = bounds[1].integer();
        if (!bounds.at(2).null()) made.step = bounds[2].integer();
        return made;
    }

    void gradients(const Json& step) {
        GradOptions options{.grad_outputs = several(step["grad_outputs"])};
        options.retain_graph = step["retain_graph"].flag();
        options.create_graph = step["create_graph"].flag();
        options.allow_unused = step["allow_unused"].flag();
        const auto made = grad(several(step["outputs"]), several(step["inputs"]), options);
        if (!step["out"].null()) name_all(step["out"], made);
    }

    void hook(const Json& step) {
        const std::string name = step["name"].text();
        const bool fails = step["fails"].flag();
        const Json factor = step["factor"];
        auto ran = [this, name, fails] {
            called_.push_back(name);
            if (fails) throw HookError("the hook's own error");
        };
        if (step["kind"].text() == "accumulated") {
            hooks_[name] = of(step).register_post_accumulate_grad_hook([ran](const Tensor&) { ran(); });
            return;
        }
        hooks_[name] = of(step).register_hook([ran, factor](const Tensor& gradient) {
            ran();
            return factor.null() ? Tensor() : gradient * factor.number();
        });
    }

    void node_hook(const Json& step) {
        auto scaled = [this, name = step["name"].text(),
                       factor = step["factor"].number()](const Node::Gradients& gradients) {
            called_.push_back(name);
            Node::Gradients made;
            for (const Tensor& each : gradients) made.push_back(each.defined() ? each * factor : Tensor());
            return made;
        };
        const auto node = of(step).grad_fn();
        hooks_[step["name"].text()] =
            step["kind"].text() == "before"
                ? node.register_prehook(scaled)
                : node.register_hook(
                      [scaled](const Node::Gradients& inputs, const Node::Gradients&) { return scaled(inputs); });
    }

    void program(const Json& step) {
        std::vector<Input> inputs;
        std::vector<std::string> names;
        for (const Json& each : step["inputs"].items()) {
            names.push_back(each["name"].text());
            inputs.push_back({.dtype = support::dtype_of(each["dtype"].text()), .shape = each["shape"].integers()});
            inputs.back().requires_grad = each["requires_grad"].flag();
        }
        auto body = [&](Session& recorded, const std::vector<Tensor>& slots, const std::vector<Number>&) {
            Runner inner(recorded);
            for (std::size_t i = 0; i < names.size(); ++i) inner.tensors[names[i]] = slots[i];
            for (const Json& each : step["steps"].items()) inner.run(each);
            std::vector<Tensor> outputs;
            for (const Tensor& each : inner.several(step["outputs"])) outputs.push_back(each.detach());
            return outputs;
        };
        const auto numbers = static_cast<std::size_t>(step["numbers"].integer());
        programs_[step["name"].text()] = session_.trace(inputs, numbers, body);
    }

    void read(const Json& step) {
        const Payload payload = of(step).read();
        const Json expected = step["expect"];
        require(name_of(payload.dtype) == expected["dtype"].text(), "it has " + std::string(name_of(payload.dtype)));
        require(payload.shape == expected["shape"].integers(), "it has another shape");
        if (!expected["sha256"].null()) {
            std::string found(32, '\0');
            SHA256(reinterpret_cast<const unsigned char*>(payload.data.data()), payload.data.size(),
                   reinterpret_cast<unsigned char*>(found.data()));
            return require(support::hex(found) == expected["sha256"].text(), "other bytes");
        }
        if (!expected["hex"].null()) {
            return require(support::hex(payload.data) == expected["hex"].text(), support::hex(payload.data));
        }
        const auto found = payload.to_doubles();
        const auto wanted = expected["values"].reals();
        require(found.size() == wanted.size(), std::to_string(found.size()) + " values");
        const double tolerance = payload.dtype == DType::Float32 ? 1e-5 : payload.dtype == DType::Float64 ? 1e-10 : 0;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const bool same = found[i] == wanted[i] || (std::isnan(found[i]) && std::isnan(wanted[i]));
            const bool near = std::abs(found[i] - wanted[i]) <= tolerance * std::max(1.0, std::abs(wanted[i]));
            require(same || near, "[" + std::to_string(i) + "] is " + std::to_string(found[i]) + " instead of " +
                                      std::to_string(wanted[i]));
        }
    }

    void describe(const Json& step) {
        const Description found = of(step).describe();
        for (const auto& [key, wanted] : step["expect"].members()) {
            bool same = false;
            if (key == "dtype") same = name_of(found.dtype) == wanted.text();
            if (key == "shape") same = found.shape == wanted.integers();
            if (key == "requires_grad") same = found.requires_grad == wanted.flag();
            if (key == "is_leaf") same = found.is_leaf == wanted.flag();
            if (key == "grad_fn") same = found.grad_fn == wanted.text();
            if (key == "retains_grad") same = found.retains_grad == wanted.flag();
            if (key == "is_view") same = found.is_view == wanted.flag();
            if (key == "version") same = found.version == static_cast<std::uint64_t>(wanted.integer());
            require(same, key + " is another");
        }
    }

    Session& session_;
    std::map<std::string, Program> programs_;
    std::map<std::string, Hook> hooks_;
    std::vector<std::string> called_;
    std::int64_t round_ = 0;
};

void run_scenario(const Json& scenario) {
    const auto range = scenario["cuts"].integers();
    std::optional<support::Cutter> cutter;
    if (!range.empty()) cutter.emplace(range.at(0), range.at(1));
    ConnectOptions options;
    options.lease = std::chrono::milliseconds(scenario["lease_ms"].integer());
    options.patience = std::chrono::seconds(60);
    options.local_stream = !cutter;  // the socket would pass the proxy by
    Session session(cutter ? cutter->address() : support::address(), options);
    Runner runner(session);
    std::size_t place = 0;
    for (const Json& step : scenario["steps"].items()) {
        try {
            runner.checked(step);
        } catch (const std::exception& error) {
            throw std::runtime_error("step " + std::to_string(place) + ", " + step["do"].text() + ": " + error.what());
        }
        ++place;
    }
    session.wait();
    if (cutter) {
        const int cuts = cutter->cuts();  // the proxy is gone; the session's lease runs out
        require(cuts >= 2, std::to_string(cuts) + " cuts");
    } else {
        session.close();
    }
}

TEST(Conformance, Scenarios) {
    NEEDS_A_SERVER();
    std::vector<std::filesystem::path> paths;
    for (const auto& each : std::filesystem::directory_iterator(support::conformance() + "/scenarios")) {
        if (each.path().extension() == ".json") paths.push_back(each.path());
    }
    std::sort(paths.begin(), paths.end());
    ASSERT_FALSE(paths.empty());
    const bool cutting = !support::variable("GRADWIRE_CUTTING").empty();
    google::protobuf::Struct report;
    for (const auto& path : paths) {
        for (const Json& scenario : Json::parse(support::contents(path)).items()) {
            if (!cutting && !scenario["cuts"].null()) continue;
            const std::string name = path.stem().string() + ": " + scenario["name"].text();
            std::string outcome = "ok";
            try {
                run_scenario(scenario);
            } catch (const std::exception& error) {
                outcome = error.what();
                ADD_FAILURE() << name << ": " << outcome;
            }
            (*report.mutable_fields())[name].set_string_value(outcome);
        }
    }
    if (const std::string to = support::variable("GRADWIRE_CONFORMANCE_REPORT"); !to.empty()) {
        std::string text;
        ASSERT_TRUE(google::protobuf::util::MessageToJsonString(report, &text).ok());
        std::ofstream(to) << text;
    }
}

}  // namespace
