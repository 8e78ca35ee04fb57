// Files of this user and of the installation: the cache of kernels, the bundle, the program that compiles behind callers.
// Layer: foundation.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>

namespace ballast::cuda {

// $BALLAST_CACHE_DIR, else $XDG_CACHE_HOME/ballast, else ~/.cache/ballast; empty if none of them is set.
std::filesystem::path default_cache_folder();

// A file that belongs to the library, or why there is none to use: one of them is empty.
struct installed_file {
  std::filesystem::path file = {};
  std::string why_not = {};
};

// The first of `places` (relative paths) in the installation or build tree that `own` lies in, a library or program in lib/,
// lib/<machine>/, bin/ or libexec/ballast/. What is in these files is run, so whoever can write the file or its folder must be this user,
// root, or somebody who can write `own` and its folder, which is run already.
installed_file find_installed(const std::filesystem::path& own, std::initializer_list<const char*> places);

// share/ballast/kernels.bundle of the tree that this code lies in.
installed_file bundle_file();

// ballast-compile (compile_main.cpp) of that tree.
installed_file helper_file();

}  // namespace ballast::cuda
