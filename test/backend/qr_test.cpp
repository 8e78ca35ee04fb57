// QR on every backend, in one program on those of the host, in the other (BALLAST_TEST_QR_ON_CUDA) on cuda by the emulator: accuracy
// against long double sums, LAPACK's conventions, strides, least squares, bad input, faults at every site, and no false alarm on clean data
// of every kind. Tolerances: Householder QR is backward stable with ‖A − QR‖_F ≤ c·u·‖A‖_F, c a modest multiple of √n in practice (Higham,
// §19.3); the ratios below divide by max(m, n)·u as LAPACK's own tests do, whose limit is 30.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "cuda/device.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "simt/emulated_device.hpp"
#if !defined(BALLAST_TEST_QR_ON_CUDA)
#include "qr/application.hpp"
#include "qr/contract.hpp"
#include "qr/factorization.hpp"
#include "qr/host/applier.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/host/triangle.hpp"
#include "qr/kernels.hpp"
#endif
#include "support/devices.hpp"
#include "support/effort.hpp"

extern "C" {
void dgeqrf_(const int*, const int*, double*, const int*, double*, double*, const int*, int*);
void sgeqrf_(const int*, const int*, float*, const int*, float*, float*, const int*, int*);
}

namespace ballast::qr {
namespace {

using index = std::int64_t;

template <class T>
using dense = matrix<T>;

template <class T>
dense<T> copy_of(matrix_view<const T> A, order how = order::column_major) {
  dense<T> made(A.rows, A.columns, how);
  for (index j = 0; j < A.columns; ++j) {
    for (index i = 0; i < A.rows; ++i) made(i, j) = A(i, j);
  }
  return made;
}

template <class T>
dense<T> random_matrix(index m, index n, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  dense<T> A(m, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) A(i, j) = static_cast<T>(normal(bits));
  }
  return A;
}

// The kinds of data on which no clean check may fail and no fault may pass.
const std::vector<std::string> k_kinds = {"normal",     "constant",      "tiny",         "huge",         "columns 1e±12",
                                          "rows 1e±12", "columns 1e±30", "cauchy",       "hilbert",      "low rank",
                                          "graded",     "zero",          "zero columns", "identity",     "subnormal",
                                          "one row",    "integers",      "triangular",   "nearly equal", "extreme columns"};

template <class T>
dense<T> matrix_of_kind(const std::string& kind, index m, index n, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  dense<T> A = random_matrix<T>(m, n, seed + 1);
  const auto each = [&](auto&& f) {
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) A(i, j) = static_cast<T>(f(i, j, static_cast<double>(A(i, j))));
    }
  };
  const auto power = [](index i, int span) { return std::pow(10.0, static_cast<double>(i * 7919 % (2 * span + 1)) - span); };
  const bool single = sizeof(T) == 4;
  if (kind == "constant") each([](index, index, double) { return 1.7; });
  if (kind == "tiny") each([&](index, index, double x) { return x * 1e-30; });
  if (kind == "huge") each([&](index, index, double x) { return x * 1e30; });
  if (kind == "columns 1e±12") each([&](index, index j, double x) { return x * power(j, 12); });
  if (kind == "rows 1e±12") each([&](index i, index, double x) { return x * power(i, 12); });
  if (kind == "columns 1e±30") each([&](index, index j, double x) { return x * power(j, 30); });
  if (kind == "extreme columns")
    each([&](index, index j, double x) { return x * (j % 2 == 0 ? (single ? 1e-36 : 1e-290) : (single ? 1e36 : 1e290)); });
  if (kind == "cauchy") each([&](index, index, double x) { return std::clamp(x / normal(bits), -1e8, 1e8); });
  if (kind == "hilbert") each([](index i, index j, double) { return 1.0 / static_cast<double>(i + j + 1); });
  if (kind == "low rank") each([](index i, index j, double) { return static_cast<double>(i % 5) * 0.3 + static_cast<double>(j % 3); });
  if (kind == "graded") each([](index i, index j, double x) { return x * std::pow(2.0, -static_cast<double>(i + j)); });
  if (kind == "zero") each([](index, index, double) { return 0.0; });
  if (kind == "zero columns") each([](index, index j, double x) { return j % 3 == 1 ? 0.0 : x; });
  if (kind == "identity") each([](index i, index j, double) { return i == j ? 1.0 : 0.0; });
  if (kind == "subnormal") each([&](index, index, double x) { return x * (single ? 1e-40 : 1e-310); });
  if (kind == "one row") each([](index i, index, double x) { return i == 0 ? x : 0.0; });
  if (kind == "integers") each([](index, index, double x) { return std::round(3 * x); });
  if (kind == "triangular") each([](index i, index j, double x) { return i <= j ? x : 0.0; });
  if (kind == "nearly equal") each([&](index, index, double x) { return 1 + x * (single ? 1e-6 : 1e-14); });
  return A;
}

struct ratios {
  double residual = 0;       // max over columns ‖(A − QR)_j‖ / (‖A_j‖ max(m, n) u): by column, so that scaling hides nothing
  double orthogonality = 0;  // ‖I − QᵀQ‖_max / (max(m, n) u)
};

// Q by applying the stored reflectors one after the other in long double: nothing of the library is trusted.
template <class T>
ratios ratios_of(matrix_view<const T> A, matrix_view<const T> F, const std::vector<T>& tau) {
  const index m = A.rows, n = A.columns, k = std::min(m, n);
  const double u = abft::unit_roundoff<T>;
  const double size = static_cast<double>(std::max(m, n)) * u;
  ratios seen;
  const auto apply = [&](std::vector<long double>& x, bool transposed) {
    for (index s = 0; s < k; ++s) {
      const index j = transposed ? s : k - 1 - s;
      long double dot = x[static_cast<std::size_t>(j)];
      for (index i = j + 1; i < m; ++i) dot += static_cast<long double>(F(i, j)) * x[static_cast<std::size_t>(i)];
      dot *= static_cast<long double>(tau[static_cast<std::size_t>(j)]);
      x[static_cast<std::size_t>(j)] -= dot;
      for (index i = j + 1; i < m; ++i) x[static_cast<std::size_t>(i)] -= static_cast<long double>(F(i, j)) * dot;
    }
  };
  for (index j = 0; j < n; ++j) {
    std::vector<long double> x(static_cast<std::size_t>(m), 0);
    for (index i = 0; i <= std::min(j, m - 1); ++i) x[static_cast<std::size_t>(i)] = F(i, j);
    apply(x, false);
    long double off = 0, norm = 0;
    for (index i = 0; i < m; ++i) {
      off += std::pow(x[static_cast<std::size_t>(i)] - A(i, j), 2);
      norm += std::pow(static_cast<long double>(A(i, j)), 2);
    }
    // The smallest number that T tells from zero sets how well a subnormal column can be met.
    const long double floor = static_cast<long double>(m) * std::numeric_limits<T>::denorm_min();
    seen.residual = std::max(seen.residual, static_cast<double>((std::sqrt(off) - floor) / (std::sqrt(norm) + floor)) / size);
  }
  // QᵀQ on unit vectors: Q e_j then Qᵀ, with inexact tau and v, is not the identity if those are wrong.
  for (index j = 0; j < k; j += std::max<index>(1, k / 16)) {
    std::vector<long double> x(static_cast<std::size_t>(m), 0);
    x[static_cast<std::size_t>(j)] = 1;
    apply(x, false);
    apply(x, true);
    x[static_cast<std::size_t>(j)] -= 1;
    for (const long double each : x) seen.orthogonality = std::max(seen.orthogonality, static_cast<double>(std::abs(each)) / size);
  }
  return seen;
}

template <class T>
struct factored {
  dense<T> F;
  std::vector<T> tau;
  ballast::report report;
};

template <class T>
factored<T> factor_in_place(matrix_view<const T> A, execution how) {
  factored<T> made{copy_of(A), std::vector<T>(static_cast<std::size_t>(std::min(A.rows, A.columns))), {}};
  how.throw_on_uncorrectable = false;
  made.report = geqrf(made.F.view(), made.tau, how);
  return made;
}

template <class T>
void lapack(dense<T>& A, std::vector<T>& tau) {
  const int m = static_cast<int>(A.rows()), n = static_cast<int>(A.columns()), lwork = 64 * n;
  std::vector<T> work(static_cast<std::size_t>(lwork));
  int info = 0;
  if constexpr (sizeof(T) == 4) {
    sgeqrf_(&m, &n, A.data(), &m, tau.data(), work.data(), &lwork, &info);
  } else {
    dgeqrf_(&m, &n, A.data(), &m, tau.data(), work.data(), &lwork, &info);
  }
  ASSERT_EQ(info, 0);
}

template <class T, backend Backend>
struct setting {
  using real = T;
  static constexpr backend which = Backend;
};

template <class Setting>
class qr : public testing::Test {
 protected:
  using T = typename Setting::real;
  static constexpr backend which = Setting::which;
  static execution how(std::string scheme = "") { return {.backend = which, .threads = 2, .scheme = std::move(scheme)}; }
  static std::vector<std::pair<index, index>> shapes() {
    std::vector<std::pair<index, index>> all = {{1, 1}, {5, 1}, {1, 5}, {2, 2}, {16, 7}, {7, 16}, {40, 40}, {70, 33}, {33, 70}, {65, 64}};
    if (which == backend::cuda && test::sampled()) all = {{1, 1}, {5, 1}, {1, 5}, {16, 7}, {33, 70}, {65, 40}, {210, 20}};
    if (which == backend::cuda && !test::sampled()) all.insert(all.end(), {{210, 20}, {100, 90}});  // several blocks of threads
    if (which == backend::cpu) all.insert(all.end(), {{150, 130}, {130, 200}, {300, 300}, {6000, 24}, {9000, 40}, {8000, 17}});
    if (which == backend::cpu && !test::sampled()) all.push_back({5000, 200});
    return all;
  }
  // Of so many rounds: all, or on the emulator, which is slow, a part.
  static std::uint64_t rounds(std::uint64_t all) {
    return which == backend::cuda ? std::max<std::uint64_t>(1, all / (test::sampled() ? 16 : 3)) : all;
  }
};

struct names {
  template <class Setting>
  static std::string GetName(int) {
    return std::string(to_string(Setting::which)) + "_" + std::string(to_string(precision_of<typename Setting::real>));
  }
};

#if defined(BALLAST_TEST_QR_ON_CUDA)
const std::vector<const char*> k_schemes = {"block_checksum"};
const std::vector<backend> k_backends = {backend::cuda};
using settings = testing::Types<setting<float, backend::cuda>, setting<double, backend::cuda>>;
#else
const std::vector<const char*> k_schemes = {"block_checksum", "qr_update"};
const std::vector<backend> k_backends = {backend::reference, backend::cpu};
using settings = testing::Types<setting<float, backend::reference>, setting<double, backend::reference>, setting<float, backend::cpu>,
                                setting<double, backend::cpu>>;
#endif
TYPED_TEST_SUITE(qr, settings, names);

TYPED_TEST(qr, factors_every_shape_accurately_with_both_schemes) {
  using T = typename TestFixture::T;
  for (const char* scheme : k_schemes) {
    for (const auto& [m, n] : this->shapes()) {
      const dense<T> A = random_matrix<T>(m, n, static_cast<std::uint64_t>(m * 1000 + n));
      const factored<T> made = factor_in_place<T>(A, this->how(scheme));
      EXPECT_EQ(made.report.verdict, verdict::clean) << m << " × " << n << to_json(made.report);
      EXPECT_EQ(made.report.backend, this->which);
      EXPECT_EQ(made.report.scheme, scheme);
      EXPECT_EQ(made.report.problem, to_token({precision_of<T>, m, n}));
      EXPECT_GT(made.report.checks, 0u);
      const ratios seen = ratios_of<T>(A, made.F, made.tau);
      EXPECT_LT(seen.residual, 10) << m << " × " << n;
      EXPECT_LT(seen.orthogonality, 10) << m << " × " << n;
    }
  }
}

