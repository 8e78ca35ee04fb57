// The sum on a CUDA device: operands, policy, launch, events.
// Layer: algorithm, backend cuda.
#include "skeleton/cuda.hpp"

#include <istream>
#include <string>
#include <string_view>
#include <utility>

#include "cuda/call/device_call.hpp"
#include "cuda/jit/expression.hpp"
#include "cuda/memory/device_staging.hpp"
#include "cuda/tuning/tuning_table.hpp"
#include "run/attempt.hpp"
#include "skeleton/contract.hpp"

namespace ballast::skeleton {

namespace {

// "skeleton sm_90 4096 128 1.07": use 128 threads for rows of 4096 numbers; the gain over the rule is 1.07.
struct tuned {
  using key = std::pair<int, std::int64_t>;
  using value = std::pair<int, double>;
  static constexpr std::string_view algorithm = "skeleton", built_in = "skeleton sm_90 4096 128 1.07\n";
  static void read(std::istream& words, key& at, value& chosen) {
    std::string architecture;
    if (!(words >> architecture >> at.second >> chosen.first >> chosen.second)) throw cuda::unknown_tuning("ARCHITECTURE n threads gain");
    at.first = cuda::read_architecture(architecture) / 10;
  }
};

// The tuned policy, or 256 threads.
policy policy_for(int major, std::int64_t n, bool check) {
  const auto entry = cuda::tuning_entries<tuned>::installed().find({major, n});
  return {.threads = entry ? entry->first : 256, .check = check};
}

}  // namespace

cuda::kernel_request request_of(const policy& wanted, bool instrumented) {
  const auto text =
      cuda::policy_text(wanted, "ballast::skeleton::policy").add("threads", &policy::threads).add("check", &policy::check).text();
  return {"skeleton/kernel.cuh", cuda::kernel_expression("ballast::skeleton::sum_kernel", {text}, instrumented), wanted.threads,
          shared_bytes(wanted)};
}

void sum_on_device(const work& given) {
  const std::int64_t m = given.size.m, n = given.size.n;
  const auto on = cuda::current_device();
  const bool check = given.how.protection != protection::off;
  given.seen.runs_on(on->about().name);
  cuda::device_staging operands(on, given.how.stream);
  const void* const x = operands.read(given.x, 8 * m * n);
  void* const y = operands.write(given.y, 8 * m);
  const cuda::device_call call(on, cuda::workspace_pool(on, cuda::k_ring_bytes).take(given.how.workspace, given.how.stream), given.injector,
                               given.how.stream);
  const cuda::kernel& kernel = on->load(request_of(policy_for(on->about().major, n, check), call.instrumented()));
  call.launch(kernel, m,
              arguments{static_cast<const double*>(x), static_cast<double*>(y), call.events(), n, run::repeats_of(given.how.protection)});
  given.seen.add(call.collect([](const cuda::device_event& e, cuda::event_log::entry& to) {
    to.site = "skeleton.row";
    to.index = e.index;
  }));
  if (check) given.seen.checked(static_cast<std::uint64_t>(m));
  if (!given.seen.uncorrectable()) operands.commit();
}

}  // namespace ballast::skeleton
