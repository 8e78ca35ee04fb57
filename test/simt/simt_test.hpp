// Launches for the tests of the emulator, and what they expect.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/arch/arch.cuh"
#include "simt/launch.hpp"

namespace simt_test {

using namespace ballast;

inline constexpr std::uint64_t k_seeds = 40;
inline constexpr unsigned k_all = 0xffffffffu;

// Launches the kernel; returns the error message, or empty without an error.
inline std::string failure_of(unsigned blocks, unsigned threads, const std::function<void()>& kernel, const simt::options& how = {},
                              int cluster = 1, std::int64_t shared = 0) {
  try {
    simt::launch(blocks, threads, cluster, shared, how, kernel);
  } catch (const simt::error& caught) {
    return caught.what();
  }
  return "";
}

// Checks that `text` contains all parts.
inline testing::AssertionResult has(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) {
    if (text.find(part) == std::string::npos) return testing::AssertionFailure() << "no \"" << part << "\" in \"" << text << "\"";
  }
  return testing::AssertionSuccess();
}

// Returns the number of seeds that give correct results.
inline int right_seeds(const std::function<bool(std::uint64_t seed)>& run) {
  int right = 0;
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) right += run(seed) ? 1 : 0;
  return right;
}

}  // namespace simt_test
