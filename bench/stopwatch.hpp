// Measures wall-clock time, for the benchmarks and for gpu-check.
#pragma once

#include <chrono>

namespace ballast::bench {

// Starts at its construction.
class stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Returns the seconds that a callable takes.
template <class Callable>
double seconds_of(Callable&& work) {
  const stopwatch time;
  work();
  return time.seconds();
}

}  // namespace ballast::bench
