// The stage `tune` of an algorithm: one problem after the other, with rows of type "tuned", and the current table after each.
// Layer: gpu-check, for all algorithms.
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <ballast/error.hpp>

#include "cuda/tuning/tuner.hpp"
#include "output.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {

// tune(token, progress) returns its results, table() the text of the current table. Returns the number of refused problems.
template <class Tune, class Table>
int tune_each(const settings& wanted, const std::vector<std::string>& tokens, const time_limit& limit, const Tune& tune,
              const Table& table) {
  int failed = 0, skipped = 0;
  for (const std::string& token : tokens) {
    if (limit.over()) {
      ++skipped;
      continue;
    }
    try {
      for (const cuda::tuning_result& each : tune(token, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); })) {
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
    // Write the table after every problem, so that a time limit does not lose results.
    if (wanted.table.empty()) continue;
    std::FILE* const file = std::fopen(wanted.table.c_str(), "w");
    const std::string text = table();
    const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if ((file != nullptr && std::fclose(file) != 0) || !written) throw error(wanted.table + ": cannot be written");
  }
  if (skipped > 0) row("skipped").add("stage", "tune").add("cases", skipped).print();
  return failed;
}

}  // namespace ballast::gpu_check
