// Transforms that are copied into dense arrays or run in loops, on the backends of the host: any rank, any nest of loops, strides of every
// sign, and real to real. Against sums by the definition in more than working precision; faults at every site.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "core/at.hpp"
#include "fft/problem.hpp"
#include "fft/sites.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "fft/tables/real_to_real.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "support/effort.hpp"
#include "support/fft_data.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::fft {
namespace {

using core::at;

// ---- The transform of one array, axis by axis ----

template <class W>
using numbers = std::vector<std::complex<W>>;

// Applies `line` to each line along axis `along`; it may change the length.
template <class W, class Line>
numbers<W> each_line(const numbers<W>& x, std::vector<std::int64_t>& lengths, std::size_t along, const Line& line) {
  std::int64_t inner = 1, outer = 1;
  for (std::size_t i = 0; i < along; ++i) outer *= lengths[i];
  for (std::size_t i = along + 1; i < lengths.size(); ++i) inner *= lengths[i];
  const std::int64_t n = lengths[along];
  numbers<W> made;
  std::int64_t m = 0;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t l = 0; l < inner; ++l) {
      numbers<W> column;
      for (std::int64_t j = 0; j < n; ++j) column.push_back(x[at((o * n + j) * inner + l)]);
      column = line(std::move(column));
      m = std::ssize(column);
      made.resize(at(outer * m * inner));
      for (std::int64_t k = 0; k < m; ++k) made[at((o * m + k) * inner + l)] = column[at(k)];
    }
  }
  lengths[along] = m;
  return made;
}

template <class W>
numbers<W> inverse_dft(numbers<W> x) {
  for (auto& z : x) z = std::conj(z);
  x = dft(std::move(x));
  for (auto& z : x) z = std::conj(z);
  return x;
}

// The sums of the definition, with one root of unity for each term.
template <class W>
numbers<W> by_definition(real_kind kind, const numbers<W>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  const W pi = std::acos(W(-1));
  numbers<W> y(x.size());
  for (std::int64_t k = 0; k < n; ++k) {
    for (std::int64_t j = 0; j < n; ++j) {
      const auto turn = [&](W a, W b, std::int64_t d) { return pi * std::fmod(a * b, W(2 * d)) / W(d); };
      const auto J = W(j), K = W(k);
      const W half = W(0.5);
      W f = 0;
      switch (kind) {
        case real_kind::r2hc: f = 2 * k <= n ? std::cos(turn(J * 2, K, n)) : -std::sin(turn(J * 2, W(n - k), n)); break;
        case real_kind::hc2r:
          f = j == 0 || 2 * j == n ? std::cos(turn(2 * J, K, n))
              : 2 * j < n          ? 2 * std::cos(turn(2 * J, K, n))
                                   : -2 * std::sin(turn(W(2 * (n - j)), K, n));
          break;
        case real_kind::dht: f = std::cos(turn(2 * J, K, n)) + std::sin(turn(2 * J, K, n)); break;
        case real_kind::dct1: f = (j == 0 || j == n - 1 ? 1 : 2) * std::cos(turn(J, K, n - 1)); break;
        case real_kind::dct2: f = 2 * std::cos(turn(J + half, K, n)); break;
        case real_kind::dct3: f = (j == 0 ? 1 : 2) * std::cos(turn(J, K + half, n)); break;
        case real_kind::dct4: f = 2 * std::cos(turn(J + half, K + half, n)); break;
        case real_kind::dst1: f = 2 * std::sin(turn(J + 1, K + 1, n + 1)); break;
        case real_kind::dst2: f = 2 * std::sin(turn(J + half, K + 1, n)); break;
        case real_kind::dst3: f = (j == n - 1 ? 1 : 2) * std::sin(turn(J + 1, K + half, n)); break;
        case real_kind::dst4: f = 2 * std::sin(turn(J + half, K + half, n)); break;
      }
      y[at(k)] += f * x[at(j)];
    }
  }
  return y;
}

