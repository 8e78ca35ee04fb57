// Builds the tables of a short line: each vector of them holds what the lanes of a vector of the signal need.
#include "fft/cpu/along.hpp"

#include <algorithm>
#include <complex>

#include "core/memory.hpp"
#include "fft/sites.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "inject/injector.hpp"

namespace ballast::fft::cpu {
namespace {

// Returns, for each vector of a signal, `sums` pairs of vectors: what each of its scalars contributes to Re and Im of the sums. A row of
// `weights` has `sums` complex numbers.
template <class T>
core::aligned_buffer<T> along_the_signal(const std::vector<T>& weights, std::int64_t sums) {
  const std::int64_t lanes = kernels<T>().lanes;
  core::aligned_buffer<T> made(2 * static_cast<std::int64_t>(weights.size()));
  const std::int64_t scalars = static_cast<std::int64_t>(weights.size()) / sums;
  T* to = made.data();
  for (std::int64_t first = 0; first < scalars; first += lanes) {
    for (std::int64_t sum = 0; sum < sums; ++sum) {
      for (const bool imaginary : {false, true}) {
        for (std::int64_t s = first; s < first + lanes; ++s) {
          const T* const w = weights.data() + s / 2 * 2 * sums + 2 * sum;
          *to++ = s % 2 == 0 ? w[imaginary ? 1 : 0] : imaginary ? w[0] : -w[1];
        }
      }
    }
  }
  return made;
}

}  // namespace

template <class T>
along_line<T>::along_line(std::int64_t n, const std::vector<T> (&input)[2], const std::vector<T> (&output)[2])
    : shape_(kernels<T>().shape_of_short(n)), twiddles_(2 * (shape_.first - 1) * shape_.second / shape_.columns * kernels<T>().lanes) {
  const std::int64_t lanes = kernels<T>().lanes;
  T* to = twiddles_.data();
  for (std::int64_t column = 0; column < shape_.second; column += shape_.columns) {
    for (std::int64_t k = 1; k < shape_.first; ++k, to += 2 * lanes) {
      for (std::int64_t l = 0; l < lanes; ++l) {
        const std::complex<wide<T>> w = root_of_unity<wide<T>>(k * (column + l % shape_.columns), n);
        to[l] = static_cast<T>(w.real());
        to[lanes + l] = static_cast<T>(w.imag());
      }
    }
  }
  for (int swapped = 0; swapped < 2; ++swapped) {
    if (input[swapped].empty()) continue;
    input_[swapped] = along_the_signal(input[swapped], 2);
    output_[swapped] = along_the_signal(output[swapped], 1);
  }
}

template <class T>
std::int64_t along_line<T>::signal_between(std::int64_t row, std::int64_t lane) const {
  const std::int64_t together = kernels<T>().lanes / shape_.columns;
  const std::int64_t rows =
      static_cast<std::int64_t>(shape_.first) * shape_.second / shape_.columns;  // the signals of one vector have so many
  return row / rows * together + lane / shape_.columns;
}

template <class T>
void along_line<T>::run(short_call<T> call, bool strikes, const striker<T>& strike) const {
  const auto& kernel = kernels<T>();
  call.twiddles = twiddles_.data();
  const int groups = std::max(1, call.from.used * shape_.columns / kernel.lanes);
  call.ahead.per_step = (call.ahead.lines() + groups - 1) / groups;
  if constexpr (inject::active_injector::enabled) {
    if (strikes) {
      // The factors of column 0 are 1. Those of the first row of vectors begin with them.
      core::vector<T> struck(twiddles_.data(), twiddles_.data() + twiddles_.size());
      core::vector<T> factors;
      const std::int64_t lanes = kernel.lanes;
      const auto trivial = [&](std::int64_t i) { return i / (2 * lanes) < shape_.first - 1 && i % lanes % shape_.columns == 0; };
      for (std::int64_t i = 0; i < twiddles_.size(); ++i) {
        if (!trivial(i)) factors.push_back(twiddles_[i]);
      }
      strike(site::twiddle, 0, factors.data(), static_cast<std::int64_t>(factors.size()));
      const T* next = factors.data();
      for (std::int64_t i = 0; i < twiddles_.size(); ++i) {
        if (!trivial(i)) struck[static_cast<std::size_t>(i)] = *next++;
      }
      call.twiddles = struck.data();
      const std::int64_t scalars = 2 * call.from.points * lanes;
      kernel.short_lines(call, short_part::first);
      strike(site::stage, 0, call.between, scalars);
      strike(site::intermediate, 0, call.between, scalars);
      kernel.short_lines(call, short_part::second);
      strike(site::stage, 1, call.to, scalars);
      return;
    }
  }
  static_cast<void>(strikes), static_cast<void>(strike);
  kernel.short_lines(call, short_part::whole);
}

template class along_line<float>;
template class along_line<double>;

}  // namespace ballast::fft::cpu
