// Transforms that are copied into dense arrays or run in loops, on the backends of the host: any rank, any nest of loops, strides of every
// sign, and real to real. Against sums by the definition in more than working precision; faults at every site.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "backend/fft_any_example.hpp"
#include "fft/sites.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "support/effort.hpp"
#include "support/fft_data.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::fft {
namespace {

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
        constexpr std::int64_t k_batches[] = {1, 19, 48};
        const std::int64_t batch = k_batches[++number % 3];
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

TEST(fft_any, split_complex_numbers) {
  with_precisions([]<class T>(T) {
    for (const direction way : {direction::forward, direction::inverse}) {
      check_problem<T>({.shape = {12}, .batch = 19, .norm = norm::ortho, .split = true}, way);
      check_problem<T>(
          {.shape = {3, 4}, .batch = 2, .input = {{-1, 3}, 20}, .output = {{8, 2}, -40}, .loops = {{2, 0, 100}}, .split = true}, way);
      check_problem<T>({.shape = {2, 3, 2, 5}, .split = true}, way);
    }
    check_problem<T>({.kind = kind::r2c, .shape = {5, 6}, .batch = 3, .split = true}, direction::forward);
    check_problem<T>({.kind = kind::c2r, .shape = {5, 7}, .batch = 3, .split = true}, direction::inverse);
  });
}

// Interleaved numbers as two arrays with strides of 2, each in the gaps of the other one, in place.
TEST(fft_any, parts_in_each_others_gaps) {
  for (const backend where : k_hosts) {
    const std::vector<double> x = test::noise<double>(2 * 30, 3);
    const auto* const numbers = reinterpret_cast<const std::complex<double>*>(x.data());
    std::vector<std::complex<double>> wanted(30);
    (void)plan({.precision = precision::f64, .shape = {10}, .batch = 3}, {.backend = where}).forward(std::span(numbers, 30), wanted);
    std::vector<double> data = x;
    const layout spread{{2}, 20};
    const plan made({.precision = precision::f64, .shape = {10}, .batch = 3, .input = spread, .output = spread, .split = true},
                    {.backend = where});
    const std::span<double> all(data);
    EXPECT_EQ(made.forward({all.first(59), all.subspan(1)}, {all.first(59), all.subspan(1)}).verdict, verdict::clean);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(data[2 * i], wanted[i].real(), 1e-14);
      EXPECT_NEAR(data[2 * i + 1], wanted[i].imag(), 1e-14);
    }
  }
}

// Output over any part of the input: exchanged parts of one transform are those of the other direction.
TEST(fft_any, split_output_over_the_input) {
  const std::vector<double> re = test::noise<double>(12, 3), im = test::noise<double>(12, 4);
  for (const backend where : k_hosts) {
    const plan made({.precision = precision::f64, .shape = {12}, .norm = norm::ortho, .split = true}, {.backend = where});
    std::vector<double> a = re, b = im, c(12), d(12);
    (void)made.inverse({im, re}, {d, c});
    EXPECT_EQ(made.forward({a, b}, {b, a}).verdict, verdict::clean);
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(b[i], c[i], 1e-14);
      EXPECT_NEAR(a[i], d[i], 1e-14);
    }
    // Reals, and over them the parts of their spectrum.
    const problem reals{.kind = kind::r2c, .precision = precision::f64, .shape = {12}, .split = true};
    std::vector<double> x = re, e(7), f(7);
    x.resize(14);
    const std::span<double> all(x);
    (void)plan(reals, {.backend = where}).forward(std::span<const double>(re), {e, f});
    EXPECT_EQ(plan(reals, {.backend = where}).forward(std::span<const double>(x), {all.first(7), all.subspan(7)}).verdict, verdict::clean);
    for (std::size_t i = 0; i < e.size(); ++i) {
      EXPECT_EQ(x[i], e[i]);
      EXPECT_EQ(x[i + 7], f[i]);
    }
  }
}

