// Description of this build and of its abilities on this machine.
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

// The findings of the cuda backend on this machine, as texts for a reader.
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

// The library, this build and this machine.
struct library_information {
  std::string version;
  std::vector<backend> backends;  // those that can run here
  std::vector<device_information> devices;
  cuda_information cuda;
  std::string simd;           // the instruction set that the cpu backend uses here
  std::string blas;           // the BLAS that QR uses, in its own words
  int threads = 0;            // the number of threads that execution::threads = 0 uses here
  bool instrumented = false;  // true in the library that can inject faults
  std::vector<site_information> sites;
  std::vector<std::string> models;  // fault models
};

// The place of memory. host: ordinary or page-locked host memory. managed: the host and devices can read it. device: only devices can.
enum class residence : std::uint8_t { host, managed, device };

// Returns where memory lies, without starting the CUDA driver: a process that did not load it has only host memory.
BALLAST_API residence residence_of(const void* memory) noexcept;

// Looks at the machine: the first call starts the CUDA driver if there is one.
BALLAST_API library_information information();

// The value of the environment variable OPENBLAS_CORETYPE that gives better BLAS kernels on this processor: "SkylakeX" for AVX-512,
// "Haswell" for AVX2. OpenBLAS chooses its kernels when it is loaded; a version that is older than the processor chooses those of SSE, a
// fraction as fast. Empty if OpenBLAS has no better ones, if the variable is set, or if another BLAS is linked. The variable must be set
// before the program starts.
BALLAST_API std::string better_blas_kernels();

}  // namespace abi_1
}  // namespace ballast