template <class W>
numbers<W> expected(const problem& what, direction way, numbers<W> x) {
  std::vector<std::int64_t> lengths = what.shape;
  if (what.kind == kind::c2r) {  // the other half, by symmetry
    const std::int64_t n = lengths.back(), stored = n / 2 + 1;
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < lengths.size(); ++i) rows *= lengths[i];
    numbers<W> whole;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t mirrored = 0, rest = row, place = 1;
      for (std::size_t i = lengths.size() - 1; i-- > 0; rest /= lengths[i]) {
        mirrored += (lengths[i] - rest % lengths[i]) % lengths[i] * place;
        place *= lengths[i];
      }
      for (std::int64_t k = 0; k < n; ++k) {
        const auto own = [&] { return x[at(row * stored + k)]; };
        const auto other = [&] { return std::conj(x[at(mirrored * stored + (n - k) % n)]); };
        whole.push_back(k == 0 || 2 * k == n ? (own() + other()) * W(0.5) : 2 * k < n ? own() : other());
      }
    }
    x = std::move(whole);
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    x = each_line<W>(x, lengths, i, [&](numbers<W> line) {
      if (what.kind == kind::r2r) {
        const real_kind own = what.real_kinds[i];
        return by_definition(way == direction::forward ? own : inverse_of(own), line);
      }
      numbers<W> y = way == direction::forward ? dft(std::move(line)) : inverse_dft(std::move(line));
      if (what.kind == kind::r2c && i + 1 == lengths.size()) y.resize(y.size() / 2 + 1);
      return y;
    });
  }
  const auto scale = static_cast<W>(norm_factor(describe(what), what.norm, way));
  for (auto& z : x) z *= scale;
  return x;
}

// ---- Arrays of any layout ----

template <class Visit>
void visit_offsets(const array_problem& of, bool input, const Visit& visit) {
  const std::int64_t signals = of.signals();
  for (std::int64_t b = 0; b < signals; ++b) {
    std::int64_t base = input ? of.input.first : of.output.first, rest = b;
    for (std::size_t i = of.loops.size(); i-- > 0; rest /= of.loops[i].count)
      base += rest % of.loops[i].count * (input ? of.loops[i].input : of.loops[i].output);
    std::int64_t elements = 1;
    for (const axis& each : of.axes) elements *= input ? each.in_length : each.out_length;
    for (std::int64_t e = 0; e < elements; ++e) {
      std::int64_t offset = base, left = e;
      for (std::size_t i = of.axes.size(); i-- > 0;) {
        const axis& each = of.axes[i];
        const std::int64_t length = input ? each.in_length : each.out_length;
        offset += left % length * (input ? each.in_stride : each.out_stride);
        left /= length;
      }
      visit(b, e, offset);
    }
  }
}

template <class T>
struct example {
  using W = wide<T>;
  problem what;
  direction way;
  array_problem shape;
  std::vector<T> in;
  std::vector<numbers<W>> wanted;

  example(const problem& of, direction where_to, std::uint64_t seed) : what(of), way(where_to), shape(describe(of)) {
    const std::int64_t parts = shape.input.real ? 1 : 2;
    in = test::noise<T>(shape.input.extent * parts, seed);
    std::vector<numbers<W>> signals(at(shape.signals()));
    visit_offsets(shape, true, [&](std::int64_t b, std::int64_t, std::int64_t offset) {
      signals[at(b)].emplace_back(in[at(offset * parts)], parts == 2 ? in[at(offset * parts + 1)] : T(0));
    });
    for (auto& each : signals) wanted.push_back(expected<W>(what, way, std::move(each)));
  }

  std::vector<T> fresh() const { return std::vector<T>(at(shape.output.extent * (shape.output.real ? 1 : 2)), T(77)); }

  report run(const plan& by, const T* from, T* to) const {
    call now = test::quiet_call();
    using complex = std::complex<T>;
    const auto n = at(shape.input.extent), m = at(shape.output.extent);
    const std::span<const T> reals(from, n);
    const std::span<const complex> numbers(reinterpret_cast<const complex*>(from), n);
    const std::span<T> to_reals(to, m);
    const std::span<complex> to_numbers(reinterpret_cast<complex*>(to), m);
    const bool forward = way == direction::forward;
    switch (what.kind) {
      case kind::c2c: return forward ? by.forward(numbers, to_numbers, now) : by.inverse(numbers, to_numbers, now);
      case kind::r2c: return by.forward(reals, to_numbers, now);
      case kind::c2r: return by.inverse(numbers, to_reals, now);
      default: return forward ? by.forward(reals, to_reals, now) : by.inverse(reals, to_reals, now);
    }
  }

