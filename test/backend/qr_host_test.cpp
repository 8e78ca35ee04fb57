// QR on the host's backends: operands in the memory of a device that the host sees only through copies, the check of a triangular solve,
// operations done as late as the contract allows, and panels that are cut for all threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "backend/qr_host_engine.hpp"
#include "cuda/device/device.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/contract.hpp"
#include "qr/driver/factorization.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/qr_subject.hpp"
#include "support/reals.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

TYPED_SUITE(qr_host, settings, test::setting_names);

// A panel for which all threads wait is cut into small pieces. It is the reference's panel to rounding, with the same bits for any number
// of threads; others of its shape are made in one piece.
template <class T>
class panels_alone : public testing::Test {};
TYPED_SUITE(panels_alone, test::reals, test::number_names);
TYPED_TEST(panels_alone, are_the_reference_panel) {
  using T = TypeParam;
  constexpr index w = sizeof(T) == 4 ? 128 : 64, m = 4103;
  struct panel {
    std::vector<T> A, tau = std::vector<T>(w), T_ = std::vector<T>(w * w);
  };
  std::mt19937_64 random(8);
  std::normal_distribution<double> normal;
  std::vector<T> A(m * w);
  for (T& each : A) each = static_cast<T>(normal(random));
  const auto factored = [&](const kernels<T>& by, int threads, bool alone) {
    panel made{A};
    by.factor_panel(m, w, made.A.data(), m, made.tau.data(), made.T_.data(), threads, true, alone);
    return made;
  };
  const panel expected = factored(reference_kernels<T>(), 1, false), apart = factored(cpu_kernels<T>(), 3, false);
  const panel one = factored(cpu_kernels<T>(), 1, true);
  for (const int threads : {3, 16}) {
    const panel seen = factored(cpu_kernels<T>(), threads, true);
    EXPECT_EQ(seen.A, one.A);
    EXPECT_EQ(seen.tau, one.tau);
    EXPECT_EQ(seen.T_, one.T_);
    EXPECT_NE(seen.A, apart.A) << "it was not cut";
    // Columns have norms of √m, coefficients of V and T are of size 1.
    const double u = std::numeric_limits<T>::epsilon() / 2, limit = 10 * u * std::sqrt(double{m}) * w;
    double worst = 0;
    for (std::size_t e = 0; e < seen.A.size(); ++e) worst = std::max(worst, std::abs(double{seen.A[e]} - double{expected.A[e]}));
    for (std::size_t e = 0; e < seen.T_.size(); ++e) worst = std::max(worst, std::abs(double{seen.T_[e]} - double{expected.T_[e]}));
    EXPECT_LT(worst, limit);
  }
}

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

TYPED_TEST(qr_host, takes_operands_in_device_memory) {
  using T = typename TestFixture::T;
  const auto device = std::make_shared<test::counting_device>(std::make_shared<simt::emulated_device>());
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

TYPED_TEST(qr_host, least_squares_of_interleaved_blocks_in_device_memory) {
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

TYPED_TEST(qr_host, an_uncorrectable_fault_leaves_device_memory_alone) {
  using T = typename TestFixture::T;
  const auto device = std::make_shared<test::counting_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard current(device);
  const dense<T> A = random_matrix<T>(40, 24, 21);
  const std::vector<T> start(A.data(), A.data() + A.size());
  const on_device<T> F(device, start), tau(device, std::vector<T>(24));
  const inject::plan faults({{.site = site::tau, .model = inject::model::stuck_at, .seed = 1}});
  run::settings how = this->how();
  how.faults = &faults;
  device->bytes_written = 0;
  EXPECT_THROW((void)geqrf(column_major(F.data(), 40, 24), std::span<T>(tau.data(), 24), how), uncorrectable_error);
  EXPECT_EQ(device->bytes_written, 0);
  EXPECT_EQ(F.values(), start);
}

// A struck element of a solution is never within the threshold, for any value and place: an infinite one makes its row's threshold
// infinite, and must not be ignored in favour of rows that it does not touch.
TYPED_TEST(qr_host, a_struck_solution_never_passes_the_residual) {
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
        return host::residual_of<T>(arithmetic, arithmetic, transposed, U.view(), X.view(), B.view());
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
  index correct_block(index b, bool finished, double threshold, const inject::position& where) override {
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

// A device may be as late as the contract permits: results, repairs and reports are the same.
TYPED_TEST(qr_host, operations_may_be_done_as_late_as_they_are_waited_for) {
  using T = typename TestFixture::T;
  const auto sites_of_a_factorization = [] {
    std::vector<inject::site> all = sites();
    std::erase(all, site::q);
    std::erase(all, inject::k_event_log);
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
            run::settings how = this->how(scheme);
            how.faults = &faults;
            how.throw_on_uncorrectable = false;
            how.threads = 1;
            const factored<T> expected = factor_in_place<T>(A, how);

            dense<T> F = copy_of<T>(A);
            std::vector<T> tau(expected.tau.size());
            inject::active_injector injector(how.faults, site::table());
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

}  // namespace
}  // namespace ballast::qr
