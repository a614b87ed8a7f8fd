/// @file
/// Tensors of a session, and what selects parts of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gradwire/call.hpp"
#include "gradwire/errors.hpp"
#include "gradwire/ops/methods.hpp"
#include "gradwire/values.hpp"

namespace gradwire {

class Hook;
class Node;
struct BackwardOptions;

/// What the server tells of a tensor without its values.
struct Description {
    DType dtype = DType::Unspecified;
    std::vector<std::int64_t> shape{};
    std::string device{};
    bool requires_grad = false;
    bool is_leaf = false;
    /// Name of the node that made it, as in PyTorch; empty for a leaf.
    std::string grad_fn{};
    bool retains_grad = false;
    bool is_view = false;
    /// Number of in-place changes of its bytes.
    std::uint64_t version = 0;
};

/// Names a tensor of a session. Its values are on the server, and may not be computed yet.
///
/// A copy names the same tensor. When the last copy dies, the server releases the tensor with the next batch. An op
/// returns at once; what waits says so. A mistake surfaces at the next wait or read of the session, once. The op's
/// functions are those of TensorMethods.
class Tensor : public detail::TensorMethods {
  public:
    /// An empty tensor, which stands for None.
    Tensor() = default;
    explicit Tensor(std::shared_ptr<detail::Handle> handle) noexcept : handle_(std::move(handle)) {}

    /// Whether it names a tensor.
    bool defined() const noexcept { return handle_ != nullptr; }
    /// The tensor's id on the server; 0 if it is empty.
    std::uint64_t id() const noexcept;
    /// Lets go of the tensor before its scope ends.
    void reset() noexcept { handle_.reset(); }

    /// Fetches the values. Waits, and throws the first refusal since the last wait or read.
    Payload read() const;
    /// Fetches the value of a tensor with one element, of any real type. Waits.
    double item() const;
    /// Fetches values whose element type is T, in row-major order. Waits. Throws with Reason::Dtype for another type.
    template <Element T>
    std::vector<T> to_vector() const {
        std::vector<T> made;
        if constexpr (std::is_same_v<T, bool>) {
            const Payload payload = read();
            expect(payload.dtype, DType::Bool);
            made.reserve(payload.data.size());
            for (char each : payload.data) made.push_back(each != 0);
        } else {
            read_into([&](DType dtype, const std::vector<std::int64_t>&, std::size_t size) {
                expect(dtype, dtype_of<T>());
                detail::resize_for_read(made, (size + sizeof(T) - 1) / sizeof(T));
                return reinterpret_cast<char*>(made.data());
            });
        }
        return made;
    }
    /// Fetches values of any real element type, converted. Waits.
    std::vector<double> to_doubles() const { return read().to_doubles(); }

    /// Asks for shape, element type and flags. Waits.
    Description describe() const;
    /// Asks for the sizes of the dimensions. Waits.
    std::vector<std::int64_t> shape() const { return describe().shape; }

    /// Sets a leaf's flag, and returns the tensor.
    Tensor requires_grad_(bool requires_grad = true) const;
    /// Makes a non-leaf keep its gradient in the next backward, and returns the tensor.
    Tensor retain_grad() const;
    /// The gradient. Reading it fails where there is none: see has_grad.
    Tensor grad() const;
    /// Asks whether there is a gradient. Waits.
    bool has_grad() const;
    /// Sets the gradient; an empty tensor clears it.
    void set_grad(const Tensor& grad) const;
    /// Clears the gradient.
    void zero_grad() const { set_grad(Tensor()); }
    /// Makes the tensor share another's values; no graph records it (x.data = y).
    void set_data(const Tensor& data) const;

    /// Adds gradients to the leaves that the tensor depends on. Waits only if the session has hooks, which it runs in
    /// this thread.
    void backward() const;
    /// Is backward() with options.
    void backward(const BackwardOptions& options) const;
    /// Calls a function with each gradient that reaches the tensor in a backward. What it returns replaces the
    /// gradient, unless it is empty. If it throws, the backward ends, and its caller gets the exception.
    Hook register_hook(std::function<Tensor(const Tensor& gradient)> hook) const;
    /// Is register_hook() of a function that returns nothing.
    template <class Function>
    requires std::is_void_v<std::invoke_result_t<Function&, const Tensor&>> Hook register_hook(Function hook)
    const;
    /// Calls a function with the leaf after a backward has added to its gradient.
    Hook register_post_accumulate_grad_hook(std::function<void(const Tensor& leaf)> hook) const;
    /// The node of the graph that made the tensor, to register hooks of it. A leaf has none.
    Node grad_fn() const;

