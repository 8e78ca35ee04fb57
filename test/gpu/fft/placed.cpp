// Parses, runs and checks placed problems.
#include "placed.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include <ballast/error.hpp>

#include "cuda/device/cufft.hpp"
#include "device_problem.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "support/real_transforms.hpp"

namespace ballast::gpu_check {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& expected) {
  throw invalid_argument_error("\"" + std::string(text) + "\": expected " + expected);
}

void place(std::string_view text, std::string_view name, fft::problem& made) {
  const std::int64_t batch = made.batch, n = made.shape.empty() ? 1 : made.shape.back();
  const auto of_rank = [&](std::size_t rank) {
    if (made.shape.size() != rank || made.kind == fft::kind::c2r)
      refuse(text, rank == 1 ? "a transform of one axis" : "a transform of two axes");
  };
  const std::int64_t stored = made.kind == fft::kind::r2c ? n / 2 + 1 : n;  // in the last axis of the output
  if (name == "columns_") {
    of_rank(1);
    made.input = made.output = {.strides = {batch}, .distance = 1};
  } else if (name == "transposed_") {
    of_rank(1);
    made.output = {.strides = {batch}, .distance = 1};
  } else if (name == "windows_") {
    of_rank(1);
    if (n % 4 != 0) refuse(text, "a multiple of 4 points");
    made.input = {.strides = {1}, .distance = n / 4};
  } else if (name == "axes_") {
    of_rank(2);
    made.input = {.strides = {batch * n, 1}, .distance = n};
    made.output = {.strides = {batch * stored, 1}, .distance = stored};
  } else if (name.starts_with("middle") && name.ends_with("_")) {
    of_rank(1);
    std::int64_t planes = 0;
    const auto read = std::from_chars(name.data() + 6, name.data() + name.size() - 1, planes);
    if (read.ec != std::errc() || read.ptr != name.data() + name.size() - 1 || planes < 1 || batch % planes != 0)
      refuse(text, "middleP_ with a P that divides the batch");
    made.batch = batch / planes;
    made.input = made.output = {.strides = {made.batch}, .distance = 1};
    made.loops = {{.count = planes, .input = n * made.batch, .output = stored * made.batch}};
  } else if (!name.empty()) {
    refuse(text, "nothing, columns_, transposed_, middleP_, windows_ or axes_ before fft_");
  }
}

// The number of the first element of a signal, after element `first` of a side.
std::int64_t begin_of(const fft::array_problem& shape, std::int64_t signal, bool input) {
  std::int64_t at = (input ? shape.input : shape.output).first;
  for (std::size_t l = shape.loops.size(); l-- > 0;) {
    at += signal % shape.loops[l].count * (input ? shape.loops[l].input : shape.loops[l].output);
    signal /= shape.loops[l].count;
  }
  return at;
}

// Calls body(element) for each element of a signal in C order.
template <class Body>
void each_element(const fft::array_problem& shape, std::int64_t begin, bool input, const Body& body) {
  std::vector<std::int64_t> index(shape.axes.size(), 0);
  for (;;) {
    std::int64_t at = begin;
    for (std::size_t a = 0; a < index.size(); ++a) at += index[a] * (input ? shape.axes[a].in_stride : shape.axes[a].out_stride);
    body(at);
    std::size_t a = index.size();
    for (; a > 0; --a) {
      if (++index[a - 1] < (input ? shape.axes[a - 1].in_length : shape.axes[a - 1].out_length)) break;
      index[a - 1] = 0;
    }
    if (a == 0) return;
  }
}

// Transforms all lines of an array along each axis. `line`: transforms one line in place.
template <class Element>
void along_axes(const fft::array_problem& shape, std::vector<Element>& x,
                const std::function<void(std::size_t, std::vector<Element>&)>& line) {
  std::int64_t inner = 1;
  for (std::size_t axis = shape.axes.size(); axis-- > 0; inner *= shape.axes[axis].n) {
    const std::int64_t length = shape.axes[axis].n, lines = shape.points() / length;
    test::in_pieces(lines * length * 8, [&](std::int64_t first, std::int64_t last) {
      std::vector<Element> one(static_cast<std::size_t>(length));
      const std::int64_t weight = length * 8;
      for (std::int64_t l = (first + weight - 1) / weight; l < (last + weight - 1) / weight; ++l) {
        const std::int64_t start = l / inner * inner * length + l % inner;
        for (std::int64_t j = 0; j < length; ++j) one[static_cast<std::size_t>(j)] = x[static_cast<std::size_t>(start + j * inner)];
        line(axis, one);
        for (std::int64_t j = 0; j < length; ++j) x[static_cast<std::size_t>(start + j * inner)] = one[static_cast<std::size_t>(j)];
      }
    });
  }
}

