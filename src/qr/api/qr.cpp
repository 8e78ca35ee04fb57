// The public functions of QR: arguments, where operands lie, tokens, reports.
// Layer: algorithm (driver). Backend-free. See include/ballast/qr.hpp.
#include <ballast/qr.hpp>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/device/blas.hpp"
#include "cuda/device/residence.hpp"
#include "inject/injector.hpp"
#include "qr/api/validation.hpp"
#include "qr/driver/application.hpp"
#include "qr/driver/factorization.hpp"
#include "qr/driver/out_of_core.hpp"
#include "run/attempt.hpp"
#include "run/dispatch.hpp"

namespace ballast::qr {

namespace {

template <class S>
std::string token_of(index m, index n) {
  return to_token({precision_of<S>, m, n});
}

// The backend of a call. Where none is named: cuda, unless it lacks something (the scheme, cuBLAS), or the operands lie on the host and the
// cpu is done before they have been copied.
template <class S>
backend choose_backend(const run::settings& how, const std::string& token, const void* operand, index m, index n) {
  const auto here = [&](std::string_view without) { return run::choose_backend(how, token, without); };
  if (how.backend != backend::automatic) return here("");
  if (how.scheme == k_hybrid) {
    run::settings asked = how;
    asked.backend = backend::cuda;
    return run::choose_backend(asked, token, "");
  }
  const backend best = here("");
  if (best != backend::cuda) return best;
  if (ballast::cuda::overriding_device() == nullptr && !ballast::cuda::why_no_cublas().empty()) return here("QR without cuBLAS");
#if defined(BALLAST_HAS_CPU)
  const double large = static_cast<double>(std::max(m, n)), small = static_cast<double>(std::min(m, n));
  if (how.scheme.empty() && how.faults == nullptr && ballast::cuda::residence_of(operand) == ballast::cuda::residence::host &&
      run::copying_takes_longer(
          {2 * large * small * sizeof(S), 2 * small * small * (large - small / 3), precision_of<S>, core::thread_count(how.threads)}))
    return backend::cpu;
#else
  static_cast<void>(operand), static_cast<void>(m), static_cast<void>(n);
#endif
  return best;
}

std::vector<std::string_view> schemes_of(backend which) {
  if (which == backend::cuda) return {k_block_checksum, k_qr_update, k_hybrid};
  return {k_block_checksum, k_qr_update};
}

// What every call sets up. `operand`: where the matrix lies.
template <class S>
struct operation_call {
  operation_call(std::string problem, const run::settings& how, const void* operand, index m, index n)
      : token(std::move(problem)),
        which(choose_backend<S>(how, token, operand, m, n)),
        scheme(run::choose_scheme(how, k_block_checksum, schemes_of(which), token)),
        injector(how.faults, "qr"),
        seen(token, which, scheme, how, injector),
        threads(core::thread_count(how.threads)),
        run{seen, injector, how, which, which == backend::reference ? 1 : threads, scheme == k_hybrid},
        on(make_engine<S>(run)) {}

  // Nothing is committed then.
  bool lost() const { return seen.uncorrectable() && run.how.protection == protection::correct; }

