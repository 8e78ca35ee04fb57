// Plans: choice of backend and scheme, checks of the arguments of each call, the report.
#include "fft/api/plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <ballast/error.hpp>

#include "abft/attempt.hpp"
#include "core/format.hpp"
#include "core/memory.hpp"
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
#include "fft/start.hpp"
#include "group/device_threads.hpp"
#include "run/attempt.hpp"
#include "run/call_scope.hpp"
#include "run/pending_report.hpp"

namespace ballast::fft {

std::unique_ptr<const transform> make_work(backend which, const array_problem& shape, precision type, bool protect,
                                           [[maybe_unused]] int threads, std::string_view scheme) {
  if (which == backend::cuda) return cuda::make_transform(shape, type, protect, scheme);
  composite::transform_maker make = reference::make_transform;
#if defined(BALLAST_HAS_CPU)
  if (which == backend::cpu) make = cpu::make_transform;
#endif
  auto nest = shape.split ? std::nullopt : nest_of(shape);
  if (!nest) return composite::make_composite(shape, type, protect, make, which == backend::reference);
#if defined(BALLAST_HAS_CPU)
  // A nest runs on several threads itself, and the table has no problems with loops around them.
  const bool alone = nest->outer.empty() && which == backend::cpu;
  auto work = alone ? cpu::make_tuned_transform(nest->inner, type, protect, threads) : make(nest->inner, type, protect);
#else
  auto work = make(nest->inner, type, protect);
#endif
  return composite::make_nest(std::move(*nest), type, std::move(work), which == backend::cpu);
}

namespace {

// Without the cpu backend nothing runs on several threads.
int threads_for([[maybe_unused]] const array_problem& shape, [[maybe_unused]] precision type, [[maybe_unused]] const run::settings& how) {
#if defined(BALLAST_HAS_CPU)
  return core::worthwhile_threads(how.threads, nominal_flops(shape) / run::flops_per_second(type));
#else
  return 1;
#endif
}

// Returns true if calls with operands on the host run on the cpu backend although the plan is for a device: cuda was chosen automatically,
// no scheme or fault asks for it, and copying or compiling takes longer than computing.
bool stays_here(const plan::implementation& made, const fft::problem& problem, const run::settings& how, kernels wanted) {
#if defined(BALLAST_HAS_CPU)
  if (how.backend != backend::automatic || made.backend != backend::cuda || !how.scheme.empty() || how.faults != nullptr) return false;
  const auto bytes = [&](const array_side& s) {
    return static_cast<double>(s.extent) * (s.real ? 1 : 2) * (problem.precision == precision::f32 ? 4 : 8);
  };
  return run::host_answers_first(
      {bytes(made.shape.input) + bytes(made.shape.output), nominal_flops(made.shape), problem.precision, made.threads}, [&](bool begin) {
        if (wanted == kernels::fallback_at_first) return 0.0;
        return cuda::seconds_to_start(made.shape, problem.precision, how.protection != ballast::protection::off, begin);
      });
#else
  (void)made, (void)problem, (void)how, (void)wanted;
  return false;
#endif
}

// Returns whether a side of so many elements is row-major and without gaps.
bool is_dense(const layout& given, const std::vector<std::int64_t>& shape) {
  if (given.strides.empty()) return true;
  std::int64_t next = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; next *= shape[axis])
    if (shape[axis] > 1 && given.strides[axis] != next) return false;
  return true;
}

// The plan of a group of devices: of one array, whose spectrum is in natural order.
template <class T>
group_plan<T> plan_of_devices(const fft::problem& of, const execution& where, std::string_view token) {
  const bool real = of.kind == kind::r2c || of.kind == kind::c2r;
  std::vector<std::int64_t> half = of.shape;
  if (real) half.back() = half.back() / 2 + 1;
  if ((!real && of.kind != kind::c2c) || of.split || of.batch != 1 || !of.loops.empty() ||
      !is_dense(of.input, of.kind == kind::c2r ? half : of.shape) || !is_dense(of.output, of.kind == kind::r2c ? half : of.shape))
    throw unsupported_error(fmt::format(
        "{}: group: expected c2c, r2c or c2r of one array without gaps for devices, got another kind, a batch or other strides", token));
  return group_plan<T>(of.shape, where, {.real = real, .order = result_order::natural, .norm = of.norm});
}

}  // namespace

