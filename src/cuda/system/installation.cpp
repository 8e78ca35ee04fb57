// See installation.hpp.
#include "cuda/system/installation.hpp"

#include <cstdlib>
#include <system_error>
#include <utility>

#include <dlfcn.h>

#include "core/format.hpp"
#include "cuda/system/private_folder.hpp"

namespace ballast::cuda {

namespace fs = std::filesystem;

fs::path default_cache_folder() {
  const auto variable = [](const char* name) -> fs::path {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (fs::path own = variable("BALLAST_CACHE_DIR"); !own.empty()) return own;
  if (const fs::path caches = variable("XDG_CACHE_HOME"); caches.is_absolute()) return caches / "ballast";
  if (const fs::path home = variable("HOME"); home.is_absolute()) return home / ".cache" / "ballast";
  return {};
}

installed_file find_installed(const fs::path& own, std::initializer_list<const char*> places) {
  std::string refused;
  fs::path root = own.parent_path();
  for (int up = 0; up < 2; ++up) {
    root = root.parent_path();
    for (const char* const each : places) {
      std::error_code failure;
      fs::path file = fs::canonical(root / each, failure);
      if (failure || !fs::is_regular_file(file, failure)) continue;
      std::string why = why_not_as_private(file, own);
      if (why.empty()) return {std::move(file), ""};
      if (refused.empty()) refused = std::move(why);
    }
  }
  return {{}, refused.empty() ? fmt::format("{} has none beside it", own.string()) : std::move(refused)};
}

namespace {

installed_file find_own(std::initializer_list<const char*> places) {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&default_cache_folder), &here) == 0 || here.dli_fname == nullptr)
    return {{}, "the library does not know where it lies"};
  std::error_code failure;
  fs::path self = fs::canonical(here.dli_fname, failure);
  // dladdr reports only the bare name of a program that was started through PATH.
  if (failure) self = fs::canonical("/proc/self/exe", failure);
  if (failure) return {{}, fmt::format("{}: {}", here.dli_fname, failure.message())};
  return find_installed(self, places);
}

}  // namespace

installed_file bundle_file() { return find_own({"share/ballast/kernels.bundle"}); }

installed_file helper_file() { return find_own({"libexec/ballast/ballast-compile", "bin/ballast-compile"}); }

}  // namespace ballast::cuda
