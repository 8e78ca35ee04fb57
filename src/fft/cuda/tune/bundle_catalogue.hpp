// The problems for tuning and benchmarks of the cuda backend, and the kernels that they need.
// Layer: fft/cuda. For `ballast tune`, and for the bundle and the check of kernels that are built without a GPU.
#pragma once

#include <string>
#include <vector>

#include "cuda/device/device.hpp"

namespace ballast::fft::cuda {

// Returns the tokens that `ballast tune` measures by default: every length of one pass that is a power of two, longer ones whose passes are
// other lines, and the usual mixed lengths; 2^24 points each.
std::vector<std::string> tuned_problems();

// Returns the tokens of the benchmark set, which gpu-check times and docs/benchmarks/h200-fft.md shows.
std::vector<std::string> benchmark_problems();

// Returns the contents of the bundle: the kernels of common transforms on such a device, unprotected and protected. Without duplicates.
std::vector<ballast::cuda::kernel_request> common_kernels(const ballast::cuda::capabilities& device);

// Returns the kernels that are checked for registers and spills: those of the bundle and of the benchmark set, and a kernel for every entry
// of the tuning table that such a device can run, regardless of the architecture it was measured on. An entry of another architecture,
// which no plan uses here, gets a third fewer blocks. Without duplicates.
std::vector<ballast::cuda::kernel_request> checked_kernels(const ballast::cuda::capabilities& device);

}  // namespace ballast::fft::cuda
