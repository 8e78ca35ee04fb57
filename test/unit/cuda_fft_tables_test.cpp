// The tables that kernels read, against long double: roots of unity, twiddle factors, chirps and filters, weights of the checksums; and the
// single wrong numbers that those weights detect.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/counter_rng.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "fft/cuda/plan/tables.hpp"
#include "fft/cuda/policy/choose_policy.hpp"
#include "fft/cuda/policy/roots.hpp"
#include "fft/cuda/policy/weights.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "unit/cuda_fft_devices.hpp"

namespace ballast::fft::cuda {
namespace {

TEST(cuda_fft_roots, are_the_nearest_doubles) {
  static_assert(root_of_unity(1, 4).re == 0 && root_of_unity(1, 4).im == -1);
  const long double turn = 2 * std::numbers::pi_v<long double>;
  for (int n = 1; n <= 64; ++n) {
    for (int k = 0; k < 2 * n; ++k) {
      const unit_root w = cuda::root_of_unity(k, n);
      const auto wanted = fft::root_of_unity<long double>(k, n);
      EXPECT_NEAR(static_cast<double>(std::abs(wanted.real() - std::cos(turn * k / n))), 0, 1e-17) << k << "/" << n;
      EXPECT_EQ(w.re, static_cast<double>(wanted.real())) << k << "/" << n;
      EXPECT_EQ(w.im, static_cast<double>(wanted.imag())) << k << "/" << n;
    }
  }
}

template <class T>
std::complex<long double> number_at(const std::vector<T>& table, std::size_t i) {
  return {static_cast<long double>(table.at(2 * i)), static_cast<long double>(table.at(2 * i + 1))};
}

template <class T>
class cuda_fft_tables : public testing::Test {
 protected:
  static constexpr long double u = sizeof(T) == 4 ? 0x1p-24L : 0x1p-53L;

