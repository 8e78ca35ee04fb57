// The operations on batches: arguments, the batch engine's operations in order, or one matrix after the other.
// Layer: algorithm (driver), backend-free. See include/ballast/qr.hpp.
#include "qr/api/batch.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/extent.hpp"
#include "core/format.hpp"
#include "cuda/device/device.hpp"
#include "inject/injector.hpp"
#include "qr/api/operations.hpp"
#include "qr/api/validation.hpp"
#include "qr/batch.hpp"
#include "qr/driver/factorization.hpp"
#include "qr/sites.hpp"
#include "run/call_scope.hpp"
#include "run/pending_report.hpp"

namespace ballast::qr {

namespace {

template <class S>
void check_batch(const matrix_batch_view<S>& v, std::string_view name, std::string_view token, index count) {
  if (v.count < 1 || v.count != count)
    throw invalid_argument_error(fmt::format("{}: {}: expected {} matrices, got {}", token, name, std::max<index>(count, 1), v.count));
  check_view(v[0], name, token);
  if (!core::extent_fits(v))
    throw invalid_argument_error(
        fmt::format("{}: {}: expected matrices within 63 bits of address, got a stride of {}", token, name, v.stride));
  if (!std::is_const_v<S> && v.count > 1 && v.stride == 0)
    throw invalid_argument_error(fmt::format("{}: {}: expected matrices apart in memory, got a stride of 0", token, name));
}

template <class S, class U>
void check_disjoint(std::span<S> a, std::span<U> b, std::string_view names, std::string_view token) {
  const auto* const a0 = reinterpret_cast<const char*>(a.data());
  const auto* const b0 = reinterpret_cast<const char*>(b.data());
  if (!a.empty() && !b.empty() && a0 < b0 + b.size_bytes() && b0 < a0 + a.size_bytes())
    throw invalid_argument_error(fmt::format("{}: expected {} apart in memory, got overlapping ones", token, names));
}

template <class S>
bool is_small(const batch_task<S>& work) {
  index most = std::max(work.rows(), work.columns());
  if (work.what == operation::ormqr) most = std::max({work.V.rows, work.C.rows, work.C.columns});
  return most <= k_batch_side;
}

// Returns true if the operation needs conjugates, which the host's kernels for batches do not make.
template <class S>
bool needs_conjugates(const batch_task<S>& work, backend which) {
  return is_complex<S> && which != backend::cuda &&
         ((work.what == operation::ormqr && work.from == side::right) || (work.what == operation::gels && work.A.rows < work.A.columns));
}

// Returns true if the kernels of cuda handle the matrix, or the one that Q is applied to.
template <class S>
bool kernels_take(const batch_task<S>& work) {
  return cuda::takes_batch(work.what, work.rows(), work.what == operation::ormqr ? 1 : work.columns(), is_complex<S>);
}

// Complex matrices on cuda have no other way than the kernels for batches.
template <class S>
void check_kernels_take(const batch_task<S>& work, std::string_view token) {
  if (work.what != operation::ormqr ? is_small(work) && kernels_take(work) : work.V.rows <= k_batch_side && kernels_take(work)) return;
  throw unsupported_error(fmt::format(
      "{}: expected complex matrices of up to {} rows and columns that the kernels of this device take for backend cuda, got {} × {}; the "
      "backends cpu and reference take all",
      token, k_batch_side, work.rows(), work.columns()));
}

// Returns the elements of scratch memory: for tau of gels, or for a copy of V.
template <class S>
index scratch_of(const batch_task<S>& work) {
  if (work.what == operation::gels) return std::min(work.rows(), work.columns()) * work.count();
  if (work.what == operation::orgqr && cuda::batch_copies(work.rows(), work.columns(), is_complex<S>))
    return core::extent_of(work.A).elements;
  return 0;
}

template <class S>
std::unique_ptr<batch_engine<S>> make_batch_engine(const batch_task<S>& work, const context& run) {
  if (run.which == backend::cuda) return cuda::make_batch_engine<S>(run, work.what, scratch_of(work));
  return host::make_batch_engine<S>(run);
}

// Enqueues all operations in order.
template <class S>
void start_batch(const batch_task<S>& work, batch_engine<S>& on) {
  switch (work.what) {
    case operation::geqrf: {
      const matrix_batch_view<S> A = on.write(work.A);
      on.factor(A, on.write(work.tau).data(), false);
      break;
    }
    case operation::ormqr: {
      const batch_factors<S> Q{on.read(work.V), on.read(work.scalars).data()};
      const matrix_batch_view<S> C = on.write(work.C);
      // C op(Q) = (op(Q)ᴴ Cᴴ)ᴴ.
      const bool left = work.from == side::left;
      const matrix_batch_view<S> X = left ? C : C.transposed();
      on.apply(Q, (work.op == transpose::yes) == left, X, X.rows, false, is_complex<S> && !left);
      break;
    }
    case operation::orgqr: {
      const matrix_batch_view<S> A = on.write(work.A);
      const index reflectors = static_cast<index>(work.scalars.size()) / A.count;
      on.apply({A.block(0, 0, A.rows, reflectors), on.read(work.scalars).data()}, false, A, A.rows, true, false);
      break;
    }
    case operation::gels: {
      const matrix_batch_view<S> A = on.write(work.A), B = on.write(work.C);
      // The factors of A, or of Aᴴ: for complex numbers `tall` then holds the conjugates.
      const bool under = A.rows < A.columns, conjugated = is_complex<S> && under;
      const matrix_batch_view<S> tall = under ? A.transposed() : A;
      const index n = tall.columns;
      S* const tau = on.scratch(n * A.count);
      on.factor(tall, tau, conjugated);
      const matrix_batch_view<S> top = B.block(0, 0, n, B.columns), R = tall.block(0, 0, n, n);
      if (under) {
        on.solve(R, true, top, conjugated);
        on.apply({tall, tau, conjugated}, false, B, n, false, false);
      } else {
        on.apply({tall, tau}, true, B, B.rows, false, false);
        on.solve(R, false, top, false);
      }
      break;
    }
  }
}

// The message about matrix `b`, whose column `column` depends on the columns before it.
std::string singular_text(std::string_view token, index column, index b) {
  return fmt::format("{}: A: expected full rank, got column {} of matrix {} that depends on the others to rounding", token, column, b);
}

// Computes one matrix after the other by the operations on one.
template <class S>
report one_by_one(const batch_task<S>& work, const run::settings& how, backend which) {
  run::settings each = how;
  each.throw_on_uncorrectable = false;
  each.on_event = {};
  report all;
  index singular = -1, singular_column = 0;  // the first matrix without full rank
  for (index b = 0; b < work.count(); ++b) {
    const auto part = [&](auto scalars) {
      const std::size_t own = scalars.size() / static_cast<std::size_t>(work.count());
      return scalars.subspan(static_cast<std::size_t>(b) * own, own);
    };
    operation_call<S> here(work.plan, each, which);
    switch (work.what) {
      case operation::geqrf: geqrf_in(here, work.A[b], part(work.tau)); break;
      case operation::ormqr: ormqr_in(here, work.from, work.op, work.V[b], part(work.scalars), work.C[b]); break;
      case operation::orgqr: orgqr_in(here, work.A[b], part(work.scalars)); break;
      case operation::gels:
        if (const rank_estimate seen = gels_in(here, work.A[b], work.C[b]); !here.lost()) {
          here.seen.conditioned(seen.condition);
          if (!seen.full() && singular < 0) {
            singular = b;
            singular_column = seen.dependent;
          }
        }
        break;
    }
    report seen = here.seen.finish();
    for (event& e : seen.events) {
      e.index = b;
      if (how.on_event) how.on_event(e);
    }
    if (b == 0) {
      all = std::move(seen);
    } else {
      all.seconds += seen.seconds;
      all.merge(seen);
    }
  }
  if (singular >= 0) throw rank_deficient_error(singular_text(work.plan.token, singular_column, singular));
  if (all.verdict == verdict::uncorrectable && how.throw_on_uncorrectable) throw uncorrectable_error(std::move(all));
  return all;
}

template <class S>
void refuse_singular(batch_engine<S>& on, std::string_view token) {
  if (const index found = on.singular(); found >= 0)
    throw rank_deficient_error(singular_text(token, found % k_batch_side, found / k_batch_side));
}

// Computes all matrices by the kernels for batches.
template <class S>
report in_one_go(const batch_task<S>& work, const run::settings& how, backend which) {
  const prepared& plan = work.plan;
  inject::active_injector injector(how.faults, site::table());
  run::recorder seen(plan.token, which, plan.scheme, how, injector);
  const int threads = which == backend::reference ? 1 : plan.threads;
  const context run{seen, injector, how, which, threads, false, false, plan.device.get()};
  const std::unique_ptr<batch_engine<S>> on = make_batch_engine(work, run);
  start_batch(work, *on);
  on->collect(seen);
  on->commit();
  refuse_singular(*on, plan.token);
  return seen.finish();
}

// The engine of an enqueued call.
template <class S>
class flight final : public run::pending {
 public:
  flight(shared_text token, std::unique_ptr<batch_engine<S>> on) : token_(std::move(token)), on_(std::move(on)) {}
  void collect(run::recorder& seen) override {
    on_->collect(seen);
    refuse_singular(*on_, token_);
  }

