// Shared by the tests of the run-time compiler and its surroundings: two small kernels, and a folder for each test.
// Layer: unit tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/jit/jit.hpp"
#include "cuda/jit/nvrtc.hpp"

namespace ballast::cuda {

namespace fs = std::filesystem;

inline constexpr int k_any = std::numeric_limits<int>::max();

// Tests that compile begin with this.
#define BALLAST_NEED_NVRTC() \
  if (nvrtc::find(k_any) == nullptr) GTEST_SKIP() << nvrtc::why_not_found(k_any)

inline const kernel_request k_probe{
    .header = "cuda/device/probe.cuh", .expression = "ballast::cuda::probe_kernel<ballast::cuda::probe_policy{}>", .threads = 256};
inline const kernel_request k_doubled{
    .header = "cuda/device/probe.cuh",
    .expression = "ballast::cuda::probe_kernel<ballast::cuda::probe_policy{.threads = 128, .doubled = true}>",
    .threads = 128};

inline std::string read_all(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_all(const fs::path& file, const std::string& content) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
}

class cuda_jit : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ballast-jit-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override {
    fs::permissions(folder, fs::perms::owner_all);
    fs::remove_all(folder);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> list;
    for (const auto& each : fs::directory_iterator(folder)) list.push_back(each.path());
    return list;
  }
  kernel_cache fresh(fs::path bundle_file = {}) const { return kernel_cache({.folder = folder, .bundle = std::move(bundle_file)}); }

  fs::path folder;
};

}  // namespace ballast::cuda
