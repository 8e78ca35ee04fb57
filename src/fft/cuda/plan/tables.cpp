// Computes tables in more precision than the data (fft/tables/extended_precision_dft.hpp).
#include "fft/cuda/plan/tables.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <utility>

#include <ballast/error.hpp>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "abft/weights.hpp"
#include "core/parallel.hpp"
#include "fft/cuda/policy/weights.hpp"
#include "fft/tables/checks.hpp"

namespace ballast::fft::cuda {

int fine_bits_of(std::int64_t order) { return (std::bit_width(static_cast<std::uint64_t>(order - 1)) + 1) / 2; }
std::int64_t coarse_size_of(std::int64_t order) { return ((order - 1) >> fine_bits_of(order)) + 1; }

namespace {

template <class W>
factor_functions<W> factors_by;

template <class T, class W>
void push(std::vector<T>& to, const std::complex<W>& z) {
  to.push_back(static_cast<T>(z.real()));
  to.push_back(static_cast<T>(z.imag()));
}

}  // namespace

template <class W>
void override_factors(const factor_functions<W>& by) {
  factors_by<W> = by;
}
template void override_factors(const factor_functions<double>&);
template void override_factors(const factor_functions<long double>&);

template <class T>
std::vector<T> table_source<T>::stage_twiddles(const line_policy& p) {
  std::vector<T> made;
  for (int s = 1; s < p.stages; ++s) {
    const std::int64_t before = p.before(s);
    for (std::int64_t k = 1; k < p.radix[s]; ++k) {
      for (std::int64_t j = 0; j < before; ++j) push(made, factors_by<wide<T>>.root(j * k, before * p.radix[s]));
    }
  }
  return made;
}

template <class T>
std::vector<T> table_source<T>::split_twiddles(std::int64_t order, int fine_bits) {
  std::vector<T> made;
  for (std::int64_t i = 0; i < coarse_size_of(order); ++i) push(made, factors_by<wide<T>>.root(i << fine_bits, order));
  for (std::int64_t i = 0; i < (std::int64_t{1} << fine_bits); ++i) push(made, factors_by<wide<T>>.root(i % order, order));
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
    for (std::int64_t k = 0; k < radix; ++k) push(made, factors_by<wide<T>>.root(c * k, columns * radix));
  }
  for (std::int64_t j = 0; j < stride; ++j) {
    for (std::int64_t c = 0; c < columns; ++c) push(made, factors_by<wide<T>>.root(c * j, order));
  }
  return made;
}

template <class T>
std::vector<T> table_source<T>::spectrum_factors(const line_policy& p, bool inwards) {
  const std::int64_t butterflies = p.length / p.radix[inwards ? 0 : p.stages - 1];
  std::vector<T> made;
  for (std::int64_t j = 0; j < butterflies; ++j) {
    const auto w = factors_by<wide<T>>.root(j, 2 * p.length);
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
    const auto w = factors_by<wide<T>>.chirp(j, n);
    push(made, conjugate ? std::conj(w) : w);
  }
  while (static_cast<std::int64_t>(made.size()) < 2 * padded_to) push(made, std::complex<wide<T>>(1));
  return made;
}

template <class T>
double table_source<T>::smallest_of_filter(std::int64_t convolution, std::int64_t padded_to) {
  const double mean = std::sqrt(2 * static_cast<double>(std::abs(convolution)) - 1) / static_cast<double>(padded_to);
  return mean * abft::unit_roundoff<T> / 4;
}

template <class T>
std::vector<T> table_source<T>::filter(std::int64_t convolution, std::int64_t padded_to, int threads) {
  const auto least = static_cast<wide<T>>(smallest_of_filter(convolution, padded_to));
  std::vector<T> made;
  for (const auto& z : factors_by<wide<T>>.filter(std::abs(convolution), padded_to, convolution < 0, threads)) {
    const auto w = z / static_cast<wide<T>>(padded_to);
    push(made, std::abs(w) < least ? std::complex<wide<T>>(least) : w);
  }
  return made;
}

template <class T>
std::vector<T> table_source<T>::inverses(const std::vector<T>& table) {
  std::vector<T> made;
  made.reserve(table.size());
  for (std::size_t i = 0; i < table.size(); i += 2) {
    const std::complex<wide<T>> w(table[i], table[i + 1]);
    push(made, std::conj(w) / std::norm(w));
  }
  return made;
}

template <class T>
twin_tables<T> make_twins(const std::string& name, const std::function<std::vector<T>()>& make, bool inverse, int threads) {
  for (int attempt = 0; attempt <= abft::k_repeats; ++attempt) {
    std::vector<T> table[2], inverses[2];
    core::parallel_for(std::min(threads, 2), 2, [&](std::int64_t i, int) {
      table[i] = make();
      if (inverse) inverses[i] = table_source<T>::inverses(table[i]);
    });
    if (table[0] == table[1] && inverses[0] == inverses[1])
      return {std::move(table[0]), inverse ? std::move(inverses[1]) : std::move(table[1])};
  }
  throw error("table " + name + ": expected the same bits from two computations, got others in each of " +
              std::to_string(abft::k_repeats + 1) + " attempts");
}

