// QR's kernels by name.
// Layer: backend "cuda" of QR.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "cuda/device/device.hpp"
#include "qr/arithmetic/scalar.hpp"
#include "qr/cuda/layout/kernel_args.hpp"

namespace ballast::qr::cuda {

// Clusters that factor a panel: the number of thread blocks, and the threads of each. panel_shared_bytes() gives their shared memory on a
// device.
struct cluster_shape {
  int blocks;
  int threads;
};
inline constexpr cluster_shape k_clusters[] = {{1, 128}, {4, 256}, {8, 512}, {16, 512}};
inline constexpr int k_cluster_count = 4;
inline constexpr cluster_shape k_chain_clusters[] = {{1, 128}, {4, 256}};
inline constexpr int k_chain_cluster_count = 2;

// Thread blocks of a launch that gives each thread one of `rows` rows, or each block a tile of 32 rows and columns.
inline std::int64_t slabs(std::int64_t rows) { return (rows + k_threads - 1) / k_threads; }
inline std::int64_t tiles(std::int64_t rows, std::int64_t columns) { return (rows + 31) / 32 * ((columns + 31) / 32); }

enum class work {
  copy,
  compare,
  scan,
  scan_double,
  exponents,
  diagonal,
  form_v,
  hold,
  random,
  products_128,  // over panels of at most 128 columns, and so on
  products_64,
  products_32,
  fold,
  small,
  open,
  judge,
  transformed,
  encode,
  weigh,
  combine,
  norm,
  hash,
  fold_checkpoints,
  seals,
  changes,
  accept,
  taus,
  dots,
  wide_gram,
  wide_parts,
  wide_join,
  solve,
  solve_check,
  gram_64,  // for panels of at most 64 columns, and so on
  gram_32,
  substitute_128,  // at most 128 columns of reals
  substitute_64,
  substitute_32,
  small_factor,
  small_reflectors,
  small_t,
  tall_chain,
  narrow_product,
  apply_t_few,
  apply_t_many,
  narrow_subtract,
  // Only for real numbers:
  gram_128,
  // Only available if kernel_names::multiplies() is true:
  split,
  project,
  add_parts,
  subtract,
  subtract_deep,
  count
};

// Returns the columns of reals of the widest panel on such a device: the small factors of a Cholesky QR panel must fit into the shared
// memory of a block. A complex column is two of reals.
int widest_panel(const ballast::cuda::capabilities& on);

// These return the kernel for panels of at most `width` columns.
constexpr work gram_of(int width) { return width <= 32 ? work::gram_32 : width <= 64 ? work::gram_64 : work::gram_128; }
constexpr work substitute_of(int width) {
  return width <= 32 ? work::substitute_32 : width <= 64 ? work::substitute_64 : work::substitute_128;
}
constexpr work products_of(std::int64_t width) {
  return width <= 32 ? work::products_32 : width <= 64 ? work::products_64 : work::products_128;
}

// S: float, double, or std::complex of them, which the kernels know as complex_number.
template <class S>
struct kernel_names {
  using request = ballast::cuda::kernel_request;
  static request of(work step, const ballast::cuda::capabilities& on);
  static request panel(int which, const ballast::cuda::capabilities& on);  // `which` indexes k_clusters
  static request chain(int which);                                         // `which` indexes k_chain_clusters
  static request strike();                                                 // S: float or double; complex numbers are struck by components
  // Returns whether product.cuh computes products of floats on such a device.
  static bool multiplies(const ballast::cuda::capabilities& on);
  // Returns whether entry `which` of k_clusters can run on such a device.
  static bool runs(int which, const ballast::cuda::capabilities& on);
  static bool runs_chain(int which, const ballast::cuda::capabilities& on);  // the same for k_chain_clusters
  // Requests for all kernels that can run there, including the strikes of tests if `instrumented`.
  static std::vector<request> all(const ballast::cuda::capabilities& on, bool instrumented);
};

// Returns the bytes of shared memory available for a panel's slab and the data before it.
std::int64_t panel_shared_bytes(int which, const ballast::cuda::capabilities& on);

// Requests for the kernels of both precisions, each once: they are in the bundle, and checked for registers and spills.
std::vector<ballast::cuda::kernel_request> checked_kernels(const ballast::cuda::capabilities& on);

}  // namespace ballast::qr::cuda
