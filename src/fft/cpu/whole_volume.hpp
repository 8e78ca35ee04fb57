// Signals of two or three axes with one check from their input to their output: complex ones, and reals to half spectra.
// Layer: backend "cpu".
// Source: docs/design/fft.md, "Several axes".
//
// The rows (lines of axis 2) are transformed first, W at a time, and go to the work: for each W neighbours of axis 2 a *column*, a tile
// whose rows are those of all planes. Axes 1 and 0 are transformed there, and a column is stored when the signal is verified. The weights
// of a signal are products of those of its axes: sums of rows and of columns, multiplied by the weights of the other axes, are sums of the
// signal.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/exact_sum.hpp"
#include "fft/cpu/volume.hpp"

namespace ballast::fft::cpu {

using core::exact_sum;

// The sums of a signal: re and im for each choice of a vector for each axis, the last axis fastest. Signals of two axes have the first
// four.
struct volume_sums {
  static constexpr int k_most = 8;
  exact_sum re[k_most], im[k_most];
};

// The weights of an axis, for both vectors: input weights, or output weights. Zeros follow, up to a whole vector.
struct axis_vectors {
  std::vector<double> re[2], im[2];
};

// It has many members because they are the layout of a signal.
template <class T>
class whole_volume final : public transform {
 public:
  whole_volume(const geometry& shape, bool protect, sharing share);
  void run(const void* in, void* out, const transform_args& how) const override;

  // Returns whether there is code for a problem: rows are contiguous on both sides and have a vector of points, and no axis is a
  // convolution.
  static bool takes(const geometry& shape);

 private:
  class signal;

  // work: the columns of a signal. done: with an outer pass, its verified tiles: row k₀ of tile i₁ of each column. Sums of the parts of the
  // rows and of the pieces of the columns: planes, or tiles of the outer pass.
  struct signal_memory {
    core::aligned_buffer<T> work, done;
    std::vector<volume_sums> rows, columns;
    std::vector<double> squares;
    std::vector<std::uint64_t> parities;  // those of each piece of each column
  };
  struct workspace {
    scratch_slots<T> slots;
    std::vector<std::unique_ptr<signal_memory>> signals;  // by slot, if each thread transforms whole signals
    typename volume<T>::workspace passes;
  };

  void make_weights();
  void prepare(workspace& memory, const transform_args& how, int signals) const;
  bool takes_whole_signals(int threads) const;
  std::int64_t units_of_signal() const { return groups_ + columns_; }

  geometry shape_;
  int lanes_;
  sharing share_;
  std::int64_t rows_;                      // those of a column
  std::int64_t groups_of_plane_, groups_;  // groups of rows
  std::int64_t columns_;
  bool has_outer_;  // axis 0 has tiles of its own, and a plane is transformed as a whole
  // Rows of the work from one plane and from one column to the next. Those that are read or written together lie in different sets of a
  // cache.
  std::int64_t plane_rows_, column_rows_;
  std::int64_t pieces_;           // parts of a column that are summed and stored one by one
  std::int64_t column_parts_;     // tasks of columns
  std::int64_t parts_;            // tasks of rows
  std::int64_t planes_together_;  // planes whose axis 1 is transformed at once
  std::unique_ptr<line<T>> axis_[3];
  std::vector<std::int64_t> planes_;   // their first rows in a column
  axis_vectors input_[2], output_[3];  // input weights of axes 0 and 1, output weights; the others belong to the lines
  lane_limits limits_;                 // those of a signal without a scale, in two copies
  double output_underflow_[2] = {};
  std::unique_ptr<volume<T>> passes_;  // for signals with numbers that need care
  mutable workspace_pool<workspace> memory_;
};

extern template class whole_volume<float>;
extern template class whole_volume<double>;

}  // namespace ballast::fft::cpu