TYPED_TEST(qr, factors_every_kind_of_data_accurately_and_without_alarm) {
  using T = typename TestFixture::T;
  for (const std::string& kind : k_kinds) {
    for (const auto& [m, n] : this->shapes()) {
      if (m * n > (test::sampled() ? 50000 : 400000)) continue;
      const dense<T> A = matrix_of_kind<T>(kind, m, n, 5);
      const factored<T> made = factor_in_place<T>(A, this->how());
      EXPECT_EQ(made.report.verdict, verdict::clean) << kind << " " << m << " × " << n << to_json(made.report);
      const ratios seen = ratios_of<T>(A, made.F, made.tau);
      EXPECT_LT(seen.residual, 10) << kind << " " << m << " × " << n;
      EXPECT_LT(seen.orthogonality, 10) << kind << " " << m << " × " << n;
    }
  }
}

TYPED_TEST(qr, has_lapacks_storage_and_signs) {
  using T = typename TestFixture::T;
  const double u = abft::unit_roundoff<T>;
  for (const auto& [m, n] : this->shapes()) {
    if (m == n) continue;  // a square matrix has an ill-conditioned last row
    const dense<T> A = random_matrix<T>(m, n, 3);
    const factored<T> made = factor_in_place<T>(A, this->how());
    dense<T> expected = copy_of<T>(A);
    std::vector<T> tau(made.tau.size());
    lapack(expected, tau);
    // Both are off by c·u·κ of the leading columns; random ones have κ of some tens.
    const double tolerance = 500 * static_cast<double>(std::max(m, n)) * u;
    for (std::size_t j = 0; j < tau.size(); ++j) EXPECT_NEAR(made.tau[j], tau[j], tolerance) << m << " × " << n;
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i)
        ASSERT_NEAR(made.F(i, j), expected(i, j), tolerance * std::sqrt(static_cast<double>(m))) << m << " × " << n;
    }
  }
}

TYPED_TEST(qr, a_zero_tail_gives_tau_zero) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    for (const char* kind : {"zero", "identity", "triangular"}) {
      const dense<T> A = matrix_of_kind<T>(kind, m, n, 5);
      const factored<T> made = factor_in_place<T>(A, this->how());
      for (const T tau : made.tau) EXPECT_EQ(tau, 0) << kind << " " << m << " × " << n;
      for (index j = 0; j < n; ++j) {
        for (index i = 0; i < m; ++i) ASSERT_EQ(made.F(i, j), A(i, j)) << kind << " " << m << " × " << n;
      }
    }
  }
}

TYPED_TEST(qr, takes_any_strides_and_leaves_the_rest_alone) {
  using T = typename TestFixture::T;
  const index m = 23, n = 11;
  const dense<T> A = random_matrix<T>(m, n, 4);
  const factored<T> expected = factor_in_place<T>(A, this->how());
  const T mark = static_cast<T>(-77);
  for (const auto& [rs, cs] :
       std::vector<std::pair<index, index>>{{1, m}, {1, m + 5}, {n, 1}, {n + 3, 1}, {2, 2 * m + 1}, {-1, m}, {1, -m - 2}, {40, 3}}) {
    const index span = (m - 1) * std::abs(rs) + (n - 1) * std::abs(cs) + 1;
    std::vector<T> memory(static_cast<std::size_t>(span), mark);
    T* const first = memory.data() + (rs < 0 ? -(m - 1) * rs : 0) + (cs < 0 ? -(n - 1) * cs : 0);
    const matrix_view<T> view{first, m, n, rs, cs};
    std::vector<bool> inside(static_cast<std::size_t>(span), false);
    for (index i = 0; i < m; ++i) {
      for (index j = 0; j < n; ++j) {
        view(i, j) = A(i, j);
        inside[static_cast<std::size_t>(&view(i, j) - memory.data())] = true;
      }
    }
    std::vector<T> tau(static_cast<std::size_t>(n));
    EXPECT_EQ(geqrf(view, tau, this->how()).verdict, verdict::clean);
    EXPECT_EQ(tau, expected.tau);
    for (index i = 0; i < m; ++i) {
      for (index j = 0; j < n; ++j) EXPECT_EQ(view(i, j), expected.F(i, j));
    }
    for (std::size_t at = 0; at < memory.size(); ++at) {
      if (!inside[at]) {
        EXPECT_EQ(memory[at], mark);
      }
    }
  }
}

#if !defined(BALLAST_TEST_QR_ON_CUDA)  // copies between the memories, which the emulated device has in one
// An array in the memory of an emulated device, which the host sees only through copies.
template <class T>
class on_device {
 public:
  on_device(const std::shared_ptr<ballast::cuda::device>& device, const std::vector<T>& values)
      : device_(device), size_(values.size()), memory_(device, static_cast<std::int64_t>(size_ * sizeof(T))) {
    device_->copy(memory_.data(), values.data(), memory_.bytes(), nullptr);
  }
  T* data() const { return static_cast<T*>(memory_.data()); }
  std::vector<T> values() const {
    std::vector<T> seen(size_);
    device_->copy(seen.data(), memory_.data(), memory_.bytes(), nullptr);
    return seen;
  }

 private:
  std::shared_ptr<ballast::cuda::device> device_;
  std::size_t size_;
  ballast::cuda::device_buffer memory_;
};

TYPED_TEST(qr, takes_operands_in_device_memory) {
  using T = typename TestFixture::T;
  const auto device = std::make_shared<test::counted_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard current(device);
  const index m = 30, n = 12, k = 3, ld = m + 2;
  const dense<T> A = random_matrix<T>(ld, n, 41), B = random_matrix<T>(m, k, 42);
  const auto list = [](const dense<T>& from) { return std::vector<T>(from.data(), from.data() + from.size()); };
  const auto of = [](auto* data) { return column_major(data, m, n, ld); };

  // Each call on the host and on the device, which must leave the same in all memory, the gaps between columns included.
  std::vector<T> F = list(A), tau(n), Q, C = list(B), G = list(A), X = list(B);
  EXPECT_EQ(geqrf(of(F.data()), tau, this->how()).verdict, verdict::clean);
  Q = F;
  (void)orgqr(of(Q.data()), tau, this->how());
  (void)ormqr(side::left, transpose::yes, of(static_cast<const T*>(F.data())), tau, column_major(C.data(), m, k), this->how());
  (void)gels(of(G.data()), column_major(X.data(), m, k), this->how());

  const on_device<T> dF(device, list(A)), dtau(device, std::vector<T>(n)), dC(device, list(B)), dG(device, list(A)), dX(device, list(B));
  const std::span<const T> scalars(dtau.data(), n);
  device->bytes_read = device->bytes_written = 0;
  EXPECT_EQ(geqrf(of(dF.data()), std::span<T>(dtau.data(), n), this->how()).verdict, verdict::clean);
  const std::int64_t bytes = ((n - 1) * ld + m + n) * static_cast<std::int64_t>(sizeof(T));
  EXPECT_EQ(device->bytes_read, bytes) << "each operand once";
  EXPECT_EQ(device->bytes_written, bytes);
  EXPECT_EQ(dF.values(), F);
  EXPECT_EQ(dtau.values(), tau);
  const on_device<T> dQ(device, F);
  (void)orgqr(of(dQ.data()), scalars, this->how());
  EXPECT_EQ(dQ.values(), Q);
  (void)ormqr(side::left, transpose::yes, of(static_cast<const T*>(dF.data())), scalars, column_major(dC.data(), m, k), this->how());
  EXPECT_EQ(dC.values(), C);
  (void)gels(of(dG.data()), column_major(dX.data(), m, k), this->how());
  EXPECT_EQ(dG.values(), G);
  EXPECT_EQ(dX.values(), X);
  const on_device<T> dA(device, list(A));
  const auto made = factor(of(static_cast<const T*>(dA.data())), this->how());
  EXPECT_EQ(made.tau, tau);
  EXPECT_EQ(dA.values(), list(A));
}

TYPED_TEST(qr, least_squares_of_interleaved_blocks_in_device_memory) {
  using T = typename TestFixture::T;
  // A above B in one matrix: neither may be written back over the other.
  const auto device = std::make_shared<simt::emulated_device>();
  const test::current_device_guard current(device);
  const index m = 9, n = 4, ld = 2 * m;
  const dense<T> both = random_matrix<T>(ld, n, 43);
  std::vector<T> here(both.data(), both.data() + both.size());
  const on_device<T> there(device, here);
  const auto solve = [&](T* data) { return gels(column_major(data, m, n, ld), column_major(data + m, m, n, ld), this->how()); };
  EXPECT_EQ(solve(here.data()).verdict, verdict::clean);
  EXPECT_EQ(solve(there.data()).verdict, verdict::clean);
  EXPECT_EQ(there.values(), here);
}

TYPED_TEST(qr, an_uncorrectable_fault_leaves_device_memory_alone) {
  using T = typename TestFixture::T;
  const auto device = std::make_shared<test::counted_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard current(device);
  const dense<T> A = random_matrix<T>(40, 24, 21);
  const std::vector<T> start(A.data(), A.data() + A.size());
  const on_device<T> F(device, start), tau(device, std::vector<T>(24));
  const inject::plan faults({{.site = inject::site::qr_tau, .model = inject::model::stuck_at, .seed = 1}});
  execution how = this->how();
  how.faults = &faults;
  device->bytes_written = 0;
  EXPECT_THROW((void)geqrf(column_major(F.data(), 40, 24), std::span<T>(tau.data(), 24), how), uncorrectable_error);
  EXPECT_EQ(device->bytes_written, 0);
  EXPECT_EQ(F.values(), start);
}
#endif

TYPED_TEST(qr, does_not_depend_on_threads_scheme_of_checks_or_protection) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    const dense<T> A = random_matrix<T>(m, n, 8);
    const factored<T> expected = factor_in_place<T>(A, this->how());
    for (const int threads : {1, 2, 3}) {
      for (const protection level : {protection::off, protection::detect, protection::correct}) {
        execution how = this->how();
        how.threads = threads;
        how.protection = level;
        const factored<T> made = factor_in_place<T>(A, how);
        EXPECT_EQ(made.tau, expected.tau) << m << " × " << n << " " << threads;
        EXPECT_TRUE(std::equal(made.F.data(), made.F.data() + made.F.size(), expected.F.data())) << m << " × " << n << " " << threads;
        EXPECT_EQ(made.report.verdict, verdict::clean);
      }
    }
  }
}

// C as the mathematics has it: reflectors one by one in long double.
template <class T>
dense<T> applied(side where, transpose op, const dense<T>& F, const std::vector<T>& tau, const dense<T>& C) {
  const index k = static_cast<index>(tau.size());
  dense<T> made = C;
  const matrix_view<T> X = where == side::left ? made.view() : made.view().transposed();
  const bool forward = (op == transpose::yes) == (where == side::left);
  for (index c = 0; c < X.columns; ++c) {
    std::vector<long double> x(static_cast<std::size_t>(X.rows));
    for (index i = 0; i < X.rows; ++i) x[static_cast<std::size_t>(i)] = X(i, c);
    for (index s = 0; s < k; ++s) {
      const index j = forward ? s : k - 1 - s;
      long double dot = x[static_cast<std::size_t>(j)];
      for (index i = j + 1; i < X.rows; ++i) dot += static_cast<long double>(F(i, j)) * x[static_cast<std::size_t>(i)];
      dot *= static_cast<long double>(tau[static_cast<std::size_t>(j)]);
      x[static_cast<std::size_t>(j)] -= dot;
      for (index i = j + 1; i < X.rows; ++i) x[static_cast<std::size_t>(i)] -= static_cast<long double>(F(i, j)) * dot;
    }
    for (index i = 0; i < X.rows; ++i) X(i, c) = static_cast<T>(x[static_cast<std::size_t>(i)]);
  }
  return made;
}

