// The places of the installation's and the user's files, and those that are not used because others could have written them.
#include "cuda/system/installation.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/cuda_jit_fixture.hpp"

namespace ballast::cuda {
namespace {

using testing::HasSubstr;

class cuda_installation : public cuda_jit {
 protected:
  void SetUp() override {
    cuda_jit::SetUp();
    folder = fs::canonical(folder);
    for (const char* each : {"lib", "libexec/ballast", "share/ballast"}) fs::create_directories(folder / each);
    for (const fs::path& each : {library, helper, bundle}) write_all(folder / each, "x");
    set_modes(0755, 0644);
  }
  // Sets the modes of all folders and files.
  void set_modes(mode_t of_folders, mode_t of_files) const {
    for (const fs::path& each : {library, helper, bundle}) {
      ASSERT_EQ(chmod((folder / each).c_str(), of_files), 0);
      ASSERT_EQ(chmod((folder / each).parent_path().c_str(), of_folders), 0);
    }
  }
  installed_file find(const fs::path& what) const { return find_installed(folder / library, {what.c_str()}); }

  const fs::path library = "lib/libballast.so", helper = "libexec/ballast/ballast-compile", bundle = "share/ballast/kernels.bundle";
};

TEST_F(cuda_installation, files_are_beside_the_library) {
  for (const fs::path& each : {helper, bundle}) {
    EXPECT_EQ(find(each).file, folder / each);
    EXPECT_EQ(find(each).why_not, "");
  }
  EXPECT_EQ(find("share/ballast/none").file, "");
  EXPECT_THAT(find("share/ballast/none").why_not, HasSubstr("libballast.so"));
  EXPECT_EQ(find_installed(folder / library, {"bin/none", helper.c_str()}).file, folder / helper);
}

TEST_F(cuda_installation, what_others_can_write_is_not_run) {
  for (const fs::path& each : {helper, bundle}) {
    for (const fs::path& open : {each, each.parent_path()}) {
      for (const mode_t mode : {0775, 0757}) {
        ASSERT_EQ(chmod((folder / open).c_str(), mode), 0);
        EXPECT_EQ(find(each).file, "") << open << ' ' << mode;
        EXPECT_THAT(find(each).why_not, HasSubstr((folder / open).string()));
      }
      ASSERT_EQ(chmod((folder / open).c_str(), 0755), 0);
      EXPECT_EQ(find(each).file, folder / each);
    }
  }
}

// As where a build leaves files that its group may write: who can write them can write the library as well.
TEST_F(cuda_installation, what_is_as_open_as_the_library_is_run) {
  set_modes(0775, 0664);
  for (const fs::path& each : {helper, bundle}) EXPECT_EQ(find(each).file, folder / each) << find(each).why_not;
  ASSERT_EQ(chmod((folder / helper).c_str(), 0666), 0);
  EXPECT_EQ(find(helper).file, "");
}

TEST_F(cuda_installation, owners_are_this_user_root_or_the_librarys) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  constexpr uid_t k_other = 12345;
  ASSERT_EQ(chown((folder / helper).c_str(), k_other, 0), 0);
  EXPECT_EQ(find(helper).file, "");
  ASSERT_EQ(chown((folder / library).c_str(), k_other, 0), 0);
  EXPECT_EQ(find(helper).file, folder / helper);
}

TEST_F(cuda_installation, the_build_tree_has_the_program_that_compiles) {
  EXPECT_EQ(helper_file().file.filename(), "ballast-compile") << helper_file().why_not;
}

TEST(cuda_cache_folder, comes_from_the_environment) {
  const auto with = [](const char* own, const char* caches, const char* home) {
    const auto set = [](const char* name, const char* value) { value == nullptr ? unsetenv(name) : setenv(name, value, 1); };
    set("BALLAST_CACHE_DIR", own);
    set("XDG_CACHE_HOME", caches);
    set("HOME", home);
    return default_cache_folder();
  };
  const auto kept = [](const char* name) { return std::getenv(name) == nullptr ? std::string() : std::string(std::getenv(name)); };
  const std::string own = kept("BALLAST_CACHE_DIR"), caches = kept("XDG_CACHE_HOME"), home = kept("HOME");
  EXPECT_EQ(with("/own", "/caches", "/home/a"), "/own");
  EXPECT_EQ(with(nullptr, "/caches", "/home/a"), "/caches/ballast");
  EXPECT_EQ(with("", "relative", "/home/a"), "/home/a/.cache/ballast");
  EXPECT_EQ(with(nullptr, nullptr, nullptr), "");
  with(own.empty() ? nullptr : own.c_str(), caches.empty() ? nullptr : caches.c_str(), home.empty() ? nullptr : home.c_str());
}

}  // namespace
}  // namespace ballast::cuda
