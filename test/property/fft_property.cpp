// Properties of every transform: linearity, Parseval, round trip, shift, symmetry of real spectra, agreement of the backends, rounding,
// tokens; and that protection changes no bit of the result.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "fft/tables/extended_precision_dft.hpp"
#include "support/fft_subject.hpp"

namespace ballast::fft {
namespace {

using values = std::vector<std::complex<double>>;

constexpr double k_tolerance = 1e-13;  // 3·u·√log₂N stays below 2·10⁻¹⁵ here; sums of a few transforms stay below this

std::vector<std::int64_t> drawn_shape() {
  std::vector<std::int64_t> shape;
  const int rank = *rc::gen::resize(100, rc::gen::inRange(1, 4));
  for (int i = 0; i < rank; ++i) shape.push_back(*rc::gen::resize(100, rc::gen::inRange<std::int64_t>(1, rank == 1 ? 3000 : 40)));
  return shape;
}

std::int64_t points_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

values signal_of(std::int64_t count) {
  values x;
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  std::uint64_t state = seed;
  const auto next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) * 0x1p-53 - 0.5;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const double re = next();
    x.emplace_back(re, next());
  }
  return x;
}

double norm_of(const values& x) {
  double squares = 0;
  for (const auto& z : x) squares += std::norm(z);
  return std::sqrt(squares);
}

double distance(const values& x, const values& y) {
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) squares += std::norm(x[i] - y[i]);
  return std::sqrt(squares);
}

execution on(backend where, protection guard = protection::correct) {
  execution how;
  how.backend = where;
  how.protection = guard;
  how.threads = 1 + *rc::gen::inRange(0, 3);
  return how;
}

values forward(const plan& by, const values& x) {
  values y(x.size());
  RC_ASSERT(by.forward(x, y).verdict == verdict::clean);
  return y;
}

values inverse(const plan& by, const values& x) {
  values y(x.size());
  RC_ASSERT(by.inverse(x, y).verdict == verdict::clean);
  return y;
}

problem complex_problem(const std::vector<std::int64_t>& shape, std::int64_t batch = 1, norm factor = norm::backward) {
  return {.kind = kind::c2c, .precision = precision::f64, .shape = shape, .batch = batch, .norm = factor};
}

RC_GTEST_PROP(fft_property, is_linear, ()) {
  const auto shape = drawn_shape();
  const plan by(complex_problem(shape), on(backend::cpu));
  const auto x = signal_of(points_of(shape)), z = signal_of(points_of(shape));
  const std::complex<double> alpha(0.3, -1.7);
  values mixed;
  for (std::size_t i = 0; i < x.size(); ++i) mixed.push_back(x[i] + alpha * z[i]);
  const auto a = forward(by, x), b = forward(by, z), c = forward(by, mixed);
  values sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + alpha * b[i]);
  RC_ASSERT(distance(c, sum) <= k_tolerance * norm_of(c));
}

RC_GTEST_PROP(fft_property, keeps_the_norm_and_comes_back, ()) {
  const auto shape = drawn_shape();
  const std::int64_t batch = *rc::gen::inRange<std::int64_t>(1, 20);
  const plan by(complex_problem(shape, batch, norm::ortho), on(*rc::gen::element(backend::cpu, backend::reference)));
  const auto x = signal_of(points_of(shape) * batch);
  const auto y = forward(by, x);
  RC_ASSERT(std::abs(norm_of(y) - norm_of(x)) <= k_tolerance * norm_of(x));
  RC_ASSERT(distance(inverse(by, y), x) <= k_tolerance * norm_of(x));
}

RC_GTEST_PROP(fft_property, backends_agree_and_protection_changes_no_bit, ()) {
  const auto shape = drawn_shape();
  const std::int64_t batch = *rc::gen::inRange<std::int64_t>(1, 20);
  const auto x = signal_of(points_of(shape) * batch);
  const auto fast = forward(plan(complex_problem(shape, batch), on(backend::cpu)), x);
  RC_ASSERT(fast == forward(plan(complex_problem(shape, batch), on(backend::cpu, protection::off)), x));
  RC_ASSERT(distance(fast, forward(plan(complex_problem(shape, batch), on(backend::reference)), x)) <= k_tolerance * norm_of(fast));
}

RC_GTEST_PROP(fft_property, a_shift_becomes_a_phase, ()) {
  const std::int64_t n = *rc::gen::inRange<std::int64_t>(1, 3000);
  const std::int64_t shift = *rc::gen::inRange<std::int64_t>(0, n);
  const plan by(complex_problem({n}), on(backend::cpu));
  const auto x = signal_of(n);
  values shifted(x.size());
  for (std::int64_t j = 0; j < n; ++j) shifted[static_cast<std::size_t>((j + shift) % n)] = x[static_cast<std::size_t>(j)];
  auto y = forward(by, x);
  for (std::int64_t k = 0; k < n; ++k) {
    const double angle = -2 * M_PI * static_cast<double>(k * shift % n) / static_cast<double>(n);
    y[static_cast<std::size_t>(k)] *= std::complex<double>(std::cos(angle), std::sin(angle));
  }
  RC_ASSERT(distance(forward(by, shifted), y) <= k_tolerance * norm_of(y));
}

