// Computes tables in more precision than the data (fft/tables/extended_precision_dft.hpp).
#include "fft/cuda/plan/tables.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <utility>

#include <ballast/error.hpp>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "core/parallel.hpp"
#include "fft/cuda/plan/phases.hpp"
#include "fft/cuda/policy/weights.hpp"

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
  if (p.by_definition()) {
    const int points = p.definition_points(), half = points / 2;
    for (int first = 0; first <= half; first += k_definition_pairs) {
      for (int k = 1; k <= half; ++k) {
        for (int m = first; m < first + k_definition_pairs; ++m)
          push(made, m <= half ? factors_by<wide<T>>.root(m * k, points) : std::complex<wide<T>>(0));
      }
    }
    for (int k = 1; k < p.radix[0]; ++k) {
      for (int j = 0; j < points; ++j) push(made, factors_by<wide<T>>.root(j * k, p.length));
    }
    return made;
  }
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
      own[v].push_back(multiply(rounded, first_weight<wide<T>>(first, static_cast<int>(j % first))));
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
    const auto middle =
        multiply(factors_by<wide<T>>.root(j * weight_centre(first), p.length), series_turn<wide<T>>(first, weight_centre(first)));
    for (const auto& each : a) push(made.encode, middle * each[static_cast<std::size_t>(j)]);
  }
  for (std::int64_t j = 0; j < butterflies; ++j)
    push(made.encode, multiply(factors_by<wide<T>>.root(j, p.length), series_turn<wide<T>>(first, 1)));
  return made;
}

namespace {

// Returns the numbers in extended precision, rounded to T before.
template <class T>
std::vector<std::complex<wide<T>>> rounded(const std::vector<std::complex<double>>& from) {
  std::vector<std::complex<wide<T>>> made;
  made.reserve(from.size());
  for (const auto& z : from) made.emplace_back(static_cast<T>(z.real()), static_cast<T>(z.imag()));
  return made;
}

}  // namespace

template <class T>
end_to_end_phases table_source<T>::end_to_end_phases_of(const std::vector<line_policy>& passes) {
  end_to_end_phases made;
  made.first = first_pass_phases(passes.front());
  if (passes.size() == 3) made.middle = middle_pass_phases(passes[1]);
  made.last = last_pass_phases(passes.back());
  return made;
}

template <class T>
std::vector<T> table_source<T>::end_to_end_encode(const std::vector<line_policy>& passes, const end_to_end_phases& phases) {
  using number = std::complex<wide<T>>;
  const line_policy& first = passes.front();
  std::int64_t n = 1;
  for (const line_policy& each : passes) n *= each.length;
  const std::int64_t rest = n / first.length, butterflies = n / first.radix[0];
  std::vector<number> a[2], b[2];
  for (const std::size_t v : {0u, 1u}) {
    a[v] = rounded<T>(phases.first[v]);
    a[v].resize(static_cast<std::size_t>(butterflies));
    a[v] = dft(std::move(a[v]));
    const auto last = rounded<T>(last_pass_weights(passes.back(), phases.last)[v]);
    const auto middle = passes.size() == 3 ? rounded<T>(phases.middle[v]) : std::vector<number>{number(1)};
    b[v].reserve(static_cast<std::size_t>(rest));
    for (const number& outer : last) {
      for (const number& inner : middle) b[v].push_back(inner * outer);
    }
    b[v] = dft(std::move(b[v]));
  }
  std::vector<T> made;
  made.reserve(static_cast<std::size_t>(6 * butterflies));
  for (std::int64_t p = 0; p < butterflies; ++p) {
    const int centre = weight_centre(first.radix[0]);
    const number power = multiply(factors_by<wide<T>>.root(p * centre, n), series_turn<wide<T>>(first.radix[0], centre));
    for (const std::size_t v : {0u, 1u}) push(made, power * a[v][static_cast<std::size_t>(p)] * b[v][static_cast<std::size_t>(p % rest)]);
  }
  for (std::int64_t p = 0; p < butterflies; ++p)
    push(made, multiply(factors_by<wide<T>>.root(p, n), series_turn<wide<T>>(first.radix[0], 1)));
  return made;
}

template <class T>
std::vector<T> table_source<T>::end_to_end_verify(const std::vector<line_policy>& passes, const end_to_end_phases& phases) {
  const line_policy& last = passes.back();
  std::vector<T> made;
  for (std::int64_t j = 0; j < last.length / last.radix[last.stages - 1]; ++j) {
    for (const numbers& each : phases.last) push(made, each[static_cast<std::size_t>(j)]);
  }
  return made;
}

template <class T>
std::vector<T> table_source<T>::end_to_end_lines(const std::vector<line_policy>& passes, const end_to_end_phases& phases) {
  const vector_phases first = first_pass_weights(passes.front(), phases.first);
  std::vector<T> made;
  for (std::int64_t middle = 0; middle < (passes.size() == 3 ? passes[1].length : 1); ++middle) {
    for (std::int64_t column = 0; column < passes.front().length; ++column) {
      for (const std::size_t v : {0u, 1u}) {
        const auto outer = rounded<T>({first[v][static_cast<std::size_t>(column)]}).front();
        const auto inner =
            passes.size() == 3 ? rounded<T>({phases.middle[v][static_cast<std::size_t>(middle)]}).front() : std::complex<wide<T>>(1);
        push(made, outer * inner);
      }
    }
  }
  return made;
}

template struct table_source<float>;
template struct table_source<double>;
template twin_tables<float> make_twins(const std::string&, const std::function<std::vector<float>()>&, bool, int);
template twin_tables<double> make_twins(const std::string&, const std::function<std::vector<double>()>&, bool, int);

}  // namespace ballast::fft::cuda
