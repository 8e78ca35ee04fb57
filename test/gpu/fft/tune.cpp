// The tuner on a machine that has only a compiler: `ballast tune` without the command.
#include "fft/cuda/tune/tune.hpp"

#include "fft_stages.hpp"
#include "problems.hpp"
#include "tuned.hpp"

namespace ballast::gpu_check {

int tune(const settings& wanted, const time_limit& limit) {
  std::vector<std::string> tokens = wanted.tokens;
  if (tokens.empty()) {
    for (const timed_problem& each : benchmark_set(wanted.quick)) tokens.push_back(each.token);
  }
  fft::cuda::tuning_table table;
  return tune_each(
      wanted, tokens, limit, [&](const std::string& token, const auto& progress) { return fft::cuda::tune({token}, table, progress); },
      [&] { return table.to_text(); });
}

}  // namespace ballast::gpu_check
