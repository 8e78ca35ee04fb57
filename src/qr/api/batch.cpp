// The public functions of QR for batches: arguments, choice of backend, the operations one behind the other.
// Layer: algorithm (driver). Backend-free. See include/ballast/qr.hpp.
#include "qr/batch.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "core/extent.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"
#include "inject/injector.hpp"
#include "qr/api/validation.hpp"
#include "qr/driver/factorization.hpp"
#include "run/dispatch.hpp"
#include "run/pending_report.hpp"

namespace ballast::qr {

namespace {

template <class S>
std::string token_of(const matrix_batch_view<S>& A) {
  return to_token({precision_of<std::remove_const_t<S>>, A.rows, A.columns, A.count});
}

// From the first element in memory to the last.
template <class S>
std::span<S> extent_of(const matrix_batch_view<S>& v) {
  const auto [first, elements] = core::extent_of(v);
  return {first, static_cast<std::size_t>(elements)};
}

template <class S>
void check_batch(const matrix_batch_view<S>& v, std::string_view name, const std::string& token, index count) {
  if (v.count < 1 || v.count != count)
    throw invalid_argument_error(fmt::format("{}: {}: expected {} matrices, got {}", token, name, std::max<index>(count, 1), v.count));
  check_view(v[0], name, token);
  index reach = 0;
  if (__builtin_mul_overflow(v.count - 1, v.stride, &reach) || __builtin_mul_overflow(reach, static_cast<index>(2 * sizeof(S)), &reach))
    throw invalid_argument_error(
        fmt::format("{}: {}: expected matrices within 63 bits of address, got a stride of {}", token, name, v.stride));
  if (!std::is_const_v<S> && v.count > 1 && v.stride == 0)
    throw invalid_argument_error(fmt::format("{}: {}: expected matrices apart in memory, got a stride of 0", token, name));
}

template <class S, class U>
void check_disjoint(std::span<S> a, std::span<U> b, std::string_view names, const std::string& token) {
  const auto* const a0 = reinterpret_cast<const char*>(a.data());
  const auto* const b0 = reinterpret_cast<const char*>(b.data());
  if (!a.empty() && !b.empty() && a0 < b0 + b.size_bytes() && b0 < a0 + a.size_bytes())
    throw invalid_argument_error(fmt::format("{}: expected {} apart in memory, got overlapping ones", token, names));
}

// What one call does, checked.
template <class S>
struct task {
  operation what = operation::geqrf;
  matrix_batch_view<S> A = {};
  matrix_batch_view<const S> V = {};  // of ormqr
  std::span<S> tau = {};
  std::span<const S> scalars = {};  // tau of ormqr, orgqr
  matrix_batch_view<S> C = {};      // or B
  side where = side::left;
  transpose op = transpose::no;
  std::string token = {};