TYPED_TEST(qr, ormqr_applies_q_from_both_sides) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    if (m > 1000) continue;
    const factored<T> made = factor_in_place<T>(random_matrix<T>(m, n, 6), this->how());
    for (const side where : {side::left, side::right}) {
      for (const transpose op : {transpose::no, transpose::yes}) {
        for (const order layout : {order::column_major, order::row_major}) {
          const index other = 19;
          const dense<T> C0 = random_matrix<T>(where == side::left ? m : other, where == side::left ? other : m, 7);
          dense<T> C = copy_of<T>(C0, layout);
          const report seen = ormqr(where, op, made.F.view(), made.tau, C.view(), this->how());
          EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
          EXPECT_GT(seen.checks, 0u);
          const dense<T> expected = applied<T>(where, op, made.F, made.tau, C0);
          const double tolerance = 10 * static_cast<double>(m) * abft::unit_roundoff<T> * std::sqrt(static_cast<double>(m));
          for (index i = 0; i < C.rows(); ++i) {
            for (index j = 0; j < C.columns(); ++j) ASSERT_NEAR(C(i, j), expected(i, j), tolerance) << m << " × " << n;
          }
        }
      }
    }
  }
}

TYPED_TEST(qr, ormqr_takes_reflectors_that_are_none) {
  using T = typename TestFixture::T;
  // LAPACK applies whatever v and tau it is given; so do we, without an alarm.
  const dense<T> V = random_matrix<T>(20, 6, 1);
  const std::vector<T> tau = {T(0.3), T(0), T(1), T(-0.5), T(0.01), T(0)};
  const dense<T> C0 = random_matrix<T>(20, 4, 2);
  dense<T> C = copy_of<T>(C0);
  // Such a product grows: 1 + |tau|‖v‖² for each.
  execution how = this->how();
  how.protection = protection::off;
  EXPECT_EQ(ormqr(side::left, transpose::no, V.view(), tau, C.view(), how).verdict, verdict::clean);
  const dense<T> expected = applied<T>(side::left, transpose::no, V, tau, C0);
  double size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) size = std::max(size, std::abs(static_cast<double>(expected.data()[i])));
  for (index i = 0; i < 20; ++i) {
    for (index j = 0; j < 4; ++j) EXPECT_NEAR(C(i, j), expected(i, j), size * 1000 * abft::unit_roundoff<T>);
  }
  EXPECT_EQ(ormqr(side::left, transpose::no, V.view(), std::vector<T>{}, C.view(), this->how()).verdict, verdict::clean);
}

TYPED_TEST(qr, orgqr_makes_orthonormal_columns) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    if (m < n || m > 1000) continue;
    for (const index k : {n, (n + 1) / 2}) {
      factored<T> made = factor_in_place<T>(random_matrix<T>(m, k, 6), this->how());
      dense<T> Q(m, n, order::column_major);
      for (index j = 0; j < k; ++j) {
        for (index i = 0; i < m; ++i) Q(i, j) = made.F(i, j);
      }
      EXPECT_EQ(orgqr(Q.view(), made.tau, this->how()).verdict, verdict::clean);
      dense<T> unit(m, n, order::column_major);
      for (index j = 0; j < n; ++j) unit(j, j) = 1;
      const dense<T> expected = applied<T>(side::left, transpose::no, made.F, made.tau, unit);
      for (index j = 0; j < n; ++j) {
        for (index i = 0; i < m; ++i) ASSERT_NEAR(Q(i, j), expected(i, j), 10 * static_cast<double>(m) * abft::unit_roundoff<T>);
      }
    }
  }
}

TYPED_TEST(qr, owning_factors_give_back_the_matrix) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    if (m > 1000) continue;
    const dense<T> A = copy_of<T>(random_matrix<T>(m, n, 9), order::row_major);
    const auto made = factor(A.view(), this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean);
    report seen;
    const matrix<T> Q = made.q(this->how(), &seen), R = made.r();
    EXPECT_EQ(seen.verdict, verdict::clean);
    EXPECT_GT(seen.checks, 0u);
    ASSERT_EQ(Q.columns(), std::min(m, n));
    ASSERT_EQ(R.rows(), std::min(m, n));
    for (index i = 0; i < m; ++i) {
      for (index j = 0; j < n; ++j) {
        double sum = 0;
        for (index l = 0; l < R.rows(); ++l) sum += static_cast<double>(Q(i, l)) * R(l, j);
        ASSERT_NEAR(sum, A(i, j), 20 * static_cast<double>(std::max(m, n)) * abft::unit_roundoff<T>);
      }
    }
  }
}

TYPED_TEST(qr, gels_solves_over_and_underdetermined_systems) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    if (m > 1000 || m == n) continue;
    for (const index k : {1, 3}) {
      const dense<T> A = random_matrix<T>(m, n, 10);
      const dense<T> B = random_matrix<T>(std::max(m, n), k, 11);
      dense<T> F = copy_of<T>(A), X = copy_of<T>(B, order::row_major);
      const report seen = gels(F.view(), X.view(), this->how());
      EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
      const double tolerance = 3000 * static_cast<double>(std::max(m, n)) * abft::unit_roundoff<T>;
      for (index c = 0; c < k; ++c) {
        // Overdetermined: Aᵀ(b − Ax) = 0 and ‖b − Ax‖ in the rest. Underdetermined: Ax = b and x in the range of Aᵀ, which its length
        // shows.
        std::vector<double> residual(static_cast<std::size_t>(m));
        double squares = 0, rest = 0;
        for (index i = 0; i < m; ++i) {
          double sum = B(i, c);
          for (index j = 0; j < n; ++j) sum -= static_cast<double>(A(i, j)) * X(j, c);
          residual[static_cast<std::size_t>(i)] = sum;
          squares += sum * sum;
        }
        if (m > n) {
          for (index j = 0; j < n; ++j) {
            double sum = 0;
            for (index i = 0; i < m; ++i) sum += residual[static_cast<std::size_t>(i)] * A(i, j);
            EXPECT_NEAR(sum, 0, tolerance);
          }
          for (index i = n; i < m; ++i) rest += static_cast<double>(X(i, c)) * X(i, c);
          EXPECT_NEAR(std::sqrt(rest), std::sqrt(squares), tolerance);
        } else {
          EXPECT_NEAR(std::sqrt(squares), 0, tolerance);
          // x = Aᵀ y for the y with A Aᵀ y = b: x is orthogonal to what A does not see. A basis of that: Q's last columns of Aᵀ = QR.
          const auto transposed = factor(matrix_view<const T>(A.view().transposed()), this->how());
          dense<T> x(n, 1, order::column_major);
          for (index i = 0; i < n; ++i) x(i, 0) = X(i, c);
          (void)ormqr(side::left, transpose::yes, transposed.storage.view(), transposed.tau, x.view(), this->how());
          for (index i = m; i < n; ++i) EXPECT_NEAR(x(i, 0), 0, tolerance);
        }
      }
      if (m > n) {
        const auto made = factor(matrix_view<const T>(A.view()), this->how());
        const matrix<T> again = made.solve(B.view(), this->how());
        for (index i = 0; i < n; ++i) {
          for (index c = 0; c < k; ++c) EXPECT_NEAR(again(i, c), X(i, c), tolerance);
        }
      }
    }
  }
}

// J. Longley, An appraisal of least squares programs, 1967; certified values: NIST StRD.
constexpr double k_longley[16][7] = {{60323, 83.0, 234289, 2356, 1590, 107608, 1947},  {61122, 88.5, 259426, 2325, 1456, 108632, 1948},
                                     {60171, 88.2, 258054, 3682, 1616, 109773, 1949},  {61187, 89.5, 284599, 3351, 1650, 110929, 1950},
                                     {63221, 96.2, 328975, 2099, 3099, 112075, 1951},  {63639, 98.1, 346999, 1932, 3594, 113270, 1952},
                                     {64989, 99.0, 365385, 1870, 3547, 115094, 1953},  {63761, 100.0, 363112, 3578, 3350, 116219, 1954},
                                     {66019, 101.2, 397469, 2904, 3048, 117388, 1955}, {67857, 104.6, 419180, 2822, 2857, 118734, 1956},
                                     {68169, 108.4, 442769, 2936, 2798, 120445, 1957}, {66513, 110.8, 444546, 4681, 2637, 121950, 1958},
                                     {68655, 112.6, 482704, 3813, 2552, 123366, 1959}, {69564, 114.2, 502601, 3931, 2514, 125368, 1960},
                                     {69331, 115.7, 518173, 4806, 2572, 127852, 1961}, {70551, 116.9, 554894, 4007, 2827, 130081, 1962}};
constexpr double k_certified[7] = {-3482258.63459582, 15.0618722713733,       -0.358191792925910E-01, -2.02022980381683,
                                   -1.03322686717359, -0.511041056535807E-01, 1829.15146461355};

void longley(dense<double>& A, dense<double>& b) {
  A = dense<double>(16, 7, order::column_major);
  b = dense<double>(16, 1, order::column_major);
  for (index i = 0; i < 16; ++i) {
    b(i, 0) = k_longley[i][0];
    A(i, 0) = 1;
    for (index j = 1; j < 7; ++j) A(i, j) = k_longley[i][j];
  }
}

TEST(longley, agrees_with_the_certified_coefficients_to_nine_digits) {
  for (const backend which : k_backends) {
    for (const char* scheme : k_schemes) {
      dense<double> A, b;
      longley(A, b);
      const execution how{.backend = which, .scheme = scheme};
      EXPECT_EQ(gels(A.view(), b.view(), how).verdict, verdict::clean);
      double digits = 16;
      for (index j = 0; j < 7; ++j) digits = std::min(digits, -std::log10(std::abs(b(j, 0) / k_certified[j] - 1)));
      EXPECT_GE(digits, 9) << to_string(which);
      RecordProperty(fmt::format("digits_{}", to_string(which)), static_cast<int>(digits * 10));
    }
  }
}

TYPED_TEST(qr, inf_and_nan_pass_through_without_alarm) {
  using T = typename TestFixture::T;
  for (const T odd : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity()}) {
    for (const char* scheme : k_schemes) {
      dense<T> A = random_matrix<T>(30, 12, 12);
      A(17, 5) = odd;
      const factored<T> made = factor_in_place<T>(A, this->how(scheme));
      EXPECT_EQ(made.report.verdict, verdict::clean);
      EXPECT_EQ(made.report.detected, 0u);
      for (index j = 0; j < 5; ++j) {
        for (index i = 0; i < 30; ++i) EXPECT_TRUE(std::isfinite(made.F(i, j))) << "columns before the odd one are not touched by it";
      }
      EXPECT_FALSE(std::isfinite(made.F(5, 5)));
      dense<T> B = random_matrix<T>(30, 2, 13);
      const report seen = gels(A.view(), B.view(), this->how(scheme));
      EXPECT_EQ(seen.verdict, verdict::clean);
      EXPECT_FALSE(std::isfinite(B(6, 0)));
    }
    dense<T> C = random_matrix<T>(30, 4, 14);
    C(3, 2) = odd;
    const factored<T> made = factor_in_place<T>(random_matrix<T>(30, 12, 12), this->how());
    EXPECT_EQ(ormqr(side::left, transpose::yes, made.F.view(), made.tau, C.view(), this->how()).verdict, verdict::clean);
    EXPECT_FALSE(std::isfinite(C(0, 2)));
    EXPECT_TRUE(std::isfinite(C(0, 1)));
  }
}

TYPED_TEST(qr, a_solution_beyond_the_range_of_numbers_is_no_fault) {
  using T = typename TestFixture::T;
  dense<T> A(3, 2, order::column_major), B(3, 1, order::column_major);
  A(0, 0) = 1;
  A(1, 1) = std::numeric_limits<T>::denorm_min();
  B(0, 0) = 1;
  B(1, 0) = std::numeric_limits<T>::max();
  const report seen = gels(A.view(), B.view(), this->how());
  EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
  EXPECT_TRUE(std::isinf(B(1, 0)));
}

