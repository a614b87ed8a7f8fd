/// @file
/// The version of this library.
#pragma once

namespace gradwire {

/// The version of this library.
inline constexpr char version[] = "0.1.0";

}  // namespace gradwire
