// Formats messages. ballast::fmt is the compiled {fmt} library, whose header adds 0.2 s to the compilation of a source. With
// BALLAST_STD_FORMAT (the build of scripts/gpu-check) it is <format> instead, which needs no package and adds 3 s.
// Layer: foundation. Include this header in sources only, not in headers. Use only the functions that both have and fmt/core.h declares:
// format() of numbers, strings and characters; no join, print or named arguments.
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

// Returns the elements of `range`, formatted by "{}", with `separator` between them.
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