TEST(fft_any, split_operands_that_are_refused) {
  const plan split({.shape = {8}, .split = true}, {.backend = backend::reference}),
      together({.shape = {8}}, {.backend = backend::reference});
  std::vector<float> a(8), b(8), c(8), d(8);
  std::vector<std::complex<float>> z(8);
  const auto text_of = [](const auto& run) -> std::string {
    try {
      (void)run();
    } catch (const invalid_argument_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(text_of([&] { return split.forward(z, z); }).find("expected complex numbers as two arrays"), std::string::npos);
  EXPECT_NE(text_of([&] { return together.forward({a, b}, {c, d}); }).find("expected complex numbers in one array"), std::string::npos);
  EXPECT_NE(text_of([&] {
              return split.forward({a, b}, {c, std::span(d).first(7)});
            }).find("at least 8 elements, got 7"),
            std::string::npos);
  EXPECT_NE(text_of([&] {
              return plan({.kind = kind::r2r, .shape = {8}, .real_kinds = {real_kind::dht}, .split = true});
            }).find("expected a transform with complex data, got r2r"),
            std::string::npos);
  EXPECT_EQ(split.forward({a, b}, {a, b}).verdict, verdict::clean);
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

// The output of one signal lies over the input of others: the input is copied first.
TEST(fft_any, in_place_with_different_layouts) {
  const problem problems[] = {
      {.precision = precision::f64, .shape = {6, 8}, .input = {{8, 1}, 48}, .output = {{1, 6}, 48}},
      {.precision = precision::f64, .shape = {5}, .batch = 3, .input = {{1}, 5}, .output = {{3}, 1}},
      {.kind = kind::r2c, .precision = precision::f64, .shape = {5}, .batch = 3, .input = {{3}, 1}, .output = {{3}, 1}},
      {.kind = kind::c2r, .precision = precision::f64, .shape = {6}, .batch = 3, .input = {{3}, 1}, .output = {{3}, 1}},
  };
  for (const problem& what : problems) {
    const example<double> given(what, what.kind == kind::c2r ? direction::inverse : direction::forward, 5);
    for (const backend where : k_hosts) {
      SCOPED_TRACE(std::string(to_string(where)) + ' ' + to_token(what, given.way));
      std::vector<double> data = given.in, out = given.fresh();
      data.resize(std::max(data.size(), out.size()));
      EXPECT_EQ(given.run(plan(what, {.backend = where}), data.data(), data.data()).verdict, verdict::clean);
      data.resize(out.size());
      EXPECT_LE(given.error(data), given.allowed());
    }
  }
}

// ---- Numbers of signals ----

// Every run of a nest begins at the signals whose numbers it says.
TEST(fft_any, nests_number_their_signals) {
  const problem problems[] = {
      {.shape = {16}, .batch = 3, .input = {{1}, 20}, .output = {{4}, 1}, .loops = {{4, 70, 64}}},
      {.shape = {8}, .batch = 5, .input = {{2}, -17}, .output = {{1}, 8}, .loops = {{3, 100, -45}, {2, -300, 200}}},
      {.shape = {4}, .batch = 2, .loops = {{7, 56, 8}, {7, 8, 56}}},
      {.shape = {4}, .batch = 3, .loops = {{2, 12, 12}, {1, 5, 5}}},
  };
  for (const problem& what : problems) {
    const array_problem whole = describe(what);
    std::vector<std::int64_t> in, out;  // offsets of element 0 of each signal
    const auto keep = [](std::vector<std::int64_t>& to) {
      return [&](std::int64_t, std::int64_t element, std::int64_t offset) {
        if (element == 0) to.push_back(offset);
      };
    };
    visit_offsets(whole, true, keep(in));
    visit_offsets(whole, false, keep(out));
    const auto nest = nest_of(whole, strides_taken::any);
    ASSERT_TRUE(nest);
    EXPECT_EQ(nest->runs() * nest->inner.batch, whole.signals());
    std::vector<bool> seen(in.size());
    for (std::int64_t run = 0; run < nest->runs(); ++run) {
      const nested_geometry::place begin = nest->begin_of(run);
      for (std::int64_t b = 0; b < nest->inner.batch; ++b) {
        const std::size_t number = at(begin.number + b * nest->batch_number);
        EXPECT_EQ(begin.input + b * nest->inner.input.distance, in.at(number)) << number;
        EXPECT_EQ(begin.output + b * nest->inner.output.distance, out.at(number)) << number;
        EXPECT_FALSE(seen[number]);
        seen[number] = true;
      }
    }
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
        const inject::request wanted = fault_at<T>(row.site, m, seed);
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
    if (where == backend::cpu) {
      // Whole vectors of signals, some of them in a chunk that is not full, and arrays one by one.
      strike_every_site<float>({.kind = kind::r2r, .shape = {24}, .batch = 32, .real_kinds = {dct2}}, direction::forward, where);
      strike_every_site<double>({.kind = kind::r2r, .shape = {17}, .batch = 20, .real_kinds = {dct1}}, direction::forward, where);
      strike_every_site<float>({.kind = kind::r2r, .shape = {20, 37}, .batch = 1, .real_kinds = {dct4, dct3}}, direction::forward, where);
    }
    strike_every_site<double>({.kind = kind::c2r, .shape = {2, 3, 4, 6}}, direction::inverse, where);
    strike_every_site<float>({.kind = kind::r2c, .shape = {12}, .batch = 5, .split = true}, direction::forward, where);
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
