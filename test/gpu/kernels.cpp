// Which kernels do the other stages need, do they compile, and does each keep to its budget? The plans run on a device that only writes
// down what it is asked to load; then everything is compiled on all cores, into the cache that the other stages find it in. Needs no GPU.
#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "cuda/driver.hpp"
#include "cuda/jit.hpp"
#include "device_problem.hpp"
#include "fft/cuda/transform.hpp"
#include "inject/injector.hpp"
#include "output.hpp"
#include "problems.hpp"
#include "simt/arch_checks.hpp"
#include "stages.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check {
namespace {

template <class T>
void use(test::recording_device& device, const fft::problem& problem, fft::direction way, protection guard, const std::string& scheme) {
  device.user = fft::to_token(problem, way) + " " + std::string(to_string(guard)) + (scheme.empty() ? "" : " " + scheme);
  const fft::geometry shape = fft::resolve(problem);
  execution how;
  how.backend = backend::cuda;
  how.protection = guard;
  how.scheme = scheme;
  const auto address = [](std::uintptr_t place) { return reinterpret_cast<void*>(place); };
  (void)execute<T>(fft::plan(problem, how), shape, way, address(std::uintptr_t{1} << 40), address(std::uintptr_t{1} << 50));
}

}  // namespace

int kernels(const settings& wanted, const time_limit& limit) {
  // The device here, or with an architecture named by --arch, or else of an H200.
  cuda::capabilities about;
  std::string architecture = wanted.architecture;
  const bool here = architecture.empty() && cuda::why_unavailable().empty();
  if (here) {
    about = cuda::current_device()->about();
  } else {
    if (architecture.empty()) architecture = "sm_90a";
    about = cuda::typical_capabilities(architecture);
  }
  const auto device = std::make_shared<test::recording_device>(about);
  cuda::override_device(device);
  int failed = 0;
  std::set<std::string> refused;
  const auto add_once = [&](const std::string& token, const std::vector<protection>& guards, const std::vector<std::string>& schemes,
                            bool in_place) {
    const fft::token parsed = fft::parse_token(token);
    for (const std::string& scheme : schemes) {
      for (const protection guard : guards) {
        if (guard == protection::off && !scheme.empty()) continue;
        for (const bool inside : {false, true}) {
          if (inside && !in_place) continue;
          try {
            const fft::problem problem = inside ? in_place_problem(parsed.problem) : parsed.problem;
            if (problem.precision == precision::f32) {
              use<float>(*device, problem, parsed.direction, guard, scheme);
            } else {
              use<double>(*device, problem, parsed.direction, guard, scheme);
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
  std::vector<fft::cuda::pairing> pairings = {fft::cuda::pairing::where_it_pays};
  if (wanted.compare_pairs)
    pairings = {fft::cuda::pairing::where_it_pays, fft::cuda::pairing::wherever_possible, fft::cuda::pairing::never};
  const auto add = [&](const std::string& token, const std::vector<protection>& guards, const std::vector<std::string>& schemes,
                       bool in_place) {
    for (const fft::cuda::pairing which : pairings) {
      fft::cuda::override_pairing(which);
      add_once(token, guards, schemes, in_place);
    }
    fft::cuda::override_pairing(fft::cuda::pairing::where_it_pays);
  };
  const std::vector<protection> both = {protection::off, protection::correct};
  std::vector<std::string> schemes = wanted.schemes.empty() ? k_other_schemes : wanted.schemes;
  std::erase(schemes, "offline");  // cuFFT's kernels, on memory that must be there
  schemes.insert(schemes.begin(), "");
  if (!wanted.tokens.empty()) {
    for (const std::string& token : wanted.tokens) add(token, both, schemes, true);
  } else if (inject::active_injector::enabled) {
    for (const std::string& token : fault_set(wanted.quick)) add(token, both, {""}, false);
    for (const timed_problem& each : benchmark_set(wanted.quick)) {
      if (each.schemes) add(each.token, {protection::correct}, {""}, false);
    }
    for (const std::string& token : scheme_set()) add(token, both, schemes, false);
  } else {
    for (const timed_problem& each : benchmark_set(wanted.quick))
      add(each.token, both, each.schemes ? schemes : std::vector<std::string>{""}, false);
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
  cuda::override_device(nullptr);
  if (wanted.tokens.empty()) {
    device->user = "instructions";
    for (const arch_checks::check& each : arch_checks::all(about.major)) (void)device->load(each.request);
  }

  struct outcome {
    std::shared_ptr<const cuda::image> made;
    std::string from, wrong;
    double seconds = 0;
  };
  const std::vector<cuda::kernel_request>& requests = device->requests;
  std::vector<outcome> outcomes(requests.size());
  std::atomic<std::size_t> next{0};
  std::atomic<int> skipped{0};
  {
    std::vector<std::jthread> team;
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
      team.emplace_back([&] {
        for (std::size_t i = next++; i < requests.size(); i = next++) {
          if (limit.over()) {
            ++skipped;
            continue;
          }
          const time_limit clock(0);
          try {
            cuda::kernel_cache& cache = cuda::kernels();
            const auto found = here ? cache.get(requests[i], about.major, about.minor, cuda::driver::available().version / 1000)
                                    : cache.get(requests[i], architecture);
            outcomes[i].made = found.made;
            outcomes[i].from = found.from == cuda::kernel_cache::origin::compiler ? "compiled" : "cached";
          } catch (const std::exception& e) {
            outcomes[i].wrong = e.what();
          }
          outcomes[i].seconds = -clock.left();
        }
      });
    }
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    outcome& one = outcomes[i];
    if (!one.made && one.wrong.empty()) continue;
    row line("kernel");
    line.add("expression", requests[i].expression).add("token", device->users[i]);
    if (one.made) {
      const cuda::nvrtc::resources& uses = one.made->uses;
      line.add("registers", uses.registers).add("spills", uses.spills).add("stack", uses.stack).add("from", one.from);
      one.wrong = cuda::over_budget(*one.made, requests[i], about);
    }
    line.add("threads", requests[i].threads).add("shared", requests[i].shared).add("seconds", one.seconds).add("pass", one.wrong.empty());
    if (!one.wrong.empty()) {
      line.add("wrong", one.wrong);
      ++failed;
    }
    line.print();
  }
  if (skipped > 0) row("skipped").add("stage", "kernels").add("cases", skipped.load()).print();
  return failed;
}

}  // namespace ballast::gpu_check