  // The largest error of a signal, relative to its norm.
  double error(const std::vector<T>& out) const {
    const std::int64_t parts = shape.output.real ? 1 : 2;
    std::vector<double> squares(wanted.size()), norms(wanted.size());
    visit_offsets(shape, false, [&](std::int64_t b, std::int64_t e, std::int64_t offset) {
      const std::complex<W> got(out[at(offset * parts)], parts == 2 ? out[at(offset * parts + 1)] : T(0));
      const std::complex<W> right = wanted[at(b)][at(e)];
      squares[at(b)] += static_cast<double>(std::norm(got - (parts == 2 ? right : std::complex<W>(right.real(), 0))));
      norms[at(b)] += static_cast<double>(std::norm(right));
    });
    double most = 0;
    for (std::size_t b = 0; b < norms.size(); ++b)
      most = std::max(most, std::isfinite(squares[b]) ? std::sqrt(squares[b] / norms[b]) : 1e300);
    return most;
  }
  // As test::error_bound_of_kind; a real transform has up to three more steps, each with a rounded factor, than that of its length, and a
  // type I one step for each of its levels.
  double allowed() const {
    return test::error_bound_of_kind(what) * (what.kind == kind::r2r ? std::sqrt(3.0) : 1) +
           (what.norm == norm::backward ? 0 : 1) * test::unit_roundoff(what.precision);
  }
  void expect_gaps_kept(const std::vector<T>& out) const {
    const std::int64_t parts = shape.output.real ? 1 : 2;
    std::vector<bool> written(out.size());
    visit_offsets(shape, false, [&](std::int64_t, std::int64_t, std::int64_t offset) {
      for (std::int64_t p = 0; p < parts; ++p) written[at(offset * parts + p)] = true;
    });
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(written[i] || out[i] == T(77)) << i;
  }
};

template <class Body>
void with_precisions(const Body& body) {
  body(float{});
  if (test::chosen_effort() > test::effort::smoke) body(double{});
}

constexpr backend k_hosts[] = {backend::reference, backend::cpu};

template <class T>
void check_problem(problem what, direction way) {
  what.precision = sizeof(T) == 4 ? precision::f32 : precision::f64;
  const example<T> given(what, way, 7);
  for (const backend where : k_hosts) {
    SCOPED_TRACE(std::string(to_string(where)) + ' ' + to_token(what, way));
    const plan made(what, {.backend = where, .threads = 2});
    std::vector<T> out = given.fresh();
    const report seen = given.run(made, given.in.data(), out.data());
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_EQ(seen.detected, 0U) << to_json(seen);
    EXPECT_GT(seen.checks, 0U);
    EXPECT_LE(given.error(out), given.allowed());
    given.expect_gaps_kept(out);
    std::vector<T> bare = given.fresh();
    (void)given.run(plan(what, {.backend = where, .protection = protection::off}), given.in.data(), bare.data());
    EXPECT_EQ(out, bare);
  }
}

constexpr real_kind k_kinds[] = {real_kind::r2hc, real_kind::hc2r, real_kind::dht,  real_kind::dct1, real_kind::dct2, real_kind::dct3,
                                 real_kind::dct4, real_kind::dst1, real_kind::dst2, real_kind::dst3, real_kind::dst4};

// ---- Accuracy ----

TEST(fft_real_to_real, every_kind_and_length_against_its_definition) {
  std::vector<std::int64_t> lengths = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33, 64, 127, 129, 250};
  if (test::sampled()) lengths = {1, 2, 3, 4, 7, 9, 16, 33, 60};
  with_precisions([&]<class T>(T) {
    std::int64_t number = 0;
    for (const real_kind what : k_kinds) {
      for (const std::int64_t n : lengths) {
        if (what == real_kind::dct1 && n < 2) continue;
        const std::int64_t batch = ++number % 3 == 0 ? 1 : 19;
        check_problem<T>({.kind = kind::r2r, .shape = {n}, .batch = batch, .real_kinds = {what}},
                         number % 2 == 0 ? direction::forward : direction::inverse);
      }
    }
  });
}

TEST(fft_real_to_real, arrays_of_mixed_kinds) {
  using enum real_kind;
  with_precisions([]<class T>(T) {
    check_problem<T>({.kind = kind::r2r, .shape = {6, 9}, .batch = 3, .real_kinds = {dct2, dst1}}, direction::forward);
    check_problem<T>({.kind = kind::r2r, .shape = {5, 4, 7}, .norm = norm::ortho, .real_kinds = {dht, dct1, dst4}}, direction::inverse);
    check_problem<T>({.kind = kind::r2r, .shape = {2, 3, 2, 3, 4}, .batch = 2, .real_kinds = {dct3, dst3, r2hc, hc2r, dct4}},
                     direction::forward);
    check_problem<T>({.kind = kind::r2r,
                      .shape = {12, 10},
                      .batch = 20,
                      .norm = norm::forward,
                      .input = {{-12, 1}, 150},
                      .output = {{1, 13}, -140},
                      .real_kinds = {dct4, dst2}},
                     direction::forward);
  });
}

