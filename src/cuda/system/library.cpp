// Searches for shared libraries and opens them. See library.hpp.
#include "cuda/system/library.hpp"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include <link.h>

namespace ballast::cuda {

namespace fs = std::filesystem;

namespace {

constexpr const char* k_toolkit_variables[] = {"CUDA_HOME", "CUDA_PATH"};
constexpr const char* k_toolkit = "/usr/local/cuda";
constexpr const char* k_packages_variable = "BALLAST_SITE_PACKAGES";

std::string variable(const char* name) {
  const char* value = *name == '\0' ? nullptr : std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> files_of(const library_name& wanted) {
  std::vector<std::string> files;
  for (const char* file : wanted.files) {
    if (file != nullptr) files.emplace_back(file);
  }
  return files;
}

// Returns whether the library is a part of the toolkit, and is therefore in its folders.
bool of_toolkit(const library_name& wanted) { return *wanted.package != '\0'; }

}  // namespace

std::vector<std::string> library_paths(const library_name& wanted) {
  const std::vector<std::string> files = files_of(wanted);
  std::vector<std::string> paths;
  const auto add_folder = [&](const fs::path& folder) {
    for (const std::string& file : files) paths.push_back((folder / file).string());
  };
  if (const std::string given = variable(wanted.variable); !given.empty()) {
    std::error_code ignored;
    if (fs::is_directory(given, ignored)) {
      add_folder(given);
    } else {
      paths.push_back(given);
    }
    return paths;  // a path that the user has set is the only one
  }
  paths = files;
  if (!of_toolkit(wanted)) return paths;
  std::vector<fs::path> roots;
  for (const char* name : k_toolkit_variables) {
    if (std::string root = variable(name); !root.empty()) roots.emplace_back(std::move(root));
  }
  roots.emplace_back(k_toolkit);
  for (const fs::path& root : roots) {
    for (const char* folder : {"lib64", "lib"}) add_folder(root / folder);
  }
  std::string rest = variable(k_packages_variable);
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const fs::path site = rest.substr(0, colon);
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
    for (const char* package : {wanted.package, "cu13"}) add_folder(site / "nvidia" / package / "lib");
  }
  return paths;
}

std::string not_found(const library_name& wanted) {
  const std::vector<std::string> names = files_of(wanted);
  std::string files;
  for (std::size_t i = 0; i < names.size(); ++i) files += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  const std::string given = variable(wanted.variable);
  std::string places = given.empty() ? "in the loader's path" : "in " + given + ", which is $" + wanted.variable;
  if (given.empty() && of_toolkit(wanted)) {
    for (const char* name : k_toolkit_variables) places += std::string(", $") + name;
    places += std::string(", ") + k_toolkit;
    if (!variable(k_packages_variable).empty()) places += std::string(", $") + k_packages_variable;
  }
  return std::string(wanted.title) + " was not found (" + files + "; " + places + ")";
}

opened_library open_library(const std::string& path) {
  opened_library made{dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), path, ""};
  if (made.handle != nullptr) return made;
  const char* words = dlerror();
  made.why = words == nullptr ? path + " does not open" : words;
  return made;
}

std::string loaded_file(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr) return "";
  std::error_code failure;
  const fs::path file = fs::canonical(map->l_name, failure);
  return failure ? "" : file.string();
}

opened_library open_library(const library_name& wanted) {
  std::string broken;  // the reason why an existing file does not open; it tells more than "not found"
  for (const std::string& path : library_paths(wanted)) {
    opened_library made = open_library(path);
    if (made.handle != nullptr) return made;
    std::error_code ignored;
    if (broken.empty() && fs::exists(path, ignored)) broken = made.why;
  }
  return {nullptr, "", not_found(wanted) + (broken.empty() ? "" : ": " + broken)};
}

}  // namespace ballast::cuda