  static line_policy policy(int length, bool mirrored = false) {
    line_request wanted;
    wanted.length = length;
    wanted.wide = sizeof(T) == 8;
    wanted.count = wanted.columns = 1000;
    wanted.check = check_form::verify_before_store;
    line_policy made = choose_policy(wanted, hopper(), tuning_table());
    if (mirrored) made.store = store_form::spectrum;
    return made;
  }
  static std::vector<std::complex<long double>> noise(std::size_t count) {
    std::mt19937_64 random(count);
    std::normal_distribution<double> normal;
    std::vector<std::complex<long double>> x;
    for (std::size_t i = 0; i < count; ++i) {
      const double re = normal(random);
      x.emplace_back(re, normal(random));
    }
    return x;
  }
};
using precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(cuda_fft_tables, precisions);

TYPED_TEST(cuda_fft_tables, stage_twiddles_are_rounded_roots) {
  using T = TypeParam;
  for (const int length : {2, 60, 64, 1000, 1331, 4096}) {
    const line_policy p = this->policy(length);
    const auto table = table_source<T>::stage_twiddles(p);
    std::size_t used = 0;
    for (int s = 1; s < p.stages; ++s) {
      const int before = p.before(s);
      for (int k = 1; k < p.radix[s]; ++k) {
        for (int j = 0; j < before; ++j, ++used) {
          ASSERT_EQ(used, static_cast<std::size_t>(p.twiddle_offset(s) + (k - 1) * before + j));
          const auto wanted = fft::root_of_unity<long double>(std::int64_t{j} * k, std::int64_t{before} * p.radix[s]);
          ASSERT_LE(std::abs(number_at(table, used) - wanted), 1.01L * this->u) << length << " stage " << s << " k " << k << " j " << j;
        }
      }
    }
    EXPECT_EQ(table.size(), 2 * used);
  }
}

TYPED_TEST(cuda_fft_tables, coarse_and_fine_twiddles_multiply_to_every_power) {
  using T = TypeParam;
  for (const std::int64_t order : {2, 3, 64, 1000, 4096, 65536, 1 << 20, 1000000}) {
    const int bits = fine_bits_of(order);
    const std::int64_t coarse = coarse_size_of(order);
    const auto table = table_source<T>::split_twiddles(order, bits);
    ASSERT_EQ(table.size(), static_cast<std::size_t>(2 * (coarse + (std::int64_t{1} << bits))));
    EXPECT_LE(coarse * coarse, 4 * order);
    for (std::int64_t p = 0; p < order; p += std::max<std::int64_t>(1, order / 1009)) {
      const auto got = number_at(table, static_cast<std::size_t>(p >> bits)) *
                       number_at(table, static_cast<std::size_t>(coarse + (p & ((std::int64_t{1} << bits) - 1))));
      ASSERT_LE(std::abs(got - fft::root_of_unity<long double>(p, order)), 2.05L * this->u) << p << " of " << order;
    }
  }
}

TYPED_TEST(cuda_fft_tables, separated_twiddles_multiply_to_every_power) {
  using T = TypeParam;
  for (const int length : {4, 60, 64, 512}) {
    const line_policy p = this->policy(length);
    for (const std::int64_t columns : {1, 7, 64}) {
      const auto table = table_source<T>::separated_twiddles(p, columns);
      const std::int64_t radix = p.radix[p.stages - 1];
      const std::int64_t stride = length / radix;
      ASSERT_EQ(table.size(), static_cast<std::size_t>(2 * columns * (radix + stride)));
      for (std::int64_t c = 0; c < columns; c += 3) {
        for (std::int64_t k = 0; k < length; ++k) {
          const auto got = number_at(table, static_cast<std::size_t>(c * radix + k / stride)) *
                           number_at(table, static_cast<std::size_t>(columns * (radix + k % stride) + c));
          ASSERT_LE(std::abs(got - fft::root_of_unity<long double>(c * k, length * columns)), 2.05L * this->u) << c << " " << k;
        }
      }
    }
  }
}

// Bluestein's algorithm with the tables, and everything else in long double, gives the transform.
TYPED_TEST(cuda_fft_tables, chirp_and_filter_convolve_to_the_transform) {
  using T = TypeParam;
  for (const std::int64_t n : {17, 67, 101, 499}) {
    for (const bool inverse : {false, true}) {
      const std::int64_t convolution = inverse ? -n : n;
      const std::int64_t m = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * n)));
      const auto chirp = table_source<T>::chirp(convolution, m, false);
      const auto mirrored = table_source<T>::chirp(convolution, m, true);
      const auto filter = table_source<T>::filter(convolution, m);
      ASSERT_EQ(chirp.size(), static_cast<std::size_t>(2 * m));
      ASSERT_EQ(filter.size(), static_cast<std::size_t>(2 * m));
      const auto x = this->noise(static_cast<std::size_t>(n));
      std::vector<std::complex<long double>> a(static_cast<std::size_t>(m));
      for (std::size_t i = 0; i < x.size(); ++i) {
        a[i] = x[i] * number_at(chirp, i);
        EXPECT_EQ(number_at(mirrored, i), std::conj(number_at(chirp, i)));
      }
      for (std::size_t i = x.size(); i < a.size(); ++i)
        EXPECT_EQ(number_at(chirp, i), std::complex<long double>(1)) << "ones beyond the line, which have inverses";
      a = dft(std::move(a));
      // Compute the inverse transform as a forward one with real and imaginary parts exchanged, like the second pass. Its chirp is the
      // conjugate; `filter` contains the factor 1/m.
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] *= number_at(filter, i);
        a[i] = {a[i].imag(), a[i].real()};
      }
      a = dft(std::move(a));
      std::vector<std::complex<long double>> y;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto z = a[i] * number_at(mirrored, i);
        y.emplace_back(z.imag(), z.real());
      }
      auto wanted = x;
      if (inverse) std::ranges::transform(wanted, wanted.begin(), [](const auto& z) { return std::conj(z); });
      wanted = dft(std::move(wanted));
      if (inverse) std::ranges::transform(wanted, wanted.begin(), [](const auto& z) { return std::conj(z); });
      long double difference = 0, size = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        difference += std::norm(y[i] - wanted[i]);
        size += std::norm(wanted[i]);
      }
      EXPECT_LE(std::sqrt(difference / size), 4 * this->u) << n << (inverse ? " inverse" : "");
    }
  }
}

