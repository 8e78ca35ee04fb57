// The measurements of the paper (test/gpu/qr/paper.cpp), and of repairs (repairs.cpp), on the emulator: not their times, but that every
// variant is what it says.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "qr_stages.hpp"
#include "simt/emulated_device.hpp"
#include "support/qr_on_device.hpp"

namespace ballast::gpu_check::factors {
namespace {

std::vector<nlohmann::json> rows_of(const std::string& printed) {
  std::vector<nlohmann::json> made;
  for (std::size_t first = 0; first < printed.size(); first = printed.find('\n', first) + 1)
    made.push_back(nlohmann::json::parse(printed.substr(first, printed.find('\n', first) - first)));
  return made;
}

TEST(qr_paper, every_curve_and_every_overhead_is_measured) {
  ballast::cuda::capabilities about = simt::emulated_capabilities();
  about.shared_per_block = 50 << 10;  // blocks of rotations are narrower than the matrix
  const qr::subjects::device_for_a_test here(std::make_shared<simt::emulated_device>(about));
  const std::vector<std::string> tokens = {"qr_f64_m150_n150", "qr_f32_m280_n280"};
  testing::internal::CaptureStdout();
  const int failed = paper({.quick = true, .tokens = tokens}, time_limit(1e9));
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(failed, 0) << printed;
  std::map<std::tuple<std::string, std::string, std::string>, nlohmann::json> seen;
  std::map<std::string, int> overheads;
  for (const nlohmann::json& row : rows_of(printed)) {
    const std::string type = row["type"];
    if (type == "rotations" || type == "curve") {
      EXPECT_GT(row["milliseconds"], 0) << row;
      EXPECT_TRUE(row["pass"]) << row;
      seen[{row["token"], type, row["variant"]}] = row;
    } else if (type == "overhead") {
      EXPECT_EQ(row["source"], ++overheads[row["token"]]);
      EXPECT_GT(row["milliseconds"], 0) << row;
      const std::set<int> by_difference = {1, 4, 6, 7, 8};
      EXPECT_EQ(row["within"].is_number(), by_difference.count(row["source"]) == 1) << row;
    } else {
      EXPECT_EQ(type, "panels");
    }
  }
  for (const std::string& token : tokens) {
    EXPECT_EQ(overheads[token], 8);
    for (const char* variant : {"plain", "blocked"}) EXPECT_EQ(seen.count({token, "rotations", variant}), 1u);
    for (const char* variant : {"off", "R", "R and Q"}) {
      const nlohmann::json& row = seen[{token, "curve", variant}];
      EXPECT_EQ(row["corrected"], 0) << row;
      EXPECT_EQ(row["recomputed"], 0) << row;
    }
    // Repaired by the ways that the figures are of, and not by computing all again.
    for (const char* variant : {"repair in Q", "repair in R or A'", "repair in R or A', plain"}) {
      const nlohmann::json& row = seen[{token, "curve", variant}];
      EXPECT_GT(row["corrected"], 0) << row;
      EXPECT_EQ(row["recomputed"], 0) << row;
    }
  }
}

TEST(qr_repairs, are_made_in_place) {
  const qr::subjects::device_for_a_test here(std::make_shared<simt::emulated_device>());
  for (const char* token : {"qr_f64_m120_n90", "qr_f32_m100_n100"}) {
    testing::internal::CaptureStdout();
    const int failed = repairs({.quick = true, .tokens = {token}}, time_limit(1e9));
    const std::string printed = testing::internal::GetCapturedStdout();
    EXPECT_EQ(failed, 0) << printed;
    std::map<std::string, nlohmann::json> seen;
    for (const nlohmann::json& row : rows_of(printed)) {
      if (row["type"] == "repair") seen[row["variant"]] = row;
    }
    for (const char* variant : {"off", "correct", "repair in A'", "repair in V"}) {
      const nlohmann::json& row = seen[variant];
      ASSERT_TRUE(row.is_object()) << printed;
      EXPECT_GT(row["milliseconds"], 0);
      EXPECT_EQ(row["corrected"], std::string(variant).starts_with("repair") ? 1 : 0) << row;
      EXPECT_EQ(row["recomputed"], 0) << row;
    }
  }
}

}  // namespace
}  // namespace ballast::gpu_check::factors
