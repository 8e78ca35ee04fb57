// Lines that fit into a tile: W whole signals (one per lane) go from memory through one tile and back.
// Layer: backend "cpu".
#pragma once

#include "fft/cpu/workspace.hpp"

namespace ballast::fft::cpu {

// Transforms along one axis, n[2].
template <class T>
class one_pass final : public transform {
 public:
  one_pass(const geometry& shape, bool protect);
  void run(const void* in, void* out, const transform_args& how) const override;

  // A tile of `used` contiguous complex signals as a part of a larger transform: number `tile` of all its tiles. Events name signal `index`
  // for the first of them, index_lane more for each of the others.
  struct part {
    const T* in;
    T* out;
    int used;
    const strike_counts& all;
    std::int64_t tile, index, index_lane;
    int slot;
  };
  // sound: false if it could not be repaired. seal: of the output as it was verified: the sum of the seals of its signals, where number j
  // of signal l has place l + j (seal_numbers).
  struct part_outcome {
    bool sound = true;
    std::uint64_t seal = 0;
  };
  void prepare(scratch_slots<T>& slots, int threads) const { slots.prepare(threads, scratch_scalars_, false); }
  part_outcome run_part(const part& one, const transform_args& how, scratch_slots<T>& slots) const;

  // Returns whether the vectors of a problem lie along its signals: there is code for it, and it is faster than a tile of signals side by
  // side. The step between reals and their spectrum is not, so lines of reals go along if they would leave half of the lanes empty.
  static bool goes_along(const geometry& shape);
  // Returns whether its signals are computed twice instead of summed.
  static bool is_repeated(const geometry& shape);

 private:
  tile_job<T> shared_job() const;
  tile_job<T> common_job(const T* out, const transform_args& how) const;
  read_ahead next_tile(const tile_job<T>& job, std::int64_t first) const;

  geometry shape_;
  std::int64_t together_;  // signals of a tile
  line<T> line_;
  std::int64_t tiles_;
  std::int64_t scratch_scalars_;
  tile_job<T> shared_;  // the part of a job that the tiles of all calls share
  mutable workspace_pool<scratch_slots<T>> memory_;
};

extern template class one_pass<float>;
extern template class one_pass<double>;

}  // namespace ballast::fft::cpu
