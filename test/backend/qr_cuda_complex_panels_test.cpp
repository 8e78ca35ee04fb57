// Panels of many rows of complex numbers on the cuda backend, on the emulator: by Gram matrices where that is safe, by reflectors one after
// the other elsewhere; which of the two ran; and faults inside them. The same for real numbers: qr_cuda_cholesky_qr_test.cpp.
// Layer: backend tests.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "cuda/memory/shared_state.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "qr/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/qr_complex_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

// A device with `shared` bytes of shared memory for a block, without clusters unless it is the emulator's own; it counts launches. The
// device that was there before comes back at the end.
class counting_device {
 public:
  explicit counting_device(bool small) : before_(cuda::overriding_device()) {
    cuda::capabilities about = small ? simt::emulated_capabilities(4, 8) : simt::emulated_capabilities();
    if (small) about.shared_per_block = 50 << 10;
    recorder_ = std::make_shared<test::launch_recorder>(std::make_shared<simt::emulated_device>(about));
    cuda::override_device(recorder_);
  }
  ~counting_device() {
    cuda::forget_idle_states();
    cuda::override_device(before_);
  }
  counting_device(const counting_device&) = delete;
  counting_device& operator=(const counting_device&) = delete;

  void clear() { recorder_->launches.clear(), recorder_->products = 0; }
  // One for each look at whether a panel is orthonormal; parts of panels that were factored by one reflector after the other; Gram matrices
  // and substitutions.
  std::int64_t by_gram() const { return recorder_->of("small_reflectors_kernel"); }
  std::int64_t one_by_one() const { return recorder_->of("panel_kernel"); }
  std::int64_t grams() const { return recorder_->of("gram_kernel") + recorder_->of("staged_gram_kernel"); }
  std::int64_t substitutions() const { return recorder_->of("substitute_kernel"); }
  std::int64_t products() const { return recorder_->products + recorder_->of("form_v_kernel"); }

 private:
  std::shared_ptr<cuda::device> before_;
  std::shared_ptr<test::launch_recorder> recorder_;
};

template <class Setting>
class complex_panels : public qr_complex<Setting> {
 protected:
  using S = typename Setting::real;
  static factored<S> factor(const dense<S>& A, protection level = protection::correct, const inject::plan* faults = nullptr) {
    run::settings how{.backend = backend::cuda, .threads = 1, .protection = level, .faults = faults};
    how.throw_on_uncorrectable = false;
    return factor_in_place<S>(A, how);
  }
  static factored<S> by_reference(const dense<S>& A) { return factor_in_place<S>(A, {.backend = backend::reference}); }
  // V, R and tau are those of Householder's reflectors; R's diagonal is real.
  static void expect_same(const factored<S>& made, const factored<S>& expected) {
    const index m = made.F.rows();
    const double tolerance = 500 * static_cast<double>(m) * qr_complex<Setting>::u;
    for (std::size_t j = 0; j < made.tau.size(); ++j) ASSERT_LT(std::abs(made.tau[j] - expected.tau[j]), tolerance) << j;
    for (index j = 0; j < made.F.columns(); ++j) {
      EXPECT_EQ(made.F(j, j).imag(), 0) << j;
      for (index i = 0; i < m; ++i)
        ASSERT_LT(std::abs(made.F(i, j) - expected.F(i, j)), tolerance * std::sqrt(static_cast<double>(m))) << i << " " << j;
    }
  }
};
TYPED_SUITE(complex_panels, complex_settings, test::setting_names);

TYPED_TEST(complex_panels, have_lapacks_reflectors) {
  using S = typename TestFixture::S;
  // On the small device panels have at most 32 columns; on the other one 40 and 64 columns take the kernels for more than 32.
  struct shape {
    index m, n;
    bool small;
  };
  for (const auto& [m, n, small] :
       {shape{3700, 1, true}, shape{900, 24, true}, shape{901, 40, true}, shape{333, 80, false}, shape{650, 128, false}}) {
    if (test::sampled() && sizeof(S) == 8 && n > 80) continue;
    SCOPED_TRACE(std::to_string(m) + " × " + std::to_string(n));
    counting_device here(small);
    const dense<S> A = random_complex<S>(m, n, static_cast<std::uint64_t>(m + n));
    const factored<S> expected = this->by_reference(A);
    factored<S> bare;
    for (const protection level : {protection::off, protection::correct}) {
      here.clear();
      const factored<S> made = this->factor(A, level);
      EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
      EXPECT_EQ(made.report.detected, 0u);
      EXPECT_EQ(here.one_by_one(), 0);
      EXPECT_EQ(here.grams(), here.by_gram()) << "direct panels take no pass for Q";
      EXPECT_EQ(here.substitutions(), here.by_gram());
      this->expect_same(made, expected);
      const ratios seen = complex_ratios_of<S>(A, made.F, made.tau);
      EXPECT_LT(seen.residual, 1);
      EXPECT_LT(seen.orthogonality, 1);
      if (level == protection::off) {
        bare = factored<S>{copy_of<S>(made.F.view()), made.tau, {}};
      } else {
        EXPECT_EQ(std::memcmp(made.F.data(), bare.F.data(), bare.F.size() * sizeof(S)), 0);
      }
    }
  }
}

