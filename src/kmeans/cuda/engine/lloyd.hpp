// Lloyd's iterations on the device: packed centroids, passes over the points, sums, and runs without the host between iterations.
// Layer: backend "cuda" of K-Means, host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "abft/verify.hpp"
#include "core/function_ref.hpp"
#include "core/memory.hpp"
#include "cuda/call/device_call.hpp"
#include "group/device_meeting.hpp"
#include "group/nccl_engine.hpp"
#include "kmeans/cuda/engine/plan_state.hpp"
#include "kmeans/cuda/engine/tile_pass.hpp"
#include "kmeans/cuda/policy/choose_policy.hpp"
#include "kmeans/sums.hpp"

namespace ballast::kmeans::cuda {

// How a device of a group adds its sums to those of the others, without the host: in the memory of devices of one process, or over NCCL.
struct device_join {
  wire::exchange* over = nullptr;
  wire::device_meeting* meeting = nullptr;
  wire::nccl_link* link = nullptr;                                      // or null
  std::vector<std::shared_ptr<void>>* kept = nullptr;                   // keeps the offers until all devices have left the call
  std::function<std::vector<std::uint64_t>(std::uint64_t own)> states;  // returns a number of every device
};

// The words that a device offers at even and at odd joins. Other devices read them until the call ends.
struct join_memory {
  ballast::cuda::device_buffer there[2];
  ballast::cuda::pinned_buffer here[2];  // if the devices do not reach each other's memory
  std::unique_ptr<ballast::cuda::stream_event> written[2];
  unsigned long long* offer(std::size_t parity) const {
    return static_cast<unsigned long long*>(here[parity].data() != nullptr ? here[parity].data() : there[parity].data());
  }
};

// The constants of all iterations of a call. It owns none of the device memory that it refers to.
template <class T>
struct lloyd_problem {
  normalized_points<T> points;
  // Calls its argument for each piece of the points, with the index of its first row; empty: all points are on the device.
  std::function<void(core::function_ref<void(std::int64_t first, const normalized_points<T>&)>)> pieces;
  std::int64_t k = 0;
  const unsigned long long* expected = nullptr;  // words × columns: Σ word over all points
  std::uint64_t members = 0;                     // number of points of positive weight
  std::int64_t all = 0;                          // number of points: more than points.m if the call has a group
  std::optional<device_join> join;               // for a group of devices
  double spread = 0;                             // √(Σ‖x‖² / m)
  bool check = true;
  int repeats = 0;                          // abft::attempts; 0: detect only
  std::optional<pass_policy> policy;        // nothing: choose_pass
  std::optional<pass_policy> first_policy;  // with `policy`: of passes that add every row; nothing: `policy`
  std::optional<tile_scheme> scheme;        // nothing: the default, one pass kernel
  std::optional<tile_policy> tile;          // the policy of the scheme; nothing: choose_tile
  std::uint64_t flips = 0;                  // tile_arguments::flips, for a scheme
  device_state* kept = nullptr;             // keeps the kernels for later calls, unless `policy` is set; may be null
  device_lane* lane = nullptr;              // the memory of the call; null: memory of its own
};

// The result of a stretch of iterations.
struct stretch {
  device_stop reason = device_stop::none;  // none: the requested number of iterations is complete
  check failed = check::totals;            // the check that failed, with device_stop::failure
  int iterations = 0;
  // With device_stop::failure: the state of the iterations cannot be what it is, so it is not known which centroids are good. `iterations`
  // is 0.
  bool lost = false;
  bool logged = false;  // kernels have logged events
};

template <class T>
class lloyd : public core::pooled {
 public:
  // `call` and all that `problem` points to must outlive this object.
  lloyd(std::shared_ptr<ballast::cuda::device> on, const ballast::cuda::device_call& call, const lloyd_problem<T>& problem);
  ~lloyd();

  // Starts a run: no point has a label. `anew`: clears the memory of the kernels, which may be wrong.
  void begin_run(bool anew = false);

