// Data in compressed rows for the tests of K-Means.
// Layer: backend tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"

namespace ballast::kmeans {

// Points in compressed rows, with indices of both sizes, and in a matrix.
template <class T>
struct sparse_set {
  data_set<T> dense;
  std::vector<std::int32_t> offsets = {0}, indices;
  std::vector<std::int64_t> wide_offsets, wide_indices;
  std::vector<T> values;

  explicit sparse_set(std::int64_t m, std::int64_t n) : dense{m, n, std::vector<T>(static_cast<std::size_t>(m * n))} {}
  T& at(std::int64_t i, std::int64_t f) { return dense.values[static_cast<std::size_t>(i * dense.n + f)]; }
  // Takes the elements of the matrix that are not 0, and those for which keep() is true.
  template <class Keep>
  void compress(Keep&& keep) {
    for (std::int64_t i = 0; i < dense.m; ++i) {
      for (std::int64_t f = 0; f < dense.n; ++f) {
        if (at(i, f) == 0 && !keep()) continue;
        indices.push_back(static_cast<std::int32_t>(f));
        values.push_back(at(i, f));
      }
      offsets.push_back(static_cast<std::int32_t>(indices.size()));
    }
    wide_offsets.assign(offsets.begin(), offsets.end());
    wide_indices.assign(indices.begin(), indices.end());
  }
  csr_view<const T, std::int32_t> view() const { return {dense.m, dense.n, offsets, indices, values}; }
  csr_view<const T, std::int64_t> wide_view() const { return {dense.m, dense.n, wide_offsets, wide_indices, values}; }
};

// Texts, say: each of `topics` prefers some features, a row has about `stored` elements ≥ 0 of one topic and others.
template <class T>
sparse_set<T> texts(std::int64_t m, std::int64_t n, std::int64_t topics, double stored, unsigned seed, double scale = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  sparse_set<T> made(m, n);
  for (std::int64_t i = 0; i < m; ++i) {
    const auto topic = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(topics));
    for (std::int64_t f = 0; f < n; ++f) {
      const bool preferred = f % topics == topic;
      if (uniform(random) < stored / static_cast<double>(n) * (preferred ? 0.7 * static_cast<double>(topics) : 0.3))
        made.at(i, f) = static_cast<T>(scale * (0.1 + uniform(random)));
    }
  }
  made.compress([] { return false; });
  return made;
}

template <class T>
data<T> operands(const sparse_set<T>& points, const request<T>& wanted, bool wide = false) {
  data<T> made;
  if (wide) {
    made.sparse = points.wide_view();
  } else {
    made.sparse = points.view();
  }
  made.weights = wanted.weights;
  made.centroids = wanted.centroids;
  return made;
}

}  // namespace ballast::kmeans
