// `ballast qr --devices`: the command on devices of the emulator, by rows and by block columns.
// Layer: backend tests.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "command.hpp"
#include "csv.hpp"
#include "group/qr_definitions.hpp"
#include "matrices.hpp"
#include "npy.hpp"
#include "support/several_devices.hpp"

namespace ballast::qr {
namespace {

class command_on_devices : public testing::Test {
 protected:
  command_on_devices() { std::filesystem::create_directories(folder_); }
  ~command_on_devices() override { std::filesystem::remove_all(folder_); }

  // Runs `ballast qr` for a matrix and returns the JSON that it printed.
  nlohmann::json run(const matrix<double>& A, const std::vector<std::string>& options) {
    {
      std::ofstream file(folder_ / "a.npy", std::ios::binary);
      tools::write_npy(tools::array_of(A), [&](std::string_view text) { file << text; });
    }
    std::vector<std::string> words{
        "ballast", "qr", (folder_ / "a.npy").string(), "--json", "--q", (folder_ / "q.npy").string(), "--r", (folder_ / "r.npy").string()};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> arguments;
    for (std::string& each : words) arguments.push_back(each.data());
    tools::command_line program("ballast", "");
    tools::add_qr(program);
    testing::internal::CaptureStdout();
    std::optional<int> ended = program.parse(static_cast<int>(arguments.size()), arguments.data());
    if (!ended) ended = program.run();
    const std::string printed = testing::internal::GetCapturedStdout();
    EXPECT_EQ(ended, 0) << printed;
    return nlohmann::json::parse(printed);
  }
  matrix<double> made(const char* name) const {
    return tools::matrix_of<double>(tools::read_array(folder_ / name, tools::table_options{}), name);
  }

  test::several_devices three_{4, 4, 4};
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("ballast-command-" + std::to_string(getpid()));
};

// A − Q R, and QᵀQ − 1, in double.
void expect_factors(const matrix<double>& A, const matrix<double>& Q, const matrix<double>& R) {
  const std::int64_t m = A.rows(), n = A.columns(), k = std::min(m, n);
  ASSERT_EQ(Q.rows(), m);
  ASSERT_EQ(Q.columns(), k);
  ASSERT_EQ(R.rows(), k);
  ASSERT_EQ(R.columns(), n);
  double residual = 0, off = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 0; i < m; ++i) {
      double sum = -A(i, j);
      for (std::int64_t e = 0; e < k; ++e) sum += Q(i, e) * R(e, j);
      residual += sum * sum;
    }
    for (std::int64_t i = j + 1; i < k; ++i) EXPECT_EQ(R(i, j), 0);
  }
  for (std::int64_t j = 0; j < k; ++j) {
    for (std::int64_t i = 0; i < k; ++i) {
      double sum = i == j ? -1 : 0;
      for (std::int64_t e = 0; e < m; ++e) sum += Q(e, i) * Q(e, j);
      off += sum * sum;
    }
  }
  const double allowed = 4 * static_cast<double>(std::max(m, n)) * 0x1p-53;
  EXPECT_LE(std::sqrt(residual), allowed * on_groups::norm(A));
  EXPECT_LE(std::sqrt(off), allowed * std::sqrt(static_cast<double>(k)));
}

TEST_F(command_on_devices, block_columns_where_the_matrix_is_not_tall) {
  struct example {
    std::int64_t rows, columns, block;  // block: what the command chooses or is given; 0: by rows
    std::vector<std::string> options;
  };
  const example all[] = {{49, 49, 16, {"--devices", "0,1", "--block", "16"}},
                         {48, 48, 16, {"--devices", "0,1,2"}},
                         {37, 90, 10, {"--devices", "0,1", "--block", "10"}},
                         {70, 40, 20, {"--devices", "0,1"}},
                         {90, 20, 0, {"--devices", "0,1"}}};
  for (const example& each : all) {
    const std::string what = std::to_string(each.rows) + " × " + std::to_string(each.columns);
    const matrix<double> A = on_groups::random_matrix<double>(each.rows, each.columns, 1);
    const nlohmann::json seen = run(A, each.options);
    EXPECT_EQ(seen.value("block", std::int64_t{0}), each.block) << what;
    EXPECT_EQ(seen["verdict"], "clean") << what;
    EXPECT_EQ(seen["backend"], "cuda") << what;
    expect_factors(A, made("q.npy"), made("r.npy"));
  }
}

}  // namespace
}  // namespace ballast::qr
