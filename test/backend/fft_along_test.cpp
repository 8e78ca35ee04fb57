// Lines with vectors along the signal: their transform against a transform in more precision, their sums against those of a tile, every
// number after each of their steps changed, their store.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "backend/fft_short_signals.hpp"
#include "core/aligned_buffer.hpp"
#include "fft/cpu/tile_job.hpp"
#include "fft/sites.hpp"
#include "fft/tables/checks.hpp"
#include "fft/thresholds.hpp"
#include "support/fft_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::fft {
namespace {

using cpu::kernels;
using cpu::line;

template <class T>
class fft_along : public testing::Test {
 protected:
  void SetUp() override {
    if (kernels<T>().lanes == 1) GTEST_SKIP() << "vectors of one number: every line is transformed in tiles";
  }
};
using precisions = testing::Types<float, double>;
TYPED_SUITE(fft_along, precisions, test::number_names);

constexpr std::int64_t k_lengths[] = {8, 12, 16, 32, 48, 64, 96, 128, 192, 256};

// Lengths of groups: signals that are narrower than a vector, and as wide as it or some of it, with rests of all kinds.
constexpr std::int64_t k_lengths_of_groups[] = {4, 5, 6, 7, 9, 10, 11, 13, 14, 15, 18, 20, 21, 36, 49, 60};

TYPED_TEST(fft_along, is_accurate_both_ways_and_in_part) {
  using T = TypeParam;
  // The bound of fft_property.cpp for such lengths.
  const auto bound = [](std::int64_t n) { return 0.83 * abft::unit_roundoff<T> * std::sqrt(std::log2(n)); };
  for (const std::int64_t n : k_lengths) {
    short_signals<T> given(n, 6);
    ASSERT_NE(given.by.along(), nullptr) << n;
    for (const bool swapped : {false, true}) {
      for (const int used : {1, given.lanes - 1, given.lanes}) {
        given.run(used, swapped);
        EXPECT_LE(given.error(used, swapped), bound(n)) << n << " " << swapped << " " << used;
      }
    }
  }
  for (const std::int64_t n : k_lengths_of_groups) {
    short_signals<T> given(n, 6);
    ASSERT_NE(given.by.along(), nullptr) << n;
    for (const bool swapped : {false, true}) {
      for (const int used : {1, given.lanes - 1, given.lanes}) {
        given.run(used, swapped);
        // The bound is one of a mean. The root mean square of N independent complex numbers has a relative deviation of 1/(2 √N).
        const double few = 1 + 4 * 0.5 / std::sqrt(static_cast<double>(used * n));
        EXPECT_LE(given.error(used, swapped), few * bound(n)) << n << " " << swapped << " " << used;
      }
    }
  }
}

// Calls body(n) for all lengths that have code of their own.
template <class Body>
void for_short_lengths(Body&& body) {
  for (const std::int64_t n : k_lengths) body(n);
  for (const std::int64_t n : k_lengths_of_groups) body(n);
}

TYPED_TEST(fft_along, the_steps_apart_give_the_same_bits) {
  using T = TypeParam;
  for_short_lengths([](std::int64_t n) {
    short_signals<T> given(n);
    for (const bool swapped : {false, true}) {
      for (const int used : {1, given.lanes - 1, given.lanes}) {
        given.run(used, swapped);
        const std::vector<T> whole(given.out.data(), given.out.data() + 2 * n * used);
        std::fill_n(given.out.data(), given.out.size(), T(0));
        given.run(used, swapped, true);
        EXPECT_TRUE(std::equal(whole.begin(), whole.end(), given.out.data())) << n << " " << swapped << " " << used;
      }
    }
  });
}

// Encodes and sums by both codes. Each rounds its sums within the threshold of a clean line.
TYPED_TEST(fft_along, the_sums_are_those_of_a_tile) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  for (const std::int64_t n : k_lengths) {
    short_signals<T> given(n, 4);
    for (const bool swapped : {false, true}) {
      for (const int used : {1, given.lanes - 1, given.lanes}) {
        cpu::lane_sums along, tiled;
        core::aligned_buffer<T> tile(2 * n * given.lanes);
        const auto compare = [&](const char* which) {
          for (int l = 0; l < used; ++l) {
            for (int i = 0; i < 4; ++i) {
              const double bound = fft::thresholds::residual<T>(static_cast<double>(n), std::sqrt(2.0 * static_cast<double>(n)), k_kappa);
              EXPECT_NEAR(along.high[i][l], tiled.high[i][l], bound) << which << n << " " << used << " " << l << " " << i;
              EXPECT_GT(std::abs(along.high[i][l]), 0) << which << n << " " << used << " " << l << " " << i;
            }
          }
        };
        kernel.encode_signals(given.call(used, swapped).from, given.by.along()->input_weights(swapped), along, {});
        kernel.load_rows(given.in.data(), given.stride, used, 2 * n, tile.data(), given.by.input_weights(swapped, &tiled));
        compare("input ");
        for (int l = 0; l < used; ++l) EXPECT_NEAR(along.squares[l] / tiled.squares[l], 1, 1e-5) << n;
        kernel.sum_signals(given.call(used, swapped).from, given.by.along()->output_weights(swapped), along);
        kernel.sum_outputs(tile.data(), n, given.by.output_weights(swapped, &tiled));
        compare("output ");
        EXPECT_EQ(cpu::parity_of(along), parity_of_runs(given.call(used, swapped).from)) << n << " " << used;
      }
    }
  }
}

