// The backend of K-Means that computes on the host: all loops over points, in blocks and groups of blocks, over the kernels of reference/
// or cpu/.
// Layer: backend "host", implements contract.hpp.
// A block holds as many points as fit into the second-level cache. Its kernels are deterministic bit for bit, so a block that fails its
// checks is computed again. A group is several blocks that share one set of sums; it is one task of the update.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "abft/attempt.hpp"
#include "core/memory.hpp"
#include "inject/injector.hpp"
#include "kmeans/block.hpp"
#include "kmeans/contract.hpp"
#include "run/staging.hpp"

namespace ballast::kmeans::host {

// Returns a finding without a numeric residual: it fails if bits differ.
inline abft::finding bits_differ(bool differ, std::int64_t index) {
  abft::finding found;
  found.word = differ ? abft::k_fail : abft::k_pass;
  found.residual = std::numeric_limits<double>::quiet_NaN();
  found.index = index;
  return found;
}

// Returns feature f of row i of points in a matrix, as they were given.
template <class T>
T given_value(const source<T>& from, std::int64_t i, std::int64_t f) {
  return from.half.present() ? static_cast<T>(from.half.at(i, f)) : from.points(i, f);
}

// It has many members because it owns all data of a call that grow with the number of points.
template <class T>
class host_engine : public engine<T> {
 public:
  host_engine(const engine_args<T>& args, const kernels<T>& kernels, int threads);

  // column_stats.cpp
  ranges<T> column_stats() override;
  void normalize(const normalization<T>& chosen) override;
  point_sums measure() override;
  void read_points(std::span<const std::int64_t> rows, T* to) override;
  core::vector<std::int64_t> rows_at(std::span<const std::int64_t> positions, bool positive) override;

  // seeding.cpp
  void begin_seeding(std::int64_t trials) override;
  std::int64_t row_by_weight(double share) override;
  std::int64_t row_by_potential(double target) override;
  core::vector<double> try_candidates(const T* rows, std::int64_t count) override;
  double take_centroid(const T* row, std::int64_t candidate) override;

  // candidates.cpp
  void begin_candidates() override;
  double take_candidates(const T* rows, std::int64_t count) override;
  core::vector<std::int64_t> draw_candidates(double expected, std::uint64_t seed, std::uint64_t stream) override;
  core::vector<double> weigh_candidates() override;

  // lloyd.cpp
  void set_bare(bool bare) override { bare_ = bare; }
  void begin_run() override;
  void pass(const sealed_centroids<T>& centroids) override;
  void add_sums(cluster_sums& total) override;
  point_sums repair_sums(const sealed_centroids<T>& centroids) override;
  core::vector<far_point> farthest(const sealed_centroids<T>& centroids, std::int64_t count) override;

  // results.cpp
  summed_twice label(const sealed_centroids<T>& centroids, const core::vector<T>& plain) override;
  void keep_labels() override { labels_.last.swap(labels_.best); }
  void store_labels(std::span<std::int32_t> to, bool kept) override;
  void distances(const sealed_centroids<T>& centroids, const core::vector<T>& plain, matrix_view<const T> given,
                 const matrix_view<T>& values) override;

  // For ranks of a group (group/engine.hpp), whose sums over points are made by them: the points with their normalization; the labels of
  // the last pass() or label(); the squared distances to the nearest centroid of the seeding so far; and a function that sees each block of
  // points with its distances to the candidates of try_candidates(), on the thread of a slot.
  const source<T>& points() const { return source_; }
  std::span<const std::int32_t> labels() const { return labels_.last; }
  std::span<const T> closest() const { return seeding_.closest; }
  void watch_candidates(std::function<void(const point_block<T>&, int)> seen) { seeding_.watch = std::move(seen); }

