// The stage `kinds`: what bench does not take, one call by the host's clock beside a rival, and whether its result is right.
// Layer: gpu-check, for all algorithms.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "calls.hpp"
#include "one_case.hpp"

namespace ballast::gpu_check {

inline constexpr const char* k_kind_row = "kind";  // the type of the rows of times

// An error that was measured, and the most that rounding explains.
struct measured_error {
  double error = 0, bound = 0;
};

// Runs one case of the group "kinds". error(): measures the result that lies on the device. The case fails above the bound, or if the call
// raised an alarm, which throws.
inline void check_kind(tally& seen, const std::string& token, const std::string& manner, const std::function<measured_error()>& error) {
  one_case now(seen, "kinds", token, manner);
  now.guarded([&] {
    const measured_error found = error();
    now.line().add("error", found.error).add("bound", found.bound).add("error_in_bounds", found.error / found.bound);
    now.expect(found.error <= found.bound, "an error of " + std::to_string(found.error / found.bound) + " bounds");
  });
}

// Returns how often a call of so many bytes runs in one measurement, so that it takes milliseconds.
inline int repeated(std::int64_t bytes) {
  constexpr double k_least_seconds = 5e-3, k_assumed_bandwidth = 2e12, k_assumed_launch = 1e-5;
  const double once = static_cast<double>(bytes) / k_assumed_bandwidth + k_assumed_launch;
  return tested == backend::cuda ? static_cast<int>(std::clamp(std::ceil(k_least_seconds / once), 1.0, 200.0)) : 1;
}

// Calls body(token, seconds) for each problem, which shares the time that is left with those after it. A problem that throws gets a row
// with the reason. Returns the number of failed checks.
inline int each_kind(const std::vector<std::string>& tokens, const time_limit& limit, tally& seen,
                     const std::function<void(const std::string&, double)>& body) {
  std::size_t left = tokens.size();
  for (const std::string& token : tokens) {
    const double seconds = limit.left() / static_cast<double>(left--);
    if (limit.over()) {
      ++seen.skipped;
      continue;
    }
    try {
      body(token, seconds);
    } catch (const std::exception& e) {
      row(k_kind_row).add("token", token).add("variant", "all").add("refused", e.what()).print();
      ++seen.failed;
    }
  }
  if (seen.skipped > 0) row("skipped").add("stage", "kinds").add("cases", seen.skipped).print();
  return seen.failed;
}

}  // namespace ballast::gpu_check
