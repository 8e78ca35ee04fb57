// FFT: plans by options or for operands, and the check that operands lie as the plan says.
// Layer: interface.
#include <algorithm>
#include <array>
#include <complex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c/handles.hpp"
#include "c/tensor.hpp"
#include "core/format.hpp"

namespace ballast::c {

namespace {

// The layout that one side of a plan expects of its tensors, in elements of that side.
struct expected_side {
  std::vector<std::int64_t> length, stride;  // along the transformed axes
  std::int64_t batch = 1;
  std::int64_t distance = 0;
  element type = element::f32;
};

element type_on(const fft::problem& of, bool input) {
  const bool real = of.kind == (input ? fft::kind::r2c : fft::kind::c2r);
  if (of.precision == precision::f32) return real ? element::f32 : element::c64;
  return real ? element::f64 : element::c128;
}

// The sizes have been validated by the plan.
expected_side side_of(const fft::problem& of, bool input) {
  const fft::layout& given = input ? of.input : of.output;
  expected_side made{
      .length = of.shape, .stride = given.strides, .batch = of.batch, .distance = given.distance, .type = type_on(of, input)};
  if (of.kind != fft::kind::c2c && is_complex(made.type)) made.length.back() = made.length.back() / 2 + 1;
  if (!given.strides.empty()) return made;
  made.stride.resize(made.length.size());
  std::int64_t next = 1;
  for (std::size_t axis = made.length.size(); axis-- > 0;) {
    made.stride[axis] = next;
    next *= made.length[axis];
  }
  if (made.distance == 0) made.distance = next;
  return made;
}

// The tensor's axes that are transformed, in the order of the shape, and the others, in theirs.
struct split_axes {
  std::array<std::size_t, 3> transformed{};
  std::size_t rank = 0;
  std::array<std::size_t, k_most_axes> others;
  std::size_t count = 0;  // how many others there are
};

split_axes split(const tensor& of, const std::vector<std::int64_t>& wanted, std::size_t rank) {
  const auto refuse = [&](const std::string& what) {
    throw invalid_argument_error(fmt::format("{}{}{}: {}", of.as.problem, of.as.problem.empty() ? "" : ": ", of.as.name, what));
  };
  const auto axes = static_cast<std::size_t>(of.axes);
  if (axes < rank) refuse(fmt::format("expected at least {} axes, got {} ({})", rank, axes, lengths_of(of)));
  split_axes made;
  made.rank = rank;
  static_assert(k_most_axes <= 64);
  std::uint64_t taken = 0;  // one bit for each axis
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t given = wanted.empty() ? static_cast<std::int64_t>(axes - rank + i) : wanted[i];
    const std::int64_t axis = given < 0 ? given + of.axes : given;
    if (axis < 0 || axis >= of.axes) refuse(fmt::format("axes: expected numbers of its {} axes, got {}", axes, given));
    if (((taken >> axis) & 1) != 0) refuse(fmt::format("axes: expected different ones, got {} twice", given));
    taken |= std::uint64_t{1} << axis;
    made.transformed[i] = static_cast<std::size_t>(axis);
  }
  for (std::size_t axis = 0; axis < axes; ++axis) {
    if (((taken >> axis) & 1) == 0) made.others[made.count++] = axis;
  }
  return made;
}

// The distance that steps through all other axes in row-major order, and their product.
struct batch_steps {
  std::int64_t count = 1;
  std::int64_t distance = 0;  // 0: there is one signal
};

// Returns nothing if no single distance does.
std::optional<batch_steps> steps_of(const tensor& of, const split_axes& axes) {
  batch_steps made;
  for (std::size_t i = axes.count; i-- > 0;) {
    const std::int64_t length = of.length[axes.others[i]], stride = of.stride[axes.others[i]];
    if (length == 1) continue;
    std::int64_t expected = 0;
    if (made.distance == 0)
      made.distance = stride;
    else if (__builtin_mul_overflow(made.distance, made.count, &expected) || stride != expected)
      return std::nullopt;
    if (__builtin_mul_overflow(made.count, length, &made.count)) return std::nullopt;
  }
  return made;
}

}  // namespace

}  // namespace ballast::c