// Changes every number between the two steps so that the effect is a little above the floor, in a different place of every signal.
TYPED_TEST(fft_along, a_change_of_any_number_between_its_steps_is_seen) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  for (const std::int64_t n : k_lengths) {
    if (kernel.shape_of_short(n).second == 1) continue;  // there is nothing between its load and its only butterfly
    short_signals<T> given(n);
    const auto points = static_cast<double>(n);
    cpu::lane_sums input, output;
    kernel.encode_signals(given.call(given.lanes, false).from, given.by.along()->input_weights(false), input, {});
    std::vector<std::vector<std::int64_t>> places(static_cast<std::size_t>(given.lanes));
    for (std::int64_t i = 0; i < 2 * n * given.lanes; ++i)
      places[static_cast<std::size_t>(given.by.along()->signal_between(i))].push_back(i);
    int clean = 0;
    for (std::int64_t round = -1; round < 2 * n; ++round) {
      given.run(given.lanes, false, true, [&](inject::site where, std::int64_t step, T* data, std::int64_t) {
        if (where != fft::site::stage || step != 0 || round < 0) return;
        for (int l = 0; l < given.lanes; ++l) {
          const auto& mine = places[static_cast<std::size_t>(l)];
          ASSERT_EQ(static_cast<std::int64_t>(mine.size()), 2 * n);
          // ‖y‖² = n ‖x‖². A change of a number between the steps reaches as many outputs as the second step has.
          const double floor =
              test::k_host_floor * abft::unit_roundoff<T> * std::sqrt(std::log2(points) + 1) * std::sqrt(points * input.squares[l]);
          const double reached = kernel.shape_of_short(n).second;
          data[mine[static_cast<std::size_t>((round + 5 * l) % (2 * n))]] += static_cast<T>(1.05 * floor / std::sqrt(reached));
        }
      });
      kernel.sum_signals(given.results(given.lanes), given.by.along()->output_weights(false), output);
      cpu::lane_verdicts verdicts;
      const double least = fft::thresholds::residual<T>(points, 0, k_kappa) + fft::thresholds::output_underflow<T>(points);
      const double factor = fft::thresholds::residual<T>(points, 1, k_kappa) - fft::thresholds::residual<T>(points, 0, k_kappa);
      kernel.set_thresholds(input, given.lanes, {{factor, factor}, {least, least}}, 0, 1e300, verdicts);
      kernel.compare(input, output, 1, verdicts);
      for (int l = 0; l < given.lanes; ++l) {
        const bool passes = verdicts.word[0][l] == cpu::k_lane_pass && verdicts.word[1][l] == cpu::k_lane_pass;
        clean += round < 0 && passes ? 1 : 0;
        if (round >= 0) {
          ASSERT_FALSE(passes) << n << " number " << round << " signal " << l;
        }
      }
    }
    EXPECT_EQ(clean, given.lanes) << n;
  }
}

