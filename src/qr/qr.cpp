// The public functions of QR: arguments, strides, tokens, reports.
// Layer: algorithm. See include/ballast/qr.hpp.
#include <ballast/qr.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include <ballast/error.hpp>

#include "core/blas.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "qr/application.hpp"
#include "qr/factorization.hpp"
#include "run/dispatch.hpp"

namespace ballast::qr {

namespace {

constexpr index k_most = std::numeric_limits<int>::max();  // rows and columns that BLAS can count

template <class S>
std::string token_of(index m, index n) {
  return to_token({precision_of<S>, m, n});
}

// Sizes, null pointers, and (for what is written) elements that lie on one another.
template <class S>
void check_view(const matrix_view<S>& view, std::string_view name, const std::string& token, index least = 1) {
  if (view.rows < least || view.columns < least)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected at least {} row and column, got {} × {}", token, name, least, view.rows, view.columns));
  if (view.rows > k_most || view.columns > k_most)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected at most {} rows and columns, got {} × {}", token, name, k_most, view.rows, view.columns));
  if (view.rows == 0 || view.columns == 0) return;
  if (view.data == nullptr) throw invalid_argument_error(fmt::format("{}: {}: expected data, got a null pointer", token, name));
  index rows = 0, columns = 0, bytes = 0;
  if (__builtin_mul_overflow(view.rows - 1, view.row_stride, &rows) ||
      __builtin_mul_overflow(view.columns - 1, view.column_stride, &columns) || __builtin_add_overflow(rows, columns, &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<index>(sizeof(S)), &bytes))
    throw invalid_argument_error(
        fmt::format("{}: {}: expected strides within 63 bits of address, got {} and {}", token, name, view.row_stride, view.column_stride));
  if constexpr (!std::is_const_v<S>) {
    const index rs = std::abs(view.row_stride), cs = std::abs(view.column_stride);
    const index g = std::gcd(rs, cs);
    const bool apart = (view.rows == 1 || rs != 0) && (view.columns == 1 || cs != 0) &&
                       (view.rows == 1 || view.columns == 1 || cs / g >= view.rows || rs / g >= view.columns);
    if (!apart)
      throw invalid_argument_error(fmt::format("{}: {}: expected strides that keep its elements apart, got {} and {} for {} × {}", token,
                                               name, view.row_stride, view.column_stride, view.rows, view.columns));
  }
}

// First and last address of a view.
template <class S>
std::pair<const char*, const char*> extent(const matrix_view<S>& v) {
  if (v.rows == 0 || v.columns == 0) return {nullptr, nullptr};
  const index r = (v.rows - 1) * v.row_stride, c = (v.columns - 1) * v.column_stride;
  const auto* const low = reinterpret_cast<const char*>(v.data + std::min<index>(r, 0) + std::min<index>(c, 0));
  const auto* const high = reinterpret_cast<const char*>(v.data + std::max<index>(r, 0) + std::max<index>(c, 0) + 1);
  return {low, high};
}

// Two views that touch the same memory. Blocks of one matrix may interleave without overlapping; their strides are the same.
template <class S, class U>
void check_apart(const matrix_view<S>& a, const matrix_view<U>& b, std::string_view names, const std::string& token) {
  const auto [a0, a1] = extent(a);
  const auto [b0, b1] = extent(b);
  if (a0 == nullptr || b0 == nullptr || a1 <= b0 || b1 <= a0) return;
  if (a.row_stride == b.row_stride && a.column_stride == b.column_stride && a.row_stride > 0 && a.column_stride > 0) {
    const index offset = static_cast<const std::remove_const_t<S>*>(b.data) - static_cast<const std::remove_const_t<S>*>(a.data);
    const index large = std::max(a.row_stride, a.column_stride), small = std::min(a.row_stride, a.column_stride);
    const bool rows_large = a.row_stride >= a.column_stride;
    for (index q = offset / large - 1; q <= offset / large + 1; ++q) {
      const index rest = offset - q * large;
      if (rest % small != 0) continue;
      const index di = rows_large ? q : rest / small, dj = rows_large ? rest / small : q;
      if (di < a.rows && di > -b.rows && dj < a.columns && dj > -b.columns)
        throw invalid_argument_error(fmt::format("{}: expected {} apart in memory, got overlapping views", token, names));
    }
    return;
  }
  throw invalid_argument_error(fmt::format("{}: expected {} apart in memory, got overlapping views", token, names));
}

template <class S>
bool is_column_major(const matrix_view<S>& v) {
  return v.row_stride == 1 && (v.columns == 1 || (v.column_stride >= std::max<index>(v.rows, 1) && v.column_stride <= k_most));
}

// A view's elements, column-major: in place, or a copy.
template <class S>
struct columns_of {
  using value = std::remove_const_t<S>;
  columns_of(const matrix_view<S>& v, bool own) {
    if (!own && is_column_major(v)) {
      data = v.data;
      ld = v.columns == 1 ? std::max<index>(v.rows, 1) : v.column_stride;
      return;
    }
    copy = core::aligned_buffer<value>(core::checked_product(v.rows, v.columns));
    ld = std::max<index>(v.rows, 1);
    for (index j = 0; j < v.columns; ++j) {
      for (index i = 0; i < v.rows; ++i) copy[i + j * ld] = v(i, j);
    }
    data = copy.data();
  }
  bool copied() const { return copy.size() != 0; }
  core::aligned_buffer<value> copy;
  S* data = nullptr;
  index ld = 1;
};

template <class S>
void copy_out(const S* from, index ld, const matrix_view<S>& to) {
  for (index j = 0; j < to.columns; ++j) {
    for (index i = 0; i < to.rows; ++i) to(i, j) = from[i + j * ld];
  }
}

// What every call sets up.
struct call {
  call(std::string problem, const execution& how)
      : token(std::move(problem)),
        scheme(run::choose_scheme(how, k_block_checksum, {k_block_checksum, k_qr_update}, token)),
        which(run::choose_backend(how, token, "QR")),
        injector(how.faults, "qr"),
        seen(token, which, scheme, how, injector),
        run{seen, injector, how, which, which == backend::reference ? 1 : core::thread_count(how.threads)} {
    (void)core::thread_count(how.threads);
  }
  std::string token;
  std::string scheme;
  backend which;
  inject::active_injector injector;
  run::recorder seen;
  context run;
  core::single_threaded_blas single;
};

template <class S>
void factor_columns(const context& run, std::string_view scheme, index m, index n, S* A, index lda, S* tau, matrix_view<const S> source) {
  factorization<S> work(run, scheme, m, n, A, lda, tau, source);
  work.run();
}

template <class S>
report geqrf_of(matrix_view<S> A, std::span<S> tau, const execution& how) {
  const std::string token = token_of<S>(A.rows, A.columns);
  check_view(A, "A", token);
  const index steps = std::min(A.rows, A.columns);
  if (static_cast<index>(tau.size()) != steps)
    throw invalid_argument_error(fmt::format("{}: tau: expected {} elements, got {}", token, steps, tau.size()));
  check_apart(A, column_major(tau.data(), steps, index{1}), "A and tau", token);
  call here(token, how);
  columns_of<S> work(A, false);
  const matrix_view<const S> source = work.copied() ? matrix_view<const S>(A) : matrix_view<const S>{};
  factor_columns<S>(here.run, here.scheme, A.rows, A.columns, work.data, work.ld, tau.data(), source);
  if (work.copied() && !(here.seen.uncorrectable() && how.protection == protection::correct)) copy_out(work.data, work.ld, A);
  return here.seen.finish();
}

template <class S>
report ormqr_of(side where, transpose op, matrix_view<const S> A, std::span<const S> tau, matrix_view<S> C, const execution& how) {
  const index count = static_cast<index>(tau.size());
  const index order = where == side::left ? C.rows : C.columns;
  const std::string token = token_of<S>(A.rows, A.columns);
  check_view(A, "A", token, 0);
  check_view(C, "C", token);
  if (A.rows != order || A.columns < count || count > order)
    throw invalid_argument_error(fmt::format("{}: A: expected {} rows and {} columns or more for {} reflectors of C's {}, got {} × {}",
                                             token, order, count, count, where == side::left ? "rows" : "columns", A.rows, A.columns));
  check_apart(A, C, "A and C", token);
  call here(token, how);
  const columns_of<const S> V(A.block(0, 0, order, count), false);
  const orthogonal_factor<S> Q(here.run, order, count, V.data, V.ld, tau.data());
  // C op(Q) = (op(Q)ᵀ Cᵀ)ᵀ.
  const matrix_view<S> operand = where == side::left ? C : C.transposed();
  const bool transposed = (op == transpose::yes) == (where == side::left);
  const auto load = [&](index first, index width, S* X) {
    for (index j = 0; j < width; ++j) {
      for (index i = 0; i < order; ++i) X[i + j * order] = operand(i, first + j);
    }
  };
  if (!here.seen.uncorrectable() || how.protection != protection::correct) {
    const core::aligned_buffer<S> made = Q.apply(transposed, operand.columns, load, false);
    if (!here.seen.uncorrectable() || how.protection != protection::correct) copy_out(made.data(), order, operand);
  }
  return here.seen.finish();
}

// The first `columns` columns of Q into `out`, m × columns.
template <class S>
void form_q(call& here, index m, index columns, const S* V, index ldv, std::span<const S> tau, const matrix_view<S>& out) {
  const orthogonal_factor<S> Q(here.run, m, static_cast<index>(tau.size()), V, ldv, tau.data());
  if (here.seen.uncorrectable() && here.run.how.protection == protection::correct) return;
  const auto load = [&](index first, index width, S* X) {
    std::fill_n(X, m * width, S(0));
    for (index j = 0; j < width; ++j) X[first + j + j * m] = 1;
  };
  const core::aligned_buffer<S> made = Q.apply(false, columns, load, true);
  if (!here.seen.uncorrectable() || here.run.how.protection != protection::correct) copy_out(made.data(), m, out);
}

template <class S>
report orgqr_of(matrix_view<S> A, std::span<const S> tau, const execution& how) {
  const std::string token = token_of<S>(A.rows, A.columns);
  check_view(A, "A", token);
  const index count = static_cast<index>(tau.size());
  if (A.columns > A.rows || count > A.columns)
    throw invalid_argument_error(
        fmt::format("{}: A: expected {} ≤ columns ≤ rows for {} reflectors, got {} × {}", token, count, count, A.rows, A.columns));
  call here(token, how);
  const columns_of<S> V(A, false);
  form_q<S>(here, A.rows, A.columns, V.data, V.ld, tau, A);
  return here.seen.finish();
}

// Equal to the bit, any NaN being equal to any other.
template <class S>
bool same_numbers(const std::vector<S>& a, const std::vector<S>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](S x, S y) { return (x != x && y != y) || seal_of(&x, 1) == seal_of(&y, 1); });
}

