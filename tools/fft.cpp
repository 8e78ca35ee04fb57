// The subcommand `ballast fft`.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "command.hpp"

namespace ballast::tools {
namespace {

struct fft_options : common_options {
  std::string input, output, norm = "backward";
  bool inverse = false, real = false;
  std::vector<int> axes;
  std::int64_t length = 0;
};

// The transform of some axes of an array, as a batched problem and the offsets at which the problem is executed.
struct axes_problem {
  fft::problem problem;
  std::vector<std::int64_t> in_offsets = {0}, out_offsets = {0};
};

axes_problem make_problem(fft::problem problem, const std::vector<std::int64_t>& real_shape, const std::vector<std::size_t>& axes,
                          const std::vector<std::int64_t>& in_strides, const std::vector<std::int64_t>& out_strides) {
  axes_problem made;
  made.problem = std::move(problem);
  for (const std::size_t axis : axes) {
    made.problem.shape.push_back(real_shape[axis]);
    made.problem.input.strides.push_back(in_strides[axis]);
    made.problem.output.strides.push_back(out_strides[axis]);
  }
  // The other axes are the batch. Adjacent axes whose strides continue each other in input and output are merged. The longest axis becomes
  // the plan's batch, and the others become offsets.
  struct extent {
    std::int64_t count, in, out;
  };
  std::vector<extent> others;
  for (std::size_t axis = 0; axis < real_shape.size(); ++axis) {
    if (std::ranges::find(axes, axis) != axes.end() || real_shape[axis] == 1) continue;
    const extent next{real_shape[axis], in_strides[axis], out_strides[axis]};
    if (!others.empty() && others.back().in == next.in * next.count && others.back().out == next.out * next.count) {
      others.back() = {others.back().count * next.count, next.in, next.out};
    } else {
      others.push_back(next);
    }
  }
  if (const auto longest = std::ranges::max_element(others, {}, &extent::count); longest != others.end()) {
    made.problem.batch = longest->count;
    made.problem.input.distance = longest->in;
    made.problem.output.distance = longest->out;
    others.erase(longest);
  } else {
    made.problem.input.distance = made.problem.output.distance = 1;  // one signal: the distance is not used
  }
  for (const extent& each : others) {
    const auto extend = [&](std::vector<std::int64_t>& offsets, std::int64_t stride) {
      const std::vector<std::int64_t> before = offsets;
      offsets.clear();
      for (const auto offset : before) {
        for (std::int64_t i = 0; i < each.count; ++i) offsets.push_back(offset + i * stride);
      }
    };
    extend(made.in_offsets, each.in);
    extend(made.out_offsets, each.out);
  }
  return made;
}

std::vector<std::size_t> resolve_axes(const fft_options& wanted, std::size_t rank) {
  std::vector<int> asked = wanted.axes.empty() ? std::vector<int>{-1} : wanted.axes;
  std::vector<std::size_t> made;
  for (const int each : asked) {
    const int axis = each < 0 ? each + static_cast<int>(rank) : each;
    if (axis < 0 || axis >= static_cast<int>(rank))
      throw invalid_argument_error(fmt::format("--axes: expected axes of an array of {} axes ({} to {}), got {}", rank,
                                               -static_cast<int>(rank), static_cast<int>(rank) - 1, each));
    if (std::ranges::find(made, static_cast<std::size_t>(axis)) != made.end())
      throw invalid_argument_error(fmt::format("--axes: expected different axes, got {} twice", each));
    made.push_back(static_cast<std::size_t>(axis));
  }
  if (made.size() > 3) throw invalid_argument_error(fmt::format("--axes: expected 1 to 3 axes, got {}", made.size()));
  return made;
}

// The sums of large numbers may exceed T where the result does not. So each signal with a value above 2^limit is divided by a power of two,
// which changes no digit, and its result is multiplied by it. No number of a transform, nor of a convolution that computes it, exceeds the
// largest value of n points times 2⁸ n².
template <class T>
class scaling {
 public:
  // `axes` of the arrays belong to a signal; the others are those of the batch.
  scaling(const std::vector<std::size_t>& axes, const std::vector<std::int64_t>& shape) : batched_(shape.size(), true) {
    double points = 1;
    for (const std::size_t axis : axes) {
      batched_[axis] = false;
      points *= static_cast<double>(shape[axis]);
    }
    limit_ = std::max(0, std::numeric_limits<T>::max_exponent - 8 - 2 * static_cast<int>(std::ceil(std::log2(points))));
  }