 private:
  shared_text token_;
  std::unique_ptr<batch_engine<S>> on_;
};

void check_batch_scheme(const prepared& plan) {
  if (plan.scheme != k_block_checksum)
    throw unsupported_error(
        fmt::format("{}: scheme: expected {} for a batch, got {}", plan.token.view(), k_block_checksum, plan.scheme.view()));
}

}  // namespace

template <class S>
batch_task<S> geqrf_task(const prepared& plan, const matrix_batch_view<S>& A, std::span<S> tau) {
  batch_task<S> made{.plan = plan, .what = operation::geqrf, .A = A, .tau = tau};
  const std::string_view token = plan.token;
  check_batch(A, "A", token, A.count);
  check_tau(tau, std::min(A.rows, A.columns) * A.count, token);
  check_disjoint(core::extent_of(A).span(), tau, "A and tau", token);
  return made;
}

template <class S>
batch_task<S> ormqr_task(const prepared& plan, side from, transpose op, const matrix_batch_view<const S>& A, std::span<const S> tau,
                         const matrix_batch_view<S>& C) {
  batch_task<S> made{.plan = plan, .what = operation::ormqr, .V = A, .scalars = tau, .C = C, .from = from, .op = op};
  const std::string_view token = plan.token;
  check_batch(C, "C", token, C.count);
  check_batch(A, "A", token, C.count);
  const index order = from == side::left ? C.rows : C.columns, reflectors = static_cast<index>(tau.size()) / C.count;
  check_tau(tau, reflectors * C.count, token);
  if (A.rows != order || A.columns < reflectors || reflectors > order)
    throw invalid_argument_error(fmt::format("{}: A: expected {} rows and {} columns or more for {} reflectors of C's {}, got {} × {}",
                                             token, order, reflectors, reflectors, from == side::left ? "rows" : "columns", A.rows,
                                             A.columns));
  check_disjoint(core::extent_of(A).span(), core::extent_of(C).span(), "A and C", token);
  check_disjoint(core::extent_of(C).span(), tau, "C and tau", token);
  made.V = A.block(0, 0, order, reflectors);
  return made;
}

template <class S>
batch_task<S> orgqr_task(const prepared& plan, const matrix_batch_view<S>& A, std::span<const S> tau) {
  batch_task<S> made{.plan = plan, .what = operation::orgqr, .A = A, .scalars = tau};
  const std::string_view token = plan.token;
  check_batch(A, "A", token, A.count);
  const index reflectors = static_cast<index>(tau.size()) / A.count;
  check_tau(tau, reflectors * A.count, token);
  if (A.columns > A.rows || reflectors > A.columns)
    throw invalid_argument_error(fmt::format("{}: A: expected {} ≤ columns ≤ rows for {} reflectors, got {} × {}", token, reflectors,
                                             reflectors, A.rows, A.columns));
  check_disjoint(core::extent_of(A).span(), tau, "A and tau", token);
  return made;
}

template <class S>
batch_task<S> gels_task(const prepared& plan, const matrix_batch_view<S>& A, const matrix_batch_view<S>& B) {
  batch_task<S> made{.plan = plan, .what = operation::gels, .A = A, .C = B};
  const std::string_view token = plan.token;
  check_batch(A, "A", token, A.count);
  check_batch(B, "B", token, A.count);
  const index most = std::max(A.rows, A.columns);
  if (B.rows != most) throw invalid_argument_error(fmt::format("{}: B: expected max(m, n) = {} rows, got {}", token, most, B.rows));
  check_disjoint(core::extent_of(A).span(), core::extent_of(B).span(), "A and B", token);
  return made;
}

template <class S>
report run_batch(const batch_task<S>& work, const call& now) {
  const prepared& plan = work.plan;
  check_batch_scheme(plan);
  return run::in_call(&plan.memory, plan.where.device, plan.token, [&] {
    const run::settings how = plan.settings_for(now);
    const backend which = plan.backend_for(work.operand(), how);
    if (which == backend::cuda) ballast::cuda::refuse_capture(how.stream, plan.token);
    if (is_complex<S> && which == backend::cuda) {
      check_kernels_take(work, plan.token);
      return in_one_go(work, how, which);
    }
    if (!is_small(work) || needs_conjugates(work, which) || (which == backend::cuda && !kernels_take(work)))
      return one_by_one(work, how, which);
    return in_one_go(work, how, which);
  });
}

template <class S>
std::optional<report> run_as_batch(const batch_task<S>& work, const call& now) {
  const prepared& plan = work.plan;
  if (plan.backend != backend::cuda) return std::nullopt;
  if constexpr (is_complex<S>) {
    // There is no engine for one complex matrix.
    if (work.what == operation::ormqr && overlap(core::extent_of(work.V), core::extent_of(work.C)))
      throw unsupported_error(fmt::format(
          "{}: expected A and C in separate memory for complex numbers on backend cuda, got interleaved ones", plan.token.view()));
    run::settings how = plan.settings_for(now);
    how.workspace = {};
    return run::in_call(&plan.memory, plan.where.device, plan.token, [&] {
      check_kernels_take(work, plan.token);
      ballast::cuda::refuse_capture(how.stream, plan.token);
      return in_one_go(work, how, backend::cuda);
    });
  }
  if (!plan.where.scheme.empty() || !is_small(work)) return std::nullopt;
  if (work.tau.empty() && work.scalars.empty()) return std::nullopt;  // no reflector
  if (work.what == operation::ormqr && overlap(core::extent_of(work.V), core::extent_of(work.C))) return std::nullopt;
  // The result of one team is stored as a whole or not at all.
  const matrix_batch_view<S>& C = work.what == operation::orgqr ? work.A : work.C;
  const bool left = work.what == operation::orgqr || work.from == side::left;
  return run::in_call(&plan.memory, plan.where.device, plan.token, [&]() -> std::optional<report> {
    run::settings how = plan.settings_for(now);
    if (how.faults != nullptr || how.on_progress || plan.backend_for(work.operand(), how) != backend::cuda || !kernels_take(work))
      return std::nullopt;
    if (work.what != operation::geqrf && cuda::batch_copies(left ? C.rows : C.columns, left ? C.columns : C.rows, false))
      return std::nullopt;
    ballast::cuda::refuse_capture(how.stream, plan.token);
    how.workspace = {};
    return in_one_go(work, how, backend::cuda);
  });
}

template <class S>
void compute_by_kernels(operation_call<S>& here, const batch_task<S>& work) {
  const std::unique_ptr<batch_engine<S>> on = make_batch_engine(work, here.run);
  start_batch(work, *on);
  on->collect(here.seen);
  if (!here.lost()) on->commit();
}

template <class S>
void solve_by_kernels(operation_call<S>& here, matrix_view<const S> F, std::span<const S> tau, matrix_view<S> X) {
  const std::unique_ptr<batch_engine<S>> on = cuda::make_batch_engine<S>(here.run, operation::ormqr, 0);
  const matrix_batch_view<const S> V = on->read(batch_of(F, 1));
  const matrix_batch_view<S> C = on->write(batch_of(X, 1));
  const index n = F.columns;
  on->apply({V, on->read(tau).data()}, true, C, C.rows, false, false);
  on->solve(V.block(0, 0, n, n), false, C.block(0, 0, n, C.columns), false);
  on->collect(here.seen);
  if (!here.lost()) on->commit();
}

template <class S>
pending_report enqueue_batch(const std::shared_ptr<const prepared>& owner, const batch_task<S>& work, const call& now) {
  const prepared& plan = *owner;
  check_batch_scheme(plan);
  if (plan.backend != backend::cuda)
    throw unsupported_error(fmt::format("{}: expected the cuda backend for enqueue, got {}", plan.token.view(), to_string(plan.backend)));
  return run::in_call(&plan.memory, plan.where.device, plan.token, [&] {
    if (!is_small(work) || !kernels_take(work))
      throw unsupported_error(
          fmt::format("{}: expected matrices of up to {} rows and columns that the device's kernels take for enqueue, got larger ones",
                      plan.token.view(), k_batch_side));
    const auto device = ballast::cuda::current_device();
    for (const void* operand : {work.operand(), static_cast<const void*>(work.C.data), static_cast<const void*>(work.tau.data()),
                                static_cast<const void*>(work.scalars.data())}) {
      if (operand != nullptr && !device->accessible(operand))
        throw invalid_argument_error(fmt::format("{}: expected operands in device memory, got a host pointer", plan.token.view()));
    }
    const run::settings how = plan.settings_for(now);
    auto made = std::unique_ptr<pending_report::implementation>(new pending_report::implementation{
        {}, owner, how, plan.token, plan.backend, plan.scheme, inject::active_injector(how.faults, site::table()), nullptr});
    run::recorder unused(plan.token, plan.backend, plan.scheme, made->how, made->injector);
    const context run{unused, made->injector, made->how, plan.backend, 1, false, false, plan.device.get()};
    std::unique_ptr<batch_engine<S>> on = make_batch_engine(work, run);
    start_batch(work, *on);
    made->work = std::make_unique<flight<S>>(plan.token, std::move(on));
    return pending_report(std::move(made));
  });
}

std::int64_t batch_workspace_bytes(const prepared& plan, operation what) {
  const qr::problem& size = plan.problem;
  if (plan.backend != backend::cuda || std::max(size.rows, size.columns) > k_batch_side) return 0;
  return run::in_call(&plan.memory, plan.where.device, plan.token, [&]() -> std::int64_t {
    if (!cuda::takes_batch(what, size.rows, what == operation::ormqr ? 1 : size.columns, size.complex)) return 0;
    index scratch = 0;
    if (what == operation::gels) scratch = std::min(size.rows, size.columns) * size.batch;
    if (what == operation::orgqr && cuda::batch_copies(size.rows, size.columns, size.complex))
      scratch = size.rows * size.columns * size.batch;
    if (size.complex) scratch *= 2;  // in components
    return size.precision == precision::f32 ? cuda::batch_workspace<float>(scratch) : cuda::batch_workspace<double>(scratch);
  });
}

#define BALLAST_INSTANTIATE(S)                                                                                                  \
  template batch_task<S> geqrf_task<S>(const prepared&, const matrix_batch_view<S>&, std::span<S>);                             \
  template batch_task<S> ormqr_task<S>(const prepared&, side, transpose, const matrix_batch_view<const S>&, std::span<const S>, \
                                       const matrix_batch_view<S>&);                                                            \
  template batch_task<S> orgqr_task<S>(const prepared&, const matrix_batch_view<S>&, std::span<const S>);                       \
  template batch_task<S> gels_task<S>(const prepared&, const matrix_batch_view<S>&, const matrix_batch_view<S>&);               \
  template report run_batch<S>(const batch_task<S>&, const call&);                                                              \
  template std::optional<report> run_as_batch<S>(const batch_task<S>&, const call&);                                            \
  template void compute_by_kernels<S>(operation_call<S>&, const batch_task<S>&);                                                \
  template void solve_by_kernels<S>(operation_call<S>&, matrix_view<const S>, std::span<const S>, matrix_view<S>);              \
  template pending_report enqueue_batch<S>(const std::shared_ptr<const prepared>&, const batch_task<S>&, const call&);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr
