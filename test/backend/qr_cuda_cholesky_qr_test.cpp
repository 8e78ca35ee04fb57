// Panels of many rows on the cuda backend, on the emulator: by Gram matrices where that is safe, by reflectors one after the other
// elsewhere; which of the two ran; and faults inside them. The device has no clusters and little
// shared memory, so that panels of some hundred rows are tall.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "cuda/memory/shared_state.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "qr/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/qr_subject.hpp"
#include "support/reals.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

// The device that was there before comes back at the end.
class device_for_a_test {
 public:
  explicit device_for_a_test(std::shared_ptr<cuda::device> device) : before_(cuda::overriding_device()) {
    if (device != nullptr) cuda::override_device(std::move(device));
  }
  ~device_for_a_test() {
    cuda::forget_idle_states();
    cuda::override_device(before_);
  }
  device_for_a_test(const device_for_a_test&) = delete;
  device_for_a_test& operator=(const device_for_a_test&) = delete;

 private:
  std::shared_ptr<cuda::device> before_;
};

template <class T>
class cholesky_qr_panels : public testing::Test {
 protected:
  static factored<T> factor(const dense<T>& A, protection level = protection::correct, const inject::plan* faults = nullptr) {
    return factor_in_place<T>(A.view(), {.backend = backend::cuda, .threads = 1, .protection = level, .faults = faults});
  }
  static factored<T> by_lapack(const dense<T>& A) {
    factored<T> made{copy_of<T>(A.view()), std::vector<T>(static_cast<std::size_t>(std::min(A.rows(), A.columns()))), {}};
    lapack(made.F, made.tau);
    return made;
  }
  // Since the counts were cleared: looks at whether a panel is orthonormal, one for each panel that is at once; and parts of panels that
  // were factored by one reflector after the other.
  std::int64_t reflectors_by_gram() const { return device_->of("small_reflectors_kernel"); }
  std::int64_t reflectors_one_by_one() const { return device_->of("panel_kernel"); }

  // Gram matrices, and substitutions.
  std::int64_t passes() const { return device_->of("gram_kernel") + device_->of("staged_gram_kernel") + device_->of("substitute_kernel"); }

  static constexpr double u = abft::unit_roundoff<T>;
  static cuda::capabilities small() {
    cuda::capabilities made = simt::emulated_capabilities(4, 8);
    made.shared_per_block = 50 << 10;
    return made;
  }
  const std::shared_ptr<test::launch_recorder> device_ =
      std::make_shared<test::launch_recorder>(std::make_shared<simt::emulated_device>(small()));
  const device_for_a_test here_{device_};
};
TYPED_SUITE(cholesky_qr_panels, test::reals, test::number_names);

// V, R and tau are LAPACK's, not only as good as LAPACK's; no reflector is made by itself, and the host waits once for each panel.
TYPED_TEST(cholesky_qr_panels, have_lapacks_reflectors) {
  using T = TypeParam;
  std::vector<std::pair<index, index>> shapes = {{3700, 1}, {3401, 5}, {900, 24}, {700, 70}};
  if (!test::sampled()) shapes.push_back({650, 128});
  for (const auto& [m, n] : shapes) {
    const dense<T> A = random_matrix<T>(m, n, static_cast<std::uint64_t>(m + n));
    const factored<T> expected = this->by_lapack(A);
    for (const protection level : {protection::off, protection::correct}) {
      this->device_->launches.clear();
      const factored<T> made = this->factor(A, level);
      SCOPED_TRACE(std::to_string(m) + " × " + std::to_string(n));
      EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
      EXPECT_EQ(this->reflectors_one_by_one(), 0);
      EXPECT_EQ(this->passes(), 2 * this->reflectors_by_gram()) << "direct panels take no pass for Q";
      const double tolerance = 500 * static_cast<double>(m) * this->u;
      for (std::size_t j = 0; j < made.tau.size(); ++j) ASSERT_NEAR(made.tau[j], expected.tau[j], tolerance);
      for (std::size_t e = 0; e < A.size(); ++e) ASSERT_NEAR(made.F.data()[e], expected.F.data()[e], tolerance * std::sqrt(m));
      const ratios seen = ratios_of<T>(A.view(), made.F.view(), made.tau);
      EXPECT_LT(seen.residual, 1);
      EXPECT_LT(seen.orthogonality, 1);
    }
  }
}

// A matrix with very many rows for each column is one panel, without products, a copy of V or an entry check. Faults at every site are
// repaired.
TYPED_TEST(cholesky_qr_panels, of_very_many_rows_are_one) {
  using T = TypeParam;
  const auto device = std::make_shared<test::launch_recorder>(std::make_shared<simt::emulated_device>());
  const device_for_a_test here(device);
  // An odd number of rows between columns, so that no two numbers of a column can be loaded at once, and an even one.
  std::vector<std::pair<index, index>> shapes = {{4613, 36}};
  if (!test::sampled()) shapes.push_back({12900, 100});
  for (const auto& [m, n] : shapes) {
    SCOPED_TRACE(std::to_string(m) + " × " + std::to_string(n));
    const dense<T> A = random_matrix<T>(m, n, 8);
    const factored<T> expected = this->by_lapack(A);
    factored<T> clean;
    for (const protection level : {protection::off, protection::correct}) {
      device->launches.clear();
      device->products = 0;
      clean = this->factor(A, level);
      EXPECT_EQ(clean.report.verdict, verdict::clean) << to_json(clean.report);
      EXPECT_EQ(device->of("gram_kernel") + device->of("staged_gram_kernel"), 1);
      EXPECT_EQ(device->of("substitute_kernel"), 1);
      EXPECT_EQ(device->of("panel_kernel") + device->of("form_v_kernel") + device->products, 0);
      const double tolerance = 500 * static_cast<double>(m) * this->u;
      for (std::size_t j = 0; j < clean.tau.size(); ++j) ASSERT_NEAR(clean.tau[j], expected.tau[j], tolerance);
      for (std::size_t e = 0; e < A.size(); ++e) ASSERT_NEAR(clean.F.data()[e], expected.F.data()[e], tolerance * std::sqrt(m));
    }
    int repaired = 0;
    for (const inject::site_row& site : inject::sites()) {
      if (!site.operation().empty() && site.operation() != "qr") continue;
      const inject::plan faults({{.site = site.site, .model = inject::model::random_value, .seed = 1}});
      const factored<T> struck = this->factor(A, protection::correct, &faults);
      ASSERT_NE(struck.report.verdict, verdict::uncorrectable) << site.name << to_json(struck.report);
      EXPECT_LE(change(struck.F, clean.F), 300.0 * m) << site.name << to_json(struck.report);
      repaired += struck.report.detected > 0 ? 1 : 0;
    }
    EXPECT_GE(repaired, 4);
  }
}

TYPED_TEST(cholesky_qr_panels, of_very_many_rows_and_every_kind_are_factored_as_well_as_by_lapack) {
  using T = TypeParam;
  const device_for_a_test here(std::make_shared<simt::emulated_device>());
  // The last one: three different columns, eleven times each and more, and sums of numbers of one sign.
  std::vector<std::string> kinds = {"low rank", "constant", "nearly equal", "three columns"};
  const index m = 4613, n = 36;
  for (const std::string& kind : kinds) {
    dense<T> A = matrix_of_kind<T>(kind == "three columns" ? "normal" : kind, m, n, 5);
    if (kind == "three columns") {
      for (index j = 0; j < n; ++j) {
        for (index i = 0; i < m; ++i) A(i, j) = static_cast<T>(static_cast<double>(i % 5) * 0.3 + static_cast<double>(j % 3));
      }
    }
    const factored<T> made = this->factor(A), expected = this->by_lapack(A);
    EXPECT_EQ(made.report.verdict, verdict::clean) << kind << to_json(made.report);
    const ratios seen = ratios_of<T>(A.view(), made.F.view(), made.tau), theirs = ratios_of<T>(A.view(), expected.F.view(), expected.tau);
    EXPECT_LT(seen.residual, std::max(10.0, 2 * theirs.residual)) << kind;
    EXPECT_LT(seen.orthogonality, std::max(10.0, 2 * theirs.orthogonality)) << kind;
  }
}

