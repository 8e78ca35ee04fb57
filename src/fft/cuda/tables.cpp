// Tables are computed above the precision of the data (fft/wide.hpp).
#include "fft/cuda/tables.hpp"

#include <bit>
#include <cmath>
#include <complex>

#include "abft/weights.hpp"
#include "fft/checks.hpp"
#include "fft/cuda/weights.hpp"
#include "fft/wide.hpp"

namespace ballast::fft::cuda {

int fine_bits_of(std::int64_t order) { return (std::bit_width(static_cast<std::uint64_t>(order - 1)) + 1) / 2; }
std::int64_t coarse_size_of(std::int64_t order) { return ((order - 1) >> fine_bits_of(order)) + 1; }

namespace {

template <class T, class W>
void push(std::vector<T>& to, const std::complex<W>& z) {
  to.push_back(static_cast<T>(z.real()));
  to.push_back(static_cast<T>(z.imag()));
}

}  // namespace

template <class T>
std::vector<T> table_source<T>::stage_twiddles(const line_policy& p) {
  std::vector<T> made;
  for (int s = 1; s < p.stages; ++s) {
    const std::int64_t before = p.before(s);
    for (std::int64_t k = 1; k < p.radix[s]; ++k) {
      for (std::int64_t j = 0; j < before; ++j) push(made, fft::root_of_unity<wide<T>>(j * k, before * p.radix[s]));
    }
  }
  return made;
}

template <class T>
std::vector<T> table_source<T>::split_twiddles(std::int64_t order, int fine_bits) {
  std::vector<T> made;
  for (std::int64_t i = 0; i < coarse_size_of(order); ++i) push(made, fft::root_of_unity<wide<T>>(i << fine_bits, order));
  for (std::int64_t i = 0; i < (std::int64_t{1} << fine_bits); ++i) push(made, fft::root_of_unity<wide<T>>(i % order, order));
  return made;
}

template <class T>
std::vector<T> table_source<T>::separated_twiddles(const line_policy& p, std::int64_t columns) {
  const std::int64_t order = p.length * columns;
  const std::int64_t radix = p.radix[p.stages - 1];
  const std::int64_t stride = p.length / radix;
  std::vector<T> made;
  made.reserve(static_cast<std::size_t>(2 * columns * (radix + stride)));
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t k = 0; k < radix; ++k) push(made, fft::root_of_unity<wide<T>>(c * k, columns * radix));
  }
  for (std::int64_t j = 0; j < stride; ++j) {
    for (std::int64_t c = 0; c < columns; ++c) push(made, fft::root_of_unity<wide<T>>(c * j, order));
  }
  return made;
}

template <class T>
std::vector<T> table_source<T>::spectrum_factors(const line_policy& p, bool inwards) {
  const std::int64_t butterflies = p.length / p.radix[inwards ? 0 : p.stages - 1];
  std::vector<T> made;
  for (std::int64_t j = 0; j < butterflies; ++j) {
    const auto w = fft::root_of_unity<wide<T>>(j, 2 * p.length);
    push(made, inwards ? std::complex<wide<T>>(w.imag(), w.real()) : std::complex<wide<T>>(w.imag() / 2, -w.real() / 2));
  }
  return made;
}

template <class T>
std::vector<T> table_source<T>::chirp(std::int64_t convolution, std::int64_t padded_to, bool mirrored) {
  const std::int64_t n = std::abs(convolution);
  const bool conjugate = (convolution < 0) != mirrored;
  std::vector<T> made;
  for (std::int64_t j = 0; j < n; ++j) {
    const auto w = fft::chirp<wide<T>>(j, n);
    push(made, conjugate ? std::conj(w) : w);
  }
  made.resize(static_cast<std::size_t>(2 * padded_to));
  return made;
}

template <class T>
std::vector<T> table_source<T>::filter(std::int64_t convolution, std::int64_t padded_to) {
  std::vector<T> made;
  for (const auto& z : chirp_filter<wide<T>>(std::abs(convolution), padded_to, convolution < 0))
    push(made, z / static_cast<wide<T>>(padded_to));
  return made;
}

