// The tables of a short line whose vectors lie along the signal (along-inl.hpp), and its run on a tile of W signals in the order of memory.
// Layer: backend "cpu".
#pragma once

#include <cstdint>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/striker.hpp"

namespace ballast::fft::cpu {

template <class T>
class along_line {
 public:
  // Steps of site::stage and of site::twiddle.
  static constexpr std::int64_t k_stages = 2, k_twiddle_steps = 1;

  // Returns whether lines of n points have such code.
  static bool exists(std::int64_t n) { return kernels<T>().shape_of_short(n).first != 0; }

  // `input` and `output` are the weights of the line for [swapped], in rows as encoder and output_sum have them; empty without protection.
  along_line(std::int64_t n, const std::vector<T> (&input)[2], const std::vector<T> (&output)[2]);

  // Transforms call.from into call.to; fills in the tables of `call`. strikes: faults wait inside of the line. Then call.between must be
  // there, and the two steps run apart.
  void run(short_call<T> call, bool strikes, const striker<T>& strike) const;

  // Weights for kernel_table::encode_signals and ::sum_signals.
  const T* input_weights(bool swapped) const { return input_[swapped].data(); }
  const T* output_weights(bool swapped) const { return output_[swapped].data(); }

  // Returns the signal to which vector lane `lane` of row `row` of call.between belongs.
  std::int64_t signal_between(std::int64_t row, std::int64_t lane) const;

 private:
  short_shape shape_;
  core::aligned_buffer<T> twiddles_;
  core::aligned_buffer<T> input_[2], output_[2];
};

extern template class along_line<float>;
extern template class along_line<double>;

}  // namespace ballast::fft::cpu
