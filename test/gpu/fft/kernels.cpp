// Records the kernels of the stages of the FFT. Their plans run on a device that only records load requests.
#include <algorithm>
#include <iterator>
#include <set>
#include <span>

#include "device_problem.hpp"
#include "fft/cuda/plan/fallback.hpp"
#include "fft/cuda/run/transform.hpp"
#include "fft_stages.hpp"
#include "inject/injector.hpp"
#include "output.hpp"
#include "problems.hpp"

namespace ballast::gpu_check {
namespace {

template <class T>
void use(test::recording_device& device, const fft::problem& problem, fft::direction way, protection guard, const std::string& scheme) {
  device.user = fft::to_token(problem, way) + " " + std::string(to_string(guard)) + (scheme.empty() ? "" : " " + scheme);
  const fft::plan plan(problem, {.backend = backend::cuda, .protection = guard, .scheme = scheme});
  const auto address = [](std::uintptr_t position) { return reinterpret_cast<void*>(position); };
  if (problem.kind == fft::kind::r2r) {
    std::size_t count = static_cast<std::size_t>(problem.batch);
    for (const std::int64_t n : problem.shape) count *= static_cast<std::size_t>(n);
    const std::span<const T> from(static_cast<const T*>(address(std::uintptr_t{1} << 40)), count);
    const std::span<T> to(static_cast<T*>(address(std::uintptr_t{1} << 50)), count);
    (void)(way == fft::direction::forward ? plan.forward(from, to) : plan.inverse(from, to));
    return;
  }
  const fft::geometry shape = fft::resolve(problem);
  (void)test::execute<T>(plan, shape, way, address(std::uintptr_t{1} << 40), address(std::uintptr_t{1} << 50));
}

}  // namespace

int record_fft(test::recording_device& device, const settings& wanted) {
  int failed = 0;
  if (wanted.tokens.empty() && !inject::active_injector::enabled) {
    device.user = "every problem's first calls";
    for (const cuda::kernel_request& each : fft::cuda::fallback_kernels()) (void)device.load(each);
  }
  std::set<std::string> refused;
  const auto add_once = [&](const std::string& token, const std::vector<protection>& guards, const std::vector<std::string>& schemes,
                            bool in_place) {
    const fft::token parsed = fft::parse_token(token);
    for (const std::string& scheme : schemes) {
      for (const protection guard : guards) {
        if (guard == protection::off && !scheme.empty()) continue;
        for (const bool inside : {false, true}) {
          if (inside && (!in_place || parsed.problem.kind == fft::kind::r2r)) continue;
          try {
            const fft::problem problem = inside ? in_place_problem(parsed.problem) : parsed.problem;
            if (problem.precision == precision::f32) {
              use<float>(device, problem, parsed.direction, guard, scheme);
            } else {
              use<double>(device, problem, parsed.direction, guard, scheme);
            }
          } catch (const unsupported_error& e) {
            if (scheme.empty()) {
              ++failed;
              row("kernel").add("token", token).add("refused", e.what()).print();
            } else if (refused.insert(scheme).second) {
              row("scheme").add("scheme", scheme).add("refused", e.what()).print();
            }
          } catch (const std::exception& e) {
            ++failed;
            row("kernel").add("token", token).add("refused", e.what()).print();
          }
        }
      }
    }
  };
  std::vector<fft::cuda::fusion> pairings = {fft::cuda::fusion::where_it_pays};
  if (wanted.compare_pairs) pairings = {fft::cuda::fusion::where_it_pays, fft::cuda::fusion::wherever_possible, fft::cuda::fusion::never};
  const auto add = [&](const std::string& token, const std::vector<protection>& guards, const std::vector<std::string>& schemes,
                       bool in_place) {
    for (const fft::cuda::fusion which : pairings) {
      fft::cuda::override_fusion(which);
      add_once(token, guards, schemes, in_place);
    }
    fft::cuda::override_fusion(fft::cuda::fusion::where_it_pays);
  };
  // Returns the default scheme and those of `more` that were asked for.
  const auto with_default = [&](const std::vector<std::string>& more) {
    std::vector<std::string> made = {""};
    std::ranges::copy_if(more, std::back_inserter(made), [&](const std::string& one) {
      return one != "offline" && (wanted.schemes.empty() || std::ranges::find(wanted.schemes, one) != wanted.schemes.end());
    });
    return made;
  };
  const std::vector<protection> both = {protection::off, protection::correct};
  std::vector<std::string> schemes = wanted.schemes.empty() ? k_other_schemes : wanted.schemes;
  std::erase(schemes, "offline");  // cuFFT's kernels would need real device memory
  schemes.insert(schemes.begin(), "");
  if (!wanted.tokens.empty()) {
    for (const std::string& token : wanted.tokens) add(token, both, schemes, true);
  } else if (inject::active_injector::enabled) {
    for (const std::string& token : fault_set(wanted.quick)) add(token, both, {""}, false);
    for (const timed_problem& each : benchmark_set(wanted.quick)) {
      if (!each.schemes.empty()) add(each.token, {protection::correct}, {""}, false);
    }
    for (const std::string& token : scheme_set()) add(token, both, schemes, false);
  } else {
    for (const timed_problem& each : benchmark_set(wanted.quick)) add(each.token, both, with_default(each.schemes), false);
    for (const std::string& token : accuracy_set(wanted.quick)) add(token, both, {""}, true);
    for (const std::string& token : fault_set(wanted.quick)) add(token, both, {""}, false);
    for (const std::string& token : scheme_set()) add(token, {protection::correct}, schemes, false);
    for (const std::string& token : sanitizer_set()) add(token, both, {""}, false);
    if (!wanted.quick) {
      for (const std::string& token : huge_set()) add(token, both, {""}, true);
    }
    for (int e = 3; e <= 25; ++e) {
      for (int b = 0; e + b <= (wanted.quick ? 24 : 28); ++b)
        add("fft_c2c_f32_n" + std::to_string(std::int64_t{1} << e) + "_b" + std::to_string(std::int64_t{1} << b) + "_fwd", both, {""},
            false);
    }
  }
  return failed;
}

}  // namespace ballast::gpu_check
