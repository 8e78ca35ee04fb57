// The kernels of K-Means by name: what the host code loads, and the catalogue that is compiled without a GPU.
// Layer: backend "cuda" of K-Means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ballast/kmeans.hpp>

#include "cuda/device/device.hpp"
#include "kmeans/cuda/policy/choose_policy.hpp"

namespace ballast::kmeans::cuda {

// T: float or double. `instrumented`: the kernel that can be injected into.
template <class T>
struct kernel_names {
  using request = ballast::cuda::kernel_request;
  enum class work { ranges, sizes, totals_one_word, totals_two_words };

  static request columns(work what, bool instrumented);
  static request fold(work what);
  static request find();
  static request place(bool instrumented);
  static request facts(int words, bool instrumented);
  static request gather();
  static request distances(bool instrumented);
  static request finish();
  static request exact(bool instrumented);
  static request labelled(int words);
  static request seeding(int trials, bool instrumented);
  static request cover(bool instrumented);
  static request draw(bool instrumented);
  static request nearest();
  // Of fits that a block can hold, and the parts in which their sums are made: as many as leave room for two blocks on a multiprocessor, or
  // for one. 0: a block cannot hold them.
  static int batch_chunks(std::int64_t n, std::int64_t k, const ballast::cuda::capabilities& on);
  static request batch(std::int64_t n, std::int64_t k, const ballast::cuda::capabilities& on, bool instrumented);

  // All that every call needs, for `words` words of a sum.
  static std::vector<request> all(int words, bool instrumented);
  // Those of k-means‖.
  static std::vector<request> candidates(bool instrumented);
};

// Candidates of greedy k-means++.
int trials_of(std::int64_t k);

// What a problem loads: fit, predict and transform. `sums` of the problem is ignored.
std::vector<ballast::cuda::kernel_request> kernels_of(const pass_problem& what, const ballast::cuda::capabilities& on, bool instrumented);

// The kernel of a batch.
ballast::cuda::kernel_request batch_request(const problem& what, const ballast::cuda::capabilities& on, bool instrumented);

// Tokens of what gpu-check times, verifies, runs under compute-sanitizer and under faults, and of its short sweep. The third also with
// weights, and with sums of two words. Together they have every kind of pass: points in registers and read again, every place of the panel
// and of the sums.
std::vector<std::string> benchmark_problems();
std::vector<std::string> verified_problems();
std::vector<std::string> sanitized_problems();
std::vector<std::string> swept_problems();

// The kernels of some of the benchmark set, and those of features with few large values: in the bundle. Each once.
std::vector<ballast::cuda::kernel_request> common_kernels(const ballast::cuda::capabilities& on);

// The kernels of all these problems, with and without protection: checked for registers and spills. Each once.
std::vector<ballast::cuda::kernel_request> checked_kernels(const ballast::cuda::capabilities& on);

// The kernels of every scheme of FT K-Means with the tiles that the rules give, and of all entries of the tuning tables for the
// architecture: checked, too, and not in the bundle.
std::vector<ballast::cuda::kernel_request> scheme_kernels(const ballast::cuda::capabilities& on);

}  // namespace ballast::kmeans::cuda
