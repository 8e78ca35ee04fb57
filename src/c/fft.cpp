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

// Signals along one distance, or along several axes that one distance steps through.
struct signal_loop {
  std::int64_t count, distance;
  bool operator==(const signal_loop&) const = default;
};

// Appends a loop inside those of `to`: nothing for one signal, and one loop with the last one if that continues it. Returns false if the
// count does not fit into 63 bits.
bool append(std::vector<signal_loop>& to, const signal_loop& inner) {
  if (inner.count == 1) return true;
  std::int64_t step = 0;
  if (to.empty() || __builtin_mul_overflow(inner.distance, inner.count, &step) || to.back().distance != step) {
    to.push_back(inner);
    return true;
  }
  to.back().distance = inner.distance;
  return !__builtin_mul_overflow(to.back().count, inner.count, &to.back().count);
}

// The layout that one side of a plan expects of its tensors, in elements of that side.
struct expected_side {
  std::vector<std::int64_t> length, stride;  // along the transformed axes
  std::vector<signal_loop> loops;
  std::int64_t signals = 1;
  element type = element::f32;
};

// The problem that options describe.
fft::problem problem_of(const ballast_options& given) {
  fft::problem made = given.fft;
  for (const std::int64_t each : given.real_kinds) {
    if (each < BALLAST_R2HC || each > BALLAST_DST4)
      throw invalid_argument_error(
          fmt::format("real_kinds: expected numbers from {} (r2hc) to {} (dst4), got {}", BALLAST_R2HC, BALLAST_DST4, each));
    made.real_kinds.push_back(static_cast<fft::real_kind>(each));
  }
  if (made.real_kinds.size() == 1 && !made.shape.empty()) made.real_kinds.resize(made.shape.size(), made.real_kinds.front());
  if (given.loop_counts.size() != given.loop_inputs.size() || given.loop_counts.size() != given.loop_outputs.size())
    throw invalid_argument_error(fmt::format("loop_counts, loop_inputs and loop_outputs: expected as many of each, got {}, {} and {}",
                                             given.loop_counts.size(), given.loop_inputs.size(), given.loop_outputs.size()));
  for (std::size_t i = 0; i < given.loop_counts.size(); ++i)
    made.loops.push_back({given.loop_counts[i], given.loop_inputs[i], given.loop_outputs[i]});
  return made;
}

element type_on(const fft::problem& of, bool input) {
  const bool real = of.kind == fft::kind::r2r || of.kind == (input ? fft::kind::r2c : fft::kind::c2r);
  if (of.precision == precision::f32) return real || of.split ? element::f32 : element::c64;
  return real || of.split ? element::f64 : element::c128;
}

// The sizes have been validated by the plan.
expected_side side_of(const fft::problem& of, bool input) {
  const fft::layout& given = input ? of.input : of.output;
  expected_side made{.length = of.shape, .stride = given.strides, .loops = {}, .signals = of.batch, .type = type_on(of, input)};
  if (of.kind == (input ? fft::kind::c2r : fft::kind::r2c)) made.length.back() = made.length.back() / 2 + 1;
  std::int64_t distance = given.distance;
  if (given.strides.empty()) {
    made.stride.resize(made.length.size());
    std::int64_t next = 1;
    for (std::size_t axis = made.length.size(); axis-- > 0;) {
      made.stride[axis] = next;
      next *= made.length[axis];
    }
    if (distance == 0) distance = next;
  }
  for (const fft::loop& each : of.loops) {
    append(made.loops, {each.count, input ? each.input : each.output});
    made.signals *= each.count;
  }
  append(made.loops, {of.batch, distance});
  return made;
}

std::string text_of(const std::vector<signal_loop>& loops) {
  if (loops.empty()) return "one signal";
  std::string made;
  for (const signal_loop& each : loops)
    made += fmt::format("{}{} at a distance of {}", made.empty() ? "" : ", ", each.count, each.distance);
  return made;
}

// The tensor's axes that are transformed, in the order of the shape, and the others, in theirs.
struct split_axes {
  std::array<std::size_t, k_most_axes> transformed{};
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

// The other axes as loops. Returns nothing if there are too many signals.
std::optional<std::vector<signal_loop>> loops_of(const tensor& of, const split_axes& axes) {
  std::vector<signal_loop> made;
  for (std::size_t i = 0; i < axes.count; ++i) {
    if (!append(made, {of.length[axes.others[i]], of.stride[axes.others[i]]})) return std::nullopt;
  }
  return made;
}

}  // namespace

}  // namespace ballast::c