TYPED_TEST(qr, refuses_what_has_no_meaning_and_says_why) {
  using T = typename TestFixture::T;
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const invalid_argument_error& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  dense<T> A(6, 4, order::column_major), C(6, 2, order::column_major);
  std::vector<T> tau(4);
  const execution how = this->how();
  const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(message([&] { (void)geqrf(A.view(), std::span<T>(tau).first(3), how); }), "expected 4 elements, got 3"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(A.view(), std::span<T>(tau).first(3), how); }), to_token({precision_of<T>, 6, 4})));
  EXPECT_TRUE(has(message([&] { (void)geqrf(matrix_view<T>{A.data(), 0, 4, 1, 6}, std::span<T>(tau), how); }), "at least 1"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(matrix_view<T>{nullptr, 6, 4, 1, 6}, std::span<T>(tau), how); }), "null"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(matrix_view<T>{A.data(), 6, 4, 1, 3}, std::span<T>(tau), how); }), "apart"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(matrix_view<T>{A.data(), 6, 4, 0, 6}, std::span<T>(tau), how); }), "apart"));
  EXPECT_TRUE(has(message([&] {
                    (void)geqrf(matrix_view<T>{A.data(), index{1} << 40, 1, 1, 1}, std::span<T>(tau).first(1), how);
                  }),
                  "at most"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(matrix_view<T>{A.data(), 6, 4, index{1} << 61, 6}, std::span<T>(tau), how); }), "strides"));
  EXPECT_TRUE(has(message([&] { (void)geqrf(A.view(), std::span<T>(A.data() + 2, 4), how); }), "overlapping"));
  EXPECT_TRUE(has(message([&] { (void)ormqr(side::left, transpose::no, A.view(), tau, dense<T>(5, 2).view(), how); }), "expected 5 rows"));
  EXPECT_TRUE(has(message([&] { (void)ormqr(side::left, transpose::no, A.view(), tau, A.view(), how); }), "overlapping"));
  EXPECT_TRUE(has(message([&] { (void)orgqr(A.view().transposed(), tau, how); }), "columns ≤ rows"));
  EXPECT_TRUE(has(message([&] { (void)gels(A.view(), dense<T>(5, 2).view(), how); }), "6 rows"));
  for (index i = 0; i < 6; ++i) A(i, 0) = 1;
  EXPECT_TRUE(has(message([&] { (void)gels(A.view(), C.view(), how); }), "full rank"));
  EXPECT_EQ(A(3, 0), 1) << "nothing was committed";
  execution bad = how;
  bad.threads = -1;
  EXPECT_THROW((void)geqrf(A.view(), std::span<T>(tau), bad), invalid_argument_error);
  bad = how;
  bad.scheme = "magic";
  EXPECT_THROW((void)geqrf(A.view(), std::span<T>(tau), bad), unsupported_error);
  bad = how;
  bad.backend = backend::cuda;
  bad.scheme = "qr_update";
  EXPECT_THROW((void)geqrf(A.view(), std::span<T>(tau), bad), unsupported_error);
}

TEST(token, goes_both_ways_and_refuses_others) {
  EXPECT_EQ(to_token({precision::f64, 4096, 500}), "qr_f64_m4096_n500");
  const problem p = parse_token("qr_f32_m20000_n64");
  EXPECT_EQ(p.precision, precision::f32);
  EXPECT_EQ(p.m, 20000);
  EXPECT_EQ(p.n, 64);
  for (const char* bad : {"", "qr", "qr_f16_m1_n1", "qr_f64_m0_n1", "qr_f64_m1", "qr_f64_m1_n1_", "qr_f64_m-1_n1", "qr_f64_m1_n01",
                          "qr_f64_m1_n99999999999999999999"})
    EXPECT_THROW((void)parse_token(bad), invalid_argument_error) << bad;
}

// ------------------------------------------------------------------------------------------------------------------ faults

// What a user ends up with: factors, Q and a least-squares solution, from one plan of faults.
template <class T>
struct everything {
  dense<T> F;
  std::vector<T> tau;
  dense<T> Q;
  report seen;
};

template <class T>
everything<T> compute(matrix_view<const T> A, execution how, const inject::plan* faults) {
  how.faults = faults;
  how.throw_on_uncorrectable = false;
  auto made = factor(A, how);
  everything<T> all{std::move(made.storage), std::move(made.tau), {}, made.report};
  if (A.rows >= A.columns && all.seen.verdict != verdict::uncorrectable) {
    all.Q = copy_of<T>(all.F.view());
    all.seen.merge(orgqr(all.Q.view(), all.tau, how));
  }
  return all;
}

// The largest relative change by column, in units of u.
template <class T>
double change(const dense<T>& a, const dense<T>& b) {
  double worst = 0;
  for (index j = 0; j < a.columns(); ++j) {
    double norm = 0, off = 0;
    for (index i = 0; i < a.rows(); ++i) {
      norm += std::pow(static_cast<double>(b(i, j)), 2);
      const double each = static_cast<double>(a(i, j)) - b(i, j);
      off += each * each;
    }
    if (!(off <= worst * worst * norm)) worst = std::sqrt(off / std::max(norm, 1e-300));
    if (off != off) return off;
  }
  return worst / abft::unit_roundoff<T>;
}

inject::request fault(inject::site where, inject::model what, std::uint64_t seed) {
  inject::request made;
  made.site = where;
  made.model = what;
  made.seed = seed;
  if (what == inject::model::bit_flip || what == inject::model::two_bits || what == inject::model::vector_mask) made.bit = 61;
  return made;
}

std::vector<inject::site> sites() {
  std::vector<inject::site> all;
  for (const inject::site_row& row : inject::k_sites) {
    if (row.operation == "qr" || row.operation.empty()) all.push_back(row.site);
  }
  return all;
}

TYPED_TEST(qr, every_fault_at_every_site_is_repaired) {
  using T = typename TestFixture::T;
  std::vector<std::pair<index, index>> shapes = {{40, 24}, {20, 33}, {16, 7}};
  if (this->which == backend::cuda && test::sampled()) shapes.resize(1);
  for (const char* scheme : k_schemes) {
    for (const auto& [m, n] : shapes) {
      const dense<T> A = random_matrix<T>(m, n, 21);
      const everything<T> clean = compute<T>(A, this->how(scheme), nullptr);
      ASSERT_EQ(clean.seen.verdict, verdict::clean);
      const double limit = 300.0 * static_cast<double>(std::max(m, n));  // u; rebuilt elements are off by their block's rounding, times κ
      for (const inject::site where : sites()) {
        if (m < n && where == inject::site::qr_q) continue;  // compute() makes no Q then
        const inject::site_row& row = inject::row_of(where);
        for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
          const auto model = static_cast<inject::model>(what);
          for (std::uint64_t seed = 0; seed < this->rounds(test::sampled() ? 2 : 6); ++seed) {
            const std::string name = fmt::format("{} {} {} × {} {} {} seed {}", scheme, to_string(this->which), m, n, row.name,
                                                 inject::k_model_names[what], seed);
            const inject::plan faults({fault(where, model, seed)});
            const everything<T> struck = compute<T>(A, this->how(scheme), &faults);
            if (struck.seen.verdict == verdict::uncorrectable) {
              EXPECT_EQ(model, inject::model::stuck_at) << name << to_json(struck.seen);
              continue;
            }
            const double off = std::max({change(struck.F, clean.F), clean.Q.size() != 0 ? change(struck.Q, clean.Q) : 0.0});
            EXPECT_LE(off, limit) << name << to_json(struck.seen);
            for (std::size_t j = 0; j < clean.tau.size(); ++j)
              EXPECT_NEAR(struck.tau[j], clean.tau[j], limit * abft::unit_roundoff<T>) << name;
            // A verdict of clean is right only for faults that change nothing to speak of (a zero that was zero, a struck NaN in a word
            // that is not used, …).
            if (struck.seen.verdict == verdict::clean && row.role != inject::site_role::checker) {
              EXPECT_LE(off, 300) << name;
            }
            if (row.role == inject::site_role::repair) {
              EXPECT_NE(struck.seen.verdict, verdict::clean) << name;
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(qr, without_protection_the_same_faults_reach_the_output) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(40, 24, 21);
  execution how = this->how();
  how.protection = protection::off;
  const everything<T> clean = compute<T>(A, how, nullptr);
  EXPECT_EQ(clean.seen.checks, 0u);
  for (const inject::site where : sites()) {
    if (inject::row_of(where).role != inject::site_role::data) continue;
    for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
      int reached = 0;
      const std::uint64_t seeds = this->which == backend::cuda && test::sampled() ? 2 : 6;
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        const inject::plan faults({fault(where, static_cast<inject::model>(what), seed)});
        const everything<T> struck = compute<T>(A, how, &faults);
        EXPECT_EQ(struck.seen.verdict, verdict::clean);
        if (!(change(struck.F, clean.F) <= 1e4) || !(change(struck.Q, clean.Q) <= 1e4) || struck.tau != clean.tau) ++reached;
      }
      EXPECT_GE(reached, static_cast<int>(seeds) - 1) << inject::row_of(where).name << " " << inject::k_model_names[what];
    }
  }
}

TYPED_TEST(qr, detect_reports_and_repairs_nothing) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(40, 24, 21);
  execution how = this->how();
  how.protection = protection::detect;
  for (const inject::site where : {inject::site::qr_panel, inject::site::qr_reflector, inject::site::qr_tau, inject::site::qr_t,
                                   inject::site::qr_product, inject::site::qr_trailing, inject::site::qr_r}) {
    const inject::plan faults({fault(where, inject::model::random_value, 3)});
    how.faults = &faults;
    EXPECT_THROW((void)factor(matrix_view<const T>(A.view()), how), uncorrectable_error) << inject::row_of(where).name;
  }
}

TYPED_TEST(qr, many_faults_in_one_run_are_all_repaired) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(60, 45, 22);
  const everything<T> clean = compute<T>(A, this->how(), nullptr);
  for (std::uint64_t seed = 0; seed < this->rounds(20); ++seed) {
    inject::plan faults;
    for (const inject::site where : {inject::site::qr_trailing, inject::site::qr_product, inject::site::qr_r, inject::site::qr_reflector}) {
      inject::request each = fault(where, seed % 2 == 0 ? inject::model::random_value : inject::model::nan, seed);
      each.count = 2;
      faults.add(each);
    }
    const everything<T> struck = compute<T>(A, this->how(), &faults);
    ASSERT_NE(struck.seen.verdict, verdict::uncorrectable);
    EXPECT_NE(struck.seen.verdict, verdict::clean);
    EXPECT_LE(change(struck.F, clean.F), 3e4);
  }
}

// Paper §6: c₁, c₂, c₃ place two faults in one column of V.
TYPED_TEST(qr, two_faults_in_one_column_of_v_are_located_and_rebuilt) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(90, 20, 23);
  const everything<T> clean = compute<T>(A, this->how(), nullptr);
  std::uint64_t corrected = 0;
  for (const inject::model what : {inject::model::random_value, inject::model::zero, inject::model::nan}) {
    for (std::uint64_t seed = 0; seed < this->rounds(60); ++seed) {
      inject::request wanted = fault(inject::site::qr_reflector, what, seed);
      wanted.interval = 15;  // a column of the second panel, which nothing follows: V is struck when it is used no more
      wanted.count = 2;
      const inject::plan faults({wanted});
      const everything<T> struck = compute<T>(A, this->how(), &faults);
      ASSERT_NE(struck.seen.verdict, verdict::uncorrectable);
      EXPECT_LE(change(struck.F, clean.F), 1000);
      if (struck.seen.verdict == verdict::corrected && struck.seen.events.size() == 1 && struck.seen.events[0].site == "qr.checkpoint") {
        EXPECT_EQ(struck.seen.events[0].index, 15);
        ++corrected;
      }
    }
  }
  EXPECT_GE(corrected, this->rounds(60) / 2)
      << "two thirds of the seeds put at least one of the two faults in before the panel is verified";
}

