// What this build is and what it can do on this machine.
// Layer: interface.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ballast/types.hpp>

namespace ballast {
inline namespace abi_1 {

// A place where a fault can be injected.
struct site_information {
  std::string operation;  // "fft", "kmeans" or "qr"
  std::string name;       // for instance "fft.stage"
  bool data = true;       // true: a fault here reaches the output when protection is off. false: it hits the protection itself
  std::string description;
};

// An accelerator that the driver shows.
struct device_information {
  std::string name;
  std::string compute_capability;  // "9.0"
  int multiprocessors = 0;
  std::int64_t memory = 0;  // bytes
};

// What the cuda backend finds here. Texts for the reader.
struct cuda_information {
  std::string unavailable;          // why it cannot run here, in one sentence; empty if it can
  std::string driver;               // newest CUDA version that the driver runs, "13.0"; empty without a driver
  std::string compiler;             // NVRTC: version and where it is; empty without one
  std::string without_compiler;     // why there is none; else empty
  std::string bundle;               // file of pre-built kernels; empty without one
  std::int64_t bundle_kernels = 0;  // how many it has
  std::string without_bundle;       // why there is none; else empty
  std::string cache;                // folder of compiled kernels; empty if there is none
  std::string cache_state;          // "writable", or why nothing can be kept there
};

struct library_information {
  std::string version;
  std::vector<backend> backends;  // those that can run here
  std::vector<device_information> devices;
  cuda_information cuda;
  std::string simd;           // the instruction set that the cpu backend uses here
  std::string blas;           // the BLAS behind QR, in its own words
  int threads = 0;            // the number of threads that execution::threads = 0 uses here
  bool instrumented = false;  // true in the library that can inject faults
  std::vector<site_information> sites;
  std::vector<std::string> models;  // fault models
};

BALLAST_API library_information information();

// OpenBLAS, the BLAS behind QR, picks its kernels for the processor when it is loaded. A version that is older than the processor picks
// those of SSE, a fraction as fast. What the environment variable OPENBLAS_CORETYPE must say at the program's start for better ones:
// "SkylakeX" for AVX-512, "Haswell" for AVX2. Empty where there are none, where the variable is set, which is a choice, and with another
// BLAS.
BALLAST_API std::string better_blas_kernels();

}  // namespace abi_1
}  // namespace ballast