struct ballast_fft_plan : ballast::c::handle<ballast::c::kind::fft_plan> {
  explicit ballast_fft_plan(const ballast_options& with)
      : options(with),
        problem(ballast::c::problem_of(options)),
        plan(problem, ballast::c::where_of(options), options.fft_wanted),
        in(ballast::c::side_of(problem, true)),
        out(ballast::c::side_of(problem, false)),
        on_host(plan.backend() != ballast::backend::cuda) {
    for (const auto way : {ballast::fft::direction::forward, ballast::fft::direction::inverse})
      tokens[static_cast<std::size_t>(way)] = to_token(problem, way);
    if (!options.axes.empty() && options.axes.size() != problem.shape.size())
      throw ballast::invalid_argument_error(ballast::fmt::format("{}: axes: expected none or {}, one for each length, got {}", tokens[0],
                                                                 problem.shape.size(), options.axes.size()));
  }
  ballast_options options;
  ballast::fft::problem problem;
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
  std::int64_t lowest = 0, highest = 0;  // in elements from the first one
  const auto reach = [&](std::int64_t count, std::int64_t stride) { (stride < 0 ? lowest : highest) += (count - 1) * stride; };
  for (std::size_t i = 0; i < axes.rank; ++i) {
    const std::size_t axis = axes.transformed[i];
    if (of.length[axis] != wanted.length[i])
      refuse(fmt::format("expected {} elements along axis {}, got {}", wanted.length[i], axis, of.length[axis]));
    if (wanted.length[i] > 1 && of.stride[axis] != wanted.stride[i])
      refuse(fmt::format("expected a stride of {} along axis {}, got {}", wanted.stride[i], axis, of.stride[axis]));
    reach(wanted.length[i], wanted.stride[i]);
  }
  const std::optional<std::vector<signal_loop>> loops = loops_of(of, axes);
  std::int64_t signals = 1;
  bool counted = loops.has_value();
  if (counted) {
    for (const signal_loop& each : *loops) counted = counted && !__builtin_mul_overflow(signals, each.count, &signals);
  }
  if (!counted || signals != wanted.signals)
    refuse(fmt::format("expected a batch of {} signals, got {}", wanted.signals, counted ? std::to_string(signals) : "more than 2^63"));
  if (*loops != wanted.loops) {
    if (loops->size() == 1 && wanted.loops.size() == 1)
      refuse(fmt::format("expected a distance of {} from signal to signal, got {}", wanted.loops[0].distance, (*loops)[0].distance));
    refuse(fmt::format("expected axes beside the transformed ones that give {}, got {}", text_of(wanted.loops), text_of(*loops)));
  }
  for (const signal_loop& each : wanted.loops) reach(each.count, each.distance);
  void* const first = of.address(plan.options.where);
  if (plan.on_host && of.on_device())
    throw unsupported_error(
        fmt::format("{}: {}: expected the backend cuda for device memory, got {}", as.problem, as.name, to_string(plan.plan.backend())));
  const std::int64_t width = (is_complex(wanted.type) ? 2 : 1) * (precision_of_element(wanted.type) == precision::f32 ? 4 : 8);
  return {static_cast<unsigned char*>(first) + lowest * width, static_cast<std::size_t>(highest - lowest + 1)};
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
    case fft::kind::r2r: return work(span_of<const T>(in), span_of<T>(out));
  }
}

// Throws unless the plan computes this direction, and its complex sides are split or not.
void check_way(const ballast_fft_plan& plan, fft::direction way, bool split) {
  const fft::problem& problem = plan.problem;
  const std::string_view token = plan.tokens[static_cast<std::size_t>(way)];
  const bool one_way = problem.kind == fft::kind::r2c || problem.kind == fft::kind::c2r;
  if (one_way && way != (problem.kind == fft::kind::r2c ? fft::direction::forward : fft::direction::inverse))
    throw invalid_argument_error(fmt::format("{}: direction: expected that of {}, got {}", token, to_string(problem.kind), to_string(way)));
  if (problem.split != split)
    throw invalid_argument_error(fmt::format("{}: split: expected a plan {} this option for this call", token, split ? "with" : "without"));
}

