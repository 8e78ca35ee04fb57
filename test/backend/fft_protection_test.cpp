// The protection of the FFT on the CPU from outside of its sites: every single number of a line changed, the sums inside of its last
// butterflies, sealed tiles, tables and factors that are wrong from the start.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "core/aligned_buffer.hpp"
#include "fft/cpu/tile.hpp"
#include "fft/cpu/volume.hpp"
#include "fft/sites.hpp"
#include "fft/tables/weights.hpp"
#include "fft/thresholds.hpp"
#include "inject/active.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
#include "run/recorder.hpp"
#include "support/effort.hpp"
#include "support/fft_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::fft {
namespace {

using cpu::kernels;
using cpu::line;
using number = std::complex<double>;

template <class T>
class fft_protection : public testing::Test {};
using precisions = testing::Types<float, double>;
TYPED_SUITE(fft_protection, precisions, test::number_names);

// A line of a form and a length in one precision: the parameter of a test. Weights have no precision.
struct line_case {
  form what;
  std::int64_t n;
  precision type = precision::f64;
};
std::string name_of_line(const line_case& each) {
  constexpr const char* forms[] = {"complex", "real_forward", "real_inverse"};
  return fmt::format("{}_n{}", forms[static_cast<int>(each.what)], each.n);
}
void PrintTo(const line_case& each, std::ostream* to) { *to << to_string(each.type) << '_' << name_of_line(each); }
std::string line_name(const testing::TestParamInfo<line_case>& info) { return name_of_line(info.param); }
std::string typed_line_name(const testing::TestParamInfo<line_case>& info) {
  return fmt::format("{}_{}", to_string(info.param.type), name_of_line(info.param));
}

// ---- Weights ----

std::int64_t rows_of(form what, std::int64_t n) {
  return what == form::complex ? n : what == form::real_forward || n % 2 == 1 ? n / 2 + 1 : n / 2;
}
// Pairs of reals, or single ones if their number is odd.
std::int64_t inputs_of(form what, std::int64_t n) {
  return what == form::complex || (what == form::real_forward && n % 2 == 1) ? n : what == form::real_forward ? n / 2 : n / 2 + 1;
}
// Returns whether there is such a line.
bool exists(form what, std::int64_t n) { return what == form::complex || n % 2 == 0 || real_radix(n) > 1; }

// The responses of the inputs are those of a transform in more precision of the weights: the steps of the search are the line's.
class fft_weights_of_line_test : public testing::TestWithParam<line_case> {};

TEST_P(fft_weights_of_line_test, are_followed_through_the_line_as_it_is) {
  const auto [what, n, type] = GetParam();
  const output_weights chosen = choose_weights(what, n, 1);
  const auto seen = input_responses(what, n, chosen);
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(inputs_of(what, n)));
  const std::int64_t unit = what == form::real_inverse ? 2 : 1;
  for (int v = 0; v < 2; ++v) {
    std::vector<number> a(static_cast<std::size_t>(n));
    for (std::size_t k = 0; k < chosen.a.size(); ++k) {
      ASSERT_NEAR(std::abs(chosen.a[k]), 1, 1e-12);
      if ((static_cast<std::int64_t>(k) / unit < second_half(rows_of(what, n))) == (v == 0)) a[k] = chosen.a[k];
    }
    const auto b = dft(a);
    for (std::size_t j = 0; j < seen.size(); ++j) {
      const std::size_t last = static_cast<std::size_t>(n) - 1, mirrored = j == 0 ? 0 : last + 1 - j;
      const bool alone = j == 0 || j == mirrored;
      const bool itself = what == form::complex || (what == form::real_forward && n % 2 == 1);
      const number to_real = itself ? b[j] : what == form::real_forward ? b[2 * j] : alone ? b[j] : b[j] + b[mirrored];
      const number to_imaginary = itself                       ? number(0, 1) * b[j]
                                  : what == form::real_forward ? b[2 * j + 1]
                                                               : number(0, 1) * (b[mirrored] - b[j]);
      EXPECT_LE(std::abs(seen[j].real[v] - to_real), 1e-11) << n << " " << j;
      EXPECT_LE(std::abs(seen[j].imaginary[v] - to_imaginary), 1e-11) << n << " " << j;
    }
  }
}

