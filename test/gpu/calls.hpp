// Whole calls as a user makes them: by the host's clock, from the call until its results lie in device memory.
// Layer: gpu-check, for all algorithms.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ballast/report.hpp>

#include "../../bench/gpu.hpp"
#include "output.hpp"
#include "profile.hpp"
#include "samples.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {

// One way to make a call. Variants of a call take turns.
struct call_variant {
  std::string name;               // "off", "correct", or the library that is called instead
  std::function<void()> prepare;  // restores operands that the call overwrites; not timed; may be empty
  std::function<void()> run;      // makes the call
  std::string refused = {};       // why it cannot run; empty if it can
  int calls = 1;                  // that run() makes; the time is that of one
};

// execution::sampled of the variant "sampled", which makes as many calls at a time.
inline constexpr int k_sampled = 10;

// A call of a problem.
struct whole_call {
  std::string token;
  std::string call;           // "fit, 20 iterations"
  const char* type = "call";  // the type of the rows of its times
};

inline constexpr int k_call_rounds = 7;

// Times each variant: once uncounted, then up to k_call_rounds times, until `seconds` have passed. Prints a row of that type for each.
// Returns the seconds that one call of each variant takes together.
inline double time_call(const whole_call& what, std::vector<call_variant>& variants, double seconds) {
  const auto attempt = [](call_variant& each, const auto& work) {
    try {
      work();
    } catch (const std::exception& e) {
      each.refused = e.what();
    }
  };
  const time_limit limit(seconds);
  std::vector<std::vector<double>> times = in_turn(
      variants.size(), k_call_rounds, limit,
      [&](std::size_t v) {
        if (variants[v].refused.empty() && variants[v].prepare) attempt(variants[v], variants[v].prepare);
        bench::gpu::synchronize();
        return variants[v].refused.empty();
      },
      [&](std::size_t v) {
        attempt(variants[v], variants[v].run);
        bench::gpu::synchronize();
      },
      [](std::size_t) {});
  double once = 0;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    row line(what.type);
    line.add("token", what.token).add("call", what.call).add("variant", variants[v].name);
    for (double& each : times[v]) each /= variants[v].calls;
    if (!variants[v].refused.empty() || times[v].empty()) {
      line.add("refused", variants[v].refused.empty() ? "no time was left" : variants[v].refused);
    } else {
      add_milliseconds(line, times[v]).add("rounds", times[v].size());
      once += 1e-3 * median(times[v]) * variants[v].calls;
    }
    line.print();
  }
  return once;
}

// Prints what a call does on the device and what the host waits for: a row of type "call profile", and one of type "call part" for each
// part of at least a fiftieth of the call. run(): makes the call by a plan of `on`; it runs twice, and the second run counts.
template <class Run>
void profile_call(profiling_device& on, const whole_call& what, const std::string& variant, const Run& run) {
  run();
  bench::gpu::synchronize();
  (void)on.take();
  const bench::stopwatch clock;
  run();
  bench::gpu::synchronize();
  const double all = 1e3 * clock.seconds();
  const profiling_device::profile seen = on.take();
  const auto count = [](const auto& parts) {
    std::int64_t sum = 0;
    for (const auto& [name, each] : parts) sum += each.count;
    return sum;
  };
  row("call profile")
      .add("token", what.token)
      .add("call", what.call)
      .add("variant", variant)
      .add("milliseconds", all)
      .add("device", seen.device_milliseconds())
      .add("operations", count(seen.device))
      .add("host", seen.host_milliseconds())
      .add("host_calls", count(seen.host))
      .print();
  const auto print = [&](const char* place, const auto& parts) {
    for (const auto& [name, each] : parts) {
      if (each.milliseconds < all / 50) continue;
      row("call part")
          .add("token", what.token)
          .add("call", what.call)
          .add("variant", variant)
          .add("place", place)
          .add("part", name)
          .add("count", each.count)
          .add("bytes", each.bytes)
          .add("milliseconds", each.milliseconds)
          .print();
    }
  };
  print("device", seen.device);
  print("host", seen.host);
}

// Prints the time of the first call of a process, in which the library opens the device and loads or compiles the kernels.
template <class Run>
void print_first_call(const whole_call& what, const Run& run) {
  const bench::stopwatch clock;
  run();
  bench::gpu::synchronize();
  row("first call").add("token", what.token).add("call", what.call).add("milliseconds", 1e3 * clock.seconds()).print();
}

// Makes the current device one that profiles, until the scope ends.
class profiling_scope {
 public:
  profiling_scope() : device_(std::make_shared<profiling_device>(cuda::current_device())), guard_(device_) {}
  profiling_device& device() const { return *device_; }

 private:
  std::shared_ptr<profiling_device> device_;
  test::current_device_guard guard_;
};

}  // namespace ballast::gpu_check