TYPED_TEST(cholesky_qr_panels, of_every_kind_are_factored_as_well_as_by_lapack) {
  using T = TypeParam;
  std::uint64_t number = 0;  // a sample in double takes each kind with one of the shapes
  for (const std::string& kind : k_kinds) {
    ++number;
    for (const auto& [m, n] : std::vector<std::pair<index, index>>{{900, 24}, {650, 61}}) {
      if (sizeof(T) == 8 && !test::taken(number++, 2)) continue;
      const dense<T> A = matrix_of_kind<T>(kind, m, n, 5);
      const factored<T> made = this->factor(A), expected = this->by_lapack(A);
      EXPECT_EQ(made.report.verdict, verdict::clean) << kind << " " << m << " × " << n << to_json(made.report);
      const ratios seen = ratios_of<T>(A.view(), made.F.view(), made.tau), theirs = ratios_of<T>(A.view(), expected.F.view(), expected.tau);
      EXPECT_LT(seen.residual, std::max(10.0, 2 * theirs.residual)) << kind << " " << m << " × " << n;
      EXPECT_LT(seen.orthogonality, std::max(10.0, 2 * theirs.orthogonality)) << kind << " " << m << " × " << n;
    }
  }
}

// With so many rows, cuBLAS multiplies few columns as well; checksum columns have a product of their own.
TYPED_TEST(cholesky_qr_panels, of_many_rows_take_cublas_for_few_columns) {
  using T = TypeParam;
  cuda::capabilities small = simt::emulated_capabilities();
  small.shared_per_block = 50 << 10;  // two panels
  const auto device = std::make_shared<test::launch_recorder>(std::make_shared<simt::emulated_device>(small));
  const device_for_a_test here(device);
  const dense<T> A = random_matrix<T>(33000, 66, 8);
  const factored<T> made = this->factor(A, protection::correct);
  EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
  EXPECT_EQ(device->of("narrow_product_kernel"), 0);
  EXPECT_EQ(device->products, 4) << "VᵀC and C − VW, of a block and of its checksums";
  const ratios seen = ratios_of<T>(A.view(), made.F.view(), made.tau);
  EXPECT_LT(seen.residual, 1);
  EXPECT_LT(seen.orthogonality, 1);
}

// Columns that nearly depend on each other, to any degree and in any scale: first two passes more do it, at the end Q is what rounding has
// left of the columns, as with Householder's reflectors.
TYPED_TEST(cholesky_qr_panels, of_any_condition_are_factored_as_well_as_by_lapack) {
  using T = TypeParam;
  const index m = 900, n = 24;
  const dense<T> B = random_matrix<T>(m, n, 6);
  std::int64_t most = 0;
  for (int digits = 0; digits <= (sizeof(T) == 4 ? 9 : 18); ++digits) {
    dense<T> A(m, n, order::column_major);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i)
        A(i, j) = static_cast<T>(std::pow(10.0, j % 5) *
                                 (static_cast<double>(B(i, 0)) + (j == 0 ? 0 : std::pow(10.0, -digits) * static_cast<double>(B(i, j)))));
    }
    this->device_->launches.clear();
    const factored<T> made = this->factor(A);
    EXPECT_EQ(made.report.verdict, verdict::clean) << digits << to_json(made.report);
    const ratios seen = ratios_of<T>(A.view(), made.F.view(), made.tau);
    EXPECT_LT(seen.residual, 1) << digits;
    EXPECT_LT(seen.orthogonality, 1) << digits;
    EXPECT_EQ(this->reflectors_one_by_one(), 0) << digits;
    const std::int64_t passes = this->reflectors_by_gram();
    if (digits <= 5) {
      EXPECT_LE(passes, 4) << digits << ": one for each panel, and once more where they were begun as direct ones";
    }
    most = std::max(most, passes);
  }
  EXPECT_GT(most, 4) << "the worst of them need more";
}

