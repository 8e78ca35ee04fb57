// One call of an operation on one matrix: its recorder, injector and engine, and operands in the engine's memory.
// Layer: algorithm (driver), backend-free.
#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include <ballast/error.hpp>

#include "core/aligned_buffer.hpp"
#include "core/format.hpp"
#include "cuda/call/capture.hpp"
#include "inject/injector.hpp"
#include "qr/api/plan.hpp"
#include "qr/api/validation.hpp"
#include "qr/contract.hpp"
#include "qr/driver/application.hpp"
#include "qr/driver/factorization.hpp"
#include "qr/sites.hpp"
#include "run/call_scope.hpp"

namespace ballast::qr {

// The engine of a call, made when it is first used: what the kernels for batches do needs none.
template <class S>
class engine_on_demand {
 public:
  explicit engine_on_demand(const context& run) : run_(run) {}
  engine<S>& operator*() const {
    if (made_ == nullptr) made_ = make_engine<S>(run_);
    return *made_;
  }
  engine<S>* operator->() const { return &**this; }

 private:
  const context& run_;
  mutable std::unique_ptr<engine<S>> made_;
};

template <class S>
struct operation_call {
  operation_call(const prepared& of, const run::settings& with, ballast::backend which)
      : plan(of),
        how(with),
        injector(how.faults, site::table()),
        seen(plan.token, which, plan.scheme, how, injector),
        run{seen, injector, how, which, which == backend::reference ? 1 : plan.threads, plan.scheme == k_hybrid, false, plan.device.get()},
        on(run) {}
  operation_call(const operation_call&) = delete;
  operation_call& operator=(const operation_call&) = delete;

  // Returns true if an uncorrectable fault forbids that results are committed.
  bool lost() const { return seen.uncorrectable() && how.protection == protection::correct; }

  const prepared& plan;
  const run::settings how;
  inject::active_injector injector;
  run::recorder seen;
  context run;
  const engine_on_demand<S> on;
};

// Does work(call) as one call of the plan, and returns its report. `operand`: the address of the matrix.
template <class S, class Work>
report run_operation(const prepared& plan, counted what, const call& now, const void* operand, Work&& work) {
  return run::in_call(&plan.memory, plan.where.device, plan.token, [&] {
    run::settings how = plan.settings_for(now);
    const backend which = plan.backend_for(operand, how);
    if (which == backend::cuda) ballast::cuda::refuse_capture(how.stream, plan.token);
    plan.count(what, how);
    operation_call<S> here(plan, how, which);
    work(here);
    return here.seen.finish();
  });
}

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

// A matrix that the engine can work on: the given one, or a copy.
template <class S>
struct workable {
  using value = std::remove_const_t<S>;
  workable([[maybe_unused]] const context& run, engine<value>& on, matrix_view<S> v) : view(v) {
    if (v.columns <= 1) view.column_stride = std::max<index>(v.rows, 1);
    if (on.works_on(view)) return;
    owned<value> made(on, v.rows, v.columns);
    if constexpr (std::is_const_v<S>) {
      copy_verified<value>(run, on, v, made.view);  // a factorization compares its copy with the source itself
    } else {
      on.copy(v, made.view);
    }
    copy = std::move(made.memory);
    view = made.view;
  }
  bool copied() const { return copy != nullptr; }
  std::shared_ptr<value> copy;
  matrix_view<S> view;
};

}  // namespace ballast::qr