TEST(fft_real_to_real, a_transform_and_its_inverse_give_the_data_again) {
  for (const real_kind what : k_kinds) {
    const plan made({.kind = kind::r2r, .precision = precision::f64, .shape = {30}, .real_kinds = {what}}, {.backend = backend::cpu});
    const std::vector<double> x = test::noise<double>(30, 3);
    std::vector<double> y(30), back(30);
    (void)made.forward(x, y);
    (void)made.inverse(y, y);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-13) << to_string(what);
  }
}

TEST(fft_any, ranks_loops_and_strides) {
  with_precisions([]<class T>(T) {
    for (const direction way : {direction::forward, direction::inverse}) {
      check_problem<T>({.shape = {2, 3, 4, 5}, .batch = 2}, way);
      check_problem<T>({.shape = {2, 2, 3, 2, 2, 3, 2, 2}}, way);
      // A loop around a batch, on both sides in another order; one signal read many times; loops in opposite directions.
      check_problem<T>({.shape = {16}, .batch = 3, .input = {{1}, 20}, .output = {{4}, 1}, .loops = {{4, 70, 64}}}, way);
      check_problem<T>({.shape = {12}, .batch = 5, .norm = norm::ortho, .input = {{1}, 0}, .output = {{1}, 12}}, way);
      check_problem<T>({.shape = {8}, .batch = 5, .input = {{2}, -17}, .output = {{1}, 8}, .loops = {{3, 100, -45}, {2, -300, 200}}}, way);
      // Axes that run backwards; signals that overlap.
      check_problem<T>({.shape = {6, 8}, .batch = 2, .input = {{8, -1}, 48}, .output = {{-9, 1}, 60}}, way);
      check_problem<T>({.shape = {16}, .batch = 9, .input = {{1}, 4}, .output = {{1}, 16}}, way);
    }
    check_problem<T>({.kind = kind::r2c, .shape = {3, 2, 4, 6}, .batch = 2}, direction::forward);
    check_problem<T>({.kind = kind::c2r, .shape = {3, 2, 4, 6}, .batch = 2}, direction::inverse);
    check_problem<T>({.kind = kind::r2c, .shape = {2, 3, 2, 3, 7}}, direction::forward);
    check_problem<T>({.kind = kind::c2r, .shape = {2, 3, 2, 3, 7}}, direction::inverse);
    check_problem<T>({.kind = kind::r2c, .shape = {5, 8}, .batch = 3, .input = {{8, -1}, 40}, .output = {{5, 1}, 25}}, direction::forward);
    check_problem<T>(
        {.kind = kind::c2r, .shape = {5, 8}, .batch = 3, .input = {{5, 1}, 25}, .output = {{-8, 1}, 40}, .loops = {{2, 0, 160}}},
        direction::inverse);
  });
}

TEST(fft_any, in_place) {
  problem what{
      .kind = kind::r2r, .precision = precision::f64, .shape = {7, 6}, .batch = 21, .real_kinds = {real_kind::dct2, real_kind::dst4}};
  const example<double> given(what, direction::forward, 5);
  for (const backend where : k_hosts) {
    std::vector<double> data = given.in;
    EXPECT_EQ(given.run(plan(what, {.backend = where}), data.data(), data.data()).verdict, verdict::clean);
    EXPECT_LE(given.error(data), given.allowed());
  }
}

// ---- Faults ----

