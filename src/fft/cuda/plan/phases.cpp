// Chooses the phases of the weights of checksums (policy/weights.hpp).
#include "fft/cuda/plan/phases.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "abft/weights.hpp"
#include "fft/cuda/policy/weights.hpp"
#include "fft/tables/checks.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft::cuda {

std::complex<double> quarter_turn(int quarters) {
  constexpr std::complex<double> all[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
  return all[quarters];
}

template <class W>
std::complex<W> series_turn(int radix, int power) {
  return fft::root_of_unity<W>(std::int64_t{k_series_turns[radix - 1]} * power, k_series_circle);
}
template std::complex<double> series_turn(int, int);
template std::complex<long double> series_turn(int, int);

template <class W>
std::complex<W> first_weight(int radix, int k) {
  return series_turn<W>(radix, k) * std::complex<W>(quarter_turn(weight_quarters(radix, k)));
}
template std::complex<double> first_weight(int, int);
template std::complex<long double> first_weight(int, int);

std::complex<double> last_weight(const line_policy& p, int k, int v) {
  const int radix = p.radix[p.stages - 1];
  const auto weight = quarter_turn(weight_quarters(radix, k, p.mirrors()));
  return v == 1 && weight_negative(radix, k, p.mirrors()) ? -weight : weight;
}

namespace {

// For lines whose outputs become the spectrum X of reals. Vector v sees X_o as a_o (1 + g) X_o + a_{N−o} ((1 − g) X_o)*, |g| = 1. If both
// terms have equal size, changes of one phase of X_o cancel. The second vector must have this blind spot at other phases. One of the two
// terms has the opposite sign there, which is enough unless β′/β also changes its sign between the butterflies of o and of N − o: those of
// ⌊j/r⌋ = m and of M − 1 − m, or, if r divides j, of M − m. So m = 0, M − 1, 1, M − 2, … are a chain of neighbours. Rotates the elements of
// `second` such that no quotient of neighbours is further than 3π/4 from 1.
void keep_near(const numbers& first, numbers& second) {
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
numbers flat_phases(const line_policy& p, std::int64_t count, int v, std::uint64_t seed, const numbers* first) {
  constexpr int iterations = 24;
  const int last = p.radix[p.stages - 1];
  numbers made;
  for (std::int64_t i = 0; i < count; ++i) {
    const abft::phase one = abft::random_phase(seed, static_cast<std::uint64_t>(v), static_cast<std::uint64_t>(i));
    made.emplace_back(one.re, one.im);
  }
  const auto size = static_cast<std::size_t>(count);
  for (int iteration = 0; iteration < iterations && count > 1; ++iteration) {
    numbers a;
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

// Returns the least response to a change of one number before a stage, from the last stage down to stage `lowest`, divided by the wanted
// response. A response is the larger change of the two checksums, divided by the root of the number of outputs that the change reaches;
// independent phases have the mean square 1. The wanted response is N^(−1/4) / 2, which all of N independent ones reach in 15 of 16 draws;
// before stage `flat`, where the response is one of the flat transforms, it is 0.4. Follows the weights of the outputs backwards.
double least_response(const line_policy& p, vector_phases weights, int lowest, int flat) {
  const std::int64_t n = p.length;
  double least = std::numeric_limits<double>::infinity(), reached = 1;
  for (int s = p.stages - 1; s >= lowest; --s) {
    const std::int64_t r = p.radix[s], before = p.before(s), apart = n / r;
    const double wanted = s == flat ? 0.4 : 0.5 / std::sqrt(std::sqrt(static_cast<double>(n)));
    reached *= static_cast<double>(r);
    numbers roots;
    for (std::int64_t i = 0; i < r; ++i) roots.push_back(fft::root_of_unity<double>(i, r));
    vector_phases earlier{numbers(static_cast<std::size_t>(n)), numbers(static_cast<std::size_t>(n))};
    for (std::int64_t row = 0; row < before; ++row) {
      for (std::int64_t k = 0; k < r; ++k) {
        const auto w = fft::root_of_unity<double>(row * k, before * r);
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

// The same for the numbers of a transform by the definition with these weights of its outputs: the inputs, whose response is one of the
// flat transforms, sums and differences of two inputs, and the cosine and sine terms of two outputs.
double least_response_by_definition(const vector_phases& weights) {
  const std::size_t n = weights[0].size();
  const double reached = std::sqrt(static_cast<double>(n));
  const double wanted = 0.5 / std::sqrt(reached);
  const vector_phases inputs{dft(numbers(weights[0])), dft(numbers(weights[1]))};
  const auto larger = [](const auto& response) { return std::max(std::abs(response(0)), std::abs(response(1))); };
  double least = larger([&](std::size_t v) { return inputs[v][0]; }) / reached / 0.4;
  for (std::size_t k = 1; k < n; ++k) {
    least = std::min(least, larger([&](std::size_t v) { return inputs[v][k]; }) / reached / 0.4);
    for (const double sign : {1.0, -1.0}) {
      least = std::min(least,
                       larger([&](std::size_t v) { return inputs[v][k] + sign * inputs[v][n - k]; }) / (std::sqrt(2) * reached) / wanted);
      least = std::min(least, larger([&](std::size_t v) { return weights[v][k] + sign * weights[v][n - k]; }) / std::sqrt(2) / wanted);
    }
  }
  return least;
}

// Returns the weights of all outputs of a line.
vector_phases line_weights(const line_policy& p, const vector_phases& phases) {
  const int first = p.stages == 1 ? 1 : p.radix[0];
  const std::int64_t stride = p.length / p.radix[p.stages - 1];
  vector_phases weights;
  for (const int v : {0, 1}) {
    auto& of = weights[static_cast<std::size_t>(v)];
    for (std::int64_t o = 0; o < p.length; ++o) {
      const std::int64_t j = o % stride;
      of.push_back(phases[static_cast<std::size_t>(v)][static_cast<std::size_t>(j / first)] *
                   first_weight<double>(first, static_cast<int>(j % first)) * last_weight(p, static_cast<int>(o / stride), v));
    }
  }
  return weights;
}

// Returns random phases.
numbers drawn(std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  numbers made;
  for (std::int64_t i = 0; i < count; ++i) {
    const abft::phase one = abft::random_phase(seed, stream, static_cast<std::uint64_t>(i));
    made.emplace_back(one.re, one.im);
  }
  return made;
}

// Returns the values of Σ aᵢ zⁱ at `points` points around the unit circle.
numbers around(const numbers& a, std::size_t points) {
  numbers padded = a;
  padded.resize(points);
  return dft(std::move(padded));
}

// Changes phases until the polynomials with these coefficients are flat around the unit circle, by alternating projections as above: each
// by itself, or, `jointly`, the root of the sum of their squares. Two points for each coefficient suffice.
void flatten(vector_phases& a, bool jointly) {
  constexpr int iterations = 48;
  const std::size_t count = a[0].size(), points = 2 * count;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    std::array<numbers, 2> at{around(a[0], points), around(a[1], points)};
    for (std::size_t i = 0; i < points; ++i) {
      const double both = std::sqrt(std::norm(at[0][i]) + std::norm(at[1][i]));
      for (auto& each : at) {
        const double size = jointly ? both : std::abs(each[i]);
        each[i] = std::conj(size > 1e-9 ? each[i] / size : std::complex<double>(1));
      }
    }
    for (const std::size_t v : {0u, 1u}) {
      const numbers back = dft(std::move(at[v]));  // the conjugate of the inverse transform
      for (std::size_t i = 0; i < count; ++i) {
        if (std::abs(back[i]) > 1e-9) a[v][i] = std::conj(back[i] / std::abs(back[i]));
      }
    }
  }
}

// Returns the weights multiplied by w_n^{o · fraction}, as the factors after a pass do it for column fraction · columns.
vector_phases turned(const vector_phases& weights, double fraction) {
  vector_phases made = weights;
  const double angle = -2 * std::numbers::pi * fraction / static_cast<double>(weights[0].size());
  for (auto& each : made) {
    for (std::size_t o = 0; o < each.size(); ++o) each[o] *= std::polar(1.0, angle * static_cast<double>(o));
  }
  return made;
}

// Returns how flat the transform of the weights of one vector is over `points` points, divided by what is wanted: between 0.5 and 1.8 of
// the root mean square.
double flatness(const numbers& weights, std::size_t points) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const auto& z : around(weights, points)) {
    least = std::min(least, std::abs(z));
    most = std::max(most, std::abs(z));
  }
  const double mean = std::sqrt(static_cast<double>(weights.size()));
  return std::min(least / (0.5 * mean), 1.8 * mean / most);
}

// Draws with `make` until least(drawn) is 1. Returns the best of 16 draws if it never is.
template <class Make, class Least>
vector_phases best_draw(const Make& make, const Least& least) {
  constexpr std::uint64_t draws = 16;
  vector_phases best = make(0);
  double most = least(best);
  for (std::uint64_t draw = 1; draw < draws && most < 1; ++draw) {
    vector_phases tried = make(draw);
    const double here = least(tried);
    if (here <= most) continue;
    most = here;
    best = std::move(tried);
  }
  return best;
}

}  // namespace

vector_phases first_pass_phases(const line_policy& p) {
  const auto make = [&](std::uint64_t draw) {
    const std::int64_t count = p.length / p.radix[0];
    vector_phases made{drawn(count, k_weight_seed + draw, 2), drawn(count, k_weight_seed + draw, 3)};
    flatten(made, true);
    return made;
  };
  return best_draw(make, [&](const vector_phases& tried) {
    double least = std::numeric_limits<double>::infinity();
    for (const double fraction : {0.0, 0.25, 0.5, 0.75})
      least = std::min(least, least_response(p, turned(first_pass_weights(p, tried), fraction), 1, 1));
    return least;
  });
}

vector_phases first_pass_weights(const line_policy& p, const vector_phases& phases) {
  const int first = p.radix[0];
  vector_phases made;
  for (const std::size_t v : {0u, 1u}) {
    for (int o = 0; o < p.length; ++o)
      made[v].push_back(phases[v][static_cast<std::size_t>(o / first)] * first_weight<double>(first, o % first));
  }
  return made;
}

vector_phases middle_pass_phases(const line_policy& p) {
  const auto make = [&](std::uint64_t draw) {
    vector_phases made{drawn(p.length, k_weight_seed + draw, 4), drawn(p.length, k_weight_seed + draw, 5)};
    flatten(made, false);
    return made;
  };
  return best_draw(make, [&](const vector_phases& tried) {
    double least = std::min(flatness(tried[0], 8 * tried[0].size()), flatness(tried[1], 8 * tried[1].size()));
    for (const double fraction : {0.0, 0.25, 0.5, 0.75}) least = std::min(least, least_response(p, turned(tried, fraction), 1, -1));
    return least;
  });
}

vector_phases last_pass_phases(const line_policy& p) {
  const std::int64_t count = p.length / p.radix[p.stages - 1];
  const auto make = [&](std::uint64_t draw) {
    return vector_phases{flat_phases(p, count, 0, k_weight_seed + draw, nullptr), flat_phases(p, count, 1, k_weight_seed + draw, nullptr)};
  };
  return best_draw(make, [&](const vector_phases& tried) {
    const vector_phases weights = last_pass_weights(p, tried);
    const auto points = static_cast<std::size_t>(p.length);
    return std::min({flatness(weights[0], points), flatness(weights[1], points), least_response(p, weights, 1, -1)});
  });
}

vector_phases last_pass_weights(const line_policy& p, const vector_phases& phases) {
  const std::int64_t stride = p.length / p.radix[p.stages - 1];
  vector_phases made;
  for (const int v : {0, 1}) {
    const auto at = static_cast<std::size_t>(v);
    for (std::int64_t o = 0; o < p.length; ++o)
      made[at].push_back(phases[at][static_cast<std::size_t>(o % stride)] * last_weight(p, static_cast<int>(o / stride), v));
  }
  return made;
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
    // The transforms by the definition of one line have the same weights, up to a factor.
    const double least = p.by_definition() ? least_response_by_definition(tried) : least_response(p, line_weights(p, tried), 1, 1);
    if (least > most) {
      most = least;
      best = std::move(tried);
    }
  }
  return best;
}

}  // namespace ballast::fft::cuda
