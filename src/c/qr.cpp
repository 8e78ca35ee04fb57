// QR: plans of the four types of numbers, operations on one matrix, on batches and on streams.
// Layer: interface.
#include <complex>
#include <string>
#include <utility>
#include <variant>

#include "c/handles.hpp"
#include "c/tensor.hpp"
#include "core/format.hpp"

struct ballast_qr_plan : ballast::c::handle<ballast::c::kind::qr_plan> {
  using any_plan = std::variant<ballast::qr::plan<float>, ballast::qr::plan<double>, ballast::qr::plan<std::complex<float>>,
                                ballast::qr::plan<std::complex<double>>>;
  explicit ballast_qr_plan(const ballast_options& with) : options(with), plan(made(with)), token(to_token(with.qr)) {}
  static any_plan made(const ballast_options& with) {
    const auto of = [&]<class T>(T) { return any_plan(ballast::qr::plan<T>(with.qr, ballast::c::where_of(with), with.qr_wanted)); };
    const bool single = with.qr.precision == ballast::precision::f32;
    if (with.qr.complex) return single ? of(std::complex<float>()) : of(std::complex<double>());
    return single ? of(float()) : of(double());
  }
  ballast_options options;
  any_plan plan;
  std::string token;
};

namespace ballast::c {

namespace {

// Calls work(plan<T>, T{}).
template <class Work>
void with_plan(const ballast_qr_plan& of, Work&& work) {
  std::visit([&]<class T>(const qr::plan<T>& on) { work(on, T{}); }, of.plan);
}

// Returns true if the tensor has the three axes of a batch.
bool is_batch(const tensor& A) {
  if (A.axes != 2 && A.axes != 3)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected 2 axes, or 3 for a batch, got {} ({})", A.as.problem, A.as.name, A.axes, lengths_of(A)));
  return A.axes == 3;
}

// tau of one matrix, or of `count`.
template <class T>
std::span<T> scalars_of(const tensor& tau, const tensor& A, const execution& where) {
  const bool batch = A.axes == 3;
  tau.expect_axes(batch ? 2 : 1);
  if (batch && tau.length[0] != A.length[0])
    throw invalid_argument_error(
        fmt::format("{}: tau: expected {} rows, one for each matrix, got {}", tau.as.problem, A.length[0], tau.length[0]));
  return elements_of<T>(tau, batch ? 2 : 1, where);
}

qr::side side_of(std::int32_t given) {
  if (given != BALLAST_LEFT && given != BALLAST_RIGHT)
    throw invalid_argument_error(fmt::format("side: expected 0 (left) or 1 (right), got {}", given));
  return static_cast<qr::side>(given);
}

qr::transpose transpose_of(std::int32_t given) {
  if (given != BALLAST_NO_TRANSPOSE && given != BALLAST_TRANSPOSE)
    throw invalid_argument_error(fmt::format("transpose: expected 0 (no) or 1 (yes), got {}", given));
  return static_cast<qr::transpose>(given);
}

// The operands of an operation in the order of its parameters. `one` gets matrices, `many` batches.
struct operands {
  operands(const ballast_qr_plan& plan, const DLTensor* first) : token(plan.token), where(plan.options.where), A(first, {token, "A"}) {
    batch = is_batch(A);
  }
  tensor named_as(const DLTensor* given, std::string_view name) const { return {given, {token, name}}; }

