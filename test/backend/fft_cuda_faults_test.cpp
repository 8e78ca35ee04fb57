// Faults that only the cuda backend of the FFT can be struck by, on the emulator: wrong loads, damaged weights, signals that are not
// stored, faults while a result is confirmed. fft_faults_test.cpp has what every backend survives.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "backend/fft_cuda_target.hpp"
#include "backend/fft_emulator.hpp"
#include "core/counter_rng.hpp"
#include "fft/cuda/plan/kernels.hpp"
#include "fft/sites.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "inject/sites.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"

namespace ballast::fft {
namespace {

using test::k_floor;
using test::same;
using test::subject;

// ---- Wrong loads ----

class fft_cuda_load_test : public emulated_test {
 public:
  // Most loads bring elements. The others bring numbers that the kernel ignores.
  static void TearDownTestSuite() {
    const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->current_test_suite();
    if (suite.test_to_run_count() != suite.total_test_count() || suite.failed_test_count() > 0) return;
    EXPECT_GT(detected_, strikes_ / 2) << "of " << strikes_;
  }

 protected:
  inline static std::int64_t strikes_ = 0, detected_ = 0;
};

// One load returns a wrong number. No other load returns it, so the checksums do not contain it. Lines after the last one load as well;
// their numbers are ignored.
TEST_P(fft_cuda_load_test, that_is_wrong_is_seen_and_repaired) {
  constexpr int strikes = 9;
  const emulator device(which().where, 5);
  with_data([&]<class T>(const subject<T>& given) {
    const plan made = make(given.problem);
    const auto in = on_device(given.in), clean = on_device(given.fresh());
    simt::loads = {};
    ASSERT_EQ(given.run(made, in.data(), clean.data()).verdict, verdict::clean);
    const std::int64_t loads = simt::loads.seen;  // 0 where bulk copies bring the elements
    const std::vector<T> wanted = clean.read();
    for (int i = 0; i < strikes && loads > 0; ++i) {
      const auto out = on_device(given.fresh());
      simt::loads = {0, (2 * i + 1) * loads / (2 * strikes), sizeof(T) - 1};
      const report seen = given.run(made, in.data(), out.data());
      simt::loads = {};
      EXPECT_TRUE(same(out.read(), wanted)) << "load " << (2 * i + 1) * loads / (2 * strikes) << " of " << loads << ": " << to_json(seen);
      EXPECT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
      ++strikes_;
      detected_ += seen.detected > 0 ? 1 : 0;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_load_test, testing::ValuesIn(emulated_cases_with(test::sampled() ? unsigned{k_bare} : 0U)),
                         emulated_name);

// ---- Damaged weights ----

// Replaces the weights of the outputs in each launch.
class reweighing_device final : public test::forwarding_device {
 public:
  reweighing_device(std::shared_ptr<ballast::cuda::device> inner, const void* weights)
      : forwarding_device(std::move(inner)), weights_(weights) {}
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const auto [argument, size] = arguments.front();
    ASSERT_EQ(size, sizeof(cuda::line_arguments));
    cuda::line_arguments given;
    std::memcpy(&given, argument, size);
    given.verify = weights_;
    inner_->launch(which, blocks, &given, size, on);
  }

 private:
  const void* weights_;
};

class fft_cuda_weights_test : public testing::TestWithParam<const char*> {};

// If the weights are damaged, here to zeros, the check must fail. It must not compare zero with zero.
TEST_P(fft_cuda_weights_test, that_are_damaged_hide_nothing) {
  const fft_case& each = case_of(GetParam(), machine::whole);
  const subject<float> given = subject_of<float>(each, 3);
  const emulator emulated(each.where);
  const auto zeros = on_device(std::vector<float>(1024));
  ballast::cuda::override_device(std::make_shared<reweighing_device>(*emulated, zeros.data()));
  std::vector<float> out = given.fresh();
  EXPECT_EQ(given.run(plan(given.problem, on_cuda()), out).verdict, verdict::uncorrectable);
}

// Lines of one butterfly, and longer ones.
INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_weights_test, testing::Values("fft_c2c_f32_n3_b41_fwd", "fft_c2c_f32_n64_b43_fwd"),
                         [](const auto& info) { return std::string(info.param); });

// ---- Signals that are not stored ----

class fft_cuda_store_test : public emulated_test {
 protected:
  // Calls body(request, row) for every site of the FFT, every model and `seeds` seeds. A sample tries a third of the models at each site.
  // The third depends on the case, so that the cases together try every model at every site.
  template <class Body>
  static void for_every_fault(int seeds, const Body& body) {
    for (const inject::site_row& row : inject::sites()) {
      if (row.operation() != "fft" && !row.operation().empty()) continue;
      for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
        if (test::sampled() && (m + static_cast<std::size_t>(row.site) + GetParam().number) % 3 != 0) continue;
        for (int seed = 0; seed < seeds; ++seed) {
          inject::request wanted;
          wanted.site = row.site;
          wanted.model = static_cast<inject::model>(m);
          wanted.seed = static_cast<std::uint64_t>(seed) * 1000 + m;
          wanted.bit = 62;
          SCOPED_TRACE(fmt::format("{} {} seed {}", row.name, inject::k_model_names[m], wanted.seed));
          body(wanted, row);
        }
      }
    }
  }

  // The signals that the events of a call name. `unstored`: those that the check keeps from being stored.
  struct reported {
    std::set<std::int64_t> all, unstored;
  };
  static reported signals_of(const report& seen, const std::string& device) {
    reported made;
    for (const event& one : seen.events) {
      made.all.insert(one.index);
      if (one.site == "fft.line") made.unstored.insert(one.index);
      EXPECT_EQ(one.action, action::uncorrectable);
      EXPECT_EQ(one.device, device);
      EXPECT_GE(one.multiprocessor, 0);
      EXPECT_FALSE(one.damaged);
    }
    return made;
  }

  // Expects that signals which differ are reported. If a product keeps failing, it is reported and its third evaluation is stored. If a
  // line keeps failing, it is not stored. With one pass no reported signal is stored.
  template <class T>
  static void judge(const struck_case<T>& under, const std::vector<T>& out, const reported& seen, bool one_pass) {
    const subject<T>& given = under.given;
    for (std::int64_t b = 0; b < given.signals(); ++b) {
      const auto y = given.got(out, b);
      const auto wanted = given.got(under.clean, b);
      std::vector<T> difference;
      for (std::size_t i = 0; i < y.size(); ++i) difference.push_back(y[i] - wanted[i]);
      const double missed = test::norm_of(difference) / (test::effect_unit(given.problem) * under.size);
      ASSERT_TRUE(missed <= k_floor || seen.all.contains(b)) << "signal " << b << " differs by " << missed;
      ASSERT_TRUE(!(missed <= k_floor) || !seen.unstored.contains(b)) << "signal " << b;
      if (!one_pass || !seen.all.contains(b)) continue;
      for (const T x : y) ASSERT_EQ(x, subject<T>::k_untouched) << "signal " << b;
    }
  }
};

TEST_P(fft_cuda_store_test, what_is_not_believed_is_not_stored) {
  const emulator device(which().where, 21);
  with_data([&]<class T>(const subject<T>& given) {
    struck_case<T> under(emulated(), which(), 1, given);
    const bool large = given.points() * given.signals() > 20000;
    // true if every signal is one line of the only pass
    const bool one_pass = !divides(which().where) && which().where != machine::fallback && given.points() != 67;
    const auto in = on_device(given.in);
    const plan watched = make(given.problem, protection::detect);
    // The workspace starts as NaN, so that results of an earlier run between two passes cannot replace results that were not stored.
    const std::int64_t bytes = which().where == machine::fallback ? std::int64_t{16} << 20 : under.guarded.workspace_bytes();
    const std::vector<float> nothing(static_cast<std::size_t>(bytes) / sizeof(float), std::nanf(""));
    const auto workspace = on_device(nothing);
    call now = test::quiet_call();
    now.workspace = {reinterpret_cast<std::byte*>(workspace.data()), nothing.size() * sizeof(float)};
    int found = 0;
    const int seeds = large || test::sampled() || divides(which().where) ? 1 : 2;
    for_every_fault(seeds, [&](const inject::request& wanted, const inject::site_row& row) {
      if (row.role == inject::site_role::repair || (large && wanted.model != inject::model::nan)) return;
      under.faults = inject::plan({wanted});
      const auto memory = on_device(given.fresh());
      device->copy(workspace.data(), nothing.data(), static_cast<std::int64_t>(nothing.size() * sizeof(float)), nullptr);
      const report seen = under.run(watched, in.data(), memory.data(), now);
      ASSERT_TRUE(seen.verdict == verdict::clean || seen.verdict == verdict::uncorrectable);
      const reported signals = signals_of(seen, device->about().name);
      found += signals.all.empty() ? 0 : 1;
      SCOPED_TRACE(to_json(seen));
      judge(under, memory.read(), signals, one_pass);
    });
    EXPECT_GT(found, 0);
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_store_test, testing::ValuesIn(emulated_cases_with(k_faults)), emulated_name);

// ---- Faults while a result is confirmed ----

struct confirmed_case {
  const char* token;
  machine where;
  bool judged;  // false: the squares leave the range of the data's type, so that the first check cannot judge its norm
};
std::string name_of(const confirmed_case& each) {
  return std::string(each.token) +
         (each.where == machine::single      ? "_single"
          : each.where == machine::clustered ? "_clustered"
                                             : "") +
         (each.judged ? "_after_a_fault" : "_unjudged");
}
void PrintTo(const confirmed_case& each, std::ostream* to) { *to << name_of(each); }

class fft_cuda_confirmation_test : public testing::TestWithParam<confirmed_case> {};

// A line is computed a second time to confirm it before it is stored. A fault in that computation is one event, also if a check failed
// before.
TEST_P(fft_cuda_confirmation_test, a_fault_in_it_is_one_event) {
  const fft_case& each = case_of(GetParam().token, GetParam().where);
  const emulator device(each.where);
  with_data_of(each, [&]<class T>(subject<T> given) {
    if (!GetParam().judged) std::ranges::transform(given.in, given.in.begin(), [](T x) { return x * T(sizeof(T) == 4 ? 1e20 : 1e160); });
    struck_case<T> under(emulated(), each, 1, given);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(seed);
      inject::request wanted;
      wanted.site = fft::site::output;
      wanted.seed = seed;
      wanted.bit = sizeof(T) == 4 ? 24 : 54;
      inject::request first = wanted;
      wanted.visit = 2;
      under.faults = GetParam().judged ? inject::plan({first, wanted}) : inject::plan({wanted});
      std::vector<T> out = given.fresh();
      const report seen = under.run(under.guarded, out);
      EXPECT_EQ(seen.detected, 1u) << to_json(seen);
      EXPECT_EQ(seen.recomputed, 1u);
      EXPECT_EQ(seen.false_alarms, 0u);
      EXPECT_TRUE(same(out, under.clean));
    }
  });
}

std::vector<confirmed_case> confirmed_cases() {
  std::vector<confirmed_case> made;
  for (const bool judged : {true, false}) {
    made.insert(made.end(), {{"fft_c2c_f32_n64_b43_fwd", machine::whole, judged},
                             {"fft_c2c_f32_n256_b77_fwd", machine::single, judged},
                             {"fft_c2c_f64_n100_b9_fwd", machine::whole, judged},
                             {"fft_c2c_f32_n512_b5_fwd", machine::clustered, judged},
                             {"fft_c2c_f64_n512_b3_inv", machine::clustered, judged}});
  }
  return made;
}
INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_confirmation_test, testing::ValuesIn(confirmed_cases()),
                         [](const auto& info) { return name_of(info.param); });

// ---- Threads without a butterfly ----

// A thread that has no further first butterfly reads the elements of the last one. No norm may count them: a number that is alone in its
// line has the same threshold wherever it is. `size`: squares of the larger one leave the range of f32, so another reading measures them.
class fft_cuda_last_butterfly_test : public testing::TestWithParam<float> {};

TEST_P(fft_cuda_last_butterfly_test, has_elements_that_count_once) {
  const fft_case& each = case_of("fft_c2c_f32_n200_b9_fwd", machine::whole);
  const emulator device(each.where);
  subject<float> given = subject_of<float>(each, 3);
  inject::request wanted;
  wanted.site = fft::site::output;
  wanted.model = inject::model::nan;
  wanted.visit = GetParam() > 1 ? 2 : 0;
  std::set<double> thresholds;
  for (const std::size_t place : {0, 24, 49, 199}) {  // the last butterfly has elements 24, 49, …
    std::vector<float> packed(given.in.size());
    for (std::size_t signal = 0; signal < packed.size() / 400; ++signal) packed[400 * signal + 2 * place] = GetParam();
    given.set(std::move(packed));
    struck_case<float> under(emulated(), each, 1, given);
    under.faults = inject::plan({wanted});
    std::vector<float> out = given.fresh();
    const report seen = under.run(under.guarded, out);
    ASSERT_EQ(seen.events.size(), 1u) << to_json(seen);
    EXPECT_TRUE(same(out, under.clean)) << to_json(seen);
    thresholds.insert(seen.events.front().threshold);
  }
  EXPECT_EQ(thresholds.size(), 1u) << fmt::format("{}", fmt::join(thresholds, " "));
}

INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_last_butterfly_test, testing::Values(1.0F, 1e20F),
                         [](const auto& info) { return std::string(info.param > 1 ? "measured_again" : "measured_at_once"); });

// ---- One mask in the registers of neighbouring threads ----

// Sets the input such that all parts of the results have the size 1.5 and random signs. Then one bit that is flipped in several threads
// changes their results by the same amount, up to signs.
template <class T>
void set_results_of_one_size(subject<T>& given) {
  using number = std::complex<wide<T>>;
  const std::int64_t n = given.points();
  const fft::kind kind = given.shape.kind;
  std::vector<T> packed;
  const auto push = [&](const number& z) {
    packed.push_back(static_cast<T>(z.real()));
    if (kind != fft::kind::r2c) packed.push_back(static_cast<T>(z.imag()));
  };
  std::uint64_t drawn = 0;
  const auto part = [&]() -> wide<T> { return core::random_bits(17, 1, drawn++) % 2 == 0 ? 1.5 : -1.5; };
  for (std::int64_t b = 0; b < given.signals(); ++b) {
    std::vector<number> y(static_cast<std::size_t>(n));
    for (std::int64_t o = 0; o < n; ++o) {
      number& z = y[static_cast<std::size_t>(o)];
      z = {part(), kind == fft::kind::c2r || (kind == fft::kind::r2c && (o == 0 || 2 * o == n)) ? 0 : part()};
      if (kind == fft::kind::r2c && 2 * o > n) z = std::conj(y[static_cast<std::size_t>(n - o)]);
    }
    const bool forward = given.way == direction::forward;
    if (forward) std::ranges::transform(y, y.begin(), [](const number& z) { return std::conj(z); });
    std::vector<number> x = dft(std::move(y));
    x.resize(static_cast<std::size_t>(kind == fft::kind::c2r ? n / 2 + 1 : n));
    for (const number& z : x) push((forward ? std::conj(z) : z) / static_cast<wide<T>>(static_cast<double>(n) * given.scale()));
  }
  given.set(std::move(packed));
}

class fft_cuda_mask_test : public testing::TestWithParam<std::pair<const char*, machine>> {};

// No pattern of signs may hide the change from both checksums.
TEST_P(fft_cuda_mask_test, of_neighbouring_threads_is_seen) {
  const fft_case& each = case_of(GetParam().first, GetParam().second);
  const emulator device(each.where);
  with_data_of(each, [&]<class T>(subject<T> given) {
    set_results_of_one_size(given);
    struck_case<T> under(emulated(), each, 1, given);
    int changed = 0;
    for (std::uint64_t seed = 0; seed < (test::sampled() ? 60 : 600); ++seed) {
      SCOPED_TRACE(seed);
      inject::request wanted;
      wanted.site = fft::site::output;
      wanted.model = inject::model::vector_mask;
      wanted.seed = seed;
      wanted.bit = std::numeric_limits<T>::digits - 4 + static_cast<int>(seed % 3);
      under.faults = inject::plan({wanted});
      std::vector<T> out = given.fresh();
      (void)under.run(under.bare, out);
      changed += under.effect(out) > k_floor ? 1 : 0;
      const report seen = under.run(under.guarded, out);
      ASSERT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
      ASSERT_LE(under.effect(out), k_floor) << to_json(seen);
    }
    EXPECT_GT(changed, 0);
  });
}

INSTANTIATE_TEST_SUITE_P(
    fft, fft_cuda_mask_test,
    testing::Values(std::pair{"fft_c2c_f32_n64_b43_fwd", machine::whole}, std::pair{"fft_c2c_f64_n100_b9_fwd", machine::whole},
                    std::pair{"fft_c2c_f32_n256_b77_fwd", machine::single}, std::pair{"fft_r2c_f32_n64_b19_fwd", machine::whole},
                    std::pair{"fft_c2r_f32_n90_b7_inv", machine::whole}, std::pair{"fft_c2r_f64_n512_b5_inv", machine::whole}),
    [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace ballast::fft