TYPED_TEST(qr, a_persistent_fault_is_reported_and_the_input_comes_back) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(40, 24, 21);
  const inject::plan faults({fault(inject::site::qr_tau, inject::model::stuck_at, 1)});
  for (const order layout : {order::column_major, order::row_major}) {
    dense<T> F = copy_of<T>(A, layout);
    std::vector<T> tau(24, T(5));
    execution how = this->how();
    how.faults = &faults;
    int events = 0;
    how.on_event = [&](const event&) { ++events; };
    EXPECT_THROW((void)geqrf(F.view(), tau, how), uncorrectable_error);
    EXPECT_EQ(events, 1);
    EXPECT_EQ(tau, std::vector<T>(24, T(5)));
    for (index j = 0; j < 24; ++j) {
      for (index i = 0; i < 40; ++i) ASSERT_EQ(F(i, j), A(i, j));
    }
  }
}

TYPED_TEST(qr, faults_in_least_squares_do_not_reach_the_coefficients) {
  using T = typename TestFixture::T;
  dense<double> A64, b64;
  longley(A64, b64);
  dense<T> A(16, 7, order::column_major), b(16, 1, order::column_major);
  for (index i = 0; i < 16; ++i) {
    b(i, 0) = static_cast<T>(b64(i, 0));
    for (index j = 0; j < 7; ++j)
      A(i, j) = static_cast<T>(j == 6 ? A64(i, j) - 1954 : A64(i, j));  // centred years: float can hold the problem
  }
  dense<T> F = copy_of<T>(A), clean = copy_of<T>(b);
  (void)gels(F.view(), clean.view(), this->how());
  for (const inject::site where : sites()) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const inject::plan faults({fault(where, inject::model::bit_flip, seed)});
      execution how = this->how();
      how.faults = &faults;
      dense<T> G = copy_of<T>(A), x = copy_of<T>(b);
      const report seen = gels(G.view(), x.view(), how);
      EXPECT_NE(seen.verdict, verdict::uncorrectable);
      for (index j = 0; j < 7; ++j)
        EXPECT_NEAR(x(j, 0) / clean(j, 0), 1, sizeof(T) == 4 ? 0.3 : 1e-8) << inject::row_of(where).name << " " << seed << to_json(seen);
    }
  }
}

// The floor: a change of one element of a block after an update by more than twice the threshold is always seen, whatever the data.
TYPED_TEST(qr, nothing_above_the_floor_is_missed) {
  using T = typename TestFixture::T;
  for (const char* kind : {"normal", "columns 1e±12", "rows 1e±12", "hilbert", "low rank", "tiny"}) {
    const dense<T> A = matrix_of_kind<T>(kind, 40, 24, 31);
    const everything<T> clean = compute<T>(A, this->how(), nullptr);
    for (std::uint64_t seed = 0; seed < this->rounds(40); ++seed) {
      for (const inject::site where : {inject::site::qr_trailing, inject::site::qr_panel, inject::site::qr_r}) {
        inject::request wanted = fault(where, inject::model::bit_flip, seed);
        wanted.bit = -1;
        const inject::plan faults({wanted});
        const everything<T> struck = compute<T>(A, this->how(), &faults);
        ASSERT_NE(struck.seen.verdict, verdict::uncorrectable);
        const ratios seen = ratios_of<T>(A, struck.F, struck.tau);
        // 128 thresholds' worth of u‖A_j‖ in one element, over max(m, n) u.
        EXPECT_LT(seen.residual, 128 * std::sqrt(24.0) * 2 / 40 + 10) << kind << " " << inject::row_of(where).name << " " << seed;
        EXPECT_LT(seen.orthogonality, 128.0) << kind << " " << inject::row_of(where).name << " " << seed;
      }
    }
  }
}

TYPED_TEST(qr, a_hundred_thousand_clean_intervals_raise_no_alarm) {
  using T = typename TestFixture::T;
  std::uint64_t checks = 0;
  // The checks are the driver's, the same for both backends; the plain loops only make them slower.
  const std::uint64_t wanted = (test::sampled() ? 10000 : 100000) / (this->which == backend::cpu    ? 1
                                                                     : this->which == backend::cuda ? 20
                                                                                                    : 10);
  for (std::uint64_t seed = 0; checks < wanted; ++seed) {
    const std::string& kind = k_kinds[seed % k_kinds.size()];
    const index m = 4 + static_cast<index>(seed * 13 % 61), n = 3 + static_cast<index>(seed * 7 % 53);
    execution how = this->how(seed % 5 == 4 ? k_schemes.back() : k_schemes.front());
    how.threads = 1;
    const dense<T> A = matrix_of_kind<T>(kind, m, n, seed);
    const everything<T> made = compute<T>(A, how, nullptr);
    ASSERT_EQ(made.seen.verdict, verdict::clean) << kind << " " << m << " × " << n << " " << seed << to_json(made.seen);
    checks += made.seen.checks;
  }
}

#if !defined(BALLAST_TEST_QR_ON_CUDA)  // the check of the host backends
// A struck element of a solution, whatever its value and its place, is never within the threshold: an infinite one makes its row's
// threshold infinite, and must not be passed over for rows that it does not touch.
TYPED_TEST(qr, a_struck_solution_never_passes_the_residual) {
  using T = typename TestFixture::T;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  for (const double scale : {1.0, sizeof(T) == 4 ? 1e-30 : 1e-290, sizeof(T) == 4 ? 1e30 : 1e290}) {
    for (const bool transposed : {false, true}) {
      const index n = 20;
      dense<T> U = random_matrix<T>(n, n, 5);
      for (index j = 0; j < n; ++j) {
        for (index i = 0; i < n; ++i) U(i, j) = i > j ? T(0) : static_cast<T>((U(i, j) + (i == j ? 8 : 0)) * scale);
      }
      std::vector<T> x(n), c(n);
      for (index i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = static_cast<T>(1 + i % 3);
      for (index i = 0; i < n; ++i) {
        long double sum = 0;
        for (index j = 0; j < n; ++j) sum += static_cast<long double>(transposed ? U(j, i) : U(i, j)) * x[static_cast<std::size_t>(j)];
        c[static_cast<std::size_t>(i)] = static_cast<T>(sum);
      }
      // Beside columns that are right, and one with Inf, which has no check and must not disturb those of others.
      const kernels<double>& arithmetic = this->which == backend::reference ? reference_kernels<double>() : cpu_kernels<double>();
      const auto seen = [&](bool beside) {
        dense<T> X(n, 4, order::column_major), B(n, 4, order::column_major);
        for (index j = 0; j < 4; ++j) {
          for (index i = 0; i < n; ++i) {
            X(i, j) = j == 2 ? x[static_cast<std::size_t>(i)] : static_cast<T>(1 + i % 3);
            B(i, j) = c[static_cast<std::size_t>(i)];
          }
        }
        if (beside) X(3, 1) = infinity;
        return host::residual_of<T>(arithmetic, transposed, U.view(), X.view(), B.view());
      };
      ASSERT_FALSE(seen(false).odd);
      ASSERT_LE(seen(false).residual, seen(false).threshold);
      for (index at = 0; at < n; ++at) {
        T& element = x[static_cast<std::size_t>(at)];
        const T clean = element;
        for (const T wrong : {infinity, -infinity, std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::max(), T(0), T(1.01)}) {
          if (wrong == clean) continue;
          element = wrong;
          for (const bool beside : {false, true}) {
            const solve_sums here = seen(beside);
            // A number whose products overflow is odd, too.
            const bool overflows = sizeof(T) == 8 && wrong == std::numeric_limits<T>::max();
            if (!overflows) {
              EXPECT_EQ(here.odd, beside || !std::isfinite(wrong)) << at << " " << static_cast<double>(wrong);
            }
            if (std::isfinite(wrong) && !(overflows && here.odd))
              EXPECT_FALSE(here.residual <= here.threshold) << at << " " << static_cast<double>(wrong);
            else
              EXPECT_TRUE(here.odd);
          }
        }
        element = clean;
      }
    }
  }
}
#endif

// Several blocks of right-hand sides, the last one narrower; Inf in one of them has no check and disturbs no other.
TYPED_TEST(qr, many_right_hand_sides_are_solved_as_each_by_itself) {
  using T = typename TestFixture::T;
  const index k = 75;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{90, 70}, {70, 90}}) {
    const index most = std::max(m, n);
    const dense<T> A = random_matrix<T>(m, n, 3);
    dense<T> B = random_matrix<T>(most, k, 4);
    B(5, 40) = std::numeric_limits<T>::infinity();
    dense<T> F = copy_of<T>(A), X = copy_of<T>(B);
    const report seen = gels(F.view(), X.view(), this->how());
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    for (const index c : {index{0}, index{37}, index{39}, index{41}, index{74}}) {
      dense<T> G = copy_of<T>(A), x(most, 1, order::column_major);
      for (index i = 0; i < most; ++i) x(i, 0) = B(i, c);
      (void)gels(G.view(), x.view(), this->how());
      double size = 0, off = 0;
      for (index i = 0; i < most; ++i) {
        size += std::pow(static_cast<double>(x(i, 0)), 2);
        off += std::pow(static_cast<double>(X(i, c)) - x(i, 0), 2);
      }
      // Another order of sums, times the condition.
      EXPECT_LE(std::sqrt(off), 2e4 * abft::unit_roundoff<T> * std::sqrt(size)) << m << " × " << n << " " << c;
    }
  }
}

// Mixed scales make products that underflow; numbers near overflow make solutions that are Inf or NaN: neither is a fault.
TYPED_TEST(qr, least_squares_and_products_with_q_raise_no_alarm_on_clean_data) {
  using T = typename TestFixture::T;
  std::vector<std::string> kinds = k_kinds;
  kinds.insert(kinds.end(), {"elements 1e±30", "elements 1e±20", "near overflow", "near overflow"});
  const bool single = sizeof(T) == 4;
  const auto data = [&](const std::string& kind, index m, index n, std::uint64_t seed) {
    std::mt19937_64 bits(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    dense<T> A = matrix_of_kind<T>(kind, m, n, seed);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) {
        if (kind == "elements 1e±30") A(i, j) = static_cast<T>(A(i, j) * std::pow(10.0, 30 * uniform(bits)));
        if (kind == "elements 1e±20") A(i, j) = static_cast<T>(A(i, j) * (uniform(bits) < 0 ? 1e-20 : 1e20));
        if (kind == "near overflow") A(i, j) = static_cast<T>(A(i, j) * (single ? 3e37 : 1e307));
      }
    }
    return A;
  };
  std::uint64_t checks = 0, solves = 0;
  // The checks are the driver's, the same for both backends; the plain loops only make them slower.
  const std::uint64_t wanted = (test::sampled() ? 10000 : 100000) / (this->which == backend::cpu    ? 1
                                                                     : this->which == backend::cuda ? 20
                                                                                                    : 10);
  for (std::uint64_t seed = 0; checks < wanted; ++seed) {
    const std::string& kind = kinds[seed % kinds.size()];
    const index m = 3 + static_cast<index>(seed * 13 % 41), n = 3 + static_cast<index>(seed * 7 % 43), most = std::max(m, n);
    execution how = this->how();
    how.threads = 1;
    dense<T> A = data(kind, m, n, seed), B = data(kind, most, 9, seed + 1);
    try {
      const report seen = gels(A.view(), B.view(), how);
      ASSERT_EQ(seen.verdict, verdict::clean) << kind << " " << m << " × " << n << " " << seed << to_json(seen);
      ASSERT_EQ(seen.detected, 0u) << kind << " " << m << " × " << n << " " << seed << to_json(seen);
      checks += seen.checks;
      ++solves;
    } catch (const invalid_argument_error&) {
      // Not of full rank.
    }
    const dense<T> F = data(kind, m, n, seed + 2);
    const auto made = factor(F.view(), how);
    dense<T> C = data(kind, m, 20, seed + 3);
    const report seen = ormqr(side::left, seed % 2 == 0 ? transpose::yes : transpose::no,
                              made.storage.view().block(0, 0, m, std::min(m, n)), made.tau, C.view(), how);
    ASSERT_EQ(seen.verdict, verdict::clean) << kind << " " << m << " × " << n << " " << seed << to_json(seen);
    ASSERT_EQ(seen.detected, 0u) << kind << " " << m << " × " << n << " " << seed << to_json(seen);
    checks += seen.checks;
  }
  EXPECT_GT(solves, wanted / 1000);
}