namespace {

std::shared_ptr<plan::implementation> make_implementation(fft::problem problem, const execution& where, const options& wanted,
                                                          const std::string& token) {
  auto made = std::make_shared<plan::implementation>();
  made->shape = describe(problem);
  made->token[0] = to_token(problem, direction::forward);
  made->token[1] = to_token(problem, direction::inverse);
  if (wire::on_devices(where)) {
    if (problem.precision == precision::f32)
      made->devices = plan_of_devices<float>(problem, where, token);
    else
      made->devices = plan_of_devices<double>(problem, where, token);
    made->backend = backend::cuda;
    made->problem = std::move(problem);
    made->where = where;
    made->wanted = wanted;
    return made;
  }
  const run::settings how = run::settings_of(where);
  made->backend = run::choose_backend(how, token);
  const std::vector<std::string_view> known =
      made->backend == backend::cuda ? cuda::schemes() : std::vector<std::string_view>{"verify_before_store"};
  const std::string_view scheme = run::choose_scheme(how, known.front(), known, token);
  made->scheme = scheme;
  made->threads = threads_for(made->shape, problem.precision, how);
  const bool protect = how.protection != ballast::protection::off;
  made->work = make_work(made->backend, made->shape, problem.precision, protect, made->threads, scheme);
  if (stays_here(*made, problem, how, wanted.kernels))
    made->work_here = make_work(backend::cpu, made->shape, problem.precision, protect, made->threads, scheme);
  made->problem = std::move(problem);
  made->where = where;
  made->wanted = wanted;
  return made;
}

}  // namespace

