// Batches of small matrices on the host: one thread computes each matrix, over the kernels of reference/ or cpu/.
// Layer: backend (host). See qr/batch.hpp.
// A tile is computed in scratch memory. Before it is stored, it is compared with sums from another reading of its input and, for op(Q),
// another reading of V: docs/design/qr.md, "Batches".
#include "qr/batch.hpp"
#include "core/at.hpp"
#include "core/memory.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "abft/threshold.hpp"
#if defined(BALLAST_HAS_CPU)
#include "core/blas.hpp"
#endif
#include "core/aligned_buffer.hpp"
#include "core/parallel.hpp"
#include "inject/injector.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/arithmetic/random.hpp"
#include "qr/checks/checks.hpp"
#include "qr/checks/largest.hpp"
#include "qr/host/kernels.hpp"
#include "qr/host/strike.hpp"
#include "qr/sites.hpp"
#include "qr/thresholds.hpp"
#include "run/attempt.hpp"
#include "run/staging.hpp"

namespace ballast::qr::host {

using core::at;

namespace {

constexpr int k_certificates = 2;
constexpr index k_panel = 32;
constexpr index k_task_elements = 1 << 14;  // elements of the matrices that one task computes

double weight(int q, index column) {
  return random_signed(k_batch_stream + static_cast<std::uint64_t>(q), static_cast<std::uint64_t>(column));
}

// The work of one thread on one matrix. A tile has `m` rows; its columns are contiguous.
template <class S>
class bench_of_thread {
 public:
  using real = real_of<S>;
  using wide = wide_of<S>;

  bench_of_thread(const context& run, const kernels<S>& with, index m, index n, index reflectors)
      : run_(run),
        kernels_(with),
        m_(m),
        tile_(m * n),
        V_(m * std::max<index>(reflectors, 1)),
        column_(m),
        tau_(std::max<index>(reflectors, 1)),
        T_(k_panel * k_panel),
        V1_(k_panel * k_panel),
        W_(k_panel * std::max<index>(n, 1)),
        y_(static_cast<std::size_t>(k_certificates * m)),
        shift_(static_cast<std::size_t>(n)),
        exponent_(static_cast<std::size_t>(n)) {}

  void factor(index matrix, index count, const matrix_view<S>& A, S* tau, int slot);
  void apply(index matrix, index count, const matrix_view<const S>& V, const S* tau, bool transposed, const matrix_view<S>& X, index given,
             bool identity, int slot);
  index solve(index matrix, index count, const matrix_view<const S>& U, bool transposed, const matrix_view<S>& X, int slot);

 private:
  void encode(const matrix_view<const S>& from, index given, bool identity);
  void load(const matrix_view<const S>& from, index given, bool identity, int (*shift_of)(int));
  void store(const matrix_view<S>& to, bool upper_only) const;
  void update(index first, index width, const S* V, index ldv, bool transposed, index from, index columns, const inject::position& where);
  void reflect_sums(const S* v, index j, const wide& tau, double* squares);
  void subtract_column(index rows, index j);
  abft::finding judge(index matrix, const inject::position& where, index columns, const char* name);
  std::uint64_t hash(index columns, const S* scalars, index count) const;
  bool is_protected() const { return run_.how.protection != protection::off; }
  bool repairs() const { return run_.how.protection == protection::correct; }
  bool stores(abft::outcome how) const { return !repairs() || abft::stands(how); }