#if !defined(BALLAST_TEST_QR_ON_CUDA)  // kernels of the host backends
// ------------------------------------------------------------------------------------------------ faults in what kernels read

// Kernels in one call of which an operand is read wrong: what a struck register does, that serves several columns or several sums.
template <class S>
class struck_kernels final : public kernels<S> {
 public:
  enum class operation { none, product, update, subtract, squares, triangular_factor, moments };
  struct strike {
    operation what = operation::none;
    int call = 0;   // number of the call that is struck
    index row = 0;  // of V, X, or of the product, modulo its size
    index column = 0;
    double factor = 1;       // of the element
    bool of_result = false;  // of the product's result in one column instead
  };
  struct counts {
    int product = 0, update = 0, subtract = 0, squares = 0, moments = 0;
  };

  struck_kernels(const kernels<S>& inner, const strike& wanted) : inner_(inner), wanted_(wanted) {}
  counts seen() const { return {calls_[1], calls_[2], calls_[3], calls_[4], calls_[6]}; }

  void factor_panel(index m, index w, S* A, index lda, S* tau, S* T, int threads, bool finite) const override {
    inner_.factor_panel(m, w, A, lda, tau, T, threads, finite);
  }
  void triangular_factor(const block_reflector<S>& H, const S* tau, S* T) const override {
    inner_.triangular_factor(H, tau, T);
    if (!now(operation::triangular_factor)) return;
    const index j = wanted_.column % H.width;
    T[wanted_.row % (j + 1) + j * H.width] += static_cast<S>(wanted_.factor);
  }
  void product(const block_reflector<S>& H, index n, const S* C, index ldc, S* W) const override {
    if (!now(operation::product)) return inner_.product(H, n, C, ldc, W);
    if (wanted_.of_result) {
      inner_.product(H, n, C, ldc, W);
      W[wanted_.row % H.width + wanted_.column % n * H.width] *= static_cast<S>(wanted_.factor);
      return;
    }
    std::vector<S> V;
    inner_.product(read(H, V), n, C, ldc, W);
  }
  void update(const block_reflector<S>& H, bool transposed, index n, S* W, S* C, index ldc) const override {
    std::vector<S> V;
    inner_.update(now(operation::update) ? read(H, V) : H, transposed, n, W, C, ldc);
  }
  void solve(bool transposed, index n, index k, const S* U, index ldu, S* B, index ldb) const override {
    inner_.solve(transposed, n, k, U, ldu, B, ldb);
  }
  void subtract_product(index m, index n, index k, const S* A, index lda, const S* B, index ldb, S* C, index ldc) const override {
    inner_.subtract_product(m, n, k, A, lda, B, ldb, C, ldc);
  }
  void subtract(index m, index w, const S* X, index ldx, int count, const double* z, index ldz, double* y, index ldy) const override {
    if (!now(operation::subtract)) return inner_.subtract(m, w, X, ldx, count, z, ldz, y, ldy);
    inner_.subtract(m, w, read(m, w, X, ldx).data(), m, count, z, ldz, y, ldy);
  }
  void dot(index m, index w, const S* X, index ldx, int count, const double* y, index ldy, double* z, index ldz) const override {
    inner_.dot(m, w, X, ldx, count, y, ldy, z, ldz);
  }
  void squares(index m, index w, const S* X, index ldx, double* z) const override {
    inner_.squares(m, w, X, ldx, z);
    if (now(operation::squares)) z[0] *= wanted_.factor;
  }
  void moments(index m, index w, const S* X, index ldx, const double* y, double* z, index ldz) const override {
    if (!now(operation::moments)) return inner_.moments(m, w, X, ldx, y, z, ldz);
    inner_.moments(m, w, read(m, w, X, ldx).data(), m, y, z, ldz);
  }

 private:
  bool now(operation what) const { return calls_[static_cast<std::size_t>(what)]++ == wanted_.call && what == wanted_.what; }
  // X with an element read wrong.
  std::vector<S> read(index m, index w, const S* X, index ldx) const {
    std::vector<S> copy(static_cast<std::size_t>(m * w));
    for (index j = 0; j < w; ++j) std::copy_n(X + j * ldx, m, copy.data() + j * m);
    copy[static_cast<std::size_t>(wanted_.row % m + wanted_.column % w * m)] *= static_cast<S>(wanted_.factor);
    return copy;
  }
  // H with an element of V2 (of V1 below its diagonal where there is no V2) read wrong.
  block_reflector<S> read(const block_reflector<S>& H, std::vector<S>& V) const {
    block_reflector<S> made = H;
    const index below = H.rows - H.width;
    if (below > 0) {
      V.resize(static_cast<std::size_t>(below * H.width));
      for (index j = 0; j < H.width; ++j) std::copy_n(H.V2 + j * H.ldv, below, V.data() + j * below);
      V[static_cast<std::size_t>(wanted_.row % below + wanted_.column % H.width * below)] *= static_cast<S>(wanted_.factor);
      made.V2 = V.data();
      made.ldv = below;
    } else {
      V.assign(H.V1, H.V1 + H.width * H.width);
      if (H.width > 1) V[1 + wanted_.row % (H.width - 1)] *= static_cast<S>(wanted_.factor);
      made.V1 = V.data();
    }
    return made;
  }

  const kernels<S>& inner_;
  const strike wanted_;
  mutable std::array<std::atomic<int>, 7> calls_{};
};

// The host engine, every call handed on. Tests derive from it to replace some of them.
template <class S>
class forwarding_engine : public engine<S> {
 public:
  explicit forwarding_engine(const context& run) : inner_(host::make_engine<S>(run)) {}
  matrix_view<const S> read(const matrix_view<const S>& operand) override { return operand; }
  std::span<const S> read(std::span<const S> operand) override { return operand; }
  matrix_view<S> write(const matrix_view<S>& operand) override { return operand; }
  std::span<S> write(std::span<S> operand) override { return operand; }
  void commit() override {}
  bool works_on(const matrix_view<const S>& v) const override { return inner_->works_on(v); }
  std::shared_ptr<S> allocate(index elements) override { return inner_->allocate(elements); }
  void copy(const matrix_view<const S>& from, const matrix_view<S>& to) override { inner_->copy(from, to); }
  void copy_scaled(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns) override {
    inner_->copy_scaled(from, to, rows, columns);
  }
  void exponents(const matrix_view<const S>& X, bool upper, const int* rows, int* columns) override {
    inner_->exponents(X, upper, rows, columns);
  }
  index panel_width(index steps) const override { return inner_->panel_width(steps); }
  std::unique_ptr<factorizer<S>> make_factorizer(const layout& shape, const matrix_view<S>& A, S* tau,
                                                 const matrix_view<const S>& source) override {
    return inner_->make_factorizer(shape, A, tau, source);
  }
  std::unique_ptr<applier<S>> make_applier(const matrix_view<const S>& V, const S* tau) override { return inner_->make_applier(V, tau); }
  void solve(bool transposed, const matrix_view<const S>& U, const matrix_view<const S>& B, const matrix_view<S>& X, index width,
             solve_sums* seen) override {
    inner_->solve(transposed, U, B, X, width, seen);
  }
  index zero_on_diagonal(const matrix_view<const S>& R) override { return inner_->zero_on_diagonal(R); }

 protected:
  std::unique_ptr<engine<S>> inner_;
};

// The host engine over other kernels.
template <class S>
class engine_over final : public forwarding_engine<S> {
 public:
  engine_over(const context& run, const kernels<S>& arithmetic) : forwarding_engine<S>(run), run_(run), kernels_(arithmetic) {}
  std::unique_ptr<factorizer<S>> make_factorizer(const layout& shape, const matrix_view<S>& A, S* tau,
                                                 const matrix_view<const S>& source) override {
    return std::make_unique<host::blocked_factorizer<S>>(run_, kernels_, shape, A, tau, source);
  }
  std::unique_ptr<applier<S>> make_applier(const matrix_view<const S>& V, const S* tau) override {
    return std::make_unique<host::panel_applier<S>>(run_, kernels_, this->panel_width(V.columns), V, tau);
  }

 private:
  const context& run_;
  const kernels<S>& kernels_;
};

// One call with such kernels: made(run, engine) does it.
template <class S, class Call>
report struck_call(backend which, const typename struck_kernels<S>::strike& wanted, typename struck_kernels<S>::counts* calls,
                   Call&& made) {
  execution how{.backend = which, .threads = 1, .throw_on_uncorrectable = false};
  inject::active_injector injector(how.faults, "qr");
  run::recorder seen("qr", which, k_block_checksum, how, injector);
  const context run{seen, injector, how, which, 1};
  const struck_kernels<S> arithmetic(which == backend::reference ? reference_kernels<S>() : cpu_kernels<S>(), wanted);
  engine_over<S> on(run, arithmetic);
  made(run, on);
  if (calls != nullptr) *calls = arithmetic.seen();
  return seen.finish();
}

template <class S>
report struck_factorization(backend which, const typename struck_kernels<S>::strike& wanted, const dense<S>& A, dense<S>& F,
                            std::vector<S>& tau, typename struck_kernels<S>::counts* calls = nullptr) {
  F = A;
  tau.assign(static_cast<std::size_t>(std::min(A.rows(), A.columns())), S(0));
  return struck_call<S>(which, wanted, calls, [&](const context& run, engine<S>& on) {
    factorization<S>(run, on, k_block_checksum, F.view(), tau.data(), {}).run();
  });
}

// Wrong elements of V, of each size and in each product. Columns that are alike get errors that are alike: with smooth weights these look
// like one error elsewhere.
TYPED_TEST(qr, a_wrong_element_of_v_in_a_product_of_many_columns_is_repaired) {
  using T = typename TestFixture::T;
  using kernel = struck_kernels<T>;
  const index m = 150, n = 90;
  for (const char* kind : {"normal", "nearly equal", "low rank"}) {
    const dense<T> A = matrix_of_kind<T>(kind, m, n, 3);
    dense<T> clean, F;
    std::vector<T> tau;
    typename kernel::counts calls;
    ASSERT_EQ(struck_factorization<T>(this->which, {}, A, clean, tau, &calls).verdict, verdict::clean);
    const ratios good = ratios_of<T>(A, clean, tau);
    int repaired = 0;
    for (const auto what : {kernel::operation::product, kernel::operation::update}) {
      const int count = what == kernel::operation::product ? calls.product : calls.update;
      ASSERT_GT(count, 0);
      for (int c = 0; c < 12; ++c) {
        for (const double factor : {-1.0, 1.25, 0.0, 1e6}) {
          const typename kernel::strike wanted{what, c * 7 % count, 31 * c + 5, 3 * c, factor};
          const report seen = struck_factorization<T>(this->which, wanted, A, F, tau);
          ASSERT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
          const ratios made = ratios_of<T>(A, F, tau);
          EXPECT_LT(made.residual, good.residual + 10) << kind << " " << c << " " << factor << to_json(seen);
          EXPECT_LT(made.orthogonality, good.orthogonality + 10) << kind << " " << c << " " << factor << to_json(seen);
          repaired += seen.verdict != verdict::clean;
        }
      }
    }
    EXPECT_GT(repaired, 20) << kind;
  }
}