// X ← U⁻¹ B or U⁻ᵀ B (n × k, in place), verified: the residual against what rounding explains.
template <class S>
void solve_triangle(const context& run, bool transposed, index n, index k, const S* U, index ldu, S* B, index ldb) {
  const kernels<S>& backend_kernels = kernels_of<S>(run.which);
  core::parallel_for(run.threads, k, [&](index c, int) {
    S* const b = B + c * ldb;
    const std::vector<S> right(b, b + n);
    std::vector<S> before;
    failure first;
    for (int attempt = 0; attempt < k_attempts; ++attempt) {
      std::copy(right.begin(), right.end(), b);
      backend_kernels.solve(transposed, n, 1, U, ldu, b, ldb);
      if (run.how.protection == protection::off) return;
      const solve_residual now = residual_of(transposed, n, U, ldu, b, right.data());
      const std::vector<S> made(b, b + n);
      failure seen;
      if (passes(run.seen, run.injector, {c, k, 0, 1}, now.worst, now.threshold, "qr.solve", c, seen)) {
        if (attempt > 0) run.seen.detected(first.site, c, first.residual, first.threshold, action::recomputed, 0);
        return;
      }
      // Inf and NaN that come again are what the data say: a number beyond the range in R, in x or between them.
      if (!now.finite && !before.empty() && same_numbers(made, before)) return;
      before = now.finite ? std::vector<S>() : made;
      if (attempt == 0) first = seen;
      if (run.how.protection == protection::detect && now.finite) break;
    }
    run.seen.detected(first.site, c, first.residual, first.threshold, action::uncorrectable, 0);
  });
}