// Panels without a usable Gram matrix, or with reflectors without a tail, are factored one reflector after the other.
TYPED_TEST(cholesky_qr_panels, fall_back_where_gram_matrices_say_nothing) {
  using T = TypeParam;
  for (const char* kind : {"zero", "zero columns", "identity", "one row", "triangular"}) {
    this->device_->launches.clear();
    const dense<T> A = matrix_of_kind<T>(kind, 900, 24, 5);
    const factored<T> made = this->factor(A);
    EXPECT_EQ(made.report.verdict, verdict::clean);
    EXPECT_GT(this->reflectors_one_by_one(), 0) << kind;
  }
  // With Inf or NaN Cholesky QR is not tried: the columns to the left of the odd one keep their numbers.
  dense<T> A = random_matrix<T>(900, 24, 1);
  const factored<T> clean = this->factor(A);
  A(17, 20) = std::numeric_limits<T>::quiet_NaN();
  this->device_->launches.clear();
  const factored<T> made = this->factor(A);
  EXPECT_EQ(this->passes(), 0);
  for (index j = 0; j < 20; ++j) {
    for (index i = 0; i < 900; ++i) ASSERT_NEAR(made.F(i, j), clean.F(i, j), 5000 * this->u * 30) << i << " " << j;
  }
}

// Counts the launches and waits of one more panel: of a factorization with four panels, less those of one with three. Times are not
// measured here; each launch or wait is some microseconds in which the device may be idle.
TYPED_TEST(cholesky_qr_panels, take_few_launches_and_waits) {
  using T = TypeParam;
  const device_for_a_test here(nullptr);
  struct counts {
    std::int64_t launches, products, zeros, copies, waits;
  };
  const auto counted = [&](index n, bool by_gram, protection level) {
    const auto device = std::make_shared<test::launch_recorder>(std::make_shared<simt::emulated_device>());
    cuda::override_device(device);
    dense<T> A = random_matrix<T>(by_gram ? 780 : 127, n, 4);
    (void)this->factor(A, level);
    EXPECT_EQ(device->of("batch_factor_kernel") == 0, by_gram);
    const counts made{device->all(), device->products, device->zeros, device->copies, device->waits};
    cuda::forget_idle_states();
    return made;
  };
  const auto expect = [&](bool by_gram, protection level, const counts& most) {
    const counts three = counted(by_gram ? 192 : 96, by_gram, level), four = counted(by_gram ? 256 : 127, by_gram, level);
    SCOPED_TRACE(std::string(by_gram ? "by Gram matrices" : "by reflectors") + (level == protection::off ? "" : ", protected"));
    EXPECT_LE(four.launches - three.launches, most.launches);
    EXPECT_LE(four.products - three.products, most.products);
    EXPECT_LE(four.zeros - three.zeros, most.zeros);
    EXPECT_LE(four.copies - three.copies, most.copies);
    EXPECT_LE(four.waits - three.waits, most.waits);
  };
  // The host waits for what a panel has come to, two panels later.
  expect(true, protection::off, {17, 0, 0, 1, 1});
  expect(true, protection::correct, {24, 0, 0, 1, 1});
  expect(false, protection::off, {13, 0, 0, 0, 0});
  // For its entry and for its checks.
  expect(false, protection::correct, {25, 0, 0, 2, 2});
}

// ---------------------------------------------------------------------------------------------------------------------------- faults

