// The host backend of QR: memory, copies and triangular solves, over the kernels of reference/ or cpu/.
// Layer: backend (host). Implements engine<S>.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "abft/attempt.hpp"
#include "abft/seal.hpp"
#if defined(BALLAST_HAS_CPU)
#include "core/blas.hpp"
#endif
#include "core/parallel.hpp"
#include "inject/injector.hpp"
#include "qr/host/applier.hpp"
#include "qr/host/columns.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/host/kernels.hpp"
#include "qr/host/pivots.hpp"
#include "qr/host/strike.hpp"
#include "qr/host/triangle.hpp"
#include "qr/sites.hpp"
#include "run/staging.hpp"

namespace ballast::qr::host {

namespace {

template <class S>
class host_engine final : public engine<S> {
 public:
  explicit host_engine(const context& run)
      : run_(run),
        kernels_(kernels_of<S>(run)),
        wide_(kernels_of<wide_of<S>>(run)),
        of_sizes_(kernels_of<double>(run)),
        staging_(run.how.stream) {}

  matrix_view<const S> read(const matrix_view<const S>& operand) override { return staging_.read(operand); }
  std::span<const S> read(std::span<const S> operand) override { return staging_.read(operand); }
  matrix_view<S> write(const matrix_view<S>& operand) override { return staging_.write(operand); }
  std::span<S> write(std::span<S> operand) override { return staging_.write(operand); }
  void commit() override { staging_.commit(); }

  bool works_on(const matrix_view<const S>& v) const override {
    return v.row_stride == 1 && v.column_stride >= std::max<index>(v.rows, 1) && v.column_stride <= std::numeric_limits<int>::max();
  }

  std::shared_ptr<S> allocate(index elements) override {
    const auto made = std::allocate_shared<core::aligned_buffer<S>>(core::pooled_allocator<S>(), elements);
    return {made, made->data()};
  }

  void copy(const matrix_view<const S>& from, const matrix_view<S>& to) override {
    for (index j = 0; j < to.columns; ++j) {
      for (index i = 0; i < to.rows; ++i) to(i, j) = from(i, j);
    }
  }

  void copy_scaled(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns) override {
    for (index j = 0; j < to.columns; ++j) {
      for (index i = 0; i < to.rows; ++i) {
        const int e = rows[i] + columns[j];
        to(i, j) = e == 0 ? from(i, j) : scaled(from(i, j), e);
      }
    }
  }

  index copy_checked(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns,
                     bool checked) override {
    if (rows == nullptr && columns == nullptr && from.row_stride == 1 && to.row_stride == 1) return copy_columns(from, to, checked);
    const core::vector<int> none(static_cast<std::size_t>(rows == nullptr || columns == nullptr ? std::max(to.rows, to.columns) : 0), 0);
    const int* const down = rows == nullptr ? none.data() : rows;
    const int* const across = columns == nullptr ? none.data() : columns;
    copy_scaled(from, to, down, across);
    strike_stored(to);
    for (index j = 0; j < to.columns && checked; ++j) {
      bool same = true;
      for (index i = 0; i < to.rows; ++i) {
        const int e = down[i] + across[j];
        same &= same_bits<S>(to(i, j), e == 0 ? from(i, j) : scaled(from(i, j), e));
      }
      if (!same) return j;
    }
    return -1;
  }

  index conjugate_checked(const matrix_view<const S>& from, const matrix_view<S>& to, bool upper, bool checked) override {
    const auto element = [&](index i, index j) { return upper && i > j ? S(0) : conjugate(from(i, j)); };
    for (index j = 0; j < to.columns; ++j) {
      for (index i = 0; i < to.rows; ++i) to(i, j) = element(i, j);
    }
    strike_stored(to);
    for (index j = 0; j < to.columns && checked; ++j) {
      bool same = true;
      for (index i = 0; i < to.rows; ++i) same &= same_bits<S>(to(i, j), element(i, j));
      if (!same) return j;
    }
    return -1;
  }

  void exponents(const matrix_view<const S>& X, bool upper, const int* rows, int* columns) override {
    for (index j = 0; j < X.columns; ++j) {
      int most = std::numeric_limits<int>::min();
      bool odd = false;
      for (index i = 0; i < (upper ? std::min(j + 1, X.rows) : X.rows); ++i) {
        const S x = X(i, j);
        odd |= !is_finite(x);
        if (x != S(0) && !odd) most = std::max(most, exponent_of(x) + (rows != nullptr ? rows[i] : 0));
      }
      columns[j] = odd ? abft::k_odd_column : most == std::numeric_limits<int>::min() ? abft::k_zero_column : most;
    }
  }

  void column_sizes(const matrix_view<const S>& R, column_size* sizes) override {
    for (index j = 0; j < R.columns; ++j) sizes[j] = size_of(kernels_, j + 1, R.data + j * R.column_stride);
  }

  // Measured: docs/design/qr.md.
  index panel_width(index, index steps) const override {
    if (steps <= 1) return 1;
    const index half = (steps + 1) / 2;
    if (run_.which == backend::reference) return std::min<index>(half, 16);
    const index wanted = steps >= 2048 ? 128 : steps >= 192 ? 64 : 32;
    return std::min(half, wanted);
  }