TYPED_TEST(fft_along, the_store_has_the_parity_of_what_it_stores) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  // One run may begin anywhere. Signals that were computed twice are one run for their parity.
  for (const auto& [n, stream, gap, begin] :
       {std::array{32, 0, 1, 0}, std::array{32, 1, 1, 0}, std::array{32, 0, 0, 6}, std::array{32, 1, 0, 0}, std::array{32, 1, 0, 6},
        std::array{12, 0, 1, 0}, std::array{12, 0, 0, 6}, std::array{12, 1, 0, 0}, std::array{12, 1, 0, 6}, std::array{7, 0, 1, 0},
        std::array{7, 0, 0, 6}, std::array{7, 1, 0, 2}, std::array{7, 1, 0, 0}}) {
    short_signals<T> given(n);
    const bool as_run = n != 32;
    const auto results = [&](int used) {
      cpu::signals_of<T> made = given.results(used);
      made.as_run = as_run;
      return made;
    };
    for (const int used : {1, given.lanes - 1, given.lanes}) {
      given.run(used, false);
      const std::int64_t stride = 2 * n + gap * 2 * given.lanes;
      core::aligned_buffer<T> memory(stride * given.lanes + begin);
      const struct {
        T* first;
        std::int64_t count;
        T* data() const { return first; }
        std::int64_t size() const { return count; }
        const T& operator[](std::int64_t i) const { return first[i]; }
      } stored{memory.data() + begin, stride * given.lanes};
      std::fill_n(stored.data(), stored.size(), T(7));
      cpu::lane_sums sums;
      if (as_run)
        kernel.same_bits(given.out.data(), given.out.data(), 2 * n * used, {sums, sums});
      else
        kernel.sum_signals(results(used), given.by.along()->output_weights(false), sums);
      ASSERT_EQ(kernel.store_signals(results(used), stored.data(), stride, stream != 0), cpu::parity_of(sums));
      for (std::int64_t i = 0; i < stored.size(); ++i) {
        const std::int64_t l = i / stride, at = i % stride;
        ASSERT_EQ(stored[i], l < used && at < 2 * n ? given.out[l * 2 * n + at] : T(7)) << l << " " << at;
      }
      for (std::int64_t i = 0; i < 2 * n * used; ++i) {
        given.out[i] = -given.out[i];
        ASSERT_NE(kernel.store_signals(results(used), stored.data(), stride, stream != 0), cpu::parity_of(sums)) << i;
        given.out[i] = -given.out[i];
      }
      change_registers(given.out.data(), 2 * n * used, stream != 0 && gap == 0 ? (given.lanes - begin % given.lanes) % given.lanes : 0,
                       [&, stream = stream](std::int64_t i) {
                         ASSERT_NE(kernel.store_signals(results(used), stored.data(), stride, stream != 0), cpu::parity_of(sums)) << i;
                       });
    }
  }
}

