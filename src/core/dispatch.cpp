// Choice of backend and scheme, with messages that say what there is.
#include "core/dispatch.hpp"

#include <algorithm>
#include <string>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/device.hpp"

namespace ballast::core {

std::vector<backend> available_backends() {
  std::vector<backend> list;
  if (cuda::why_unavailable().empty()) list.push_back(backend::cuda);
#if defined(BALLAST_HAS_CPU)
  list.push_back(backend::cpu);
#endif
  list.push_back(backend::reference);
  return list;
}

backend choose_backend(const execution& how, std::string_view token, std::string_view without_cuda) {
  auto available = available_backends();
  if (!without_cuda.empty()) std::erase(available, backend::cuda);
  if (how.backend == backend::automatic) return available.front();
  if (std::ranges::find(available, how.backend) != available.end()) return how.backend;
  std::vector<std::string_view> names;
  for (const backend each : available) names.push_back(to_string(each));
  std::string why;
  if (how.backend == backend::cuda)
    why = "; " + (without_cuda.empty() ? cuda::why_unavailable() : fmt::format("{} has no CUDA backend", without_cuda));
  throw unsupported_error(
      fmt::format("{}: backend: expected one that can run here ({}), got {}{}", token, join(names, ", "), to_string(how.backend), why));
}

std::string_view choose_scheme(const execution& how, std::string_view fallback, std::initializer_list<std::string_view> known,
                               std::string_view token) {
  if (how.scheme.empty()) return fallback;
  const auto found = std::ranges::find(known, std::string_view(how.scheme));
  if (found != known.end()) return *found;
  throw unsupported_error(fmt::format("{}: scheme: expected one of {}, got {}", token, join(known, ", "), how.scheme));
}

}  // namespace ballast::core
