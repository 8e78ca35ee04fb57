// The backend of a rank of a group: the host backend on each part of its rows, joined with those of all ranks.
// Layer: K-Means, ranks. docs/design/distributed.md.
// Every rank runs the driver with the same numbers. The sums over points that the host backend makes in double depend on how the points are
// divided, so they serve its own checks only. The sums that the driver sees are made here a second time, in fixed point (fixed_sum.hpp),
// and added as integers: the same bits for any division of the rows. Distances, labels and minima are of one point each and depend on no
// division.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "abft/attempt.hpp"
#include "abft/seal.hpp"
#include "core/parallel.hpp"
#include "group/exchange.hpp"
#include "kmeans/contract.hpp"
#include "kmeans/group/fixed_sum.hpp"
#include "kmeans/host/engine.hpp"
#include "kmeans/rows.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::ranks {

using words = std::vector<std::int64_t>;

template <class T>
class group_engine final : public engine<T> {
 public:
  group_engine(const engine_args<T>& args, ballast::backend backend);

  bool failed() const override { return failed_; }
  void settle() override;
  abft::finding agreed(const abft::finding& own) override;

  // normalization.cpp
  ranges<T> column_stats() override;
  void normalize(const normalization<T>& chosen) override;
  point_sums measure() override;
  void read_points(std::span<const std::int64_t> rows, T* to) override;
  core::vector<std::int64_t> rows_at(std::span<const std::int64_t> positions, bool positive) override;

  // seeding.cpp
  void begin_seeding(std::int64_t trials) override;
  std::int64_t row_by_weight(double share) override;
  std::int64_t row_by_potential(double target) override;
  core::vector<std::int64_t> rows_by_potential(std::span<const double> targets) override;
  core::vector<double> try_candidates(const T* rows, std::int64_t count) override;
  double take_centroid(const T* row, std::int64_t candidate) override;
  // The plan refuses k-means‖ on a group.
  void begin_candidates() override {}
  double take_candidates(const T*, std::int64_t) override { return 0; }
  core::vector<std::int64_t> draw_candidates(double, std::uint64_t, std::uint64_t) override { return {}; }
  core::vector<double> weigh_candidates() override { return {}; }

  // lloyd.cpp
  void begin_run() override;
  void pass(const sealed_centroids<T>& centroids) override;
  void add_sums(cluster_sums& total) override;
  point_sums repair_sums(const sealed_centroids<T>& centroids) override;
  core::vector<far_point> farthest(const sealed_centroids<T>& centroids, std::int64_t count) override;

  // results.cpp
  summed_twice label(const sealed_centroids<T>& centroids, const core::vector<T>& plain) override;
  void keep_labels() override;
  bool kept_labels_fit() override;
  void store_labels(std::span<std::int32_t> to, bool kept) override;
  void distances(const sealed_centroids<T>& centroids, const core::vector<T>& plain, matrix_view<const T> given,
                 const matrix_view<T>& values) override;

 private:
  // The operations, for the digests by which ranks see that all do the same.
  enum class operation : std::uint64_t {
    settle = 1,
    agree,
    ranges,
    sums,
    measure,
    read,
    positions,
    weight,
    potential,
    candidates,
    take,
    pass,
    farthest,
    label
  };
  struct part {
    row_part<T> rows;
    std::unique_ptr<host::host_engine<T>> engine;
    point_sums whole;               // measure() of the part, for the checks of its sums
    cluster_sums total;             // sums of the last pass, in double: the other side of the check of the sums in fixed point
    words constant;                 // the sums that those of the clusters in fixed point add up to
    std::vector<fixed_sum> chunks;  // seeding: Σ weight · distance² of each k_chunk rows
    std::int64_t count() const { return rows.points.rows; }
  };
  // A part of any rank with a sum over its rows.
  struct summed_part {
    std::int64_t first;
    fixed_sum sum;
    int owner;  // rank
  };
  // The places of the words of a pass: 2 k n sums, 2 k weights if there are any, k members, and single numbers.
  struct layout {
    std::int64_t weights, members, singles, all;
  };

  // The ranges of the points, n each, and the powers of two that bring terms below 1: |x| of each feature, w ‖x‖², and w · distance².
  struct scales {
    core::vector<double> low, high, point;
    double square = 1, potential = 1;
  };

  bool repairs() const { return args_.how.protection == protection::correct; }
  bool protects() const { return args_.how.protection != protection::off; }
  // Names the exchange that follows.
  void expect(operation what, std::uint64_t seal = 0);
  std::int64_t flag() const { return args_.seen.uncorrectable() ? 1 : 0; }
  // Returns the row of the part in normalized coordinates, in double, and its weight.
  double read_row(const source<T>& from, std::int64_t i, double* x) const;
  // Computes words twice and compares them: `check` names it.
  template <class Once>
  words twice(const char* check, const Once& once);
  // Adds the words of all ranks in a gather.
  words add_gathered(const words& own);
  template <class Body>
  void for_chunks(const part& of, const Body& body) const;

  words columns_of(const part& of) const;
  words measures_of(const part& of) const;
  words clusters_of(const part& of) const;
  abft::finding verify_clusters(const part& of, const words& found) const;
  std::vector<summed_part> gather_parts(const std::vector<fixed_sum>& own);
  core::vector<std::int64_t> rows_from(const std::vector<summed_part>& sums, std::span<const double> targets, bool by_weight);
  std::int64_t row_within(const part& of, fixed_sum before, double target, bool by_weight) const;
  double term(const part& of, std::int64_t i, bool by_weight) const;

  engine_args<T> args_;
  wire::exchange& over_;
  std::int64_t m_, n_, k_;
  int threads_;
  bool weighted_ = false;
  bool failed_ = false;
  std::vector<part> parts_;
  int own_;
  layout at_;
  fixed_point sums_;     // sums over points
  fixed_point singles_;  // sums of single numbers over ranks
  scales scales_;
  core::vector<double> direction_;
  sealed<words> message_;  // the sums of the last pass over all ranks
  point_sums whole_;
  std::vector<summed_part> potentials_;
};

inline constexpr std::int64_t k_chunk = 2048;  // rows of one task

template <class T>
void group_engine<T>::expect(operation what, std::uint64_t seal) {
  over_.expect_alike(abft::chained(abft::chained(0x9e3779b97f4a7c15u, static_cast<std::uint64_t>(what)), seal));
}

template <class T>
double group_engine<T>::read_row(const source<T>& from, std::int64_t i, double* x) const {
  for (std::int64_t f = 0; f < n_; ++f) x[f] = static_cast<double>(from.points(i, f) * from.scale - from.shift[at(f)]);
  return from.weights.empty() ? 1 : static_cast<double>(from.weights[at(i)] * from.weight_scale);
}

template <class T>
template <class Once>
words group_engine<T>::twice(const char* check, const Once& once) {
  words made = once();
  if (!protects()) return made;
  run::attempt(args_.seen, args_.how.protection, check, 0, [&](int number) {
    if (number > 0) made = once();
    args_.seen.checked(1);
    return host::bits_differ(made != once(), -1);
  });
  return made;
}

template <class T>
template <class Body>
void group_engine<T>::for_chunks(const part& of, const Body& body) const {
  core::parallel_for(threads_, (of.count() + k_chunk - 1) / k_chunk, [&](std::int64_t chunk, int slot) {
    body(chunk, chunk * k_chunk, std::min(of.count(), (chunk + 1) * k_chunk), slot);
  });
}

}  // namespace ballast::kmeans::ranks
