// The backend of K-Means that computes on a GPU. The points are normalized once (layout/points.hpp) and stay on the device, or pass through
// it in pieces if its memory is too small (point_stream.hpp). The host sees scalars, arrays of n, k or k × n numbers, a few rows, and
// results. Everything is computed twice, by other threads from other loads, or verified by an invariant; after a failure the kernels are
// launched again (run::attempt). The passes of Lloyd's iterations, which verify and repair on the device, are in lloyd.hpp.
// Layer: backend "cuda", implements contract.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "core/memory.hpp"
#include "cuda/call/device_call.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/device_staging.hpp"
#include "kmeans/contract.hpp"
#include "kmeans/cuda/engine/device_ranks.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/cuda/engine/lloyd.hpp"
#include "kmeans/cuda/engine/plan_state.hpp"
#include "kmeans/cuda/engine/point_stream.hpp"
#include "kmeans/cuda/layout/setup_args.hpp"

namespace ballast::kmeans::cuda {

// It has many members because it owns all data of a call on its device, and those of a group that were joined from all devices.
template <class T>
class cuda_engine final : public engine<T> {
 public:
  cuda_engine(const engine_args<T>& args, std::shared_ptr<ballast::cuda::device> on);

  // Returns the constants of the iterations of this call, after measure(). For the tuner and benchmarks, which choose policies.
  lloyd_problem<T> problem() const;
  const ballast::cuda::device_call& launches() const { return call_; }

  // ranks.cpp
  bool failed() const override { return ranks_ && ranks_.failed(); }
  void settle() override;
  abft::finding agreed(const abft::finding& own) override;

  // serve.cpp
  void serve_only(bool labels) override;

  // prepare.cpp
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

  // candidates.cpp
  void begin_candidates() override;
  double take_candidates(const T* rows, std::int64_t count) override;
  core::vector<std::int64_t> draw_candidates(double expected, std::uint64_t seed, std::uint64_t stream) override;
  core::vector<double> weigh_candidates() override;

  // iterations.cpp: by lloyd.hpp
  void set_bare(bool bare) override { bare_ = bare; }
  void begin_run() override;
  void pass(const sealed_centroids<T>& centroids) override;
  void add_sums(cluster_sums& total) override;
  point_sums repair_sums(const sealed_centroids<T>& centroids) override;
  std::optional<lloyd_result<T>> run_lloyd(const sealed_centroids<T>& first, int max_iter,
                                           const abft::guarded_threshold& tolerance) override;

  // results.cpp
  core::vector<far_point> farthest(const sealed_centroids<T>& centroids, std::int64_t count) override;
  summed_twice label(const sealed_centroids<T>& centroids, const core::vector<T>& plain) override;
  void keep_labels() override;
  bool kept_labels_fit() override;
  void store_labels(std::span<std::int32_t> to, bool kept) override;
  void distances(const sealed_centroids<T>& centroids, const core::vector<T>& plain, matrix_view<const T> given,
                 const matrix_view<T>& values) override;

 private:
  using names = kernel_names<T>;
  using buffer = lane_buffer;
  static constexpr int k_flags = 4;
  static constexpr std::int64_t k_flag_bytes = 256;

  // A group of centroids on the device, with the data of their row checks.
  struct group {
    buffer memory;
    checked_centroids<T> view{};
  };
  // The points on the device: as they were given, normalized, and the statistics of their rows.
  struct point_data {
    given_points<T> given;
    normalized_points<T> normalized{};  // its arrays are those below
    bool known = false;                 // true if the row statistics are computed
    buffer unit_rows;                   // m × n: engine_args::unit_rows, in place of the points as they were given
    buffer shift, shift_again, x, operand, weight, norm, rounding, projection, signature, unit, direction, expected;
  };
  // Sums that the host combines.
  struct column_statistics {
    core::vector<double> exponents;       // per feature: ranges::exponent
    core::vector<double> low, high;       // per feature: ranges::low, high
    double heaviest = 1;                  // ranges::heaviest
    std::int64_t zero_row = -1;           // ranges::zero_row
    core::vector<T> units;                // per column: normalized_points::unit
    core::vector<column_sums> sums;       // per column
    core::vector<block_squares> squares;  // per block of row statistics
    // The points of this device alone: the sums by segment, of which there are several on a group; their totals; the blocks.
    core::vector<column_sums> segments, own;
    core::vector<block_squares> own_squares;
    bool unread = false;  // true until measure() has returned `sums`
  };
  // The host reads them at their first use.
  struct host_copies {
    core::vector<T> weights;  // as given
    core::vector<T> rows;     // m × n: x, if the host sums
    bool sums = false;        // numbers in fixed point have no room for both the largest and the typical values of a feature
  };
  // Greedy k-means++, and k-means‖.
  struct seeding {
    int trials = 0;
    std::int64_t blocks = 0;
    core::vector<T> taken;            // the centroids, or candidates of k-means‖, so far
    core::vector<double> potentials;  // per block of all points
    core::vector<double> own;         // per block of the points of this device
    buffer closest, potential, tried, nearest;
    buffer distances;    // trials × m: to the candidates of the last step; empty: the points are read again
    pinned_room pinned;  // for read(): every centroid needs a few copies that the host waits for
    group candidates;
  };