TYPED_TEST(qr, a_wrong_element_of_v_while_q_is_applied_is_repaired) {
  using T = typename TestFixture::T;
  using kernel = struck_kernels<T>;
  const index m = 120, n = 60, k = 40;
  const factored<T> made = factor_in_place<T>(random_matrix<T>(m, n, 3), this->how());
  const dense<T> C = random_matrix<T>(m, k, 4);
  for (const bool transposed : {false, true}) {
    dense<T> clean(m, k, order::column_major), X(m, k, order::column_major);
    typename kernel::counts calls;
    const auto apply = [&](dense<T>& to) {
      return [&](const context& run, engine<T>& on) {
        const orthogonal_factor<T> Q(run, on, made.F.view(), made.tau.data());
        Q.apply(transposed, {C.view()}, to.view());
      };
    };
    ASSERT_EQ(struck_call<T>(this->which, {}, &calls, apply(clean)).verdict, verdict::clean);
    int repaired = 0;
    for (const auto what : {kernel::operation::product, kernel::operation::update}) {
      const int count = what == kernel::operation::product ? calls.product : calls.update;
      for (int c = 0; c < 24; ++c) {
        for (const double factor : {-1.0, 1.25, 0.0, 1e6}) {
          const report seen = struck_call<T>(this->which, {what, c % count, 31 * c + 5, 3 * c, factor}, nullptr, apply(X));
          ASSERT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
          EXPECT_LT(change(X, clean), 1000) << c << " " << factor << to_json(seen);
          repaired += seen.verdict != verdict::clean;
        }
      }
    }
    EXPECT_GT(repaired, 100);
    // An element of T that is wrong by a little, which one random vector for each panel does not always see.
    for (int c = 0; c < 400; ++c) {
      const double off = 4e4 * abft::unit_roundoff<T> * (c % 2 == 0 ? 1 : -1);
      const report seen = struck_call<T>(this->which, {kernel::operation::triangular_factor, c % 2, c * 7, c / 2, off}, nullptr, apply(X));
      ASSERT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
      EXPECT_LT(change(X, clean), 1000) << c << to_json(seen);
    }
  }
}

// An element that is read wrong once, for a checksum or for a check: good data stay good.
TYPED_TEST(qr, what_is_read_wrong_once_for_a_checksum_spoils_nothing) {
  using T = typename TestFixture::T;
  using kernel = struck_kernels<T>;
  const dense<T> A = random_matrix<T>(70, 40, 3);
  dense<T> clean, F;
  std::vector<T> tau;
  typename kernel::counts calls;
  ASSERT_EQ(struck_factorization<T>(this->which, {}, A, clean, tau, &calls).verdict, verdict::clean);
  for (int c = 0; c < calls.subtract; ++c) {
    for (const double factor : {-1.0, 1.25, 1e6}) {
      const report seen = struck_factorization<T>(this->which, {kernel::operation::subtract, c, 17 * c + 41, 5 * c + 3, factor}, A, F, tau);
      ASSERT_NE(seen.verdict, verdict::uncorrectable) << c << to_json(seen);
      const ratios made = ratios_of<T>(A, F, tau);
      EXPECT_LT(made.residual, 10) << c << " " << factor << to_json(seen);
      EXPECT_LT(made.orthogonality, 10) << c << " " << factor << to_json(seen);
    }
  }
}

// All sums of a checkpoint come from one reading of V. An element that was read wrong for them agrees with itself, and τ‖v‖² = 2 does not
// see its sign: V must not be repaired to it.
TYPED_TEST(qr, a_checkpoint_that_was_read_wrong_spoils_nothing) {
  using T = typename TestFixture::T;
  using kernel = struck_kernels<T>;
  const dense<T> A = random_matrix<T>(70, 40, 3);
  dense<T> clean, F;
  std::vector<T> tau, clean_tau;
  typename kernel::counts calls;
  ASSERT_EQ(struck_factorization<T>(this->which, {}, A, clean, clean_tau, &calls).verdict, verdict::clean);
  ASSERT_GT(calls.moments, 4);
  int seen_wrong = 0;
  for (int c = 0; c < calls.moments; ++c) {
    for (index row = 0; row < 60; row += 7) {
      for (const double factor : {-1.0, 1 + 1e-4, 1.25, 1e6}) {
        const report seen = struck_factorization<T>(this->which, {kernel::operation::moments, c, row, 5 * c + 3, factor}, A, F, tau);
        ASSERT_NE(seen.verdict, verdict::uncorrectable) << c << to_json(seen);
        EXPECT_EQ(change(F, clean), 0) << c << " " << row << " " << factor << to_json(seen);
        EXPECT_EQ(tau, clean_tau) << c << " " << row << " " << factor;
        seen_wrong += seen.verdict != verdict::clean;
      }
    }
  }
  EXPECT_GT(seen_wrong, 50);
}

// The scan decides scales, weights and thresholds.
TYPED_TEST(qr, a_wrong_norm_of_a_column_spoils_nothing) {
  using T = typename TestFixture::T;
  using kernel = struck_kernels<T>;
  for (const bool extreme : {false, true}) {
    const dense<T> A = matrix_of_kind<T>(extreme ? "extreme columns" : "normal", 40, 24, 3);
    dense<T> clean, F;
    std::vector<T> tau;
    typename kernel::counts calls;
    ASSERT_EQ(struck_factorization<T>(this->which, {}, A, clean, tau, &calls).verdict, verdict::clean);
    for (int c = 0; c < calls.squares; ++c) {
      for (const double factor : {0x1p600, 0x1p300, 0x1p200, 4.0, 0.25, 0x1p-200, 0x1p-600, 0.0, std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN()}) {
        const report seen = struck_factorization<T>(this->which, {kernel::operation::squares, c, 0, 0, factor}, A, F, tau);
        ASSERT_NE(seen.verdict, verdict::uncorrectable) << c << " " << factor << to_json(seen);
        const ratios made = ratios_of<T>(A, F, tau);
        EXPECT_LT(made.residual, 10) << extreme << " " << c << " " << factor << to_json(seen);
        EXPECT_LT(made.orthogonality, 10) << extreme << " " << c << " " << factor << to_json(seen);
      }
    }
  }
}

// A wrong element of VᵀC changes one column in all its rows, each by a little. Its norm is what counts.
TYPED_TEST(qr, a_fault_above_the_floor_is_seen_although_it_spreads) {
  using T = typename TestFixture::T;
  using kernel = struck_kernels<T>;
  const index m = 500, n = 40;
  const dense<T> A = random_matrix<T>(m, n, 3);
  dense<T> clean, F;
  std::vector<T> tau;
  typename kernel::counts calls;
  ASSERT_EQ(struck_factorization<T>(this->which, {}, A, clean, tau, &calls).verdict, verdict::clean);
  const index width = std::min<index>((n + 1) / 2, this->which == backend::reference ? 16 : 32);  // of a block
  // An element of VᵀC is about as large as 1/√m of its column. The floor: docs/protection.md.
  const double floor =
      (12 + 2 * std::log2(static_cast<double>(m))) * 2 * std::sqrt(2.0 * static_cast<double>(width)) * abft::unit_roundoff<T>;
  int seen = 0, all = 0;
  for (int c = 0; c < calls.product; ++c) {
    for (index column = 0; column < 10; ++column) {
      const typename kernel::strike wanted{
          kernel::operation::product, c, 3 * column, column, 1 + floor * std::sqrt(static_cast<double>(m)) * 4, true};
      const report made = struck_factorization<T>(this->which, wanted, A, F, tau);
      ASSERT_NE(made.verdict, verdict::uncorrectable);
      const double moved = change(F, clean) * abft::unit_roundoff<T>;
      if (made.verdict == verdict::clean) {
        EXPECT_LT(moved, floor) << c << " " << column;
      } else {
        ++seen;
      }
      ++all;
    }
  }
  EXPECT_GT(seen, all / 3);
}
#endif

// The checks of a column do not depend on the others.
TYPED_TEST(qr, a_column_of_nan_does_not_switch_off_the_checks_of_others) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(60, 30, 3);
  const factored<T> made = factor_in_place<T>(A, this->how());
  dense<T> C0 = random_matrix<T>(60, 20, 4);
  for (index i = 0; i < 60; ++i) C0(i, 2) = std::numeric_limits<T>::quiet_NaN();
  C0(3, 17) = std::numeric_limits<T>::infinity();
  dense<T> clean = copy_of<T>(C0);
  const report first = ormqr(side::left, transpose::yes, made.F.view(), made.tau, clean.view(), this->how());
  EXPECT_EQ(first.verdict, verdict::clean);
  EXPECT_EQ(first.detected, 0u);
  int repaired = 0;
  for (const inject::site where : {inject::site::qr_product, inject::site::qr_q}) {
    for (std::uint64_t seed = 0; seed < this->rounds(40); ++seed) {
      const inject::plan faults({fault(where, inject::model::random_value, seed)});
      execution how = this->how();
      how.faults = &faults;
      dense<T> C = copy_of<T>(C0);
      const report seen = ormqr(side::left, transpose::yes, made.F.view(), made.tau, C.view(), how);
      repaired += seen.verdict == verdict::recomputed;
      for (index j = 0; j < 20; ++j) {
        for (index i = 0; i < 60; ++i) {
          if (std::isfinite(clean(i, j))) {
            ASSERT_NEAR(C(i, j), clean(i, j), 1000 * abft::unit_roundoff<T>) << j << " " << seed << to_json(seen);
          }
        }
      }
    }
  }
  EXPECT_GE(repaired, static_cast<int>(2 * this->rounds(40)) * 7 / 8);
}

TYPED_TEST(qr, constant_columns_are_factored_as_well_as_by_lapack) {
  using T = typename TestFixture::T;
  if (this->which != backend::cpu) return;  // plain sums, or those of the device's BLAS
  for (const char* kind : {"constant", "low rank"}) {
    for (const auto& [m, n] : std::vector<std::pair<index, index>>{{300, 100}, {1000, 100}, {6000, 24}, {20000, 12}}) {
      const dense<T> A = matrix_of_kind<T>(kind, m, n, 5);
      const factored<T> made = factor_in_place<T>(A, this->how());
      EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
      dense<T> F = copy_of<T>(A);
      std::vector<T> tau(made.tau.size());
      lapack(F, tau);
      const ratios ours = ratios_of<T>(A, made.F, made.tau), theirs = ratios_of<T>(A, F, tau);
      const double size = static_cast<double>(m);  // ratios are in units of m u; within these of LAPACK nothing is to be told
      EXPECT_LT(ours.residual * size, 2 * theirs.residual * size + 32) << kind << " " << m << " × " << n;
      EXPECT_LT(ours.orthogonality * size, 3 * theirs.orthogonality * size + 16) << kind << " " << m << " × " << n;
    }
  }
}

TYPED_TEST(qr, very_wide_matrices_raise_no_alarm) {
  using T = typename TestFixture::T;
  for (const char* scheme : k_schemes) {
    for (auto [m, n] : std::vector<std::pair<index, index>>{{1, 60000}, {1, 5000}, {2, 30000}, {7, 20000}}) {
      if (this->which == backend::cuda) n /= test::sampled() ? 100 : 20;
      for (const char* kind : {"ones", "constant", "normal"}) {
        dense<T> A = matrix_of_kind<T>(kind, m, n, 5);
        if (std::string(kind) == "ones") std::fill_n(A.data(), A.size(), T(1));
        const factored<T> made = factor_in_place<T>(A, this->how(scheme));
        EXPECT_EQ(made.report.verdict, verdict::clean) << kind << " " << m << " × " << n << " " << scheme << to_json(made.report);
        EXPECT_EQ(made.report.detected, 0u);
      }
    }
  }
}