RC_GTEST_PROP(fft_property, real_data_have_half_a_spectrum, ()) {
  const auto shape = drawn_shape();
  const std::int64_t n = shape.back(), half = n / 2 + 1, rows = points_of(shape) / n;
  const auto raw = signal_of(points_of(shape));
  std::vector<double> x;
  values full;
  for (const auto& z : raw) {
    x.push_back(z.real());
    full.emplace_back(z.real(), 0);
  }
  full = forward(plan(complex_problem(shape), on(backend::cpu)), full);
  values got(static_cast<std::size_t>(rows * half)), wanted;
  for (std::int64_t r = 0; r < rows; ++r) wanted.insert(wanted.end(), full.begin() + r * n, full.begin() + r * n + half);
  problem p = complex_problem(shape);
  p.kind = kind::r2c;
  RC_ASSERT(plan(p, on(backend::cpu)).forward(x, got).verdict == verdict::clean);
  RC_ASSERT(distance(got, wanted) <= k_tolerance * (norm_of(wanted) + 1e-30));
  p.kind = kind::c2r;
  std::vector<double> back(x.size());
  RC_ASSERT(plan(p, on(backend::cpu)).inverse(got, back).verdict == verdict::clean);
  for (std::size_t i = 0; i < x.size(); ++i) RC_ASSERT(std::abs(back[i] - x[i]) <= k_tolerance);
}

// The error that the cpu backend does not exceed, as the root of the mean of (‖y − ŷ‖₂/‖y‖₂)² over signals of noise: c·u·√log₂n, from
// roundings that are independent and as many for each of the log₂n doublings. The constants are just above the largest of all lengths up to
// 2500, of three kinds and two precisions: 0.813 (2187), with larger prime factors that are butterflies, whose long sums are sums of short
// ones, 0.734 (2052), with those that are convolutions, two transforms and two or three products, 1.260 (1087).
double rounding_bound(std::int64_t n, double unit) {
  const std::int64_t largest = prime_factors(n).back();
  const double c = largest > k_largest_direct_prime ? 1.28 : largest > 13 ? 0.75 : 0.83;
  return c * unit * std::sqrt(std::log2(static_cast<double>(n)));
}

// Over so many signals that the root of the mean is known to a few percent.
template <class T>
double rounding_of(kind what, std::int64_t n) {
  const std::int64_t batch = std::max<std::int64_t>(4, 6000 / n);
  problem p{.kind = what, .precision = sizeof(T) == 4 ? precision::f32 : precision::f64, .shape = {n}, .batch = batch};
  p.norm = what == kind::c2r ? norm::forward : norm::backward;  // no factor
  const test::subject<T> given(p, what == kind::c2r ? direction::inverse : direction::forward, static_cast<std::uint64_t>(n));
  execution how;
  how.backend = backend::cpu;
  how.protection = protection::off;
  std::vector<T> out = given.fresh();
  (void)given.run(plan(p, how), out);
  double squares = 0;
  for (std::int64_t b = 0; b < batch; ++b) squares += std::pow(given.error(out, b), 2);
  return std::sqrt(squares / static_cast<double>(batch)) / rounding_bound(n, test::unit_roundoff(p.precision));
}

double rounding_of(kind what, precision type, std::int64_t n) {
  return type == precision::f32 ? rounding_of<float>(what, n) : rounding_of<double>(what, n);
}

RC_GTEST_PROP(fft_property, rounds_within_its_bound, ()) {
  const std::int64_t n = *rc::gen::resize(100, rc::gen::inRange<std::int64_t>(2, 2500));
  const kind what = *rc::gen::element(kind::c2c, kind::r2c, kind::c2r);
  const precision type = *rc::gen::element(precision::f32, precision::f64);
  RC_ASSERT(rounding_of(what, type, n) <= 1);
}

// Long butterflies, prime factors beyond them, powers of 3.
TEST(fft_accuracy, of_lengths_that_are_hard) {
  for (const std::int64_t n : {27, 53, 59, 61, 67, 101, 107, 113, 134, 201, 243, 404, 601, 1201, 1801, 2003}) {
    for (const kind what : {kind::c2c, kind::r2c, kind::c2r}) {
      for (const precision type : {precision::f32, precision::f64})
        EXPECT_LE(rounding_of(what, type, n), 1) << to_string(what) << " " << to_string(type) << " " << n;
    }
  }
}

RC_GTEST_PROP(fft_property, tokens_come_back, ()) {
  problem p = complex_problem(drawn_shape(), *rc::gen::inRange<std::int64_t>(1, 100000));
  p.kind = *rc::gen::element(kind::c2c, kind::r2c, kind::c2r);
  p.precision = *rc::gen::element(precision::f32, precision::f64);
  const direction way = p.kind == kind::r2c   ? direction::forward
                        : p.kind == kind::c2r ? direction::inverse
                                              : *rc::gen::element(direction::forward, direction::inverse);
  const token read = parse_token(to_token(p, way));
  RC_ASSERT(read.problem.kind == p.kind && read.problem.precision == p.precision && read.problem.shape == p.shape &&
            read.problem.batch == p.batch && read.direction == way);
}

RC_GTEST_PROP(fft_property, any_text_is_a_token_or_an_error, (const std::string& text)) {
  try {
    const token read = parse_token(text);
    RC_ASSERT(to_token(read.problem, read.direction) == text);
  } catch (const invalid_argument_error&) {
  }
}

}  // namespace
}  // namespace ballast::fft