  bool repairs() const { return what_.how.protection == protection::correct; }
  bool checks() const { return protect_ && !bare_; }  // those of passes
  bool stop() const { return repairs() && (ranks_ ? ranks_.failed() : what_.seen.uncorrectable()); }
  bool weighted() const { return !what_.weights.empty(); }
  // The points that kernels read have 16 bits.
  bool half() const { return what_.half.present() && points_.unit_rows.bytes() == 0; }
  std::int64_t columns() const { return n_ + (weighted() ? 1 : 0); }
  // Returns the number of sums over a column: one for each segment of a group's points, so that they can be added in the order of rows.
  std::int64_t segments() const {
    const std::int64_t blocks = (m_ + k_row_threads - 1) / k_row_threads, each = rows_of_segment(all_) / k_row_threads;
    return ranks_ ? (blocks + each - 1) / each : 1;
  }

  // Calls use(piece) for all points, in pieces if the `wanted` part does not stay on the device.
  void each(part wanted, core::function_ref<void(const point_piece<T>&)> use);
  void normalize_piece(const point_piece<T>& piece);
  row_stats_arguments<T> row_stats_of(const point_piece<T>& piece);
  void launch_row_stats(std::int64_t rows, const row_stats_arguments<T>& given, bool strike);

  // engine.cpp
  buffer allocate(std::int64_t bytes) const { return {*lane_, bytes}; }
  template <class Value>
  buffer upload(const core::vector<Value>& values) const;
  template <class Value>
  core::vector<Value> download(const buffer& from, std::int64_t count) const;
  void download(void* to, const void* from, std::int64_t bytes) const;
  // Launches kernel `number` of the plan, whose request is make(instrumented), or make() if it has no variant for injection. `strike`: with
  // the faults of the call, if there are any.
  template <class Make, class Arguments>
  void launch(int number, Make&& make, std::int64_t blocks, const Arguments& given, bool strike = true) const;
  // Launches a kernel that reads the given points, with the request make(half, instrumented) or make(half).
  template <class Make, class Arguments>
  void launch_given(int number, Make&& make, std::int64_t blocks, const Arguments& given) const;
  void clear_flags() const;
  row_flags* flags() const { return static_cast<row_flags*>(results_.data()); }
  // open_list::count: clear_flags() clears it, too.
  std::uint32_t* open_count() const { return reinterpret_cast<std::uint32_t*>(flags() + k_flags); }
  // Room for results that the host reads together with the flags: those of one operation.
  unsigned char* room() const { return static_cast<unsigned char*>(results_.data()) + k_flag_bytes; }
  static std::int64_t room_bytes(std::int64_t blocks, std::int64_t columns, std::int64_t segments);
  // Returns the findings of flag `which` since clear_flags().
  abft::finding read_flags(int which = 0) const;
  static abft::finding finding_of(const row_flags& seen);
  // Copies these to the host, and waits once: through pinned memory if a seeding has room, or by one copy if they all lie in results_.
  struct reading {
    void* to;
    const void* from;
    std::int64_t bytes;
  };
  void read(std::span<const reading> parts) const;
  void make_group(const T* rows, std::int64_t count, group& result) const;
  const core::vector<T>& host_weights();
  double weight_of(std::int64_t row);