  template <class Value>
  void before(std::vector<Value>& values, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
    T most = 0;
    for (const Value& each : values) most = std::max(most, largest(each));
    if (most < std::ldexp(T{1}, limit_)) return;
    each_value(shape, strides, [&](std::size_t at, std::size_t signal) {
      if (signal >= exponents_.size()) exponents_.resize(signal + 1, 0);
      if (const T size = largest(values[at]); size > 0) exponents_[signal] = std::max(exponents_[signal], std::ilogb(size) - limit_);
    });
    each_value(shape, strides, [&](std::size_t at, std::size_t signal) { scale(values[at], -exponents_[signal]); });
  }

  template <class Value>
  void after(std::vector<Value>& values, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) const {
    if (exponents_.empty()) return;
    each_value(shape, strides, [&](std::size_t at, std::size_t signal) { scale(values[at], exponents_[signal]); });
  }

 private:
  static T finite_size(T value) { return std::isfinite(value) ? std::abs(value) : 0; }
  static T largest(T value) { return finite_size(value); }
  static T largest(std::complex<T> value) { return std::max(finite_size(value.real()), finite_size(value.imag())); }
  static void scale(T& value, int exponent) { value = std::ldexp(value, exponent); }
  static void scale(std::complex<T>& value, int exponent) {
    value = {std::ldexp(value.real(), exponent), std::ldexp(value.imag(), exponent)};
  }

  // Calls visit(offset, signal) for each element.
  template <class Visit>
  void each_value(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides, const Visit& visit) const {
    const std::int64_t size = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    for (std::int64_t i = 0; i < size; ++i) {
      std::int64_t rest = i, at = 0, signal = 0, signals = 1;
      for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) {
        const std::int64_t index = rest % shape[axis];
        at += index * strides[axis];
        if (!batched_[axis]) continue;
        signal += index * signals;
        signals *= shape[axis];
      }
      visit(static_cast<std::size_t>(at), static_cast<std::size_t>(signal));
    }
  }