namespace {

constexpr std::complex<double> k_quarter_turns[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};

// Returns ±i^e(k), the weights of the results of the last butterflies of a line, for vector v.
std::complex<double> last_weight(const line_policy& p, int k, int v) {
  const int radix = p.radix[p.stages - 1];
  const auto weight = k_quarter_turns[weight_quarters(radix, k, p.mirrors())];
  return v == 1 && weight_negative(radix, k, p.mirrors()) ? -weight : weight;
}

// For lines whose outputs become the spectrum X of reals. Vector v sees X_o as a_o (1 + g) X_o + a_{N−o} ((1 − g) X_o)*, |g| = 1. If both
// terms have equal size, changes of one phase of X_o cancel. The second vector must have this blind spot at other phases. One of the two
// terms has the opposite sign there, which is enough unless β′/β also changes its sign between the butterflies of o and of N − o: those of
// ⌊j/r⌋ = m and of M − 1 − m, or, if r divides j, of M − m. So m = 0, M − 1, 1, M − 2, … are a chain of neighbours. Rotates the elements of
// `second` such that no quotient of neighbours is further than 3π/4 from 1.
void keep_near(const std::vector<std::complex<double>>& first, std::vector<std::complex<double>>& second) {
  constexpr double most = 0.75 * std::numbers::pi;
  const auto count = first.size();
  const auto link = [&](std::size_t i) { return i % 2 == 0 ? i / 2 : count - 1 - i / 2; };
  for (std::size_t i = 1; i < count; ++i) {
    const std::size_t here = link(i), before = link(i - 1);
    const double turn = std::arg(second[here] * std::conj(first[here]) * std::conj(second[before] * std::conj(first[before])));
    if (std::abs(turn) > most) second[here] *= std::polar(1.0, (turn < 0 ? -most : most) - turn);
  }
}

// Returns β of vector v: random phases, adjusted until |A(j)| is nearly the same for all j. If A is large, rounding raises the residual; if
// it is small, faults are not seen. Uses alternating projections, on sequences with |A| constant and on sequences of this form: Gerchberg
// and Saxton, A practical algorithm for the determination of phase from image and diffraction plane pictures, 1972. `first`: the phases of
// the first vector, if those of the line must stay near them (keep_near); otherwise null.
std::vector<std::complex<double>> flat_phases(const line_policy& p, std::int64_t count, int v, std::uint64_t seed,
                                              const std::vector<std::complex<double>>* first) {
  constexpr int iterations = 24;
  const int last = p.radix[p.stages - 1];
  std::vector<std::complex<double>> made;
  for (std::int64_t i = 0; i < count; ++i) {
    const abft::phase one = abft::random_phase(seed, static_cast<std::uint64_t>(v), static_cast<std::uint64_t>(i));
    made.emplace_back(one.re, one.im);
  }
  const auto size = static_cast<std::size_t>(count);
  for (int iteration = 0; iteration < iterations && count > 1; ++iteration) {
    std::vector<std::complex<double>> a;
    for (int k = 0; k < last; ++k) {
      for (const auto& beta : made) a.push_back(beta * last_weight(p, k, v));
    }
    a = dft(std::move(a));
    for (auto& each : a) each = std::conj(std::abs(each) > 1e-9 ? each / std::abs(each) : std::complex<double>(1));
    a = dft(std::move(a));  // the transform of the conjugate is the conjugate of the inverse
    for (std::size_t i = 0; i < size; ++i) {
      std::complex<double> sum = 0;
      for (int k = 0; k < last; ++k) sum += std::conj(last_weight(p, k, v) * a[static_cast<std::size_t>(k) * size + i]);
      if (std::abs(sum) > 1e-9) made[i] = sum / std::abs(sum);
    }
    if (first != nullptr) keep_near(*first, made);
  }
  return made;
}

// β of both vectors.
using vector_phases = std::array<std::vector<std::complex<double>>, 2>;

// Returns the least response to a change of one number before a stage, divided by the wanted response. A response is the larger change of
// the two checksums, divided by the root of the number of outputs that the change reaches; independent phases have the mean square 1. The
// wanted response is N^(−1/4) / 2, which all of N independent ones reach in 15 of 16 draws; after the first butterflies, where the response
// is A, which is flat, it is 0.4. Follows the weights of the outputs backwards through the stages.
double least_response(const line_policy& p, const vector_phases& phases) {
  const int first = p.stages == 1 ? 1 : p.radix[0];
  const std::int64_t n = p.length, stride = n / p.radix[p.stages - 1];
  vector_phases weights;
  for (const int v : {0, 1}) {
    auto& of = weights[static_cast<std::size_t>(v)];
    for (std::int64_t o = 0; o < n; ++o) {
      const std::int64_t j = o % stride;
      of.push_back(phases[static_cast<std::size_t>(v)][static_cast<std::size_t>(j / first)] *
                   k_quarter_turns[weight_quarters(first, static_cast<int>(j % first))] * last_weight(p, static_cast<int>(o / stride), v));
    }
  }
  double least = std::numeric_limits<double>::infinity(), reached = 1;
  for (int s = p.stages - 1; s > 0; --s) {
    const std::int64_t r = p.radix[s], before = p.before(s), apart = n / r;
    const double wanted = s == 1 ? 0.4 : 0.5 / std::sqrt(std::sqrt(static_cast<double>(n)));
    reached *= static_cast<double>(r);
    std::vector<std::complex<double>> roots;
    for (std::int64_t i = 0; i < r; ++i) roots.push_back(factors_by<double>.root(i, r));
    vector_phases earlier{std::vector<std::complex<double>>(static_cast<std::size_t>(n)),
                          std::vector<std::complex<double>>(static_cast<std::size_t>(n))};
    for (std::int64_t row = 0; row < before; ++row) {
      for (std::int64_t k = 0; k < r; ++k) {
        const auto w = factors_by<double>.root(row * k, before * r);
        for (std::int64_t j = row; j < apart; j += before) {
          double larger = 0;
          for (const std::size_t v : {0u, 1u}) {
            std::complex<double> sum = 0;
            for (std::int64_t m = 0; m < r; ++m)
              sum += multiply(roots[static_cast<std::size_t>(m * k % r)],
                              weights[v][static_cast<std::size_t>((j - row) * r + row + m * before)]);
            larger = std::max(larger, std::norm(sum));
            earlier[v][static_cast<std::size_t>(j + k * apart)] = multiply(w, sum);
          }
          least = std::min(least, std::sqrt(larger / reached) / wanted);
        }
      }
    }
    weights = std::move(earlier);
  }
  return least;
}

// Draws phases until all responses reach the wanted size. Returns the best of 16 draws if none does.
vector_phases chosen_phases(const line_policy& p) {
  constexpr int draws = 16;
  const std::int64_t count = p.length / p.radix[p.stages - 1] / (p.stages == 1 ? 1 : p.radix[0]);
  vector_phases best;
  double most = -1;
  for (std::uint64_t draw = 0; draw < draws && most < 1; ++draw) {
    vector_phases tried;
    tried[0] = flat_phases(p, count, 0, k_weight_seed + draw, nullptr);
    tried[1] = flat_phases(p, count, 1, k_weight_seed + draw, p.mirrors() ? &tried[0] : nullptr);
    const double least = least_response(p, tried);
    if (least > most) {
      most = least;
      best = std::move(tried);
    }
  }
  return best;
}

}  // namespace