// The check of a product with a table divides by its elements, so every element must have an inverse.
TYPED_TEST(cuda_fft_tables, factors_and_their_inverses_multiply_to_1) {
  using T = TypeParam;
  // The transform of a chirp of 64 points, periodic with 128, is 0 at every other place.
  for (const std::int64_t n : {64, 67, 1009}) {
    const std::int64_t m = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * n - 1)));
    const auto least = static_cast<long double>(table_source<T>::smallest_of_filter(n, m));
    const auto chirp = table_source<T>::chirp(n, m, false);
    const auto filter = table_source<T>::filter(n, m);
    for (const auto& table : {chirp, filter}) {
      const auto inverse = table_source<T>::inverses(table);
      ASSERT_EQ(inverse.size(), table.size());
      for (std::size_t i = 0; 2 * i < table.size(); ++i)
        ASSERT_LE(std::abs(number_at(table, i) * number_at(inverse, i) - 1.0L), 2 * this->u) << n << " at " << i;
    }
    long double square = 0, smallest = 1;
    for (std::int64_t i = 0; i < m; ++i) {
      const long double size = std::abs(number_at(filter, static_cast<std::size_t>(i)));
      square += size * size;
      smallest = std::min(smallest, size);
    }
    EXPECT_NEAR(static_cast<double>(std::sqrt(square / static_cast<long double>(m)) * this->u / 4 / least), 1, 1e-3);
    EXPECT_GE(smallest, least * (1 - 2 * this->u));
  }
}

// Returns weight a of output o in both vectors, computed as in the kernel: from the phases of o's butterfly and the place of o in it.
template <class T>
std::array<std::complex<long double>, 2> weights_of(const line_policy& p, const std::vector<T>& phases, int o) {
  const int last = p.radix[p.stages - 1];
  const int stride = p.length / last;
  const int k = o / stride;
  const auto j = static_cast<std::size_t>(o % stride);
  std::array<std::complex<long double>, 2> a;
  for (std::size_t v = 0; v < 2; ++v) {
    a[v] = {phases[4 * j + 2 * v], phases[4 * j + 2 * v + 1]};
    for (int i = 0; i < weight_quarters(last, k, p.mirrors()); ++i) a[v] *= std::complex<long double>(0, 1);
  }
  if (weight_negative(last, k, p.mirrors())) a[1] = -a[1];
  return a;
}

// Returns the constants of a first butterfly, for a radix known at run time.
template <int Radix = k_weight_patterns>
std::vector<std::array<std::complex<long double>, 3>> inputs_of(int radix, bool mirrored) {
  if constexpr (Radix == 0) {
    return {};
  } else {
    if (radix != Radix) return inputs_of<Radix - 1>(radix, mirrored);
    const input_weights<Radix> w(mirrored);
    const auto wide = [](const unit_root& z) { return std::complex<long double>(z.re, z.im); };
    std::vector<std::array<std::complex<long double>, 3>> made;
    for (int m = 0; m < Radix; ++m) made.push_back({wide(w.line[0][m]), wide(w.line[1][m]), wide(w.butterfly[m])});
    return made;
  }
}
std::complex<long double> turned(std::complex<long double> z, int quarters) {
  for (; quarters > 0; --quarters) z *= std::complex<long double>(0, 1);
  return z;
}