 protected:
  // Scratch of one thread for a row and its sums: n each; and for points in half precision.
  struct row_scratch {
    core::vector<T> row;
    core::vector<double> sums, weighted_sums;
    source<T> tile;                   // some of the points, widened, with their normalization
    core::aligned_buffer<T> of_tile;  // its numbers
  };
  // Scratch of one thread.
  struct worker {
    row_scratch* rows = nullptr;
    point_block<T> block, plain;        // plain: x of points that are scaled but not shifted
    packed_centroids<T> fresh;          // packed again for a block that failed
    core::vector<std::int32_t> labels;  // labels of a block in doubt
  };
  // The operands of nearest_centroid: the points, and the centroids with the same scale and shift. `twin` is another copy of these, or the
  // same if the distances to the chosen centroids are verified.
  struct exact_operands {
    const source<T>* points;
    const T *centroids, *twin;
  };
  // Points and centroids that are scaled but not shifted, so that their differences are rounded once; packed like the centroids of the
  // pass.
  struct plain_operands {
    source<T> points;
    core::aligned_buffer<T> packed;
  };
  // Points are processed in blocks; groups of blocks have sums of their own.
  struct block_division {
    std::int64_t capacity = 0;  // points in a block
    std::int64_t blocks = 0;
    std::int64_t groups = 0;
    std::int64_t longest = -1;   // the most stored elements of a sparse point; −1: the points are dense
    std::int64_t elements = 0;   // the most numbers of x in a block
    std::int64_t part_rows = 0;  // rows with a sum of their own in measure()
  };
  // Per group: sums of the points, for measure(), and of the clusters.
  struct sums_of_groups {
    core::vector<point_sums> points;
    core::vector<cluster_sums> clusters;
  };
  // The row_stats of each block from its first load on, by which later loads are verified.
  struct loaded_blocks {
    core::vector<block_signature> row_stats;
    core::vector<block_signature> fact_twins;  // a second copy; differs from row_stats until the first load
    core::aligned_buffer<T> squares;           // blocks × capacity: ‖x‖²
  };
  // Projections of the points, for the check of the sums.
  struct row_projections {
    core::vector<double> direction;  // n: projection_direction
    core::vector<double> values;     // m: weight · (x · direction)
    core::vector<char> done;         // per block: true if its projections are computed
  };
  // m elements each.
  struct row_labels {
    core::vector<std::int32_t> last;      // labels of the last pass
    core::vector<std::int32_t> previous;  // labels of the pass before; −1 in the first pass
    core::vector<std::int32_t> best;      // see keep_labels
    bool first_pass = true;
  };
  // Greedy k-means++, and k-means‖.
  struct seeding {
    std::int64_t trials = 0;
    core::vector<T> taken;               // the centroids, or the candidates of k-means‖, taken so far
    core::vector<T> closest;             // m: squared distance to the nearest of these
    core::vector<std::int32_t> nearest;  // m: number of the nearest candidate (k-means‖ only)
    core::vector<double> potentials;     // per block: Σ weight · closest
    core::vector<double> tried;          // blocks × trials: the potential of the block with each candidate
    packed_centroids<T> candidates;
    packed_centroids<T> last;                               // the centroid that was taken last
    std::function<void(const point_block<T>&, int)> watch;  // watch_candidates
  };

  bool repairs() const { return what_.how.protection == protection::correct; }
  bool checks() const { return protect_ && !bare_; }  // those of passes
  bool stop() const { return repairs() && what_.seen.uncorrectable(); }
  bool sparse() const { return source_.sparse.present(); }
  bool weighted() const { return !source_.weights.empty(); }
  T weight_of(std::int64_t row) const { return weighted() ? source_.weights[at(row)] * source_.weight_scale : T(1); }
  std::int64_t first_block(std::int64_t group) const { return group * division_.blocks / division_.groups; }
  inject::position at_block(std::int64_t block) const { return {block, division_.blocks, 0, 1}; }

  // Steps that cuda's engine of sparse points, which derives from this one, does on its device. prepare_search is called when the packed
  // centroids of a pass are there. search: kernels::assign of a loaded block. load_for_search loads a block; `again`: after a failure.
  // add_points adds the points of a block to the sums of their labels.
  virtual void prepare_search() {}
  virtual row_failure search(worker& here, const packed_centroids<T>& centroids, search_kind what);
  virtual void load_for_search(worker& here, int slot, std::int64_t block, bool again);
  virtual void add_points(worker& here, cluster_sums& sums) { kernels_.accumulate(tile(here), here.block, sums); }
  // The features of the sums of a group: 0 if they are not those of its points.
  virtual std::int64_t summed_features() const { return n_; }

