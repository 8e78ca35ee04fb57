// Starts a program anew with better BLAS kernels. For the programs of Ballast: the library never does it by itself, since an OpenBLAS
// that is loaded is also the application's.
// Layer: run, over the public headers.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include <unistd.h>
#include <ballast/info.hpp>

namespace ballast::run {

// First in main(): if better_blas_kernels() names kernels, sets OPENBLAS_CORETYPE and starts the program anew with the same arguments.
// Returns if there is nothing to do, or if the program cannot be started.
inline void restart_with_better_blas_kernels(char** argv) {
  const std::string wanted = better_blas_kernels();
  if (wanted.empty()) return;
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  // A program that was handed to the loader by name runs as the loader.
  if (none || program.filename().string().starts_with("ld-")) return;
  if (setenv("OPENBLAS_CORETYPE", wanted.c_str(), 1) != 0) return;
  execv(program.c_str(), argv);
  unsetenv("OPENBLAS_CORETYPE");  // the program was not started
}

}  // namespace ballast::run