// The second computation of short lines gives the same bits in other lanes, with one signal as with several groups and a part of one. It
// sees every flip of a result, in any signal.
TYPED_TEST(fft_along, a_second_computation_sees_any_changed_bit) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  int lengths = 0;
  for_short_lengths([&](std::int64_t n) {
    if (!cpu::along_line<T>::is_repeated(n)) return;
    ++lengths;
    const cpu::along_line<T> by(form::complex, n, {}, {});
    for (const int used : {1, kernel.lanes - 1, 3 * kernel.lanes + 1}) {
      const std::int64_t stride = 2 * n + 6, scalars = 2 * n * used;
      const std::vector<T> in = test::noise<T>(stride * used, static_cast<std::uint64_t>(n));
      core::aligned_buffer<T> out(2 * n * (used + kernel.lanes)), pairs(out.size()), work(8 * n * kernel.lanes);
      for (const bool swapped : {false, true}) {
        cpu::short_call<T> call;
        call.from = {in.data(), stride, used, n};
        call.to = out.data();
        call.to_stride = 2 * n;
        call.work = work.data();
        call.groups = 2;
        call.pairs = pairs.data();
        call.swapped = swapped;
        by.run(call, false, [](auto&&...) {});
        const cpu::signals_of<T> results = {out.data(), 2 * n, used, n, true};
        cpu::lane_sums own, others;
        const cpu::parity_pair sums = {own, others};
        ASSERT_TRUE(by.repeats(call, sums)) << n << " " << used;
        const std::uint64_t right_parity = parity_of_runs(results);
        EXPECT_EQ(cpu::parity_of(own), right_parity);
        for (std::int64_t i = 0; i < scalars; ++i) {
          const T right = out[i];
          out[i] = std::bit_cast<T>(static_cast<cpu::word_of<T>>(std::bit_cast<cpu::word_of<T>>(right) ^ (cpu::word_of<T>{1} << i % 32)));
          ASSERT_FALSE(by.repeats(call, sums)) << n << " " << used << " " << i;
          // Its own parity is still that of the right results.
          EXPECT_EQ(cpu::parity_of(others), parity_of_runs(results));
          out[i] = right;
          ASSERT_EQ(cpu::parity_of(own), right_parity) << i;
        }
        core::aligned_buffer<T> other(out.size());
        call.to = other.data();
        by.repeat(call);
        EXPECT_TRUE(kernel.same_bits(out.data(), other.data(), scalars, sums));
        EXPECT_EQ(cpu::parity_of(own), parity_of_runs(results));
        other[scalars - 1] = -other[scalars - 1];
        EXPECT_FALSE(kernel.same_bits(out.data(), other.data(), scalars, sums));
      }
    }
  });
  EXPECT_GE(lengths, 8);
}

// A run past the cache that begins anywhere, without a parity. Its neighbours keep their numbers.
TYPED_TEST(fft_along, a_run_past_the_cache_is_a_copy) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  const std::int64_t lanes = kernel.lanes;
  for (std::int64_t scalars = 0; scalars <= 4 * lanes; ++scalars) {
    const std::vector<T> given = test::noise<T>(scalars + 1, 13);
    for (std::int64_t begin = 0; begin < lanes; ++begin) {
      core::aligned_buffer<T> memory(scalars + 2 * lanes);
      std::fill_n(memory.data(), memory.size(), T(7));
      kernel.stream_run(given.data(), scalars, memory.data() + begin);
      ASSERT_TRUE(std::equal(given.data(), given.data() + scalars, memory.data() + begin)) << scalars << " " << begin;
      const auto kept = [](T x) { return x == T(7); };
      ASSERT_TRUE(std::all_of(memory.data(), memory.data() + begin, kept)) << scalars << " " << begin;
      ASSERT_TRUE(std::all_of(memory.data() + begin + scalars, memory.data() + memory.size(), kept)) << scalars << " " << begin;
    }
  }
}

