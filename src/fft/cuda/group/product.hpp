// The products with roots of unity between the two steps of a transform of one dimension, in device memory.
// Layer: backend "cuda"; the launches of product.cuh's kernel.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/device/device.hpp"
#include "cuda/memory/shared_state.hpp"
#include "fft/cuda/group/product_arguments.hpp"

namespace ballast::fft::cuda {

// Two tables of roots of unity that give every w^k, k < n, for w = e^{−2πi / n}, in device memory.
struct root_tables {
  std::shared_ptr<const ballast::cuda::device_table> coarse, fine;
  int shift = 0;
};

// Returns the tables of n; another `copy` number lies in other memory. share = false: makes new ones, since one of those may be damaged.
root_tables roots_of(const std::shared_ptr<ballast::cuda::device>& on, std::int64_t n, int copy, bool share);

// Rows × columns elements without gaps that are multiplied by w^{row · column}.
struct product_part {
  std::int64_t rows = 0, columns = 0, first_row = 0, first_column = 0;
};

// Launches on one device, of complex numbers of 8 or 16 bytes.
class product_kernels {
 public:
  product_kernels(std::shared_ptr<ballast::cuda::device> on, int element_bytes);
  // to = from · w^{row · column}, or by the conjugate. Enqueues.
  void multiply(const void* from, void* to, const product_part& part, const root_tables& by, bool conjugate,
                ballast::cuda::stream on) const;
  // Adds to *wrong, in device memory, how many elements of `to` have other bits than that product. Enqueues.
  void check(const void* from, const void* to, const product_part& part, const root_tables& by, bool conjugate, unsigned long long* wrong,
             ballast::cuda::stream on) const;

 private:
  void launch(const ballast::cuda::kernel& which, const product_arguments& given, ballast::cuda::stream on) const;
  std::shared_ptr<ballast::cuda::device> device_;
  const ballast::cuda::kernel *multiply_ = nullptr, *check_ = nullptr;
};

ballast::cuda::kernel_request product_request(int element_bytes, bool check);

}  // namespace ballast::fft::cuda
