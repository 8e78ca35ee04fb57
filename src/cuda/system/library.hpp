// Finds the shared libraries that Ballast opens at run time and links none of: the driver, NVRTC, cuFFT, cuBLAS. One order of
// places, one sentence about what was tried.
// Layer: cuda. Without the rest of it: benchmark programs compile this file alone.
#pragma once

#include <array>
#include <string>
#include <type_traits>
#include <vector>

#include <dlfcn.h>

namespace ballast::cuda {

// A library by its file names.
struct library_name {
  const char* title;                 // the name in messages: "cuFFT"
  std::array<const char*, 3> files;  // file names, best first: "libcufft.so.12"; unused entries are null
  const char* variable = "";         // environment variable with a file or folder, which is then the only place; "": no variable
  const char* package = "";          // Python package: nvidia/<package>/lib holds it; "": not a part of the toolkit
};

// The driver is installed with its kernel module, so it can only be in the loader's path.
inline constexpr library_name k_driver_library{"the NVIDIA driver", {"libcuda.so.1"}};
inline constexpr library_name k_nvrtc_library{"NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, "BALLAST_NVRTC", "cuda_nvrtc"};
inline constexpr library_name k_cufft_library{"cuFFT", {"libcufft.so.12", "libcufft.so.11", "libcufft.so"}, "BALLAST_CUFFT", "cufft"};
inline constexpr library_name k_cublas_library{
    "cuBLAS", {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}, "BALLAST_CUBLAS", "cublas"};

// Used by tests and benchmarks only, for comparison.
inline constexpr library_name k_cusolver_library{
    "cuSOLVER", {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"}, "BALLAST_CUSOLVER", "cusolver"};

// Returns the paths to try, in order. If $variable is set, only that. Otherwise the loader's path, and for libraries of the toolkit: lib64
// and lib of $CUDA_HOME, $CUDA_PATH and /usr/local/cuda, then nvidia/<package>/lib and nvidia/cu13/lib of each folder in
// $BALLAST_SITE_PACKAGES (separated by colons).
std::vector<std::string> library_paths(const library_name& wanted);

// Returns the message, for example "cuFFT was not found (libcufft.so.12, libcufft.so.11 or libcufft.so; in the loader's path, $CUDA_HOME,
// …)".
std::string not_found(const library_name& wanted);

// The result of dlopen. Never closed, because CUDA libraries have threads and exit handlers that exist until the process ends.
struct opened_library {
  void* handle = nullptr;
  std::string path = {};  // the path that was opened
  std::string why = {};   // the reason if none was opened, as a sentence; otherwise empty
};

// Opens the first path that can be opened.
opened_library open_library(const library_name& wanted);
// Opens this path only.
opened_library open_library(const std::string& path);

// Returns the file of an opened library. It can differ from the path if the library was already loaded from elsewhere. Empty if the loader
// does not report it.
std::string loaded_file(void* library);

// Sets `function` to the symbol `name` of `library`. Sets null and returns false if it does not exist.
template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  static_assert(std::is_function_v<std::remove_pointer_t<Function>>);
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace ballast::cuda