// Outputs above 16 MiB without protection, which go past the cache by parts, have the bits of small ones. They begin anywhere, and their
// last tile is not full.
TYPED_TEST(fft_along, outputs_past_the_cache_have_the_bits_of_small_ones) {
  using T = TypeParam;
  using number = std::complex<T>;
  constexpr std::int64_t k_numbers = (std::int64_t{17} << 20) / std::int64_t{sizeof(number)};
  std::vector<number> in(k_numbers), out(in.size() + 8), small(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = number(static_cast<T>(i % 1013) - T(506), static_cast<T>(i * i % 509));
  for (const std::int64_t n : {7, 8, 12, 16, 24, 32, 64, 100, 128, 256}) {
    const std::int64_t batch = k_numbers / n, few = batch / 4, numbers = n * batch;
    const execution bare = {.backend = backend::cpu, .threads = 2, .protection = protection::off};
    const auto made = [&](std::int64_t signals) {
      return plan({.kind = kind::c2c, .precision = sizeof(T) == 4 ? precision::f32 : precision::f64, .shape = {n}, .batch = signals}, bare);
    };
    const plan by_parts = made(few);
    for (std::int64_t first = 0; first < batch; first += few) {
      const std::int64_t signals = std::min(few, batch - first);
      const auto begin = static_cast<std::size_t>(first * n), count = static_cast<std::size_t>(signals * n);
      const std::span<const number> from(in.data() + begin, count);
      const std::span<number> to(small.data() + begin, count);
      (void)(signals == few ? by_parts.forward(from, to) : made(signals).forward(from, to));
    }
    const plan whole = made(batch);
    for (const std::size_t begin : {0, 1, 3}) {
      const std::span<number> to(out.data() + begin, static_cast<std::size_t>(numbers));
      (void)whole.forward({in.data(), static_cast<std::size_t>(numbers)}, to);
      ASSERT_EQ(std::memcmp(to.data(), small.data(), to.size_bytes()), 0) << n << " " << begin;
    }
  }
}

// Numbers of a run that are stored have the parity of those that were compared.
TYPED_TEST(fft_along, a_stored_run_has_its_parity) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  for (const std::int64_t scalars : {std::int64_t{1}, std::int64_t{3} * kernel.lanes, std::int64_t{200}, std::int64_t{201}}) {
    const std::vector<T> given = test::noise<T>(scalars, 11);
    std::vector<T> run = given, stored(run.size());
    const auto store = [&] { return kernel.store_run(run.data(), scalars, stored.data()); };
    const std::uint64_t parity = kernel.join_run(run.data(), scalars);
    cpu::run_words<T> plain;
    plain.add(run.data(), scalars, 0, kernel.lanes, 0);
    EXPECT_EQ(parity, plain.hash(kernel.lanes));
    ASSERT_EQ(store(), parity) << scalars;
    EXPECT_EQ(stored, given);
    for (T& each : run) {
      each = -each;
      ASSERT_NE(store(), parity) << scalars;
      each = -each;
    }
    change_registers(run.data(), scalars, 0, [&](std::int64_t i) { ASSERT_NE(store(), parity) << scalars << " " << i; });
  }
}

// ---- Longer lines, whose two steps are stages, and lines of reals ----

// W signals of a line of n points. The imaginary parts that a half spectrum ignores are noise, too.
template <class T>
struct signals_along {
  signals_along(form kind, std::int64_t n)
      : kind(kind),
        n(n),
        lanes(kernels<T>().lanes),
        by(kind, n, 2, true),
        in(test::noise<T>(2 * by.rows_in() * lanes, static_cast<std::uint64_t>(n))),
        out(2 * by.rows_out() * lanes),
        work(4 * n),
        pairs(2 * n * lanes) {}

  cpu::signals_of<T> given(int used) const { return {in.data(), 2 * by.rows_in(), used, by.rows_in()}; }
  cpu::signals_of<T> results(int used) const { return {out.data(), 2 * by.rows_out(), used, by.rows_out()}; }
  void run(
      int used, bool swapped, bool strikes = false, const cpu::striker<T>& strike = [](auto&&...) {}) {
    cpu::short_call<T> call;
    call.from = given(used);
    call.to = out.data();
    call.to_stride = 2 * by.rows_out();
    call.work = work.data();
    call.pairs = pairs.data();
    call.swapped = swapped;
    by.along()->run(call, strikes, strike);
  }
  void encode(int used, bool swapped, cpu::lane_sums& sums) const {
    kernels<T>().encode_signals(given(used), by.along()->input_weights(swapped), sums, {});
  }

