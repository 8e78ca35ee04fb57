// Real signals of odd length: two at a time are the real and the imaginary part of one complex line, which costs what one of them would
// cost as a complex line. With a and b the signals and Z the transform of a + ib: A_k = (Z_k + conj Z_{n−k})/2, B_k = (Z_k − conj
// Z_{n−k})/2i. Layer: backend "cpu". Source: J. Cooley, P. Lewis, P. Welch, The fast Fourier transform algorithm: programming
// considerations in the calculation of sine, cosine and Laplace transforms, 1970.
//
// The rounding errors of a line are relative to both of its signals. So the smaller one is multiplied by a power of two first, and divided
// by it at the end. Signals with Inf, NaN or numbers near the limits of the precision are transformed alone, with an imaginary part of
// zero: nothing of a signal comes into another one.
//
// The step before the transform (pack, join) and the one after it (unpack, split) are computed twice, from two reads of their sources and
// two copies of the scales, each from its own measurement of the signals, and must give the same bits. Seals cover z from before its
// comparison until it was transformed, and the transformed line from its verification until it was read for the last time. If a seal is
// broken, all is computed again from the input. Only then the results are stored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "fft/cpu/one_pass.hpp"
#include "fft/cpu/volume.hpp"

namespace ballast::fft::cpu {

template <class T>
class signal_pairs final : public transform {
 public:
  // Returns whether it takes a problem: real signals of one axis of odd length, at least two, that do not interleave.
  static bool takes(const geometry& shape);
  // `split`: that of a line of n points; without it, lines are transformed in tiles.
  signal_pairs(const geometry& shape, std::optional<line_split> split, bool protect, sharing share = sharing::by_size);
  void run(const void* in, void* out, const transform_args& how) const override;

 private:
  // A complex line: its signals, the second −1 if the first is alone; two copies of the scales before the transform; and where the results
  // lie among those of a group.
  struct pair {
    std::int64_t signal[2] = {-1, -1};
    T up[2][2] = {{1, 1}, {1, 1}};
    std::int64_t result[2] = {};
  };
  // Lines that are computed together, and their results.
  struct place {
    core::aligned_buffer<T> z, transformed, results, gathered;
    std::vector<pair> lines, others;
  };
  struct workspace {
    scratch_slots<T> slots;                  // tiles
    typename volume<T>::workspace matrices;  // long lines
    std::vector<std::unique_ptr<place>> places;
  };
  struct group;

  void prepare(workspace& memory, const transform_args& how, int groups) const;
  void run_group(std::int64_t number, int threads, int slot, const void* in, void* out, const transform_args& how, workspace& memory) const;
  void choose_lines(const group& now) const;
  std::optional<int> levels_of(const group& now, std::int64_t s) const;
  signal_size<T> size_of(const group& now, std::int64_t signal) const;
  const T* source_of(const group& now, std::int64_t signal, int which) const;
  bool run_lines(const group& now) const;
  bool compute(const group& now, std::uint64_t& expected, bool& damaged) const;
  bool step(const group& now, bool before, std::uint64_t& expected, std::uint64_t& seal) const;
  void make_results(const group& now, std::int64_t tile) const;
  line_call<T> call_of(const group& now, std::int64_t line, bool before, int copy) const;
  bool transform_lines(const group& now, std::uint64_t& seal) const;
  std::uint64_t seal_of(const group& now, const core::aligned_buffer<T>& lines) const;
  std::uint64_t parity_of_results(const group& now) const;
  std::uint64_t store(const group& now) const;

  std::int64_t tiles_of_group() const { return (matrix_ ? matrix_->tiles_of_signal() : 1) + 1; }
  std::int64_t waiting_of_group() const { return (matrix_ ? matrix_->waiting_of_signal() : 0) + 1; }

  geometry shape_;
  std::int64_t n_;
  bool spectrum_;                          // r2c
  std::int64_t scalars_in_, scalars_out_;  // scalars of a signal
  std::int64_t together_, groups_;         // lines of a group
  std::optional<one_pass<T>> tile_;        // one of the two
  std::optional<volume<T>> matrix_;
  mutable workspace_pool<workspace> memory_;
};

extern template class signal_pairs<float>;
extern template class signal_pairs<double>;

}  // namespace ballast::fft::cpu
