// Runs a kernel on the emulator: grids and clusters of blocks, whose threads are fibers.
// Layer: test emulator.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "core/function_ref.hpp"
#include "simt/simt.hpp"

namespace simt {

// An operation of a kernel that CUDA does not allow; the message names the thread, its block and the place. launch() throws it.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct options {
  std::uint64_t seed = 1;  // determines the order of blocks, warps and lanes, and the moments of asynchronous copies
  // The number of blocks that may be alive at the same time. A further cluster starts only while threads poll memory (arch::spin_wait,
  // arch::load_acquire) without success, because only then does it decide whether the kernel ends. 0: one cluster.
  std::int64_t resident_blocks = 0;
  std::int64_t alive_from_start = 0;  // the number of blocks that are alive from the start, so that they interleave. 0: one cluster
  int multiprocessors = 4;            // arch::multiprocessor_id returns numbers below this
};

// Calls kernel() in each of grid × block threads. `cluster` blocks, neighbours in x, form a cluster and can access each other's shared
// memory. `shared_bytes`: the dynamic shared memory of a block, filled with a pattern (NaN as float and as double) before each block.
// Blocks start in a random order, because CUDA does not define the order: a kernel must not rely on lower blocks starting first.
// Throws error, or the exception of the kernel; the other threads are unwound. So device functions that wait must not be noexcept.
// Launches from several host threads run one at a time. Must not be called from a kernel.
void launch(dim3 grid, dim3 block, int cluster, std::int64_t shared_bytes, const options& how, ballast::core::function_ref<void()> kernel);

// The pattern of uninitialised shared memory: a NaN as float and as double.
inline constexpr std::uint32_t k_poison = 0x7ff4a5a5u;

}  // namespace simt