  // Returns signal l of the input as n complex numbers, conjugate if `swapped`; and its transform as it is stored.
  std::vector<std::complex<wide<T>>> input(int l, bool swapped) const {
    const T* const x = in.data() + l * 2 * by.rows_in();
    std::vector<std::complex<wide<T>>> made;
    for (std::int64_t j = 0; j < n; ++j) {
      if (kind == form::complex) {
        made.emplace_back(x[2 * j], swapped ? -x[2 * j + 1] : x[2 * j + 1]);
      } else if (kind == form::real_forward) {
        made.emplace_back(x[j], 0);
      } else {
        // The conjugate spectrum: its forward transform is the inverse one of x.
        const bool mirrored = 2 * j > n;
        const std::int64_t i = mirrored ? n - j : j;
        const wide<T> im = i == 0 || 2 * i == n ? 0 : x[2 * i + 1];
        made.emplace_back(x[2 * i], mirrored ? im : -im);
      }
    }
    return made;
  }
  std::vector<wide<T>> expected(int l, bool swapped) const {
    const auto exact = dft(input(l, swapped));
    std::vector<wide<T>> made;
    for (std::int64_t k = 0; k < (kind == form::real_forward ? n / 2 + 1 : n); ++k) {
      const auto z = exact[static_cast<std::size_t>(k)];
      made.push_back(z.real());
      if (kind != form::real_inverse) made.push_back(swapped && kind == form::complex ? -z.imag() : z.imag());
    }
    return made;
  }

  form kind;
  std::int64_t n;
  int lanes;
  line<T> by;
  std::vector<T> in;
  core::aligned_buffer<T> out, work, pairs;
};

// Calls body(kind, n, swapped) for lines of all kinds that have such code: real ones over a short line, and lines of two steps with few and
// with many points.
template <class T, class Body>
void for_lines_along(Body&& body) {
  int seen = 0;
  for (const form kind : {form::complex, form::real_forward, form::real_inverse}) {
    for (const std::int64_t n : {32, 64, 512, 768, 1024, 4096}) {
      const std::int64_t points = kind == form::complex ? n : n / 2;
      if (!cpu::along_line<T>::exists(points, kind != form::complex) || (kind == form::complex && n <= cpu::k_longest_short)) continue;
      ++seen;
      for (const bool swapped : {false, true}) {
        if (kind == form::complex || swapped == (kind == form::real_inverse)) body(kind, n, swapped);
      }
    }
  }
  EXPECT_GE(seen, 12);
}

TYPED_TEST(fft_along, longer_lines_and_reals_are_accurate_and_the_same_in_steps) {
  using T = TypeParam;
  for_lines_along<T>([&](form kind, std::int64_t n, bool swapped) {
    signals_along<T> given(kind, n);
    ASSERT_NE(given.by.along(), nullptr) << n;
    double error = 0, size = 0;
    for (const int used : {1, given.lanes - 1, given.lanes}) {
      given.run(used, swapped);
      for (int l = 0; l<used; l += n> 512 ? 3 : 1) {
        const auto exact = given.expected(l, swapped);
        ASSERT_EQ(static_cast<std::int64_t>(exact.size()), 2 * given.by.rows_out());
        for (std::size_t i = 0; i < exact.size(); ++i) {
          const auto got = static_cast<wide<T>>(given.out[l * 2 * given.by.rows_out() + static_cast<std::int64_t>(i)]);
          error += static_cast<double>((exact[i] - got) * (exact[i] - got));
          size += static_cast<double>(exact[i] * exact[i]);
        }
      }
      const std::vector<T> whole(given.out.data(), given.out.data() + 2 * given.by.rows_out() * used);
      std::fill_n(given.out.data(), given.out.size(), T(0));
      given.run(used, swapped, true);
      EXPECT_TRUE(std::equal(whole.begin(), whole.end(), given.out.data())) << n << " " << swapped << " " << used;
    }
    // The bound of fft_property.cpp for such lengths.
    EXPECT_LE(std::sqrt(error / size), 0.83 * abft::unit_roundoff<T> * std::sqrt(std::log2(n))) << n << " " << swapped;
  });
}