// Checks the operands of a split plan and calls work(in, out).
template <class T, class Work>
void with_parts(const ballast_fft_plan& plan, fft::direction way, const DLTensor* const (&in)[2], const DLTensor* const (&out)[2],
                const Work& work) {
  using fft::parts;
  const std::string_view token = plan.tokens[static_cast<std::size_t>(way)];
  const auto side = [&]<class U>(U*, const DLTensor* const(&given)[2], const expected_side& wanted, const char* real, const char* imaginary,
                                 bool is_real) {
    if (is_real && given[1] != nullptr)
      throw invalid_argument_error(fmt::format("{}: {}: expected null for a side of real numbers, got a tensor", token, imaginary));
    return parts<U>{span_of<U>(operand_of(plan, given[0], {token, real}, wanted)),
                    is_real ? std::span<U>{} : span_of<U>(operand_of(plan, given[1], {token, imaginary}, wanted))};
  };
  const fft::kind kind = plan.problem.kind;
  const auto from = side(static_cast<const T*>(nullptr), in, plan.in, "in_real", "in_imaginary", kind == fft::kind::r2c);
  const auto to = side(static_cast<T*>(nullptr), out, plan.out, "out_real", "out_imaginary", kind == fft::kind::c2r);
  if (kind == fft::kind::r2c)
    work(from.real, to);
  else if (kind == fft::kind::c2r)
    work(from, to.real);
  else
    work(from, to);
}
template <class Work>
void with_parts(const ballast_fft_plan& plan, fft::direction way, const DLTensor* const (&in)[2], const DLTensor* const (&out)[2],
                const Work& work) {
  check_way(plan, way, true);
  if (plan.problem.precision == precision::f32)
    with_parts<float>(plan, way, in, out, work);
  else
    with_parts<double>(plan, way, in, out, work);
}

// Checks the operands and calls work(in, out).
template <class Work>
void with_operands(const ballast_fft_plan& plan, fft::direction way, const DLTensor* in, const DLTensor* out, Work&& work) {
  check_way(plan, way, false);
  const fft::problem& problem = plan.problem;
  const std::string_view token = plan.tokens[static_cast<std::size_t>(way)];
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
    if (!is_number(each->type)) each->expect(element::f32);
  }
  if (precision_of_element(a.type) != precision_of_element(b.type)) refuse("expected one precision, got two");
  const bool real = !is_complex(a.type) && !is_complex(b.type);
  if (real && to.real_kinds.empty())
    refuse("expected at least one of complex numbers, or the option real_kinds, got real numbers in both and no kinds");
  if (a.axes != b.axes) refuse(fmt::format("expected the same number of axes, got {} and {}", a.axes, b.axes));
  const std::size_t rank = to.axes.empty() ? 1 : to.axes.size();
  const split_axes axes = split(a, to.axes, rank);

  fft::problem& made = to.fft;
  made.kind = real ? fft::kind::r2r : !is_complex(a.type) ? fft::kind::r2c : !is_complex(b.type) ? fft::kind::c2r : fft::kind::c2c;
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
  // Axes that one distance steps through on both sides are one loop. The last loop is the batch.
  std::vector<fft::loop> loops;
  for (std::size_t i = 0; i < axes.count; ++i) {
    const std::size_t axis = axes.others[i];
    const fft::loop next{a.length[axis], a.stride[axis], b.stride[axis]};
    if (next.count == 1) continue;
    std::int64_t in_step = 0, out_step = 0, count = 0;
    const bool overflows = __builtin_mul_overflow(next.input, next.count, &in_step) ||
                           __builtin_mul_overflow(next.output, next.count, &out_step) ||
                           (!loops.empty() && __builtin_mul_overflow(loops.back().count, next.count, &count));
    if (!overflows && !loops.empty() && loops.back().input == in_step && loops.back().output == out_step)
      loops.back() = {count, next.input, next.output};
    else
      loops.push_back(next);
  }
  const fft::loop batch = loops.empty() ? fft::loop{} : loops.back();
  if (!loops.empty()) loops.pop_back();
  made.batch = batch.count;
  made.input.distance = batch.input;
  made.output.distance = batch.output;
  to.loop_counts.clear();
  to.loop_inputs.clear();
  to.loop_outputs.clear();
  for (const fft::loop& each : loops) {
    to.loop_counts.push_back(each.count);
    to.loop_inputs.push_back(each.input);
    to.loop_outputs.push_back(each.output);
  }
}

// Returns whether an operand holds reals. The parts of complex numbers have `imaginary`.
template <class Operand>
constexpr bool holds_reals() {
  if constexpr (requires(const Operand& of) { of.imaginary; })
    return false;
  else
    return std::is_floating_point_v<typename Operand::value_type>;
}