template <class T>
typename table_source<T>::weights table_source<T>::checksum_weights(const line_policy& p) {
  weights made;
  const int first = p.stages == 1 ? 1 : p.radix[0];
  const int last = p.radix[p.stages - 1];
  const std::int64_t stride = p.length / last;
  const auto phases = chosen_phases(p);
  // Round the phases first. Everything else is computed from the rounded phases, so that both sides use the same numbers.
  std::vector<std::complex<wide<T>>> own[2];
  for (const int v : {0, 1}) {
    for (std::int64_t j = 0; j < stride; ++j) {
      const auto& phase = phases[static_cast<std::size_t>(v)][static_cast<std::size_t>(j / first)];
      const std::complex<wide<T>> rounded(static_cast<T>(phase.real()), static_cast<T>(phase.imag()));
      const auto turn = k_quarter_turns[weight_quarters(first, static_cast<int>(j % first))];
      own[v].push_back(rounded * std::complex<wide<T>>(turn));
    }
  }
  for (std::size_t j = 0; j < own[0].size(); ++j) {
    for (const int v : {0, 1}) push(made.verify, own[v][j]);
  }
  if (p.stages == 1) {
    made.encode = made.verify;
    return made;
  }
  // The weights of every first-th output, where s is 1.
  std::vector<std::complex<wide<T>>> a[2];
  for (const int v : {0, 1}) {
    for (std::int64_t o = 0; o < p.length; o += first) {
      const auto weight = last_weight(p, static_cast<int>(o / stride), v);
      a[v].push_back(own[v][static_cast<std::size_t>(o % stride)] * std::complex<wide<T>>(weight));
    }
    a[v] = dft(std::move(a[v]));
  }
  const std::int64_t butterflies = p.length / first;
  for (std::int64_t j = 0; j < butterflies; ++j) {
    const auto middle = factors_by<wide<T>>.root(j * weight_centre(first), p.length);
    for (const auto& each : a) push(made.encode, middle * each[static_cast<std::size_t>(j)]);
  }
  for (std::int64_t j = 0; j < butterflies; ++j) push(made.encode, factors_by<wide<T>>.root(j, p.length));
  return made;
}

template struct table_source<float>;
template struct table_source<double>;
template twin_tables<float> make_twins(const std::string&, const std::function<std::vector<float>()>&, bool, int);
template twin_tables<double> make_twins(const std::string&, const std::function<std::vector<double>()>&, bool, int);

}  // namespace ballast::fft::cuda