TYPED_TEST(fft_along, sums_of_longer_lines_and_reals_are_those_of_a_tile) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  for_lines_along<T>([&](form kind, std::int64_t n, bool swapped) {
    signals_along<T> given(kind, n);
    for (const int used : {1, given.lanes / 2, given.lanes - 1, given.lanes}) {
      cpu::lane_sums along, tiled;
      core::aligned_buffer<T> tile(2 * n * given.lanes);
      const auto compare = [&](const char* which) {
        for (int l = 0; l < used; ++l) {
          for (int i = 0; i < 4; ++i) {
            const double bound = fft::thresholds::residual<T>(static_cast<double>(n), std::sqrt(2.0 * static_cast<double>(n)), k_kappa);
            EXPECT_NEAR(along.high[i][l], tiled.high[i][l], bound) << which << n << " " << used << " " << l << " " << i;
          }
        }
      };
      const auto rows = [&](const cpu::signals_of<T>& of) {
        kernel.load_rows(of.base, of.stride, used, 2 * of.points, tile.data(), {.parity = false});
      };
      given.encode(used, swapped, along);
      rows(given.given(used));
      if (kind == form::real_inverse) {
        for (const std::int64_t row : {std::int64_t{0}, given.by.rows_in() - 1})
          std::fill_n(tile.data() + (2 * row + 1) * given.lanes, given.lanes, T(0));
      }
      kernel.sum_tile(tile.data(), given.by.rows_in(), given.by.input_weights(swapped, &tiled));
      compare("input ");
      for (int l = 0; l < used; ++l) EXPECT_NEAR(along.squares[l] / tiled.squares[l], 1, 1e-5) << n;

      given.run(used, swapped);
      kernel.sum_signals(given.results(used), given.by.along()->output_weights(swapped), along);
      rows(given.results(used));
      kernel.sum_outputs(tile.data(), given.by.rows_out(), given.by.output_weights(swapped, &tiled));
      compare("output ");
      EXPECT_EQ(cpu::parity_of(along), parity_of_runs(given.results(used))) << n << " " << used;
      if (n > 1024) continue;
      // A store past the cache may begin anywhere: registers then hold the end of a signal and the beginning of the next one.
      const std::int64_t scalars = 2 * given.by.rows_out();
      core::aligned_buffer<T> memory(scalars * used + given.lanes);
      for (const std::int64_t begin : {0, 1, 2, 6}) {
        if (begin >= given.lanes) continue;
        const auto stored = [&] { return kernel.store_signals(given.results(used), memory.data() + begin, scalars, true); };
        ASSERT_EQ(stored(), cpu::parity_of(along)) << n << " " << used << " " << begin;
        ASSERT_TRUE(std::equal(given.out.data(), given.out.data() + scalars * used, memory.data() + begin)) << n << " " << used;
        if (n > 64) continue;
        const std::int64_t first = (given.lanes - begin) % given.lanes;
        change_registers(given.out.data(), scalars * used, first, [&](std::int64_t i) {
          ASSERT_NE(stored(), cpu::parity_of(along)) << n << " " << used << " " << begin << " " << i;
        });
      }
    }
  });
}