  const context& run_;
  const kernels<S>& kernels_;
  const index m_;
  core::aligned_buffer<S> tile_, V_, column_, tau_, T_, V1_, W_;
  core::vector<wide> y_;  // the sums to verify: k_certificates vectors of m numbers
  // Column j is computed as 2^shift_j · x; exponent_j comes from the check's own reading.
  core::vector<int> shift_, exponent_;
  double norm_[k_certificates] = {};  // ‖(w_j 2^−e_j x_j)_j‖_F + ‖Σ w_j 2^−e_j x_j‖
  bool odd_ = false;                  // the input holds Inf or NaN
};

// y_q ← Σ_j w_qj 2^−e_j x_j.
template <class S>
void bench_of_thread<S>::encode(const matrix_view<const S>& from, index given, bool identity) {
  std::fill(y_.begin(), y_.end(), wide(0));
  double squares[k_certificates] = {};
  odd_ = false;
  const index columns = static_cast<index>(shift_.size());
  for (index j = 0; j < columns; ++j) {
    double most = 0, strange = 0;
    for (index i = 0; i < m_; ++i) {
      column_[i] = i >= given ? S(0) : identity ? S(i == j) : from(i, j);
      for (index c = 0; c < k_reals<S>; ++c) {
        const double size = std::abs(static_cast<double>(reals(&column_[i])[c]));
        most = size > most ? size : most;
        strange += size - size;
      }
    }
    const bool finite = strange == 0;
    odd_ |= !finite;
    const int e = most > 0 && finite ? std::ilogb(most) : 0;
    exponent_[at(j)] = e;
    // Two factors, since the reciprocal of a subnormal number is not representable.
    const double half = std::ldexp(1.0, -e / 2), rest = std::ldexp(1.0, -e - (-e / 2));
    double w[k_certificates], own = 0;
    for (int q = 0; q < k_certificates; ++q) w[q] = weight(q, j);
    double* const y0 = reals(y_.data());
    double* const y1 = reals(y_.data() + m_);
    for (index i = 0; i < k_reals<S> * m_; ++i) {
      const double value = static_cast<double>(reals(column_.data())[i]) * half * rest;
      y0[i] += w[0] * value;
      y1[i] += w[1] * value;
      own += value * value;
    }
    for (int q = 0; q < k_certificates; ++q) squares[q] += w[q] * w[q] * own;
  }
  for (int q = 0; q < k_certificates; ++q) {
    double own = 0;
    for (index i = 0; i < m_; ++i) own += square_of(y_[at(q * m_ + i)]);
    norm_[q] = std::sqrt(squares[q]) + std::sqrt(own);
  }
}

// Loads the tile. Columns of extreme size are scaled by powers of two: shift_of(exponent of the largest element).
template <class S>
void bench_of_thread<S>::load(const matrix_view<const S>& from, index given, bool identity, int (*shift_of)(int)) {
  const index columns = static_cast<index>(shift_.size());
  for (index j = 0; j < columns; ++j) {
    S* const x = tile_.data() + j * m_;
    double most = 0, strange = 0;
    for (index i = 0; i < m_; ++i) {
      x[i] = i >= given ? S(0) : identity ? S(i == j) : from(i, j);
      for (index c = 0; c < k_reals<S>; ++c) {
        const double size = std::abs(static_cast<double>(reals(x + i)[c]));
        most = size > most ? size : most;
        strange += size - size;
      }
    }
    const int e = most > 0 && strange == 0 ? std::ilogb(most) : 0;
    const int shift = shift_[at(j)] = shift_of(e);
    for (index i = 0; shift != 0 && i < m_; ++i) x[i] = scaled(x[i], shift);
  }
}

template <class S>
void bench_of_thread<S>::store(const matrix_view<S>& to, bool upper_only) const {
  for (index j = 0; j < to.columns; ++j) {
    const S* const x = tile_.data() + j * m_;
    const int back = -shift_[at(j)];
    for (index i = 0; i < to.rows; ++i) to(i, j) = back != 0 && (!upper_only || i <= j) ? scaled(x[i], back) : x[i];
  }
}

// Applies `width` reflectors of V from `first` on to columns `from` … of the tile; computes T if it is not there.
template <class S>
void bench_of_thread<S>::update(index first, index width, const S* V, index ldv, bool transposed, index from, index columns,
                                const inject::position& where) {
  const S* const top = V + first + first * ldv;
  for (index j = 0; j < width; ++j) {
    for (index i = 0; i < width; ++i) V1_[i + j * width] = i < j ? S(0) : i == j ? S(1) : top[i + j * ldv];
  }
  const block_reflector<S> H{m_ - first, width, V1_.data(), top + width, ldv, T_.data()};
  S* const C = tile_.data() + first + from * m_;
  kernels_.product(H, columns, C, m_, W_.data());
  strike(run_.injector, site::product, where, W_.data(), width * columns);
  kernels_.update(H, transposed, columns, W_.data(), C, m_);
}

// y_q ← y_q − τ v vᴴ y_q. `v`: the elements of v_j below row j. Adds ‖v‖² to `squares` unless that is null.
template <class S>
void bench_of_thread<S>::reflect_sums(const S* v, index j, const wide& tau, double* squares) {
  const index below = m_ - j - 1;
  if (squares != nullptr) {
    *squares = 1;
    kernels_.squares(below, 1, v, below, squares);
  }
  if (tau == wide(0)) return;
  wide z[k_certificates];
  wide* const y = y_.data() + j;
  for (int q = 0; q < k_certificates; ++q) z[q] = y[q * m_];
  kernels_.dot(below, 1, v, below, k_certificates, y + 1, m_, z, 1);
  for (int q = 0; q < k_certificates; ++q) {
    z[q] = times(z[q], tau);
    y[q * m_] -= z[q];
  }
  kernels_.subtract(below, 1, v, below, k_certificates, z, 1, y + 1, m_);
}

// y_q ← y_q − w_qj 2^−e_j x_j for the first rows of column j of the tile, as it will be stored.
template <class S>
void bench_of_thread<S>::subtract_column(index rows, index j) {
  double z[k_certificates];
  for (int q = 0; q < k_certificates; ++q) z[q] = std::ldexp(weight(q, j), -exponent_[at(j)] - shift_[at(j)]);
  kernels_.subtract_weighted(rows, 1, tile_.data() + j * m_, m_, k_certificates, z, 1, y_.data(), m_);
}

template <class S>
std::uint64_t bench_of_thread<S>::hash(index columns, const S* scalars, index count) const {
  abft::result_hash made;
  add_numbers(made, tile_.data(), m_ * columns);
  add_numbers(made, scalars, count);
  return made.bits();
}

// Compares ‖y_q‖ with the norms, for the q with the largest quotient. Between the two thresholds the bits decide, if the tile may be
// recomputed; the caller computes a hash if `judged` is false.
template <class S>
abft::finding bench_of_thread<S>::judge(index matrix, const inject::position& where, index columns, const char* name) {
  abft::worst_comparison worst{0, norm_[0]};
  for (int q = 0; q < k_certificates; ++q) {
    double own = 0;
    for (index i = 0; i < m_; ++i) own += square_of(y_[at(q * m_ + i)]);
    worst.take(std::sqrt(own), norm_[q]);
  }
  const double residual = worst.residual;
  const abft::tiers limits = thresholds::residual<real>(worst.limit, k_reals<S> * m_, columns);
  abft::finding seen = compare(run_, where, residual, repairs() ? limits.clean : limits.wrong, name, matrix);
  if (!passes(seen)) seen.judged = !(repairs() && residual > limits.clean && residual <= limits.wrong);
  if (odd_) seen.judged = false;
  return seen;
}

template <class S>
void bench_of_thread<S>::factor(index matrix, index count, const matrix_view<S>& A, S* tau, int slot) {
  const index n = A.columns, steps = std::min(m_, n);
  // At least two panels if there are two columns: the smallest matrix is then computed, and struck, like the others.
  const index width = steps <= 1 ? 1 : std::min(k_panel, (steps + 1) / 2);
  const index panels = (steps + width - 1) / width, updates = n > steps ? panels : panels - 1;
  const abft::outcome how = run::attempt(run_.seen, run_.how.protection, "qr.certificate", slot, [&](int number) {
    if (is_protected()) {
      encode(A, m_, false);
      strike(run_.injector, site::checksum, {matrix, count, 0, 1}, y_.data(), m_);
    }
    load(A, m_, false, abft::moderating_shift<real>);
    strike(run_.injector, site::panel, {matrix, count, 0, 1}, tile_.data(), m_ * n);
    for (index p = 0; p < panels; ++p) {
      const index j = p * width, w = std::min(width, steps - j);
      S* const panel = tile_.data() + j + j * m_;
      kernels_.factor_panel(m_ - j, w, panel, m_, tau_.data() + j, T_.data(), 1, false, false);
      const inject::position here{matrix, count, p, panels};
      strike(run_.injector, site::reflector, here, panel + 1, m_ - j - 1);
      strike(run_.injector, site::tau, here, tau_.data() + j, w);
      strike(run_.injector, site::t, here, T_.data(), w * w);
      if (j + w == n) continue;
      update(j, w, tile_.data(), m_, true, j + w, n - j - w, {matrix, count, p, updates});
      strike(run_.injector, site::trailing, {matrix, count, p, updates}, tile_.data() + (j + w) * m_, (n - j - w) * m_);
    }
    strike(run_.injector, site::r, {matrix, count, 0, 1}, tile_.data() + (n - 1) * m_, steps);
    if (!is_protected()) return abft::finding{};
    double reflectors = 0;
    for (index j = 0; j < n; ++j) {
      if (j < steps) {
        const wide scalar = static_cast<wide>(tau_[j]);
        double squares = 0;
        reflect_sums(tile_.data() + j + 1 + j * m_, j, conjugate(scalar), &squares);
        const double off = scalar == wide(0) ? 0 : std::abs(reflector_residual(scalar, squares));
        if (!(off <= reflectors)) reflectors = off;
      }
      subtract_column(std::min(j + 1, m_), j);
    }
    abft::finding seen = judge(matrix, {matrix, count, 0, 2}, n, "qr.certificate");
    if (passes(seen) && seen.judged) {
      const abft::finding second =
          compare(run_, {matrix, count, 1, 2}, reflectors, thresholds::reflector<real>(k_reals<S> * m_), "qr.tau", matrix);
      if (!passes(second)) seen = second;
    }
    if (!passes(seen) || !seen.judged || number > 0) seen.bits = hash(n, tau_.data(), steps);
    return seen;
  });
  if (!stores(how)) return;
  store(A, true);
  std::copy_n(tau_.data(), steps, tau);
}

template <class S>
void bench_of_thread<S>::apply(index matrix, index count, const matrix_view<const S>& V, const S* tau, bool transposed,
                               const matrix_view<S>& X, index given, bool identity, int slot) {
  const index k = V.columns, n = X.columns;
  const index width = std::min(k_panel, std::max<index>(k, 1)), panels = (k + width - 1) / width;
  const abft::outcome how = run::attempt(run_.seen, run_.how.protection, "qr.q", slot, [&](int number) {
    if (is_protected()) {
      encode(X, given, identity);
      strike(run_.injector, site::checksum, {matrix, count, 0, 1}, y_.data(), m_);
    }
    load(X, given, identity, abft::product_shift<real>);
    strike(run_.injector, site::q, {matrix, count, 0, 2}, tile_.data(), m_ * n);
    for (index j = 0; j < k; ++j) {
      for (index i = 0; i < m_; ++i) V_[i + j * m_] = V(i, j);
    }
    for (index s = 0; s < panels; ++s) {
      const index p = transposed ? s : panels - 1 - s, j = p * width, w = std::min(width, k - j);
      const S* const top = V_.data() + j + j * m_;
      for (index c = 0; c < w; ++c) {
        for (index i = 0; i < w; ++i) V1_[i + c * w] = i < c ? S(0) : i == c ? S(1) : top[i + c * m_];
      }
      kernels_.triangular_factor({m_ - j, w, V1_.data(), top + w, m_, nullptr}, tau + j, T_.data());
      for (index c = 0; c < w; ++c) std::fill(T_.data() + c + 1 + c * w, T_.data() + w + c * w, S(0));
      strike(run_.injector, site::t, {matrix, count, s, panels}, T_.data(), w * w);
      update(j, w, V_.data(), m_, transposed, 0, n, {matrix, count, s, panels});
    }
    strike(run_.injector, site::q, {matrix, count, 1, 2}, tile_.data(), m_ * n);
    if (!is_protected()) return abft::finding{};
    // Applies the reflectors one after the other, from the caller's V and tau.
    for (index s = 0; s < k; ++s) {
      const index j = transposed ? s : k - 1 - s;
      const wide scalar = static_cast<wide>(transposed ? conjugate(tau[j]) : tau[j]);
      bool finite = is_finite(scalar);
      for (index i = j + 1; i < m_; ++i) {
        column_[i] = V(i, j);
        finite &= is_finite(column_[i]);
      }
      odd_ |= !finite;
      reflect_sums(column_.data() + j + 1, j, scalar, nullptr);
    }
    for (index j = 0; j < n; ++j) subtract_column(m_, j);
    abft::finding seen = judge(matrix, {matrix, count, 0, 1}, n, "qr.q");
    if (!passes(seen) || !seen.judged || number > 0) seen.bits = hash(n, nullptr, 0);
    return seen;
  });
  if (stores(how)) store(X, false);
}

// Returns the first column whose diagonal is not above thresholds::least_pivot times its largest number, −1 if there is none.
template <class S>
index bench_of_thread<S>::solve(index matrix, index count, const matrix_view<const S>& U, bool transposed, const matrix_view<S>& X,
                                int slot) {
  const index k = X.columns;
  index zero = -1;
  const double least = run_.how.full_rank ? thresholds::least_pivot<real>(m_) : 0;
  for (index j = m_ - 1; j >= 0; --j) {
    largest most;
    for (index i = 0; i <= j; ++i) most.add(size_of_number(U(i, j)));
    if (std::isfinite(most.value()) && size_of_number(U(j, j)) <= least * most.value()) zero = j;
  }
  const abft::outcome how = run::attempt(run_.seen, run_.how.protection, "qr.solve", slot, [&](int number) {
    if (is_protected()) {
      encode(X, m_, false);
      strike(run_.injector, site::checksum, {matrix, count, 0, 1}, y_.data(), m_);
    }
    load(X, m_, false, abft::product_shift<real>);
    strike(run_.injector, site::q, {matrix, count, 0, 2}, tile_.data(), m_ * k);
    for (index j = 0; j < m_; ++j) {
      for (index i = 0; i < m_; ++i) V_[i + j * m_] = i <= j ? U(i, j) : S(0);
    }
    kernels_.solve(transposed, m_, k, V_.data(), m_, tile_.data(), m_);
    strike(run_.injector, site::q, {matrix, count, 1, 2}, tile_.data(), m_ * k);
    if (!is_protected()) return abft::finding{};
    // Compares op(U) (Xw) with Bw, row by row; |op(U)| |X| bounds the size of the rounding.
    core::vector<wide> x(at(k_certificates * m_));
    core::vector<double> size(at(m_)), sum(at(m_)), all(at(m_));
    for (index j = 0; j < k; ++j) {
      for (int q = 0; q < k_certificates; ++q) {
        const double w = std::ldexp(weight(q, j), -exponent_[at(j)] - shift_[at(j)]);
        for (index i = 0; i < m_; ++i) {
          const wide term = w * static_cast<wide>(tile_[i + j * m_]);
          x[at(q * m_ + i)] += term;
          size[at(i)] += size_of_number(term);
        }
      }
    }
    for (int q = 0; q < k_certificates; ++q) {
      for (index i = 0; i < m_; ++i) sum[at(i)] += size_of_number(y_[at(q * m_ + i)]);
    }
    for (index j = 0; j < m_; ++j) {
      for (index i = 0; i <= j; ++i) {
        const wide u = static_cast<wide>(transposed ? conjugate(U(i, j)) : U(i, j));
        const double u_size = size_of_number(u);
        const index row = transposed ? j : i, column = transposed ? i : j;
        for (int q = 0; q < k_certificates; ++q) y_[at(q * m_ + row)] -= times(u, x[at(q * m_ + column)]);
        sum[at(row)] += u_size * size[at(column)];
        all[at(row)] += u_size;
      }
    }
    abft::worst_comparison worst;
    for (index i = 0; i < m_; ++i) {
      // Rounding, and the part of an element of x that underflow may take.
      const double allowed = thresholds::solve<real>(sum[at(i)], k_reals<S> * m_) +
                             4 * static_cast<double>(std::numeric_limits<real>::denorm_min()) * (all[at(i)] + static_cast<double>(m_));
      for (int q = 0; q < k_certificates; ++q) worst.take(size_of_number(y_[at(q * m_ + i)]), allowed);
    }
    abft::finding seen = compare(run_, {matrix, count, 0, 1}, worst.residual, worst.limit, "qr.solve", matrix);
    // Some number in U, in x or in between is not finite: if a recomputation gives the same bits, the data explain it.
    if (odd_ || !worst.is_finite()) seen.judged = false;
    if (!passes(seen) || !seen.judged || number > 0) seen.bits = hash(k, nullptr, 0);
    return seen;
  });
  if (stores(how)) store(X, false);
  return zero;
}

template <class S>
class host_batch final : public batch_engine<S> {
 public:
  explicit host_batch(const context& run) : run_(run), kernels_(kernels_of<S>(run)), staging_(run.how.stream) {}

