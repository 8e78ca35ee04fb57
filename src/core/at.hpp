// Converts a signed index to the type that std::vector and std::span expect.
// Layer: foundation.
#pragma once

#include <cstddef>

namespace ballast::core {

template <class Value>
constexpr std::size_t at(Value i) {
  return static_cast<std::size_t>(i);
}

}  // namespace ballast::core