enum position_of_a_strike { the_panel, gram_of_a, factor_of_a, gram_of_q, factor_of_q, product };

// Column j of what is struck.
inject::plan strike(position_of_a_strike where, index j, index steps, inject::model what, int bit) {
  return inject::plan({{.site = site::panel, .model = what, .seed = 3, .bit = bit, .interval = where * steps + j}});
}

// The columns differ by a ten-thousandth: the condition is so bad that a panel is not direct.
template <class T>
dense<T> nearly_dependent(index m, index n) {
  const dense<T> B = random_matrix<T>(m, n, 21);
  dense<T> A(m, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i)
      A(i, j) = static_cast<T>(static_cast<double>(B(i, 0)) + (j == 0 ? 0 : 1e-4 * static_cast<double>(B(i, j))));
  }
  return A;
}

// A matrix for which this position counts: Q of a direct panel is not made.
template <class T>
dense<T> matrix_for(position_of_a_strike where, index m, index n) {
  return where == gram_of_q || where == factor_of_q ? nearly_dependent<T>(m, n) : random_matrix<T>(m, n, 21);
}

TYPED_TEST(cholesky_qr_panels, what_is_struck_inside_is_repaired) {
  using T = TypeParam;
  const index m = 900, n = 24;
  const double limit = 300.0 * m;  // u, as in qr_protection_test.cpp
  std::vector<index> columns = {0, 7, 15};
  if (test::sampled()) columns.resize(1);
  for (const position_of_a_strike where : {the_panel, gram_of_a, factor_of_a, gram_of_q, factor_of_q, product}) {
    const dense<T> A = matrix_for<T>(where, m, n);
    const factored<T> clean = this->factor(A);
    int seen = 0;
    for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
      // A sample in double takes half of the models, alternating from position to position.
      if (sizeof(T) == 8 && !test::taken(what + static_cast<std::size_t>(where), 2)) continue;
      for (const index j : columns) {
        const inject::plan faults = strike(where, j, n, static_cast<inject::model>(what), -1);
        const factored<T> struck = this->factor(A, protection::correct, &faults);
        SCOPED_TRACE(std::to_string(where) + " " + std::string(inject::k_model_names[what]) + " " + std::to_string(j));
        if (struck.report.verdict == verdict::uncorrectable) {
          EXPECT_EQ(static_cast<inject::model>(what), inject::model::stuck_at) << to_json(struck.report);
          continue;
        }
        seen += struck.report.detected > 0;
        EXPECT_LE(change(struck.F, clean.F), limit) << to_json(struck.report);
        for (std::size_t l = 0; l < clean.tau.size(); ++l) EXPECT_NEAR(struck.tau[l], clean.tau[l], limit * this->u);
      }
    }
    // A large change of Q's Gram matrix is measured as the distance of Q from orthonormal columns. Then the panel is not made at once, and
    // the host begins it anew.
    if (where != gram_of_q) {
      EXPECT_GT(seen, 0) << where;
    }
  }
}

TYPED_TEST(cholesky_qr_panels, what_is_struck_inside_reaches_the_output_without_protection) {
  using T = TypeParam;
  const index m = 900, n = 24;
  for (const position_of_a_strike where : {gram_of_a, factor_of_a, gram_of_q, factor_of_q, product}) {
    const dense<T> A = matrix_for<T>(where, m, n);
    const factored<T> clean = this->factor(A, protection::off);
    // The first element, by a 64th.
    const inject::plan faults = strike(where, 0, n, inject::model::bit_flip, 46);
    const factored<T> struck = this->factor(A, protection::off, &faults);
    EXPECT_GT(change(struck.F, clean.F), 1e4) << where;
    const factored<T> repaired = this->factor(A, protection::correct, &faults);
    EXPECT_EQ(repaired.report.verdict, verdict::recomputed) << where;
    EXPECT_EQ(std::memcmp(repaired.F.data(), clean.F.data(), clean.F.size() * sizeof(T)), 0) << where;
  }
}

