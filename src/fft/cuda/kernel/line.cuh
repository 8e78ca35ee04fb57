// One pass over memory: each block loads a tile, transforms its lines in registers and shared memory, verifies them and stores them.
// Layer: fft/cuda kernels. Every plan is a sequence of such passes (choose_policy.cpp, schedule.cpp).
// Source: TurboFFT (PPoPP 2025) sections 3 and 4; T. Stockham, High-speed convolution and correlation, 1966; fft/thresholds.hpp.
//
// The code of a tile is a chain of base classes (line_position.cuh): line_position (threads and elements), line_factors, line_real (spectra
// of reals), line_memory (load and store), line_exchange, line_sums (checksums), line_transform, line_tile (verification and attempts).
// Shared memory, in this order (policy.hpp has the offsets): the exchange; partial sums of the checksums; one record for each line; in
// clusters the sums of the blocks and the barrier for arriving results; the prefetch buffer with its barrier.
#pragma once

#include <cstdint>
#include <type_traits>

#include "fft/cuda/kernel/line_ends.cuh"
#include "fft/cuda/kernel/line_verify.cuh"

namespace ballast::fft::cuda {

// The code of a tile.
template <line_policy P, class Injector>
using tile_of = std::conditional_t<P.begins() || P.ends(), line_ends<P, Injector>, line_tile<P, Injector>>;

template <line_policy P, class Injector>
__global__ void __launch_bounds__(P.block(), P.min_blocks) line_kernel(const __grid_constant__ line_launch<Injector> given) {
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  tile_of<P, Injector> tile(given);
  if constexpr (P.cluster > 1) {
    // The cluster barrier before the first exchange makes the initialised mbarrier visible to the other blocks. Each cluster transforms one
    // tile: several tiles were slower.
    if (threadIdx.x == 0) {
      arch::init_mbarrier(tile.arrival(), 1);
      arch::fence_mbarrier_init();
    }
    tile.select(blockIdx.x / P.cluster);
    tile.run();
    return;
  }
  if constexpr (P.staged) {
    if (threadIdx.x == 0) {
      tile.ahead().init();
      if (blockIdx.x < given.arguments.tiles) tile.request(blockIdx.x);
    }
    tile_of<P, Injector>::barrier();
  }
  // Without prefetch, each tile has its own block. Unchecked kernels keep the loop nevertheless: with it NVRTC 13.0 stays within the
  // register limit, unless the kernel begins with a product with a table.
  if constexpr (P.staged || (P.check == check_form::none && P.load_factor == factor_form::none)) {
    for (std::uint32_t at = blockIdx.x; at < given.arguments.tiles; at = tile.tile + gridDim.x) {
      tile.select(at);
      if constexpr (P.staged) {
        tile.from_buffer = true;
        tile.refills = true;
      }
      tile.run();
      if (tile.tile + gridDim.x < given.arguments.tiles) tile_of<P, Injector>::barrier();
    }
  } else {
    tile.select(blockIdx.x);
    tile.run();
  }
}

}  // namespace ballast::fft::cuda
