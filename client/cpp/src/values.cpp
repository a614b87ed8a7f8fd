// Element types, and values of tensors in this program's memory.
#include "gradwire/values.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "failures.hpp"

namespace gradwire {

namespace {

struct Known {
    std::string_view name;
    std::size_t size;
};

constexpr std::array<Known, 16> dtypes{{{"unspecified", 0},
                                        {"float32", 4},
                                        {"float64", 8},
                                        {"float16", 2},
                                        {"bfloat16", 2},
                                        {"int8", 1},
                                        {"int16", 2},
                                        {"int32", 4},
                                        {"int64", 8},
                                        {"uint8", 1},
                                        {"bool", 1},
                                        {"complex64", 8},
                                        {"complex128", 16},
                                        {"uint16", 2},
                                        {"uint32", 4},
                                        {"uint64", 8}}};

const Known& known(DType dtype) noexcept {
    const auto place = static_cast<std::size_t>(dtype);
    return dtypes[place < dtypes.size() ? place : 0];
}

template <class T, class Convert>
std::vector<double> converted(const std::string& data, Convert convert) {
    std::vector<double> made(data.size() / sizeof(T));
    for (std::size_t i = 0; i < made.size(); ++i) {
        T value;
        std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
        made[i] = convert(value);
    }
    return made;
}

template <class T>
std::vector<double> converted(const std::string& data) {
    return converted<T>(data, [](T value) { return static_cast<double>(value); });
}

/// Converts an IEEE 754 binary16.
double from_half(std::uint16_t half) {
    const double sign = half >> 15 ? -1 : 1;
    const int exponent = half >> 10 & 31;
    const double fraction = half & 1023;
    if (exponent == 31) {
        return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    }
    return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

double from_brain(std::uint16_t half) {
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace

namespace detail {

/// The first write to each small page of fresh memory is a page fault. Together these take longer than the copy.
void prefer_huge_pages(void* memory, std::size_t bytes) noexcept {
#ifdef __linux__
    constexpr std::uintptr_t huge = 2 << 20;
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t begin = (address + huge - 1) / huge * huge;
    const std::uintptr_t end = (address + bytes) / huge * huge;
    // It is a hint: a system without huge pages refuses it, and takes small ones.
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
    static_cast<void>(memory);
    static_cast<void>(bytes);
#endif
}

}  // namespace detail

std::string_view name_of(DType dtype) noexcept { return known(dtype).name; }

std::size_t size_of(DType dtype) noexcept { return known(dtype).size; }

std::vector<double> Payload::to_doubles() const {
    switch (dtype) {
        case DType::Float32:
            return converted<float>(data);
        case DType::Float64:
            return converted<double>(data);
        case DType::Float16:
            return converted<std::uint16_t>(data, from_half);
        case DType::BFloat16:
            return converted<std::uint16_t>(data, from_brain);
        case DType::Int8:
            return converted<std::int8_t>(data);
        case DType::Int16:
            return converted<std::int16_t>(data);
        case DType::Int32:
            return converted<std::int32_t>(data);
        case DType::Int64:
            return converted<std::int64_t>(data);
        case DType::Uint8:
        case DType::Bool:
            return converted<std::uint8_t>(data);
        case DType::Uint16:
            return converted<std::uint16_t>(data);
        case DType::Uint32:
            return converted<std::uint32_t>(data);
        case DType::Uint64:
            return converted<std::uint64_t>(data);
        default:
            raise(detail::mistake(Reason::Dtype, "",
                                  "values of " + std::string(name_of(dtype)) + " cannot be converted to real numbers"));
    }
}

}  // namespace gradwire
