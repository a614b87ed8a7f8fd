/// @file
/// Gradients: backward, hooks, and the modes in which no graph is recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradwire/tensor.hpp"

namespace gradwire {

/// What backward can do without.
struct BackwardOptions {
    /// Gradients of the tensors, in order. One of a tensor with one element may be empty or missing: then it is 1.
    std::vector<Tensor> gradients{};
    /// Keeps the graph's saved values for another backward.
    bool retain_graph = false;
    /// Makes the gradients themselves differentiable, and keeps the graph.
    bool create_graph = false;
    /// The only tensors that receive gradients, if it is not empty.
    std::vector<Tensor> inputs{};
    /// Refuses a backward in which a node yields nan.
    bool check_nan = false;
};

/// What grad can do without.
struct GradOptions {
    /// Gradients of the outputs, in order. One of an output with one element may be empty or missing: then it is 1.
    std::vector<Tensor> grad_outputs{};
    /// Keeps the graph's saved values for another backward.
    bool retain_graph = false;
    /// Makes the gradients themselves differentiable, and keeps the graph.
    bool create_graph = false;
    /// Returns an empty tensor for an input that the outputs do not depend on. grad then waits.
    bool allow_unused = false;
    /// Refuses a backward in which a node yields nan.
    bool check_nan = false;
};

/// Differentiates several tensors at once (torch.autograd.backward).
void backward(const std::vector<Tensor>& tensors, const BackwardOptions& options = {});

/// Returns the gradients of outputs by inputs, and changes no leaf's (torch.autograd.grad). Waits if the session has
/// hooks, or with allow_unused.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options = {});

/// A registered hook. It stays registered when this object dies; remove() removes it.
class Hook {
  public:
    Hook() = default;
    Hook(std::weak_ptr<detail::Core> core, std::uint64_t number) : core_(std::move(core)), number_(number) {}
    /// Removes the hook. Does nothing the second time.
    void remove();

  private:
    std::weak_ptr<detail::Core> core_;
    std::uint64_t number_ = 0;
};

template <class Function>
requires std::is_void_v<std::invoke_result_t<Function&, const Tensor&>> Hook Tensor::register_hook(Function hook)
const {
    return register_hook([hook = std::move(hook)](const Tensor& gradient) mutable {
        hook(gradient);
        return Tensor();
    });
}

/// The node of the graph that made a tensor. It keeps the tensor.
class Node {
  public:
    /// Gradients, in order; an empty tensor where there is none.
    using Gradients = std::vector<Tensor>;

    explicit Node(Tensor tensor) noexcept : tensor_(std::move(tensor)) {}
    /// The node's name, as in PyTorch: "MulBackward0". Empty for a leaf. Waits.
    std::string name() const;
    /// Calls a function with the gradients of the node's inputs and outputs, after the node's formulas
    /// (Node.register_hook). It returns the gradients of all inputs, or an empty list to leave them.
    Hook register_hook(std::function<Gradients(const Gradients& inputs, const Gradients& outputs)> hook) const;
    /// Calls a function with the gradients of the node's outputs, before the node's formulas (Node.register_prehook).
    /// It returns the gradients of all outputs, or an empty list to leave them.
    Hook register_prehook(std::function<Gradients(const Gradients& outputs)> hook) const;

  private:
    Tensor tensor_;
};

/// Whether ops record a graph.
enum class GradMode : std::uint8_t { Unspecified = 0, Enabled = 1, Disabled = 2, Inference = 3 };

/// The mode of the calling thread.
GradMode grad_mode() noexcept;

/// Sets the calling thread's mode until the object dies.
class GradModeGuard {
  public:
    explicit GradModeGuard(GradMode mode) noexcept;
    ~GradModeGuard();
    GradModeGuard(const GradModeGuard&) = delete;
    GradModeGuard& operator=(const GradModeGuard&) = delete;

  private:
    GradMode before_;
};

/// Until it dies, ops of the calling thread record no graph, and leaves may be changed in place (torch.no_grad).
class NoGradGuard : public GradModeGuard {
  public:
    NoGradGuard() noexcept : GradModeGuard(GradMode::Disabled) {}
};

/// Is NoGradGuard, and the results can never be part of a graph (torch.inference_mode).
class InferenceModeGuard : public GradModeGuard {
  public:
    InferenceModeGuard() noexcept : GradModeGuard(GradMode::Inference) {}
};

}  // namespace gradwire
