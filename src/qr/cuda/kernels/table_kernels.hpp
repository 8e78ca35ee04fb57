// The kernels that calls for one matrix load together.
// Layer: backend "cuda" of QR.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/device/device.hpp"
#include "qr/cuda/kernels/batch_kernels.hpp"
#include "qr/cuda/kernels/kernels.hpp"

namespace ballast::qr::cuda {

struct table_kernels {
  std::vector<ballast::cuda::kernel_request> wanted;
  std::size_t own = 0;                                            // so many of kernel_names come first
  std::array<std::optional<std::size_t>, k_real_policies> small;  // the place of the kernel that factors a matrix by one block, by policy
};

template <class S>
table_kernels table_kernels_of(const ballast::cuda::capabilities& on, bool instrumented) {
  table_kernels made;
  made.wanted = kernel_names<S>::all(on, instrumented);
  made.own = made.wanted.size();
  if constexpr (!is_complex<S>) {
    for (int which = 0; which < k_real_policies; ++which) {
      ballast::cuda::kernel_request each = batch_kernel<S>(batch_work::factor, which, false);
      if (each.cluster > 1 || each.shared > on.shared_per_block) continue;
      made.small[static_cast<std::size_t>(which)] = made.wanted.size();
      made.wanted.push_back(std::move(each));
    }
  }
  return made;
}

}  // namespace ballast::qr::cuda