// LAPACK scales A and B as a whole. Each case has a solution that is known.
TYPED_TEST(qr, least_squares_at_the_ends_of_the_range) {
  using T = typename TestFixture::T;
  constexpr bool single = sizeof(T) == 4;
  const auto power = [](double e) { return static_cast<T>(std::pow(10.0, single ? e / 8 : e)); };
  const auto expect = [&](const dense<T>& A0, const std::vector<double>& x, const dense<T>& B0, const std::string& name) {
    for (const char* scheme : k_schemes) {
      for (const protection level : {protection::off, protection::correct}) {
        execution how = this->how(scheme);
        how.protection = level;
        how.throw_on_uncorrectable = false;
        dense<T> A = A0, B = B0;
        const report seen = gels(A.view(), B.view(), how);
        EXPECT_EQ(seen.verdict, verdict::clean) << name << to_json(seen);
        EXPECT_EQ(seen.detected, 0u) << name << to_json(seen);
        for (std::size_t i = 0; i < x.size(); ++i)
          EXPECT_NEAR(static_cast<double>(B(static_cast<index>(i), 0)) / x[i], 1, 300 * abft::unit_roundoff<T>) << name << " " << i;
        // The factors are in A's units: they may be Inf, or subnormal and inaccurate.
        if (A0.rows() < A0.columns() || !(std::abs(A0(0, 0)) >= std::numeric_limits<T>::min() / abft::unit_roundoff<T>)) continue;
        const auto made = factor(matrix_view<const T>(A0.view()), how);
        const matrix<T> again = made.solve(B0.view(), how);
        for (std::size_t i = 0; i < x.size() && std::isfinite(made.storage(0, 0)); ++i)
          EXPECT_NEAR(static_cast<double>(again(static_cast<index>(i), 0)) / x[i], 1, 300 * abft::unit_roundoff<T>) << name << " " << i;
      }
    }
  };
  const auto of = [](index m, index n, std::initializer_list<T> rows) {
    dense<T> made(m, n, order::column_major);
    index at = 0;
    for (const T each : rows) {
      made(at / n, at % n) = each;
      ++at;
    }
    return made;
  };
  {
    const T big = power(200), small = power(-120);
    expect(of(2, 2, {big, 1, 0, small}), {(1 - 1 / static_cast<double>(small)) / static_cast<double>(big), 1 / static_cast<double>(small)},
           of(2, 1, {1, 1}), "graded triangle");
    expect(of(2, 2, {power(60), 0, 0, power(-150)}), {1 / static_cast<double>(power(60)), 1 / static_cast<double>(power(-150))},
           of(2, 1, {1, 1}), "graded diagonal");
  }
  // A x = B for the x of ones, with A scaled to either end; and B with it, or alone.
  const index m = 12, n = 5;
  std::mt19937_64 bits(3);
  std::uniform_int_distribution<int> digits(-8, 8);
  dense<T> base(m, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) base(i, j) = static_cast<T>(digits(bits) + (i == j ? 40 : 0));
  }
  const int top = std::numeric_limits<T>::max_exponent, bottom = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  for (const int scale : {0, top - 8, top - 7, bottom + 12, bottom + 40, -top / 2, top / 2}) {
    for (const bool under : {false, true}) {
      const index rows = under ? n : m, columns = under ? m : n;
      dense<T> A(rows, columns, order::column_major), B(m, 1, order::column_major);
      for (index i = 0; i < rows; ++i) {
        for (index j = 0; j < columns; ++j) A(i, j) = std::ldexp(under ? base(j, i) : base(i, j), scale);
      }
      std::vector<double> x(static_cast<std::size_t>(columns), 1);
      if (under) {
        // The solution of least norm is in the range of Aᵀ: x = Aᵀ 1 / 2^scale.
        for (index j = 0; j < m; ++j) {
          x[static_cast<std::size_t>(j)] = 0;
          for (index i = 0; i < n; ++i) x[static_cast<std::size_t>(j)] += static_cast<double>(base(j, i));
        }
        x[static_cast<std::size_t>(m - 1)] += 0;
      }
      for (index i = 0; i < rows; ++i) {
        double sum = 0;
        for (index j = 0; j < columns; ++j) sum += static_cast<double>(under ? base(j, i) : base(i, j)) * x[static_cast<std::size_t>(j)];
        B(i, 0) = static_cast<T>(std::ldexp(sum, under ? scale - 8 : scale));
      }
      if (under) {
        for (double& each : x) each = std::ldexp(each, -8);
      }
      std::erase_if(x, [](double each) { return each == 0; });
      if (x.size() != static_cast<std::size_t>(columns)) continue;
      expect(A, x, B, fmt::format("2^{} {}", scale, under ? "under" : "over"));
    }
  }
}

TYPED_TEST(qr, columns_that_become_subnormal_are_factored) {
  using T = typename TestFixture::T;
  const T small = std::numeric_limits<T>::min() / 1024;
  for (const char* scheme : k_schemes) {
    for (const protection level : {protection::off, protection::correct}) {
      for (const index m : {3, 8, 40, 300}) {
        for (const index n : {2, 5, 24}) {
          // Columns that differ below their first rows by subnormal numbers only, which stay when the first rows are eliminated.
          dense<T> A(m, n, order::column_major);
          for (index j = 0; j < n; ++j) {
            for (index i = 0; i < m; ++i) A(i, j) = i == 0 ? T(1) : static_cast<T>(small * static_cast<T>(1 + (i * 7 + j * 13) % 11));
          }
          execution how = this->how(scheme);
          how.protection = level;
          const factored<T> made = factor_in_place<T>(A, how);
          EXPECT_EQ(made.report.verdict, verdict::clean) << m << " × " << n << to_json(made.report);
          const ratios seen = ratios_of<T>(A, made.F, made.tau);
          EXPECT_LT(seen.residual, 10) << m << " × " << n;
          EXPECT_LT(seen.orthogonality, 10) << m << " × " << n;
        }
      }
    }
  }
}

#if !defined(BALLAST_TEST_QR_ON_CUDA)  // over the host backends
// ---------------------------------------------------------------------------------------------------------------- the contract

// A factorizer that does everything as late as the contract allows: when it is waited for. `ahead` runs before the others are updated.
template <class S>
class late_factorizer final : public factorizer<S> {
 public:
  explicit late_factorizer(std::unique_ptr<factorizer<S>> inner) : inner_(std::move(inner)) {}
  ~late_factorizer() override { EXPECT_TRUE(todo_.empty()) << "the driver waits for everything"; }

  void wait() override {
    const auto todo = std::exchange(todo_, {});
    for (const auto& each : todo) each();
    inner_->wait();
  }
  void scan(column_size* sizes) override {
    later([=, this] { inner_->scan(sizes); });
  }
  void scan_r(column_size* sizes) override {
    later([=, this] { inner_->scan_r(sizes); });
  }
  void scale(const int* shifts) override { inner_->scale(shifts); }
  void unscale() override {
    later([=, this] { inner_->unscale(); });
  }
  void encode(const double* weights, bool keep, double* squares) override { inner_->encode(weights, keep, squares); }
  void restart() override {
    later([=, this] { inner_->restart(); });
  }
  void give_back() override {
    later([=, this] { inner_->give_back(); });
  }
  void begin_pass() override {
    later([=, this] { inner_->begin_pass(); });
  }
  void begin_panel(index k) override {
    later([=, this] { inner_->begin_panel(k); });
  }
  void factor_panel(index k, bool finite) override {
    later([=, this] { inner_->factor_panel(k, finite); });
  }
  void measure_panel(index k, panel_sums* seen) override {
    later([=, this] { inner_->measure_panel(k, seen); });
  }
  void measure_reflectors(index k, panel_sums* seen) override {
    later([=, this] { inner_->measure_reflectors(k, seen); });
  }
  void accept_panel(index k) override {
    later([=, this] { inner_->accept_panel(k); });
  }
  void end_panel(index k) override {
    later([=, this] { inner_->end_panel(k); });
  }
  std::uint64_t hash_block(index b) override {
    wait();
    return inner_->hash_block(b);
  }
  void update(index k, index b) override {
    later([=, this] { inner_->update(k, b); });
  }
  void advance(index k, index first, core::function_ref<void()> ahead) override {
    ahead();
    later([=, this] { inner_->advance(k, first, [] {}); });
  }
  void end_pass() override {
    later([=, this] { inner_->end_pass(); });
  }
  void measure_block(index b, bool finished, double* residual) override {
    later([=, this] { inner_->measure_block(b, finished, residual); });
  }
  index correct_block(index b, bool finished, double threshold, const inject::place& where) override {
    wait();
    return inner_->correct_block(b, finished, threshold, where);
  }
  void measure_independent(index b, bool finished, double* residual) override {
    later([=, this] { inner_->measure_independent(b, finished, residual); });
  }
  void reload(index b) override {
    later([=, this] { inner_->reload(b); });
  }
  void measure_all(block_sums* seen) override {
    later([=, this] { inner_->measure_all(seen); });
  }
  bool repair_v(index k, index* column) override {
    wait();
    return inner_->repair_v(k, column);
  }
  void measure_certificate(double* residual) override {
    later([=, this] { inner_->measure_certificate(residual); });
  }
  void measure_matrix(matrix_sums* seen) override {
    later([=, this] { inner_->measure_matrix(seen); });
  }
  void recover_column(index j) override {
    later([=, this] { inner_->recover_column(j); });
  }

 private:
  void later(std::function<void()> operation) { todo_.push_back(std::move(operation)); }
  std::unique_ptr<factorizer<S>> inner_;
  std::vector<std::function<void()>> todo_;
};

// The host engine with late factorizers.
template <class S>
class late_engine final : public forwarding_engine<S> {
 public:
  using forwarding_engine<S>::forwarding_engine;
  std::unique_ptr<factorizer<S>> make_factorizer(const layout& shape, const matrix_view<S>& A, S* tau,
                                                 const matrix_view<const S>& source) override {
    return std::make_unique<late_factorizer<S>>(this->inner_->make_factorizer(shape, A, tau, source));
  }
};

// A device may lag behind the driver as far as the contract lets it: results, repairs and reports are the same.
TYPED_TEST(qr, operations_may_be_done_as_late_as_they_are_waited_for) {
  using T = typename TestFixture::T;
  const auto sites_of_a_factorization = [] {
    std::vector<inject::site> all = sites();
    std::erase(all, inject::site::qr_q);
    std::erase(all, inject::site::event_log);
    return all;
  }();
  for (const char* scheme : k_schemes) {
    for (const auto& [m, n] : std::vector<std::pair<index, index>>{{40, 24}, {20, 33}}) {
      for (const double scale : {1.0, 0x1p-60}) {
        dense<T> A = random_matrix<T>(m, n, 21);
        for (index i = 0; i < m; ++i) A(i, 3) *= static_cast<T>(scale);
        for (const inject::site where : sites_of_a_factorization) {
          for (const inject::model what : {inject::model::random_value, inject::model::nan, inject::model::stuck_at}) {
            const inject::plan faults({fault(where, what, 3)});
            execution how = this->how(scheme);
            how.faults = &faults;
            how.throw_on_uncorrectable = false;
            how.threads = 1;
            const factored<T> expected = factor_in_place<T>(A, how);

            dense<T> F = copy_of<T>(A);
            std::vector<T> tau(expected.tau.size());
            inject::active_injector injector(how.faults, "qr");
            run::recorder seen("qr", this->which, scheme, how, injector);
            const context run{seen, injector, how, this->which, 1};
            late_engine<T> on(run);
            factorization<T>(run, on, scheme, F.view(), tau.data(), {}).run();
            const report made = seen.finish();
            const std::string name = fmt::format("{} {} {}", scheme, inject::row_of(where).name, scale);
            EXPECT_EQ(made.verdict, expected.report.verdict) << name;
            EXPECT_EQ(made.checks, expected.report.checks) << name;
            EXPECT_EQ(made.detected, expected.report.detected) << name;
            EXPECT_EQ(tau, expected.tau) << name;
            EXPECT_EQ(std::memcmp(F.data(), expected.F.data(), static_cast<std::size_t>(m * n) * sizeof(T)), 0) << name;
          }
        }
      }
    }
  }
}
#endif

}  // namespace
}  // namespace ballast::qr