// The exact transform of a signal: the words of the output in C order.
template <class T>
std::vector<fft::wide<T>> exact(const placed_problem& what, const std::function<T(std::int64_t)>& word, std::int64_t signal) {
  using W = fft::wide<T>;
  const fft::array_problem& shape = what.shape;
  const std::int64_t begin = begin_of(shape, signal, true);
  const bool inverse = what.way == fft::direction::inverse;
  std::vector<W> made;
  if (what.problem.kind == fft::kind::r2r) {
    std::vector<W> x;
    each_element(shape, begin, true, [&](std::int64_t at) { x.push_back(word(at)); });
    std::vector<std::vector<W>> matrices;
    for (const fft::axis& axis : shape.axes) {
      const fft::real_kind kind = inverse ? inverse_of(axis.what) : axis.what;
      std::vector<W> matrix(static_cast<std::size_t>(axis.n * axis.n));
      test::in_pieces(axis.n * axis.n, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t e = first; e < last; ++e)
          matrix[static_cast<std::size_t>(e)] = test::real_element<W>(kind, axis.n, e / axis.n, e % axis.n);
      });
      matrices.push_back(std::move(matrix));
    }
    along_axes<W>(shape, x, [&](std::size_t axis, std::vector<W>& line) {
      std::vector<W> sums(line.size());
      for (std::size_t k = 0; k < line.size(); ++k) {
        for (std::size_t j = 0; j < line.size(); ++j) sums[k] += matrices[axis][k * line.size() + j] * line[j];
      }
      line = std::move(sums);
    });
    return x;
  }
  std::vector<std::complex<W>> x;
  each_element(shape, begin, true, [&](std::int64_t at) {
    x.push_back(shape.input.real ? std::complex<W>(word(at)) : std::complex<W>(word(2 * at), word(2 * at + 1)));
    if (inverse) x.back() = std::conj(x.back());
  });
  along_axes<std::complex<W>>(shape, x, [](std::size_t, std::vector<std::complex<W>>& line) { line = fft::dft(std::move(line)); });
  const std::int64_t last = shape.axes.back().n, kept = shape.axes.back().out_length;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (static_cast<std::int64_t>(i) % last >= kept) continue;
    made.push_back(x[i].real());
    made.push_back(inverse ? -x[i].imag() : x[i].imag());
  }
  return made;
}

}  // namespace

placed_problem parse_placed(std::string_view text) {
  const std::size_t at = text.find("fft_");
  if (at == std::string_view::npos) refuse(text, "the token of a transform, such as columns_fft_c2c_f32_n1024_b4096_fwd");
  fft::token read = fft::parse_token(text.substr(at));
  if (read.problem.kind == fft::kind::c2r) refuse(text, "c2c, r2c or r2r");
  place(text, text.substr(0, at), read.problem);
  read.problem.norm = read.direction == fft::direction::forward ? fft::norm::backward : fft::norm::forward;  // the factor is 1
  placed_problem made{std::string(text), std::move(read.problem), read.direction, {}};
  made.shape = fft::describe(made.problem);
  return made;
}

template <class T>
report run_placed(const placed_problem& what, const fft::plan& plan, const void* in, void* out, bool wait, void* stream) {
  using complex = std::complex<T>;
  const auto from = static_cast<std::size_t>(what.shape.input.extent), to = static_cast<std::size_t>(what.shape.output.extent);
  const call now = test::quiet_call(stream);
  const auto start = [&](auto x, auto y) -> report {
    constexpr bool r2c = std::is_same_v<decltype(x), std::span<const T>> && std::is_same_v<decltype(y), std::span<complex>>;
    if constexpr (!r2c) {
      if (what.way == fft::direction::inverse) {
        if (wait) return plan.inverse(x, y, now);
        (void)plan.enqueue_inverse(x, y, now);
        return {};
      }
    }
    if (wait) return plan.forward(x, y, now);
    (void)plan.enqueue_forward(x, y, now);
    return {};
  };
  const std::span reals(static_cast<const T*>(in), from);
  const std::span results(static_cast<complex*>(out), to);
  if (what.problem.kind == fft::kind::r2r) return start(reals, std::span(static_cast<T*>(out), to));
  if (what.problem.kind == fft::kind::r2c) return start(reals, results);
  return start(std::span(static_cast<const complex*>(in), from), results);
}

