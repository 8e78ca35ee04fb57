// The operations on batches: arguments, the batch engine's operations in order, or one matrix after the other.
// Layer: algorithm (driver), backend-free. See include/ballast/qr.hpp.
#include "qr/api/batch.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "core/extent.hpp"
#include "core/format.hpp"
#include "cuda/device/device.hpp"
#include "inject/injector.hpp"
#include "qr/api/operations.hpp"
#include "qr/api/validation.hpp"
#include "qr/batch.hpp"
#include "qr/driver/factorization.hpp"
#include "qr/sites.hpp"
#include "run/attempt.hpp"
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

template <class S>
batch_size size_of(const batch_task<S>& work) {
  return {work.rows(), work.what == operation::ormqr ? std::min<index>(work.columns(), k_batch_side) : work.columns(), work.count()};
}

// Returns true if the kernels of cuda take the batch.
template <class S>
bool kernels_take(const batch_task<S>& work) {
  if (!is_complex<S> && !is_small(work) && work.what == operation::ormqr && work.columns() > k_batch_side) return false;
  return cuda::takes_batch(work.what, size_of(work), sizeof(real_of<S>), is_complex<S>);
}

// Returns the elements of scratch memory: for tau of gels, or for a copy of V.
template <class S>
index scratch_of(const batch_task<S>& work) {
  if (work.what == operation::gels) return std::min(work.rows(), work.columns()) * work.count();
  if (work.what == operation::orgqr && cuda::batch_copies(work.rows(), work.columns(), sizeof(real_of<S>), is_complex<S>))
    return core::extent_of(work.A).elements;
  return 0;
}

template <class S>
std::unique_ptr<batch_engine<S>> make_batch_engine(const batch_task<S>& work, const context& run) {
  if (run.which == backend::cuda) return cuda::make_batch_engine<S>(run, work.what, size_of(work), scratch_of(work));
  return host::make_batch_engine<S>(run);
}

// Enqueues the three operations of gels. `tau`: for min(m, n) scalars of each matrix.
template <class S>
void start_gels(batch_engine<S>& on, const matrix_batch_view<S>& A, const matrix_batch_view<S>& B, S* tau) {
  // The factors of A, or of Aᴴ: for complex numbers `tall` then holds the conjugates.
  const bool under = A.rows < A.columns, conjugated = is_complex<S> && under;
  const matrix_batch_view<S> tall = under ? A.transposed() : A;
  const index n = tall.columns;
  on.factor(tall, tau, conjugated);
  const matrix_batch_view<S> top = B.block(0, 0, n, B.columns), R = tall.block(0, 0, n, n);
  if (under) {
    on.solve(R, true, top, conjugated);
    on.apply({tall, tau, conjugated}, false, B, n, false, false);
  } else {
    on.apply({tall, tau}, true, B, B.rows, false, false);
    on.solve(R, false, top, false);
  }
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
      start_gels(on, A, B, on.scratch(std::min(A.rows, A.columns) * A.count));
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

// The operands of gels of one matrix while the kernels for batches work on them in place: copies of what they held. Unless they are given
// up they get it back, at the latest when an exception ends the call.
template <class S>
class kept_operands {
 public:
  // `memory`: of the engine, for both copies.
  kept_operands(batch_engine<S>& on, run::recorder& seen, const batch_task<S>& work, const matrix_batch_view<S>& A,
                const matrix_batch_view<S>& B, S* memory)
      : on_(on),
        seen_(seen),
        A_(core::extent_of(A)),
        B_(core::extent_of(B)),
        kept_(memory),
        open_(A.data == work.A.data || B.data == work.C.data) {
    if (!open_) return;
    on_.copy(A_.first, kept_, A_.elements);
    on_.copy(B_.first, kept_ + A_.elements, B_.elements);
  }
  ~kept_operands() {
    try {
      restore();
    } catch (const std::exception&) {
      // The exception that ends the call says what became of the device.
    }
  }
  kept_operands(const kept_operands&) = delete;
  kept_operands& operator=(const kept_operands&) = delete;

  // The operands get their values back. Waits.
  void restore() {
    if (!std::exchange(open_, false)) return;
    on_.copy(kept_, A_.first, A_.elements);
    on_.copy(kept_ + A_.elements, B_.first, B_.elements);
    on_.collect(seen_);
  }
  void give_up() { open_ = false; }

 private:
  batch_engine<S>& on_;
  run::recorder& seen_;
  const core::extent<S> A_, B_;
  S* const kept_;
  bool open_;
};

// Returns whether the largest element of each column needs no power of two on its way through gels.
template <class S>
bool is_moderate(const matrix_view<const S>& X) {
  for (index j = 0; j < X.columns; ++j) {
    double most = 0;
    for (index i = 0; i < X.rows; ++i) {
      const double size = std::abs(static_cast<double>(X(i, j)));
      if (!(size <= most)) most = size;
    }
    if (most != 0 && !(std::isfinite(most) && abft::moderating_shift<S>(std::ilogb(most)) == 0)) return false;
  }
  return true;
}

// Returns the triangle of the factors of A, or of Aᵀ if m < n, contiguous, with zeros below the diagonal.
template <class S>
core::aligned_buffer<S> triangle_of(const matrix_view<S>& stored) {
  const matrix_view<S> tall = stored.rows < stored.columns ? stored.transposed() : stored;
  const index n = tall.columns;
  core::aligned_buffer<S> made(n * n);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < n; ++i) made[i + j * n] = i <= j ? tall(i, j) : S(0);
  }
  return made;
}