  // Packs these centroids: k × n, normalized, and a second copy.
  void set_centroids(std::span<const T> values, std::span<const T> twin);
  // Computes the labels for them, and with `sums` the sums of the points by label. The labels of the pass before are kept, to count the
  // changes. `distances`: null, or m in device memory: ‖x − c‖² in working precision, from the checks of a pass without sums.
  void pass(bool sums, T* distances = nullptr);

  // Returns the labels of the last pass: m, in device memory.
  std::int32_t* labels() const { return static_cast<std::int32_t*>(labels_[current_].data()); }
  // Reads the sums of the last pass, and returns whether they agree with the sums over all points.
  bool read_sums(cluster_sums& total) const;
  // Its parts: the words of the sums, the members and the totals; their conversion; and whether they agree with sums over `m` points.
  core::vector<unsigned long long> read_words() const;
  void convert(std::span<const unsigned long long> words, cluster_sums& total) const;
  bool words_fit(std::span<const unsigned long long> words, std::span<const unsigned long long> expected, std::uint64_t members,
                 std::int64_t m) const;
  // Returns how many rows of the last pass had an exact recheck of listed candidates, and how many one of many centroids.
  std::pair<std::uint64_t, std::uint64_t> looks() const;

  // Runs at most `most` iterations from the centroids that were set. The device stops them earlier if it finds a reason; after a failure
  // the centroids are those of the last good iteration.
  stretch run(int most, const abft::guarded_threshold& tolerance);
  stretch run(int most, double tolerance) { return run(most, abft::guarded_threshold(tolerance)); }
  // Reads the centroids after run(): k × n, normalized; `before`: those that its last iteration began with. Returns false if the two copies
  // differ.
  bool read_centroids(core::vector<T>& values, bool before = false) const;

  // Returns the number of checks so far.
  std::uint64_t checks() const { return checks_; }

 private:
  struct kernels {
    const ballast::cuda::kernel* pass = nullptr;
    pass_policy policy;
    std::int64_t blocks = 0;
  };
  std::int64_t update_blocks() const { return std::int64_t{shape_.sections} * shape_.data_tiles * update_parts<T>(what_.points.stride); }
  // Returns the index of the buffer of these sums.
  int buffer_of(int sums) const { return tiles_ != nullptr ? sums : 0; }
  void load_kernels();
  void prepare_join();
  void launch_join();
  bool alike_everywhere(bool possible, loop_state& state) const;
  struct indexes {
    int rows, sums, last_sums, labels;
  };
  void end_stretch(stretch& made, const indexes& before, int complete);
  std::int64_t all_words() const;
  std::int64_t sum_words() const { return what_.k * what_.points.words * sum_pitch(what_.points.stride); }
  void prepare_sums(bool with_sums);
  packed_centroids<T> packed_of(int which) const;
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
  packed_shape shape_;
  struct {
    kernels with_sums, labels_only;
    kernels first;  // first_pass(): adds every row; null: with_sums
  } passes_;
  std::unique_ptr<tile_pass<T>> tiles_;  // the kernels of a scheme, instead of these two
  const ballast::cuda::kernel* update_ = nullptr;
  lane_buffer memory_;
  lane_buffer labels_[2];
  bool untouched_ = true;  // no pass has begun since the memory was cleared
  struct {
    std::shared_ptr<join_memory> offers;
    const ballast::cuda::kernel *offer = nullptr, *add = nullptr;
    std::uint64_t turns = 0;  // over NCCL
  } joining_;
  struct {
    std::int64_t packed, columns, rows[2], twins[2], limits, bound, sums[2], members[2], totals[2], column_sums, results, sections,
        checksums, squares, tickets, state, given, given_twin, joined, bytes;
  } offsets_{};
  int current_ = 0;    // the index in labels_
  int rows_ = 0;       // the index of the rows of the packed centroids
  int sums_ = 0;       // the index of the totals that the next pass fills; of a scheme also of the sums
  int last_sums_ = 0;  // the index of those that the last pass filled
  bool first_pass_ = true;
  // True if the sums are those by labels_[current_]: the next pass updates them. False for a scheme, whose passes begin with 0.
  bool added_ = false;
  std::uint64_t checks_ = 0;
};

}  // namespace ballast::kmeans::cuda
