// Runs a kernel on the emulator: grids of blocks, and clusters of blocks, of threads that are fibers.
// Layer: test emulator.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "core/function_ref.hpp"
#include "simt/simt.hpp"

namespace simt {

// What a kernel did that CUDA does not allow, with the thread, its block and the place. Thrown out of launch.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct options {
  std::uint64_t seed = 1;  // order of blocks, warps and lanes, moments of asynchronous copies
  // Blocks that may be alive at the same time. More than one cluster is started only when threads poll memory (arch::spin_wait,
  // arch::load_acquire) in vain, which is when it makes a difference to whether the kernel ends. 0: one cluster.
  std::int64_t resident_blocks = 0;
  std::int64_t alive_from_start = 0;  // blocks that are alive together from the start, so that they interleave. 0: one cluster
  int multiprocessors = 4;            // what arch::multiprocessor_id counts up to
};

// Calls kernel() in each of grid × block threads. `cluster` blocks, neighbours in x, share their shared memory; `shared_bytes` is the
// dynamic shared memory of a block, filled with a pattern (NaN as float and as double) before each block.
// Blocks start in a random order, which CUDA leaves open: a kernel must not count on lower blocks being there first.
// Throws error, or what the kernel throws; the other threads are unwound. Device functions must not be noexcept where they wait.
// From several host threads: one launch runs after the other. Not from within a kernel.
void launch(dim3 grid, dim3 block, int cluster, std::int64_t shared_bytes, const options& how, ballast::core::function_ref<void()> kernel);

// What uninitialised shared memory reads as: a NaN as float and as double.
inline constexpr std::uint32_t k_poison = 0x7ff4a5a5u;

}  // namespace simt