  matrix_batch_view<const S> read(const matrix_batch_view<const S>& operand) override { return staging_.read(operand); }
  std::span<const S> read(std::span<const S> operand) override { return staging_.read(operand); }
  matrix_batch_view<S> write(const matrix_batch_view<S>& operand) override { return staging_.write(operand); }
  std::span<S> write(std::span<S> operand) override { return staging_.write(operand); }
  void commit() override { staging_.commit(); }
  void collect(run::recorder&) override {}
  index singular() override { return singular_; }

  S* scratch(index elements) override {
    scratch_ = core::aligned_buffer<S>(elements);
    return scratch_.data();
  }
  void copy(const S* from, S* to, index elements) override { std::copy_n(from, elements, to); }

  void factor(const matrix_batch_view<S>& A, S* tau, bool) override {
    const index steps = std::min(A.rows, A.columns);
    each(A.count, A.rows, A.columns, steps,
         [&](bench_of_thread<S>& with, index b, int slot) { with.factor(b, A.count, A[b], tau + b * steps, slot); });
  }

  void apply(const batch_factors<S>& Q, bool transposed, const matrix_batch_view<S>& X, index given, bool identity, bool) override {
    each(X.count, X.rows, X.columns, Q.V.columns, [&](bench_of_thread<S>& with, index b, int slot) {
      with.apply(b, X.count, Q.V[b], Q.tau + b * Q.V.columns, transposed, X[b], given, identity, slot);
    });
  }

