// Seconds that a callable takes.
#pragma once

#include <chrono>

namespace ballast::bench {

template <class Callable>
double seconds_of(Callable&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace ballast::bench