plan::plan(fft::problem problem, const execution& where, const options& wanted) {
  const std::string token = run::in_call(nullptr, -1, "fft", [&] { return to_token(problem, natural_direction(problem.kind)); });
  implementation_ = run::in_call(nullptr, where.device, token, [&] {
    run::check_protection(where, token, false);
    return run::make_sampled(where, token, [&](const execution& own) { return make_implementation(problem, own, wanted, token); });
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

// Refuses operands whose signals share memory, but do not have the same bytes on both sides.
void refuse_crossed(const array_problem& g, std::string_view token) {
  throw invalid_argument_error(
      fmt::format("{}: in place: expected layouts that give each signal the same bytes in and out{}, got different ones", token,
                  g.input.real == g.output.real ? "" : " (real rows padded to n/2 + 1 complex elements)"));
}

// Checks the memory of an operand, or of one part of a split one.
void check_memory(const plan::implementation& plan, std::string_view token, const bytes& span, bool input) {
  const array_side& needed = input ? plan.shape.input : plan.shape.output;
  const std::string_view name = input ? "in" : "out";
  if (span.count < static_cast<std::size_t>(needed.extent))
    throw invalid_argument_error(fmt::format("{}: {}: expected at least {} elements, got {}", token, name, needed.extent, span.count));
  if (span.data == nullptr) throw invalid_argument_error(fmt::format("{}: {}: expected data, got a null pointer", token, name));
  const std::size_t part = plan.problem.precision == precision::f32 ? sizeof(float) : sizeof(double);
  if (reinterpret_cast<std::uintptr_t>(span.data) % part != 0)
    throw invalid_argument_error(fmt::format("{}: {}: expected data at a multiple of {} bytes, got another address", token, name, part));
}

bool overlap(const array_problem& g, const bytes& in, const bytes& out) {
  const auto first = [](const bytes& span) { return reinterpret_cast<std::uintptr_t>(span.data); };
  const auto last = [&](const bytes& span, const array_side& s) {
    return first(span) + static_cast<std::uintptr_t>(s.extent) * span.width;
  };
  return first(in) < last(out, g.output) && first(out) < last(in, g.input);
}

const shared_text& token_of(const plan::implementation& plan, direction way) { return plan.token[way == direction::inverse ? 1 : 0]; }

// A plan computes one kind in one precision; a plan of real data one direction.
void check_kind(const plan::implementation& plan, direction way, kind wanted, precision type, bool split) {
  const fft::problem& problem = plan.problem;
  if (problem.split != split)
    throw invalid_argument_error(fmt::format("{}: expected complex numbers {}", token_of(plan, way).view(),
                                             problem.split ? "as two arrays, of real and of imaginary parts, got one array"
                                                           : "in one array, got two, of real and of imaginary parts"));
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
  bool crossed;  // a signal may be stored over the input of another one: the input has to be copied first
  // The imaginary parts of split sides.
  const void* in_imaginary = nullptr;
  const void* out_imaginary = nullptr;
};

template <class In, class Out>
operation operation_of(const plan::implementation& plan, direction way, std::span<const In> in, std::span<Out> out) {
  using scalar = std::conditional_t<std::is_floating_point_v<In>, In, std::conditional_t<std::is_floating_point_v<Out>, Out, Out>>;
  constexpr bool single = sizeof(In) == (std::is_floating_point_v<In> ? 4 : 8);
  constexpr kind wanted = std::is_floating_point_v<In> && std::is_floating_point_v<Out> ? kind::r2r
                          : std::is_floating_point_v<In>                                ? kind::r2c
                          : std::is_floating_point_v<scalar>                            ? kind::c2r
                                                                                        : kind::c2c;
  check_kind(plan, way, wanted, single ? precision::f32 : precision::f64, false);
  const bytes from{in.data(), in.size(), sizeof(In)}, to{out.data(), out.size(), sizeof(Out)};
  const std::string_view token = token_of(plan, way);
  check_memory(plan, token, from, true);
  check_memory(plan, token, to, false);
  const bool in_place = overlap(plan.shape, from, to);
  if (in_place && from.data != to.data)
    throw invalid_argument_error(
        fmt::format("{}: expected in and out to be the same address or not to overlap, got a shift of {} bytes", token,
                    static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to.data) - reinterpret_cast<std::uintptr_t>(from.data))));
  return {plan, way, from, to, in_place, in_place && !layouts_agree(plan.shape)};
}

// The parts of a side, of which a real one has the first only.
template <class T>
std::array<bytes, 2> parts_of(std::span<T> side) {
  return {bytes{side.data(), side.size(), sizeof(T)}, bytes{nullptr, 0, sizeof(T)}};
}
template <class T>
std::array<bytes, 2> parts_of(const parts<T>& side) {
  return {bytes{side.real.data(), side.real.size(), sizeof(T)}, bytes{side.imaginary.data(), side.imaginary.size(), sizeof(T)}};
}

template <class Side>
inline constexpr bool k_has_parts = requires(const Side& side) {
  side.imaginary;
};

template <class In, class Out>
operation split_operation(const plan::implementation& plan, direction way, const In& in, const Out& out) {
  const std::array<bytes, 2> from = parts_of(in), to = parts_of(out);
  constexpr bool from_real = !k_has_parts<In>, to_real = !k_has_parts<Out>;
  constexpr kind wanted = from_real ? kind::r2c : to_real ? kind::c2r : kind::c2c;
  check_kind(plan, way, wanted, from[0].width == 4 ? precision::f32 : precision::f64, true);
  const std::string_view token = token_of(plan, way);
  bool same = !from_real && !to_real && layouts_agree(plan.shape), shared = false;
  for (std::size_t i = 0; i < (from_real ? 1 : 2); ++i) {
    check_memory(plan, token, from[i], true);
    for (std::size_t o = 0; o < (to_real ? 1 : 2); ++o) {
      check_memory(plan, token, to[o], false);
      shared = shared || overlap(plan.shape, from[i], to[o]);
      same = same && (i != o || from[i].data == to[o].data);
    }
  }
  return {plan, way, from[0], to[0], same, shared && !same, from[1].data, to[1].data};
}

// The factor of the norm is computed once for the data and once for the checks, and both again while they differ: no repetition of a tile
// could repair a wrong one.
transform_args args_of(const operation& what, const run::settings& how, run::recorder& seen, inject::active_injector& injector) {
  const plan::implementation& plan = what.of;
  const direction way = what.way;
  double scale = 0, check_scale = 0;
  for (int trial = 0; trial == 0 || (scale != check_scale && trial < 4); ++trial) {
    scale = norm_factor(plan.shape, plan.problem.norm, way);
    check_scale = norm_factor(plan.shape, plan.problem.norm, way);
  }
  return {way,
          scale,
          check_scale,
          what.in_place,
          how.protection,
          plan.threads,
          how.stream,
          how.workspace,
          seen,
          injector,
          plan.wanted.kernels == kernels::own,
          what.in_imaginary,
          const_cast<void*>(what.out_imaginary)};
}

// Copies the input of a crossed operation, which is compared with another reading, and computes from the copy.
void run_copied(const transform& work, const operation& what, const run::settings& how, run::recorder& seen,
                inject::active_injector& injector) {
  const std::size_t size = static_cast<std::size_t>(what.of.shape.input.extent) * what.in.width;
  core::vector<std::byte> copies[2];
  const auto copy = [&](core::vector<std::byte>& to, const void* from) {
    to.resize(size);
    const auto once = [&](int) {
      std::memcpy(to.data(), from, size);
      const bool same = how.protection == protection::off || std::memcmp(to.data(), from, size) == 0;
      return abft::finding{.word = same ? abft::k_pass : abft::k_fail, .residual = 1};
    };
    return run::attempt(seen, how.protection, "fft.input", 0, once) != abft::outcome::uncorrectable;
  };
  if (!copy(copies[0], what.in.data) || (what.in_imaginary != nullptr && !copy(copies[1], what.in_imaginary))) return;
  transform_args args = args_of(what, how, seen, injector);
  args.in_place = false;
  if (what.in_imaginary != nullptr) args.in_imaginary = copies[1].data();
  work.run(copies[0].data(), const_cast<void*>(what.out.data), args);
}

// A call on a group of devices, on which every device has read its part before one stores its own.
template <class T>
report run_on_devices(const group_plan<T>& on, const operation& what, const call& now) {
  using complex = std::complex<T>;
  const array_problem& shape = what.of.shape;
  const auto in = [&]<class U>(U) { return std::span(static_cast<const U*>(what.in.data), static_cast<std::size_t>(shape.input.extent)); };
  const auto out = [&]<class U>(U) {
    return std::span(static_cast<U*>(const_cast<void*>(what.out.data)), static_cast<std::size_t>(shape.output.extent));
  };
  if (what.of.problem.kind == kind::r2c) return on.forward(in(T()), out(complex()), now);
  if (what.of.problem.kind == kind::c2r) return on.inverse(in(complex()), out(T()), now);
  return what.way == direction::forward ? on.forward(in(complex()), out(complex()), now) : on.inverse(in(complex()), out(complex()), now);
}

// The operation by another plan of the same problem.
operation by(const plan::implementation& plan, const operation& what) {
  return {plan, what.way, what.in, what.out, what.in_place, what.crossed, what.in_imaginary, what.out_imaginary};
}

report execute(const operation& asked, const call& now) {
  if (const auto* const single = std::get_if<group_plan<float>>(&asked.of.devices)) return run_on_devices(*single, asked, now);
  if (const auto* const twice = std::get_if<group_plan<double>>(&asked.of.devices)) return run_on_devices(*twice, asked, now);
  const shared_text& token = token_of(asked.of, asked.way);
  return run::in_call(&asked.of.memory, asked.of.where.device, token, [&] {
    if (asked.of.backend == backend::cuda) ballast::cuda::refuse_capture(now.stream, token);
    const auto on_host = [](const void* memory) {
      return memory == nullptr || ballast::cuda::residence_of(memory) == ballast::cuda::residence::host;
    };
    const auto all_on_host = [&] {
      return on_host(asked.in.data) && on_host(asked.out.data) && on_host(asked.in_imaginary) && on_host(asked.out_imaginary);
    };
    if (asked.crossed && !all_on_host()) refuse_crossed(asked.of.shape, token);
    const operation what = by(asked.of.next(asked.way), asked);
    const plan::implementation& plan = what.of;
    const run::settings how = run::settings_of(plan.where, now);
    inject::active_injector injector(how.faults, site::table());
    const bool here = plan.work_here != nullptr && how.faults == nullptr && all_on_host();
    run::recorder seen(token, here ? backend::cpu : plan.backend, plan.scheme, how, injector);
    // Earlier work on the stream may still write pinned operands, which the host reads.
    if (here || (what.crossed && plan.backend == backend::cuda)) ballast::cuda::current_device()->synchronize(how.stream);
    const transform& work = here ? *plan.work_here : *plan.work;
    if (what.crossed)
      run_copied(work, what, how, seen, injector);
    else
      work.run(what.in.data, const_cast<void*>(what.out.data), args_of(what, how, seen, injector));
    return seen.finish();
  });
}

pending_report enqueue(const std::shared_ptr<const plan::implementation>& owner, const operation& asked, const call& now) {
  const shared_text& token = token_of(*owner, asked.way);
  if (owner->work == nullptr)
    throw unsupported_error(fmt::format("{}: expected a call without a group of devices for enqueue, got one on a group", token.view()));
  if (asked.crossed) refuse_crossed(owner->shape, token);
  return run::in_call(&owner->memory, owner->where.device, token, [&] {
    const auto refuse = [&] {
      throw unsupported_error(fmt::format("{}: expected the cuda backend for enqueue, got {}", token.view(), to_string(owner->backend)));
    };
    if (owner->backend != backend::cuda) refuse();
    const operation what = by(owner->next(asked.way), asked);
    const plan::implementation& plan = what.of;
    const run::settings how = run::settings_of(plan.where, now);
    auto made = std::unique_ptr<pending_report::implementation>(new pending_report::implementation{
        {}, owner, how, token, plan.backend, plan.scheme, inject::active_injector(how.faults, site::table()), nullptr});
    run::recorder unused(token, plan.backend, plan.scheme, made->how, made->injector);
    made->work = plan.work->enqueue(what.in.data, const_cast<void*>(what.out.data), args_of(what, made->how, unused, made->injector));
    if (!made->work) refuse();
    return pending_report(std::move(made));
  });
}

}  // namespace

