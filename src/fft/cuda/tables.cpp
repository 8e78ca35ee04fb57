// Tables in more precision than the data, by fft/wide.hpp.
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
      for (std::int64_t j = 0; j < before; ++j) push(made, root_of_unity<wide<T>>(j * k, before * p.radix[s]));
    }
  }
  return made;
}

template <class T>
std::vector<T> table_source<T>::split_twiddles(std::int64_t order, int fine_bits) {
  std::vector<T> made;
  for (std::int64_t i = 0; i < coarse_size_of(order); ++i) push(made, root_of_unity<wide<T>>(i << fine_bits, order));
  for (std::int64_t i = 0; i < (std::int64_t{1} << fine_bits); ++i) push(made, root_of_unity<wide<T>>(i % order, order));
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
    for (std::int64_t k = 0; k < radix; ++k) push(made, root_of_unity<wide<T>>(c * k, columns * radix));
  }
  for (std::int64_t j = 0; j < stride; ++j) {
    for (std::int64_t c = 0; c < columns; ++c) push(made, root_of_unity<wide<T>>(c * j, order));
  }
  return made;
}

template <class T>
std::vector<T> table_source<T>::chirp(std::int64_t convolution, std::int64_t padded_to, bool mirrored) {
  const std::int64_t n = std::abs(convolution);
  const bool conjugate = (convolution < 0) != mirrored;
  std::vector<T> made;
  for (std::int64_t j = 0; j < n; ++j) {
    const auto square = static_cast<std::int64_t>(static_cast<unsigned __int128>(j) * static_cast<unsigned __int128>(j) %
                                                  static_cast<unsigned __int128>(2 * n));
    const auto w = root_of_unity<wide<T>>(square, 2 * n);
    push(made, conjugate ? std::conj(w) : w);
  }
  made.resize(static_cast<std::size_t>(2 * padded_to));
  return made;
}

template <class T>
std::vector<T> table_source<T>::filter(std::int64_t convolution, std::int64_t padded_to) {
  const std::int64_t n = std::abs(convolution);
  std::vector<std::complex<wide<T>>> h(static_cast<std::size_t>(padded_to));
  for (std::int64_t j = 0; j < n; ++j) {
    const auto square = static_cast<std::int64_t>(static_cast<unsigned __int128>(j) * static_cast<unsigned __int128>(j) %
                                                  static_cast<unsigned __int128>(2 * n));
    auto w = root_of_unity<wide<T>>(square, 2 * n);
    if (convolution > 0) w = std::conj(w);
    h[static_cast<std::size_t>(j)] = w;
    if (j > 0) h[static_cast<std::size_t>(padded_to - j)] = w;
  }
  const auto spectrum = dft(std::move(h));
  std::vector<T> made;
  for (const auto& z : spectrum) push(made, z / static_cast<wide<T>>(padded_to));
  return made;
}

template <class T>
typename table_source<T>::weights table_source<T>::checksum_weights(const line_policy& p) {
  weights made;
  // Registers are numbered as line.cuh has them; α and α′ are rounded, and what follows from them is exact for them.
  const std::int64_t stride = p.share() / p.radix[p.stages - 1];
  const int butterflies = p.butterflies(p.stages - 1);
  const int count = butterflies * p.radix[p.stages - 1];
  std::vector<std::complex<wide<T>>> own[2], a[2];
  for (int t = 0; t < p.threads * p.cluster; ++t) {
    std::complex<double> drawn[2];
    for (std::uint64_t v = 0; v < 2; ++v) {
      const abft::phase one = abft::random_phase(k_weight_seed, v, static_cast<std::uint64_t>(t));
      drawn[v] = {one.re, one.im};
    }
    // A fault that reaches two threads reaches t and t + T/2. Two phases cancel for some ratio of what they are multiplied with: not for
    // one near to that in the second vector.
    if (p.threads % 2 == 0 && t % p.threads >= p.threads / 2) {
      const auto other = static_cast<std::size_t>(t - p.threads / 2);
      const auto ratio = drawn[0] / std::complex<double>(own[0][other]);
      drawn[1] = -std::complex<double>(own[1][other]) * std::polar(1.0, std::arg(ratio) + std::arg(drawn[1]) / 3);
    }
    for (const int v : {0, 1}) {
      own[v].emplace_back(static_cast<T>(drawn[v].real()), static_cast<T>(drawn[v].imag()));
      push(made.verify, own[v].back());
    }
  }
  constexpr std::complex<wide<T>> powers[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
  for (std::int64_t o = 0; o < p.length; ++o) {
    // The place in its block's share.
    const std::int64_t i = p.cluster == 1 ? o : o / p.target_distance() * p.target_run() + o % p.target_run();
    const std::int64_t rank = p.cluster == 1 ? 0 : o % p.target_distance() / p.target_run();
    const std::int64_t j = i % stride;
    const auto n = static_cast<int>(j / p.threads + i / stride * butterflies);
    const auto t = static_cast<std::size_t>(rank * p.threads + j % p.threads);
    const auto power = powers[weight_quarters(count, n)];
    a[0].push_back(own[0][t] * power);
    a[1].push_back(own[1][t] * (n < weight_half(count) ? power : -power));
  }
  const auto first = dft(std::move(a[0]));
  const auto second = dft(std::move(a[1]));
  for (std::size_t i = 0; i < first.size(); ++i) {
    push(made.encode, first[i]);
    push(made.encode, second[i]);
  }
  return made;
}

template struct table_source<float>;
template struct table_source<double>;

}  // namespace ballast::fft::cuda