  int limit_ = 0;
  std::vector<bool> batched_;   // for each axis
  std::vector<int> exponents_;  // one for each signal; empty: no signal is scaled
};

template <class T>
T magnitude(T value) {
  return std::abs(value);
}
template <class T>
T magnitude(std::complex<T> value) {
  return std::abs(value);
}

template <class T, class In, class Out>
int run(const fft_options& wanted, array read, fft::kind kind) {
  invocation work(wanted, "fft");
  const std::size_t rank = read.shape.size();
  if (rank == 0)
    throw invalid_argument_error(fmt::format("{}: expected an array with at least one axis, got a scalar", printable(wanted.input)));
  if (!wanted.output.empty()) work.reserve(wanted.output, rank);
  const auto axes = resolve_axes(wanted, rank);
  const std::size_t last = axes.back();

  std::vector<std::int64_t> real_shape = read.shape, out_shape = read.shape;
  if (kind == fft::kind::r2c) out_shape[last] = read.shape[last] / 2 + 1;
  if (kind == fft::kind::c2r) {
    if (wanted.length == 0 && read.shape[last] == 1)
      throw invalid_argument_error("--length: expected 1, because a half spectrum of 1 element is that of 1 point, got none");
    real_shape[last] = wanted.length > 0 ? wanted.length : 2 * (read.shape[last] - 1);
    if (real_shape[last] / 2 + 1 != read.shape[last])
      throw invalid_argument_error(fmt::format("--length: expected {} or {} for a half spectrum of {} elements, got {}",
                                               2 * read.shape[last] - 2, 2 * read.shape[last] - 1, read.shape[last], real_shape[last]));
    out_shape = real_shape;
  } else if (wanted.length > 0) {
    throw invalid_argument_error("--length: expected only with --real --inverse");
  }
  for (const auto length : real_shape) {
    if (length < 1)
      throw invalid_argument_error(
          fmt::format("{}: expected axes of at least one element, got shape {}", printable(wanted.input), to_string(read.shape)));
  }
  array result;
  result.shape = out_shape;

  fft::problem problem;
  problem.kind = kind;
  problem.precision = precision_of<T>;
  problem.norm = wanted.norm == "ortho" ? fft::norm::ortho : wanted.norm == "forward" ? fft::norm::forward : fft::norm::backward;
  const auto batched = make_problem(std::move(problem), real_shape, axes, read.strides(), result.strides());

  const std::vector<std::int64_t> in_shape = read.shape, in_strides = read.strides();
  std::vector<In> in = std::move(read).as<In>();
  scaling<T> scaled(axes, real_shape);
  scaled.before(in, in_shape, in_strides);
  std::vector<Out> out(static_cast<std::size_t>(result.size()));
  const fft::plan plan(batched.problem, work.where());
  bool usable = true;
  for (std::size_t i = 0; i < batched.in_offsets.size(); ++i) {
    const auto from = std::span(std::as_const(in)).subspan(static_cast<std::size_t>(batched.in_offsets[i]));
    const auto to = std::span(out).subspan(static_cast<std::size_t>(batched.out_offsets[i]));
    if constexpr (std::is_same_v<In, T>) {
      usable &= work.add(plan.forward(from, to, work.now()));
    } else if constexpr (std::is_same_v<Out, T>) {
      usable &= work.add(plan.inverse(from, to, work.now()));
    } else {
      usable &= work.add(wanted.inverse ? plan.inverse(from, to, work.now()) : plan.forward(from, to, work.now()));
    }
  }

  nlohmann::ordered_json results;
  std::vector<std::string> lines;
  if (usable) {
    scaled.after(out, result.shape, result.strides());
    work.count<Out>(out);
    results = {{"shape", out_shape}};
    lines.push_back(fmt::format("output shape {}", to_string(out_shape)));
    if (rank == 1 && !wanted.inverse && real_shape[0] > 2) {
      // Finds the strongest component other than the mean.
      const std::int64_t half = real_shape[0] / 2;
      std::int64_t peak = 1;
      for (std::int64_t f = 2; f <= half; ++f) {
        if (magnitude(out[static_cast<std::size_t>(f)]) > magnitude(out[static_cast<std::size_t>(peak)])) peak = f;
      }
      const double period = static_cast<double>(real_shape[0]) / static_cast<double>(peak);
      const double size = static_cast<double>(magnitude(out[static_cast<std::size_t>(peak)]));
      results["peak"] = {{"index", peak}, {"period", period}, {"magnitude", json_number(size)}};
      lines.push_back(fmt::format("strongest component: index {}, period {:.6g} samples, magnitude {:.6g}", peak, period, size));
    }
    if (!wanted.output.empty()) {
      result.values = std::move(out);
      work.write(wanted.output, result);
    }
  }
  return work.finish(results, lines);
}

template <class T>
int run(const fft_options& wanted, array read) {
  if (!wanted.real) return run<T, std::complex<T>, std::complex<T>>(wanted, std::move(read), fft::kind::c2c);
  if (wanted.inverse) return run<T, std::complex<T>, T>(wanted, std::move(read), fft::kind::c2r);
  if (read.is_complex())
    throw invalid_argument_error(fmt::format("{}: --real: expected real values, got complex ones", printable(wanted.input)));
  return run<T, T, std::complex<T>>(wanted, std::move(read), fft::kind::r2c);
}

}  // namespace

void add_fft(command_line& program) {
  auto wanted = std::make_shared<fft_options>();
  command_line& command = program.subcommand("fft", "Transform INPUT along its last axis, or along --axes");
  command.operand("INPUT", wanted->input, ".npy, .csv or .tsv, real or complex; - is standard input");
  command.text("-o,--output", wanted->output, "write the result (.npy, .csv or .tsv)");
  command.flag("--inverse", wanted->inverse, "inverse transform");
  command.flag("--real", wanted->real, "real input gives the non-redundant half of the spectrum; with --inverse the other way round");
  command.list("--axes", wanted->axes, "1 to 3 axes, for instance 0,1; negative ones count from the end");
  command.choice("--norm", wanted->norm, "where 1/N goes", {"backward", "ortho", "forward"});
  command.integer("--length", wanted->length, "with --real --inverse: the length of the real axis; default: the even one", std::int64_t{1});
  wanted->files->add_to(command);
  wanted->add_to(command);
  command.action([wanted] {
    array read = wanted->files->operand(wanted->input);
    return wanted->precision_for(read.is_double()) == precision::f32 ? run<float>(*wanted, std::move(read))
                                                                     : run<double>(*wanted, std::move(read));
  });
}

}  // namespace ballast::tools
