// Signals that are larger than a tile or have several axes: volumes n₀ × n₁ × n₂, transformed axis by axis with a workspace between.
// Layer: backend "cpu".
// Source: D. Bailey, FFTs in external or hierarchical memory, 1990 (a long line as a matrix).
//
// Three passes. The *turning* and the *turned* pass transform axes 1 and 2 of each plane: the tiles of the first have W neighbours along
// one of the two axes and lines along the other, those of the second the reverse. The *outer* pass transforms axis 0, W neighbours along
// axis 2 per tile. Volumes of complex data and spectra of reals begin with the lines of axis 2, the only ones that are real, and end with
// the outer pass: a plane is read as it lies in memory, and everything after the real lines has half of their width. Transforms to reals
// take the reverse order, and complex data of one or two axes begin with the columns.
//
// A long 1-D line is a matrix n₁ × n₂ with twiddle factors between the passes and a transposed output. Planes that fit into the cache of a
// core are turned there, one after the other. Data that wait in the workspace are sealed: one word, which changes with every bit, for every
// W × W numbers between the turning and the turned pass, and for each lane of a plane's tiles beside the outer pass. If the seal is broken
// when the rows are read, the signal is computed again from the input.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "fft/cpu/choice.hpp"
#include "fft/cpu/workspace.hpp"

namespace ballast::fft::cpu {

// A long line as a matrix of n₁ × n₂ elements.
struct line_split {
  std::int64_t n1, n2;  // n = n1 · n2
};

// Returns the split with the least cost (for factors without convolutions those closest to √n). Returns nullopt if n has no split into
// lines that a tile holds.
std::optional<line_split> split_line(std::int64_t n);

// Returns one contiguous line of n complex numbers, to another.
geometry line_of(std::int64_t n);

// The positions of the tiles of one signal among all tiles of a call. Injection counts tiles this way.
struct numbering {
  strike_counts all;
  std::int64_t tile = 0;     // number of the first tile
  std::int64_t waiting = 0;  // number of the first tile whose result waits in memory
};

// How a volume is cut into planes and tiles.
struct volume_layout {
  std::int64_t lanes = 1;                        // lanes of a vector
  bool long_line = false;                        // the volume is a 1-D line
  bool rows_first = false;                       // axis 2 comes first
  std::int64_t n[3] = {1, 1, 1};                 // lengths of the axes
  std::int64_t in[3] = {}, out[3] = {};          // strides in elements of the side
  std::int64_t width = 1;                        // elements of axis 2 while axes 0 and 1 are transformed
  std::int64_t plane_lanes = 1, plane_rows = 1;  // the lines of the turning pass side by side, and the elements that each leaves
  std::int64_t columns = 0;                      // tiles of the turning pass in a plane
  std::int64_t groups = 0;                       // tiles of the turned pass in a plane
  std::int64_t outer_columns = 0;                // tiles across axis 2
  std::int64_t outer_tiles = 0, turning_tiles = 0, turned_tiles = 0;
  std::int64_t plane_scalars = 0, held_scalars = 0;  // from one plane to the next, in `data` and in `held`
  bool planes_fit = false;                           // a plane of the workspace fits into the cache of a core

  // `scalar`: bytes of one.
  volume_layout(const geometry& shape, std::optional<line_split> split, std::int64_t lanes_of, std::int64_t scalar);
  // The tiles of the turned pass in a plane, if the first has `first` lanes, or 0: as many as the others.
  std::int64_t groups_after(std::int64_t first) const;
  bool outer_last() const { return rows_first && n[0] > 1; }
  std::int64_t signal_scalars() const { return n[0] * plane_scalars; }
};

template <class T>
class volume final : public transform {
 public:
  // `split`: the only axis, n[2], is a long line. Otherwise the axes are those of the problem.
  volume(const geometry& shape, std::optional<line_split> split, bool protect, sharing share = sharing::by_size);
  void run(const void* in, void* out, const transform_args& how) const override;

  // The memory shared by the passes of one signal. data: what is between the turning and the turned pass, of a plane for each thread or of
  // one plane; if the outer pass comes first, its result, all planes. held: what an outer pass that is the last reads. running: two sets of
  // seals for each task of such a pass, which grow from tile to tile. staging: the result of an in-place transform.
  struct signal_memory {
    core::aligned_buffer<T> data, held, outer_seals, running, seals, staging;
  };
  struct workspace {
    scratch_slots<T> slots;
    std::vector<std::unique_ptr<signal_memory>> signals;  // by slot, if each thread transforms whole signals
  };

  // One signal as a part of a larger transform: events name it `signal`. `slot`: as in crew.
  struct part {
    const T* in;
    T* out;
    const numbering& where;
    std::int64_t signal = 0;
    int slot = -1;
    bool sealed = false;
  };
  // sound: false if it could not be repaired; that is recorded, and nothing is stored. seal: of the output as it was verified (seal_tile),
  // if the part is `sealed`: for protected long complex lines.
  struct part_outcome {
    bool sound = true;
    std::uint64_t seal = 0;
  };
  // Allocates what an earlier call has not, for `signals` signals at the same time.
  void prepare(workspace& memory, const transform_args& how, int signals) const;
  part_outcome run_part(const part& one, const transform_args& how, workspace& memory) const;
  // Returns whether each signal is transformed by one thread: as chosen, or if they are so small that they stay in the cache of its core.
  bool takes_whole_signals(std::int64_t batch, int threads) const;

  // `first`: the lanes of the first turned tile (volume_layout::groups_after).
  std::int64_t tiles_of_signal(std::int64_t first = 0) const {
    return layout_.outer_tiles + layout_.turning_tiles + layout_.n[0] * layout_.groups_after(first);
  }
  std::int64_t waiting_of_signal() const { return tiles_of_signal() - (layout_.outer_last() ? layout_.outer_tiles : layout_.turned_tiles); }

 private:
  template <class U>
  friend class volume_run;  // the passes over a signal

  // Twiddle factors of the long line: for each tile, the rows of row_factors::far, then those of row_factors::near.
  struct factor_tables {
    core::aligned_buffer<T> rows;
    int shift = 0;
    std::int64_t far = 0, near = 0;  // rows of a tile

    row_factors<T> of(std::int64_t tile, int lanes) const {
      const T* const first = rows.data() + tile * (far + near) * 2 * lanes;
      return {first, first + far * 2 * lanes, shift};
    }
  };

  void make_factors(factor_tables& made) const;
  void make_lines(bool protect);
  std::int64_t lanes_before_line(const T* out, const transform_args& how) const;
  std::int64_t planes_of(const transform_args& how, int signals) const;

  geometry shape_;
  int lanes_;
  volume_layout layout_;
  sharing share_;
  std::unique_ptr<line<T>> axis_[3];
  factor_tables factors_[2];  // the second set belongs to the check
  std::int64_t scratch_scalars_ = 0;
  mutable workspace_pool<workspace> memory_;
};

extern template class volume<float>;
extern template class volume<double>;

}  // namespace ballast::fft::cpu
