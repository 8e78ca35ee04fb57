// What `ballast info` says.
#include <ballast/info.hpp>

#include <hwy/targets.h>

#include "core/blas.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "inject/injector.hpp"

namespace ballast {

library_information information() {
  library_information made;
  made.version = BALLAST_VERSION;
  made.backends = core::available_backends();
  // The best target that this CPU supports among those that are compiled in: the lowest bit.
  const auto usable = static_cast<std::int64_t>(hwy::SupportedTargets() & HWY_TARGETS);
  made.simd = hwy::TargetName(static_cast<std::uint32_t>(usable & -usable));
  made.blas = core::blas_name();
  made.threads = core::thread_count(0);
  made.instrumented = inject::active_injector::enabled;
  for (const char* operation : {"fft", "kmeans", "qr"}) {
    for (const inject::site_row& row : inject::k_sites) {
      if (!row.operation.empty() && row.operation != operation) continue;  // "": a site of every operation
      made.sites.push_back({operation, std::string(row.name), row.role == inject::site_role::data, std::string(row.description)});
    }
  }
  for (const std::string_view name : inject::k_model_names) made.models.emplace_back(name);
  return made;
}

}  // namespace ballast
