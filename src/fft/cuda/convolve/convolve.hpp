// Convolution of an array, cut into blocks, on a device: padding, transforms, products, sums of blocks and checks.
// Layer: backend "cuda"; the launches of convolve.cuh.
#pragma once

#include <cstddef>
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

// A convolution of dense arrays, slowest axis first. Throws out_of_memory_error.
struct convolution_on_device {
  struct axis {
    std::int64_t signal = 1, kernel = 1;        // lengths of the operand that is divided into blocks, and of the other one
    std::int64_t out_first = 0, out_count = 1;  // the results that are stored
  };
  ballast::precision precision = ballast::precision::f32;
  bool complex = false;
  bool signal_reversed = false, kernel_reversed = false;  // reversed along all axes and conjugated before
  std::vector<axis> axes;
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

std::unique_ptr<device_convolution> make_device_convolution(const convolution_on_device& what);

// The kernels for one precision, for real or complex numbers, and for so many axes.
std::vector<ballast::cuda::kernel_request> convolve_kernels(ballast::precision type, bool complex, std::size_t axes, bool instrumented);

// Divides the work into groups of blocks with at most this many elements until the next call with 0. For tests.
void override_convolution_group(std::int64_t most_elements);

}  // namespace ballast::fft::cuda
