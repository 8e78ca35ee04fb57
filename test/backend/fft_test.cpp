// The FFT on every backend against the same transform in more precision: accuracy by length, kinds, layouts, norms, directions,
// Inf and NaN, refused arguments; then faults at every site, and clean data of every kind without a false alarm.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "backend/fft_reference.hpp"
#include "inject/plan.hpp"

namespace ballast::fft {
namespace {

const backend k_backends[] = {backend::reference, backend::cpu};

execution on(backend where, protection guard = protection::correct, int threads = 1) {
  execution how;
  how.backend = where;
  how.protection = guard;
  how.threads = threads;
  how.throw_on_uncorrectable = false;
  return how;
}

template <class T>
class fft_backend : public testing::Test {};
using precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(fft_backend, precisions);

// ---- Accuracy ----

TYPED_TEST(fft_backend, every_length_is_accurate) {
  using T = TypeParam;
  const std::int64_t step = test::sampled() ? 37 : 1;
  double worst = 0;
  for (std::int64_t n = 1; n <= 4096; n += n < 130 ? 1 : step) {
    const auto x = noise<T>(n * 2, static_cast<std::uint64_t>(n));
    const auto wanted = dft(widen<T>(signal<T>(x.begin(), x.begin() + n)));
    signal<T> y(x.size());
    for (const backend where : k_backends) {
      if (where == backend::reference && n > 700 && n % 61 != 0) continue;
      // Protection changes no bit (see below); its weights in extended precision would take most of the time here.
      const bool guard = sizeof(T) == 4 ? n <= 1024 || n % 4 == 0 : n <= 200 || n % 32 == 0;
      const plan made(line_problem<T>(n, 2), on(where, guard ? protection::correct : protection::off));
      const report seen = made.forward(x, y);
      ASSERT_EQ(seen.verdict, verdict::clean) << n << " " << to_string(where) << " " << to_json(seen);
      ASSERT_EQ(seen.backend, where);
      const double e = error<T>(y.data(), wanted);
      worst = std::max(worst, e / bound<T>(n));
      ASSERT_LE(e, bound<T>(n)) << n << " " << to_string(where);
    }
  }
  this->RecordProperty("worst_over_bound", fmt::format("{:.3f}", worst));
}

TYPED_TEST(fft_backend, long_lines_are_accurate_both_ways) {
  using T = TypeParam;
  std::vector<std::int64_t> lengths = {8192, 10007, 65537, 65536, 20014, 60060};
  if (!test::sampled()) lengths.insert(lengths.end(), {std::int64_t{1} << 20});
  if (!test::sampled() && sizeof(T) == 4) lengths.insert(lengths.end(), {1000003, 531441, 1000000, 823543, 4093 * 67});
  for (const std::int64_t n : lengths) {
    const auto x = noise<T>(n, static_cast<std::uint64_t>(n));
    const auto wanted = dft(widen<T>(x));
    signal<T> y(x.size()), back(x.size());
    const plan made(line_problem<T>(n), on(backend::cpu, protection::correct, 2));
    report seen = made.forward(x, y);
    ASSERT_EQ(seen.verdict, verdict::clean) << n << to_json(seen);
    EXPECT_LE(error<T>(y.data(), wanted), bound<T>(n)) << n;
    seen = made.inverse(y, back);
    ASSERT_EQ(seen.verdict, verdict::clean) << n << to_json(seen);
    EXPECT_LE(error<T>(back.data(), widen<T>(x)), 2 * bound<T>(n)) << n;
    seen = made.forward(back, back);
    ASSERT_EQ(seen.verdict, verdict::clean) << n << to_json(seen);
    EXPECT_LE(error<T>(back.data(), wanted), 3 * bound<T>(n)) << n;
  }
}

TYPED_TEST(fft_backend, many_long_lines_are_accurate) {
  using T = TypeParam;
  const std::int64_t n = 4096, batch = test::sampled() ? 20 : 300;
  const auto x = noise<T>(n * batch, 17);
  signal<T> y(x.size());
  const report seen = plan(line_problem<T>(n, batch), on(backend::cpu, protection::correct, 2)).forward(x, y);
  ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
  for (const std::int64_t b : {std::int64_t{0}, batch / 2, batch - 1}) {
    const auto wanted = dft(widen<T>(signal<T>(x.begin() + b * n, x.begin() + (b + 1) * n)));
    EXPECT_LE(error<T>(y.data() + b * n, wanted), bound<T>(n)) << b;
  }
}

// ---- Kinds, shapes, layouts ----

struct shape_case {
  std::vector<std::int64_t> shape;
  std::int64_t batch;
};

const std::vector<shape_case> k_shapes = {
    {{1}, 3},     {{2}, 5},     {{7}, 20},        {{8}, 40},        {{30}, 17},      {{64}, 33},        {{101}, 9},     {{360}, 18},
    {{1000}, 3},  {{4096}, 5},  {{8192}, 2},      {{6000}, 2},      {{8, 8}, 5},     {{33, 20}, 3},     {{20, 33}, 2},  {{64, 96}, 2},
    {{1, 40}, 3}, {{40, 1}, 3}, {{17, 5, 12}, 2}, {{6, 34, 18}, 2}, {{3, 1, 20}, 2}, {{16, 32, 64}, 1}, {{2, 3, 7}, 4}, {{5001}, 2}};

TYPED_TEST(fft_backend, complex_shapes_directions_norms_in_place_and_threads) {
  using T = TypeParam;
  for (const shape_case& c : k_shapes) {
    const std::int64_t points = product(c.shape);
    const auto x = noise<T>(points * c.batch, 7);
    for (const bool inverse : {false, true}) {
      exact<T> wanted;
      for (std::int64_t b = 0; b < c.batch; ++b) {
        const auto one = dft_of_volume<T>(exact<T>(x.begin() + b * points, x.begin() + (b + 1) * points), c.shape, inverse);
        wanted.insert(wanted.end(), one.begin(), one.end());
      }
      for (const backend where : k_backends) {
        for (const norm factor : {norm::backward, norm::ortho, norm::forward}) {
          problem p{.kind = kind::c2c, .precision = precision_of<T>, .shape = c.shape, .batch = c.batch, .norm = factor};
          const std::string name = to_token(p, inverse ? direction::inverse : direction::forward) + " " + std::string(to_string(where));
          const double whole = factor == norm::ortho                  ? 1 / std::sqrt(static_cast<double>(points))
                               : (factor == norm::forward) != inverse ? 1.0 / points
                                                                      : 1.0;
          signal<T> first;
          for (const int threads : {1, 2, 3}) {
            const plan made(p, on(where, protection::correct, threads));
            signal<T> y(x.size(), T(99)), z = x;
            const report seen = inverse ? made.inverse(x, y) : made.forward(x, y);
            EXPECT_EQ(seen.verdict, verdict::clean) << name << to_json(seen);
            EXPECT_GT(seen.checks, 0u);
            EXPECT_EQ(seen.problem, to_token(p, inverse ? direction::inverse : direction::forward));
            ASSERT_LE(error<T>(y.data(), wanted, whole), bound<T>(points) + 2 * u<T>) << name;
            const report again = inverse ? made.inverse(z, z) : made.forward(z, z);
            EXPECT_EQ(again.verdict, verdict::clean) << name;
            EXPECT_EQ(z, y) << name << " in place";
            if (threads == 1) first = y;
            EXPECT_EQ(first, y) << name << " with " << threads << " threads";
            const plan bare(p, on(where, protection::off, threads));
            const report unseen = inverse ? bare.inverse(x, z) : bare.forward(x, z);
            EXPECT_EQ(unseen.checks, 0u);
            EXPECT_EQ(z, y) << name << " unprotected";
          }
        }
      }
    }
  }
}

TYPED_TEST(fft_backend, real_kinds_out_of_place_and_in_place) {
  using T = TypeParam;
  for (const shape_case& c : k_shapes) {
    const std::int64_t points = product(c.shape);
    const std::int64_t n = c.shape.back();
    const std::int64_t half = n / 2 + 1;
    const std::int64_t rows = points / n;
    const auto raw = noise<T>(points * c.batch, 9);
    std::vector<T> x;
    for (const auto& z : raw) x.push_back(z.real());
    for (const backend where : k_backends) {
      problem forward{.kind = kind::r2c, .precision = precision_of<T>, .shape = c.shape, .batch = c.batch};
      problem back{.kind = kind::c2r, .precision = precision_of<T>, .shape = c.shape, .batch = c.batch};
      const std::string name = to_token(forward, direction::forward) + " " + std::string(to_string(where));
      const plan there(forward, on(where, protection::correct, 2));
      const plan here(back, on(where, protection::correct, 2));
      signal<T> y(static_cast<std::size_t>(rows * half * c.batch));
      const report seen = there.forward(x, y);
      EXPECT_EQ(seen.verdict, verdict::clean) << name << to_json(seen);
      for (std::int64_t b = 0; b < c.batch; ++b) {
        const auto full = dft_of_volume<T>(exact<T>(x.begin() + b * points, x.begin() + (b + 1) * points), c.shape, false);
        exact<T> wanted;
        for (std::int64_t r = 0; r < rows; ++r) wanted.insert(wanted.end(), full.begin() + r * n, full.begin() + r * n + half);
        ASSERT_LE(error<T>(y.data() + b * rows * half, wanted), 1.5 * bound<T>(points) + u<T>) << name << " signal " << b;
      }
      std::vector<T> z(x.size());
      // The imaginary parts that must vanish are ignored, whatever is there.
      auto dirty = y;
      if (c.shape.size() == 1) {
        for (std::int64_t b = 0; b < c.batch; ++b) dirty[static_cast<std::size_t>(b * half)].imag(T(1e6));
      }
      const report returned = here.inverse(dirty, z);
      EXPECT_EQ(returned.verdict, verdict::clean) << name << to_json(returned);
      double difference = 0, size = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        difference += std::pow(static_cast<double>(x[i]) - static_cast<double>(z[i]), 2);
        size += std::pow(static_cast<double>(x[i]), 2);
      }
      ASSERT_LE(std::sqrt(difference / size), 3 * bound<T>(points) + 3 * u<T>) << name;

      // In place: rows padded to 2 · half reals.
      std::vector<std::int64_t> real_strides(c.shape.size(), 1), complex_strides(c.shape.size(), 1);
      std::int64_t stride = half;
      for (std::size_t axis = c.shape.size() - 1; axis-- > 0;) {
        complex_strides[axis] = stride;
        real_strides[axis] = 2 * stride;
        stride *= c.shape[axis];
      }
      const layout real_side{real_strides, 2 * rows * half}, complex_side{complex_strides, rows * half};
      forward.input = back.output = real_side;
      forward.output = back.input = complex_side;
      std::vector<T> memory(static_cast<std::size_t>(2 * rows * half * c.batch));
      for (std::int64_t r = 0; r < rows * c.batch; ++r) std::copy_n(x.begin() + r * n, n, memory.begin() + r * 2 * half);
      auto* const as_complex = reinterpret_cast<std::complex<T>*>(memory.data());
      const std::span<std::complex<T>> spectrum(as_complex, memory.size() / 2);
      EXPECT_EQ(plan(forward, on(where)).forward(std::span<const T>(memory), spectrum).verdict, verdict::clean) << name;
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(spectrum[i], y[i]) << name << " in place " << i;
      EXPECT_EQ(plan(back, on(where)).inverse(std::span<const std::complex<T>>(spectrum), std::span<T>(memory)).verdict, verdict::clean)
          << name;
      for (std::int64_t r = 0; r < rows * c.batch; ++r) {
        for (std::int64_t k = 0; k < n; ++k)
          ASSERT_NEAR(memory[static_cast<std::size_t>(r * 2 * half + k)], x[static_cast<std::size_t>(r * n + k)],
                      40 * u<T> * std::sqrt(std::log2(points + 2.0)))
              << name;
      }
    }
  }
}

TYPED_TEST(fft_backend, strides_and_distances_touch_nothing_else) {
  using T = TypeParam;
  struct strided {
    std::vector<std::int64_t> shape;
    std::int64_t batch;
    layout in, out;
  };
  const strided cases[] = {
      {{60}, 21, {{1}, 64}, {{3}, 200}},
      {{60}, 21, {{21}, 1}, {{21}, 1}},
      {{60}, 21, {{2}, 130}, {{40}, 1}},
      {{9000}, 2, {{2}, 18001}, {{3}, 27001}},
      {{9000}, 2, {{1}, 9000}, {{2}, 1}},
      {{12, 20}, 3, {{25, 1}, 320}, {{2, 30}, 700}},
      {{5, 12, 20}, 2, {{300, 25, 1}, 1600}, {{1, 6, 80}, 1700}},
      {{67}, 20, {{20}, 1}, {{1}, 67}},
      {{10007}, 1, {{2}, 0}, {{1}, 0}},
  };
  for (const strided& c : cases) {
    for (const kind what : {kind::c2c, kind::r2c, kind::c2r}) {
      const bool real_in = what == kind::r2c, real_out = what == kind::c2r;
      problem tight{.kind = what, .precision = precision_of<T>, .shape = c.shape, .batch = c.batch};
      problem loose = tight;
      loose.input = c.in;
      loose.output = c.out;
      auto in_shape = c.shape, out_shape = c.shape;
      if (real_out) in_shape.back() = in_shape.back() / 2 + 1;
      if (real_in) out_shape.back() = out_shape.back() / 2 + 1;
      const std::int64_t in_points = product(in_shape), out_points = product(out_shape);
      const auto x = noise<T>(in_points * c.batch, 5);
      // Element i of a signal of the given shape lies at …
      const auto where = [](std::int64_t i, const std::vector<std::int64_t>& shape, const layout& l, std::int64_t b) {
        std::int64_t at = b * l.distance;
        for (std::size_t axis = shape.size(); axis-- > 0; i /= shape[axis]) at += i % shape[axis] * l.strides[axis];
        return static_cast<std::size_t>(at);
      };
      std::size_t in_extent = 0, out_extent = 0;
      for (std::int64_t b = 0; b < c.batch; ++b) {
        in_extent = std::max(in_extent, where(in_points - 1, in_shape, c.in, b) + 1);
        out_extent = std::max(out_extent, where(out_points - 1, out_shape, c.out, b) + 1);
      }
      for (const backend run_on : k_backends) {
        signal<T> dense(static_cast<std::size_t>(out_points * c.batch)), spread(in_extent), out(out_extent, T(77));
        std::vector<T> real_in_dense, real_spread(in_extent), real_dense(dense.size()), real_out_spread(out_extent, T(77));
        for (const auto& z : x) real_in_dense.push_back(z.real());
        for (std::int64_t b = 0; b < c.batch; ++b) {
          for (std::int64_t i = 0; i < in_points; ++i) {
            spread[where(i, in_shape, c.in, b)] = x[static_cast<std::size_t>(b * in_points + i)];
            real_spread[where(i, in_shape, c.in, b)] = x[static_cast<std::size_t>(b * in_points + i)].real();
          }
        }
        const plan a(tight, on(run_on)), l(loose, on(run_on, protection::correct, 2));
        if (what == kind::c2c) {
          EXPECT_EQ(a.inverse(x, dense).verdict, verdict::clean);
          EXPECT_EQ(l.inverse(spread, out).verdict, verdict::clean);
        } else if (real_in) {
          EXPECT_EQ(a.forward(real_in_dense, dense).verdict, verdict::clean);
          EXPECT_EQ(l.forward(real_spread, out).verdict, verdict::clean);
        } else {
          EXPECT_EQ(a.inverse(x, real_dense).verdict, verdict::clean);
          EXPECT_EQ(l.inverse(spread, real_out_spread).verdict, verdict::clean);
        }
        std::vector<bool> written(out_extent);
        double difference = 0, size = 0;
        for (std::int64_t b = 0; b < c.batch; ++b) {
          for (std::int64_t i = 0; i < out_points; ++i) {
            const std::size_t at = where(i, out_shape, c.out, b);
            written[at] = true;
            const std::size_t from = static_cast<std::size_t>(b * out_points + i);
            difference += real_out ? std::norm(static_cast<double>(real_out_spread[at]) - static_cast<double>(real_dense[from]))
                                   : std::norm(std::complex<double>(out[at]) - std::complex<double>(dense[from]));
            size += real_out ? std::norm(static_cast<double>(real_dense[from])) : std::norm(std::complex<double>(dense[from]));
          }
        }
        // Other paths through the same tables: equal to rounding.
        EXPECT_LE(std::sqrt(difference / size), 2 * bound<T>(product(c.shape)))
            << to_token(loose, direction::forward) << " " << to_string(run_on);
        for (std::size_t i = 0; i < out_extent; ++i) {
          const bool kept = real_out ? real_out_spread[i] == T(77) : out[i] == std::complex<T>(T(77));
          ASSERT_TRUE(written[i] || kept) << i;
        }
      }
    }
  }
}

// ---- Inf and NaN ----

TYPED_TEST(fft_backend, infinity_and_nan_are_data) {
  using T = TypeParam;
  const T special[] = {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN()};
  for (const backend where : k_backends) {
    for (const std::int64_t n : {1, 16, 100, 1024, 67, 8192}) {
      for (const T value : special) {
        auto x = noise<T>(3 * n, 3);
        auto clean = x;
        x[static_cast<std::size_t>(n + n / 2)].imag(value);
        signal<T> y(x.size()), wanted(x.size());
        const plan made(line_problem<T>(n, 3), on(where));
        (void)made.forward(clean, wanted);
        const report seen = made.forward(x, y);
        EXPECT_EQ(seen.verdict, verdict::clean) << n << " " << value << " " << to_json(seen);
        for (std::int64_t i = 0; i < 3 * n; ++i) {
          const auto z = y[static_cast<std::size_t>(i)];
          if (i / n == 1)
            EXPECT_FALSE(std::isfinite(z.real()) && std::isfinite(z.imag()));
          else
            EXPECT_EQ(z, wanted[static_cast<std::size_t>(i)]) << "a neighbour's Inf or NaN must stay there";
        }
      }
    }
    // Overflow that the data cause.
    signal<T> x(64, std::numeric_limits<T>::max()), y(64);
    const report seen = plan(line_problem<T>(64), on(where)).forward(x, y);
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_FALSE(std::isfinite(y[0].real()));
  }
}

// ---- Arguments ----

TEST(fft_plan, refuses_what_has_no_meaning_and_says_why) {
  const auto refused = [](const problem& p, const char* why) {
    try {
      plan made(p);
      ADD_FAILURE() << "accepted: " << why;
    } catch (const invalid_argument_error& e) {
      EXPECT_NE(std::string(e.what()).find("fft_"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("expected"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("got"), std::string::npos) << e.what();
    }
  };
  const std::int64_t huge = std::int64_t{1} << 62;
  refused({.shape = {}}, "no axis");
  refused({.shape = {2, 2, 2, 2}}, "four axes");
  refused({.shape = {0}}, "empty");
  refused({.shape = {-3}}, "negative");
  refused({.shape = {4}, .batch = 0}, "no signal");
  refused({.shape = {huge}}, "bytes overflow");
  refused({.shape = {1 << 30, 1 << 30, 1 << 30}}, "product overflows");
  refused({.shape = {4}, .batch = huge}, "batch overflows");
  refused({.shape = {4, 4}, .input = {{1}, 0}}, "one stride for two axes");
  refused({.shape = {4}, .input = {{0}, 0}}, "stride 0");
  refused({.shape = {4}, .input = {{-1}, 0}}, "negative stride");
  refused({.shape = {4}, .batch = 2, .output = {{1}, 3}}, "signals overlap");
  refused({.shape = {4, 4}, .output = {{3, 1}, 0}}, "rows overlap");
  refused({.shape = {4}, .input = {{huge}, 0}}, "extent overflows");
  execution how;
  how.backend = backend::cuda;
  EXPECT_THROW(plan({.shape = {4}}, how), unsupported_error);
  how = {};
  how.scheme = "hope";
  EXPECT_THROW(plan({.shape = {4}}, how), unsupported_error);
  how = {};
  how.threads = -1;
  EXPECT_THROW(plan({.shape = {4}}, how), invalid_argument_error);
}

TEST(fft_plan, refuses_data_that_do_not_fit) {
  signal<float> x(10), y(10);
  std::vector<float> r(10);
  const plan made({.shape = {8}});
  EXPECT_THROW((void)made.forward(std::span<const std::complex<float>>(x.data(), 7), y), invalid_argument_error);
  EXPECT_THROW((void)made.forward(x, std::span<std::complex<float>>(y.data(), 7)), invalid_argument_error);
  EXPECT_THROW((void)made.forward(r, y), invalid_argument_error);
  signal<double> wide_x(8), wide_y(8);
  EXPECT_THROW((void)made.forward(wide_x, wide_y), invalid_argument_error);
  EXPECT_THROW((void)made.forward(x, std::span<std::complex<float>>(x.data() + 1, 9)), invalid_argument_error) << "overlap";
  const plan strided({.shape = {4}, .input = {{1}, 0}, .output = {{2}, 0}});
  EXPECT_THROW((void)strided.forward(x, x), invalid_argument_error) << "in place with different layouts";
  const plan real({.kind = kind::r2c, .shape = {8}});
  EXPECT_THROW((void)real.inverse(x, y), invalid_argument_error);
  const plan rows({.kind = kind::r2c, .shape = {8}, .batch = 2});
  std::vector<float> memory(20);
  EXPECT_THROW((void)rows.forward(memory, std::span(reinterpret_cast<std::complex<float>*>(memory.data()), 10)), invalid_argument_error)
      << "in place needs padded rows";
}

TEST(fft_token, round_trip_and_errors) {
  for (const char* text :
       {"fft_c2c_f32_n1024_b16384_fwd", "fft_r2c_f64_n320x320_b256_fwd", "fft_c2r_f32_n2x3x4_b1_inv", "fft_c2c_f64_n1_b1_inv"}) {
    const token read = parse_token(text);
    EXPECT_EQ(to_token(read.problem, read.direction), text);
  }
  for (const char* text : {"",
                           "fft",
                           "fft_c2c_f32_n1024_b16384",
                           "dft_c2c_f32_n8_b1_fwd",
                           "fft_c2d_f32_n8_b1_fwd",
                           "fft_c2c_f16_n8_b1_fwd",
                           "fft_c2c_f32_8_b1_fwd",
                           "fft_c2c_f32_n_b1_fwd",
                           "fft_c2c_f32_n0_b1_fwd",
                           "fft_c2c_f32_n-8_b1_fwd",
                           "fft_c2c_f32_n+8_b1_fwd",
                           "fft_c2c_f32_n08_b1_fwd",
                           "fft_c2c_f32_n8x_b1_fwd",
                           "fft_c2c_f32_n8x8x8x8_b1_fwd",
                           "fft_c2c_f32_n8_b0_fwd",
                           "fft_c2c_f32_n8_1_fwd",
                           "fft_c2c_f32_n8_b1_up",
                           "fft_c2c_f32_n8_b1_fwd_",
                           "fft_r2c_f32_n8_b1_inv",
                           "fft_c2r_f32_n8_b1_fwd",
                           "fft_c2c_f32_n99999999999999999999_b1_fwd",
                           "fft_c2c_f32_n4611686018427387904_b4_fwd",
                           "fft_c2c_f32_n8_b 1_fwd",
                           "fft_c2c_f32_n8_b1x_fwd"})
    EXPECT_THROW(parse_token(text), invalid_argument_error) << text;
}

// ---- Faults ----

struct fault_case {
  kind what;
  std::vector<std::int64_t> shape;
  std::int64_t batch;
};

const fault_case k_fault_cases[] = {{kind::c2c, {64}, 40},       {kind::c2c, {100}, 20},   {kind::r2c, {128}, 18}, {kind::c2r, {90}, 18},
                                    {kind::c2c, {37}, 20},       {kind::c2c, {134}, 20},   {kind::c2c, {4096}, 2}, {kind::c2c, {48, 32}, 2},
                                    {kind::c2c, {6, 20, 24}, 1}, {kind::r2c, {40, 33}, 1}, {kind::c2c, {10007}, 1}};

// A problem, its plan with and without protection, and a list of faults that both look at.
template <class T>
struct struck_transform {
  fault_case which;
  backend where;
  bool in_place;
  inject::plan faults;
  signal<T> x, clean;
  std::vector<T> real;
  double size = 0;  // the norm of the largest signal
  std::int64_t points;
  std::unique_ptr<plan> bare, guarded, watched;

  struck_transform(fault_case c, backend b, bool over = false)
      : which(std::move(c)), where(b), in_place(over), points(product(which.shape)) {
    problem p{.kind = which.what, .precision = precision_of<T>, .shape = which.shape, .batch = which.batch};
    const std::int64_t half = points / which.shape.back() * (which.shape.back() / 2 + 1);
    x = noise<T>((which.what == kind::c2r ? half : points) * which.batch, 21);
    for (const auto& z : x) real.push_back(z.real());
    execution how = on(where, protection::off, 2);
    how.faults = &faults;
    how.throw_on_uncorrectable = false;
    bare = std::make_unique<plan>(p, how);
    how.protection = protection::correct;
    guarded = std::make_unique<plan>(p, how);
    how.protection = protection::detect;
    watched = std::make_unique<plan>(p, how);
    clean.resize(static_cast<std::size_t>((which.what == kind::r2c ? half : points) * which.batch));
    const report seen = run(*guarded, clean);
    EXPECT_EQ(seen.verdict, verdict::clean);
    const std::size_t one = clean.size() / static_cast<std::size_t>(which.batch);
    for (std::size_t start = 0; start < clean.size(); start += one) {
      double squares = 0;
      for (std::size_t i = start; i < start + one; ++i) squares += std::norm(std::complex<double>(clean[i]));
      size = std::max(size, std::sqrt(squares));
    }
  }

  report run(const plan& by, signal<T>& y) const {
    if (which.what == kind::c2c && in_place) {
      y = x;
      return by.forward(y, y);
    }
    if (which.what == kind::c2c) return by.forward(x, y);
    if (which.what == kind::r2c) return by.forward(real, y);
    std::vector<T> out(y.size());
    report seen = by.inverse(x, out);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = out[i];
    return seen;
  }

  // ‖y − clean‖ in units of the clean rounding error's scale; infinite if y is not finite.
  double effect(const signal<T>& y) const {
    double squares = 0;
    for (std::size_t i = 0; i < y.size(); ++i) squares += std::norm(std::complex<double>(y[i]) - std::complex<double>(clean[i]));
    // The inverse transform of the c2r cases is scaled by 1/N on both sides.
    const double units = std::sqrt(squares) / (size * u<T> * std::sqrt(std::log2(static_cast<double>(points)) + 1));
    return std::isfinite(units) ? units : std::numeric_limits<double>::infinity();
  }
};

TYPED_TEST(fft_backend, every_site_and_model_is_survived) {
  using T = TypeParam;
  const int seeds = test::sampled() ? 2 : sizeof(T) == 4 ? 6 : 3;
  for (const fault_case& c : k_fault_cases) {
    for (const backend where : k_backends) {
      for (const bool in_place : {false, true}) {
        if (in_place && c.what != kind::c2c) continue;
        if (c.shape[0] == 10007 && (where == backend::reference || test::sampled())) continue;
        // The only twiddle factors of the reference are ones here: where the zero of an imaginary part is struck with zero, nothing
        // changes.
        if (c.shape[0] == 37 && where == backend::reference) continue;
        struck_transform<T> subject(c, where, in_place);
        signal<T> y(subject.clean.size()), bare(subject.clean.size());
        for (const inject::site_row& row : inject::k_sites) {
          if (row.operation != "fft" && !row.operation.empty()) continue;
          for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
            if (c.shape[0] == 10007 && m % 3 != 0) continue;
            int changed = 0, found = 0;
            for (int seed = 0; seed < seeds; ++seed) {
              inject::request wanted;
              wanted.site = row.site;
              wanted.model = static_cast<inject::model>(m);
              wanted.seed = static_cast<std::uint64_t>(seed) * 1000 + m;
              wanted.bit = 62;
              subject.faults = inject::plan({wanted});
              const std::string name = fmt::format(
                  "{} {} {} {} seed {}{}",
                  to_token({.kind = c.what, .precision = precision_of<T>, .shape = c.shape, .batch = c.batch}, direction::forward),
                  to_string(where), row.name, inject::k_model_names[m], wanted.seed, in_place ? " in place" : "");
              const bool persistent = wanted.model == inject::model::stuck_at;
              double off_effect = 0;
              if (row.role == inject::site_role::data) {
                (void)subject.run(*subject.bare, bare);
                off_effect = subject.effect(bare);
                changed += off_effect > 0 ? 1 : 0;
              }
              const report seen = subject.run(*subject.guarded, y);
              found += seen.verdict != verdict::clean ? 1 : 0;
              if (seen.verdict == verdict::uncorrectable) {
                ASSERT_TRUE(persistent) << name << " " << to_json(seen);
                continue;
              }
              ASSERT_LE(subject.effect(y), seen.verdict == verdict::clean ? k_floor : 0) << name << " " << to_json(seen);
              // A struck check must not spoil data.
              ASSERT_TRUE(row.role == inject::site_role::data || subject.effect(y) == 0) << name;
              ASSERT_TRUE(off_effect <= k_floor || seen.verdict != verdict::clean) << name << " effect " << off_effect;
              ASSERT_EQ(seen.detected, seen.corrected + seen.recomputed + seen.uncorrectable) << name;
            }
            EXPECT_TRUE(changed > 0 || row.role != inject::site_role::data || test::sampled())
                << row.name << " " << inject::k_model_names[m] << " " << c.shape[0] << " " << to_string(where);
            EXPECT_TRUE(found == seeds || row.role != inject::site_role::repair);
          }
        }
      }
    }
  }
}

TYPED_TEST(fft_backend, random_flips_above_the_floor_are_all_found) {
  using T = TypeParam;
  const int trials = test::sampled() ? 200 : sizeof(T) == 4 ? 3000 : 1000;
  for (const backend where : k_backends) {
    struck_transform<T> subject({kind::c2c, {256}, 16}, where);
    signal<T> y(subject.clean.size()), bare(subject.clean.size());
    int above = 0, found = 0;
    for (int trial = 0; trial < trials; ++trial) {
      inject::request wanted;
      wanted.site = trial % 4 == 0 ? inject::site::fft_input : trial % 4 == 1 ? inject::site::fft_output : inject::site::fft_stage;
      wanted.seed = static_cast<std::uint64_t>(trial);
      subject.faults = inject::plan({wanted});
      (void)subject.run(*subject.bare, bare);
      const report seen = subject.run(*subject.guarded, y);
      ASSERT_LE(subject.effect(y), k_floor) << trial;
      if (subject.effect(bare) > k_floor) {
        ++above;
        ASSERT_EQ(seen.verdict, verdict::recomputed) << trial << " effect " << subject.effect(bare);
      }
      found += seen.verdict == verdict::recomputed ? 1 : 0;
    }
    EXPECT_GT(above, trials / 8);
    EXPECT_GE(found, above);
  }
}

TYPED_TEST(fft_backend, detection_only_reports_and_persistent_faults_throw) {
  using T = TypeParam;
  for (const backend where : k_backends) {
    struck_transform<T> subject({kind::c2c, {64}, 20}, where);
    inject::request wanted;
    wanted.site = inject::site::fft_stage;
    wanted.model = inject::model::stuck_at;
    wanted.interval = 0;
    subject.faults = inject::plan({wanted});
    signal<T> y(subject.clean.size());
    const report watched = subject.run(*subject.watched, y);
    EXPECT_EQ(watched.verdict, verdict::uncorrectable);
    EXPECT_EQ(watched.detected, 1u);
    ASSERT_EQ(watched.events.size(), 1u);
    EXPECT_EQ(watched.events[0].site, "fft.signal");
    EXPECT_GT(watched.events[0].residual, watched.events[0].threshold);
    execution how = on(where);
    how.faults = &subject.faults;
    how.throw_on_uncorrectable = true;
    int events = 0;
    how.on_event = [&](const event&) { ++events; };
    const plan thrower(line_problem<T>(64, 20), how);
    signal<T> untouched(subject.clean.size(), T(5));
    try {
      (void)thrower.forward(subject.x, untouched);
      ADD_FAILURE() << "expected an uncorrectable fault";
    } catch (const uncorrectable_error& e) {
      EXPECT_EQ(e.report().uncorrectable, 1u);
      EXPECT_EQ(events, 1);
      EXPECT_EQ(untouched[0], std::complex<T>(T(5))) << "the tile that failed must not be stored";
    }
  }
}

TYPED_TEST(fft_backend, several_faults_in_several_tiles) {
  using T = TypeParam;
  for (const backend where : k_backends) {
    struck_transform<T> subject({kind::c2c, {64}, 200}, where);
    inject::request wanted;
    wanted.site = inject::site::fft_output;
    wanted.model = inject::model::nan;
    wanted.count = 4;
    subject.faults = inject::plan({wanted});
    signal<T> y(subject.clean.size());
    const report seen = subject.run(*subject.guarded, y);
    EXPECT_EQ(seen.verdict, verdict::recomputed);
    EXPECT_GE(seen.recomputed, 2u);
    EXPECT_EQ(subject.effect(y), 0);
  }
}

// ---- Clean data of every kind ----

TYPED_TEST(fft_backend, no_false_alarm_in_1e5_clean_intervals) {
  using T = TypeParam;
  std::mt19937_64 random(5);
  std::uint64_t checks = 0;
  for (const std::int64_t n : {2, 8, 12, 16, 21, 32, 64, 67, 400}) {
    const std::int64_t tiles = test::sampled() ? 8 : n > 64 ? 100 : 1200;
    signal<T> x(static_cast<std::size_t>(16 * tiles * n)), y(x.size());
    const plan complex(line_problem<T>(n, 16 * tiles), on(backend::cpu, protection::correct, 2));
    const plan forward(line_problem<T>(n, 16 * tiles, kind::r2c), on(backend::cpu, protection::correct, 2));
    const plan slow(line_problem<T>(n, std::min<std::int64_t>(16 * tiles, 20)), on(backend::reference));
    for (int which = 0; which < k_fillings; ++which) {
      fill(x, which, n, random);
      SCOPED_TRACE(fmt::format("n {} data {}", n, which));
      const report a = complex.forward(x, y);
      ASSERT_EQ(a.verdict, verdict::clean) << n << " data " << which << " " << to_json(a);
      signal<T> half(static_cast<std::size_t>(16 * tiles * (n / 2 + 1)));
      const report b = forward.forward(std::span<const T>(reinterpret_cast<const T*>(x.data()), x.size()), half);
      ASSERT_EQ(b.verdict, verdict::clean) << n << " real data " << which << " " << to_json(b);
      const report c = slow.inverse(x, y);
      ASSERT_EQ(c.verdict, verdict::clean) << n << " reference data " << which << " " << to_json(c);
      checks += a.checks + b.checks + c.checks;
    }
  }
  // Tiles of 16 lanes with 2 comparisons each.
  EXPECT_GE(checks / 32, test::sampled() ? 100u : 100000u);
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{4096}, {9216}, {3865}, {7971}, {40, 36}, {12, 18, 20}}) {
    const std::int64_t points = product(shape);
    signal<T> x(static_cast<std::size_t>(points)), y(x.size());
    const plan made({.kind = kind::c2c, .precision = precision_of<T>, .shape = shape}, on(backend::cpu, protection::correct, 2));
    for (int which = 0; which < k_fillings; ++which) {
      fill(x, which, points, random);
      const report seen = made.inverse(x, y);
      ASSERT_EQ(seen.verdict, verdict::clean) << points << " data " << which << " " << to_json(seen);
    }
  }
}

}  // namespace
}  // namespace ballast::fft