  // ranks.cpp: of a group of devices
  core::vector<column_ranges<T>> join_ranges(const buffer& parts, std::int64_t columns);
  void join_refused(ranges<T>& made);
  void join_row_stats();
  void join_potentials();
  void join_pass(const sealed_centroids<T>& centroids);
  bool convert_joined(cluster_sums& total);
  core::vector<std::int64_t> joined_rows(joined what, core::vector<std::int64_t> own);
  std::int64_t joined_row_by_weight(double share);
  core::vector<std::int64_t> joined_rows_at(std::span<const std::int64_t> positions, bool positive);
  void read_joined_points(std::span<const std::int64_t> rows, T* to);

  // iterations.cpp
  core::vector<double> labelled_blocks();
  core::vector<double> host_sums(core::vector<double> before);
  void set_host_sums(const core::vector<double>& from, cluster_sums& total) const;
  lloyd<T>& iterations();
  // Computes the labels and, with `sums`, the sums for these centroids. The host does not wait: collect() follows.
  void launch_pass(const sealed_centroids<T>& centroids, bool sums, T* distances = nullptr);
  // Waits, and adds the events that the kernels logged to the report.
  void collect();

  // prepare.cpp
  core::vector<column_ranges<T>> sum_ranges(const given_points<T>& from, std::int64_t columns, buffer& parts);
  void read_own_points(std::span<const std::int64_t> rows, T* to);
  T point_at(std::int64_t row, std::int64_t f) const;
  void normalize_rows();
  void send_shift();
  core::vector<double> reach_of_columns() const;
  void choose_units(const core::vector<double>& reach);
  bool measured_otherwise(core::vector<double>& reach);
  void choose_sums();
  abft::finding make_row_stats();
  void verify_own_row_stats();
  void verify_row_stats();

  // unit_rows.cpp
  void make_unit_rows();

  // serve.cpp
  point_sums measure_as_given();
  // Adds the sums of the blocks: parts has two for each, by either computation. Forwards, and backwards for the twin.
  summed_twice inertia_of(const core::vector<double>& parts) const;
  summed_twice serve(const sealed_centroids<T>& centroids, const core::vector<T>& plain);

  // results.cpp
  void launch_exact(exact_arguments<T> given);
  template <class Before>
  bool compute_exact(exact_arguments<T> given, const char* site, core::vector<double>& parts, Before&& before);
  void launch_keep(bool compare);
  void spoil_rows(const matrix_view<T>& values) const;
  void store_rows(const buffer& from, std::int64_t first, std::int64_t count, const matrix_view<T>& values) const;

  // seeding.cpp
  static constexpr int k_seeding_flags = 3;
  void reserve_seeding(std::int64_t trials);
  void launch_seeding(int candidate, bool take, bool fresh, bool strike, bool known = false);
  std::pair<std::int64_t, double> block_of(double target) const;
  void include(const T* row, int candidate, bool fresh, bool strike);
  void remember_closest();
  void cover(std::int64_t first, std::int64_t count, bool strike);
  void cover_again(std::int64_t candidates);
  std::int64_t row_from(std::int64_t first, std::int64_t count, const T* closest, double sum, double target);

  const engine_args<T> what_;
  const std::unique_ptr<device_state> own_state_;  // if there is no plan
  device_state& state_;
  const std::shared_ptr<ballast::cuda::device> device_;
  const call_lane lane_;      // before all memory of the call
  std::int64_t m_, n_, k_;    // m of this device
  std::int64_t all_, first_;  // the points of all devices of the group, and the number of the first of this device
  device_ranks ranks_;
  bool protect_;
  bool bare_ = false;
  bool serves_ = false;  // the points are used as they are given
  ballast::cuda::device_staging staging_;
  ballast::cuda::device_call call_;
  point_stream<T> point_stream_;
  buffer results_;  // flags, and room()
  sealed<normalization<T>> normalization_;
  point_data points_;
  column_statistics statistics_;
  buffer best_labels_[2];  // m, two copies: see keep_labels
  buffer served_labels_;   // m: of serve()
  host_copies host_;
  std::unique_ptr<lloyd<T>> lloyd_, bare_lloyd_;  // with labels, sums and kernels of their own
  seeding seeding_;
  // For a group: the sums of the last pass over all devices, their other side by block, and sums by the host.
  struct joined_numbers {
    sealed<core::vector<unsigned long long>> pass;
    core::vector<double> labelled, host;
    point_sums sums;  // measure()
  };
  joined_numbers joined_;
};

}  // namespace ballast::kmeans::cuda