template <class T>
double error_of_placed(const placed_problem& what, const std::function<T(std::int64_t)>& word, const std::vector<T>& out) {
  double worst = 0;
  for (const std::int64_t signal : {std::int64_t{0}, what.shape.signals() - 1}) {
    const auto wanted = exact<T>(what, word, signal);
    std::vector<T> got;
    each_element(what.shape, begin_of(what.shape, signal, false), false, [&](std::int64_t at) {
      if (what.shape.output.real) {
        got.push_back(out[static_cast<std::size_t>(at)]);
      } else {
        got.push_back(out[static_cast<std::size_t>(2 * at)]);
        got.push_back(out[static_cast<std::size_t>(2 * at + 1)]);
      }
    });
    if (got.size() != wanted.size()) throw error("another number of results");
    const double error = distance_of(got.data(), wanted.data(), static_cast<std::int64_t>(got.size())).relative();
    if (!(error <= worst)) worst = error;
  }
  return std::isnan(worst) ? std::numeric_limits<double>::infinity() : worst;
}

std::function<void(const void*, void*)> cufft_way(const placed_problem& what) {
  if (what.problem.kind == fft::kind::r2r) throw unsupported_error("cuFFT has no real-to-real transforms");
  struct step {
    std::shared_ptr<cuda::cufft_plan> plan;
    std::int64_t input, output;  // bytes
    bool again;                  // in place, in the output
  };
  std::vector<step> steps;
  const std::int64_t word = what.problem.precision == precision::f32 ? 4 : 8;
  const std::int64_t in_size = word * (what.shape.input.real ? 1 : 2), out_size = word * (what.shape.output.real ? 1 : 2);
  const auto plan_of = [&](const fft::problem& part) { return std::make_shared<cuda::cufft_plan>(part, what.way, false); };
  fft::problem part = what.problem;
  const std::vector<std::int64_t>& n = what.problem.shape;
  if (n.size() > 3) {
    if (what.problem.kind != fft::kind::c2c || !what.problem.loops.empty()) throw unsupported_error("cuFFT takes at most three axes");
    part.shape.assign(n.end() - 3, n.end());
    for (std::size_t axis = 0; axis + 3 < n.size(); ++axis) part.batch *= n[axis];
    steps.push_back({plan_of(part), 0, 0, false});
    std::int64_t inner = part.shape[0] * part.shape[1] * part.shape[2], outer = part.batch;
    for (std::size_t axis = n.size() - 3; axis-- > 0;) {
      outer /= n[axis];
      const fft::layout lines{.strides = {inner}, .distance = 1};
      const auto plan = plan_of({.precision = part.precision, .shape = {n[axis]}, .batch = inner, .input = lines, .output = lines});
      for (std::int64_t b = 0; b < outer; ++b) steps.push_back({plan, 0, b * inner * n[axis] * out_size, true});
      inner *= n[axis];
    }
  } else {
    part.loops.clear();
    const auto plan = plan_of(part);
    const std::int64_t runs = what.problem.loops.empty() ? 1 : what.problem.loops[0].count;
    for (std::int64_t r = 0; r < runs; ++r)
      steps.push_back({plan, runs == 1 ? 0 : r * what.problem.loops[0].input * in_size,
                       runs == 1 ? 0 : r * what.problem.loops[0].output * out_size, false});
  }
  return [steps](const void* in, void* out) {
    for (const step& each : steps) {
      char* const to = static_cast<char*>(out) + each.output;
      each.plan->execute(each.again ? to : static_cast<const char*>(in) + each.input, to, gpu::stream());
    }
  };
}

template report run_placed<float>(const placed_problem&, const fft::plan&, const void*, void*, bool, void*);
template report run_placed<double>(const placed_problem&, const fft::plan&, const void*, void*, bool, void*);
template double error_of_placed<float>(const placed_problem&, const std::function<float(std::int64_t)>&, const std::vector<float>&);
template double error_of_placed<double>(const placed_problem&, const std::function<double(std::int64_t)>&, const std::vector<double>&);

}  // namespace ballast::gpu_check