// Returns whether the operands of gels are apart in memory, small, and without other numbers between their elements.
template <class S>
bool has_small_operands(const batch_task<S>& work) {
  constexpr index most = 1 << 16;
  const core::extent<S> A = core::extent_of(work.A), B = core::extent_of(work.C);
  return B.elements > 0 && A.elements <= most + most / 2 && B.elements <= most && A.elements == work.A.rows * work.A.columns &&
         B.elements == work.C.rows * work.C.columns && !overlap(A, B);
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

namespace {

// The numbers of the two enumerations agree.
counted counted_as(operation what) {
  static_assert(static_cast<int>(counted::gels) == static_cast<int>(operation::gels));
  return static_cast<counted>(what);
}

}  // namespace

template <class S>
report run_batch(const batch_task<S>& work, const call& now) {
  const prepared& plan = work.plan;
  check_batch_scheme(plan);
  return run::in_call(&plan.memory, plan.where.device, plan.token, [&] {
    run::settings how = plan.settings_for(now);
    const backend which = plan.backend_for(work.operand(), how);
    if (which == backend::cuda) ballast::cuda::refuse_capture(how.stream, plan.token);
    plan.count(counted_as(work.what), how);
    const bool together = which == backend::cuda ? kernels_take(work) : is_small(work);
    if (!together || needs_conjugates(work, which)) return one_by_one(work, how, which);
    return in_one_go(work, how, which);
  });
}

template <class S>
std::optional<report> run_as_batch(const batch_task<S>& work, const call& now) {
  const prepared& plan = work.plan;
  if (plan.backend != backend::cuda) return std::nullopt;
  if constexpr (is_complex<S>) {
    if (work.what == operation::ormqr && overlap(core::extent_of(work.V), core::extent_of(work.C))) return std::nullopt;
    if (!plan.where.scheme.empty()) return std::nullopt;
    return run::in_call(&plan.memory, plan.where.device, plan.token, [&]() -> std::optional<report> {
      if (!kernels_take(work)) return std::nullopt;
      run::settings how = plan.settings_for(now);
      ballast::cuda::refuse_capture(how.stream, plan.token);
      plan.count(counted_as(work.what), how);
      how.workspace = {};
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
    if (work.what != operation::geqrf && cuda::batch_copies(left ? C.rows : C.columns, left ? C.columns : C.rows, sizeof(S), false))
      return std::nullopt;
    ballast::cuda::refuse_capture(how.stream, plan.token);
    plan.count(counted_as(work.what), how);
    how.workspace = {};
    return in_one_go(work, how, backend::cuda);
  });
}

template <class S>
std::optional<rank_estimate> gels_in_place(operation_call<S>& here, const batch_task<S>& work) {
  const prepared& plan = here.plan;
  if (here.run.which != backend::cuda || !plan.where.scheme.empty() || !is_small(work) || !has_small_operands(work)) return std::nullopt;
  if (here.how.faults != nullptr || here.how.on_progress || !kernels_take(work)) return std::nullopt;
  run::settings how = here.how;
  how.workspace = {};
  run::recorder& seen = here.seen;
  const context run{seen, here.injector, how, backend::cuda, plan.threads, false, false, plan.device.get()};
  const core::extent<S> of_A = core::extent_of(work.A), of_B = core::extent_of(work.C);
  const index n = std::min(work.A.rows, work.A.columns), scratch = n + of_A.elements + of_B.elements;
  const std::unique_ptr<batch_engine<S>> on = cuda::make_batch_engine<S>(run, work.what, size_of(work), scratch);
  const matrix_batch_view<S> A = on->write(work.A), B = on->write(work.C);
  core::aligned_buffer<S> right(of_B.elements), factors(of_A.elements), again(of_A.elements);
  on->copy(core::extent_of(B).first, right.data(), of_B.elements);
  S* const tau = on->scratch(scratch);
  kept_operands<S> kept(*on, seen, work, A, B, tau + n);
  start_gels(*on, A, B, tau);
  // The factors are read twice: a number that changes on its way must not refuse a matrix, nor let one pass.
  run::attempt(seen, how.protection, "qr.store", 0, [&](int) {
    abft::finding judged;
    on->copy(core::extent_of(A).first, factors.data(), of_A.elements);
    if (how.protection != protection::off) on->copy(core::extent_of(A).first, again.data(), of_A.elements);
    on->collect(seen);
    if (how.protection != protection::off && std::memcmp(factors.data(), again.data(), static_cast<std::size_t>(of_A.bytes())) != 0)
      judged.word = abft::k_fail;
    return judged;
  });
  rank_estimate found;
  if (!here.lost()) {
    const core::aligned_buffer<S> triangle = triangle_of<S>(core::in_copy(work.A, factors.data())[0]);
    const matrix_view<const S> R = column_major(triangle.data(), n, n, n);
    const matrix_view<const S> given = matrix_view<S>(core::in_copy(work.C, right.data())[0]);
    if (!is_moderate<S>(R) || !is_moderate<S>(given.block(0, 0, work.A.rows, given.columns))) {
      kept.restore();
      return std::nullopt;
    }
    found = estimate_rank<S>(run, *host::make_engine<S>(run), R);
  }
  if (here.lost() || !found.full()) {
    kept.restore();
  } else {
    kept.give_up();
    on->commit();
  }
  return found;
}

template <class S>
bool has_kernels([[maybe_unused]] const operation_call<S>& here, [[maybe_unused]] operation what, [[maybe_unused]] index rows,
                 [[maybe_unused]] index columns) {
  if constexpr (is_complex<S>)
    return here.run.which == backend::cuda && here.plan.where.scheme.empty() &&
           cuda::takes_batch(what, {rows, columns, 1}, sizeof(real_of<S>), true);
  return false;
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
  const std::unique_ptr<batch_engine<S>> on = cuda::make_batch_engine<S>(here.run, operation::ormqr, {F.rows, F.columns, 1}, 0);
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
    if (!kernels_take(work))
      throw unsupported_error(
          fmt::format("{}: expected matrices of up to {} columns that the device's kernels for batches take for enqueue, got larger ones",
                      plan.token.view(), k_batch_side));
    const auto device = ballast::cuda::current_device();
    for (const void* operand : {work.operand(), static_cast<const void*>(work.C.data), static_cast<const void*>(work.tau.data()),
                                static_cast<const void*>(work.scalars.data())}) {
      if (operand != nullptr && !device->accessible(operand))
        throw invalid_argument_error(fmt::format("{}: expected operands in device memory, got a host pointer", plan.token.view()));
    }
    run::settings how = plan.settings_for(now);
    plan.count(counted_as(work.what), how);
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

namespace {

template <class S>
std::int64_t workspace_of(const qr::problem& size, operation what) {
  const batch_size all{size.rows, what == operation::ormqr ? std::min<index>(size.columns, k_batch_side) : size.columns, size.batch};
  if (!cuda::takes_batch(what, all, sizeof(real_of<S>), is_complex<S>)) return 0;
  index scratch = 0;
  if (what == operation::gels) scratch = std::min(size.rows, size.columns) * size.batch;
  if (what == operation::orgqr && cuda::batch_copies(size.rows, size.columns, sizeof(real_of<S>), is_complex<S>))
    scratch = size.rows * size.columns * size.batch;
  return cuda::batch_workspace<S>(what, all, scratch);
}

}  // namespace

std::int64_t batch_workspace_bytes(const prepared& plan, operation what) {
  const qr::problem& size = plan.problem;
  if (plan.backend != backend::cuda) return 0;
  const bool single = size.precision == precision::f32;
  return run::in_call(&plan.memory, plan.where.device, plan.token, [&]() -> std::int64_t {
    if (size.complex) return single ? workspace_of<std::complex<float>>(size, what) : workspace_of<std::complex<double>>(size, what);
    return single ? workspace_of<float>(size, what) : workspace_of<double>(size, what);
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
  template bool has_kernels<S>(const operation_call<S>&, operation, index, index);                                              \
  template void compute_by_kernels<S>(operation_call<S>&, const batch_task<S>&);                                                \
  template void solve_by_kernels<S>(operation_call<S>&, matrix_view<const S>, std::span<const S>, matrix_view<S>);              \
  template pending_report enqueue_batch<S>(const std::shared_ptr<const prepared>&, const batch_task<S>&, const call&);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE
template std::optional<rank_estimate> gels_in_place<float>(operation_call<float>&, const batch_task<float>&);
template std::optional<rank_estimate> gels_in_place<double>(operation_call<double>&, const batch_task<double>&);

}  // namespace ballast::qr
