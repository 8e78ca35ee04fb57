// The processing of a tile on one thread: load, encode, transform, verify, repeat if it fails, and only then store.
// Layer: backend "cpu". kernels.hpp has its SIMD code, line.hpp its transform, tile_job.hpp its load and store.
// Source: TurboFFT, PPoPP 2025 (checksums per group); docs/design/fft.md, "What is checked, and when".
#pragma once

#include <array>
#include <complex>
#include <cstdint>

#include "core/aligned_buffer.hpp"
#include "fft/cpu/tile_job.hpp"

namespace ballast::fft::cpu {

// The working memory of one thread. A worker owns the scratch of its slot while it runs.
template <class T>
struct scratch {
  core::aligned_buffer<T> x, y, spare;
  core::aligned_buffer<T> seals;  // empty if no result waits in memory
  lane_sums input;
  lane_sums output;
  lane_verdicts verdicts;

  // Buffers of `scalars` scalars. Seals have one scalar for each lane of a row, or fewer.
  scratch(std::int64_t scalars, bool seals_results) : x(scalars), y(scalars), spare(scalars), seals(seals_results ? scalars / 2 : 0) {}
};

// The number of positions at each injection site of a call.
struct strike_counts {
  std::int64_t tiles = 0;
  std::int64_t waiting = 0;  // tiles whose result waits in memory; 0: each tile is struck before its last stage instead
};

// damaged_input: the data that waited in memory do not match their seal. uncorrectable: recorded as "fft.signal". Only `done` has stored.
enum class tile_result : std::uint8_t { done, damaged_input, uncorrectable };

// Processes the tiles of one task.
template <class T>
class tile_worker {
 public:
  tile_worker(const transform_args& how, const strike_counts& all, scratch<T>& mine, int slot);
  ~tile_worker();
  tile_worker(const tile_worker&) = delete;
  tile_worker& operator=(const tile_worker&) = delete;

  tile_result process(const tile_job<T>& job);
  int slot() const { return slot_; }
  const T* done() const { return done_; }  // the last verified tile

 private:
  enum class lane_judgement : std::uint8_t { pass, fail, repeat };

  tile_result settled(const tile_job<T>& job);
  signals_of<T> signals(const tile_job<T>& job, const T* tile) const;

  // Steps of one attempt.
  T* transform(const tile_job<T>& job, T* seals);
  T* compute(const tile_job<T>& job, T* x, T* y, T* seals);
  T* transform_along(const tile_job<T>& job);
  bool repeats_along(const tile_job<T>& job, T* done, bool at_once);
  void scale_along(const tile_job<T>& job, T* signals, double factor);
  short_call<T> call_along(const tile_job<T>& job, T* to);
  bool store_at_once(const tile_job<T>& job);
  void stream_parts(const tile_job<T>& job, short_call<T>& call);
  void set_thresholds(const tile_job<T>& job);
  abft::finding verify(const tile_job<T>& job, T* done);
  abft::finding judge(const tile_job<T>& job, const T* done);
  abft::finding compare(const tile_job<T>& job, T* done);
  bool has_parity(const tile_job<T>& job, const T* done);
  std::uint64_t hash(const tile_job<T>& job, const T* done) const;

  // Lanes whose numbers the vector code cannot sum: those near overflow, Inf or NaN.
  double careful_norm(const T* x, std::int64_t rows, int l) const;
  bool is_finite(const T* tile, std::int64_t rows, int l) const;
  using wide_sums = std::array<std::complex<wide<T>>, k_vectors>;
  wide_sums wide_sum(const T* tile, int l, const encoder<T>& encode, std::int64_t rows) const;
  wide_sums wide_sum(const T* tile, int l, const output_sum<T>& of, std::int64_t rows) const;
  void judge_special_lanes(const tile_job<T>& job, const T* done);
  lane_judgement judge_special(const tile_job<T>& job, const T* again, const T* judged, int l) const;

  inject::position position(const tile_job<T>& job) const { return {job.interval, all_.tiles, 0, 1}; }
  void strike_sums(const tile_job<T>& job);
  template <class U>
  void strike_lanes(inject::site where, const tile_job<T>& job, U* first, U* second);

  const transform_args& how_;
  const strike_counts& all_;
  scratch<T>& mine_;
  int slot_;
  const kernel_table<T>& kernel_;
  // The limits of the last tile's line and scale, which most tiles of a task share.
  const line<T>* limited_ = nullptr;
  double limited_scale_ = 0;
  lane_limits limits_;
  bool any_special_ = false;
  bool special_[k_max_lanes] = {};
  std::uint64_t checks_ = 0;
  bool streamed_ = false;
  read_ahead ahead_;  // a tile that is transformed brings it
  const T* done_ = nullptr;
};

extern template class tile_worker<float>;
extern template class tile_worker<double>;

}  // namespace ballast::fft::cpu
