// Long transforms of an even number n of reals along one axis, at the cost of complex ones of m = n/2 points: a volume of m points, whose
// input or output are the reals as pairs, and the step between its spectrum and the half spectrum of the reals.
// Layer: backend "cpu".
// Source: J. Cooley, P. Lewis, P. Welch, The fast Fourier transform algorithm: programming considerations in the calculation of sine,
// cosine and Laplace transforms, 1970.
//
// The step is computed twice, from two reads of its source and two sets of tables, and must give the same bits. The spectrum z waits in the
// workspace: its seal as it was verified must be that of the numbers in memory after they were read, or the signal is computed again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "fft/cpu/volume.hpp"

namespace ballast::fft::cpu {

template <class T>
class long_real final : public transform {
 public:
  // Returns whether it takes the lines of a problem: of one axis, of even length, with contiguous elements on both sides.
  static bool takes(const geometry& shape);
  // `split`: that of n/2 points.
  long_real(const geometry& shape, line_split split, bool protect, sharing share = sharing::by_size);
  void run(const void* in, void* out, const transform_args& how) const override;

 private:
  // z: the spectrum of the pairs. y: the result of a transform in place, until all is verified.
  struct place {
    core::aligned_buffer<T> z, y;
  };
  struct workspace {
    typename volume<T>::workspace inner;
    std::vector<std::unique_ptr<place>> places;  // by slot, if each thread transforms whole signals
  };
  // One signal of an execution. slot: as in crew.
  struct item {
    const T* in;
    T* out;
    const transform_args& how;
    std::int64_t number;
    int threads, slot;
    strike_counts all;
  };
  struct factor_tables {
    std::vector<T> coarse;
    core::aligned_buffer<T> fine;
  };
  // The findings of the runs of pairs about z.
  struct outcome {
    std::atomic<std::uint64_t> seal{0};
    std::atomic<bool> failed{false};
  };
  struct chunk;

  void make_factors(factor_tables& to) const;
  static transform_args part_of(const transform_args& how, int threads);
  void prepare(workspace& memory, const transform_args& how, int signals) const;
  bool run_signal(const item& one, workspace& memory) const;
  bool compute(const item& one, workspace& memory, T* z, T* y, bool& damaged) const;
  void step(const item& one, const T* from, T* to, outcome& found) const;
  void make(const item& one, pair_call<T> call, chunk& now) const;
  bool run_chunk(const item& one, std::int64_t number, const T* from, T* to, int slot, outcome& found) const;

  std::int64_t tiles_of_signal() const { return inner_.tiles_of_signal() + chunks_; }
  std::int64_t waiting_of_signal() const { return inner_.waiting_of_signal() + 1; }

  geometry shape_;
  std::int64_t m_;
  bool spectrum_;        // r2c
  std::int64_t chunks_;  // runs of pairs
  volume<T> inner_;
  factor_tables factors_[2];  // the second set belongs to the check
  mutable workspace_pool<workspace> memory_;
};

extern template class long_real<float>;
extern template class long_real<double>;

}  // namespace ballast::fft::cpu