// Returns the encoded sums of x, computed as in the kernel. With one stage: the weighted inputs. With several stages: a series over the
// results of the first butterflies, plus the difference between their weighted results and their weighted inputs.
template <class T>
std::array<std::complex<long double>, 2> encoded(const line_policy& p, const typename table_source<T>::weights& weights,
                                                 const std::vector<std::complex<long double>>& x) {
  const int r = p.radix[0];
  const auto constants = inputs_of(r, p.mirrors());
  std::array<std::complex<long double>, 2> made{};
  const int butterflies = p.length / r;
  for (int j = 0; j < butterflies; ++j) {
    std::vector<std::complex<long double>> z;
    std::complex<long double> given = 0, results = 0, series = 0;
    for (int m = 0; m < r; ++m) {
      z.push_back(x[static_cast<std::size_t>(j + m * butterflies)]);
      given += constants[static_cast<std::size_t>(m)][2] * z.back();
      if (p.stages > 1) continue;
      for (const std::size_t v : {0u, 1u}) made[v] += number_at(weights.encode, v) * constants[static_cast<std::size_t>(m)][v] * z.back();
    }
    if (p.stages == 1) continue;
    z = dft(std::move(z));
    const auto step = number_at(weights.encode, static_cast<std::size_t>(2 * butterflies + j));
    for (int k = 0; k < r; ++k) {
      const auto at = static_cast<std::size_t>(k);
      results += static_cast<long double>(butterfly_weight_size(r, k)) * turned(z[at], butterfly_weight_quarters(r, k));
      series += turned(z[at], weight_quarters(r, k)) * std::pow(step, k - weight_centre(r));
    }
    // In exact arithmetic this difference is 0.
    EXPECT_LE(std::abs(results - given), 1e-14L * std::abs(given) + 1e-14L);
    for (const std::size_t v : {0u, 1u})
      made[v] += number_at(weights.encode, 2 * static_cast<std::size_t>(j) + v) * (series + results - given);
  }
  return made;
}

// aᵀ(Wx) equals the encoded sums of x, for both vectors.
TYPED_TEST(cuda_fft_tables, weights_encode_what_they_verify) {
  using T = TypeParam;
  const auto check = [&](int length, bool mirrored) {
    SCOPED_TRACE(std::to_string(length) + (mirrored ? " mirrored" : ""));
    const line_policy p = this->policy(length, mirrored);
    const auto weights = table_source<T>::checksum_weights(p);
    ASSERT_EQ(weights.verify.size(), static_cast<std::size_t>(4 * length / p.radix[p.stages - 1]));
    ASSERT_EQ(weights.encode.size(), static_cast<std::size_t>(p.stages == 1 ? 4 : 6 * length / p.radix[0]));
    const auto x = this->noise(static_cast<std::size_t>(length));
    const auto y = dft(x);
    const auto in = encoded<T>(p, weights, x);
    std::complex<long double> out[2], product = 0;
    long double norm = 0;
    for (int i = 0; i < length; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto a = weights_of(p, weights.verify, i);
      product += a[0] * std::conj(a[1]);
      norm += std::norm(x[at]);
      for (const std::size_t v : {0u, 1u}) {
        EXPECT_NEAR(static_cast<double>(std::abs(a[v])), 1, 1e-6);
        out[v] += a[v] * y[at];
      }
    }
    for (const int v : {0, 1}) {
      // Besides a, only A and the step of the series are rounded. |A(j)| is about √(N/r); the errors of N terms add up like noise.
      const long double allowed = 6 * this->u * std::sqrt(static_cast<long double>(length) * norm);
      EXPECT_LE(std::abs(out[v] - in[v]), allowed) << "vector " << v;
      EXPECT_GT(std::abs(out[v]), 100 * allowed) << "or this would prove nothing";
    }
    if (length >= 60) {
      EXPECT_LE(std::abs(product), length / 4.0L) << "vectors that are nearly orthogonal";
    }
  };
  for (const int length : {1, 2, 7, 37, 60, 64, 127, 1000, 1024, 1331}) check(length, false);
  for (const int length : {2, 4, 5, 12, 60, 64, 200, 1000, 1024}) check(length, true);
}