template <class S>
void check_rank(const S* R, index ld, index n, const std::string& token) {
  for (index j = 0; j < n; ++j) {
    if (R[j + j * ld] == 0)
      throw invalid_argument_error(fmt::format("{}: A: expected full rank, got a zero on the diagonal of R in column {}", token, j));
  }
}

template <class S>
report gels_of(matrix_view<S> A, matrix_view<S> B, const execution& how) {
  const std::string token = token_of<S>(A.rows, A.columns);
  check_view(A, "A", token);
  check_view(B, "B", token);
  const index most = std::max(A.rows, A.columns);
  if (B.rows != most) throw invalid_argument_error(fmt::format("{}: B: expected max(m, n) = {} rows, got {}", token, most, B.rows));
  check_apart(A, B, "A and B", token);
  call here(token, how);
  const auto lost = [&] { return here.seen.uncorrectable() && how.protection == protection::correct; };
  // The factors of A, or of Aᵀ: made in a copy, so that nothing is committed until all is verified, and A is there to go back to.
  const bool under = A.rows < A.columns;
  const matrix_view<S> tall = under ? A.transposed() : A;
  const index m = tall.rows, n = tall.columns, k = B.columns;
  columns_of<S> F(tall, true);
  std::vector<S> tau(static_cast<std::size_t>(n));
  factor_columns<S>(here.run, here.scheme, m, n, F.data, F.ld, tau.data(), matrix_view<const S>(tall));
  if (lost()) return here.seen.finish();
  check_rank(F.data, F.ld, n, token);
  const orthogonal_factor<S> Q(here.run, m, n, F.data, F.ld, tau.data());
  if (lost()) return here.seen.finish();
  core::aligned_buffer<S> made;
  if (!under) {
    made = Q.apply(
        true, k,
        [&](index first, index width, S* X) {
          for (index j = 0; j < width; ++j) {
            for (index i = 0; i < m; ++i) X[i + j * m] = B(i, first + j);
          }
        },
        false);
    if (!lost()) solve_triangle(here.run, false, n, k, F.data, F.ld, made.data(), m);
  } else {
    core::aligned_buffer<S> Y(core::checked_product(n, k));
    for (index j = 0; j < k; ++j) {
      for (index i = 0; i < n; ++i) Y[i + j * n] = B(i, j);
    }
    solve_triangle(here.run, true, n, k, F.data, F.ld, Y.data(), n);
    if (lost()) return here.seen.finish();
    made = Q.apply(
        false, k,
        [&](index first, index width, S* X) {
          for (index j = 0; j < width; ++j) {
            std::copy_n(Y.data() + (first + j) * n, n, X + j * m);
            std::fill_n(X + j * m + n, m - n, S(0));
          }
        },
        false);
  }
  if (!lost()) {
    copy_out(F.data, F.ld, tall);
    copy_out(made.data(), m, B);
  }
  return here.seen.finish();
}

