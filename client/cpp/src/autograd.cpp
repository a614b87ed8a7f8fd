// Gradients: backward, hooks, and the modes in which no graph is recorded.
#include "gradwire/autograd.hpp"

#include <exception>
#include <optional>

#include "core.hpp"
#include "failures.hpp"

namespace gradwire {

using namespace detail;  // NOLINT: this library's own

namespace {

thread_local GradMode current_mode = GradMode::Unspecified;

/// The core of tensors of which one must be there.
std::shared_ptr<Core> core_of_some(const char* op, std::initializer_list<const std::vector<Tensor>*> lists) {
    auto core = common_core(op, lists);
    if (!core) raise(mistake(Reason::ArgumentType, op, "there is no tensor to differentiate"));
    return core;
}

/// Calls the function of a hook. Returns the gradients that replace the given ones, if it does.
std::optional<std::vector<Tensor>> run_hook(Core& core, const pb::HookCall& due, bool create_graph) {
    const auto adopted = [&](const auto& specs) {
        std::vector<Tensor> made;
        for (const auto& spec : specs) made.push_back(spec.id() ? core.adopt(spec.id()) : Tensor());
        return made;
    };
    HookArguments given{adopted(due.gradients()), adopted(due.others()), {}};
    if (due.has_leaf()) given.leaf = Tensor(std::make_shared<Handle>(core.shared_from_this(), due.leaf().id(), false));
    const auto function = core.hook(due.hook());
    if (!function) {
        raise(mistake(Reason::NotSupported, "backward",
                      "the backward stopped at hook " + std::to_string(due.hook()) + " of another client"));
    }
    GradModeGuard guard(create_graph ? GradMode::Enabled : GradMode::Disabled);
    auto replacement = (*function)(given);
    if (!replacement) return {};
    for (const Tensor& each : *replacement) {
        if (each.defined() && each.handle()->core.get() != &core) {
            raise(mistake(Reason::ArgumentValue, "backward", "a hook returned a tensor of another session"));
        }
    }
    return replacement;
}

/// Sends a backward and runs the hooks at which it stops. Returns its last answer.
pb::Result run_hooks(Core& core, pb::Command&& first, bool create_graph) {
    pb::Command command = std::move(first);
    std::exception_ptr own;                          // of a hook
    std::optional<std::vector<Tensor>> replacement;  // lives until the command that names it is answered
    for (;;) {
        pb::Result result = core.ask(std::move(command));
        if (own) std::rethrow_exception(own);
        const pb::HookCall* due = nullptr;
        if (result.has_backward() && result.backward().has_due()) due = &result.backward().due();
        if (result.has_gradients() && result.gradients().has_due()) due = &result.gradients().due();
        if (result.has_resume_backward() && result.resume_backward().has_due()) due = &result.resume_backward().due();
        if (!due) return result;
        command.Clear();
        auto* resume = command.mutable_resume_backward();
        resume->set_backward(due->backward());
        try {
            replacement = run_hook(core, *due, create_graph);
            resume->set_replaces(replacement.has_value());
            if (replacement) add_ids(*replacement, resume->mutable_gradients());
        } catch (...) {
            own = std::current_exception();  // thrown when the server has ended the backward
            resume->set_abandon(true);
        }
    }
}

Hook add_hook(const Tensor& tensor, HookFunction function, pb::HookKind kind) {
    const auto& core = core_of(tensor, "register_hook");
    if (!core->live()) raise(mistake(Reason::NotSupported, "register_hook", "a program has no hooks"));
    const std::uint64_t number = core->add_hook(std::move(function));
    pb::Command command;
    auto* request = command.mutable_register_hook();
    request->set_hook(number);
    request->set_tensor(tensor.id());
    request->set_kind(kind);
    core->sink().send(std::move(command));
    return Hook(core, number);
}

/// What replaces gradients; an empty list leaves them.
std::optional<std::vector<Tensor>> given_or_none(std::vector<Tensor> gradients) {
    if (gradients.empty()) return {};
    return gradients;
}

}  // namespace

void backward(const std::vector<Tensor>& tensors, const BackwardOptions& options) {
    const auto core = core_of_some("backward", {&tensors, &options.gradients, &options.inputs});
    pb::Command command;
    auto* request = command.mutable_backward();
    add_ids(tensors, request->mutable_tensors());
    add_ids(options.gradients, request->mutable_gradients());
    add_ids(options.inputs, request->mutable_inputs());
    request->set_create_graph(options.create_graph);
    request->set_check_nan(options.check_nan);
    if (options.retain_graph) request->set_retain_graph(true);
    if (!core->has_hooks()) return core->sink().send(std::move(command));
    request->set_answers_hooks(true);
    run_hooks(*core, std::move(command), options.create_graph);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options) {
    const auto core = core_of_some("grad", {&outputs, &inputs, &options.grad_outputs});
    std::vector<Tensor> made;
    for (std::size_t i = 0; i < inputs.size(); ++i) made.push_back(core->new_tensor());
    pb::Command command;
    auto* request = command.mutable_gradients();
    add_ids(outputs, request->mutable_outputs());
    add_ids(inputs, request->mutable_inputs());
    add_ids(options.grad_outputs, request->mutable_grad_outputs());
    add_ids(made, request->mutable_results());
    request->set_create_graph(options.create_graph);
    request->set_allow_unused(options.allow_unused);
    request->set_check_nan(options.check_nan);
    if (options.retain_graph) request->set_retain_graph(true);
    const bool hooks = core->has_hooks();
    if (!hooks && !options.allow_unused) {
        core->sink().send(std::move(command));
        return made;
    }
    request->set_answers_hooks(hooks);
    const pb::Result result = run_hooks(*core, std::move(command), options.create_graph);
    const auto& specs = result.has_gradients() ? result.gradients().gradients() : result.resume_backward().gradients();
    for (int i = 0; i < specs.size() && i < static_cast<int>(made.size()); ++i) {
        if (specs[i].id() == 0) made[static_cast<std::size_t>(i)].reset();
    }
    return made;
}

void Tensor::backward() const { backward(BackwardOptions{}); }

void Tensor::backward(const BackwardOptions& options) const { gradwire::backward({*this}, options); }

Hook Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
    const auto run = [hook = std::move(hook)](const HookArguments& given) -> std::optional<std::vector<Tensor>> {
        if (given.gradients.empty() || !given.gradients[0].defined()) return {};
        Tensor replacement = hook(given.gradients[0]);
        if (!replacement.defined()) return {};
        return std::vector<Tensor>{std::move(replacement)};
    };
    return add_hook(*this, run, pb::HOOK_KIND_TENSOR);
}