// The change of the checksums when one number before a stage changes, divided by the root of the number of outputs that it reaches: aᵀ is
// followed backwards through the stages. With independent random phases the mean square is 1, and the least of many values is near 0. The
// outputs that the last stage reaches belong to one butterfly, whose phases are not random: there the larger of the two must be well above
// 0.
TYPED_TEST(cuda_fft_tables, every_number_before_every_stage_is_seen_by_the_weights) {
  using T = TypeParam;
  double least_of_all = 10;
  for (const bool mirrored : {false, true})
    for (const int length : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 60, 64, 256, 320, 512, 1000, 1024, 1331, 4096, 8192}) {
      SCOPED_TRACE(std::to_string(length) + (mirrored ? " mirrored" : ""));
      const line_policy p = this->policy(length, mirrored);
      const auto weights = table_source<T>::checksum_weights(p);
      std::vector<std::array<std::complex<long double>, 2>> a(static_cast<std::size_t>(length));
      for (int o = 0; o < length; ++o) a[static_cast<std::size_t>(o)] = weights_of(p, weights.verify, o);
      double touched = 1;
      double square_sum = 0;
      int numbers = 0;
      for (int s = p.stages - 1; s >= std::min(1, p.stages - 1); --s) {
        const int r = p.radix[s];
        const int before = p.before(s);
        const int stride = length / r;
        auto back = a;
        double least = 10;
        touched *= r;
        for (int j = 0; j < stride; ++j) {
          for (int k = 0; k < r; ++k) {
            std::array<std::complex<long double>, 2> sum{};
            for (int m = 0; m < r; ++m) {
              const auto w = fft::root_of_unity<long double>(std::int64_t{m} * k, r);
              for (const std::size_t v : {0u, 1u})
                sum[v] += w * a[static_cast<std::size_t>((j - j % before) * r + j % before + m * before)][v];
            }
            const auto w = fft::root_of_unity<long double>(std::int64_t{j % before} * k, std::int64_t{before} * r);
            for (const std::size_t v : {0u, 1u}) back[static_cast<std::size_t>(j + k * stride)][v] = w * sum[v];
            const double first = static_cast<double>(std::abs(sum[0])) / std::sqrt(touched);
            const double second = static_cast<double>(std::abs(sum[1])) / std::sqrt(touched);
            least = std::min(least, std::max(first, second));
            square_sum += first * first + second * second;
            numbers += 2;
          }
        }
        a = std::move(back);
        if (s == p.stages - 1) {
          EXPECT_GE(least, 0.66);
        }
        EXPECT_GE(least, 0.05) << "stage " << s;
        least_of_all = std::min(least_of_all, least);
      }
      // Inputs and results of the first of several stages have their own weights, times A of their butterfly.
      if (p.stages > 1) {
        const int r = p.radix[0];
        const auto constants = inputs_of(r, false);
        double least = 10;
        for (int j = 0; j < length / r; ++j) {
          const auto at = static_cast<std::size_t>(j);
          const double size =
              static_cast<double>(std::max(std::abs(number_at(weights.encode, 2 * at)), std::abs(number_at(weights.encode, 2 * at + 1))) /
                                  std::sqrt(length / r));
          for (int m = 0; m < r; ++m) {
            const auto given = static_cast<double>(std::abs(constants[static_cast<std::size_t>(m)][2])) / std::sqrt(r);
            least = std::min({least, size * given, size * butterfly_weight_size(r, m)});
          }
        }
        EXPECT_GE(least, 0.15) << "before and behind the first butterflies";
      }
      EXPECT_NEAR(square_sum / numbers, 1, 0.01);
    }
  this->RecordProperty("least_response", std::to_string(least_of_all));
}

