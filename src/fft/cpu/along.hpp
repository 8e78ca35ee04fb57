// The tables of a line whose vectors lie along the signal (along-inl.hpp), and its run on a tile of W signals in the order of memory. Lines
// of reals are a complex line of half the length, and the step between its spectrum and theirs (pairs-inl.hpp). Layer: backend "cpu".
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/striker.hpp"
#include "fft/tables/weights.hpp"

namespace ballast::fft::cpu {

template <class T>
class line;

// Complex points of the longest line whose vectors lie along the signal.
inline constexpr std::int64_t k_longest_along = 4096;

template <class T>
class along_line {
 public:
  // Returns whether there is code for lines of `points` complex numbers: a kernel (short lines), two steps by stages, or, for those that
  // are not the lines of reals, groups.
  static bool exists(std::int64_t points, bool of_reals);

  // Returns whether a second computation of a complex line costs less than its sums: the line is short, and `repeat` has other lanes for
  // each signal.
  static bool is_repeated(std::int64_t points);

  // Returns whether W signals are transposed at both ends, to tiles: short lines of lengths without a kernel.
  static bool goes_by_groups(std::int64_t points);
  bool by_groups() const { return by_groups_; }

  // `kind` and n are those of the line. `input` and `output` are its weights for [swapped], in rows as encoder and output_sum have them;
  // empty without protection.
  along_line(form kind, std::int64_t n, const std::vector<T> (&input)[2], const std::vector<T> (&output)[2]);
  ~along_line();
  along_line(const along_line&) = delete;
  along_line& operator=(const along_line&) = delete;

  // Transforms call.from into call.to; fills in the tables of `call`, and for real lines its other parts. call.from.points is the number of
  // complex numbers of an input. strikes: faults wait inside of the line. Then its steps run apart, each on all signals.
  void run(short_call<T>& call, bool strikes, const striker<T>& strike) const;

  // For is_repeated lines, with a second table of factors and each signal in other lanes: `repeats` transforms again, groups and ragged
  // ones into call.pairs, and returns whether call.to has the same bits. `repeat` transforms into call.to.
  bool repeats(short_call<T> call, const parity_pair& to) const;
  void repeat(short_call<T> call) const;

  // Steps of site::stage and of site::twiddle.
  std::int64_t stages() const { return stages_; }
  std::int64_t twiddle_steps() const { return twiddle_steps_; }

  // Returns whether a short line is loaded in the order of memory, or one signal at a time.
  bool loads_in_order() const;
  // Returns whether its results are stored in the order of memory.
  bool stores_in_order() const;
  // Returns how many signals a kernel transforms at a time.
  std::int64_t signals_of_group() const;
  // Returns whether results go to no other rows of call.to than those of the signals.
  bool keeps_to(int used) const;

  // Weights for kernel_table::encode_signals and ::sum_signals.
  along_weights<T> input_weights(bool swapped) const {
    return {input_[swapped].data(), form_ == form::complex, form_ == form::real_inverse};
  }
  along_weights<T> output_weights(bool swapped) const { return {output_[swapped].data(), form_ != form::real_inverse}; }

  // Returns the signal to which scalar i of call.between belongs, in a short line, or of the tiles of groups.
  std::int64_t signal_between(std::int64_t i) const;

 private:
  // The numbers of the steps that have run.
  struct steps {
    std::int64_t stage = 0, twiddle = 0;
  };
  bool is_short() const { return shape_.first != 0; }
  core::aligned_buffer<T> make_twiddles() const;
  void run_complex(short_call<T>& call, bool strikes, const striker<T>& strike, steps& at) const;
  void run_short(short_call<T>& call, bool strikes, const striker<T>& strike, steps& at) const;
  void run_groups(const short_call<T>& call, bool strikes, const striker<T>& strike, steps& at) const;
  void run_stages(short_call<T>& call, bool strikes, const striker<T>& strike, steps& at) const;
  void run_pairs(const signals_of<T>& from, T* to, std::int64_t stride, bool strikes, const striker<T>& strike, steps& at) const;
  core::aligned_buffer<T> struck_twiddles(const striker<T>& strike, steps& at) const;
  void strike_lanes(T* rows, int used, const striker<T>& strike, inject::site where, std::int64_t step) const;

  form form_;
  std::int64_t points_;  // complex numbers of the transform
  short_shape shape_;    // zeros unless the line is short
  bool by_groups_;       // goes_by_groups, and not the line of reals
  // A longer line of n1 · n2 points: the transforms of both steps. A line of groups: that of both computations.
  std::unique_ptr<line<T>> first_, second_;
  core::aligned_buffer<T> twiddles_;  // between the two steps
  core::aligned_buffer<T> twins_;     // the same for `repeat`
  core::aligned_buffer<T> split_;     // e^{−2πi k/n} of the real forms
  core::aligned_buffer<T> input_[2], output_[2];
  std::int64_t stages_ = 2, twiddle_steps_ = 1;
};

// Returns along_weights::vectors of complex-linear weights for kernel_table::encode_signals (`sums` = 2) and ::sum_signals (1): `rows` has
// `sums` complex numbers for each number of a signal. The signal has a second part from scalar `middle` on: the end, or for ::sum_signals
// that of the first half.
template <class T>
core::aligned_buffer<T> weights_along(const std::vector<T>& rows, int sums, std::int64_t middle);

extern template core::aligned_buffer<float> weights_along(const std::vector<float>&, int, std::int64_t);
extern template core::aligned_buffer<double> weights_along(const std::vector<double>&, int, std::int64_t);
extern template class along_line<float>;
extern template class along_line<double>;

}  // namespace ballast::fft::cpu
