// Choice of backend and scheme, with messages that say what there is.
#include "run/dispatch.hpp"

#include <algorithm>
#include <string>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/device/device.hpp"

namespace ballast::run {

namespace {

// With `cuda` false the driver is not loaded: its start takes some 0.3 s.
std::vector<backend> available(bool cuda) {
  std::vector<backend> list;
  if (cuda && cuda::why_unavailable().empty()) list.push_back(backend::cuda);
#if defined(BALLAST_HAS_CPU)
  list.push_back(backend::cpu);
#endif
  list.push_back(backend::reference);
  return list;
}

}  // namespace

backend host_backend() noexcept {
#if defined(BALLAST_HAS_CPU)
  return backend::cpu;
#else
  return backend::reference;
#endif
}

std::vector<backend> available_backends() { return available(true); }

backend choose_backend(const settings& how, std::string_view token) {
  if (how.group)
    throw unsupported_error(fmt::format("{}: group: expected a plan whose calls can be divided among ranks, got another one", token));
  const auto list = available(how.backend == backend::automatic || how.backend == backend::cuda);
  if (how.backend == backend::automatic) return list.front();
  if (std::ranges::find(list, how.backend) != list.end()) return how.backend;
  std::vector<std::string_view> names;
  for (const backend each : list) names.push_back(to_string(each));
  const std::string why = how.backend == backend::cuda ? "; " + cuda::why_unavailable() : "";
  throw unsupported_error(fmt::format("{}: backend: expected one that can run here ({}), got {}{}", token, core::join(names, ", "),
                                      to_string(how.backend), why));
}

// docs/benchmarks/cpu.md, protected, two threads: 60 GFLOP/s (f32) and 30 (f64) for powers of two, 23 where the length is a large prime.
double flops_per_second(precision type) noexcept { return type == precision::f32 ? 25e9 : 12e9; }

namespace {

// The seconds by which the device answers first.
double seconds_won(const host_call& what) noexcept {
  // 1024 x 16384 points, f32, c2c, from pageable memory and back: 268 MB in 30 ms on an H100 host.
  constexpr double copied_per_second = 9e9;
  return what.flops / (what.threads * flops_per_second(what.precision)) - (what.bytes / copied_per_second + what.latency);
}

}  // namespace

bool copying_takes_longer(const host_call& what) noexcept { return seconds_won(what) < 0; }

bool host_answers_first(const host_call& what, core::function_ref<double(bool)> compilation) {
  constexpr double k_calls = 10;
  constexpr double k_longest_compilation = 600;
  const double won = k_calls * seconds_won(what);
  if (won < 0) return true;
  if (won >= k_longest_compilation || won >= compilation(false)) return false;
  (void)compilation(true);
  return true;
}

std::string_view choose_scheme(const settings& how, std::string_view fallback, const std::vector<std::string_view>& known,
                               std::string_view token) {
  if (how.scheme.empty()) return fallback;
  const auto found = std::ranges::find(known, std::string_view(how.scheme));
  if (found != known.end()) return *found;
  throw unsupported_error(fmt::format("{}: scheme: expected one of {}, got {}", token, core::join(known, ", "), how.scheme));
}

void check_use(std::string_view scheme, scheme_use use, bool protect) {
  if (protect && use == scheme_use::unprotected)
    throw unsupported_error(fmt::format("scheme {}: it has no protection; expected protection off", scheme));
  if (!protect && use == scheme_use::protected_only)
    throw unsupported_error(fmt::format("scheme {}: it is nothing without protection; expected protection detect or correct", scheme));
}

}  // namespace ballast::run