  // column_stats.cpp
  void measure_group(std::int64_t group, int slot);
  point_sums add_measures() const;

  // engine.cpp
  void divide();
  bool half() const { return source_.half.present(); }
  const source<T>& tile(row_scratch& scratch, const source<T>& from, std::int64_t first, std::int64_t count) const;
  const source<T>& tile(const worker& here, const source<T>& from) const {
    return tile(*here.rows, from, here.block.first, here.block.count);
  }
  const source<T>& tile(const worker& here) const { return tile(here, source_); }

  // blocks.cpp
  void pack(const T* centroids, std::int64_t k, bool protect, packed_centroids<T>& made, inject::active_injector* injector = nullptr) const;
  void strike_points(point_block<T>& b, std::int64_t block);
  void prepare_workers(bool with_distances);
  bool normalization_intact() const;
  void verify_normalization();
  void pack_verified_centroids(const sealed_centroids<T>& centroids, packed_centroids<T>& result);
  void load(worker& here, std::int64_t block) const;
  void load_verified(worker& here, int slot, std::int64_t block, bool strike = true);
  void copy_labels(point_block<T>& b, const inject::position& position) const;
  bool store_labels(const point_block<T>& b);
  void assign_block(worker& here, int slot, std::int64_t block, const packed_centroids<T>& shared, const sealed_centroids<T>& origin,
                    const exact_operands& by, search_kind what);
  row_failure assign(worker& here, const packed_centroids<T>& centroids, search_kind what, const exact_operands& by);
  abft::finding search_block(worker& here, std::int64_t block, const packed_centroids<T>& centroids, const exact_operands& by,
                             search_kind what);
  abft::outcome distances_block(worker& here, int slot, std::int64_t block, const packed_centroids<T>& shared, const T* origin,
                                std::int64_t section, bool strike, const plain_operands* plain = nullptr);

  // seeding.cpp
  std::int64_t row_from(std::int64_t first, double sum, double target, bool by_weight) const;
  double sum_closest(std::int64_t block, const T* distance, const T* weight) const;
  void include_block(worker& here, int slot, std::int64_t block, const packed_centroids<T>& one, const T* row, bool strike);
  abft::outcome verify_closest(worker& here, int slot, std::int64_t block);

  // candidates.cpp
  void cover_block(worker& here, int slot, std::int64_t block, const packed_centroids<T>& group, std::int64_t first, bool strike);
  void cover_again(worker& here, int slot, std::int64_t block, std::int64_t candidates);
  double kept_potential(std::int64_t block) const;
  void verify_kept(worker& here, int slot, std::int64_t block, std::int64_t candidates);
  abft::finding verify_nearest(worker& here, std::int64_t block, const core::vector<double>& norms);

  // lloyd.cpp
  void sum_group(std::int64_t group, int slot, const packed_centroids<T>& shared, const sealed_centroids<T>& origin);
  bool sum_blocks(std::int64_t group, int slot, const packed_centroids<T>& shared, const sealed_centroids<T>& origin, bool again);
  void add_counts(cluster_sums& total) const;

  // results.cpp
  plain_operands make_plain(const core::vector<T>& centroids) const;
  void store_far_distances(matrix_view<const T> given, const core::vector<T>& centroids, const matrix_view<T>& values);
  abft::finding compare_distances(const point_block<T>& b, const core::vector<double>& norms, double limit, double forwards,
                                  double& backwards) const;

  const engine_args<T> what_;
  const kernels<T>& kernels_;
  std::int64_t m_, n_, k_;
  int threads_;
  bool protect_;
  bool bare_ = false;
  run::host_staging staging_;  // the host copy of points and weights that came in device memory
  source<T> source_;
  sealed<normalization<T>> normalization_;  // the normalization of source_
  inject::active_injector quiet_;           // strikes nothing
  block_division division_;
  core::vector<worker> workers_;
  core::vector<row_scratch> rows_;  // per thread
  sums_of_groups group_sums_;
  loaded_blocks loaded_;
  packed_centroids<T> packed_;  // the packed centroids of the last pass
  row_projections projection_;
  row_labels labels_;
  seeding seeding_;
};

}  // namespace ballast::kmeans::host