namespace {

constexpr std::complex<double> k_quarter_turns[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};

// ±i^e(k) of the results of a last butterfly, for vector v.
std::complex<double> last_weight(int radix, int k, int v) {
  const auto weight = k_quarter_turns[weight_quarters(radix, k)];
  return v == 1 && k >= weight_half(radix) ? -weight : weight;
}

// β of vector v: random phases, turned until |A(j)| is nearly the same for all j. Where A is large, rounding raises the residual; where it
// is small, faults are not seen. By alternating projections, on sequences with |A| constant and on sequences of this form: Gerchberg and
// Saxton, A practical algorithm for the determination of phase from image and diffraction plane pictures, 1972.
std::vector<std::complex<double>> flat_phases(std::int64_t count, int last, int v) {
  constexpr int iterations = 24;
  std::vector<std::complex<double>> made;
  for (std::int64_t i = 0; i < count; ++i) {
    const abft::phase one = abft::random_phase(k_weight_seed, static_cast<std::uint64_t>(v), static_cast<std::uint64_t>(i));
    made.emplace_back(one.re, one.im);
  }
  const auto size = static_cast<std::size_t>(count);
  for (int iteration = 0; iteration < iterations && count > 1; ++iteration) {
    std::vector<std::complex<double>> a;
    for (int k = 0; k < last; ++k) {
      for (const auto& beta : made) a.push_back(beta * last_weight(last, k, v));
    }
    a = dft(std::move(a));
    for (auto& each : a) each = std::conj(std::abs(each) > 1e-9 ? each / std::abs(each) : std::complex<double>(1));
    a = dft(std::move(a));  // of the conjugate: the conjugate of the inverse
    for (std::size_t i = 0; i < size; ++i) {
      std::complex<double> sum = 0;
      for (int k = 0; k < last; ++k) sum += std::conj(last_weight(last, k, v) * a[static_cast<std::size_t>(k) * size + i]);
      if (std::abs(sum) > 1e-9) made[i] = sum / std::abs(sum);
    }
  }
  return made;
}

}  // namespace

template <class T>
typename table_source<T>::weights table_source<T>::checksum_weights(const line_policy& p) {
  weights made;
  const int first = p.stages == 1 ? 1 : p.radix[0];
  const int last = p.radix[p.stages - 1];
  const std::int64_t stride = p.length / last;
  // Phases are rounded first. Everything else is computed from the rounded phases, so that both sides use the same.
  std::vector<std::complex<wide<T>>> own[2];
  for (const int v : {0, 1}) {
    const auto beta = flat_phases(stride / first, last, v);
    for (std::int64_t j = 0; j < stride; ++j) {
      const auto& phase = beta[static_cast<std::size_t>(j / first)];
      const std::complex<wide<T>> rounded(static_cast<T>(phase.real()), static_cast<T>(phase.imag()));
      const auto turn = k_quarter_turns[weight_quarters(first, static_cast<int>(j % first))];
      own[v].push_back(rounded * std::complex<wide<T>>(turn));
    }
  }
  for (std::size_t j = 0; j < own[0].size(); ++j) {
    for (const int v : {0, 1}) push(made.verify, own[v][j]);
  }
  if (p.stages == 1) return made;
  // Of every first-th output, where s is 1.
  std::vector<std::complex<wide<T>>> a[2];
  for (const int v : {0, 1}) {
    for (std::int64_t o = 0; o < p.length; o += first) {
      const auto weight = last_weight(last, static_cast<int>(o / stride), v);
      a[v].push_back(own[v][static_cast<std::size_t>(o % stride)] * std::complex<wide<T>>(weight));
    }
    a[v] = dft(std::move(a[v]));
  }
  const std::int64_t butterflies = p.length / first;
  for (std::int64_t j = 0; j < butterflies; ++j) {
    const auto middle = fft::root_of_unity<wide<T>>(j * weight_centre(first), p.length);
    for (const auto& each : a) push(made.encode, middle * each[static_cast<std::size_t>(j)]);
  }
  for (std::int64_t j = 0; j < butterflies; ++j) push(made.encode, fft::root_of_unity<wide<T>>(j, p.length));
  return made;
}

template struct table_source<float>;
template struct table_source<double>;

}  // namespace ballast::fft::cuda
