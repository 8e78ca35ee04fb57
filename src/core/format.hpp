// Text of messages: ballast::fmt is the compiled {fmt} library, whose header costs a source 0.2 s. BALLAST_STD_FORMAT, the build of
// scripts/gpu-check, takes <format> instead: it needs no package, and costs 3 s.
// Layer: foundation. Include it in sources only, not in headers. Use only what is in both and in fmt/core.h: format() of numbers, strings
// and characters; no join, print or named arguments.
#pragma once

#include <string>

#if defined(BALLAST_STD_FORMAT)
#include <format>
namespace ballast {
namespace fmt = std;
}
#else
#include <fmt/core.h>
namespace ballast {
namespace fmt = ::fmt;
}
#endif

namespace ballast::core {

// The elements of `range`, formatted by "{}", with `separator` between them.
template <class Range>
std::string join(const Range& range, const char* separator) {
  std::string made;
  bool first = true;
  for (const auto& each : range) {
    if (!first) made += separator;
    first = false;
    made += fmt::format("{}", each);
  }
  return made;
}

}  // namespace ballast::core
