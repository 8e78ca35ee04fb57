// The facts that `ballast info` prints.
#include <ballast/info.hpp>

#include <algorithm>
#include <limits>

#include <hwy/targets.h>

#include "core/blas.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/device/residence.hpp"
#include "cuda/jit/jit.hpp"
#include "cuda/jit/nvrtc.hpp"
#include "cuda/runtime/runtime.hpp"
#include "cuda/system/installation.hpp"
#include "inject/injector.hpp"
#include "inject/sites.hpp"
#include "run/dispatch.hpp"

namespace ballast {
inline namespace abi_1 {

namespace {

cuda_information cuda_here() {
  cuda_information made;
  made.unavailable = cuda::why_unavailable();
  const int driver = cuda::driver::available().version;
  if (driver != 0) made.driver = fmt::format("{}.{}", driver / 1000, driver % 1000 / 10);
  const int newest = driver != 0 ? driver / 1000 : std::numeric_limits<int>::max();
  if (const cuda::nvrtc::compiler* found = cuda::nvrtc::find(newest); found != nullptr)
    made.compiler = fmt::format("{}.{} ({})", found->major(), found->minor(), found->path());
  else
    made.without_compiler = cuda::nvrtc::why_not_found(newest);
  const cuda::kernel_cache& kernels = cuda::kernels();
  made.bundle = kernels.bundled().file().string();
  made.bundle_kernels = static_cast<std::int64_t>(kernels.bundled().size());
  if (made.bundle.empty()) made.without_bundle = cuda::bundle_file().why_not;
  made.cache = kernels.folder().string();
  made.cache_state = kernels.folder_state();
  return made;
}

}  // namespace

residence residence_of(const void* memory) noexcept {
  switch (cuda::residence_of(memory)) {
    case cuda::residence::managed: return residence::managed;
    case cuda::residence::device: return residence::device;
    case cuda::residence::host: break;
  }
  return residence::host;
}

library_information information() {
  library_information made;
  made.version = BALLAST_VERSION_TEXT;
  made.backends = run::available_backends();
  made.cuda = cuda_here();
  for (const cuda::capabilities& each : cuda::visible_devices())
    made.devices.push_back({each.name, fmt::format("{}.{}", each.major, each.minor), each.multiprocessors, each.memory});
  // The best target that this CPU supports among those that are compiled in: the lowest bit.
  const auto usable = static_cast<std::int64_t>(hwy::SupportedTargets() & HWY_TARGETS);
  made.simd = hwy::TargetName(static_cast<std::uint32_t>(usable & -usable));
  made.blas = core::blas_name();
  made.threads = core::thread_count(0);
  made.instrumented = inject::active_injector::enabled;
  for (const inject::site_table* const table : inject::site_tables()) {
    const auto add = [&](const inject::site_row& row) {
      made.sites.push_back(
          {std::string(table->operation), std::string(row.name), row.role == inject::site_role::data, std::string(row.description)});
    };
    std::ranges::for_each(table->rows, add);
    std::ranges::for_each(inject::common_sites(), add);
  }
  for (const std::string_view name : inject::k_model_names) made.models.emplace_back(name);
  return made;
}

std::string better_blas_kernels() { return core::better_blas_kernels(); }

}  // namespace abi_1
}  // namespace ballast