template <class S>
factors<S> factor_of(matrix_view<const S> A, const execution& how) {
  const std::string token = token_of<S>(A.rows, A.columns);
  check_view(A, "A", token);
  call here(token, how);
  factors<S> made;
  made.storage = matrix<S>(A.rows, A.columns, order::column_major);
  made.tau.resize(static_cast<std::size_t>(std::min(A.rows, A.columns)));
  for (index j = 0; j < A.columns; ++j) {
    for (index i = 0; i < A.rows; ++i) made.storage(i, j) = A(i, j);
  }
  factor_columns<S>(here.run, here.scheme, A.rows, A.columns, made.storage.data(), A.rows, made.tau.data(), A);
  made.report = here.seen.finish();
  return made;
}

}  // namespace

report geqrf(matrix_view<float> A, std::span<float> tau, const execution& how) { return geqrf_of(A, tau, how); }
report geqrf(matrix_view<double> A, std::span<double> tau, const execution& how) { return geqrf_of(A, tau, how); }
report ormqr(side where, transpose op, matrix_view<const float> A, std::span<const float> tau, matrix_view<float> C, const execution& how) {
  return ormqr_of(where, op, A, tau, C, how);
}
report ormqr(side where, transpose op, matrix_view<const double> A, std::span<const double> tau, matrix_view<double> C,
             const execution& how) {
  return ormqr_of(where, op, A, tau, C, how);
}
report orgqr(matrix_view<float> A, std::span<const float> tau, const execution& how) { return orgqr_of(A, tau, how); }
report orgqr(matrix_view<double> A, std::span<const double> tau, const execution& how) { return orgqr_of(A, tau, how); }
report gels(matrix_view<float> A, matrix_view<float> B, const execution& how) { return gels_of(A, B, how); }
report gels(matrix_view<double> A, matrix_view<double> B, const execution& how) { return gels_of(A, B, how); }
factors<float> factor(matrix_view<const float> A, const execution& how) { return factor_of(A, how); }
factors<double> factor(matrix_view<const double> A, const execution& how) { return factor_of(A, how); }