// A matrix with very many rows for each column is one panel, without products, a copy of V or an entry check. Faults at every site are
// repaired. An odd number of rows between columns, and an even one.
TYPED_TEST(complex_panels, of_very_many_rows_are_one) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{4613, 36}, {2560, 20}}) {
    SCOPED_TRACE(std::to_string(m) + " × " + std::to_string(n));
    counting_device here(false);
    const dense<S> A = random_complex<S>(m, n, 8);
    const factored<S> expected = this->by_reference(A);
    factored<S> clean;
    for (const protection level : {protection::off, protection::correct}) {
      here.clear();
      clean = this->factor(A, level);
      EXPECT_EQ(clean.report.verdict, verdict::clean) << to_json(clean.report);
      // 20 columns fit a cluster: then reflectors are taken one after the other.
      if (n > 32) {
        EXPECT_EQ(here.grams(), 1);
        EXPECT_EQ(here.substitutions(), 1);
        EXPECT_EQ(here.one_by_one() + here.products(), 0);
      }
      this->expect_same(clean, expected);
    }
    if (n < 32) continue;
    int repaired = 0;
    for (const inject::site_row& site : inject::sites()) {
      if (!site.operation().empty() && site.operation() != "qr") continue;
      const inject::plan faults({{.site = site.site, .model = inject::model::random_value, .seed = 1}});
      const factored<S> struck = this->factor(A, protection::correct, &faults);
      ASSERT_NE(struck.report.verdict, verdict::uncorrectable) << site.name << to_json(struck.report);
      EXPECT_LE(change(struck.F, clean.F), 300.0 * static_cast<double>(m)) << site.name << to_json(struck.report);
      repaired += struck.report.detected > 0 ? 1 : 0;
    }
    EXPECT_GE(repaired, 4);
  }
}

TYPED_TEST(complex_panels, of_every_kind_are_factored_as_well_as_by_reflectors) {
  using S = typename TestFixture::S;
  counting_device here(true);
  std::uint64_t number = 0;
  for (const std::string& kind : k_kinds) {
    if (test::sampled() && !test::taken(number++, 2)) continue;
    for (const auto& [m, n] : std::vector<std::pair<index, index>>{{900, 24}, {650, 45}}) {
      const dense<S> A = complex_of_kind<S>(kind, m, n, 5);
      const factored<S> made = this->factor(A), expected = this->by_reference(A);
      EXPECT_EQ(made.report.verdict, verdict::clean) << kind << " " << m << " × " << n << to_json(made.report);
      const ratios seen = complex_ratios_of<S>(A, made.F, made.tau), theirs = complex_ratios_of<S>(A, expected.F, expected.tau);
      EXPECT_LT(seen.residual, std::max(10.0, 2 * theirs.residual)) << kind << " " << m << " × " << n;
      EXPECT_LT(seen.orthogonality, std::max(10.0, 2 * theirs.orthogonality)) << kind << " " << m << " × " << n;
    }
  }
}

// The columns differ by 10^-digits, in any scale.
template <class S>
dense<S> nearly_dependent(index m, index n, int digits, bool scaled) {
  const dense<S> B = random_complex<S>(m, n, 21);
  dense<S> A(m, n, order::column_major);
  using real = real_of<S>;
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i)
      A(i, j) = static_cast<real>(scaled ? std::pow(10.0, j % 5) : 1.0) *
                (B(i, 0) + (j == 0 ? S(0) : static_cast<real>(std::pow(10.0, -digits)) * B(i, j)));
  }
  return A;
}

TYPED_TEST(complex_panels, of_any_condition_are_factored_as_well_as_by_reflectors) {
  using S = typename TestFixture::S;
  counting_device here(true);
  std::int64_t most = 0;
  for (int digits = 0; digits <= (sizeof(S) == 8 ? 9 : 18); digits += test::sampled() ? 3 : 1) {
    const dense<S> A = nearly_dependent<S>(900, 24, digits, true);
    here.clear();
    const factored<S> made = this->factor(A);
    EXPECT_EQ(made.report.verdict, verdict::clean) << digits << to_json(made.report);
    const ratios seen = complex_ratios_of<S>(A, made.F, made.tau);
    EXPECT_LT(seen.residual, 1) << digits;
    EXPECT_LT(seen.orthogonality, 1) << digits;
    EXPECT_EQ(here.one_by_one(), 0) << digits;
    most = std::max(most, here.by_gram());
  }
  EXPECT_GT(most, 4) << "the worst of them need more than one pass for each panel";
}

