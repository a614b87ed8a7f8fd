// Gradients: backward, hooks, and the modes in which no graph is recorded.
#include "gradwire/autograd.hpp"

#include <exception>

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

/// Calls the function of a hook. Returns what replaces the gradient, or an empty tensor.
Tensor run_hook(Core& core, const pb::HookCall& due) {
    for (const auto& spec : due.others()) {
        if (spec.id() != 0) core.adopt(spec.id());  // released at once
    }
    Tensor gradient;
    if (due.gradients_size() > 0 && due.gradients(0).id() != 0) gradient = core.adopt(due.gradients(0).id());
    const auto entry = core.hook(due.hook());
    if (!entry) {
        raise(mistake(Reason::NotSupported, "backward",
                      "the backward stopped at hook " + std::to_string(due.hook()) + " of another client"));
    }
    if (entry->accumulated) {
        auto leaf = std::make_shared<Handle>(core.shared_from_this(), due.leaf().id(), false);
        entry->accumulated(Tensor(std::move(leaf)));
        return {};
    }
    if (!gradient.defined()) return {};
    Tensor replacement = entry->gradient(gradient);
    if (replacement.defined() && replacement.handle()->core.get() != &core) {
        raise(mistake(Reason::ArgumentValue, "backward", "a hook returned a tensor of another session"));
    }
    return replacement;
}

/// Sends a backward and runs the hooks at which it stops. Returns its last answer.
pb::Result run_hooks(Core& core, pb::Command&& first) {
    pb::Command command = std::move(first);
    std::exception_ptr own;  // of a hook
    Tensor replacement;      // lives until the command that names it is answered
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
            replacement = run_hook(core, *due);
            if (replacement.defined()) {
                resume->set_replaces(true);
                resume->add_gradients(replacement.id());
            }
        } catch (...) {
            own = std::current_exception();  // thrown when the server has ended the backward
            resume->set_abandon(true);
        }
    }
}

Hook add_hook(const Tensor& tensor, HookEntry entry, pb::HookKind kind) {
    const auto& core = core_of(tensor, "register_hook");
    if (!core->live()) raise(mistake(Reason::NotSupported, "register_hook", "a program has no hooks"));
    const std::uint64_t number = core->add_hook(std::move(entry));
    pb::Command command;
    auto* request = command.mutable_register_hook();
    request->set_hook(number);
    request->set_tensor(tensor.id());
    request->set_kind(kind);
    core->sink().send(std::move(command));
    return Hook(core, number);
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
    run_hooks(*core, std::move(command));
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
    const pb::Result result = run_hooks(*core, std::move(command));
    const auto& specs = result.has_gradients() ? result.gradients().gradients() : result.resume_backward().gradients();
    for (int i = 0; i < specs.size() && i < static_cast<int>(made.size()); ++i) {
        if (specs[i].id() == 0) made[static_cast<std::size_t>(i)].reset();
    }
    return made;
}

void Tensor::backward() const { backward(BackwardOptions{}); }

void Tensor::backward(const BackwardOptions& options) const { gradwire::backward({*this}, options); }

Hook Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
    return add_hook(*this, {std::move(hook), {}}, pb::HOOK_KIND_TENSOR);
}

Hook Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const {
    return add_hook(*this, {{}, std::move(hook)}, pb::HOOK_KIND_ACCUMULATED);
}

void Hook::remove() {
    const auto core = core_.lock();
    core_.reset();
    if (!core) return;
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
