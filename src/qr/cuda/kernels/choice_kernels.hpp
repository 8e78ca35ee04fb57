// The kernels for QR with column pivoting by name.
// Layer: backend "cuda" of QR.
#pragma once

#include <complex>
#include <vector>

#include "cuda/device/device.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "qr/cuda/pivots/choice_args.hpp"

namespace ballast::qr::cuda {

// Clusters that choose pivots. The first one is for few columns, and for devices without clusters.
inline constexpr cluster_shape k_choice_clusters[] = {{1, 256}, {8, 512}, {16, 512}};
inline constexpr int k_choice_cluster_count = 3;

// S: float, double, or std::complex of one of these.
template <class S>
struct choice_names {
  using request = ballast::cuda::kernel_request;
  static request choose(int which, bool instrumented);  // `which` indexes k_choice_clusters
  static request gather();                              // from numbers of type S
  static request measure();
  // Requests for all kernels.
  static std::vector<request> all(const ballast::cuda::capabilities& on, bool instrumented);
};

}  // namespace ballast::qr::cuda