// A fault of every model at every site of the transforms that are copied: repaired, and without protection in the output.
template <class T>
void strike_every_site(problem what, direction way, backend where) {
  what.precision = sizeof(T) == 4 ? precision::f32 : precision::f64;
  SCOPED_TRACE(std::string(to_string(where)) + ' ' + to_token(what, way));
  const example<T> given(what, way, 9);
  const plan guarded(what, {.backend = where}), bare(what, {.backend = where, .protection = protection::off});
  std::vector<T> clean = given.fresh();
  (void)given.run(guarded, given.in.data(), clean.data());
  double norm = 0;
  for (const T value : clean) norm = std::max(norm, std::abs(static_cast<double>(value)));
  for (const inject::site_row& row : inject::sites()) {
    if (row.operation() != "fft") continue;
    int changed = 0, found = 0, trials = 0;
    for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
      if (test::sampled() && m % 3 != static_cast<std::size_t>(row.site) % 3) continue;
      for (std::uint64_t seed = 0; seed < 4; ++seed, ++trials) {
        SCOPED_TRACE(std::string(row.name) + ' ' + std::string(inject::k_model_names[m]) + ' ' + std::to_string(seed));
        inject::request wanted;
        wanted.site = row.site;
        wanted.model = static_cast<inject::model>(m);
        wanted.seed = seed * 1000 + m;
        wanted.bit = sizeof(T) == 4 ? 30 : 62;
        const inject::plan faults({wanted});
        const inject::scope struck(&faults);
        if (row.role == inject::site_role::data) {
          std::vector<T> out = given.fresh();
          (void)given.run(bare, given.in.data(), out.data());
          changed += out == clean ? 0 : 1;
        }
        std::vector<T> out = given.fresh();
        const report seen = given.run(guarded, given.in.data(), out.data());
        found += seen.verdict != verdict::clean ? 1 : 0;
        if (wanted.model == inject::model::stuck_at && seen.verdict == verdict::uncorrectable) continue;
        ASSERT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
        // An effect that passes is below the floor of a signal.
        double effect = 0;
        for (std::size_t i = 0; i < out.size(); ++i) effect += std::pow(static_cast<double>(out[i]) - static_cast<double>(clean[i]), 2);
        ASSERT_LE(std::sqrt(effect), test::k_floor * test::effect_unit(what) * norm * std::sqrt(static_cast<double>(given.shape.points())))
            << to_json(seen);
      }
    }
    EXPECT_EQ(changed > 0, row.role == inject::site_role::data) << row.name;
    EXPECT_GT(found, 0) << row.name << " of " << trials;
  }
}

TEST(fft_any, every_site) {
  using enum real_kind;
  for (const backend where : k_hosts) {
    strike_every_site<float>({.kind = kind::r2r, .shape = {24}, .batch = 5, .real_kinds = {dct2}}, direction::forward, where);
    strike_every_site<double>({.kind = kind::r2r, .shape = {6, 9}, .batch = 2, .real_kinds = {dst1, dct4}}, direction::forward, where);
    strike_every_site<float>({.shape = {3, 4, 2, 5}, .batch = 2}, direction::forward, where);
    strike_every_site<double>({.kind = kind::c2r, .shape = {2, 3, 4, 6}}, direction::inverse, where);
    if (test::sampled()) continue;
    for (const real_kind what : k_kinds)
      strike_every_site<double>({.kind = kind::r2r, .shape = {17}, .batch = 19, .real_kinds = {what}}, direction::inverse, where);
  }
}

// ---- Clean data ----

TEST(fft_real_to_real, no_false_alarm) {
  const std::int64_t rounds = test::sampled() ? 1 : 8;
  std::int64_t checks = 0;
  with_precisions([&]<class T>(T) {
    for (const real_kind what : k_kinds) {
      for (const std::int64_t n : {2, 8, 31, 96, 513}) {
        const std::int64_t batch = 12000 / n * rounds;
        const problem of{.kind = kind::r2r,
                         .precision = sizeof(T) == 4 ? precision::f32 : precision::f64,
                         .shape = {n},
                         .batch = batch,
                         .real_kinds = {what}};
        const plan made(of, {.backend = backend::cpu});
        side in;
        in.length = {1, 1, n};
        in.stride = {1, 1, 1};
        in.distance = n;
        in.extent = n * batch;
        in.real = true;
        for (const std::string_view filling : test::k_fillings) {
          const std::vector<T> x = test::filled<T>(filling, in, batch, 4);
          std::vector<T> y(x.size());
          const report seen = made.forward(x, y, test::quiet_call());
          checks += static_cast<std::int64_t>(seen.checks);
          ASSERT_EQ(seen.detected, 0U) << to_token(of, direction::forward) << ' ' << filling << ' ' << to_json(seen);
        }
      }
    }
  });
  EXPECT_GT(checks, 100000);
}

TEST(fft_any, inf_and_nan_are_no_fault) {
  const plan made({.kind = kind::r2r, .shape = {20}, .batch = 3, .real_kinds = {real_kind::dct2}}, {.backend = backend::cpu});
  std::vector<float> x(60, 1), y(60);
  x[25] = std::numeric_limits<float>::infinity();
  x[45] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(made.forward(x, y).verdict, verdict::clean);
  EXPECT_TRUE(std::isfinite(y[3]));
  EXPECT_FALSE(std::isfinite(y[23]));
  EXPECT_TRUE(std::isnan(y[43]));
}

}  // namespace
}  // namespace ballast::fft