  std::string_view token;
  const execution& where;
  tensor A;
  bool batch = false;
};

template <class T>
std::span<T> tau_of(const operands& of, const DLTensor* given) {
  return scalars_of<T>(of.named_as(given, "tau"), of.A, of.where);
}

// One number for each column.
std::span<std::int64_t> pivots_of(std::int64_t* given, std::int64_t columns) {
  return {&output(given, "pivots"), static_cast<std::size_t>(columns)};
}

// Another batch has as many matrices.
template <class T>
matrix_batch_view<T> matrices_beside(const operands& of, const DLTensor* given, std::string_view name, bool column = false) {
  const matrix_batch_view<T> made = matrices_of<T>(of.named_as(given, name), of.where, column);
  if (made.count != of.A.length[0])
    throw invalid_argument_error(fmt::format("{}: {}: expected {} matrices, got {}", of.token, name, of.A.length[0], made.count));
  return made;
}

// The frame of an operation: work(plan<T>, operands, call) returns a report.
template <class Work>
std::int32_t run(const ballast_qr_plan* plan, const DLTensor* A, const ballast_call* call, ballast_report* report, ballast_error* error,
                 Work&& work) {
  return guarded(error, [&](frame& here) {
    const ballast_qr_plan& with = needed(plan, "plan");
    here.problem = with.token;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const operands given(with, A);
    with_plan(with, [&]<class T>(const qr::plan<T>& on, T) { fill(report, work(on, given, now)); });
  });
}

// The same for work that is enqueued.
template <class Work>
std::int32_t enqueue(const ballast_qr_plan* plan, const DLTensor* A, const ballast_call* call, ballast_pending** pending,
                     ballast_error* error, Work&& work) {
  return guarded(error, [&](frame& here) {
    output(pending, "pending") = nullptr;
    const ballast_qr_plan& with = needed(plan, "plan");
    here.problem = with.token;
    const ballast::call& now = call_of(call);
    const operands given(with, A);
    if (!given.batch) throw invalid_argument_error(fmt::format("{}: A: expected 3 axes, those of a batch, to enqueue, got 2", with.token));
    with_plan(with, [&]<class T>(const qr::plan<T>& on, T) {
      *pending = new ballast_pending(work(on, given, now), with.token, !now.throw_on_uncorrectable);
    });
  });
}

}  // namespace

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_qr_plan_create(const ballast_options* options, ballast_qr_plan** plan, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    output(plan, "plan") = nullptr;
    const ballast_options& with = options_for(options, algorithm::qr);
    here.poses(to_token(with.qr));
    *plan = new ballast_qr_plan(with);
  });
}

void ballast_qr_plan_destroy(ballast_qr_plan* plan) { destroy(plan); }

int32_t ballast_qr_geqrf(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* tau, const ballast_call* call,
                         ballast_report* report, ballast_error* error) {
  return run(plan, A, call, report, error, [&]<class T>(const ballast::qr::plan<T>& on, const operands& of, const ballast::call& now) {
    if (of.batch) return on.geqrf(matrices_of<T>(of.A, of.where), tau_of<T>(of, tau), now);
    return on.geqrf(matrix_of<T>(of.A, of.where), tau_of<T>(of, tau), now);
  });
}

int32_t ballast_qr_ormqr(const ballast_qr_plan* plan, int32_t side, int32_t transpose, const DLTensor* A, const DLTensor* tau,
                         const DLTensor* C, const ballast_call* call, ballast_report* report, ballast_error* error) {
  return run(plan, A, call, report, error, [&]<class T>(const ballast::qr::plan<T>& on, const operands& of, const ballast::call& now) {
    const auto from = side_of(side);
    const auto op = transpose_of(transpose);
    if (of.batch)
      return on.ormqr(from, op, matrices_of<const T>(of.A, of.where), tau_of<const T>(of, tau), matrices_beside<T>(of, C, "C"), now);
    return on.ormqr(from, op, matrix_of<const T>(of.A, of.where), tau_of<const T>(of, tau), matrix_of<T>(of.named_as(C, "C"), of.where),
                    now);
  });
}

int32_t ballast_qr_orgqr(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* tau, const ballast_call* call,
                         ballast_report* report, ballast_error* error) {
  return run(plan, A, call, report, error, [&]<class T>(const ballast::qr::plan<T>& on, const operands& of, const ballast::call& now) {
    if (of.batch) return on.orgqr(matrices_of<T>(of.A, of.where), tau_of<const T>(of, tau), now);
    return on.orgqr(matrix_of<T>(of.A, of.where), tau_of<const T>(of, tau), now);
  });
}

int32_t ballast_qr_gels(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* B, const ballast_call* call, ballast_report* report,
                        ballast_error* error) {
  return run(plan, A, call, report, error, [&]<class T>(const ballast::qr::plan<T>& on, const operands& of, const ballast::call& now) {
    if (of.batch) return on.gels(matrices_of<T>(of.A, of.where), matrices_beside<T>(of, B, "B", true), now);
    return on.gels(matrix_of<T>(of.A, of.where), matrix_of<T>(of.named_as(B, "B"), of.where, true), now);
  });
}

