// The inputs of every stage of ballast-gpu-check: its settings and its time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/types.hpp>

#include "../../bench/stopwatch.hpp"

namespace ballast::gpu_check {

class time_limit {
 public:
  explicit time_limit(double seconds) : seconds_(seconds) {}
  double left() const { return seconds_ - time_.seconds(); }
  bool over() const { return left() <= 0; }

 private:
  bench::stopwatch time_;
  double seconds_;
};

// The backend that the stages run: CUDA, or another one to test the stages themselves.
inline backend tested = backend::cuda;

struct settings {
  bool quick = false;
  bool compare_pairs = false;
  std::vector<std::string> tokens = {};   // replaces the stage's own list
  std::vector<std::string> schemes = {};  // replaces the list of all schemes
  std::string architecture = {};          // architecture of the kernels, without a GPU: "sm_90a"
  std::string table = {};                 // output file of tune
  std::string bundle = {};                // output file of kernels; empty: none
  std::int64_t strikes = 20'000;          // number of strikes of strike, for each problem with protection
  std::uint64_t seed = 1;                 // which strikes of strike
  std::string only = {};                  // the algorithm that was named; distributed: kmeans or none for all
  std::string groups = {};                // groups of verify or nccl, separated by commas; empty: all. kernels: "kinds"
  std::string nccl = {};                  // the file of NCCL

  // For `kernels`: those of the stage `kinds` alone, which no other stage needs.
  bool only_kinds() const { return groups == "kinds"; }

  bool includes(std::string_view group) const {
    std::string list(1, ','), one(1, ',');
    list.append(groups).append(1, ',');
    one.append(group).append(1, ',');
    return groups.empty() || list.find(one) != std::string::npos;
  }
};

}  // namespace ballast::gpu_check
