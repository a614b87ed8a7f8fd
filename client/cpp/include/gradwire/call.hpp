/// @file
/// Arguments, and calls of ops by name. The functions of this library use them; use Call for an op that has no
/// function.
#pragma once

#include <complex>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gradwire/values.hpp"

namespace gradwire {

class Session;
class Tensor;
class IndexItem;

namespace detail {
class Core;
struct Handle;
struct Lists;
/// Refuses an integer that the protocol cannot hold.
[[noreturn]] void too_large();
}  // namespace detail

/// A placeholder for a floating-point number in a program; see Session::trace.
struct Number {
    std::uint32_t place = 0;
};

/// Any argument of an op. A default-made one is absent.
class Argument {
  public:
    /// What an argument is.
    enum class Kind : std::uint8_t {
        Absent,
        None,
        Tensor,
        Tensors,
        Float,
        Integer,
        Boolean,
        String,
        Dtype,
        Integers,
        Floats,
        Complex,
        Index,
        Number
    };

    Argument() = default;
    /// None.
    Argument(std::nullptr_t) : kind_(Kind::None) {}
    /// A bool, an integer or a float. An integer beyond 64 bits with a sign throws an ArgumentValueError.
    template <class T>
    requires std::is_arithmetic_v<T> Argument(T value) {
        if constexpr (std::is_same_v<T, bool>) {
            kind_ = Kind::Boolean;
            bits_ = value ? 1 : 0;
        } else if constexpr (std::is_integral_v<T>) {
            if constexpr (std::is_unsigned_v<T> && sizeof(T) >= sizeof(std::int64_t)) {
                if (value > static_cast<T>(std::numeric_limits<std::int64_t>::max())) detail::too_large();
            }
            kind_ = Kind::Integer;
            bits_ = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
        } else {
            set_float(static_cast<double>(value));
        }
    }
    /// A complex number.
    template <class T>
    Argument(std::complex<T> value) {
        set_float(static_cast<double>(value.real()));
        kind_ = Kind::Complex;
        imaginary_ = static_cast<double>(value.imag());
    }
    /// A number that each run of a program gives.
    Argument(Number value) : kind_(Kind::Number), bits_(value.place) {}
    /// An element type.
    Argument(DType value) : kind_(Kind::Dtype), bits_(static_cast<std::uint64_t>(value)) {}
    /// A string.
    Argument(const char* value);
    /// A string.
    Argument(const std::string& value);
    /// A list of integers; None if it is absent.
    Argument(const Integers& values);
    /// A list of floats; None if it is absent.
    Argument(const Floats& values);
    /// A tensor; None if it is empty.
    Argument(const Tensor& tensor);
    /// A list of tensors.
    Argument(const std::vector<Tensor>& tensors);
    /// An index expression.
    Argument(const std::vector<IndexItem>& items);

    /// Whether it was given.
    bool given() const noexcept { return kind_ != Kind::Absent; }

  private:
    friend class Call;
    friend struct CallAccess;
    void set_float(double value);

    Kind kind_ = Kind::Absent;
    std::uint64_t bits_ = 0;  // an id, or the bits of a number
    double imaginary_ = 0;
    std::string name_;
    std::shared_ptr<detail::Handle> tensor_;
    std::shared_ptr<const detail::Lists> lists_;
};

/// A number: an integer, a float, a bool, a complex number, or a Number of a program.
class Scalar : public Argument {
  public:
    Scalar() = default;
    template <class T>
    requires std::is_arithmetic_v<T> Scalar(T value) : Argument(value) {}
    template <class T>
    Scalar(std::complex<T> value) : Argument(value) {}
    Scalar(Number value) : Argument(value) {}
};

/// A tensor or a number.
class Operand : public Scalar {
  public:
    using Scalar::Scalar;
    Operand(const Scalar& value) : Scalar(value) {}
    Operand(const Tensor& tensor) { Argument::operator=(Argument(tensor)); }
};

/// A number or a string.
class NumberOrString : public Scalar {
  public:
    using Scalar::Scalar;
    NumberOrString(const char* value) { Argument::operator=(Argument(value)); }
    NumberOrString(const std::string& value) { Argument::operator=(Argument(value)); }
};

/// Collects the arguments of an op and applies it: `Call("add").arg(a).arg(b).named("alpha", 2).one()`.
class Call {
  public:
    /// Begins a call of an op by its name in ListOps. A tensor must be among the arguments.
    explicit Call(std::string op);
    /// Begins a call of an op that needs no tensor.
    Call(const Session& session, std::string op);
    /// Begins a call in the session of a core.
    Call(std::shared_ptr<detail::Core> core, std::string op);

    /// Adds an argument by place.
    Call& arg(Argument value) { return named({}, std::move(value)); }
    /// Adds a list by place. An absent one is empty: `session.zeros({})` has no dimensions.
    template <class T>
    Call& arg(const List<T>& value) {
        return named({}, value.given() ? Argument(value) : Argument(List<T>(std::vector<T>())));
    }
    /// Adds an argument by name.
    Call& named(std::string_view name, Argument value);
    /// Adds an argument by name, if it is given.
    Call& option(std::string_view name, const Argument& value) { return value.given() ? named(name, value) : *this; }
    /// Adds a list by name, if it is given.
    template <class T>
    Call& option(std::string_view name, const List<T>& value) {
        return value.given() ? named(name, value) : *this;
    }
    /// Adds a list of tensors by name, if there are some.
    Call& option(std::string_view name, const std::vector<Tensor>& value);
    /// Adds a tensor by name, if it is not empty.
    Call& option(std::string_view name, const Tensor& value);
    /// Adds a value by name, if it is given.
    template <class T>
    Call& option(std::string_view name, const std::optional<T>& value) {
        return value ? named(name, *value) : *this;
    }

    /// Applies an op with one result, or an in-place form. Throws if tensors belong to different sessions.
    Tensor one();
    /// Applies an op with as many results.
    std::vector<Tensor> several(std::size_t count);
    /// Applies an in-place form, and returns its first tensor.
    Tensor in_place();
    /// Applies an op that returns a list. It waits, because only the answer has the list's length.
    std::vector<Tensor> list();

  private:
    friend struct CallAccess;
    void check(const std::shared_ptr<detail::Handle>& tensor, std::string_view name);

    std::string op_;
    std::shared_ptr<detail::Core> core_;
    std::shared_ptr<detail::Handle> first_;
    std::vector<Argument> args_;
};

}  // namespace gradwire