// Panels without a usable Gram matrix, or with reflectors without a tail, are factored one reflector after the other.
TYPED_TEST(complex_panels, fall_back_where_gram_matrices_say_nothing) {
  using S = typename TestFixture::S;
  counting_device here(true);
  for (const char* kind : {"zero", "zero columns", "identity", "one row", "triangular"}) {
    here.clear();
    const dense<S> A = complex_of_kind<S>(kind, 900, 24, 5);
    const factored<S> made = this->factor(A);
    EXPECT_EQ(made.report.verdict, verdict::clean) << kind;
    EXPECT_GT(here.one_by_one(), 0) << kind;
    const ratios seen = complex_ratios_of<S>(A, made.F, made.tau);
    EXPECT_LT(seen.residual, 10) << kind;
    EXPECT_LT(seen.orthogonality, 10) << kind;
  }
}

// ---------------------------------------------------------------------------------------------------------------------------- faults

enum position_of_a_strike { the_panel, gram_of_a, factor_of_a, gram_of_q, factor_of_q, product };

// The seed selects one of the components of column j of what is struck.
inject::plan strike(position_of_a_strike where, index j, index steps, inject::model what, int bit, std::uint64_t seed) {
  return inject::plan({{.site = site::panel, .model = what, .seed = seed, .bit = bit, .interval = where * steps + j}});
}

// A matrix for which this position counts: Q of a direct panel is not made.
template <class S>
dense<S> matrix_for(position_of_a_strike where, index m, index n) {
  return where == gram_of_q || where == factor_of_q ? nearly_dependent<S>(m, n, 4, false) : random_complex<S>(m, n, 21);
}

TYPED_TEST(complex_panels, what_is_struck_inside_is_repaired) {
  using S = typename TestFixture::S;
  const index m = 900, n = 24;
  counting_device here(true);
  const double limit = 300.0 * static_cast<double>(m);
  for (const position_of_a_strike where : {the_panel, gram_of_a, factor_of_a, gram_of_q, factor_of_q, product}) {
    const dense<S> A = matrix_for<S>(where, m, n);
    const factored<S> clean = this->factor(A);
    int seen = 0;
    for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
      if (test::sampled() && !test::taken(what + static_cast<std::size_t>(where), 2)) continue;
      for (const index j : {0, 15}) {
        const inject::plan faults = strike(where, j, n, static_cast<inject::model>(what), -1, what);
        const factored<S> struck = this->factor(A, protection::correct, &faults);
        SCOPED_TRACE(std::to_string(where) + " " + std::string(inject::k_model_names[what]) + " " + std::to_string(j));
        if (struck.report.verdict == verdict::uncorrectable) {
          EXPECT_EQ(static_cast<inject::model>(what), inject::model::stuck_at) << to_json(struck.report);
          continue;
        }
        seen += struck.report.detected > 0;
        EXPECT_LE(change(struck.F, clean.F), limit) << to_json(struck.report);
        for (std::size_t l = 0; l < clean.tau.size(); ++l) EXPECT_LE(std::abs(struck.tau[l] - clean.tau[l]), limit * this->u);
      }
    }
    // A large change of Q's Gram matrix is measured as the distance of Q from orthonormal columns, and the panel is begun anew.
    if (where != gram_of_q) {
      EXPECT_GT(seen, 0) << where;
    }
  }
}

TYPED_TEST(complex_panels, what_is_struck_inside_reaches_the_output_without_protection) {
  using S = typename TestFixture::S;
  const index m = 900, n = 24;
  counting_device here(true);
  for (const position_of_a_strike where : {gram_of_a, factor_of_a, gram_of_q, factor_of_q, product}) {
    const dense<S> A = matrix_for<S>(where, m, n);
    const factored<S> clean = this->factor(A, protection::off);
    // The first element, by a 64th: its real part if that is stored alone on the diagonal.
    int reached = 0;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const inject::plan faults = strike(where, 0, n, inject::model::bit_flip, 46, seed);
      const factored<S> struck = this->factor(A, protection::off, &faults);
      if (!(change(struck.F, clean.F) > 1e4)) continue;  // the imaginary part of the diagonal, which is not read
      ++reached;
      const factored<S> repaired = this->factor(A, protection::correct, &faults);
      EXPECT_EQ(repaired.report.verdict, verdict::recomputed) << where;
      EXPECT_EQ(std::memcmp(repaired.F.data(), clean.F.data(), clean.F.size() * sizeof(S)), 0) << where;
    }
    EXPECT_GT(reached, 0) << where;
  }
}

}  // namespace
}  // namespace ballast::qr
