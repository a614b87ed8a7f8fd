// Functions whose derivatives the program computes itself: recording them, and their part of a backward.
#include "gradwire/function.hpp"

#include <algorithm>
#include <cstdlib>

#if __has_include(<cxxabi.h>)
#include <cxxabi.h>
#endif

#include "core.hpp"
#include "failures.hpp"

namespace gradwire::detail {

namespace {

/// A type's name without namespaces and template arguments: "Square".
std::string name_of_type(const std::type_info& type) {
    std::string name = type.name();
#if __has_include(<cxxabi.h>)
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> told(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                           &std::free);
    if (told && status == 0) name = told.get();
#endif
    int depth = 0;  // of parentheses: "test(int)::Square" is a type in a function
    std::size_t begin = 0;
    std::size_t end = name.size();
    for (std::size_t at = 0; at < name.size(); ++at) {
        const char letter = name[at];
        if (letter == '<' && depth == 0) end = std::min(end, at);
        if (letter == '<' || letter == '(') ++depth;
        if (letter == '>' || letter == ')') --depth;
        if (letter == ':' && depth == 0) {
            begin = at + 1;
            end = name.size();
        }
    }
    return name.substr(begin, end - begin);
}

bool same(const Tensor& a, const Tensor& b) { return a.handle() == b.handle(); }

bool among(const Tensor& wanted, const std::vector<Tensor>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& each) { return same(each, wanted); });
}

/// A view replaces an input that is returned unchanged: a view can have a history of its own.
void separate(const FunctionInputs& inputs, const std::vector<Tensor>& dirty, std::vector<Tensor>& results,
              std::vector<Tensor>& non_differentiable) {
    GradModeGuard guard(forward_mode());
    for (Tensor& each : results) {
        if (!each.defined() || !among(each, inputs.tensors) || among(each, dirty)) continue;
        const Tensor view = each.view_as(each);
        for (Tensor& other : non_differentiable) {
            if (same(other, each)) other = view;
        }
        each = view;
    }
}

/// The gradients that backward returned, one for each argument.
std::vector<Tensor> checked(const std::string& name, std::vector<Tensor> made, const std::vector<bool>& wanted) {
    while (made.size() > wanted.size() && !made.back().defined()) made.pop_back();
    const std::string returned = "function " + name + " returned ";
    if (made.size() != wanted.size()) {
        raise(mistake(Reason::Runtime, "",
                      returned + "an incorrect number of gradients (expected " + std::to_string(wanted.size()) +
                          ", got " + std::to_string(made.size()) + ")"));
    }
    for (std::size_t place = 0; place < made.size(); ++place) {
        if (wanted[place] || !made[place].defined()) continue;
        raise(mistake(Reason::Runtime, "",
                      returned + "a gradient different than None at position " + std::to_string(place + 1) +
                          ", but the corresponding forward input was not a Variable"));
    }
    return made;
}

}  // namespace

GradMode forward_mode() noexcept {
    return grad_mode() == GradMode::Inference ? GradMode::Inference : GradMode::Disabled;
}

void record_function(const std::type_info& type, const FunctionInputs& inputs, std::vector<Tensor>& results,
                     AutogradContext& context, FunctionBackward backward) {
    const std::string name = name_of_type(type);
    const auto core = common_core(
        name.c_str(), {&inputs.tensors, &results, &context.saved_, &context.dirty_, &context.non_differentiable_});
    if (!core) raise(mistake(Reason::ArgumentType, name, "there is no tensor"));
    if (!core->live()) raise(mistake(Reason::NotSupported, name, "a program has no custom functions"));
    separate(inputs, context.dirty_, results, context.non_differentiable_);
    if (grad_mode() == GradMode::Disabled || grad_mode() == GradMode::Inference) return;
    pb::Command command;
    auto* request = command.mutable_record_function();
    add_ids(inputs.tensors, request->mutable_inputs());
    add_ids(results, request->mutable_outputs());
    add_ids(context.saved_, request->mutable_saved());
    add_ids(context.dirty_, request->mutable_dirty());
    add_ids(context.non_differentiable_, request->mutable_non_differentiable());
    request->set_keeps_undefined(!context.materialize_grads_);
    request->set_name(name + "Backward");
    // The node on the server holds the tensors. If they were held here, too, the node would never die.
    AutogradContext kept;
    kept.saved_data = std::move(context.saved_data);
    request->set_hook(core->add_hook([kept = std::move(kept), backward, node = request->name(),
                                      wanted = inputs.differentiable](const HookArguments& given) {
        AutogradContext own = kept;  // several threads may differentiate a graph
        own.saved_ = given.others;
        return checked(node, backward(own, given.gradients), wanted);
    }));
    core->sink().send(std::move(command));
}

}  // namespace gradwire::detail
