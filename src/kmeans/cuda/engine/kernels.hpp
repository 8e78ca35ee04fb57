// The kernels of K-Means by name: those that the host code loads, and the catalogue that is compiled without a GPU.
// Layer: backend "cuda" of K-Means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ballast/kmeans.hpp>

#include "cuda/device/device.hpp"
#include "kmeans/cuda/policy/choose_policy.hpp"

namespace ballast::kmeans::cuda {

// T: float or double. `instrumented`: the variant of the kernel with injection. `half`: the one for given points of 16 bits; T is float.
template <class T>
struct kernel_names {
  using request = ballast::cuda::kernel_request;

  static request unit_rows(bool half, bool instrumented);  // x / ‖x‖, for spherical K-Means
  static request ranges(bool half, bool instrumented);
  static request fold_ranges();
  static request fold_sums();
  static request find(bool half);
  static request normalize(bool half, bool instrumented);
  static request row_stats(int words, bool half, bool instrumented);
  static request gather(bool half);
  static request distances(bool half, bool given, bool instrumented);  // `given`: of points as they are given
  static request far(bool half);
  static request keep(bool instrumented);
  static request exact(bool half, bool instrumented);
  static request settle(bool half, bool instrumented);
  static request labelled(int words);
  // The kernels that label points as they are given, for a problem; f32.
  static request serve_pack(bool instrumented);
  static request serve(std::int64_t n, std::int64_t k, bool half, bool instrumented);
  static request seeding(int trials, bool instrumented);
  static request cover(bool instrumented);
  static request draw(bool instrumented);
  static request nearest();
  // Returns the number of parts in which a block of a small fit computes its sums: the largest power of two up to 32 for which the block's
  // shared memory suffices. 0: a block cannot hold such a fit.
  static int batch_chunks(std::int64_t n, std::int64_t k, const ballast::cuda::capabilities& on);
  // `enqueued`: the variant that verifies and stores the fits without the host.
  static request batch(std::int64_t n, std::int64_t k, const ballast::cuda::capabilities& on, bool instrumented, bool enqueued);

  // The kernels of points in compressed rows.
  static request sparse_search(bool instrumented);
  static request sparse_sums(bool instrumented);
  static request sparse_convert(bool instrumented);
  static std::vector<request> sparse(bool instrumented);

  // Returns the kernels that every call needs, with `words` words per sum.
  static std::vector<request> all(int words, bool instrumented, bool half = false);
  // Returns all instances of the kernels that label points as they are given; none in f64.
  static std::vector<request> serving(bool instrumented, bool half = false);
  // Returns the kernels of k-means‖.
  static std::vector<request> candidates(bool instrumented);
};

// Returns the number of candidates per step of greedy k-means++.
int trials_of(std::int64_t k);

// Returns the kernels that fit, predict and transform load for a problem. problem::sums is ignored.
std::vector<ballast::cuda::kernel_request> kernels_of(const pass_problem& problem, const ballast::cuda::capabilities& on,
                                                      bool instrumented);

// Returns the kernel of a batch of small fits.
ballast::cuda::kernel_request batch_request(const problem& what, const ballast::cuda::capabilities& on, bool instrumented,
                                            bool enqueued = false);

// Tokens of the problems that gpu-check times; verifies; runs under compute-sanitizer and with faults; and uses in its short sweep. The
// third list also runs with weights, and with two words per sum. Together they cover every kind of pass: points in registers and read
// again, every storage of the packed centroids and of the sums.
std::vector<std::string> benchmark_problems();
std::vector<std::string> verified_problems();
std::vector<std::string> sanitized_problems();
std::vector<std::string> swept_problems();

// Returns the kernels in the bundle: all that a first call may need except passes of its own; those of every general pass; and the passes
// of the benchmark problems with protection. Each once.
std::vector<ballast::cuda::kernel_request> common_kernels(const ballast::cuda::capabilities& on);

// Returns the kernels of all these problems, with and without protection, whose registers and spills are checked. Each once.
std::vector<ballast::cuda::kernel_request> checked_kernels(const ballast::cuda::capabilities& on);

// Returns the kernels of every scheme of FT K-Means with the tiles that the rules choose, and of all entries of the tuning tables for the
// architecture. They are checked as well, but not in the bundle.
std::vector<ballast::cuda::kernel_request> scheme_kernels(const ballast::cuda::capabilities& on);

}  // namespace ballast::kmeans::cuda
