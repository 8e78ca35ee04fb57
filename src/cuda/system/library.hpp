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
  const char* title;                 // in messages: "cuFFT"
  std::array<const char*, 3> files;  // the best first: "libcufft.so.12"; null: fewer
  const char* variable = "";         // of the environment: a file or a folder, which is then the only place; "": there is none
  const char* package = "";          // of Python: nvidia/<package>/lib holds it; "": it is not a part of the toolkit
};

// The driver comes with the kernel's module, so it is in the loader's path or nowhere.
inline constexpr library_name k_driver_library{"the NVIDIA driver", {"libcuda.so.1"}};
inline constexpr library_name k_nvrtc_library{"NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, "BALLAST_NVRTC", "cuda_nvrtc"};
inline constexpr library_name k_cufft_library{"cuFFT", {"libcufft.so.12", "libcufft.so.11", "libcufft.so"}, "BALLAST_CUFFT", "cufft"};
inline constexpr library_name k_cublas_library{
    "cuBLAS", {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}, "BALLAST_CUBLAS", "cublas"};

// A rival of tests and benchmarks.
inline constexpr library_name k_cusolver_library{
    "cuSOLVER", {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"}, "BALLAST_CUSOLVER", "cusolver"};

// What may be opened, in this order: $variable alone if it is set; the loader's path; for libraries of the toolkit lib64 and lib of
// $CUDA_HOME, $CUDA_PATH and /usr/local/cuda, and nvidia/<package>/lib and nvidia/cu13/lib of each folder in $BALLAST_SITE_PACKAGES
// (separated by colons).
std::vector<std::string> library_paths(const library_name& wanted);

// "cuFFT was not found (libcufft.so.12, libcufft.so.11 or libcufft.so; in $BALLAST_CUFFT, the loader's path, …)"
std::string not_found(const library_name& wanted);

// What dlopen gave. Never closed: libraries of CUDA have threads and exit handlers that live as long as the process.
struct opened_library {
  void* handle = nullptr;
  std::string path = {};  // that was opened
  std::string why = {};   // nothing was, as a sentence; else empty
};

// The first path that opens.
opened_library open_library(const library_name& wanted);
// This path alone.
opened_library open_library(const std::string& path);

// The file that an opened library lies in: the loader may have had it already, from elsewhere than the path says. Empty if it does not
// tell.
std::string loaded_file(void* library);

// Sets `function` to the one that `library` exports under `name`; null and false if it has none.
template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  static_assert(std::is_function_v<std::remove_pointer_t<Function>>);
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace ballast::cuda
