// The check of whole signals from end to end: for y = L x along every axis, Σ a y = Σ b x with b = Lᵀ a, and products of the weights of the
// axes for arrays. Both weight vectors, thresholds and decisions are those of a line (fft/tables/checks.hpp).
// Layer: FFT, over the backends of the host.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "abft/attempt.hpp"
#include "core/memory.hpp"
#include "fft/contract.hpp"
#include "fft/cpu/chunks.hpp"
#include "fft/tables/checks.hpp"

namespace ballast::fft::composite {

// Complex weights of the elements of an axis.
struct weight_row {
  std::vector<double> re, im;
  std::complex<double> operator[](std::int64_t k) const { return {re[static_cast<std::size_t>(k)], im[static_cast<std::size_t>(k)]}; }
};

// The weights of one axis. The second ones of the output are the first ones, with the other sign in the second half.
struct axis_check {
  weight_row in[k_vectors], out[k_vectors];
  // c2r: the weights of the conjugates of the half spectrum, conjugated.
  weight_row in_mirrored[k_vectors];
};

// Two sums of each lane, complex, with the digits that a double does not hold: [(2 · vector + part) · lanes + lane].
struct lane_values {
  core::vector<double> high, low;
  core::vector<double> squares;  // Σ x² of each lane, if it was asked for
  std::uint64_t parity = 0;      // that of the chunk (fft/cpu/parity.hpp), of all lanes that have a signal
  std::vector<double>::size_type size() const { return high.size(); }
};

// Properties of a chunk of signals before its transform.
struct encoded {
  lane_values sums;
  core::vector<double> norms;  // one for each lane
  core::vector<bool> finite;
};

template <class T>
class signal_check {
 public:
  // Weights for transforms of `value` in one direction. Unless `kernels` is null, it sums reals.
  signal_check(const array_problem& value, direction way, const cpu::chunk_kernels<T>* kernels);

  // Sums a dense array of `lanes` signals (strided_array.hpp), of which `used` exist.
  encoded encode(const T* x, std::int64_t lanes, std::int64_t used) const;
  // Verifies the transform. first: number of lane 0, for events. parity: becomes that of the verified numbers.
  abft::finding verify(const encoded& input, const T* y, std::int64_t lanes, std::int64_t used, std::int64_t first,
                       const inject::position& here, const transform_args& how, std::uint64_t& parity) const;

 private:
  lane_values sum(const T* z, std::int64_t lanes, std::int64_t used, bool output) const;

  const cpu::chunk_kernels<T>* kernels_;
  std::vector<std::int64_t> in_lengths_, out_lengths_;
  bool in_real_, out_real_, half_input_;
  double points_;  // ‖L‖², for the threshold
  double kappa_;
  std::vector<axis_check> axes_;
};

extern template class signal_check<float>;
extern template class signal_check<double>;

}  // namespace ballast::fft::composite
