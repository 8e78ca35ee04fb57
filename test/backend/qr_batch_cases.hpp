// Batches of small matrices, their factorization and its errors, and the fixture of the tests of batches on every backend.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "inject/plan.hpp"
#include "support/effort.hpp"
#include "support/qr_subject.hpp"

namespace ballast::qr::subjects {

// `count` contiguous column-major matrices.
template <class T>
struct batch {
  index m = 0, n = 0, count = 0;
  std::vector<T> data;

  batch(index rows, index columns, index matrices) : m(rows), n(columns), count(matrices), data(at(rows * columns * matrices)) {}
  matrix_batch_view<T> view() { return batch_of(column_major(data.data(), m, n), count); }
  matrix_batch_view<const T> view() const { return batch_of(column_major(data.data(), m, n), count); }
  matrix_view<const T> operator[](index b) const { return view()[b]; }
  static std::size_t at(index i) { return static_cast<std::size_t>(i); }
};

template <class T>
batch<T> random_batch(index m, index n, index count, std::uint64_t seed) {
  batch<T> made(m, n, count);
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  for (T& each : made.data) each = static_cast<T>(normal(bits));
  return made;
}

template <class T>
batch<T> batch_of_kind(const std::string& kind, index m, index n, index count) {
  batch<T> made(m, n, count);
  for (index b = 0; b < count; ++b) {
    const dense<T> one = matrix_of_kind<T>(kind, m, n, static_cast<std::uint64_t>(5 + b));
    std::copy_n(one.data(), one.size(), made.data.begin() + b * m * n);
  }
  return made;
}

template <class T>
struct factored_batch {
  batch<T> F;
  std::vector<T> tau;
  ballast::report report;
  std::vector<T> tau_of(index b) const {
    const index k = std::min(F.m, F.n);
    return {tau.begin() + b * k, tau.begin() + (b + 1) * k};
  }
};

template <class T>
factored_batch<T> factor_each(const batch<T>& A, run::settings how) {
  how.throw_on_uncorrectable = false;
  factored_batch<T> made{A, std::vector<T>(batch<T>::at(std::min(A.m, A.n) * A.count)), {}};
  made.report = geqrf(made.F.view(), made.tau, how);
  return made;
}

template <class T>
ratios worst_of(const batch<T>& A, const factored_batch<T>& made) {
  ratios worst;
  for (index b = 0; b < A.count; ++b) {
    const ratios seen = ratios_of<T>(A[b], made.F[b], made.tau_of(b));
    if (!(seen.residual <= worst.residual)) worst.residual = seen.residual;
    if (!(seen.orthogonality <= worst.orthogonality)) worst.orthogonality = seen.orthogonality;
  }
  return worst;
}

template <class Setting>
class qr_batch : public testing::Test {
 protected:
  using T = typename Setting::real;
  static constexpr backend which = Setting::which;
  static run::settings how(const inject::plan* faults = nullptr) {
    return {.backend = which, .threads = 2, .throw_on_uncorrectable = false, .faults = faults};
  }
  // Each takes another kernel of cuda, or another way through one.
  static std::vector<std::pair<index, index>> shapes() {
    std::vector<std::pair<index, index>> all = {{1, 1},  {8, 8},   {5, 3},   {3, 5},   {13, 7}, {16, 16},
                                                {32, 9}, {31, 32}, {64, 64}, {40, 60}, {65, 20}};
    if (!test::sampled()) all.insert(all.end(), {{7, 130}, {128, 128}, {256, 5}, {200, 60}, {256, 100}, {130, 200}});
    if (test::sampled()) all.insert(all.end(), {{140, 70}, {9, 140}});
    // More rows than a team has: in shared memory of a part or of the whole multiprocessor, and in slabs.
    all.insert(all.end(), {{300, 5}, {400, 21}, {7000, 4}});
    return all;
  }
  static bool on_cuda() { return which == backend::cuda; }
};

}  // namespace ballast::qr::subjects
