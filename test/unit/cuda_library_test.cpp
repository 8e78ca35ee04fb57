// The places where libraries are looked for, and the message if none is there.
#include "cuda/system/library.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast::cuda {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr library_name k_absent{"Absent", {"libballast_absent.so.2", "libballast_absent.so.1"}, "BALLAST_TEST_LIBRARY", "absent"};

// The environment, put back at the end.
class cuda_library : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"CUDA_HOME", "CUDA_PATH", "BALLAST_SITE_PACKAGES", "BALLAST_TEST_LIBRARY"}) {
      const char* value = std::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(cuda_library, is_looked_for_in_one_order) {
  setenv("CUDA_HOME", "/home", 1);
  setenv("BALLAST_SITE_PACKAGES", "/one:/two", 1);
  const auto paths = library_paths(k_absent);
  ASSERT_EQ(paths.size(), 2 * (1 + 2 * 2 + 2 * 2));
  EXPECT_EQ(paths[0], "libballast_absent.so.2");
  EXPECT_EQ(paths[1], "libballast_absent.so.1");
  EXPECT_EQ(paths[2], "/home/lib64/libballast_absent.so.2");
  EXPECT_EQ(paths[4], "/home/lib/libballast_absent.so.2");
  EXPECT_EQ(paths[6], "/usr/local/cuda/lib64/libballast_absent.so.2");
  EXPECT_EQ(paths[10], "/one/nvidia/absent/lib/libballast_absent.so.2");
  EXPECT_EQ(paths[12], "/one/nvidia/cu13/lib/libballast_absent.so.2");
  EXPECT_EQ(paths[14], "/two/nvidia/absent/lib/libballast_absent.so.2");
}

TEST_F(cuda_library, of_the_driver_is_in_the_loaders_path_or_nowhere) {
  EXPECT_THAT(library_paths(k_driver_library), ElementsAre("libcuda.so.1"));
}

TEST_F(cuda_library, that_is_named_is_the_only_one) {
  setenv("BALLAST_TEST_LIBRARY", "/somewhere/mine.so", 1);
  EXPECT_THAT(library_paths(k_absent), ElementsAre("/somewhere/mine.so"));
  EXPECT_EQ(
      open_library(k_absent).why,
      "Absent was not found (libballast_absent.so.2 or libballast_absent.so.1; in /somewhere/mine.so, which is $BALLAST_TEST_LIBRARY)");
  setenv("BALLAST_TEST_LIBRARY", "/tmp", 1);
  EXPECT_THAT(library_paths(k_absent), ElementsAre("/tmp/libballast_absent.so.2", "/tmp/libballast_absent.so.1"));
}

TEST_F(cuda_library, that_is_absent_is_a_sentence) {
  const opened_library got = open_library(k_absent);
  EXPECT_EQ(got.handle, nullptr);
  EXPECT_EQ(got.why,
            "Absent was not found (libballast_absent.so.2 or libballast_absent.so.1; in the loader's path, $CUDA_HOME, $CUDA_PATH, "
            "/usr/local/cuda)");
  EXPECT_EQ(open_library(k_driver_library).why.empty(), open_library(k_driver_library).handle != nullptr);
}

TEST_F(cuda_library, that_is_there_and_does_not_open_says_why) {
  std::string pattern = (fs::temp_directory_path() / "ballast-library-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const fs::path file = fs::path(pattern) / "libballast_absent.so.1";
  std::ofstream(file) << "no library at all";
  setenv("BALLAST_TEST_LIBRARY", pattern.c_str(), 1);
  EXPECT_THAT(open_library(k_absent).why, HasSubstr(file.string() + ": "));
  fs::remove_all(pattern);
}

TEST_F(cuda_library, gives_functions_by_name) {
  void* self = dlopen(nullptr, RTLD_NOW);
  std::size_t (*length)(const char*) = nullptr;
  ASSERT_TRUE(find_function(self, "strlen", length));
  EXPECT_EQ(length("four"), 4u);
  EXPECT_FALSE(find_function(self, "no_such_function", length));
  EXPECT_EQ(length, nullptr);
  dlclose(self);
}

}  // namespace
}  // namespace ballast::cuda
