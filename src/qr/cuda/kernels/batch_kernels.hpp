// The batch kernels by name, and the choice of a policy for a matrix.
// Layer: backend "cuda" of QR.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/device/device.hpp"
#include "qr/cuda/batch/batch_args.hpp"
#include "qr/cuda/batch/tall_args.hpp"

namespace ballast::qr::cuda {

// The name of a type of numbers in the source of the kernels, which know std::complex as complex_number.
template <class S>
std::string name_of_number() {
  const std::string component = sizeof(real_of<S>) == 4 ? "float" : "double";
  return is_complex<S> ? "ballast::qr::cuda::complex_number<" + component + ">" : component;
}

// By size: a part of a warp for matrices of up to 8 and 16 rows and columns, a warp for 32, a thread block for 64 and 128. For 256 rows: a
// thread block for 64 columns, a cluster for 128 and 256. A matrix gets the first policy of its kind of numbers that holds it.
inline constexpr std::array k_batch_policies = {
    batch_policy{},
    batch_policy{.lanes = 4, .rows = 4, .groups = 4, .columns = 4, .matrices = 4, .resident = 10, .resident_single = 12},
    batch_policy{.lanes = 4, .rows = 8, .groups = 8, .columns = 4, .matrices = 4, .resident = 4, .resident_single = 5},
    batch_policy{.lanes = 8, .rows = 8, .groups = 16, .columns = 4, .matrices = 1, .resident = 4, .resident_single = 4},
    batch_policy{.lanes = 16, .rows = 8, .groups = 32, .columns = 4, .matrices = 1, .resident = 1, .resident_single = 1},
    batch_policy{.lanes = 32, .rows = 8, .groups = 16, .columns = 4, .matrices = 1, .resident = 1, .resident_single = 1},
    batch_policy{.lanes = 32, .rows = 8, .groups = 16, .columns = 4, .matrices = 1, .blocks = 2, .resident = 1, .resident_single = 1},
    batch_policy{.lanes = 32, .rows = 8, .groups = 16, .columns = 4, .matrices = 1, .blocks = 4, .resident = 1, .resident_single = 1},
    // Complex numbers: two columns for each thread, since a number takes two registers or four.
    batch_policy{.resident = 8, .resident_single = 10},
    batch_policy{.lanes = 4, .rows = 4, .groups = 8, .columns = 2, .matrices = 4, .resident = 4, .resident_single = 6},
    batch_policy{.lanes = 8, .rows = 4, .groups = 16, .columns = 2, .matrices = 1, .resident = 4, .resident_single = 6},
    batch_policy{.lanes = 8, .rows = 8, .groups = 32, .columns = 2, .matrices = 1, .resident = 2, .resident_single = 2},
    batch_policy{.lanes = 16, .rows = 8, .groups = 32, .columns = 2, .matrices = 1, .resident = 1, .resident_single = 1},
    batch_policy{.lanes = 16, .rows = 8, .groups = 32, .columns = 2, .matrices = 1, .blocks = 2, .resident = 1, .resident_single = 1},
    batch_policy{.lanes = 32, .rows = 8, .groups = 16, .columns = 2, .matrices = 1, .resident = 1, .resident_single = 1},
    batch_policy{.lanes = 32, .rows = 8, .groups = 16, .columns = 2, .matrices = 1, .blocks = 2, .resident = 1, .resident_single = 1},
    batch_policy{.lanes = 32, .rows = 8, .groups = 16, .columns = 2, .matrices = 1, .blocks = 4, .resident = 1, .resident_single = 1},
    batch_policy{.lanes = 32, .rows = 8, .groups = 16, .columns = 2, .matrices = 1, .blocks = 8, .resident = 1, .resident_single = 1},
};
inline constexpr int k_real_policies = 8;  // those of real numbers come first

enum class batch_work { factor, apply, solve };

// Returns the index in k_batch_policies for m × n on such a device; −1: no policy fits. Only m counts when Q is applied or a system solved,
// since teams then take some columns each. `complex`: of complex numbers.
int batch_policy_for(batch_work step, std::int64_t m, std::int64_t n, const ballast::cuda::capabilities& on, bool complex = false);
constexpr int batch_width(int which) {
  const batch_policy& p = k_batch_policies[static_cast<std::size_t>(which)];
  return p.groups * p.columns * p.blocks;
}

// The kernels for matrices that no policy above fits, by their tile: up to a quarter of a multiprocessor's shared memory, up to a block's
// whole, or in slabs of device memory.
enum class tall_size { small, large, outside };
inline constexpr int k_tall_sizes = 3;
inline constexpr tall_policy k_small_tall{.threads = 128, .resident = 4}, k_large_tall{.threads = 512, .resident = 1};

struct tall_choice {
  tall_size size = tall_size::small;
  int width = 1;           // columns of a tile
  std::int64_t pitch = 0;  // bytes of a slab; 0: the tile is in shared memory
  int slabs = 0;  // blocks that work at a time: one for each multiprocessor, as far as a sixteenth of the device's memory holds them

  std::int64_t slab_bytes() const { return pitch * slabs; }
};
// The choice for m × n, to be factored or to have Q applied, n at most k_tall_columns for a factorization. `bytes`: of a number.
tall_choice choose_tall(batch_work step, std::int64_t m, std::int64_t n, std::int64_t bytes, const ballast::cuda::capabilities& on);
// Returns whether these kernels take `count` matrices of this size, and sooner than the whole device takes one after the other. A
// prediction: docs/design/qr-cuda-batches.md.
bool takes_tall(std::int64_t m, std::int64_t n, std::int64_t count, std::int64_t bytes, const ballast::cuda::capabilities& on);
template <class S>
ballast::cuda::kernel_request tall_kernel(batch_work step, tall_size size, const ballast::cuda::capabilities& on, bool instrumented);

// S here and below: float, double, or complex_number of them.
template <class S>
ballast::cuda::kernel_request batch_kernel(batch_work step, int which, bool instrumented);

// Requests for all batch kernels that can run on such a device.
template <class S>
std::vector<ballast::cuda::kernel_request> batch_kernels(const ballast::cuda::capabilities& on, bool instrumented);

}  // namespace ballast::qr::cuda
