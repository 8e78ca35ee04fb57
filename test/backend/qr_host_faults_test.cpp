// QR on the host's backends with operands that kernels read wrong: repaired, or good data stay good.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "backend/qr_host_engine.hpp"
#include "inject/injector.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/contract.hpp"
#include "qr/driver/application.hpp"
#include "qr/driver/factorization.hpp"
#include "qr/host/applier.hpp"
#include "qr/host/factorizer.hpp"
#include "support/qr_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

TYPED_SUITE(qr_host, settings, test::setting_names);

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
  void cross_product(index m, index p, index q, const S* A, index lda, const S* B, index ldb, S* C, index ldc) const override {
    inner_.cross_product(m, p, q, A, lda, B, ldb, C, ldc);
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
  void triangular_product(bool transposed, index w, index n, const S* T, S* W) const override {
    inner_.triangular_product(transposed, w, n, T, W);
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
  void subtract_weighted(index m, index w, const S* X, index ldx, int count, const double* z, index ldz, double* y,
                         index ldy) const override {
    subtract(m, w, X, ldx, count, z, ldz, y, ldy);
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

}  // namespace
}  // namespace ballast::qr