  std::string token;
  backend which;
  std::string scheme;
  inject::active_injector injector;
  run::recorder seen;
  int threads;
  context run;
  std::unique_ptr<engine<S>> on;
};

// A new column-major matrix that the engine works on.
template <class S>
struct owned {
  owned() = default;
  owned(engine<S>& on, index rows, index columns)
      : memory(on.allocate(core::checked_product(rows, columns))),
        view(column_major(memory.get(), rows, columns, std::max<index>(rows, 1))) {}
  std::shared_ptr<S> memory;
  matrix_view<S> view;
};

// A matrix as the engine can work on it: where it lies, or a copy.
template <class S>
struct placed {
  using value = std::remove_const_t<S>;
  placed(engine<value>& on, matrix_view<S> v) : view(v) {
    if (v.columns <= 1) view.column_stride = std::max<index>(v.rows, 1);
    if (on.works_on(view)) return;
    owned<value> made(on, v.rows, v.columns);
    on.copy(v, made.view);
    copy = std::move(made.memory);
    view = made.view;
  }
  bool copied() const { return copy != nullptr; }
  std::shared_ptr<value> copy;
  matrix_view<S> view;
};

// engine::write for two operands. Where they interleave they are one piece of memory: of two copies the second would take back to the
// caller what the first has replaced.
template <class S>
void write_both(engine<S>& on, matrix_view<S>& A, matrix_view<S>& B) {
  const auto [a0, a1] = extent(A);
  const auto [b0, b1] = extent(B);
  if (a1 <= b0 || b1 <= a0) {
    A = on.write(A);
    B = on.write(B);
    return;
  }
  S* const low = reinterpret_cast<S*>(const_cast<char*>(std::min(a0, b0)));
  const auto elements = static_cast<std::size_t>(std::max(a1, b1) - std::min(a0, b0)) / sizeof(S);
  S* const here = on.write(std::span<S>(low, elements)).data();
  A.data = here + (A.data - low);
  B.data = here + (B.data - low);
}

template <class S>
void check_rank(engine<S>& on, const matrix_view<const S>& R, const std::string& token) {
  if (const index j = on.zero_on_diagonal(R); j >= 0)
    throw invalid_argument_error(fmt::format("{}: A: expected full rank, got a zero on the diagonal of R in column {}", token, j));
}

// R (n × n) with columns of a moderate size: itself, or a copy of its columns times 2^shifts.
template <class S>
struct moderate {
  moderate(engine<S>& on, const matrix_view<const S>& R) : view(R), shifts(static_cast<std::size_t>(R.columns), 0) {
    const std::vector<int> same(shifts);
    on.exponents(R, true, same.data(), shifts.data());
    on.wait();
    for (int& e : shifts) e = std::abs(e) > abft::k_moderate_exponent<S> ? -e : 0;
    if (shifts == same) return;
    copy_ = owned<S>(on, R.rows, R.columns);
    on.copy_scaled(R, copy_.view, same.data(), shifts.data());
    view = copy_.view;
  }
  matrix_view<const S> view;
  std::vector<int> shifts;

 private:
  owned<S> copy_;
};

// Least squares from A's factors, or Aᵀ's. Numbers near the ends of the range must not overflow on the way, nor underflow: R is of A's
// columns times 2^rows, and right-hand sides of extreme size are scaled by powers of two before and back after.
template <class S>
class least_squares {
 public:
  // result ← Q X, or Qᵀ X; X may have fewer rows than Q: the others are 0.
  using application = core::function_ref<void(bool transposed, const matrix_view<const S>& X, const matrix_view<S>& result)>;

  // `R`: n × n, of columns times 2^rows; `B`: m × k. `on`: works on both, and on what Q is applied to.
  least_squares(operation_call<S>& here, engine<S>& on, application apply, index m, const matrix_view<const S>& R, std::vector<int> rows, bool under,
                const matrix_view<const S>& B)
      : on_(on),
        under_(under),
        rows_(std::move(rows)),
        columns_(static_cast<std::size_t>(B.columns), 0),
        C_(on_, m, B.columns),
        X_(on_, R.rows, B.columns) {
    const matrix_view<const S> right = under ? B.block(0, 0, R.rows, B.columns) : B;
    const owned<S> scaled = scale(here, right);
    const matrix_view<const S> D = scaled.memory ? scaled.view : right;
    if (here.lost()) return;
    if (under) {
      solve_triangle<S>(here.run, on_, true, R, D, X_.view);
      if (!here.lost()) apply(false, X_.view, C_.view);
    } else {
      apply(true, D, C_.view);
      if (!here.lost()) solve_triangle<S>(here.run, on_, false, R, C_.view.block(0, 0, R.rows, B.columns), X_.view);
    }
  }

  // The solution, as gels leaves it in B.
  void store(const matrix_view<S>& B) const {
    const std::vector<int> same(static_cast<std::size_t>(B.rows), 0);
    on_.copy_scaled(C_.view, B, same.data(), columns_.data());
    if (!under_) store_solution(B.block(0, 0, X_.view.rows, B.columns));
  }
  // X of an overdetermined system alone.
  void store_solution(const matrix_view<S>& X) const { on_.copy_scaled(X_.view, X, rows_.data(), columns_.data()); }