// Two weights see an element of the spectrum of reals: that of its output and that of the mirror image (sum_spectrum in line_sums.cuh). A
// change of one phase may cancel in one vector, but not in both.
TYPED_TEST(cuda_fft_tables, every_element_of_the_spectrum_of_reals_is_seen_by_the_weights) {
  using T = TypeParam;
  using number = std::complex<double>;
  double least = 10;
  for (const int length : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 60, 64, 180, 200, 256, 500, 512, 1000, 1024, 1331, 4096}) {
    const line_policy p = this->policy(length, true);
    const auto weights = table_source<T>::checksum_weights(p);
    for (int o = 1; o < length; ++o) {
      const auto own = weights_of(p, weights.verify, o), image = weights_of(p, weights.verify, length - o);
      const number g = number(0, 1) * std::polar(1.0, std::numbers::pi * o / length);
      // |aᵀz| of X_o = e^{iψ}, the larger of both vectors, for the worst ψ.
      double seen = 10;
      for (int step = 0; step < 180; ++step) {
        const number x = std::polar(1.0, std::numbers::pi * step / 180);
        double larger = 0;
        for (const std::size_t v : {0u, 1u})
          larger = std::max(larger, std::abs(number(own[v]) * (1.0 + g) * x + number(image[v]) * std::conj((1.0 - g) * x)) / 2);
        seen = std::min(seen, larger);
      }
      ASSERT_GE(seen, 0.25) << length << " output " << o;
      least = std::min(least, seen);
    }
  }
  this->RecordProperty("least_response", std::to_string(least));
}

// The weights of the results that neighbouring threads hold: one mask changes them by equal amounts of any signs, or by different powers of
// two. No such sum is nearly zero in both vectors. With powers of i alone many are exactly zero.
TYPED_TEST(cuda_fft_tables, equal_changes_of_neighbours_do_not_cancel) {
  using T = TypeParam;
  constexpr int neighbours = 16, draws = 4096;
  for (const bool mirrored : {false, true}) {
    for (const int length : {9, 12, 16, 20, 25, 36, 49, 60, 64, 100, 128, 256, 320, 512, 1000, 1024, 1331, 4096}) {
      SCOPED_TRACE(std::to_string(length) + (mirrored ? " mirrored" : ""));
      const line_policy p = this->policy(length, mirrored);
      if (p.stages == 1) continue;
      const auto weights = table_source<T>::checksum_weights(p);
      const int stride = length / p.radix[p.stages - 1];
      for (int first = 0; first < stride; first += neighbours) {
        const int count = std::min(neighbours, stride - first);
        for (int sizes = 0; sizes < 2; ++sizes) {
          for (std::uint64_t draw = 0; draw < draws; ++draw) {
            std::complex<double> sum[2] = {};
            double square = 0;
            for (int j = 0; j < count; ++j) {
              const std::uint64_t bits = core::random_bits(draw, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(j));
              const double change = std::ldexp((bits & 1) != 0 ? 1 : -1, sizes == 0 ? 0 : static_cast<int>(bits >> 1 & 3));
              square += change * change;
              const auto a = weights_of(p, weights.verify, first + j);
              for (const std::size_t v : {0u, 1u}) sum[v] += std::complex<double>(a[v]) * change;
            }
            ASSERT_GE(std::max(std::abs(sum[0]), std::abs(sum[1])) / std::sqrt(square), 1e-3) << first << ' ' << sizes << ' ' << draw;
          }
        }
      }
    }
  }
}

// ---- Weights within a butterfly ----