  const void* operand() const { return what == operation::ormqr ? static_cast<const void*>(V.data) : A.data; }
  index rows() const { return what == operation::ormqr ? V.rows : A.rows; }
  index columns() const { return what == operation::ormqr ? V.columns : A.columns; }
  index count() const { return what == operation::ormqr ? C.count : A.count; }
  // The largest side that a backend sees.
  bool small() const {
    index most = std::max(rows(), columns());
    if (what == operation::ormqr) most = std::max({V.rows, C.rows, C.columns});
    return most <= k_batch_side;
  }
  // What the kernels of cuda must take: the matrix, or the one that Q is applied to.
  bool fits_cuda() const {
    if (what == operation::ormqr) return cuda::takes_batch(what, V.rows, 1);
    return cuda::takes_batch(what, rows(), columns());
  }
};

template <class S>
task<S> geqrf_task(const matrix_batch_view<S>& A, std::span<S> tau) {
  task<S> made{.what = operation::geqrf, .A = A, .tau = tau, .token = token_of(A)};
  check_batch(A, "A", made.token, A.count);
  check_tau(tau, std::min(A.rows, A.columns) * A.count, made.token);
  check_disjoint(extent_of(A), tau, "A and tau", made.token);
  return made;
}

template <class S>
task<S> ormqr_task(side where, transpose op, const matrix_batch_view<const S>& A, std::span<const S> tau, const matrix_batch_view<S>& C) {
  task<S> made{.what = operation::ormqr, .V = A, .scalars = tau, .C = C, .where = where, .op = op, .token = token_of(A)};
  check_batch(C, "C", made.token, C.count);
  check_batch(A, "A", made.token, C.count);
  const index order = where == side::left ? C.rows : C.columns, reflectors = static_cast<index>(tau.size()) / C.count;
  check_tau(tau, reflectors * C.count, made.token);
  if (A.rows != order || A.columns < reflectors || reflectors > order)
    throw invalid_argument_error(fmt::format("{}: A: expected {} rows and {} columns or more for {} reflectors of C's {}, got {} × {}",
                                             made.token, order, reflectors, reflectors, where == side::left ? "rows" : "columns", A.rows,
                                             A.columns));
  check_disjoint(extent_of(A), extent_of(C), "A and C", made.token);
  check_disjoint(extent_of(C), tau, "C and tau", made.token);
  made.V = A.block(0, 0, order, reflectors);
  return made;
}

template <class S>
task<S> orgqr_task(const matrix_batch_view<S>& A, std::span<const S> tau) {
  task<S> made{.what = operation::orgqr, .A = A, .scalars = tau, .token = token_of(A)};
  check_batch(A, "A", made.token, A.count);
  const index reflectors = static_cast<index>(tau.size()) / A.count;
  check_tau(tau, reflectors * A.count, made.token);
  if (A.columns > A.rows || reflectors > A.columns)
    throw invalid_argument_error(fmt::format("{}: A: expected {} ≤ columns ≤ rows for {} reflectors, got {} × {}", made.token, reflectors,
                                             reflectors, A.rows, A.columns));
  check_disjoint(extent_of(A), tau, "A and tau", made.token);
  return made;
}

template <class S>
task<S> gels_task(const matrix_batch_view<S>& A, const matrix_batch_view<S>& B) {
  task<S> made{.what = operation::gels, .A = A, .C = B, .token = token_of(A)};
  check_batch(A, "A", made.token, A.count);
  check_batch(B, "B", made.token, A.count);
  const index most = std::max(A.rows, A.columns);
  if (B.rows != most) throw invalid_argument_error(fmt::format("{}: B: expected max(m, n) = {} rows, got {}", made.token, most, B.rows));
  check_disjoint(extent_of(A), extent_of(B), "A and B", made.token);
  return made;
}

// As for one matrix (qr.cpp): cuda where there is one, unless the operands lie on the host and the cpu is done before they are copied.
template <class S>
backend choose_backend(const task<S>& work, const run::settings& how) {
  const backend best = run::choose_backend(how, work.token);
#if defined(BALLAST_HAS_CPU)
  if (how.backend != backend::automatic || best != backend::cuda) return best;
  const double large = static_cast<double>(std::max(work.rows(), work.columns()));
  const double small = static_cast<double>(std::min(work.rows(), work.columns())), count = static_cast<double>(work.count());
  if (how.faults == nullptr && ballast::cuda::residence_of(work.operand()) == ballast::cuda::residence::host &&
      run::copying_takes_longer({2 * count * large * small * sizeof(S), 2 * count * small * small * (large - small / 3), precision_of<S>,
                                 core::thread_count(how.threads)}))
    return backend::cpu;
#endif
  return best;
}

// Elements of scratch memory: tau of gels, or a copy of V.
template <class S>
index scratch_of(const task<S>& work) {
  if (work.what == operation::gels) return std::min(work.rows(), work.columns()) * work.count();
  if (work.what == operation::orgqr && cuda::batch_copies(work.rows(), work.columns())) return static_cast<index>(extent_of(work.A).size());
  return 0;
}

template <class S>
std::unique_ptr<batch_engine<S>> make_engine(const task<S>& work, const context& run) {
  if (run.which == backend::cuda) return cuda::make_batch_engine<S>(run, scratch_of(work));
  return host::make_batch_engine<S>(run);
}

// All of the work, in the engine's order.
template <class S>
void start(const task<S>& work, batch_engine<S>& on) {
  switch (work.what) {
    case operation::geqrf: {
      const matrix_batch_view<S> A = on.write(work.A);
      on.factor(A, on.write(work.tau).data());
      break;
    }
    case operation::ormqr: {
      const batch_factors<S> Q{on.read(work.V), on.read(work.scalars).data()};
      const matrix_batch_view<S> C = on.write(work.C);
      // C op(Q) = (op(Q)ᵀ Cᵀ)ᵀ.
      const matrix_batch_view<S> X = work.where == side::left ? C : C.transposed();
      on.apply(Q, (work.op == transpose::yes) == (work.where == side::left), X, X.rows, false);
      break;
    }
    case operation::orgqr: {
      const matrix_batch_view<S> A = on.write(work.A);
      const index reflectors = static_cast<index>(work.scalars.size()) / A.count;
      on.apply({A.block(0, 0, A.rows, reflectors), on.read(work.scalars).data()}, false, A, A.rows, true);
      break;
    }
    case operation::gels: {
      const matrix_batch_view<S> A = on.write(work.A), B = on.write(work.C);
      const bool under = A.rows < A.columns;
      const matrix_batch_view<S> tall = under ? A.transposed() : A;
      const index n = tall.columns;
      S* const tau = on.scratch(n * A.count);
      on.factor(tall, tau);
      const matrix_batch_view<S> top = B.block(0, 0, n, B.columns), R = tall.block(0, 0, n, n);
      if (under) {
        on.solve(R, true, top);
        on.apply({tall, tau}, false, B, n, false);
      } else {
        on.apply({tall, tau}, true, B, B.rows, false);
        on.solve(R, false, top);
      }
      break;
    }
  }
}

// One matrix after the other through the functions for one.
template <class S>
report one_by_one(const task<S>& work, const run::settings& how, backend which) {
  run::settings each = how;
  each.backend = which;
  each.throw_on_uncorrectable = false;
  each.on_event = {};
  std::optional<report> all;
  for (index b = 0; b < work.count(); ++b) {
    const auto part = [&](auto scalars) {
      const std::size_t own = scalars.size() / static_cast<std::size_t>(work.count());
      return scalars.subspan(static_cast<std::size_t>(b) * own, own);
    };
    report seen = [&] {
      switch (work.what) {
        case operation::geqrf: return geqrf(work.A[b], part(work.tau), each);
        case operation::ormqr: return ormqr(work.where, work.op, work.V[b], part(work.scalars), work.C[b], each);
        case operation::orgqr: return orgqr(work.A[b], part(work.scalars), each);
        default: return gels(work.A[b], work.C[b], each);
      }
    }();
    for (event& e : seen.events) {
      e.index = b;
      if (how.on_event) how.on_event(e);
    }
    if (all) {
      all->seconds += seen.seconds;
      all->merge(seen);
    } else {
      all = std::move(seen);
    }
  }
  all->problem = work.token;
  if (all->verdict == verdict::uncorrectable && how.throw_on_uncorrectable) throw uncorrectable_error(*all);
  return *all;
}

template <class S>
void refuse_singular(const task<S>& work, batch_engine<S>& on) {
  if (const index found = on.singular(); found >= 0)
    throw invalid_argument_error(fmt::format("{}: A: expected full rank, got a zero on the diagonal of R in column {} of matrix {}",
                                             work.token, found % k_batch_side, found / k_batch_side));
}

template <class S>
report run_batch(const task<S>& work, const run::settings& how) {
  const backend which = choose_backend(work, how);
  const auto scheme = run::choose_scheme(how, k_block_checksum, {k_block_checksum}, work.token);
  if (!work.small() || (which == backend::cuda && !work.fits_cuda())) return one_by_one(work, how, which);
  inject::active_injector injector(how.faults, "qr");
  run::recorder seen(work.token, which, std::string(scheme), how, injector);
  const context run{seen, injector, how, which, which == backend::reference ? 1 : core::thread_count(how.threads)};
  const std::unique_ptr<batch_engine<S>> on = make_engine(work, run);
  start(work, *on);
  on->collect(seen);
  on->commit();
  refuse_singular(work, *on);
  return seen.finish();
}

// The engine of an enqueued call, and what it says of matrices without full rank.
template <class S>
class flight final : public run::pending {
 public:
  flight(const task<S>& work, std::unique_ptr<batch_engine<S>> on) : work_(work), on_(std::move(on)) {}
  void collect(run::recorder& seen) override {
    on_->collect(seen);
    refuse_singular(work_, *on_);
  }