std::vector<line_case> followed_lines() {
  std::vector<line_case> made;
  for (const form what : {form::complex, form::real_forward, form::real_inverse}) {
    for (const std::int64_t n :
         {2, 3, 4, 6, 8, 9, 10, 14, 15, 30, 45, 64, 81, 90, 113, 134, 163, 211, 250, 263, 375, 432, 489, 526, 633, 844, 1001, 1024}) {
      if (exists(what, n)) made.push_back({what, n});
    }
  }
  return made;
}
INSTANTIATE_TEST_SUITE_P(fft, fft_weights_of_line_test, testing::ValuesIn(followed_lines()), line_name);

// By the definition: what a number between two stages gives to the outputs is q, q + s, q + 2s, … times powers of a root of unity.
class fft_weights_between_stages_test : public testing::TestWithParam<std::int64_t> {};

TEST_P(fft_weights_between_stages_test, every_number_responds) {
  const std::int64_t n = GetParam();
  const output_weights chosen = choose_weights(form::complex, n, 2);
  EXPECT_GE(chosen.least_response, k_least_response);
  double least = 1e300;
  std::int64_t s = 1;
  auto radices = prime_factors(n);
  radices.push_back(1);
  for (const std::int64_t p : radices) {
    const std::int64_t m = n / s;
    for (std::int64_t q = 0; q < s; ++q) {
      for (std::int64_t i = 0; i < m; ++i) {
        number sums[2] = {};
        for (std::int64_t k = 0; k < m; ++k) {
          const number w = std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i * k % m) / static_cast<double>(m));
          sums[q + s * k < second_half(n) ? 0 : 1] += w * chosen.a[static_cast<std::size_t>(q + s * k)];
        }
        const double response = std::max(std::abs(sums[0] + sums[1]), std::abs(sums[0] - sums[1])) / std::sqrt(static_cast<double>(m));
        least = std::min(least, response);
      }
    }
    s *= p;
  }
  EXPECT_GE(least, k_least_response) << n;
  if ((n & (n - 1)) == 0) {
    EXPECT_NEAR(chosen.least_response, 1, 1e-9) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(fft, fft_weights_between_stages_test, testing::Values(1, 2, 3, 8, 12, 45, 61, 64, 96, 100, 122, 135, 199, 243),
                         [](const auto& info) { return fmt::format("n{}", info.param); });

TEST(fft_weights, are_found_for_every_length) {
  const std::int64_t step = test::sampled() ? 53 : 7;
  for (const form what : {form::complex, form::real_forward, form::real_inverse}) {
    for (std::int64_t n = 1; n <= 2048; n += n < 150 ? 1 : step) {
      if (!exists(what, n)) continue;
      EXPECT_GE(choose_weights(what, n, 2).least_response, k_least_response) << n;
    }
  }
}

// Axes whose weights are multiplied by those of other axes: their inputs have a larger response, their other numbers the usual one.
TEST(fft_weights, of_inputs_are_found_for_every_length) {
  const std::int64_t step = test::sampled() ? 53 : 7;
  for (std::int64_t n = 2; n <= 2048; n += n < 150 ? 1 : step) {
    if (!cpu::is_direct(n)) continue;
    const output_weights chosen = choose_weights(form::complex, n, 1, k_least_joint_input);
    EXPECT_GE(chosen.least_response, k_least_response) << n;
    double least = 1e300;
    for (const input_response& each : input_responses(form::complex, n, chosen)) {
      const number sums[2] = {each.real[0] + each.real[1], each.real[0] - each.real[1]};
      least = std::min(least, std::max(std::abs(sums[0]), std::abs(sums[1])) / std::sqrt(static_cast<double>(n)));
    }
    EXPECT_GE(least, k_least_joint_input) << n;
  }
}

// ---- Lines ----

// A tile of one line in all lanes, run with a change of one number in each lane and compared as the library does.
template <class T>
class struck_line {
 public:
  struck_line(form what, std::int64_t n, std::uint64_t seed)
      : by_(what, n, 2, true), points_(static_cast<double>(n)), lanes_(kernels<T>().lanes), data_(scalars()), x_(scalars()), y_(scalars()) {
    const auto noise = test::noise<T>(2 * by_.rows_in(), seed);
    for (std::int64_t j = 0; j < 2 * by_.rows_in(); ++j) {
      for (std::int64_t l = 0; l < lanes_; ++l) data_[j * lanes_ + l] = noise[static_cast<std::size_t>(j)];
    }
    // The imaginary parts that a half spectrum must not have, and what is beside the last of an odd number of reals.
    const auto clear = [&](std::int64_t scalar) { std::fill_n(data_.data() + scalar * lanes_, lanes_, T(0)); };
    if (what == form::real_inverse) clear(1);
    if (what != form::complex && (what == form::real_inverse) != (n % 2 == 1)) clear(2 * by_.rows_in() - 1);
    kernels<T>().sum_tile(data_.data(), by_.rows_in(), by_.input_weights(false, &input_));
    clean_ = run([](inject::site, std::int64_t, T*, std::int64_t) {}, [](T*) {});
    double squares = 0;
    for (std::int64_t j = 0; j < 2 * by_.rows_out(); ++j)
      squares += std::pow(static_cast<double>(clean_[static_cast<std::size_t>(j * lanes_)]), 2);
    size_ = std::sqrt(squares);
  }

  const line<T>& by() const { return by_; }
  std::int64_t lanes() const { return lanes_; }
  // The effect that nothing of is missed, as ‖Δy‖.
  double floor() const { return test::k_host_floor * abft::unit_roundoff<T> * std::sqrt(std::log2(points_) + 1) * size_; }

  template <class Striker, class After>
  std::vector<T> run(const Striker& strike, const After& after) {
    std::memcpy(x_.data(), data_.data(), static_cast<std::size_t>(scalars()) * sizeof(T));
    T* done = by_.run(x_.data(), y_.data(), false, {}, strike);
    after(done);
    kernels<T>().sum_outputs(done, by_.rows_out(), by_.output_weights(false, &output_));
    return {done, done + 2 * by_.rows_out() * lanes_};
  }
  // seen: returns whether lane l of the last run fails its check. effect: the norm of the difference from the clean result there.
  bool seen(std::int64_t l) {
    cpu::lane_verdicts verdicts;
    const double kappa = k_kappa * by_.sensitivity();
    const double least = fft::thresholds::residual<T>(points_, 0, kappa) + fft::thresholds::output_underflow<T>(points_);
    const double factor = fft::thresholds::residual<T>(points_, 1, kappa) - fft::thresholds::residual<T>(points_, 0, kappa);
    kernels<T>().set_thresholds(input_, static_cast<int>(lanes_), {{factor, factor}, {least, least}}, 0, 1e300, verdicts);
    kernels<T>().compare(input_, output_, 1, verdicts);
    return verdicts.word[0][l] != cpu::k_lane_pass || verdicts.word[1][l] != cpu::k_lane_pass;
  }
  double effect(const std::vector<T>& result, std::int64_t l) const {
    double squares = 0;
    // The scalars beside the last of an odd number of reals are not stored.
    const std::int64_t stored = 2 * by_.rows_out() - (by_.has_odd_reals() && by_.is_real_inverse() ? 1 : 0);
    for (std::int64_t j = 0; j < stored; ++j) {
      const auto at = static_cast<std::size_t>(j * lanes_ + l);
      squares += std::pow(static_cast<double>(result[at]) - static_cast<double>(clean_[at]), 2);
    }
    return std::sqrt(squares);
  }

 private:
  std::int64_t scalars() const { return by_.rows_scratch() * 2 * lanes_; }

  line<T> by_;
  double points_;
  std::int64_t lanes_;
  core::aligned_buffer<T> data_, x_, y_;
  cpu::lane_sums input_, output_;
  std::vector<T> clean_;
  double size_ = 0;
};

// Changes every real and imaginary part after every stage, one in each lane at a time, so that the effect is a little above the floor.
template <class T>
void strike_every_number(form what, std::int64_t n) {
  struck_line<T> given(what, n, static_cast<std::uint64_t>(n));
  const std::int64_t lanes = given.lanes();
  int missed = 0, struck = 0;
  for (std::int64_t step = 0; step < given.by().stages(); ++step) {
    std::int64_t numbers = lanes;
    double gain = 0;  // from a change after this stage to its effect: 0 until it is known
    for (std::int64_t first = 0; first < numbers; first += lanes) {
      // Twice: with a change that is too large to drown in rounding, to know its effect, and with one at the floor.
      std::array<double, cpu::k_max_lanes> change;
      change.fill(1e3);
      for (const bool known : {false, true}) {
        const auto result = given.run(
            [&](inject::site where, std::int64_t at, T* data, std::int64_t scalars) {
              if (where != fft::site::stage || at != step) return;
              numbers = scalars / lanes;
              for (std::int64_t l = 0; l < lanes && first + l < numbers; ++l)
                data[(first + l) * lanes + l] += static_cast<T>(change[static_cast<std::size_t>(l)]);
            },
            [](T*) {});
        for (std::int64_t l = 0; l < lanes && first + l < numbers; ++l) {
          const double effect = given.effect(result, l);
          if (!known) {
            gain = effect / 1e3;
            // Numbers that no output needs.
            change[static_cast<std::size_t>(l)] = gain > 1e-4 ? 1.02 * given.floor() / gain : 0;
          } else if (effect >= given.floor()) {
            ++struck;
            missed += given.seen(l) ? 0 : 1;
          }
        }
      }
    }
  }
  EXPECT_EQ(missed, 0) << "of " << struck;
  EXPECT_GT(struck, n);
}

class fft_stage_test : public testing::TestWithParam<line_case> {};

TEST_P(fft_stage_test, a_change_of_any_number_behind_it_is_seen) {
  const auto [what, n, type] = GetParam();
  if (type == precision::f32) {
    strike_every_number<float>(what, n);
  } else {
    strike_every_number<double>(what, n);
  }
}

std::vector<line_case> struck_lines() {
  std::vector<line_case> made;
  const auto add = [&](form what, const std::vector<std::int64_t>& lengths) {
    for (const precision type : {precision::f32, precision::f64}) {
      for (const std::int64_t n : lengths) {
        if (!test::sampled() || n <= 400) made.push_back({what, n, type});
      }
    }
  };
  add(form::complex, {64, 816, 2048, 45, 122, 375, 134, 163, 211, 263, 633});
  add(form::real_forward, {256, 180, 422, 45, 81, 339, 375});
  add(form::real_inverse, {256, 90, 45, 81, 339, 375});
  return made;
}
INSTANTIATE_TEST_SUITE_P(fft, fft_stage_test, testing::ValuesIn(struck_lines()), typed_line_name);

// A wrong sum or difference in a last butterfly changes output k and k + n/2 by the same, with equal or with opposite signs.
TYPED_TEST(fft_protection, a_wrong_sum_in_a_last_butterfly_is_seen_at_every_length) {
  using T = TypeParam;
  const std::int64_t step = test::sampled() || sizeof(T) == 8 ? 34 : 2;
  for (std::int64_t n = 2; n <= 2048; n += step) {
    if (!cpu::is_direct(n)) continue;
    struck_line<T> given(form::complex, n, 3);
    const std::int64_t lanes = given.lanes(), half = n / 2;
    const T change = static_cast<T>(1.1 * given.floor() / std::numbers::sqrt2);
    for (std::int64_t first = 0; first < 2 * half; first += lanes) {
      (void)given.run([](inject::site, std::int64_t, T*, std::int64_t) {},
                      [&](T* done) {
                        for (std::int64_t l = 0; l < lanes && first + l < 2 * half; ++l) {
                          const std::int64_t k = (first + l) / 2;
                          done[2 * k * lanes + l] += change;
                          done[2 * (k + half) * lanes + l] += (first + l) % 2 == 0 ? change : -change;
                        }
                      });
      for (std::int64_t l = 0; l < lanes && first + l < 2 * half; ++l) ASSERT_TRUE(given.seen(l)) << n << " " << (first + l) / 2;
    }
  }
}

// ---- Seals ----

// A tile is sealed before it is verified. A later change is seen when it is loaded again, by other lanes.
TYPED_TEST(fft_protection, a_sealed_tile_may_not_change_before_it_is_loaded_again) {
  using T = TypeParam;
  const auto& kernel = kernels<T>();
  const std::int64_t lanes = kernel.lanes, row = 2 * lanes;
  for (const std::int64_t rows : {std::int64_t{1}, lanes - 1, lanes, 2 * lanes + 3}) {
    for (const int used : {1, kernel.lanes}) {
      if (rows < 1) continue;
      const std::int64_t groups = (rows + lanes - 1) / lanes;
      core::aligned_buffer<T> tile(groups * lanes * row), loaded(lanes * row);
      const auto noise = test::noise<T>(groups * lanes * row, 5);
      std::copy(noise.begin(), noise.end(), tile.data());
      std::vector<T> seals(static_cast<std::size_t>(groups));
      kernel.seal_blocks(tile.data(), rows, used, seals.data());
      const auto damaged = [&](std::int64_t group) {
        const int count = static_cast<int>(std::min(lanes, rows - group * lanes));
        return kernel.load_blocks(tile.data() + group * lanes * row, 0, count, used, loaded.data(), seals.data() + group, 0, {});
      };
      for (std::int64_t group = 0; group < groups; ++group) ASSERT_EQ(damaged(group), 0) << rows << " " << used;
      for (std::int64_t j = 0; j < rows; ++j) {
        for (int part = 0; part < 2; ++part) {
          for (int l = 0; l < used; ++l) {
            T& one = tile[j * row + part * lanes + l];
            const T kept = one;
            one = std::nextafter(kept, T(9));
            ASSERT_EQ(damaged(j / lanes), 1) << rows << " " << used << " row " << j << " lane " << l;
            one = kept;
          }
          // The same bit in all lanes of a register.
          T before[cpu::k_max_lanes];
          T* const all = tile.data() + j * row + part * lanes;
          std::copy_n(all, lanes, before);
          for (int l = 0; l < used; ++l) all[l] = -all[l];
          ASSERT_EQ(damaged(j / lanes), 1) << rows << " " << used << " row " << j;
          std::copy_n(before, lanes, all);
        }
      }
    }
  }
}

// ---- Tables and factors ----

// One tile of lines of 32 points through a worker, with factors between passes.
template <class T>
cpu::tile_result process(double scale, double check_scale, const std::vector<T>& factors, const std::vector<T>& check) {
  constexpr std::int64_t n = 32;
  const int lanes = kernels<T>().lanes;
  const line<T> by(form::complex, n, 1, true);
  const auto in = test::noise<T>(2 * n * lanes, 3);
  std::vector<T> out(in.size());
  // Row j of a table has factor j in all lanes.
  const auto rows_of = [&](const std::vector<T>& of) {
    core::aligned_buffer<T> made(2 * n * lanes);
    for (std::int64_t j = 0; j < 2 * n; ++j) std::fill_n(made.data() + j * lanes, lanes, of[static_cast<std::size_t>(j)]);
    return made;
  };
  const core::aligned_buffer<T> far = rows_of(factors), far_again = rows_of(check);
  core::aligned_buffer<T> near(2 * lanes);
  for (std::int64_t j = 0; j < 2; ++j) std::fill_n(near.data() + j * lanes, lanes, static_cast<T>(1 - j));
  inject::active_injector injector(nullptr, fft::site::table());
  const run::settings how{.throw_on_uncorrectable = false};
  run::recorder seen("", backend::cpu, "", how, injector);
  const transform_args one{direction::forward, scale, check_scale, false, protection::correct, 1, nullptr, {}, seen, injector};
  const cpu::strike_counts all{1, 0};
  cpu::scratch<T> mine(by.rows_scratch() * 2 * lanes, false);
  cpu::tile_job<T> job;
  job.transform = &by;
  job.from = {.how = cpu::access::columns, .base = in.data(), .lane = 2, .element = 2 * lanes};
  job.to = {.how = cpu::access::columns, .base = out.data(), .lane = 2, .element = 2 * lanes};
  job.used = lanes;
  job.rows_stored = n;
  job.scale = one.scale;
  job.check_scale = one.check_scale;
  job.factors = {far.data(), near.data(), 0};
  job.check = {far_again.data(), near.data(), 0};
  return cpu::tile_worker<T>(one, all, mine, 0).process(job);
}

// Factors that are multiplied with the data and taken off again by the check must not be the same words: a phase would cancel.
TYPED_TEST(fft_protection, wrong_factors_do_not_vouch_for_themselves) {
  using T = TypeParam;
  std::vector<T> right;
  for (std::int64_t k = 0; k < 32; ++k) {
    right.push_back(static_cast<T>(std::cos(0.1 * static_cast<double>(k))));
    right.push_back(static_cast<T>(std::sin(0.1 * static_cast<double>(k))));
  }
  EXPECT_EQ(process<T>(1, 1, right, right), cpu::tile_result::done);
  EXPECT_EQ(process<T>(0.25, 0.25, right, right), cpu::tile_result::done);
  for (std::size_t k = 0; k < 32; ++k) {
    std::vector<T> wrong = right;
    wrong[2 * k] = -right[2 * k + 1];  // a quarter of a turn
    wrong[2 * k + 1] = right[2 * k];
    EXPECT_EQ(process<T>(1, 1, wrong, right), cpu::tile_result::uncorrectable) << k;
  }
  for (const double factor : {4.0, 0.5, -1.0, 1 + 1e-3})
    EXPECT_EQ(process<T>(factor, 1, right, right), cpu::tile_result::uncorrectable) << factor;
}

TYPED_TEST(fft_protection, a_wrong_norm_factor_is_seen_by_every_backend) {
  using T = TypeParam;
  for (const char* shape : {"64_b3", "4096_b2", "8209_b1", "12x18_b2"}) {
    const auto token = parse_token(fmt::format("fft_c2c_{}_n{}_fwd", sizeof(T) == 4 ? "f32" : "f64", shape));
    const test::subject<T> given(token.problem, direction::forward, 4);
    for (const backend where : {backend::reference, backend::cpu}) {
      if (where == backend::reference && given.points() > 4096) continue;
      const auto make = where == backend::cpu ? cpu::make_transform : reference::make_transform;
      const auto by = make(given.shape, token.problem.precision, true);
      inject::active_injector injector(nullptr, fft::site::table());
      const run::settings how{.throw_on_uncorrectable = false};
      for (const double factor : {1.0, 4.0}) {
        run::recorder seen("", where, "", how, injector);
        std::vector<T> out = given.fresh();
        by->run(given.in.data(), out.data(),
                transform_args{direction::forward, factor, 1, false, protection::correct, 1, nullptr, {}, seen, injector});
        EXPECT_EQ(seen.finish().verdict, factor == 1 ? verdict::clean : verdict::uncorrectable) << shape << " " << to_string(where);
      }
    }
  }
}

// The check of a line with a large prime factor sums in working precision, or in more where squares would vanish or overflow. Both see
// numbers that are twice or half as large as they should be.
TYPED_TEST(fft_protection, long_lines_are_verified_at_every_size) {
  using T = TypeParam;
  const auto token = parse_token(fmt::format("fft_c2c_{}_n8209_b1_fwd", sizeof(T) == 4 ? "f32" : "f64"));
  test::subject<T> given(token.problem, direction::forward, 4);
  const std::vector<T> data = given.in;
  const plan guarded(token.problem, {.backend = backend::cpu, .threads = 1});
  const plan bare(token.problem, {.backend = backend::cpu, .threads = 1, .protection = protection::off});
  for (const double size : {1.0, sizeof(T) == 4 ? 1e-17 : 1e-145, sizeof(T) == 4 ? 1e17 : 1e149}) {
    std::ranges::transform(data, given.in.begin(), [&](T x) { return x * static_cast<T>(size); });
    std::vector<T> clean = given.fresh();
    ASSERT_EQ(given.run(guarded, clean).verdict, verdict::clean) << size;
    const auto change = [&](const std::vector<T>& out) {
      std::vector<T> difference;
      for (std::size_t i = 0; i < out.size(); ++i) difference.push_back((out[i] - clean[i]) / static_cast<T>(size));
      return test::norm_of(difference);
    };
    std::vector<T> scaled;
    for (const T x : clean) scaled.push_back(x / static_cast<T>(size));
    const double floor = test::k_floor * test::effect_unit(token.problem) * test::norm_of(scaled);
    int changed = 0;
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      inject::request wanted;
      wanted.site = fft::site::output;
      wanted.seed = seed;
      wanted.bit = sizeof(T) == 4 ? 23 : 52;
      const inject::plan faults({wanted});
      const inject::scope struck(&faults);
      std::vector<T> out = given.fresh();
      (void)given.run(bare, out);
      changed += change(out) > floor ? 1 : 0;
      const report seen = given.run(guarded, out);
      ASSERT_NE(seen.verdict, verdict::uncorrectable) << size << ' ' << to_json(seen);
      ASSERT_LE(change(out), floor) << size << ' ' << seed << ' ' << to_json(seen);
    }
    EXPECT_GT(changed, 0) << size;
  }
}