template <class T>
matrix<T> factors<T>::r() const {
  matrix<T> made(std::min(storage.rows(), storage.columns()), storage.columns());
  for (index i = 0; i < made.rows(); ++i) {
    for (index j = i; j < made.columns(); ++j) made(i, j) = storage(i, j);
  }
  return made;
}

template <class T>
matrix<T> factors<T>::q(const execution& how, ballast::report* seen) const {
  const index m = storage.rows();
  const std::string token = token_of<T>(m, storage.columns());
  check_view(storage.view(), "storage", token);
  call here(token, how);
  matrix<T> made(m, std::min(m, storage.columns()), order::column_major);
  form_q<T>(here, m, made.columns(), storage.data(), m, tau, made.view());
  ballast::report all = here.seen.finish();
  if (seen != nullptr) *seen = std::move(all);
  return made;
}

template <class T>
matrix<T> factors<T>::solve(matrix_view<const T> B, const execution& how, ballast::report* seen) const {
  const index m = storage.rows(), n = storage.columns();
  const std::string token = token_of<T>(m, n);
  check_view(storage.view(), "storage", token);
  check_view(B, "B", token);
  if (m < n) throw invalid_argument_error(fmt::format("{}: expected at least as many rows as columns, got {} × {}", token, m, n));
  if (B.rows != m) throw invalid_argument_error(fmt::format("{}: B: expected {} rows, got {}", token, m, B.rows));
  check_rank(storage.data(), m, n, token);
  call here(token, how);
  matrix<T> made(n, B.columns, order::column_major);
  const auto lost = [&] { return here.seen.uncorrectable() && how.protection == protection::correct; };
  const orthogonal_factor<T> Q(here.run, m, n, storage.data(), m, tau.data());
  if (!lost()) {
    core::aligned_buffer<T> C = Q.apply(
        true, B.columns,
        [&](index first, index width, T* X) {
          for (index j = 0; j < width; ++j) {
            for (index i = 0; i < m; ++i) X[i + j * m] = B(i, first + j);
          }
        },
        false);
    if (!lost()) solve_triangle(here.run, false, n, B.columns, storage.data(), m, C.data(), m);
    if (!lost()) {
      for (index j = 0; j < B.columns; ++j) std::copy_n(C.data() + j * m, n, made.data() + j * n);
    }
  }
  ballast::report all = here.seen.finish();
  if (seen != nullptr) *seen = std::move(all);
  return made;
}

template class factors<float>;
template class factors<double>;

std::string to_token(const problem& value) { return fmt::format("qr_{}_m{}_n{}", to_string(value.precision), value.m, value.n); }

problem parse_token(std::string_view text) {
  const auto refuse = [&] {
    return invalid_argument_error(fmt::format("token: expected qr_<f32|f64>_m<rows>_n<columns>, got \"{}\"", text));
  };
  std::string_view rest = text;
  const auto take = [&](std::string_view prefix) {
    if (!rest.starts_with(prefix)) throw refuse();
    rest.remove_prefix(prefix.size());
  };
  const auto number = [&] {
    index value = 0;
    const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (status != std::errc{} || end == rest.data() || value < 1 || rest.front() == '+' || (rest.front() == '0')) throw refuse();
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return value;
  };
  problem made;
  take("qr_");
  const auto which = parse_precision(rest.substr(0, 3));
  if (!which) throw refuse();
  made.precision = *which;
  rest.remove_prefix(3);
  take("_m");
  made.m = number();
  take("_n");
  made.n = number();
  if (!rest.empty()) throw refuse();
  return made;
}

}  // namespace ballast::qr