// The exponents in policy/weights.hpp have the properties stated there.
TEST(cuda_fft_weights, one_butterfly_has_no_blind_spot) {
  for (int count = 2; count <= k_weight_patterns; ++count) {
    SCOPED_TRACE(count);
    double least = 10;
    double least_mirrored = 10;
    double least_first = 10;  // least response to the constant weights of first butterflies; divided by √size their mean square is 1
    double size = 0;
    for (int k = 0; k < count; ++k) size += butterfly_weight_size(count, k) * butterfly_weight_size(count, k) / count;
    for (int apart = 1; apart < count; ++apart) {
      if (count % apart != 0) continue;
      const int terms = count / apart;
      for (int first = 0; first < apart; ++first) {
        for (int frequency = 0; frequency < terms; ++frequency) {
          std::complex<double> half[2] = {0, 0}, mirrored[2] = {0, 0};
          std::complex<double> alone = 0;
          for (int i = 0; i < terms; ++i) {
            const int n = first + i * apart;
            const double turn = -2 * std::numbers::pi * i * frequency / terms;
            half[weight_negative(count, n, false) ? 1 : 0] += std::polar(1.0, std::numbers::pi / 2 * weight_quarters(count, n) + turn);
            mirrored[weight_negative(count, n, true) ? 1 : 0] +=
                std::polar(1.0, std::numbers::pi / 2 * weight_quarters(count, n, true) + turn);
            alone += std::polar(butterfly_weight_size(count, n), std::numbers::pi / 2 * butterfly_weight_quarters(count, n) + turn);
          }
          least_first = std::min(least_first, std::abs(alone) / std::sqrt(terms * size));
          least = std::min(least, std::max(std::abs(half[0] + half[1]), std::abs(half[0] - half[1])) / std::sqrt(terms));
          least_mirrored = std::min(least_mirrored,
                                    std::max(std::abs(mirrored[0] + mirrored[1]), std::abs(mirrored[0] - mirrored[1])) / std::sqrt(terms));
        }
      }
    }
    EXPECT_GE(least, count <= 16 ? 0.66 : 0.35);
    EXPECT_GE(least_mirrored, count <= 16 ? 0.66 : count == 20 || count == 28 ? 0.29 : 0.35) << "no line has radix 20 or 28";
    // Radices 12 and 15 trade part of this for the numbers within a butterfly (next test).
    const bool used = count <= 16 || count == 17 || count == 19 || count == 23 || count == 29 || count == 31;
    EXPECT_GE(least_first, count == 12 || count == 15 ? 0.48 : used ? 0.53 : 0.39);
  }
}

// For each number that butterfly.cuh computes within a butterfly of `count`: the change of the results if that number is wrong by 1.
std::vector<std::vector<std::complex<double>>> faults_within(int count) {
  using results = std::vector<std::complex<double>>;
  const auto root = [](int k, int n) { return std::polar(1.0, -2 * std::numbers::pi * k / n); };
  std::vector<results> made;
  if (count <= 2) return made;
  if (count == 4) return {{1, 0, 1, 0}, {1, 0, -1, 0}, {0, 1, 0, 1}, {0, {0, -1}, 0, {0, 1}}};
  if (smallest_factor(count) == count) {
    for (int k = 1; 2 * k < count; ++k) {
      results sum(static_cast<std::size_t>(count)), difference = sum, cosines = sum, sines = sum;
      for (int m = 0; m < count; ++m) {
        sum[static_cast<std::size_t>(m)] = root(m * k, count).real();
        difference[static_cast<std::size_t>(m)] = root(m * k, count).imag();
      }
      cosines[static_cast<std::size_t>(k)] = cosines[static_cast<std::size_t>(count - k)] = sines[static_cast<std::size_t>(k)] = 1;
      sines[static_cast<std::size_t>(count - k)] = -1;
      made.insert(made.end(), {sum, difference, cosines, sines});
    }
    return made;
  }
  const int inner = inner_radix(count);
  const int outer = count / inner;
  const bool thomas = coprime(inner, outer);
  const auto position = [&](int p, int q) {
    return static_cast<std::size_t>(thomas ? index_of_remainders(p, inner, q, outer) : p + inner * q);
  };
  auto before = faults_within(inner);
  for (int p = 0; p < inner; ++p) {
    before.emplace_back(inner);
    before.back()[static_cast<std::size_t>(p)] = 1;
  }
  for (const results& wrong : before) {
    for (int b = 0; b < outer; ++b) {
      made.emplace_back(count);
      for (int p = 0; p < inner; ++p) {
        for (int q = 0; q < outer; ++q)
          made.back()[position(p, q)] = wrong[static_cast<std::size_t>(p)] * (thomas ? 1.0 : root(p * b, count)) * root(b * q, outer);
      }
    }
  }
  for (const results& wrong : faults_within(outer)) {
    for (int p = 0; p < inner; ++p) {
      made.emplace_back(count);
      for (int q = 0; q < outer; ++q) made.back()[position(p, q)] = wrong[static_cast<std::size_t>(q)];
    }
  }
  return made;
}