struct ballast_fft_plan : ballast::c::handle<ballast::c::kind::fft_plan> {
  explicit ballast_fft_plan(const ballast_options& with)
      : options(with),
        plan(options.fft, options.where, options.fft_wanted),
        in(ballast::c::side_of(options.fft, true)),
        out(ballast::c::side_of(options.fft, false)),
        on_host(plan.backend() != ballast::backend::cuda) {
    for (const auto way : {ballast::fft::direction::forward, ballast::fft::direction::inverse})
      tokens[static_cast<std::size_t>(way)] = to_token(options.fft, way);
    if (!options.axes.empty() && options.axes.size() != options.fft.shape.size())
      throw ballast::invalid_argument_error(ballast::fmt::format("{}: axes: expected none or {}, one for each length, got {}", tokens[0],
                                                                 options.fft.shape.size(), options.axes.size()));
  }
  ballast_options options;
  ballast::fft::plan plan;
  ballast::c::expected_side in, out;
  bool on_host;
  std::string tokens[2];
};

namespace ballast::c {

namespace {

// The elements of an operand, from the first to the last that the plan reaches. Throws unless the tensor is as the plan expects.
std::pair<void*, std::size_t> operand_of(const ballast_fft_plan& plan, const DLTensor* given, named as, const expected_side& wanted) {
  const tensor of(given, as);
  const auto refuse = [&](const std::string& what) { throw invalid_argument_error(fmt::format("{}: {}: {}", as.problem, as.name, what)); };
  of.expect(wanted.type);
  const split_axes axes = split(of, plan.options.axes, wanted.length.size());
  std::int64_t last = 0;
  for (std::size_t i = 0; i < axes.rank; ++i) {
    const std::size_t axis = axes.transformed[i];
    if (of.length[axis] != wanted.length[i])
      refuse(fmt::format("expected {} elements along axis {}, got {}", wanted.length[i], axis, of.length[axis]));
    if (wanted.length[i] > 1 && of.stride[axis] != wanted.stride[i])
      refuse(fmt::format("expected a stride of {} along axis {}, got {}", wanted.stride[i], axis, of.stride[axis]));
    last += (wanted.length[i] - 1) * wanted.stride[i];
  }
  const std::optional<batch_steps> steps = steps_of(of, axes);
  if (!steps)
    refuse(
        fmt::format("expected axes beside the transformed ones with a distance of {} from signal to signal, got others", wanted.distance));
  if (steps->count != wanted.batch) refuse(fmt::format("expected a batch of {} signals, got {}", wanted.batch, steps->count));
  if (wanted.batch > 1 && steps->distance != wanted.distance)
    refuse(fmt::format("expected a distance of {} from signal to signal, got {}", wanted.distance, steps->distance));
  last += (wanted.batch - 1) * wanted.distance;
  void* const first = of.address(plan.options.where);
  if (plan.on_host && of.on_device())
    throw unsupported_error(
        fmt::format("{}: {}: expected the backend cuda for device memory, got {}", as.problem, as.name, to_string(plan.plan.backend())));
  return {first, static_cast<std::size_t>(last + 1)};
}

fft::direction direction_of(std::int32_t given) {
  if (given != BALLAST_FORWARD && given != BALLAST_INVERSE)
    throw invalid_argument_error(fmt::format("direction: expected 0 (forward) or 1 (inverse), got {}", given));
  return static_cast<fft::direction>(given);
}

template <class T>
std::span<T> span_of(const std::pair<void*, std::size_t>& of) {
  return {static_cast<std::remove_const_t<T>*>(of.first), of.second};
}

// Calls work(in, out) with spans of the plan's types.
template <class T, class Work>
void with_types(fft::kind which, const std::pair<void*, std::size_t>& in, const std::pair<void*, std::size_t>& out, Work&& work) {
  using complex = std::complex<T>;
  switch (which) {
    case fft::kind::c2c: return work(span_of<const complex>(in), span_of<complex>(out));
    case fft::kind::r2c: return work(span_of<const T>(in), span_of<complex>(out));
    case fft::kind::c2r: return work(span_of<const complex>(in), span_of<T>(out));
  }
}

// Checks the operands and calls work(in, out).
template <class Work>
void with_operands(const ballast_fft_plan& plan, fft::direction way, const DLTensor* in, const DLTensor* out, Work&& work) {
  const fft::problem& problem = plan.options.fft;
  const std::string_view token = plan.tokens[static_cast<std::size_t>(way)];
  if (problem.kind != fft::kind::c2c && way != (problem.kind == fft::kind::r2c ? fft::direction::forward : fft::direction::inverse))
    throw invalid_argument_error(fmt::format("{}: direction: expected that of {}, got {}", token, to_string(problem.kind), to_string(way)));
  const auto from = operand_of(plan, in, {token, "in"}, plan.in);
  const auto to = operand_of(plan, out, {token, "out"}, plan.out);
  if (problem.precision == precision::f32)
    with_types<float>(problem.kind, from, to, work);
  else
    with_types<double>(problem.kind, from, to, work);
}

// The problem that operands like these pose.
void take_problem(ballast_options& to, const DLTensor* in, const DLTensor* out) {
  const tensor a(in, {"", "in"}), b(out, {"", "out"});
  const auto refuse = [](const std::string& what) { throw invalid_argument_error("in and out: " + what); };
  for (const tensor* each : {&a, &b}) {
    if (each->type == element::i32) each->expect(element::f32);
  }
  if (precision_of_element(a.type) != precision_of_element(b.type)) refuse("expected one precision, got two");
  if (!is_complex(a.type) && !is_complex(b.type)) refuse("expected at least one of complex numbers, got real numbers in both");
  if (a.axes != b.axes) refuse(fmt::format("expected the same number of axes, got {} and {}", a.axes, b.axes));
  const std::size_t rank = to.axes.empty() ? 1 : to.axes.size();
  if (rank > 3) refuse(fmt::format("axes: expected 1 to 3 axes, got {}", rank));
  const split_axes axes = split(a, to.axes, rank);

  fft::problem& made = to.fft;
  made.kind = !is_complex(a.type) ? fft::kind::r2c : !is_complex(b.type) ? fft::kind::c2r : fft::kind::c2c;
  made.precision = precision_of_element(a.type);
  const tensor& full = made.kind == fft::kind::c2r ? b : a;
  made.shape.clear();
  made.input = made.output = {};
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t axis = axes.transformed[i];
    made.shape.push_back(full.length[axis]);
    // A stride along one element means nothing, and the plan may refuse it. The lengths of the half spectrum differ.
    made.input.strides.push_back(a.length[axis] == 1 ? 1 : a.stride[axis]);
    made.output.strides.push_back(b.length[axis] == 1 ? 1 : b.stride[axis]);
    const std::int64_t half = full.length[axis] / 2 + 1;
    const bool shortened = i + 1 == rank && made.kind != fft::kind::c2c;
    for (const tensor* each : {&a, &b}) {
      const std::int64_t expected = shortened && is_complex(each->type) ? half : full.length[axis];
      if (each->length[axis] != expected)
        refuse(fmt::format("expected {} elements along axis {} of {}, got {}", expected, axis, each->as.name, each->length[axis]));
    }
  }
  for (std::size_t i = 0; i < axes.count; ++i) {
    const std::size_t axis = axes.others[i];
    if (a.length[axis] != b.length[axis])
      refuse(fmt::format("expected as many signals in both, got {} and {} along axis {}", a.length[axis], b.length[axis], axis));
  }
  const std::optional<batch_steps> from = steps_of(a, axes), target = steps_of(b, axes);
  if (!from || !target)
    throw unsupported_error(
        fmt::format("in and out: expected one distance that steps through the axes that are not transformed, got {} of {}",
                    lengths_of(from ? b : a), from ? "out" : "in"));
  made.batch = from->count;
  made.input.distance = from->distance;
  made.output.distance = target->distance;
}

}  // namespace

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_fft_plan_create(const ballast_options* options, ballast_fft_plan** plan, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    output(plan, "plan") = nullptr;
    const ballast_options& with = options_for(options, algorithm::fft);
    here.poses(
        to_token(with.fft, with.fft.kind == ballast::fft::kind::c2r ? ballast::fft::direction::inverse : ballast::fft::direction::forward));
    *plan = new ballast_fft_plan(with);
  });
}

