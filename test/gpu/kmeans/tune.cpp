// The tuner of K-Means on a machine that has only a compiler: `ballast tune` without the command.
#include "kmeans/cuda/tune/tune.hpp"

#include "kmeans_stages.hpp"
#include "tuned.hpp"

namespace ballast::gpu_check::clusters {

int tune(const settings& wanted, const time_limit& limit) {
  kmeans::cuda::tuning_tables tables;
  kmeans::cuda::tuned_schemes schemes;
  schemes.tiles = wanted.schemes;
  return tune_each(
      wanted, wanted.tokens.empty() ? timed_set(wanted.quick) : wanted.tokens, limit,
      [&](const std::string& token, const auto& progress) { return kmeans::cuda::tune({token}, schemes, tables, progress); },
      [&] { return tables.passes.to_text() + tables.tiles.to_text(); });
}

}  // namespace ballast::gpu_check::clusters