 private:
  // A scaled copy of the right-hand sides, if one is needed; columns_: the way back.
  owned<S> scale(operation_call<S>& here, const matrix_view<const S>& right) {
    const std::vector<int> same(static_cast<std::size_t>(right.rows), 0);
    const std::vector<int>& rows = under_ ? rows_ : same;
    owned<S> made;
    run::attempt(here.seen, here.run.how.protection, "qr.scale", 0, [&](int) {
      std::vector<int> found(columns_.size()), seen(columns_.size()), shifts(columns_.size());
      on_.exponents(right, false, rows.data(), found.data());
      on_.wait();
      const auto extreme = [](int e) { return std::abs(e) > abft::k_moderate_exponent<S>; };
      std::transform(found.begin(), found.end(), shifts.begin(), [&](int e) { return extreme(e) ? -e : 0; });
      std::transform(shifts.begin(), shifts.end(), columns_.begin(), [](int e) { return -e; });
      const auto zero = [](int e) { return e == 0; };
      if (std::all_of(rows.begin(), rows.end(), zero) && std::all_of(shifts.begin(), shifts.end(), zero)) {
        made = {};
        return abft::finding{};
      }
      made = owned<S>(on_, right.rows, right.columns);
      on_.copy_scaled(right, made.view, rows.data(), shifts.data());
      on_.exponents(made.view, false, same.data(), seen.data());
      on_.wait();
      // A column must not be scaled to nothing because its exponent was found wrong.
      abft::finding judged;
      for (std::size_t j = 0; j < seen.size(); ++j) {
        if (seen[j] != found[j] + shifts[j]) judged.word = abft::k_fail;
      }
      return judged;
    });
    return made;
  }

  engine<S>& on_;
  const bool under_;
  const std::vector<int> rows_;
  std::vector<int> columns_;
  const owned<S> C_, X_;  // under Q, and under R⁻¹
};

// Where the matrix does not fit: the width of its pieces; else 0.
template <class S>
index piece_width(const operation_call<S>& here, const void* operand, index rows, index columns) {
  const index width = here.on->resident_columns(operand, rows, columns);
  return width < columns ? width : 0;
}

bool in_host_memory(const void* operand) { return ballast::cuda::residence_of(operand) != ballast::cuda::residence::device; }

// In host memory.
template <class S>
void copy_on_host(const matrix_view<const S>& from, const matrix_view<S>& to) {
  for (index j = 0; j < to.columns; ++j) {
    if (from.row_stride == 1 && to.row_stride == 1) {
      std::copy_n(&from(0, j), to.rows, &to(0, j));
    } else {
      for (index i = 0; i < to.rows; ++i) to(i, j) = from(i, j);
    }
  }
}

// A matrix of the host whose pieces are columns without gaps between their elements: itself, or a copy.
template <class S>
class by_columns {
 public:
  by_columns(const matrix_view<const S>& v, bool copies) : view(v) {
    if (!copies && v.row_stride == 1) return;
    copy_ = matrix<S>(v.rows, v.columns, order::column_major);
    copy_on_host(v, copy_.view());
    view = std::as_const(copy_).view();
  }
  bool copied() const { return copy_.size() > 0; }
  matrix_view<S> copy() { return copy_.view(); }
  matrix_view<const S> view;

