// Text of messages: ballast::fmt is the standard library's <format> where there is one, else the {fmt} library it was modelled on.
// Layer: foundation. Include it in sources only, not in headers. What is used must be in both: no fmt::join, fmt::print or named arguments.
#pragma once

#include <string>
#include <version>

#if defined(__cpp_lib_format)
#include <format>
namespace ballast {
namespace fmt = std;
}
#else
#include <fmt/format.h>
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
