// The kernel that computes the packed centroids of the next pass.
// Layer: backend "cuda" of K-Means, device code.
#pragma once

#include "kmeans/cuda/update/update_sections.cuh"

namespace ballast::kmeans::cuda {

template <class T, update_policy P, class Injector>
__global__ void __launch_bounds__(P.threads)
    update_kernel(const __grid_constant__ ballast::cuda::kernel_launch<update_arguments<T>, Injector> given) {
  update<T, P, Injector> all(given);
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  all.run();
}

}  // namespace ballast::kmeans::cuda
