/// @file
/// Element types, lists of numbers, and values of tensors in this program's memory.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradwire {

/// An element type. The numbers are those of the protocol.
enum class DType : std::uint8_t {
    Unspecified = 0,
    Float32 = 1,
    Float64 = 2,
    Float16 = 3,
    BFloat16 = 4,
    Int8 = 5,
    Int16 = 6,
    Int32 = 7,
    Int64 = 8,
    Uint8 = 9,
    Bool = 10,
    Complex64 = 11,
    Complex128 = 12,
    Uint16 = 13,
    Uint32 = 14,
    Uint64 = 15,
};

/// PyTorch's name: "float32".
std::string_view name_of(DType dtype) noexcept;

/// Bytes of one element.
std::size_t size_of(DType dtype) noexcept;

/// The element type of a C++ type. Unspecified if there is none.
template <class T>
constexpr DType dtype_of() noexcept {
    if constexpr (std::is_same_v<T, bool>) return DType::Bool;
    if constexpr (std::is_same_v<T, float>) return DType::Float32;
    if constexpr (std::is_same_v<T, double>) return DType::Float64;
    if constexpr (std::is_same_v<T, std::complex<float>>) return DType::Complex64;
    if constexpr (std::is_same_v<T, std::complex<double>>) return DType::Complex128;
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
        return sizeof(T) == 1   ? DType::Int8
               : sizeof(T) == 2 ? DType::Int16
               : sizeof(T) == 4 ? DType::Int32
                                : DType::Int64;
    }
    if constexpr (std::is_integral_v<T>) {
        return sizeof(T) == 1   ? DType::Uint8
               : sizeof(T) == 2 ? DType::Uint16
               : sizeof(T) == 4 ? DType::Uint32
                                : DType::Uint64;
    }
    return DType::Unspecified;
}

/// A C++ type that is an element type of tensors.
template <class T>
concept Element = dtype_of<T>()
!= DType::Unspecified;

/// A list of numbers as a parameter: `{2, 3}` or `2`. A default-made one is absent, so that the op's default applies.
template <class T>
class List {
  public:
    /// No list.
    List() = default;
    /// The numbers.
    List(std::initializer_list<T> values) : given_(true), values_(values) {}
    /// The numbers.
    List(std::vector<T> values) : given_(true), values_(std::move(values)) {}
    /// One number, which no conversion cuts.
    template <class Number>
    requires std::is_integral_v<Number> ||(std::is_arithmetic_v<Number>&& std::is_floating_point_v<T>)List(Number value)
        : given_(true), values_{static_cast<T>(value)} {}
    /// Whether there is a list, even an empty one.
    bool given() const noexcept { return given_; }
    /// The numbers.
    const std::vector<T>& values() const noexcept { return values_; }

  private:
    bool given_ = false;
    std::vector<T> values_;
};

/// Sizes, dimensions and the like.
using Integers = List<std::int64_t>;
/// A list of floats.
using Floats = List<double>;

/// A tensor's values: little-endian, row-major, without gaps.
struct Payload {
    DType dtype = DType::Unspecified;
    std::vector<std::int64_t> shape{};
    /// The bytes.
    std::string data{};
    /// Converts values of any real element type. Throws Error with Reason::Dtype for complex ones.
    std::vector<double> to_doubles() const;
};

namespace detail {

/// Asks the system for huge pages in memory that is about to be written, if it is large. Linux only.
void prefer_huge_pages(void* memory, std::size_t bytes) noexcept;

/// Resizes a container of values into which a large tensor is read.
template <class Values>
void resize_for_read(Values& values, std::size_t size) {
    values.reserve(size);
    prefer_huge_pages(values.data(), size * sizeof(typename Values::value_type));
    values.resize(size);
}

}  // namespace detail

}  // namespace gradwire
