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
  std::string input, output, norm = "backward", devices;
  bool inverse = false, real = false;
  std::vector<std::string> kinds;
  std::vector<int> axes;
  std::int64_t length = 0;
};

// The transform of some axes of an array. The other axes are loops, the last of them the batch.
fft::problem make_problem(fft::problem made, const std::vector<std::int64_t>& real_shape, const std::vector<std::size_t>& axes,
                          const std::vector<std::int64_t>& in_strides, const std::vector<std::int64_t>& out_strides) {
  for (const std::size_t axis : axes) {
    made.shape.push_back(real_shape[axis]);
    made.input.strides.push_back(in_strides[axis]);
    made.output.strides.push_back(out_strides[axis]);
  }
  // Axes whose strides continue each other on both sides are one loop.
  for (std::size_t axis = 0; axis < real_shape.size(); ++axis) {
    if (std::ranges::find(axes, axis) != axes.end() || real_shape[axis] == 1) continue;
    const fft::loop next{real_shape[axis], in_strides[axis], out_strides[axis]};
    if (!made.loops.empty() && made.loops.back().input == next.input * next.count && made.loops.back().output == next.output * next.count)
      made.loops.back() = {made.loops.back().count * next.count, next.input, next.output};
    else
      made.loops.push_back(next);
  }
  const fft::loop batch = made.loops.empty() ? fft::loop{1, 1, 1} : made.loops.back();
  if (!made.loops.empty()) made.loops.pop_back();
  made.batch = batch.count;
  made.input.distance = batch.input;
  made.output.distance = batch.output;
  return made;
}

constexpr fft::real_kind k_real_kinds[] = {fft::real_kind::r2hc, fft::real_kind::hc2r, fft::real_kind::dht,  fft::real_kind::dct1,
                                           fft::real_kind::dct2, fft::real_kind::dct3, fft::real_kind::dct4, fft::real_kind::dst1,
                                           fft::real_kind::dst2, fft::real_kind::dst3, fft::real_kind::dst4};

// The kinds of --kind, one for each axis.
std::vector<fft::real_kind> resolve_kinds(const fft_options& wanted, std::size_t axes) {
  std::vector<fft::real_kind> made;
  for (const std::string& each : wanted.kinds) {
    const auto* const found = std::ranges::find(k_real_kinds, each, [](fft::real_kind kind) { return to_string(kind); });
    if (found == std::end(k_real_kinds))
      throw invalid_argument_error(
          fmt::format("--kind: expected r2hc, hc2r, dht, dct1 to dct4 or dst1 to dst4, got \"{}\"", printable(each)));
    made.push_back(*found);
  }
  if (made.size() == 1) made.resize(axes, made.front());
  if (!made.empty() && made.size() != axes)
    throw invalid_argument_error(fmt::format("--kind: expected one kind, or {}, one for each of --axes, got {}", axes, made.size()));
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
  problem.real_kinds = resolve_kinds(wanted, axes.size());
  problem = make_problem(std::move(problem), real_shape, axes, read.strides(), result.strides());

  const std::vector<std::int64_t> in_shape = read.shape, in_strides = read.strides();
  std::vector<In> in = std::move(read).as<In>();
  scaling<T> scaled(axes, real_shape);
  scaled.before(in, in_shape, in_strides);
  std::vector<Out> out(static_cast<std::size_t>(result.size()));
  execution where = work.where();
  if (!wanted.devices.empty()) where.group = group::devices(devices_of(wanted.devices));
  const fft::plan plan(problem, where);
  const std::span<const In> from(in);
  const std::span<Out> to(out);
  bool usable = false;
  if constexpr (std::is_same_v<In, T> && !std::is_same_v<Out, T>) {
    usable = work.add(plan.forward(from, to, work.now()));
  } else if constexpr (std::is_same_v<Out, T> && !std::is_same_v<In, T>) {
    usable = work.add(plan.inverse(from, to, work.now()));
  } else {
    usable = work.add(wanted.inverse ? plan.inverse(from, to, work.now()) : plan.forward(from, to, work.now()));
  }

  nlohmann::ordered_json results;
  std::vector<std::string> lines;
  if (usable) {
    scaled.after(out, result.shape, result.strides());
    work.count<Out>(out);
    results = {{"shape", out_shape}};
    if (!wanted.devices.empty()) results["devices"] = devices_of(wanted.devices);
    lines.push_back(fmt::format("output shape {}", to_string(out_shape)));
    if (rank == 1 && !wanted.inverse && real_shape[0] > 2 && kind != fft::kind::r2r) {
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
  if (!wanted.kinds.empty()) {
    if (wanted.real) throw invalid_argument_error("--kind: expected alone or with --inverse, got it with --real");
    if (read.is_complex())
      throw invalid_argument_error(fmt::format("{}: --kind: expected real values, got complex ones", printable(wanted.input)));
    return run<T, T, T>(wanted, std::move(read), fft::kind::r2r);
  }
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
  command.list("--kind", wanted->kinds,
               "real to real: r2hc, hc2r, dht, dct1 to dct4 or dst1 to dst4, one for all axes or one for each (dct2,dst1)");
  command.list("--axes", wanted->axes, "the transformed axes, for instance 0,1; negative ones count from the end");
  command.choice("--norm", wanted->norm, "where 1/N goes", {"backward", "ortho", "forward"});
  command.integer("--length", wanted->length, "with --real --inverse: the length of the real axis; default: the even one", std::int64_t{1});
  command.text("--devices", wanted->devices,
               "numbers of CUDA devices that share the array, such as 0,1: a transform along all axes of 1 to 3, --real of 2 or 3");
  wanted->files->add_to(command);
  wanted->add_to(command);
  command.action([wanted] {
    array read = wanted->files->operand(wanted->input);
    return wanted->precision_for(read.is_double()) == precision::f32 ? run<float>(*wanted, std::move(read))
                                                                     : run<double>(*wanted, std::move(read));
  });
}

}  // namespace ballast::tools
