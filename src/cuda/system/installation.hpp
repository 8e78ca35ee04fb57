// Finds files of the user and of the installation: the kernel cache, the bundle, and the program that compiles in the background.
// Layer: foundation.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>

namespace ballast::cuda {

// Returns $BALLAST_CACHE_DIR, or else $XDG_CACHE_HOME/ballast, or else ~/.cache/ballast; empty if none of these variables is set.
std::filesystem::path default_cache_folder();

// A file of the installation, or the reason why it cannot be used: one of the two is empty.
struct installed_file {
  std::filesystem::path file = {};
  std::string why_not = {};
};

// Returns the first of `places` (relative paths) that exists in the installation or build tree of `own`, a library or program in lib/,
// lib/<machine>/, bin/ or libexec/ballast/. The content of these files is executed. So only this user, root, and users who can also write
// `own` and its folder may have write permission for the file or its folder.
installed_file find_installed(const std::filesystem::path& own, std::initializer_list<const char*> places);

// Returns share/ballast/kernels.bundle of the tree that contains this code.
installed_file bundle_file();

// Returns ballast-compile (jit/compile_main.cpp) of that tree.
installed_file helper_file();

}  // namespace ballast::cuda
