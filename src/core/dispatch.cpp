// Choice of backend and scheme, with messages that say what there is.
#include "core/dispatch.hpp"

#include <algorithm>

#include <ballast/error.hpp>

#include "core/format.hpp"

namespace ballast::core {

std::vector<backend> available_backends() {
#if defined(BALLAST_HAS_CPU)
  return {backend::cpu, backend::reference};
#else
  return {backend::reference};
#endif
}

backend choose_backend(const execution& how, std::string_view token) {
  const auto available = available_backends();
  if (how.backend == backend::automatic) return available.front();
  if (std::ranges::find(available, how.backend) != available.end()) return how.backend;
  std::vector<std::string_view> names;
  for (const backend each : available) names.push_back(to_string(each));
  throw unsupported_error(fmt::format("{}: backend: expected one that can run here ({}), got {}; this build has no CUDA backend", token,
                                      join(names, ", "), to_string(how.backend)));
}

std::string_view choose_scheme(const execution& how, std::string_view fallback, std::initializer_list<std::string_view> known,
                               std::string_view token) {
  if (how.scheme.empty()) return fallback;
  const auto found = std::ranges::find(known, std::string_view(how.scheme));
  if (found != known.end()) return *found;
  throw unsupported_error(fmt::format("{}: scheme: expected one of {}, got {}", token, join(known, ", "), how.scheme));
}

}  // namespace ballast::core
