// A long line that no tile holds and that cannot be split into two lines that tiles hold: Bluestein's convolution of the whole line.
// Layer: backend "cpu".
// Source: L. Bluestein, 1970; the formula is in fft/tables/extended_precision_dft.hpp.
//
// The two long transforms are volumes with their own protection. The products before, between and after them are covered twice: a check of
// each signal from its input to its output ("fft.end_to_end"), and a second computation from other tables, which must give the same bits.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/memory.hpp"
#include "fft/cpu/volume.hpp"
#include "fft/tables/checks.hpp"

namespace ballast::fft::cpu {

// Transforms along one axis, n[2].
template <class T>
class convolution final : public transform {
 public:
  convolution(const geometry& shape, bool protect);
  void run(const void* in, void* out, const transform_args& how) const override;

 private:
  using W = wide<T>;
  using signal = core::vector<std::complex<T>>;
  // The memory of one signal.
  struct place {
    signal x, y;  // n elements: input and output
    signal u, f;  // length_ elements: the two sides of the long transforms
  };
  struct workspace {
    std::vector<std::unique_ptr<place>> places;  // by slot, if each thread transforms whole signals
    typename volume<T>::workspace inner;
  };
  // One signal of an execution.
  struct item {
    const T* in;
    const transform_args& how;
    std::int64_t number;  // in the batch
    int threads, slot;    // as in crew
    strike_counts all;
    inject::position here;
  };
  // Properties of a signal, collected before it is transformed.
  struct encoded {
    checksum sums;
    double norm = 0;
    bool finite = true;
    bool moderate = false;  // the squares are in a range in which sums in working precision neither overflow nor underflow
  };

  void run_signal(const item& one, T* out, workspace& memory) const;
  void gather(const item& one, signal& x) const;
  encoded encode(const item& one, signal& x) const;
  // The result of a computation. failed: one of the long transforms could not be repaired. differs: the second computation of a product
  // gave other bits.
  enum class computed : std::uint8_t { done, failed, differs };
  computed compute(const item& one, workspace& memory) const;
  static transform_args part_of(const transform_args& how, direction way, int threads);
  bool takes_whole_signals(int threads) const;
  bool transform_long(const item& one, direction way, workspace& memory, int which) const;
  abft::finding verify(const item& one, const encoded& input, const signal& y) const;
  void scatter(const signal& y, std::int64_t number, direction way, T* out) const;
  bool is_stored(const signal& y, std::int64_t number, direction way, const T* out) const;

  // Counts of one signal: the tiles of the two long transforms, plus the signal itself as one more.
  std::int64_t tiles_of_signal() const { return 2 * inner_->tiles_of_signal() + 1; }
  std::int64_t waiting_of_signal() const { return 2 * inner_->waiting_of_signal() + 1; }

  geometry shape_;
  std::int64_t n_;
  std::int64_t length_;  // points of the convolution
  std::unique_ptr<volume<T>> inner_;
  // The second set belongs to the check.
  struct factor_tables {
    signal chirp, filter;
  };
  factor_tables factors_[2];
  axis_weights<T> weights_;
  core::aligned_buffer<T> input_weights_, output_weights_;  // the same for the vector kernels; empty: one lane alone has none
  mutable workspace_pool<workspace> memory_;
};

extern template class convolution<float>;
extern template class convolution<double>;

}  // namespace ballast::fft::cpu