  void solve(const matrix_batch_view<const S>& U, bool transposed, const matrix_batch_view<S>& X, bool) override {
    std::atomic<index> first = std::numeric_limits<index>::max();
    each(X.count, X.rows, X.columns, X.rows, [&](bench_of_thread<S>& with, index b, int slot) {
      const index zero = with.solve(b, X.count, U[b], transposed, X[b], slot);
      if (zero < 0) return;
      const index found = b * k_batch_side + zero;
      index had = first.load();
      while (found < had && !first.compare_exchange_weak(had, found)) {
      }
    });
    if (first != std::numeric_limits<index>::max()) singular_ = first;
  }

 private:
  template <class Body>
  void each(index count, index m, index n, index reflectors, Body&& body) {
    const index group = std::clamp<index>(k_task_elements / (m * n), 1, (count + 3) / 4);
    const index tasks = (count + group - 1) / group;
    core::parallel_for(run_.threads, tasks, [&](index t, int slot) {
      bench_of_thread<S> own(run_, kernels_, m, n, reflectors);
      for (index b = t * group; b < std::min(count, (t + 1) * group); ++b) body(own, b, slot);
    });
  }

  const context& run_;
  const kernels<S>& kernels_;
  run::host_staging staging_;
  core::aligned_buffer<S> scratch_;
  index singular_ = -1;
#if defined(BALLAST_HAS_CPU)
  core::single_threaded_blas single_;  // Ballast's own threads call BLAS on small matrices
#endif
};

}  // namespace

template <class S>
std::unique_ptr<batch_engine<S>> make_batch_engine(const context& run) {
  return std::make_unique<host_batch<S>>(run);
}

template std::unique_ptr<batch_engine<float>> make_batch_engine<float>(const context&);
template std::unique_ptr<batch_engine<double>> make_batch_engine<double>(const context&);
template std::unique_ptr<batch_engine<std::complex<float>>> make_batch_engine<std::complex<float>>(const context&);
template std::unique_ptr<batch_engine<std::complex<double>>> make_batch_engine<std::complex<double>>(const context&);

}  // namespace ballast::qr::host
