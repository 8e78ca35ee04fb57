// QR on the host's backends: operands in the memory of a device that the host sees only through copies, operands that kernels read wrong,
// the check of a triangular solve, operations done as late as the contract allows, and panels that are cut for all threads.
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

#include "cuda/device/device.hpp"
#include "inject/injector.hpp"
#include "inject/sites.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/contract.hpp"
#include "qr/driver/application.hpp"
#include "qr/driver/factorization.hpp"
#include "qr/host/applier.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/host/triangle.hpp"
#include "qr/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/qr_subject.hpp"
#include "support/reals.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_host : public qr<Setting> {};
TYPED_TEST_SUITE(qr_host, settings, names);

// A panel for which all threads wait is cut into small pieces. It is the reference's panel to rounding, with the same bits for any number
// of threads; others of its shape are made in one piece.
template <class T>
class panels_alone : public testing::Test {};
TYPED_TEST_SUITE(panels_alone, test::reals, test::real_names);
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
  const auto device = std::make_shared<test::counted_device>(std::make_shared<simt::emulated_device>());
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

// ------------------------------------------------------------------------------------------------ faults in what kernels read

// Kernels in one call of which an operand is read wrong: what a struck register does, that serves several columns or several sums.
template <class S>
class struck_kernels final : public kernels<S> {
 public:
  enum class operation { none, product, update, subtract, squares, triangular_factor, moments };
  struct strike {
    operation what = operation::none;
    int call = 0;   // number of the call that is struck
    index row = 0;  // row of V, X, or of the product, modulo its size
    index column = 0;
    double factor = 1;       // multiplies the element
    bool of_result = false;  // strikes the product's result in one column instead
  };
  struct counts {
    int product = 0, update = 0, subtract = 0, squares = 0, triangular_factor = 0, moments = 0;
  };

  struck_kernels(const kernels<S>& inner, const strike& wanted) : inner_(inner), wanted_(wanted) {}
  counts seen() const { return {calls_[1], calls_[2], calls_[3], calls_[4], calls_[5], calls_[6]}; }

  void factor_panel(index m, index w, S* A, index lda, S* tau, S* T, int threads, bool finite, bool alone) const override {
    inner_.factor_panel(m, w, A, lda, tau, T, threads, finite, alone);
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
  index panel_width(index rows, index steps) const override { return inner_->panel_width(rows, steps); }
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
    return std::make_unique<host::panel_applier<S>>(run_, kernels_, this->panel_width(V.rows, V.columns), V, tau);
  }

 private:
  const context& run_;
  const kernels<S>& kernels_;
};

// One call with such kernels: made(run, engine) does it.
template <class S, class Call>
report struck_call(backend which, const typename struck_kernels<S>::strike& wanted, typename struck_kernels<S>::counts* calls,
                   Call&& made) {
  run::settings how{.backend = which, .threads = 1, .throw_on_uncorrectable = false};
  inject::active_injector injector(how.faults, site::table());
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
TYPED_TEST(qr_host, a_wrong_element_of_v_in_a_product_of_many_columns_is_repaired) {
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

TYPED_TEST(qr_host, a_wrong_element_of_v_while_q_is_applied_is_repaired) {
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
        orthogonal_factor<T> Q(run, on, made.F.view(), made.tau.data());
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

TYPED_TEST(qr_host, t_is_formed_once_for_all_that_q_is_applied_to) {
  using T = typename TestFixture::T;
  const index m = 120, n = 60, k = 10;
  const factored<T> made = factor_in_place<T>(random_matrix<T>(m, n, 3), this->how());
  const dense<T> C = random_matrix<T>(m, k, 4), D = random_matrix<T>(m, k, 5);
  dense<T> first(m, k, order::column_major), second(m, k, order::column_major), alone(m, k, order::column_major);
  typename struck_kernels<T>::counts calls, of_one;
  const auto apply = [&](bool twice, dense<T>& to) {
    return [&, twice](const context& run, engine<T>& on) {
      orthogonal_factor<T> Q(run, on, made.F.view(), made.tau.data());
      if (twice) Q.apply(true, {C.view()}, first.view());
      Q.apply(false, {D.view()}, to.view());
    };
  };
  ASSERT_EQ(struck_call<T>(this->which, {}, &of_one, apply(false, alone)).verdict, verdict::clean);
  ASSERT_EQ(struck_call<T>(this->which, {}, &calls, apply(true, second)).verdict, verdict::clean);
  EXPECT_GT(of_one.triangular_factor, 0);
  EXPECT_EQ(calls.triangular_factor, of_one.triangular_factor);
  EXPECT_EQ(change(second, alone), 0);
}

// An element that is read wrong once, for a checksum or for a check: good data stay good.
TYPED_TEST(qr_host, what_is_read_wrong_once_for_a_checksum_spoils_nothing) {
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
TYPED_TEST(qr_host, a_checkpoint_that_was_read_wrong_spoils_nothing) {
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
TYPED_TEST(qr_host, a_wrong_norm_of_a_column_spoils_nothing) {
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
TYPED_TEST(qr_host, a_fault_above_the_floor_is_seen_although_it_spreads) {
  using T = typename TestFixture::T;
  using kernel = struck_kernels<T>;
  const index m = 500, n = 40;
  const dense<T> A = random_matrix<T>(m, n, 3);
  dense<T> clean, F;
  std::vector<T> tau;
  typename kernel::counts calls;
  ASSERT_EQ(struck_factorization<T>(this->which, {}, A, clean, tau, &calls).verdict, verdict::clean);
  const index width = std::min<index>((n + 1) / 2, this->which == backend::reference ? 16 : 32);  // width of a block
  // An element of VᵀC is about as large as 1/√m of its column. The floor: docs/protection.md.
  const double floor = (12 + 2 * std::log2(static_cast<double>(m)) + std::sqrt(static_cast<double>(std::min(m, n))) / 8) * 2 *
                       std::sqrt(2.0 * static_cast<double>(width)) * abft::unit_roundoff<T>;
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
