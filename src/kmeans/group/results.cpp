// The results of a call on a group: each rank stores those of its own rows; the inertia is that of all.
// Layer: K-Means, ranks (engine.hpp).
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kmeans/group/engine.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::ranks {

template <class T>
summed_twice group_engine<T>::label(const sealed_centroids<T>& centroids, const core::vector<T>& plain) {
  // Weighted squared distances of each part, from differences of the coordinates as given, only scaled.
  std::vector<std::vector<double>> squares;
  double largest = 0;
  const auto square_of = [&](const part& of, std::int64_t i) {
    const source<T>& from = of.engine->points();
    const T* c = plain.data() + std::int64_t{of.engine->labels()[at(i)]} * n_;
    double sum = 0;
    for (std::int64_t f = 0; f < n_; ++f) {
      const double d = static_cast<double>(from.points(i, f) * from.scale) - static_cast<double>(c[f]);
      sum += d * d;
    }
    return from.weights.empty() ? sum : static_cast<double>(from.weights[at(i)] * from.weight_scale) * sum;
  };
  for (part& each : parts_) {
    const summed_twice sums = each.engine->label(centroids, plain);
    std::vector<double>& found = squares.emplace_back(at(each.count()), 0.0);
    if (args_.seen.uncorrectable() && repairs()) continue;
    const auto compute = [&] {
      for_chunks(each, [&](std::int64_t, std::int64_t first, std::int64_t end, int) {
        for (std::int64_t i = first; i < end; ++i) found[at(i)] = square_of(each, i);
      });
      double sum = 0;
      for (const double one : found) sum += one;
      return sum;
    };
    if (!protects()) {
      (void)compute();
    } else {
      run::attempt(args_.seen, args_.how.protection, "kmeans.inertia", 0, [&](int) {
        args_.seen.checked(1);
        abft::finding seen;
        const double sum = compute(), other = std::ldexp(sums.value, sums.exponent);
        // Each distance of either sum has n + 4 roundings, and each sum one for each row.
        seen.threshold = abft::reordered_sum_limit(static_cast<double>(n_ + 4) + sums.depth + static_cast<double>(each.count())) * other +
                         std::numeric_limits<double>::min();
        seen.residual = sum - other;
        if (std::isfinite(other)) seen.word = abft::verify(seen.residual, abft::guarded_threshold(seen.threshold));
        return seen;
      });
    }
    largest = std::max(largest, *std::ranges::max_element(found));
  }
  // The scale of the sum follows from the largest term of all ranks.
  expect(operation::label, centroids.seal());
  const std::int64_t mine[] = {std::bit_cast<std::int64_t>(largest)};
  for (const words& each : over_.gather(std::span<const std::int64_t>(mine))) largest = std::max(largest, std::bit_cast<double>(each[0]));
  const int exponent = largest > 0 && std::isfinite(largest) ? std::ilogb(largest) + 1 : 0;
  words own(5, 0);
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    for (std::int64_t i = 0; i < parts_[p].count(); ++i) sums_.add(std::ldexp(squares[p][at(i)], -exponent), own[0], own[1]);
    for (std::int64_t i = parts_[p].count(); protects() && i-- > 0;)
      sums_.add(std::ldexp(square_of(parts_[p], i), -exponent), own[2], own[3]);
  }
  own[4] = flag();
  expect(operation::label, centroids.seal() + 1);
  over_.add(own);
  failed_ = failed_ || own[4] != 0;
  const double value = sums_.value(own[0], own[1]);
  return {value, protects() ? sums_.value(own[2], own[3]) : value, 1, exponent};
}

template <class T>
void group_engine<T>::keep_labels() {
  for (part& each : parts_) each.engine->keep_labels();
}

template <class T>
bool group_engine<T>::kept_labels_fit() {
  return std::ranges::all_of(parts_, [](part& each) { return each.engine->kept_labels_fit(); });
}

template <class T>
void group_engine<T>::store_labels(std::span<std::int32_t> to, bool kept) {
  if (own_ >= 0) parts_[at(own_)].engine->store_labels(to, kept);
}

template <class T>
void group_engine<T>::distances(const sealed_centroids<T>& centroids, const core::vector<T>& plain, matrix_view<const T> given,
                                const matrix_view<T>& values) {
  if (own_ >= 0) parts_[at(own_)].engine->distances(centroids, plain, given, values);
}

template summed_twice group_engine<float>::label(const sealed_centroids<float>&, const core::vector<float>&);
template void group_engine<float>::keep_labels();
template bool group_engine<float>::kept_labels_fit();
template void group_engine<float>::store_labels(std::span<std::int32_t>, bool);
template void group_engine<float>::distances(const sealed_centroids<float>&, const core::vector<float>&, matrix_view<const float>,
                                             const matrix_view<float>&);
template summed_twice group_engine<double>::label(const sealed_centroids<double>&, const core::vector<double>&);
template void group_engine<double>::keep_labels();
template bool group_engine<double>::kept_labels_fit();
template void group_engine<double>::store_labels(std::span<std::int32_t>, bool);
template void group_engine<double>::distances(const sealed_centroids<double>&, const core::vector<double>&, matrix_view<const double>,
                                              const matrix_view<double>&);

}  // namespace ballast::kmeans::ranks
