// The tuner on a machine that has only a compiler: `ballast tune` without the command.
#include <cstdio>

#include <ballast/error.hpp>

#include "device_problem.hpp"
#include "fft/cuda/tune.hpp"
#include "fft_stages.hpp"
#include "output.hpp"
#include "problems.hpp"

namespace ballast::gpu_check {

int tune(const settings& wanted, const time_limit& limit) {
  std::vector<std::string> tokens = wanted.tokens;
  if (tokens.empty()) {
    for (const timed_problem& each : benchmark_set(wanted.quick)) tokens.push_back(each.token);
  }
  fft::cuda::tuning_table table;
  int failed = 0, skipped = 0;
  for (const std::string& token : tokens) {
    if (limit.over()) {
      ++skipped;
      continue;
    }
    try {
      for (const cuda::tuning_result& each :
           fft::cuda::tune({token}, table, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); })) {
        std::string policy = each.policy;
        while (policy.ends_with('\n')) policy.pop_back();
        row("tuned")
            .add("token", each.token)
            .add("policy", policy)
            .add("seconds", each.seconds)
            .add("default_seconds", each.default_seconds)
            .print();
      }
    } catch (const std::exception& e) {
      ++failed;
      row("tuned").add("token", token).add("refused", e.what()).print();
    }
    // After every problem: what a time limit interrupts is not lost.
    if (wanted.table.empty()) continue;
    std::FILE* const file = std::fopen(wanted.table.c_str(), "w");
    const std::string text = table.to_text();
    const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if ((file != nullptr && std::fclose(file) != 0) || !written) throw error(wanted.table + ": cannot be written");
  }
  if (skipped > 0) row("skipped").add("stage", "tune").add("cases", skipped).print();
  return failed;
}

}  // namespace ballast::gpu_check