std::int64_t plan::workspace_bytes() const {
  const auto bytes_of = [](const implementation& of) { return of.work == nullptr ? 0 : of.work->workspace_bytes(); };
  const implementation& plan = made();
  return std::max(bytes_of(plan), plan.sampled.unprotected == nullptr ? 0 : bytes_of(*plan.sampled.unprotected));
}

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
pending_report plan::enqueue_forward(std::span<const float> in, std::span<float> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::forward, in, out), now);
}
pending_report plan::enqueue_forward(std::span<const double> in, std::span<double> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::forward, in, out), now);
}
pending_report plan::enqueue_inverse(std::span<const float> in, std::span<float> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::inverse, in, out), now);
}
pending_report plan::enqueue_inverse(std::span<const double> in, std::span<double> out, const call& now) const {
  return enqueue(implementation_, operation_of(made(), direction::inverse, in, out), now);
}

report plan::forward(parts<const float> in, parts<float> out, const call& now) const {
  return execute(split_operation(made(), direction::forward, in, out), now);
}
report plan::forward(parts<const double> in, parts<double> out, const call& now) const {
  return execute(split_operation(made(), direction::forward, in, out), now);
}
report plan::forward(std::span<const float> in, parts<float> out, const call& now) const {
  return execute(split_operation(made(), direction::forward, in, out), now);
}
report plan::forward(std::span<const double> in, parts<double> out, const call& now) const {
  return execute(split_operation(made(), direction::forward, in, out), now);
}
report plan::inverse(parts<const float> in, parts<float> out, const call& now) const {
  return execute(split_operation(made(), direction::inverse, in, out), now);
}
report plan::inverse(parts<const double> in, parts<double> out, const call& now) const {
  return execute(split_operation(made(), direction::inverse, in, out), now);
}
report plan::inverse(parts<const float> in, std::span<float> out, const call& now) const {
  return execute(split_operation(made(), direction::inverse, in, out), now);
}
report plan::inverse(parts<const double> in, std::span<double> out, const call& now) const {
  return execute(split_operation(made(), direction::inverse, in, out), now);
}
pending_report plan::enqueue_forward(parts<const float> in, parts<float> out, const call& now) const {
  return enqueue(implementation_, split_operation(made(), direction::forward, in, out), now);
}
pending_report plan::enqueue_forward(parts<const double> in, parts<double> out, const call& now) const {
  return enqueue(implementation_, split_operation(made(), direction::forward, in, out), now);
}
pending_report plan::enqueue_forward(std::span<const float> in, parts<float> out, const call& now) const {
  return enqueue(implementation_, split_operation(made(), direction::forward, in, out), now);
}
pending_report plan::enqueue_forward(std::span<const double> in, parts<double> out, const call& now) const {
  return enqueue(implementation_, split_operation(made(), direction::forward, in, out), now);
}
pending_report plan::enqueue_inverse(parts<const float> in, parts<float> out, const call& now) const {
  return enqueue(implementation_, split_operation(made(), direction::inverse, in, out), now);
}
pending_report plan::enqueue_inverse(parts<const double> in, parts<double> out, const call& now) const {
  return enqueue(implementation_, split_operation(made(), direction::inverse, in, out), now);
}
pending_report plan::enqueue_inverse(parts<const float> in, std::span<float> out, const call& now) const {
  return enqueue(implementation_, split_operation(made(), direction::inverse, in, out), now);
}
pending_report plan::enqueue_inverse(parts<const double> in, std::span<double> out, const call& now) const {
  return enqueue(implementation_, split_operation(made(), direction::inverse, in, out), now);
}

}  // namespace ballast::fft