Hook Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const {
    const auto run = [hook = std::move(hook)](const HookArguments& given) -> std::optional<std::vector<Tensor>> {
        hook(given.leaf);
        return {};
    };
    return add_hook(*this, run, pb::HOOK_KIND_ACCUMULATED);
}

Node Tensor::grad_fn() const { return Node(*this); }

std::string Node::name() const { return tensor_.describe().grad_fn; }

Hook Node::register_hook(std::function<Gradients(const Gradients&, const Gradients&)> hook) const {
    return add_hook(
        tensor_,
        [hook = std::move(hook)](const HookArguments& given) {
            return given_or_none(hook(given.gradients, given.others));
        },
        pb::HOOK_KIND_AFTER);
}

Hook Node::register_prehook(std::function<Gradients(const Gradients&)> hook) const {
    return add_hook(
        tensor_, [hook = std::move(hook)](const HookArguments& given) { return given_or_none(hook(given.gradients)); },
        pb::HOOK_KIND_BEFORE);
}

void Hook::remove() {
    const auto core = core_.lock();
    core_.reset();
    if (!core || core->ended()) return;
    core->drop_hooks({number_});
    pb::Command command;
    command.mutable_remove_hook()->set_hook(number_);
    core->sink().send(std::move(command));
}

// Modes

GradMode grad_mode() noexcept { return current_mode; }

GradModeGuard::GradModeGuard(GradMode mode) noexcept : before_(current_mode) { current_mode = mode; }

GradModeGuard::~GradModeGuard() { current_mode = before_; }

}  // namespace gradwire
