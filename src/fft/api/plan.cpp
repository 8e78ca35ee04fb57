// Plans: choice of backend and scheme, checks of the arguments of each call, the report.
#include "fft/api/plan.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/call/capture.hpp"
#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"
#include "inject/injector.hpp"
#include "run/dispatch.hpp"
#if defined(BALLAST_HAS_CPU)
#include "core/parallel.hpp"
#endif
#include "fft/composite/composite.hpp"
#include "fft/composite/nest.hpp"
#include "fft/problem.hpp"
#include "fft/sites.hpp"
#include "run/call_scope.hpp"
#include "run/pending_report.hpp"

namespace ballast::fft {

namespace {

std::unique_ptr<const transform> make_work(backend which, const array_problem& shape, precision type, bool protect, std::string_view scheme,
                                           std::string_view token) {
  if (which == backend::cuda) {
    if (shape.kind == kind::r2r)
      throw unsupported_error(
          fmt::format("{}: expected the backend cpu or reference for real-to-real transforms, got cuda, which has none of them", token));
    return cuda::make_transform(shape, type, protect, scheme);
  }
  composite::transform_maker make = reference::make_transform;
#if defined(BALLAST_HAS_CPU)
  if (which == backend::cpu) make = cpu::make_transform;
#endif
  auto nest = nest_of(shape);
  if (!nest) return composite::make_composite(shape, type, protect, make, which == backend::reference);
  auto work = make(nest->inner, type, protect);
  return composite::make_nest(std::move(*nest), type, std::move(work), which == backend::cpu);
}

// Without the cpu backend nothing runs on several threads.
int threads_of(const run::settings& how) {
#if defined(BALLAST_HAS_CPU)
  return core::thread_count(how.threads);
#else
  (void)how;
  return 1;
#endif
}

// Nominal operations. Lengths with large prime factors take the time of about three times as many.
double flops_of(const array_problem& g) {
  double flops = 0;
  for (const axis& each : g.axes) {
    const std::int64_t n = each.n;
    if (n == 1) continue;
    std::int64_t rest = n;
    for (std::int64_t factor = 2; factor <= 13; ++factor) {
      while (rest % factor == 0) rest /= factor;
    }
    flops += (g.kind == kind::c2c ? 5 : 2.5) * std::log2(static_cast<double>(n)) * (rest == 1 ? 1 : 3);
  }
  return flops * static_cast<double>(g.points()) * static_cast<double>(g.signals());
}

// Returns true if calls with operands on the host run on the cpu backend although the plan is for a device: cuda was chosen automatically,
// no scheme or fault asks for it, and copying takes longer than computing.
bool stays_here(const plan::implementation& made, const fft::problem& problem, const run::settings& how) {
#if defined(BALLAST_HAS_CPU)
  if (how.backend != backend::automatic || made.backend != backend::cuda || !how.scheme.empty() || how.faults != nullptr) return false;
  const auto bytes = [&](const array_side& s) {
    return static_cast<double>(s.extent) * (s.real ? 1 : 2) * (problem.precision == precision::f32 ? 4 : 8);
  };
  return run::copying_takes_longer(
      {bytes(made.shape.input) + bytes(made.shape.output), flops_of(made.shape), problem.precision, threads_of(how)});
#else
  (void)made, (void)problem, (void)how;
  return false;
#endif
}

}  // namespace

plan::plan(fft::problem problem, const execution& where, const options& wanted) {
  const std::string token = run::in_call(nullptr, -1, "fft", [&] { return to_token(problem, natural_direction(problem.kind)); });
  implementation_ = run::in_call(nullptr, where.device, token, [&] {
    auto made = std::make_shared<implementation>();
    made->shape = describe(problem);
    made->token[0] = to_token(problem, direction::forward);
    made->token[1] = to_token(problem, direction::inverse);
    const run::settings how = run::settings_of(where);
    // Real-to-real transforms have no cuda backend.
    const bool on_host = made->shape.kind == kind::r2r && how.backend == backend::automatic;
    made->backend = on_host ? run::host_backend() : run::choose_backend(how, token);
    const std::vector<std::string_view> known =
        made->backend == backend::cuda ? cuda::schemes() : std::vector<std::string_view>{"verify_before_store"};
    const std::string_view scheme = run::choose_scheme(how, known.front(), known, token);
    made->scheme = scheme;
    (void)threads_of(how);
    const bool protect = how.protection != ballast::protection::off;
    made->work = make_work(made->backend, made->shape, problem.precision, protect, scheme, token);
    if (stays_here(*made, problem, how)) made->work_here = make_work(backend::cpu, made->shape, problem.precision, protect, scheme, token);
    made->problem = std::move(problem);
    made->where = where;
    made->wanted = wanted;
    return made;
  });
}

plan::~plan() = default;
plan::plan(const plan&) = default;
plan::plan(plan&&) noexcept = default;
plan& plan::operator=(const plan&) = default;
plan& plan::operator=(plan&&) noexcept = default;

const plan::implementation& plan::made() const {
  if (implementation_ == nullptr) throw invalid_argument_error("fft::plan: expected a plan, got one that was moved from");
  return *implementation_;
}

const fft::problem& plan::problem() const { return made().problem; }
ballast::backend plan::backend() const { return made().backend; }

namespace {

struct bytes {
  const void* data;
  std::size_t count;  // elements
  std::size_t width;  // bytes of one element
};

// Returns true if each signal occupies the same bytes on both sides, so that a tile may be stored over the signals that it was read from.
bool layouts_agree(const array_problem& g) {
  const bool same_type = g.input.real == g.output.real;
  // Distances in elements of a real and a complex side.
  const auto agree = [&](std::int64_t count, std::int64_t in, std::int64_t out) {
    return count == 1 || (same_type ? in == out : g.input.real ? in == 2 * out : 2 * in == out);
  };
  for (const axis& each : g.axes) {
    const bool half = each.in_length != each.out_length || (!same_type && &each == &g.axes.back());
    if (half ? (each.in_length > 1 && each.in_stride != 1) || (each.out_length > 1 && each.out_stride != 1)
             : !agree(each.n, each.in_stride, each.out_stride))
      return false;
  }
  return std::ranges::all_of(g.loops, [&](const loop& each) { return agree(each.count, each.input, each.output); });
}

// Checks the operands' memory, for problems of any kind. Returns true if the transform is in place.
bool check_call(const plan::implementation& plan, std::string_view token, const bytes& in, const bytes& out) {
  const array_problem& g = plan.shape;
  const auto check_size = [&](const bytes& span, const array_side& needed, std::string_view name) {
    if (span.count < static_cast<std::size_t>(needed.extent))
      throw invalid_argument_error(fmt::format("{}: {}: expected at least {} elements, got {}", token, name, needed.extent, span.count));
    if (span.data == nullptr) throw invalid_argument_error(fmt::format("{}: {}: expected data, got a null pointer", token, name));
    const std::size_t part = plan.problem.precision == precision::f32 ? sizeof(float) : sizeof(double);
    if (reinterpret_cast<std::uintptr_t>(span.data) % part != 0)
      throw invalid_argument_error(fmt::format("{}: {}: expected data at a multiple of {} bytes, got another address", token, name, part));
  };
  check_size(in, g.input, "in");
  check_size(out, g.output, "out");

  const auto first = [](const bytes& span) { return reinterpret_cast<std::uintptr_t>(span.data); };
  const auto last = [&](const bytes& span, const array_side& s) {
    return first(span) + static_cast<std::uintptr_t>(s.extent) * span.width;
  };
  const bool overlap = first(in) < last(out, g.output) && first(out) < last(in, g.input);
  if (overlap && first(in) != first(out))
    throw invalid_argument_error(fmt::format("{}: expected in and out to be the same address or not to overlap, got a shift of {} bytes",
                                             token, static_cast<std::int64_t>(first(out) - first(in))));
  if (overlap && !layouts_agree(g))
    throw invalid_argument_error(
        fmt::format("{}: in place: expected layouts that give each signal the same bytes in and out{}, got different ones", token,
                    g.input.real == g.output.real ? "" : " (real rows padded to n/2 + 1 complex elements)"));

  return overlap;
}

// The factor of the norm is computed once for the data and once for the checks.
transform_args args_of(const plan::implementation& plan, direction way, bool in_place, const run::settings& how, run::recorder& seen,
                       inject::active_injector& injector) {
  const double scale = norm_factor(plan.shape, plan.problem.norm, way);
  const double check_scale = norm_factor(plan.shape, plan.problem.norm, way);
  return {way,
          scale,
          check_scale,
          in_place,
          how.protection,
          threads_of(how),
          how.stream,
          how.workspace,
          seen,
          injector,
          plan.wanted.kernels == kernels::own};
}

const shared_text& token_of(const plan::implementation& plan, direction way) { return plan.token[way == direction::inverse ? 1 : 0]; }

// A plan computes one kind in one precision; a plan of real data one direction.
void check_kind(const plan::implementation& plan, direction way, kind wanted, precision type) {
  const fft::problem& problem = plan.problem;
  if (problem.kind != wanted || problem.precision != type)
    throw invalid_argument_error(fmt::format("{}: expected data for {} {}, got data for {} {}", token_of(plan, way).view(),
                                             to_string(problem.kind), to_string(problem.precision), to_string(wanted), to_string(type)));
}

// One call: its operands, checked.
struct operation {
  const plan::implementation& of;
  direction way;
  bytes in, out;
  bool in_place;
};

template <class In, class Out>
operation operation_of(const plan::implementation& plan, direction way, std::span<const In> in, std::span<Out> out) {
  using scalar = std::conditional_t<std::is_floating_point_v<In>, In, std::conditional_t<std::is_floating_point_v<Out>, Out, Out>>;
  constexpr bool single = sizeof(In) == (std::is_floating_point_v<In> ? 4 : 8);
  constexpr kind wanted = std::is_floating_point_v<In> && std::is_floating_point_v<Out> ? kind::r2r
                          : std::is_floating_point_v<In>                                ? kind::r2c
                          : std::is_floating_point_v<scalar>                            ? kind::c2r
                                                                                        : kind::c2c;
  check_kind(plan, way, wanted, single ? precision::f32 : precision::f64);
  const bytes from{in.data(), in.size(), sizeof(In)}, to{out.data(), out.size(), sizeof(Out)};
  return {plan, way, from, to, check_call(plan, token_of(plan, way), from, to)};
}

report execute(const operation& what, const call& now) {
  const plan::implementation& plan = what.of;
  const shared_text& token = token_of(plan, what.way);
  return run::in_call(&plan.memory, plan.where.device, token, [&] {
    const run::settings how = run::settings_of(plan.where, now);
    if (plan.backend == backend::cuda) ballast::cuda::refuse_capture(how.stream, token);
    inject::active_injector injector(how.faults, site::table());
    using ballast::cuda::residence;
    if (plan.shape.kind == kind::r2r &&
        (ballast::cuda::residence_of(what.in.data) == residence::device || ballast::cuda::residence_of(what.out.data) == residence::device))
      throw unsupported_error(
          fmt::format("{}: expected in and out in host memory for real-to-real transforms, got device memory", token.view()));
    const bool here = plan.work_here != nullptr && how.faults == nullptr && ballast::cuda::residence_of(what.in.data) == residence::host &&
                      ballast::cuda::residence_of(what.out.data) == residence::host;
    run::recorder seen(token, here ? backend::cpu : plan.backend, plan.scheme, how, injector);
    if (here) ballast::cuda::current_device()->synchronize(how.stream);  // earlier work on the stream may still write pinned operands
    (here ? plan.work_here : plan.work)
        ->run(what.in.data, const_cast<void*>(what.out.data), args_of(plan, what.way, what.in_place, how, seen, injector));
    return seen.finish();
  });
}

pending_report enqueue(const std::shared_ptr<const plan::implementation>& owner, const operation& what, const call& now) {
  const plan::implementation& plan = *owner;
  const shared_text& token = token_of(plan, what.way);
  return run::in_call(&plan.memory, plan.where.device, token, [&] {
    const run::settings how = run::settings_of(plan.where, now);
    auto made = std::unique_ptr<pending_report::implementation>(new pending_report::implementation{
        {}, owner, how, token, plan.backend, plan.scheme, inject::active_injector(how.faults, site::table()), nullptr});
    run::recorder unused(token, plan.backend, plan.scheme, made->how, made->injector);
    made->work = plan.work->enqueue(what.in.data, const_cast<void*>(what.out.data),
                                    args_of(plan, what.way, what.in_place, made->how, unused, made->injector));
    if (!made->work)
      throw unsupported_error(fmt::format("{}: expected the cuda backend for enqueue, got {}", token.view(), to_string(plan.backend)));
    return pending_report(std::move(made));
  });
}

}  // namespace

std::int64_t plan::workspace_bytes() const { return made().work->workspace_bytes(); }

report plan::forward(std::span<const std::complex<float>> in, std::span<std::complex<float>> out, const call& now) const {
  return execute(operation_of(made(), direction::forward, in, out), now);
}
report plan::forward(std::span<const std::complex<double>> in, std::span<std::complex<double>> out, const call& now) const {
  return execute(operation_of(made(), direction::forward, in, out), now);
}
report plan::forward(std::span<const float> in, std::span<std::complex<float>> out, const call& now) const {
  return execute(operation_of(made(), direction::forward, in, out), now);
}
report plan::forward(std::span<const double> in, std::span<std::complex<double>> out, const call& now) const {
  return execute(operation_of(made(), direction::forward, in, out), now);
}
report plan::inverse(std::span<const std::complex<float>> in, std::span<std::complex<float>> out, const call& now) const {
  return execute(operation_of(made(), direction::inverse, in, out), now);
}
report plan::inverse(std::span<const std::complex<double>> in, std::span<std::complex<double>> out, const call& now) const {
  return execute(operation_of(made(), direction::inverse, in, out), now);
}
report plan::inverse(std::span<const std::complex<float>> in, std::span<float> out, const call& now) const {
  return execute(operation_of(made(), direction::inverse, in, out), now);
}
report plan::inverse(std::span<const std::complex<double>> in, std::span<double> out, const call& now) const {
  return execute(operation_of(made(), direction::inverse, in, out), now);
}
report plan::forward(std::span<const float> in, std::span<float> out, const call& now) const {
  return execute(operation_of(made(), direction::forward, in, out), now);
}
report plan::forward(std::span<const double> in, std::span<double> out, const call& now) const {
  return execute(operation_of(made(), direction::forward, in, out), now);
}
report plan::inverse(std::span<const float> in, std::span<float> out, const call& now) const {
  return execute(operation_of(made(), direction::inverse, in, out), now);
}
report plan::inverse(std::span<const double> in, std::span<double> out, const call& now) const {
  return execute(operation_of(made(), direction::inverse, in, out), now);
}

pending_report plan::enqueue_forward(std::span<const std::complex<float>> in, std::span<std::complex<float>> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::forward, in, out), now);
}
pending_report plan::enqueue_forward(std::span<const std::complex<double>> in, std::span<std::complex<double>> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::forward, in, out), now);
}
pending_report plan::enqueue_forward(std::span<const float> in, std::span<std::complex<float>> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::forward, in, out), now);
}
pending_report plan::enqueue_forward(std::span<const double> in, std::span<std::complex<double>> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::forward, in, out), now);
}
pending_report plan::enqueue_inverse(std::span<const std::complex<float>> in, std::span<std::complex<float>> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::inverse, in, out), now);
}
pending_report plan::enqueue_inverse(std::span<const std::complex<double>> in, std::span<std::complex<double>> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::inverse, in, out), now);
}
pending_report plan::enqueue_inverse(std::span<const std::complex<float>> in, std::span<float> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::inverse, in, out), now);
}
pending_report plan::enqueue_inverse(std::span<const std::complex<double>> in, std::span<double> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::inverse, in, out), now);
}

}  // namespace ballast::fft
