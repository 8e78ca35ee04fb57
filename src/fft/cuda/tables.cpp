// Tables in more precision than the data, by fft/wide.hpp.
#include "fft/cuda/tables.hpp"

#include <bit>
#include <cmath>
#include <complex>

#include "abft/weights.hpp"
#include "fft/checks.hpp"
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

// Thue and Morse's sign of output o, as second_weight_negative in line.cuh has it for the register that holds o.
bool second_negative(const line_policy& p, std::int64_t o) {
  if (p.cluster > 1) o = o / p.target_distance() * p.target_run() + o % p.target_run();  // the place in its block's share
  const std::int64_t stride = p.share() / p.radix[p.stages - 1];
  const auto element = static_cast<std::uint64_t>(o / stride);
  const auto butterfly = static_cast<std::uint64_t>(o % stride / p.threads);
  return (std::popcount(element) + std::popcount(butterfly)) % 2 != 0;
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
  std::vector<std::complex<wide<T>>> a[2];
  for (std::int64_t o = 0; o < p.length; ++o) {
    const abft::phase drawn = abft::random_phase(k_weight_seed, 0, static_cast<std::uint64_t>(o));
    const std::complex<wide<T>> rounded(static_cast<T>(drawn.re), static_cast<T>(drawn.im));
    push(made.verify, rounded);
    a[0].push_back(rounded);
    a[1].push_back(second_negative(p, o) ? -rounded : rounded);
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
