// The problems that the cuda backend is tuned and measured with, and the kernels that they need.
// Layer: fft/cuda. For `ballast tune`, and for the bundle and the check of kernels that are made at build time without a GPU.
#pragma once

#include <string>
#include <vector>

#include "cuda/device/device.hpp"

namespace ballast::fft::cuda {

// Tokens of what `ballast tune` measures if it is not told: every length of one pass that is a power of two, longer ones whose passes are
// other lines, and the usual mixed lengths; 2^24 points each.
std::vector<std::string> tuned_problems();

// Tokens of the benchmark set: what gpu-check times and docs/benchmarks/h200-fft.md shows.
std::vector<std::string> benchmark_problems();

// What the bundle holds: the kernels of common transforms on such a device, unprotected and protected. Each once.
std::vector<ballast::cuda::kernel_request> common_kernels(const ballast::cuda::capabilities& device);

// What is checked for registers and spills: these, those of the benchmark set, and a kernel for every entry of the tuning table
// that such a device can run, whatever architecture it was found on: one of another architecture, which nothing uses here, with a third
// fewer blocks. Each once.
std::vector<ballast::cuda::kernel_request> checked_kernels(const ballast::cuda::capabilities& device);

}  // namespace ballast::fft::cuda