// A long line cuts the tiles of its second pass where the cache lines of the output begin. Results do not depend on it, nothing around
// them is written, and each tile is sealed and verified as any other.
TYPED_TEST(fft_protection, long_lines_may_begin_anywhere) {
  using T = TypeParam;
  constexpr std::size_t k_around = 32;
  const char* const type = sizeof(T) == 4 ? "f32" : "f64";
  // The last one is stored past the cache.
  for (const char* shape : {"16384_b3", "44100_b1", "1048576_b3"}) {
    const auto token = parse_token(fmt::format("fft_c2c_{}_n{}_fwd", type, shape));
    const test::subject<T> given(token.problem, direction::forward, 5);
    const std::size_t words = given.fresh().size();
    const plan guarded(token.problem, {.backend = backend::cpu}),
        bare(token.problem, {.backend = backend::cpu, .protection = protection::off});
    core::aligned_buffer<T> memory(static_cast<std::int64_t>(words + 2 * k_around));
    std::vector<T> clean;
    const auto run = [&](const plan& by, std::size_t first) {
      std::fill_n(memory.data(), memory.size(), T(3));
      report seen = given.run(by, given.in.data(), memory.data() + k_around + first);
      const auto rest = [&](std::size_t from, std::size_t last) {
        return std::all_of(memory.data() + from, memory.data() + last, [](T x) { return x == T(3); });
      };
      EXPECT_TRUE(rest(0, k_around + first) && rest(k_around + first + words, words + 2 * k_around)) << shape << ' ' << first;
      return seen;
    };
    const auto result = [&](std::size_t first) {
      return std::vector<T>(memory.data() + k_around + first, memory.data() + k_around + first + words);
    };
    for (std::size_t first = 0; first < 16; first += test::sampled() && words > 300000 ? 5 : 1) {
      for (const plan* by : {&guarded, &bare}) {
        ASSERT_EQ(run(*by, first).verdict, verdict::clean) << shape << ' ' << first;
        if (clean.empty()) clean = result(0);
        ASSERT_TRUE(test::same(result(first), clean)) << shape << ' ' << first;
      }
    }
    if (words > 300000) continue;
    const double floor = test::k_floor * test::effect_unit(token.problem) * test::norm_of(clean);
    for (const auto where : {site::intermediate, site::stage, site::twiddle, site::output}) {
      int changed = 0;
      for (std::uint64_t seed = 0; seed < 36; ++seed) {
        const std::size_t first = 2 * (seed % 8);
        inject::request wanted;
        wanted.site = where;
        wanted.seed = seed;
        wanted.bit = sizeof(T) == 4 ? 29 : 61;
        const inject::plan faults({wanted});
        const inject::scope struck(&faults);
        const auto change = [&] {
          std::vector<T> difference = result(first);
          for (std::size_t i = 0; i < words; ++i) difference[i] -= clean[i];
          return test::norm_of(difference);
        };
        (void)run(bare, first);
        changed += change() > floor ? 1 : 0;
        const report seen = run(guarded, first);
        ASSERT_NE(seen.verdict, verdict::uncorrectable) << shape << ' ' << first << ' ' << to_json(seen);
        ASSERT_LE(change(), floor) << shape << ' ' << first << ' ' << to_json(seen);
      }
      EXPECT_GT(changed, 9) << shape;
    }
  }
}

// ---- Lengths ----

TEST(fft_lengths, lines_beyond_two_short_ones_are_split_or_refused) {
  for (const int bits : {31, 32, 33}) {
    const auto split = cpu::split_line(std::int64_t{1} << bits);
    ASSERT_TRUE(split) << bits;
    EXPECT_EQ(split->n1 * split->n2, std::int64_t{1} << bits);
  }
  // The largest prime below 2^31, and twice it.
  for (const std::int64_t n : {std::int64_t{2147483647}, std::int64_t{4294967294}}) {
    fft::problem one{.kind = kind::c2c, .precision = precision::f32, .shape = {n}};
    execution how;
    how.backend = backend::cpu;
    EXPECT_THROW(plan(one, how), unsupported_error) << n;
  }
}

}  // namespace
}  // namespace ballast::fft
