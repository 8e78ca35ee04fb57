// Short lines with vectors along the signal: their transform against a transform in more precision, their sums against those of a tile,
// every number between their two steps changed, their store.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "core/aligned_buffer.hpp"
#include "fft/cpu/tile_job.hpp"
#include "fft/sites.hpp"
#include "fft/tables/checks.hpp"
#include "fft/thresholds.hpp"
#include "support/fft_subject.hpp"

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
TYPED_TEST_SUITE(fft_along, precisions);

constexpr std::int64_t k_lengths[] = {16, 32, 64, 128, 256};

// W signals of n points, and where their results go.
template <class T>
struct short_signals {
  explicit short_signals(std::int64_t n, std::int64_t gap = 0)
      : points(n),
        lanes(kernels<T>().lanes),
        stride(2 * n + gap),
        by(form::complex, n, 2, true),
        in(test::noise<T>(stride * lanes, static_cast<std::uint64_t>(n))),
        out(2 * n * lanes),
        between(2 * n * lanes) {}

  cpu::short_call<T> call(int used, bool swapped) {
    cpu::short_call<T> made;
    made.from = {in.data(), stride, used, points};
    made.to = out.data();
    made.to_stride = 2 * points;
    made.between = between.data();
    made.swapped = swapped;
    return made;
  }
  void run(
      int used, bool swapped, bool strikes = false, const cpu::striker<T>& strike = [](auto&&...) {}) {
    by.along()->run(call(used, swapped), strikes, strike);
  }
  cpu::signals_of<T> results(int used) const { return {out.data(), 2 * points, used, points}; }

  std::int64_t points;
  int lanes;
  std::int64_t stride;
  line<T> by;
  std::vector<T> in;
  core::aligned_buffer<T> out, between;
};

TYPED_TEST(fft_along, is_accurate_both_ways_and_in_part) {
  using T = TypeParam;
  for (const std::int64_t n : k_lengths) {
    short_signals<T> given(n, 6);
    ASSERT_NE(given.by.along(), nullptr) << n;
    for (const bool swapped : {false, true}) {
      for (const int used : {1, given.lanes - 1, given.lanes}) {
        given.run(used, swapped);
        double error = 0, size = 0;
        for (int l = 0; l < used; ++l) {
          std::vector<std::complex<wide<T>>> x;
          for (std::int64_t j = 0; j < n; ++j) {
            const T* z = given.in.data() + l * given.stride + 2 * j;
            x.emplace_back(z[0], swapped ? -z[1] : z[1]);
          }
          const auto exact = dft(x);
          for (std::int64_t k = 0; k < n; ++k) {
            const T* y = given.out.data() + 2 * (l * n + k);
            const auto want = exact[static_cast<std::size_t>(k)];
            error += static_cast<double>(std::norm(want - std::complex<wide<T>>(y[0], swapped ? -y[1] : y[1])));
            size += static_cast<double>(std::norm(want));
          }
        }
        // The bound of fft_property.cpp for such lengths.
        EXPECT_LE(std::sqrt(error / size), 0.83 * abft::unit_roundoff<T> * std::sqrt(std::log2(n))) << n << " " << swapped << " " << used;
      }
    }
  }
}

TYPED_TEST(fft_along, the_two_steps_apart_give_the_same_bits) {
  using T = TypeParam;
  for (const std::int64_t n : k_lengths) {
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
  }
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
        kernel.load_rows(given.in.data(), given.stride, used, n, tile.data(), given.by.input_weights(swapped, &tiled));
        compare("input ");
        for (int l = 0; l < used; ++l) EXPECT_NEAR(along.squares[l] / tiled.squares[l], 1, 1e-5) << n;
        kernel.sum_signals(given.call(used, swapped).from, given.by.along()->output_weights(swapped), along);
        kernel.sum_outputs(tile.data(), n, given.by.output_weights(swapped, &tiled));
        compare("output ");
        EXPECT_EQ(cpu::parity_of<T>(along), kernel.join_rows(tile.data(), n)) << n << " " << used;
      }
    }
  }
}

// Changes every number between the two steps so that the effect is a little above the floor, in a different place of every signal.
TYPED_TEST(fft_along, a_change_of_any_number_between_its_steps_is_seen) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  for (const std::int64_t n : k_lengths) {
    short_signals<T> given(n);
    const auto points = static_cast<double>(n);
    cpu::lane_sums input, output;
    kernel.encode_signals(given.call(given.lanes, false).from, given.by.along()->input_weights(false), input, {});
    std::vector<std::vector<std::int64_t>> places(static_cast<std::size_t>(given.lanes));
    for (std::int64_t i = 0; i < 2 * n * given.lanes; ++i)
      places[static_cast<std::size_t>(given.by.along()->signal_between(i / (2 * given.lanes), i % given.lanes))].push_back(i);
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
      kernel.set_thresholds(input, given.lanes, factor, least, 0, 1e300, verdicts);
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
  const std::int64_t n = 32;
  short_signals<T> given(n);
  // One run may begin anywhere.
  for (const auto& [stream, gap, begin] :
       {std::array{0, 1, 0}, std::array{1, 1, 0}, std::array{0, 0, 6}, std::array{1, 0, 0}, std::array{1, 0, 6}}) {
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
      kernel.sum_signals(given.results(used), given.by.along()->output_weights(false), sums);
      ASSERT_EQ(kernel.store_signals(given.results(used), stored.data(), stride, stream != 0), cpu::parity_of<T>(sums));
      for (std::int64_t i = 0; i < stored.size(); ++i) {
        const std::int64_t l = i / stride, at = i % stride;
        ASSERT_EQ(stored[i], l < used && at < 2 * n ? given.out[l * 2 * n + at] : T(7)) << l << " " << at;
      }
      for (std::int64_t i = 0; i < 2 * n * used; ++i) {
        given.out[i] = -given.out[i];
        ASSERT_NE(kernel.store_signals(given.results(used), stored.data(), stride, stream != 0), cpu::parity_of<T>(sums)) << i;
        given.out[i] = -given.out[i];
      }
    }
  }
}

}  // namespace
}  // namespace ballast::fft
