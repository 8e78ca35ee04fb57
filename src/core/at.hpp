// A signed index as std::vector and std::span take it.
// Layer: foundation.
#pragma once

#include <cstddef>

namespace ballast::core {

template <class Value>
constexpr std::size_t at(Value i) {
  return static_cast<std::size_t>(i);
}

}  // namespace ballast::core
