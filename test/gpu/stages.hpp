// The stages of ballast-gpu-check. Each prints rows (output.hpp) until it is done or its time is over.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ballast::gpu_check {

class time_limit {
 public:
  explicit time_limit(double seconds) : seconds_(seconds) {}
  double left() const { return seconds_ - std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  bool over() const { return left() <= 0; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double seconds_;
};

struct settings {
  bool quick = false;
  bool compare_pairs = false;
  std::vector<std::string> tokens = {};   // instead of the stage's own list
  std::vector<std::string> schemes = {};  // instead of all
  std::string architecture = {};          // of kernels, without a GPU: "sm_90a"
  std::string table = {};                 // the file that tune writes
  std::string groups = {};                // of verify, separated by commas; empty: all
};

// Rows of type "kernel": what each needs of the machine. Compiles them all into the cache. Needs no GPU.
int kernels(const settings& wanted, const time_limit& limit);

// Rows of type "tuned": what is faster than the rules of the policies. Writes the table after every problem.
int tune(const settings& wanted, const time_limit& limit);

// Rows of type "check": one for each case, with `pass`, and "skipped" for what the time did not suffice for. Returns the failed cases.
int verify(const settings& wanted, const time_limit& limit);
// A few executions of small problems in every manner, for compute-sanitizer: results are compared with the host's.
int sanitize(const settings& wanted, const time_limit& limit);

// Rows of type "time": one for each problem and variant.
int bench(const settings& wanted, const time_limit& limit);
// Rows of type "fault": what the repair of one fault costs. Only over the instrumented library.
int repairs(const settings& wanted, const time_limit& limit);
// Rows of type "cell": ballast off and protected, and cuFFT, by length and batch.
int heatmap(const settings& wanted, const time_limit& limit);

}  // namespace ballast::gpu_check
