// Convolution of a signal, cut into blocks, on a device: padding, transforms, products, sums of blocks and checks.
// Layer: backend "cuda"; the launches of convolve.cuh.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ballast/types.hpp>

#include "cuda/device/device.hpp"
#include "inject/active.hpp"
#include "run/recorder.hpp"
#include "run/settings.hpp"

namespace ballast::fft::cuda {

// A convolution in one dimension. Block b is elements b · step … (b + 1) · step − 1 of the signal, continued by zeros to `length` points.
struct block_convolution {
  ballast::precision precision = ballast::precision::f32;
  bool complex = false;
  bool signal_reversed = false, kernel_reversed = false;  // reversed and conjugated before
  std::int64_t signal = 1, kernel = 1;                    // elements
  std::int64_t length = 1, step = 1, blocks = 1;
  std::int64_t out_first = 0, out_count = 1;  // the results that are stored
  bool protect = true;
  std::string scheme;  // that the transforms take
};

class device_convolution {
 public:
  device_convolution() = default;
  device_convolution(const device_convolution&) = delete;
  device_convolution& operator=(const device_convolution&) = delete;
  virtual ~device_convolution() = default;
  // Operands in memory of the host are copied to the device and back. Waits. Thread-safe.
  virtual void run(const void* signal, const void* kernel, void* out, const run::settings& how, run::recorder& seen,
                   inject::active_injector& injector) const = 0;
};

std::unique_ptr<device_convolution> make_device_convolution(const block_convolution& what);

// The kernels for one precision and for real or complex numbers.
std::vector<ballast::cuda::kernel_request> convolve_kernels(ballast::precision type, bool complex, bool instrumented);

// Divides the work into groups of blocks with at most this many elements until the next call with 0. For tests.
void override_convolution_group(std::int64_t most_elements);

}  // namespace ballast::fft::cuda