  std::unique_ptr<factorizer<S>> make_factorizer(const layout& shape, const matrix_view<S>& A, S* tau,
                                                 const matrix_view<const S>& source) override {
    return std::make_unique<blocked_factorizer<S>>(run_, kernels_, shape, A, tau, source);
  }

  std::unique_ptr<applier<S>> make_applier(const matrix_view<const S>& V, const S* tau) override {
    return std::make_unique<panel_applier<S>>(run_, kernels_, panel_width(V.rows, V.columns), V, tau);
  }

  void solve(bool transposed, const matrix_view<const S>& U, const matrix_view<const S>& B, const matrix_view<S>& X, index width,
             solve_sums* seen) override {
    const index n = U.rows;
    core::parallel_for(run_.threads, (B.columns + width - 1) / width, [&](index t, int) {
      const index first = t * width, columns = std::min(width, B.columns - first);
      const matrix_view<const S> right = B.block(0, first, n, columns);
      const matrix_view<S> made = X.block(0, first, n, columns);
      copy(right, made);
      kernels_.solve(transposed, n, columns, U.data, U.column_stride, made.data, made.column_stride);
      if (seen == nullptr) return;
      seen[t] = residual_of<S>(wide_, of_sizes_, transposed, U, made, right);
      if (!seen[t].odd) return;
      abft::result_hash hash;
      for (index c = 0; c < columns; ++c) {
        add_numbers(hash, &made(0, c), n);
      }
      seen[t].bits = hash.bits();
    });
  }

  std::uint64_t hash(const matrix_view<const S>& X) override { return seal_of_columns<S>(X, abft::k_seal_of_nothing); }

  void strike([[maybe_unused]] inject::site where, [[maybe_unused]] const inject::position& here,
              [[maybe_unused]] const matrix_view<S>& X) override {
    if constexpr (inject::active_injector::enabled) host::strike(run_.injector, where, here, X.data, X.rows);
  }

  double encode_columns(const matrix_view<const S>& A, index first, double* weights, S* c) override {
    return host::encode_columns<S>(run_, A, first, weights, c);
  }
  double residual_of_columns(const matrix_view<const S>& A, index panel, const double* weights, const S* c) override {
    return host::residual_of_columns<S>(run_, A, panel, weights, c);
  }

  void choose_pivots(const matrix_view<const S>& A, std::span<index> order, bool plainly) override {
    host::choose_pivots<S>(run_, A, order, plainly);
  }
  void permute_columns(const matrix_view<const S>& A, std::span<const index> order, const matrix_view<S>& P) override {
    host::copy_columns<S>(run_, A, order, P, false);
  }
  index first_moved(const matrix_view<const S>& A, std::span<const index> order, const matrix_view<const S>& P) override {
    return host::first_moved<S>(run_, A, order, P);
  }
  pivot_sums measure_pivots(const matrix_view<const S>& R, index m) override { return host::measure_pivots<S>(run_, R, m); }

  index zero_on_diagonal(const matrix_view<const S>& R) override {
    for (index j = 0; j < R.columns; ++j) {
      if (R(j, j) == S(0)) return j;
    }
    return -1;
  }

 private:
  // copy_checked() of contiguous columns as they are: vector instructions copy and compare.
  index copy_columns(const matrix_view<const S>& from, const matrix_view<S>& to, bool checked) const {
    for (index j = 0; j < to.columns; ++j) std::copy_n(from.data + j * from.column_stride, to.rows, to.data + j * to.column_stride);
    strike_stored(to);
    for (index j = 0; j < to.columns && checked; ++j) {
      const S* const x = from.data + j * from.column_stride;
      const S* const y = to.data + j * to.column_stride;
      bool same = true;
      for (index i = 0; i < to.rows; ++i) same &= same_bits<S>(y[i], x[i]);
      if (!same) return j;
    }
    return -1;
  }

  void strike_stored([[maybe_unused]] const matrix_view<S>& to) const {
    if constexpr (inject::active_injector::enabled) {
      for (index j = 0; j < to.columns && run_.injector.armed(site::store); ++j) {
        for (index i = 0; i < to.rows; ++i)
          host::strike(run_.injector, site::store, {i + j * to.rows, to.rows * to.columns, 0, 1}, &to(i, j), 1);
      }
    }
  }

  const context& run_;
  const kernels<S>& kernels_;
  const kernels<wide_of<S>>& wide_;  // for the checks
  const kernels<double>& of_sizes_;
  run::host_staging staging_;
#if defined(BALLAST_HAS_CPU)
  core::single_threaded_blas single_;  // Ballast's own threads call BLAS on blocks
#endif
};

}  // namespace

template <class S>
std::unique_ptr<engine<S>> make_engine(const context& run) {
  return std::make_unique<host_engine<S>>(run);
}

template std::unique_ptr<engine<float>> make_engine<float>(const context& run);
template std::unique_ptr<engine<double>> make_engine<double>(const context& run);
template std::unique_ptr<engine<std::complex<float>>> make_engine<std::complex<float>>(const context& run);
template std::unique_ptr<engine<std::complex<double>>> make_engine<std::complex<double>>(const context& run);

}  // namespace ballast::qr::host
