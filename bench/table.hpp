// The table of transforms on processors beside all rivals: one row for each problem, and means of all.
// Layer: tools.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench.hpp"
#include "floors.hpp"

namespace ballast::bench {

class fft_table {
 public:
  explicit fft_table(floors least) : floors_(std::move(least)) {}
  // Adds the floor and the ratios to `row`, the measurement of a problem, and keeps it.
  void add(const subject& what, nlohmann::ordered_json& row);

  void print_head() const;
  void print_last() const;
  void print_summary() const;

 private:
  floors floors_;
  std::vector<nlohmann::ordered_json> rows_;
  std::map<std::string, std::map<std::string, int>> missing_;  // rival, reason, rows
};

}  // namespace ballast::bench