 private:
  task<S> work_;
  std::unique_ptr<batch_engine<S>> on_;
};

template <class S>
pending_report enqueue(const task<S>& work, const run::settings& how) {
  const backend which = run::choose_backend(how, work.token);
  const auto scheme = run::choose_scheme(how, k_block_checksum, {k_block_checksum}, work.token);
  if (which != backend::cuda)
    throw unsupported_error(fmt::format("{}: expected the cuda backend for enqueue, got {}", work.token, to_string(which)));
  if (!work.small() || !work.fits_cuda())
    throw unsupported_error(
        fmt::format("{}: expected matrices of up to {} rows and columns that the device's kernels take for enqueue, "
                    "got larger ones",
                    work.token, k_batch_side));
  const auto device = ballast::cuda::current_device();
  for (const void* operand : {work.operand(), static_cast<const void*>(work.C.data), static_cast<const void*>(work.tau.data()),
                              static_cast<const void*>(work.scalars.data())}) {
    if (operand != nullptr && !device->accessible(operand))
      throw invalid_argument_error(fmt::format("{}: expected operands in device memory, got a host pointer", work.token));
  }
  const auto kept = std::make_shared<const execution>(how);
  auto made = std::make_unique<pending_report::implementation>(pending_report::implementation{
      kept, *kept, work.token, which, std::string(scheme), inject::active_injector(kept->faults, "qr"), nullptr});
  run::recorder unused(work.token, which, std::string(scheme), *kept, made->injector);
  const context run{unused, made->injector, *kept, which, 1};
  std::unique_ptr<batch_engine<S>> on = make_engine(work, run);
  start(work, *on);
  made->work = std::make_unique<flight<S>>(work, std::move(on));
  return pending_report(std::move(made));
}

}  // namespace

#define BALLAST_INSTANTIATE(S)                                                                                                         \
  report geqrf(matrix_batch_view<S> A, std::span<S> tau, const run::settings& how) { return run_batch(geqrf_task(A, tau), how); }          \
  report ormqr(side where, transpose op, matrix_batch_view<const S> A, std::span<const S> tau, matrix_batch_view<S> C,                 \
               const run::settings& how) {                                                                                                 \
    return run_batch(ormqr_task(where, op, A, tau, C), how);                                                                           \
  }                                                                                                                                    \
  report orgqr(matrix_batch_view<S> A, std::span<const S> tau, const run::settings& how) { return run_batch(orgqr_task(A, tau), how); }    \
  report gels(matrix_batch_view<S> A, matrix_batch_view<S> B, const run::settings& how) { return run_batch(gels_task(A, B), how); }        \
  pending_report enqueue_geqrf(matrix_batch_view<S> A, std::span<S> tau, const run::settings& how) {                                       \
    return enqueue(geqrf_task(A, tau), how);                                                                                           \
  }                                                                                                                                    \
  pending_report enqueue_ormqr(side where, transpose op, matrix_batch_view<const S> A, std::span<const S> tau, matrix_batch_view<S> C, \
                               const run::settings& how) {                                                                                 \
    return enqueue(ormqr_task(where, op, A, tau, C), how);                                                                             \
  }                                                                                                                                    \
  pending_report enqueue_orgqr(matrix_batch_view<S> A, std::span<const S> tau, const run::settings& how) {                                 \
    return enqueue(orgqr_task(A, tau), how);                                                                                           \
  }                                                                                                                                    \
  pending_report enqueue_gels(matrix_batch_view<S> A, matrix_batch_view<S> B, const run::settings& how) {                                  \
    return enqueue(gels_task(A, B), how);                                                                                              \
  }
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)

std::int64_t workspace_bytes(operation what, const problem& value) {
  if (value.batch < 1 || value.m < 1 || value.n < 1 || std::max(value.m, value.n) > k_batch_side) return 0;
  if (!ballast::cuda::why_unavailable().empty() || !cuda::takes_batch(what, value.m, value.n)) return 0;
  index scratch = 0;
  if (what == operation::gels) scratch = std::min(value.m, value.n) * value.batch;
  if (what == operation::orgqr && cuda::batch_copies(value.m, value.n)) scratch = value.m * value.n * value.batch;
  return value.precision == precision::f32 ? cuda::batch_workspace<float>(scratch) : cuda::batch_workspace<double>(scratch);
}

}  // namespace ballast::qr