    /// Takes a part: `t.index({0, slice(1, 3)})` is t[0, 1:3].
    Tensor index(const std::vector<IndexItem>& items) const;
    /// Takes a part along the first dimension.
    Tensor operator[](const IndexItem& item) const;
    /// Assigns to a part, and returns the tensor: t[items] = value.
    Tensor set_index(const std::vector<IndexItem>& items, const Operand& value) const;

    /// Add, subtract, multiply or divide in place, as in PyTorch: a leaf that requires a gradient needs a NoGradGuard.
    Tensor& operator+=(const Operand& other);
    Tensor& operator-=(const Operand& other);
    Tensor& operator*=(const Operand& other);
    Tensor& operator/=(const Operand& other);

    /// The tensor's part in the library.
    const std::shared_ptr<detail::Handle>& handle() const noexcept { return handle_; }

  private:
    /// Says where values of an element type, shape and number of bytes go.
    using Place = std::function<char*(DType, std::vector<std::int64_t>, std::size_t)>;
    void read_into(const Place& place) const;
    static void expect(DType found, DType wanted);

    std::shared_ptr<detail::Handle> handle_;
};

/// start:stop:step; an absent bound is that of the dimension.
struct Slice {
    std::optional<std::int64_t> start{};
    std::optional<std::int64_t> stop{};
    std::optional<std::int64_t> step{};
};
/// Stands for all dimensions that the other items do not name.
struct Ellipsis {};
/// A new dimension of size 1.
struct NewAxis {};
inline constexpr Ellipsis ellipsis{};
inline constexpr NewAxis new_axis{};

/// start:stop:step.
constexpr Slice slice(std::optional<std::int64_t> start = {}, std::optional<std::int64_t> stop = {},
                      std::optional<std::int64_t> step = {}) {
    return {start, stop, step};
}

/// One item of an index expression.
class IndexItem {
  public:
    /// What an item is.
    enum class Kind : std::uint8_t { Integer, Boolean, Slice, Ellipsis, NewAxis, Tensor };

    /// One position, counted from the end if it is negative; a bool adds a dimension of size 1 or 0.
    template <class T>
    requires std::is_integral_v<T> IndexItem(T value)
        : kind(std::is_same_v<T, bool> ? Kind::Boolean : Kind::Integer), integer(static_cast<std::int64_t>(value)) {}
    /// A range of positions.
    IndexItem(Slice value) : kind(Kind::Slice), bounds(value) {}
    IndexItem(Ellipsis) : kind(Kind::Ellipsis) {}
    IndexItem(NewAxis) : kind(Kind::NewAxis) {}
    /// The positions that a tensor of integers lists, or where a tensor of bools is true.
    IndexItem(Tensor value) : kind(Kind::Tensor), tensor(std::move(value)) {}

    Kind kind;
    std::int64_t integer = 0;
    Slice bounds{};
    Tensor tensor{};
};

// Operators are those of PyTorch. Tensors compare by the methods eq and ne, since == would mean something else in C++.
Tensor operator+(const Tensor& a, const Operand& b);
Tensor operator-(const Tensor& a, const Operand& b);
Tensor operator*(const Tensor& a, const Operand& b);
Tensor operator/(const Tensor& a, const Operand& b);
Tensor operator+(const Scalar& a, const Tensor& b);
Tensor operator-(const Scalar& a, const Tensor& b);
Tensor operator*(const Scalar& a, const Tensor& b);
Tensor operator/(const Scalar& a, const Tensor& b);
Tensor operator-(const Tensor& a);
Tensor operator<(const Tensor& a, const Operand& b);
Tensor operator>(const Tensor& a, const Operand& b);
Tensor operator<=(const Tensor& a, const Operand& b);
Tensor operator>=(const Tensor& a, const Operand& b);

}  // namespace gradwire

#include "gradwire/ops/options.hpp"  // needs Tensor
