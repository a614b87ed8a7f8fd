/// @file
/// Functions whose derivatives the program computes itself.
#pragma once

#include <any>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "gradwire/autograd.hpp"
#include "gradwire/tensor.hpp"

namespace gradwire {

class AutogradContext;

namespace detail {

/// The arguments of a call of a function, in order. A list of tensors counts as several.
struct FunctionInputs {
    std::vector<Tensor> tensors{};  // empty where an argument is no tensor
    std::vector<bool> differentiable{};

    template <class T>
    void add(const T& argument) {
        if constexpr (std::is_convertible_v<const T&, const std::vector<Tensor>&>) {
            for (const Tensor& each : argument) add(each);
        } else {
            constexpr bool is_tensor = std::is_convertible_v<const T&, const Tensor&>;
            if constexpr (is_tensor) {
                tensors.push_back(argument);
            } else {
                tensors.emplace_back();
            }
            differentiable.push_back(is_tensor);
        }
    }
};

using FunctionBackward = std::vector<Tensor> (*)(AutogradContext&, const std::vector<Tensor>&);
/// Records results as those of a function. May replace results.
void record_function(const std::type_info& type, const FunctionInputs& inputs, std::vector<Tensor>& results,
                     AutogradContext& context, FunctionBackward backward);
/// The mode in which forward runs: no graph is recorded.
GradMode forward_mode() noexcept;

}  // namespace detail

/// What a call of a Function keeps for its derivative.
class AutogradContext {
  public:
    /// Values other than tensors for backward, by name. Tensors belong in save_for_backward.
    std::map<std::string, std::any> saved_data{};

    /// Keeps inputs, results or other tensors. Call it in forward.
    void save_for_backward(std::vector<Tensor> tensors) { saved_ = std::move(tensors); }
    /// The kept tensors, with their history.
    const std::vector<Tensor>& get_saved_variables() const noexcept { return saved_; }
    /// Tells which inputs forward changes in place. They must be among the results.
    void mark_dirty(std::vector<Tensor> inputs) { dirty_ = std::move(inputs); }
    /// Tells which results have no gradient.
    void mark_non_differentiable(std::vector<Tensor> results) { non_differentiable_ = std::move(results); }
    /// Whether backward gets zeros for a result without a gradient, which is the default, or an empty tensor.
    void set_materialize_grads(bool value) noexcept { materialize_grads_ = value; }

  private:
    friend void detail::record_function(const std::type_info&, const detail::FunctionInputs&, std::vector<Tensor>&,
                                        AutogradContext&, detail::FunctionBackward);
    std::vector<Tensor> saved_{};
    std::vector<Tensor> dirty_{};
    std::vector<Tensor> non_differentiable_{};
    bool materialize_grads_ = true;
};

/// A function whose derivative the program computes itself (torch::autograd::Function). Derive from it and call apply:
///
///     struct Square : gradwire::Function<Square> {
///         static Tensor forward(AutogradContext& context, const Tensor& x) {
///             context.save_for_backward({x});
///             return x * x;
///         }
///         static std::vector<Tensor> backward(AutogradContext& context, const std::vector<Tensor>& gradients) {
///             return {context.get_saved_variables()[0] * gradients[0] * 2};
///         }
///     };
///     Tensor y = Square::apply(x);
///
/// forward takes any arguments after the context, and returns a Tensor or a list of them. No graph is recorded in it.
/// backward gets the gradients of the results. It returns one gradient for each argument; an empty tensor stands for
/// none. It runs in the thread that calls backward. While a graph needs the derivative, backwards of the session wait
/// for their end. A node's name is the name of the type with "Backward".
template <class Derived>
class Function {
  public:
    /// Calls the function. Does not wait.
    template <class... Arguments>
    static auto apply(const Arguments&... arguments) {
        detail::FunctionInputs inputs;
        (inputs.add(arguments), ...);
        AutogradContext context;
        auto made = [&] {
            GradModeGuard guard(detail::forward_mode());
            return Derived::forward(context, arguments...);
        }();
        if constexpr (std::is_same_v<decltype(made), Tensor>) {
            std::vector<Tensor> results{std::move(made)};
            detail::record_function(typeid(Derived), inputs, results, context, &Derived::backward);
            return std::move(results[0]);
        } else {
            detail::record_function(typeid(Derived), inputs, made, context, &Derived::backward);
            return made;
        }
    }
};

}  // namespace gradwire