int32_t ballast_fft_plan_create_like(const DLTensor* in, const DLTensor* out, const ballast_options* options, ballast_fft_plan** plan,
                                     ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(plan, "plan") = nullptr;
    ballast_options with = options == nullptr ? ballast_options(algorithm::fft) : options_for(options, algorithm::fft);
    take_problem(with, in, out);
    *plan = new ballast_fft_plan(with);
  });
}

void ballast_fft_plan_destroy(ballast_fft_plan* plan) { destroy(plan); }

int32_t ballast_fft_run(const ballast_fft_plan* plan, int32_t direction, const DLTensor* in, const DLTensor* out, const ballast_call* call,
                        ballast_report* report, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast_fft_plan& with = needed(plan, "plan");
    const auto way = direction_of(direction);
    here.problem = with.tokens[direction];
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    with_operands(with, way, in, out, [&](auto from, auto to) {
      using In = typename decltype(from)::value_type;
      using Out = typename decltype(to)::value_type;
      if constexpr (std::is_floating_point_v<In>) {
        fill(report, with.plan.forward(from, to, now));
      } else if constexpr (std::is_floating_point_v<Out>) {
        fill(report, with.plan.inverse(from, to, now));
      } else {
        fill(report, way == ballast::fft::direction::forward ? with.plan.forward(from, to, now) : with.plan.inverse(from, to, now));
      }
    });
  });
}

