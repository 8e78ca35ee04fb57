// The kernel of small fits: one block, or two that must agree, per fit. Enqueued: the device verifies the fits (batch_verify.cuh).
// Layer: backend "cuda" of K-Means, device code.
#pragma once

#include "kmeans/cuda/batch/batch_seeding.cuh"
#include "kmeans/cuda/batch/batch_verify.cuh"

namespace ballast::kmeans::cuda {

template <class T, bool Enqueued, class Injector>
__global__ void __launch_bounds__(k_batch_threads, 1)
    batch_kernel(const __grid_constant__ ballast::cuda::kernel_launch<batch_arguments<T>, Injector> given) {
  batch_fit<T, Enqueued, Injector>(given).run();
}

}  // namespace ballast::kmeans::cuda