// A panel is direct if its condition is good, for doubles tr G⁻¹ ≤ 1.6 n: then nothing of Q is used, so that a struck Gram matrix of Q
// changes nothing. If columns have half of their squares in common, tr G⁻¹ is 1.9 n.
TYPED_TEST(cholesky_qr_panels, of_good_condition_need_no_q) {
  using T = TypeParam;
  const index m = 900, n = 24;
  for (const bool common : {false, true}) {
    dense<T> A = random_matrix<T>(m, n, 21);
    const dense<T> B = random_matrix<T>(m, 1, 22);
    for (index j = 0; j < n && common; ++j) {
      for (index i = 0; i < m; ++i) A(i, j) += B(i, 0);
    }
    const factored<T> clean = this->factor(A, protection::off);
    const inject::plan faults = strike(gram_of_q, 0, n, inject::model::bit_flip, 46);
    const factored<T> struck = this->factor(A, protection::off, &faults);
    const bool direct = sizeof(T) == 4 || !common;
    EXPECT_EQ(std::memcmp(struck.F.data(), clean.F.data(), clean.F.size() * sizeof(T)) == 0, direct) << common;
    EXPECT_EQ(this->reflectors_one_by_one(), 0);
    const factored<T> expected = this->by_lapack(A);
    const ratios seen = ratios_of<T>(A.view(), clean.F.view(), clean.tau), theirs = ratios_of<T>(A.view(), expected.F.view(), expected.tau);
    EXPECT_LT(seen.residual, 2 * theirs.residual);
    EXPECT_LT(seen.orthogonality, 2 * theirs.orthogonality);
  }
}

// One column is nearly another one, or its negative; any two. The estimate must see the one small eigenvalue.
TYPED_TEST(cholesky_qr_panels, of_two_columns_that_nearly_depend_are_not_direct) {
  using T = TypeParam;
  const index m = 900, n = 32;
  const dense<T> B = random_matrix<T>(m, n, 21);
  const double apart = sizeof(T) == 4 ? 1e-5 : 1e-6;  // condition 1e5 and 1e6
  std::size_t number = 0;
  for (index j = 1; j < n; ++j) {
    for (index i = 0; i < j; ++i) {
      if (test::sampled() && !test::taken(number++, 8)) continue;
      const double sign = (i + j) % 2 == 0 ? 1 : -1;
      dense<T> A = copy_of<T>(B.view());
      for (index r = 0; r < m; ++r) A(r, j) = static_cast<T>(sign * static_cast<double>(B(r, i)) + apart * static_cast<double>(B(r, j)));
      const factored<T> made = this->factor(A, protection::off);
      const ratios seen = ratios_of<T>(A.view(), made.F.view(), made.tau);
      ASSERT_LT(seen.orthogonality, 0.1) << i << " " << j;
      ASSERT_LT(seen.residual, 0.1) << i << " " << j;
    }
  }
}

// If a panel is not direct, the factor of a wrong Gram matrix is only a wrong preconditioner: the later measurements decide.
TYPED_TEST(cholesky_qr_panels, a_wrong_gram_matrix_of_bad_condition_costs_time_alone) {
  using T = TypeParam;
  const index m = 900, n = 24;
  const dense<T> A = nearly_dependent<T>(m, n);
  for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
    for (const index j : {0, 11}) {
      const inject::plan faults = strike(gram_of_a, j, n, static_cast<inject::model>(what), -1);
      const factored<T> struck = this->factor(A, protection::off, &faults);
      const ratios seen = ratios_of<T>(A.view(), struck.F.view(), struck.tau);
      EXPECT_LT(seen.residual, 1) << inject::k_model_names[what] << " " << j;
      EXPECT_LT(seen.orthogonality, 1) << inject::k_model_names[what] << " " << j;
    }
  }
}

}  // namespace
}  // namespace ballast::qr