int32_t ballast_fft_enqueue(const ballast_fft_plan* plan, int32_t direction, const DLTensor* in, const DLTensor* out,
                            const ballast_call* call, ballast_pending** pending, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    output(pending, "pending") = nullptr;
    const ballast_fft_plan& with = needed(plan, "plan");
    const auto way = direction_of(direction);
    here.problem = with.tokens[direction];
    const ballast::call& now = call_of(call);
    const auto made = [&](ballast::pending_report enqueued) {
      *pending = new ballast_pending(std::move(enqueued), with.tokens[direction], !now.throw_on_uncorrectable);
    };
    with_operands(with, way, in, out, [&](auto from, auto to) {
      using In = typename decltype(from)::value_type;
      using Out = typename decltype(to)::value_type;
      if constexpr (std::is_floating_point_v<In>) {
        made(with.plan.enqueue_forward(from, to, now));
      } else if constexpr (std::is_floating_point_v<Out>) {
        made(with.plan.enqueue_inverse(from, to, now));
      } else {
        made(way == ballast::fft::direction::forward ? with.plan.enqueue_forward(from, to, now) : with.plan.enqueue_inverse(from, to, now));
      }
    });
  });
}

int32_t ballast_fft_plan_workspace_bytes(const ballast_fft_plan* plan, int64_t* bytes, ballast_error* error) {
  return guarded(error, [&](frame&) { output(bytes, "bytes") = needed(plan, "plan").plan.workspace_bytes(); });
}

int32_t ballast_fft_plan_backend(const ballast_fft_plan* plan, int32_t* backend, ballast_error* error) {
  return guarded(error, [&](frame&) { output(backend, "backend") = static_cast<std::int32_t>(needed(plan, "plan").plan.backend()); });
}

int32_t ballast_fft_plan_token(const ballast_fft_plan* plan, int32_t direction, const char** token, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast_fft_plan& of = needed(plan, "plan");
    output(token, "token") = of.tokens[static_cast<std::size_t>(direction_of(direction))].c_str();
  });
}

int32_t ballast_fft_plan_options(const ballast_fft_plan* plan, ballast_options** options, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(options, "options") = nullptr;
    *options = new ballast_options(needed(plan, "plan").options);
  });
}