// Calls forward(from, to) or inverse(from, to): what the operands say, if one side alone holds reals, else what the caller says.
template <class From, class To, class Forward, class Inverse>
void in_direction(ballast::fft::direction way, const From& from, const To& to, Forward&& forward, Inverse&& inverse) {
  if constexpr (holds_reals<From>() != holds_reals<To>()) {
    if constexpr (holds_reals<From>())
      forward(from, to);
    else
      inverse(from, to);
  } else if (way == ballast::fft::direction::forward) {
    forward(from, to);
  } else {
    inverse(from, to);
  }
}

// operands(plan, way, use) calls use(from, to).
template <class Operands>
int32_t run_transform(const ballast_fft_plan* plan, int32_t direction, const ballast_call* call, ballast_report* report,
                      ballast_error* error, Operands&& operands) {
  return guarded(error, [&](frame& here) {
    const ballast_fft_plan& with = needed(plan, "plan");
    const auto way = direction_of(direction);
    here.problem = with.tokens[direction];
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    operands(with, way, [&](const auto& from, const auto& to) {
      in_direction(
          way, from, to, [&](const auto& x, const auto& y) { fill(report, with.plan.forward(x, y, now)); },
          [&](const auto& x, const auto& y) { fill(report, with.plan.inverse(x, y, now)); });
    });
  });
}

template <class Operands>
int32_t enqueue_transform(const ballast_fft_plan* plan, int32_t direction, const ballast_call* call, ballast_pending** pending,
                          ballast_error* error, Operands&& operands) {
  return guarded(error, [&](frame& here) {
    output(pending, "pending") = nullptr;
    const ballast_fft_plan& with = needed(plan, "plan");
    const auto way = direction_of(direction);
    here.problem = with.tokens[direction];
    const ballast::call& now = call_of(call);
    const auto made = [&](ballast::pending_report enqueued) {
      *pending = new ballast_pending(std::move(enqueued), with.tokens[direction], !now.throw_on_uncorrectable);
    };
    operands(with, way, [&](const auto& from, const auto& to) {
      in_direction(
          way, from, to, [&](const auto& x, const auto& y) { made(with.plan.enqueue_forward(x, y, now)); },
          [&](const auto& x, const auto& y) { made(with.plan.enqueue_inverse(x, y, now)); });
    });
  });
}

}  // namespace

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_fft_plan_create(const ballast_options* options, ballast_fft_plan** plan, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    output(plan, "plan") = nullptr;
    const ballast_options& with = options_for(options, algorithm::fft);
    const ballast::fft::problem problem = problem_of(with);
    here.poses(
        to_token(problem, problem.kind == ballast::fft::kind::c2r ? ballast::fft::direction::inverse : ballast::fft::direction::forward));
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
  return run_transform(plan, direction, call, report, error,
                       [&](const ballast_fft_plan& with, auto way, auto&& use) { with_operands(with, way, in, out, use); });
}

int32_t ballast_fft_enqueue(const ballast_fft_plan* plan, int32_t direction, const DLTensor* in, const DLTensor* out,
                            const ballast_call* call, ballast_pending** pending, ballast_error* error) {
  return enqueue_transform(plan, direction, call, pending, error,
                           [&](const ballast_fft_plan& with, auto way, auto&& use) { with_operands(with, way, in, out, use); });
}

int32_t ballast_fft_run_split(const ballast_fft_plan* plan, int32_t direction, const DLTensor* in_real, const DLTensor* in_imaginary,
                              const DLTensor* out_real, const DLTensor* out_imaginary, const ballast_call* call, ballast_report* report,
                              ballast_error* error) {
  return run_transform(plan, direction, call, report, error, [&](const ballast_fft_plan& with, auto way, auto&& use) {
    with_parts(with, way, {in_real, in_imaginary}, {out_real, out_imaginary}, use);
  });
}

int32_t ballast_fft_enqueue_split(const ballast_fft_plan* plan, int32_t direction, const DLTensor* in_real, const DLTensor* in_imaginary,
                                  const DLTensor* out_real, const DLTensor* out_imaginary, const ballast_call* call,
                                  ballast_pending** pending, ballast_error* error) {
  return enqueue_transform(plan, direction, call, pending, error, [&](const ballast_fft_plan& with, auto way, auto&& use) {
    with_parts(with, way, {in_real, in_imaginary}, {out_real, out_imaginary}, use);
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
