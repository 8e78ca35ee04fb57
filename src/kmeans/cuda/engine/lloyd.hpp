// Lloyd's iterations on the device: the panel of centroids, passes over the points, sums, and runs without the host between iterations.
// Layer: backend "cuda" of K-Means, host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "abft/verify.hpp"
#include "cuda/call/device_call.hpp"
#include "kmeans/cuda/engine/tile_pass.hpp"
#include "kmeans/cuda/policy/choose_policy.hpp"
#include "kmeans/sums.hpp"

namespace ballast::kmeans::cuda {

// What stays the same over all iterations of a call. All memory is device memory of others.
template <class T>
struct lloyd_problem {
  placed_points<T> points;
  // Calls its argument for the pieces that the points come in, with the number of their first row; empty: they are all there.
  std::function<void(const std::function<void(std::int64_t first, const placed_points<T>&)>&)> pieces;
  std::int64_t k = 0;
  const unsigned long long* expected = nullptr;  // words × columns: Σ word over all points
  std::uint64_t members = 0;                     // points of positive weight
  double spread = 0;                             // √(Σ‖x‖² / m)
  bool check = true;
  int repeats = 0;                    // abft::attempts; 0: detect only
  std::optional<pass_policy> policy;  // nothing: choose_pass
  std::optional<tile_scheme> scheme;  // nothing: the default, one pass kernel
  std::optional<tile_policy> tile;    // of the scheme; nothing: choose_tile
  std::uint64_t flips = 0;            // of the scheme: tile_arguments::flips
};

// How a stretch of iterations ended.
struct stretch {
  stop_reason reason = stop_reason::none;  // none: as many as were asked for
  check failed = check::totals;            // of a failure
  int iterations = 0;
};

template <class T>
class lloyd {
 public:
  // `call` and what `what` points to outlive this.
  lloyd(std::shared_ptr<ballast::cuda::device> on, const ballast::cuda::device_call& call, const lloyd_problem<T>& what);

  // A run starts: no point has a label.
  void begin_run();

  // The panel for these centroids: k × n, in the frame, and the second copy of them.
  void set_centroids(const std::vector<T>& values, const std::vector<T>& twin);
  // Labels for them, and with `sums` the sums of the points by label. The labels of the pass before are kept for the count of changes.
  // `distances`: m, in device memory: ‖x − c‖² in working precision as the checks of a pass without sums found it, or null.
  void pass(bool sums, T* distances = nullptr);

  // The labels of the last pass: m, in device memory.
  std::int32_t* labels() const { return static_cast<std::int32_t*>(labels_[current_].data()); }
  // The sums of the last pass, verified against what is expected of all points: false if they do not fit.
  bool read_sums(cluster_sums& total) const;
  // Of the last pass: rows that got a second look, and rows for which all centroids were looked at.
  std::pair<std::uint64_t, std::uint64_t> looks() const;

  // Iterations from the centroids that were set, at most `most` of them. Ends early when the device finds a reason; on failure the
  // centroids are those of the last good iteration.
  stretch run(int most, const abft::guarded_threshold& tolerance);
  stretch run(int most, double tolerance) { return run(most, abft::guarded_threshold(tolerance)); }
  // The centroids after run(), k × n in the frame. False if the two copies differ.
  bool read_centroids(std::vector<T>& values) const;

  std::uint64_t checks() const { return checks_; }  // made so far

 private:
  struct kernels {
    const ballast::cuda::kernel* pass = nullptr;
    pass_policy policy;
    std::int64_t blocks = 0;
  };
  std::int64_t update_blocks() const { return std::int64_t{shape_.sections} * shape_.data_tiles * update_parts<T>(what_.points.stride); }
  int buffer_of(int sums) const { return tiles_ != nullptr ? sums : 0; }  // of the sums
  void prepare_sums();
  panel<T> panel_of(int which) const;
  void launch_pass(bool with_sums, bool on_device, T* distances);
  void launch_update(bool given, bool on_device, const abft::guarded_threshold& tolerance);
  template <class Value>
  Value* at(std::int64_t offset) const {
    return reinterpret_cast<Value*>(static_cast<unsigned char*>(memory_.data()) + offset);
  }

  std::shared_ptr<ballast::cuda::device> device_;
  const ballast::cuda::device_call& call_;
  lloyd_problem<T> what_;
  pass_problem problem_;
  panel_shape shape_;
  kernels with_sums_, labels_only_;
  std::unique_ptr<tile_pass<T>> tiles_;  // of a scheme, in their place
  const ballast::cuda::kernel* update_ = nullptr;
  ballast::cuda::device_buffer memory_;
  ballast::cuda::device_buffer labels_[2];
  struct {
    std::int64_t packed, columns, rows[2], twins[2], limits, bound, sums[2], members[2], totals[2], column_sums, results, sections,
        checksums, squares, tickets, state, given, given_twin, bytes;
  } place_{};
  int current_ = 0;    // of labels_
  int rows_ = 0;       // which rows the panel is made of
  int sums_ = 0;       // which totals the next pass fills, and of a scheme which sums
  int last_sums_ = 0;  // which the last pass filled
  bool first_pass_ = true;
  bool added_ = false;  // the sums are those by labels_[current_]: the next pass changes them. Not of a scheme, whose passes begin with 0
  std::uint64_t checks_ = 0;
};

}  // namespace ballast::kmeans::cuda
