// Implements thread_count and worthwhile_threads for every implementation of parallel_for.
#include "core/thread_count.hpp"

#include <algorithm>
#include <bit>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "core/parallel.hpp"

namespace ballast::core {

namespace {

// oneTBB provides this many workers on any machine. More threads than cores gain nothing.
constexpr int k_most_threads = 256;

// Seconds of work that a thread should have at least.
constexpr double k_least_share = 25e-6;

}  // namespace

int thread_count_of(int requested, int cores) {
  if (requested < 0) throw invalid_argument_error(fmt::format("threads: expected 0 (all cores) or more, got {}", requested));
  return requested > 0 ? std::min(requested, std::max(cores, k_most_threads)) : cores;
}

int worthwhile_threads(int requested, double seconds) {
  const int all = thread_count(requested);
  if (requested != 0) return all;
  const double shares = std::clamp(seconds / k_least_share, 1.0, static_cast<double>(all));
  return shares < all ? static_cast<int>(std::bit_floor(static_cast<unsigned>(shares))) : all;
}

}  // namespace ballast::core