// Changes numbers after every step such that the effect on the outputs is a little above the floor, in a different place of every signal,
// and the factors of every step as well.
TYPED_TEST(fft_along, a_change_after_any_step_is_seen) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  for_lines_along<T>([&](form kind, std::int64_t n, bool swapped) {
    if (n == 4096) return;  // the same code as 1024, and much time
    signals_along<T> given(kind, n);
    const auto points = static_cast<double>(n);
    const int lanes = given.lanes;
    const std::int64_t scalars = 2 * given.by.rows_out();
    cpu::lane_sums input, output;
    given.encode(lanes, swapped, input);
    given.run(lanes, swapped);
    const std::vector<T> clean(given.out.data(), given.out.data() + scalars * lanes);
    const auto verdicts_of = [&](cpu::lane_verdicts& verdicts) {
      kernel.sum_signals(given.results(lanes), given.by.along()->output_weights(swapped), output);
      const double kappa = k_kappa * given.by.sensitivity();
      const double least = fft::thresholds::residual<T>(points, 0, kappa) + fft::thresholds::output_underflow<T>(points);
      const double factor = fft::thresholds::residual<T>(points, 1, kappa) - fft::thresholds::residual<T>(points, 0, kappa);
      kernel.set_thresholds(input, lanes, {{factor, factor}, {least, least}}, 0, 1e300, verdicts);
      kernel.compare(input, output, 1, verdicts);
    };
    const auto passes = [](const cpu::lane_verdicts& verdicts, int l) {
      return verdicts.word[0][l] == cpu::k_lane_pass && verdicts.word[1][l] == cpu::k_lane_pass;
    };
    cpu::lane_verdicts verdicts;
    verdicts_of(verdicts);
    for (int l = 0; l < lanes; ++l) EXPECT_TRUE(passes(verdicts, l)) << n << " " << l;

    std::int64_t struck = 0, above = 0;
    for (std::int64_t step = 0; step < given.by.along()->stages(); ++step) {
      // Between the steps of a short line the numbers of a signal do not lie together: complex lines have a test of their own.
      if (step == (kind == form::real_inverse ? 1 : 0) && kernel.shape_of_short(kind == form::complex ? n : n / 2).first != 0) continue;
      std::int64_t numbers = 1;
      for (std::int64_t round = 0; round<numbers; round += lanes> 4 ? 3 : 1) {
        std::vector<double> change(static_cast<std::size_t>(lanes), 1);
        const auto run_struck = [&] {
          given.run(lanes, swapped, true, [&](inject::site where, std::int64_t at, T* data, std::int64_t count) {
            if (where != fft::site::stage || at != step) return;
            numbers = count / lanes;
            for (int l = 0; l < lanes; ++l)
              data[l * numbers + (round + 5 * l) % numbers] += static_cast<T>(change[static_cast<std::size_t>(l)]);
          });
        };
        // Finds the effect of a change by 1, then makes one above the floor.
        const auto effect = [&](int l) {
          double sum = 0, size = 0;
          for (std::int64_t i = l * scalars; i < (l + 1) * scalars; ++i) {
            const auto y = static_cast<double>(clean[static_cast<std::size_t>(i)]), e = static_cast<double>(given.out[i]) - y;
            sum += e * e;
            size += y * y;
          }
          const double unit = abft::unit_roundoff<T> * std::sqrt(std::log2(points) + 1) * std::sqrt(size);
          return std::sqrt(sum) / (test::k_host_floor * unit);
        };
        run_struck();
        for (int l = 0; l < lanes; ++l) change[static_cast<std::size_t>(l)] = effect(l) == 0 ? 0 : 1.1 / effect(l);
        run_struck();
        verdicts_of(verdicts);
        for (int l = 0; l < lanes; ++l) {
          ++struck;
          if (effect(l) < 1) continue;
          ++above;
          ASSERT_FALSE(passes(verdicts, l)) << n << " step " << step << " round " << round << " signal " << l;
        }
      }
    }
    EXPECT_GE(above, 0.95 * static_cast<double>(struck)) << n;
  });
}

}  // namespace
}  // namespace ballast::fft