 private:
  matrix<S> copy_;
};

// Factors A in pieces. After an uncorrectable fault under protection::correct A is as before: it is made in a copy.
template <class S>
void factor_pieces(operation_call<S>& here, index width, const matrix_view<S>& A, S* tau) {
  by_columns<S> work(A, here.run.how.protection == protection::correct);
  pieces<S>(here.run, *here.on, A.rows, width).factor(here.scheme, work.copied() ? work.copy() : A, tau);
  if (!here.lost() && work.copied()) copy_on_host<S>(work.view, A);
}

// out ← op(Q) out in pieces, or the first columns of op(Q).
template <class S>
void apply_pieces(operation_call<S>& here, index width, const matrix_view<const S>& V, std::span<const S> tau, bool transposed, bool identity,
                  const matrix_view<S>& out) {
  const index count = static_cast<index>(tau.size());
  const by_columns<S> reflectors(V.block(0, 0, V.rows, count), false);
  matrix<S> made(out.rows, out.columns, order::column_major);
  if (!identity) copy_on_host<S>(out, made.view());
  pieces<S>(here.run, *here.on, V.rows, width)
      .apply(transposed, reflectors.view, count, here.on->read(tau).data(), {.view = std::as_const(made).view(), .identity = identity},
             made.view());
  if (!here.lost()) copy_on_host<S>(std::as_const(made).view(), out);
}

// Q of a matrix in pieces, applied in the host's memory.
template <class S>
auto by_pieces(pieces<S>& parts, const matrix_view<const S>& V, const S* tau) {
  return [&parts, V, tau](bool transposed, const matrix_view<const S>& X, const matrix_view<S>& to) {
    copy_on_host<S>(X, to.block(0, 0, X.rows, X.columns));
    for (index j = 0; j < to.columns; ++j) std::fill(&to(0, j) + X.rows, &to(0, j) + to.rows, S(0));
    parts.apply(transposed, V, V.columns, tau, {.view = to}, to);
  };
}

// gels of a matrix, or of what it is the transpose of, that passes in pieces. R is solved with by the host, where it lies: that reads it
// once.
template <class S>
void solve_pieces(operation_call<S>& here, index width, const matrix_view<S>& tall, bool under, const matrix_view<S>& B) {
  const index m = tall.rows, n = tall.columns;
  matrix<S> F(m, n, order::column_major);
  copy_on_host<S>(tall, F.view());
  const std::shared_ptr<S> tau = here.on->allocate(n);
  pieces<S> parts(here.run, *here.on, m, width);
  parts.factor(here.scheme, F.view(), tau.get());
  if (here.lost()) return;
  const matrix_view<const S> factors = std::as_const(F).view();
  const std::unique_ptr<engine<S>> near = host::make_engine<S>(here.run);
  const moderate<S> R(*near, factors.block(0, 0, n, n));
  check_rank(*near, R.view, here.token);
  const least_squares<S> solved(here, *near, by_pieces(parts, factors, tau.get()), m, R.view, R.shifts, under, B);
  if (here.lost()) return;
  copy_on_host<S>(factors, tall);
  solved.store(B);
}

// The first columns of Q into `out`; the reflectors are V's first columns, one for each tau. `out` may be V.
template <class S>
void form_q(operation_call<S>& here, const matrix_view<const S>& V, std::span<const S> tau, const matrix_view<S>& out) {
  engine<S>& on = *here.on;
  const placed<const S> reflectors(on, V.block(0, 0, V.rows, static_cast<index>(tau.size())));
  orthogonal_factor<S> Q(here.run, on, reflectors.view, tau.data());
  if (here.lost()) return;
  const owned<S> made(on, out.rows, out.columns);
  Q.apply(false, {.view = {}, .identity = true}, made.view);
  if (!here.lost()) on.copy(made.view, out);
  on.wait();
}

template <class S>
report geqrf_of(matrix_view<S> A, std::span<S> tau, const run::settings& how) {
  const std::string token = token_of<S>(A.rows, A.columns);
  check_view(A, "A", token);
  const index steps = std::min(A.rows, A.columns);
  check_tau(tau, steps, token);
  check_apart(A, column_major(tau.data(), steps, index{1}), "A and tau", token);
  operation_call<S> here(token, how, A.data, A.rows, A.columns);
  engine<S>& on = *here.on;
  if (const index width = piece_width(here, A.data, A.rows, A.columns); width > 0) {
    tau = on.write(tau);
    factor_pieces(here, width, A, tau.data());
    if (!here.lost()) on.commit();
    return here.seen.finish();
  }
  A = on.write(A);
  tau = on.write(tau);
  const placed<S> work(on, A);
  const matrix_view<const S> source = work.copied() ? matrix_view<const S>(A) : matrix_view<const S>{};
  factorization<S>(here.run, on, here.scheme, work.view, tau.data(), source).run();
  if (!here.lost()) {
    if (work.copied()) on.copy(work.view, A);
    on.wait();
    on.commit();
  }
  return here.seen.finish();
}

template <class S>
report ormqr_of(side where, transpose op, matrix_view<const S> A, std::span<const S> tau, matrix_view<S> C, const run::settings& how) {
  const index count = static_cast<index>(tau.size());
  const index order = where == side::left ? C.rows : C.columns;
  const std::string token = token_of<S>(A.rows, A.columns);
  check_view(A, "A", token, 0);
  check_view(C, "C", token);
  check_tau(tau, count, token);
  if (A.rows != order || A.columns < count || count > order)
    throw invalid_argument_error(fmt::format("{}: A: expected {} rows and {} columns or more for {} reflectors of C's {}, got {} × {}",
                                             token, order, count, count, where == side::left ? "rows" : "columns", A.rows, A.columns));
  check_apart(A, C, "A and C", token);
  operation_call<S> here(token, how, A.data, A.rows, A.columns);
  engine<S>& on = *here.on;
  // C op(Q) = (op(Q)ᵀ Cᵀ)ᵀ.
  const bool left = where == side::left, transposed = (op == transpose::yes) == left;
  const index others = left ? C.columns : C.rows;
  const index width = piece_width(here, A.data, order, std::max(count, others));
  if (width > 0 && in_host_memory(C.data)) {
    apply_pieces(here, width, A, tau, transposed, false, left ? C : C.transposed());
    return here.seen.finish();
  }
  A = on.read(A.block(0, 0, order, count));
  tau = on.read(tau);
  C = on.write(C);
  const placed<const S> V(on, A);
  orthogonal_factor<S> Q(here.run, on, V.view, tau.data());
  const matrix_view<S> operand = left ? C : C.transposed();
  if (!here.lost()) {
    const owned<S> made(on, order, operand.columns);
    Q.apply(transposed, {operand}, made.view);
    if (!here.lost()) {
      on.copy(made.view, operand);
      on.wait();
      on.commit();
    }
  }
  return here.seen.finish();
}

template <class S>
report orgqr_of(matrix_view<S> A, std::span<const S> tau, const run::settings& how) {
  const std::string token = token_of<S>(A.rows, A.columns);
  check_view(A, "A", token);
  const index count = static_cast<index>(tau.size());
  check_tau(tau, count, token);
  if (A.columns > A.rows || count > A.columns)
    throw invalid_argument_error(
        fmt::format("{}: A: expected {} ≤ columns ≤ rows for {} reflectors, got {} × {}", token, count, count, A.rows, A.columns));
  operation_call<S> here(token, how, A.data, A.rows, A.columns);
  engine<S>& on = *here.on;
  if (const index width = piece_width(here, A.data, A.rows, A.columns); width > 0) {
    apply_pieces<S>(here, width, A, tau, false, true, A);
    return here.seen.finish();
  }
  A = on.write(A);
  tau = on.read(tau);
  form_q<S>(here, A, tau, A);
  if (!here.lost()) on.commit();
  return here.seen.finish();
}

template <class S>
report gels_of(matrix_view<S> A, matrix_view<S> B, const run::settings& how) {
  const std::string token = token_of<S>(A.rows, A.columns);
  check_view(A, "A", token);
  check_view(B, "B", token);
  const index most = std::max(A.rows, A.columns);
  if (B.rows != most) throw invalid_argument_error(fmt::format("{}: B: expected max(m, n) = {} rows, got {}", token, most, B.rows));
  check_apart(A, B, "A and B", token);
  operation_call<S> here(token, how, A.data, A.rows, A.columns);
  engine<S>& on = *here.on;
  const bool under = A.rows < A.columns;
  if (const index width = piece_width(here, A.data, most, std::min(A.rows, A.columns)); width > 0 && in_host_memory(B.data)) {
    solve_pieces(here, width, under ? A.transposed() : A, under, B);
    return here.seen.finish();
  }
  write_both(on, A, B);
  // The factors of A, or of Aᵀ: made in a copy, so that nothing is committed until all is verified, and A is there to go back to.
  const matrix_view<S> tall = under ? A.transposed() : A;
  const index m = tall.rows, n = tall.columns;
  const owned<S> F(on, m, n);
  on.copy(tall, F.view);
  const std::shared_ptr<S> tau = on.allocate(n);
  factorization<S> made(here.run, on, here.scheme, F.view, tau.get(), tall);
  made.run(true);
  if (here.lost()) return here.seen.finish();
  check_rank(on, made.worked_r(), token);
  orthogonal_factor<S> Q(here.run, on, F.view, tau.get());
  if (here.lost()) return here.seen.finish();
  const auto apply = [&](bool transposed, const matrix_view<const S>& X, const matrix_view<S>& to) { Q.apply(transposed, {X}, to); };
  const least_squares<S> solved(here, on, apply, m, made.worked_r(), made.shifts(), under, B);
  if (!here.lost()) {
    on.copy(F.view, tall);
    solved.store(B);
    on.wait();
    on.commit();
  }
  return here.seen.finish();
}

template <class S>
factors<S> factor_of(matrix_view<const S> A, const run::settings& how) {
  const std::string token = token_of<S>(A.rows, A.columns);
  check_view(A, "A", token);
  operation_call<S> here(token, how, A.data, A.rows, A.columns);
  engine<S>& on = *here.on;
  factors<S> made;
  made.storage = matrix<S>(A.rows, A.columns, order::column_major);
  made.tau.resize(static_cast<std::size_t>(std::min(A.rows, A.columns)));
  if (const index width = piece_width(here, A.data, A.rows, A.columns); width > 0) {
    copy_on_host(A, made.storage.view());
    pieces<S>(here.run, on, A.rows, width).factor(here.scheme, made.storage.view(), on.write(std::span<S>(made.tau)).data());
    if (!here.lost()) on.commit();
    made.report = here.seen.finish();
    return made;
  }
  A = on.read(A);
  on.copy(A, made.storage.view());
  on.wait();
  const placed<S> work(on, made.storage.view());
  factorization<S>(here.run, on, here.scheme, work.view, on.write(std::span<S>(made.tau)).data(), A).run();
  if (work.copied()) on.copy(work.view, made.storage.view());
  on.wait();
  if (!here.lost()) on.commit();
  made.report = here.seen.finish();
  return made;
}

}  // namespace

report geqrf(matrix_view<float> A, std::span<float> tau, const run::settings& how) { return geqrf_of(A, tau, how); }
report geqrf(matrix_view<double> A, std::span<double> tau, const run::settings& how) { return geqrf_of(A, tau, how); }
report ormqr(side where, transpose op, matrix_view<const float> A, std::span<const float> tau, matrix_view<float> C, const run::settings& how) {
  return ormqr_of(where, op, A, tau, C, how);
}
report ormqr(side where, transpose op, matrix_view<const double> A, std::span<const double> tau, matrix_view<double> C,
             const run::settings& how) {
  return ormqr_of(where, op, A, tau, C, how);
}
report orgqr(matrix_view<float> A, std::span<const float> tau, const run::settings& how) { return orgqr_of(A, tau, how); }
report orgqr(matrix_view<double> A, std::span<const double> tau, const run::settings& how) { return orgqr_of(A, tau, how); }
report gels(matrix_view<float> A, matrix_view<float> B, const run::settings& how) { return gels_of(A, B, how); }
report gels(matrix_view<double> A, matrix_view<double> B, const run::settings& how) { return gels_of(A, B, how); }
factors<float> factor(matrix_view<const float> A, const run::settings& how) { return factor_of(A, how); }
factors<double> factor(matrix_view<const double> A, const run::settings& how) { return factor_of(A, how); }

// `storage` and `tau` are the caller's to change: every use of them looks again whether they belong together.
template <class T>
std::string token_of_whole(const factors<T>& these) {
  std::string token = token_of<T>(these.storage.rows(), these.storage.columns());
  check_view(these.storage.view(), "factors: storage", token);
  check_tau(std::span<const T>(these.tau), std::min(these.storage.rows(), these.storage.columns()), token);
  return token;
}

template <class T>
matrix<T> factors<T>::r() const {
  (void)token_of_whole(*this);
  matrix<T> made(std::min(storage.rows(), storage.columns()), storage.columns());
  for (index i = 0; i < made.rows(); ++i) {
    for (index j = i; j < made.columns(); ++j) made(i, j) = storage(i, j);
  }
  return made;
}

template <class T>
matrix<T> factors<T>::q(const run::settings& how, ballast::report* seen) const {
  const std::string token = token_of_whole(*this);
  const index m = storage.rows();
  operation_call<T> here(token, how, storage.data(), m, storage.columns());
  matrix<T> made(m, std::min(m, storage.columns()), order::column_major);
  if (const index width = piece_width(here, storage.data(), m, made.columns()); width > 0) {
    apply_pieces<T>(here, width, storage.view(), tau, false, true, made.view());
  } else {
    form_q<T>(here, storage.view(), here.on->read(std::span<const T>(tau)), made.view());
  }
  ballast::report all = here.seen.finish();
  if (seen != nullptr) *seen = std::move(all);
  return made;
}

template <class T>
matrix<T> factors<T>::solve(matrix_view<const T> B, const run::settings& how, ballast::report* seen) const {
  const std::string token = token_of_whole(*this);
  const index m = storage.rows(), n = storage.columns();
  check_view(B, "B", token);
  if (m < n) throw invalid_argument_error(fmt::format("{}: expected at least as many rows as columns, got {} × {}", token, m, n));
  if (B.rows != m) throw invalid_argument_error(fmt::format("{}: B: expected {} rows, got {}", token, m, B.rows));
  operation_call<T> here(token, how, storage.data(), m, n);
  engine<T>& on = *here.on;
  matrix<T> made(n, B.columns, order::column_major);
  const auto finish = [&] {
    ballast::report all = here.seen.finish();
    if (seen != nullptr) *seen = std::move(all);
    return std::move(made);
  };
  if (const index width = piece_width(here, storage.data(), m, n); width > 0 && in_host_memory(B.data)) {
    const by_columns<T> F(storage.view(), false);
    const std::unique_ptr<engine<T>> near = host::make_engine<T>(here.run);
    const moderate<T> R(*near, F.view.block(0, 0, n, n));
    check_rank(*near, R.view, token);
    pieces<T> parts(here.run, on, m, width);
    const auto apply = by_pieces<T>(parts, F.view, on.read(std::span<const T>(tau)).data());
    const least_squares<T> solved(here, *near, apply, m, R.view, R.shifts, false, B);
    if (!here.lost()) solved.store_solution(made.view());
    return finish();
  }
  const placed<const T> F(on, storage.view());
  const moderate<T> R(on, F.view.block(0, 0, n, n));
  check_rank(on, R.view, token);
  orthogonal_factor<T> Q(here.run, on, F.view, on.read(std::span<const T>(tau)).data());
  if (!here.lost()) {
    const auto apply = [&](bool transposed, const matrix_view<const T>& X, const matrix_view<T>& to) { Q.apply(transposed, {X}, to); };
    const least_squares<T> solved(here, on, apply, m, R.view, R.shifts, false, on.read(B));
    if (!here.lost()) solved.store_solution(made.view());
    on.wait();
  }
  return finish();
}

template class factors<float>;
template class factors<double>;

std::string to_token(const problem& value) {
  const std::string one = fmt::format("qr_{}_m{}_n{}", to_string(value.precision), value.m, value.n);
  return value.batch == 0 ? one : fmt::format("{}_b{}", one, value.batch);
}

problem parse_token(std::string_view text) {
  const auto refuse = [&] {
    return invalid_argument_error(fmt::format("token: expected qr_<f32|f64>_m<rows>_n<columns>[_b<matrices>], got \"{}\"", text));
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
  if (rest.starts_with("_b")) {
    take("_b");
    made.batch = number();
  }
  if (!rest.empty()) throw refuse();
  return made;
}

}  // namespace ballast::qr
