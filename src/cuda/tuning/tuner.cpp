// Compiles the candidates on all cores, then times them one at a time.
#include "cuda/tuning/tuner.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include <ballast/error.hpp>

#include "cuda/jit/jit.hpp"

namespace ballast::cuda {

void load_all(device& on, std::span<const kernel_request> wanted) {
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> workers;
  for (unsigned w = 0; w < std::max(1u, std::thread::hardware_concurrency()); ++w) {
    workers.emplace_back([&] {
      for (std::size_t i = next++; i < wanted.size(); i = next++) {
        try {
          (void)on.load(wanted[i]);
        } catch (const error&) {  // NOLINT(bugprone-empty-catch): see the declaration
        }
      }
    });
  }
}

double seconds_of(device& on, const std::function<void()>& enqueue, stream order) {
  constexpr double k_mean = 2e-3;
  const auto first = on.make_event(true);
  const auto last = on.make_event(true);
  const auto mean = [&](int runs) {
    on.record(*first, order);
    for (int i = 0; i < runs; ++i) enqueue();
    on.record(*last, order);
    return 1e-3 * on.milliseconds(*first, *last) / runs;
  };
  (void)mean(1);
  const int runs = std::clamp(static_cast<int>(k_mean / std::max(mean(2), 1e-7)), 2, 500);
  double least = mean(runs);
  for (int round = 0; round < 2; ++round) least = std::min(least, mean(runs));
  return least;
}

std::optional<tuning_choice> fastest(device& on, std::span<const tuning_candidate> tried, double to_beat) {
  constexpr double k_worth_it = 0.995;
  std::vector<kernel_request> kernels;
  for (const tuning_candidate& each : tried) {
    kernels.push_back(each.tuned);
    kernels.insert(kernels.end(), each.others.begin(), each.others.end());
  }
  load_all(on, kernels);
  const auto architecture = runnable_architectures(on.about().major, on.about().minor).front();
  std::optional<tuning_choice> best;
  for (std::size_t i = 0; i < tried.size(); ++i) {
    try {
      // A table must not request a kernel with more register spills than it is allowed, even if that is the fastest on this device.
      if (cuda::kernels().get(tried[i].tuned, architecture).made->uses.spills > tried[i].tuned.spills) continue;
    } catch (const error&) {
      continue;
    }
    const double seconds = tried[i].seconds();
    if (seconds < (best ? best->seconds : to_beat) * k_worth_it) best = {i, seconds};
  }
  return best;
}

double noted_gain(double by_rule, double by_entry) { return std::round(1000 * by_rule / by_entry) / 1000; }

}  // namespace ballast::cuda