// The weights of last butterflies detect each of these faults, and so do those of first butterflies.
TEST(cuda_fft_weights, no_number_within_a_butterfly_is_a_blind_spot) {
  for (const int count : {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 23, 29, 31, 32}) {
    SCOPED_TRACE(count);
    double size = 0;
    for (int k = 0; k < count; ++k) size += butterfly_weight_size(count, k) * butterfly_weight_size(count, k) / count;
    double least = 10;
    double least_mirrored = 10;
    double least_first = 10;
    for (const auto& wrong : faults_within(count)) {
      double square = 0;
      std::complex<double> half[2] = {0, 0}, mirrored[2] = {0, 0};
      std::complex<double> alone = 0;
      for (int k = 0; k < count; ++k) {
        const std::complex<double> y = wrong[static_cast<std::size_t>(k)];
        square += std::norm(y);
        half[weight_negative(count, k, false) ? 1 : 0] += y * std::polar(1.0, std::numbers::pi / 2 * weight_quarters(count, k));
        mirrored[weight_negative(count, k, true) ? 1 : 0] += y * std::polar(1.0, std::numbers::pi / 2 * weight_quarters(count, k, true));
        alone += y * std::polar(butterfly_weight_size(count, k), std::numbers::pi / 2 * butterfly_weight_quarters(count, k));
      }
      least = std::min(least, std::max(std::abs(half[0] + half[1]), std::abs(half[0] - half[1])) / std::sqrt(square));
      least_mirrored =
          std::min(least_mirrored, std::max(std::abs(mirrored[0] + mirrored[1]), std::abs(mirrored[0] - mirrored[1])) / std::sqrt(square));
      least_first = std::min(least_first, std::abs(alone) / std::sqrt(square * size));
    }
    EXPECT_GE(least, count <= 16 ? 0.47 : 0.35);
    EXPECT_GE(least_mirrored, count <= 16 ? 0.47 : 0.35);
    EXPECT_GE(least_first, 0.37);
  }
}

// Both vectors see a first butterfly through the same weights. Changes of two results that are equal up to a power of i must not cancel.
TEST(cuda_fft_weights, no_pair_of_results_of_a_first_butterfly_is_invisible) {
  for (const int count : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 23, 29, 31, 32}) {
    SCOPED_TRACE(count);
    double size = 0;
    std::vector<std::complex<double>> weights;
    for (int k = 0; k < count; ++k) {
      size += butterfly_weight_size(count, k) * butterfly_weight_size(count, k) / count;
      weights.push_back(std::polar(butterfly_weight_size(count, k), std::numbers::pi / 2 * butterfly_weight_quarters(count, k)));
    }
    double least[2] = {10, 10};  // least response to equal or opposite changes, and to those a quarter turn apart
    for (std::size_t k = 0; k < weights.size(); ++k) {
      for (std::size_t l = 0; l < k; ++l) {
        for (int turn = 0; turn < 4; ++turn) {
          const double seen = std::abs(weights[k] + weights[l] * std::polar(1.0, std::numbers::pi / 2 * turn)) / std::sqrt(2 * size);
          least[turn % 2] = std::min(least[turn % 2], seen);
        }
      }
    }
    EXPECT_GE(least[0], count <= 16 ? 0.09 : 0.02);
    EXPECT_GE(least[1], count <= 16 ? 0.04 : 0.02);
  }
}

}  // namespace
}  // namespace ballast::fft::cuda