int32_t ballast_qr_geqp3(const ballast_qr_plan* plan, const DLTensor* A, int64_t* pivots, const DLTensor* tau, const ballast_call* call,
                         ballast_report* report, ballast_error* error) {
  return run(plan, A, call, report, error, [&]<class T>(const ballast::qr::plan<T>& on, const operands& of, const ballast::call& now) {
    const auto of_a = matrix_of<T>(of.A, of.where);
    return on.geqp3(of_a, pivots_of(pivots, of_a.columns), tau_of<T>(of, tau), now);
  });
}

int32_t ballast_qr_gelsy(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* B, int64_t* pivots, double rcond, int64_t* rank,
                         const ballast_call* call, ballast_report* report, ballast_error* error) {
  return run(plan, A, call, report, error, [&]<class T>(const ballast::qr::plan<T>& on, const operands& of, const ballast::call& now) {
    const auto of_a = matrix_of<T>(of.A, of.where);
    return on.gelsy(of_a, matrix_of<T>(of.named_as(B, "B"), of.where, true), pivots_of(pivots, of_a.columns), rcond, output(rank, "rank"),
                    now);
  });
}

int32_t ballast_qr_enqueue_geqrf(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* tau, const ballast_call* call,
                                 ballast_pending** pending, ballast_error* error) {
  return enqueue(plan, A, call, pending, error, [&]<class T>(const ballast::qr::plan<T>& on, const operands& of, const ballast::call& now) {
    return on.enqueue_geqrf(matrices_of<T>(of.A, of.where), tau_of<T>(of, tau), now);
  });
}

int32_t ballast_qr_enqueue_ormqr(const ballast_qr_plan* plan, int32_t side, int32_t transpose, const DLTensor* A, const DLTensor* tau,
                                 const DLTensor* C, const ballast_call* call, ballast_pending** pending, ballast_error* error) {
  return enqueue(plan, A, call, pending, error, [&]<class T>(const ballast::qr::plan<T>& on, const operands& of, const ballast::call& now) {
    return on.enqueue_ormqr(side_of(side), transpose_of(transpose), matrices_of<const T>(of.A, of.where), tau_of<const T>(of, tau),
                            matrices_beside<T>(of, C, "C"), now);
  });
}

int32_t ballast_qr_enqueue_orgqr(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* tau, const ballast_call* call,
                                 ballast_pending** pending, ballast_error* error) {
  return enqueue(plan, A, call, pending, error, [&]<class T>(const ballast::qr::plan<T>& on, const operands& of, const ballast::call& now) {
    return on.enqueue_orgqr(matrices_of<T>(of.A, of.where), tau_of<const T>(of, tau), now);
  });
}

int32_t ballast_qr_enqueue_gels(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* B, const ballast_call* call,
                                ballast_pending** pending, ballast_error* error) {
  return enqueue(plan, A, call, pending, error, [&]<class T>(const ballast::qr::plan<T>& on, const operands& of, const ballast::call& now) {
    return on.enqueue_gels(matrices_of<T>(of.A, of.where), matrices_beside<T>(of, B, "B", true), now);
  });
}

int32_t ballast_qr_plan_workspace_bytes(const ballast_qr_plan* plan, int32_t operation, int64_t* bytes, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast_qr_plan& of = needed(plan, "plan");
    if (operation < BALLAST_GEQRF || operation > BALLAST_GELS)
      throw ballast::invalid_argument_error(ballast::fmt::format("operation: expected 0 to 3, got {}", operation));
    const auto which = static_cast<ballast::qr::operation>(operation);
    output(bytes, "bytes") = std::visit([&](const auto& each) { return each.workspace_bytes(which); }, of.plan);
  });
}

int32_t ballast_qr_plan_backend(const ballast_qr_plan* plan, int32_t* backend, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast_qr_plan& of = needed(plan, "plan");
    output(backend, "backend") = std::visit([](const auto& each) { return static_cast<std::int32_t>(each.backend()); }, of.plan);
  });
}

int32_t ballast_qr_plan_token(const ballast_qr_plan* plan, const char** token, ballast_error* error) {
  return guarded(error, [&](frame&) { output(token, "token") = needed(plan, "plan").token.c_str(); });
}

int32_t ballast_qr_plan_options(const ballast_qr_plan* plan, ballast_options** options, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(options, "options") = nullptr;
    *options = new ballast_options(needed(plan, "plan").options);
  });
}
