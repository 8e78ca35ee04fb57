// Computes problems in the notation of FFTW's program `bench` through the public interface, and compares them with transforms in extended
// precision. FFTW's tests/check.pl can call this program in the place of its own:
//   perl check.pl -r -c=30 -k 'build/release/bin/fftw_problems'
// Usage: fftw_problems [--backend NAME] [--f32] (--verify PROBLEM | --can-do PROBLEM | -oOPTION | PROBLEM)…; without a problem it reads
// them from standard input, one a line. Prints each problem that fails, and at the end how many passed; status 1 if one fails.
//
// A problem is a sequence of letters, then the axes, then "*" or "v" and loops. Letters: i or o, in place or not; f or b, the direction;
// c, r or k, complex, real (half spectra) or real to real; / for split numbers; d, the input may be destroyed; t, the first two axes are
// exchanged in the output. Axes and loops: n, or n:stride, or n:input:output, joined by x; k/K and m/M multiply by 1024 and 1024². Axes of
// r2r end in their kind: f, b, h, e00, e01, e10, e11, o00, o01, o10, o11. Missing strides: after "*" loops are outside of the axes, after
// "v" inside.
// Layer: backend tests.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "core/at.hpp"
#include "fft/problem.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "fft/tables/real_to_real.hpp"
#include "support/fft_data.hpp"
#include "support/fft_tolerances.hpp"

namespace {

using namespace ballast;
using core::at;

struct dimension {
  std::int64_t n = 1, in = 0, out = 0;  // strides; 0: missing
  fft::real_kind kind = fft::real_kind::r2hc;
};

struct parsed {
  fft::problem problem;
  fft::direction way = fft::direction::forward;
  bool in_place = false;
  bool empty = false;  // an axis or loop without elements
};

class reader {
 public:
  explicit reader(std::string_view text) : text_(text) {}

  parsed read() {
    parsed made;
    bool real = false, reals = false, split = false, transposed = false;
    for (; at_ < text_.size(); ++at_) {
      const auto letter = static_cast<char>(std::tolower(static_cast<unsigned char>(text_[at_])));
      if (letter == 'i' || letter == 'o')
        made.in_place = letter == 'i';
      else if (letter == 'f' || letter == 'b' || letter == '-' || letter == '+')
        made.way = letter == 'f' || letter == '-' ? fft::direction::forward : fft::direction::inverse;
      else if (letter == 'r' || letter == 'c' || letter == 'k')
        real = letter == 'r', reals = letter == 'k';
      else if (letter == '/')
        split = true;
      else if (letter == 't')
        transposed = true;
      else if (letter != 'd')
        break;
    }
    fft::problem& problem = made.problem;
    problem.kind = reals ? fft::kind::r2r : !real ? fft::kind::c2c : made.way == fft::direction::forward ? fft::kind::r2c : fft::kind::c2r;
    if (reals) made.way = fft::direction::forward;
    problem.split = split && !reals;
    std::vector<dimension> axes = dimensions(), loops;
    // The lengths of the last axis that strides step over.
    const std::int64_t last = axes.back().n, half = last / 2 + 1;
    const std::int64_t padded = made.in_place ? 2 * half : last;
    const std::int64_t in_last = problem.kind == fft::kind::r2c ? padded : problem.kind == fft::kind::c2r ? half : last;
    const std::int64_t out_last = problem.kind == fft::kind::r2c ? half : problem.kind == fft::kind::c2r ? padded : last;
    std::int64_t in = 1, out = 1;  // the next missing strides
    const auto fill = [&](std::vector<dimension>& of, bool transform) {
      for (std::size_t i = of.size(); i-- > 0;) {
        if (of[i].in == 0) of[i].in = in;
        if (of[i].out == 0) of[i].out = out;
        const bool special = transform && i + 1 == of.size();
        in = of[i].in * (special ? in_last : of[i].n);
        out = of[i].out * (special ? out_last : of[i].n);
      }
    };
    const char between = at_ < text_.size() ? text_[at_] : '\0';
    if (between == '*' || between == 'v' || between == 'V') {
      ++at_;
      loops = dimensions();
    } else if (between != '\0') {
      throw std::invalid_argument("expected the end");
    }
    if (between == 'v' || between == 'V') fill(loops, false);
    fill(axes, true);
    if (between == '*') fill(loops, false);
    if (transposed) {
      for (auto* const each : {&axes, &loops}) {
        if (each->size() < 2) continue;
        (*each)[0].out = (*each)[1].out;
        (*each)[1].out = (*each)[0].out * (*each)[0].n;
      }
    }
    if (at_ != text_.size()) throw std::invalid_argument("expected the end");
    for (const dimension& each : axes) {
      problem.shape.push_back(each.n);
      problem.input.strides.push_back(each.in);
      problem.output.strides.push_back(each.out);
      if (reals) problem.real_kinds.push_back(each.kind);
      made.empty = made.empty || each.n == 0;
    }
    for (const dimension& each : loops) {
      problem.loops.push_back({each.n, each.in, each.out});
      made.empty = made.empty || each.n == 0;
    }
    // FFTW's transforms have no factor.
    problem.norm = made.way == fft::direction::forward ? fft::norm::backward : fft::norm::forward;
    return made;
  }

 private:
  bool takes(char letter) {
    if (at_ >= text_.size() || std::tolower(static_cast<unsigned char>(text_[at_])) != letter) return false;
    ++at_;
    return true;
  }

  std::int64_t number() {
    const bool negative = takes('-');
    if (!negative) (void)takes('+');
    if (at_ >= text_.size() || std::isdigit(static_cast<unsigned char>(text_[at_])) == 0) throw std::invalid_argument("expected a number");
    std::int64_t made = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_) made = made * 10 + (text_[at_] - '0');
    if (takes('k')) made *= 1024;
    if (takes('m')) made *= 1024 * 1024;
    return negative ? -made : made;
  }

  std::vector<dimension> dimensions() {
    using enum fft::real_kind;
    std::vector<dimension> made;
    do {
      dimension now{.n = number()};
      if (takes(':')) {
        now.in = now.out = number();
        if (takes(':')) now.out = number();
      }
      if (takes('f')) {
        now.kind = r2hc;
      } else if (takes('b')) {
        now.kind = hc2r;
      } else if (takes('h')) {
        now.kind = dht;
      } else if (const bool even = takes('e'); even || takes('o')) {
        const std::int64_t type = number();
        constexpr std::int64_t k_types[] = {0, 10, 1, 11};
        constexpr fft::real_kind k_even[] = {dct1, dct2, dct3, dct4}, k_odd[] = {dst1, dst2, dst3, dst4};
        const auto* const found = std::ranges::find(k_types, type);
        if (found == std::end(k_types)) throw std::invalid_argument("expected a kind of r2r");
        now.kind = (even ? k_even : k_odd)[found - k_types];
      }
      made.push_back(now);
    } while (takes('x'));
    return made;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// ---- The exact transform of one signal ----

template <class W>
using numbers = std::vector<std::complex<W>>;

template <class W>
numbers<W> line_of(const fft::problem& what, fft::direction way, std::size_t axis, numbers<W> x) {
  if (what.kind == fft::kind::r2r) return fft::real_transform(what.real_kinds[axis], x);
  if (way == fft::direction::forward) return fft::dft(std::move(x));
  for (auto& z : x) z = std::conj(z);
  x = fft::dft(std::move(x));
  for (auto& z : x) z = std::conj(z);
  return x;
}

// The whole array of `shape`; for r2c the caller takes the half that is stored.
template <class W>
void transform_array(const fft::problem& what, fft::direction way, numbers<W>& z) {
  std::int64_t inner = 1;
  for (std::size_t axis = what.shape.size(); axis-- > 0; inner *= what.shape[axis]) {
    const std::int64_t n = what.shape[axis], outer = std::ssize(z) / (inner * n);
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t l = 0; l < inner; ++l) {
        numbers<W> line;
        for (std::int64_t j = 0; j < n; ++j) line.push_back(z[at((o * n + j) * inner + l)]);
        line = line_of<W>(what, way, axis, std::move(line));
        for (std::int64_t j = 0; j < n; ++j) z[at((o * n + j) * inner + l)] = line[at(j)];
      }
    }
  }
}

// One side of a problem: visits signal b's elements with their places among all points and in memory.
template <class Visit>
void visit(const fft::array_problem& of, bool input, std::int64_t b, const Visit& each_element) {
  std::int64_t base = input ? of.input.first : of.output.first, elements = 1;
  for (std::size_t i = of.loops.size(); i-- > 0; b /= of.loops[i].count)
    base += b % of.loops[i].count * (input ? of.loops[i].input : of.loops[i].output);
  for (const fft::axis& each : of.axes) elements *= input ? each.in_length : each.out_length;
  for (std::int64_t e = 0; e < elements; ++e) {
    std::int64_t rest = e, offset = base, point = 0, stride = 1;
    for (std::size_t i = of.axes.size(); i-- > 0;) {
      const fft::axis& each = of.axes[i];
      const std::int64_t length = input ? each.in_length : each.out_length;
      offset += rest % length * (input ? each.in_stride : each.out_stride);
      point += rest % length * stride;
      stride *= each.n;
      rest /= length;
    }
    each_element(point, offset);
  }
}

// The mirror image of a point of a spectrum.
std::int64_t mirrored(const std::vector<std::int64_t>& shape, std::int64_t point) {
  std::int64_t made = 0, stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
    made += (shape[i] - point % shape[i]) % shape[i] * stride;
    point /= shape[i];
  }
  return made;
}

// ---- One problem ----

// The errors of the signals of a problem, each relative to its norm.
struct errors {
  double most = 0, squares = 0;
  std::int64_t signals = 0;
  double mean() const { return std::sqrt(squares / static_cast<double>(signals)); }  // the root of the mean square
};

template <class T>
errors error_of(const parsed& given, backend where) {
  using W = fft::wide<T>;
  fft::problem what = given.problem;
  what.precision = sizeof(T) == 4 ? precision::f32 : precision::f64;
  const fft::array_problem shape = fft::describe(what);
  const std::int64_t signals = shape.signals(), points = shape.points();
  const auto scalars = [&](const fft::array_side& side) { return side.extent * (side.real ? 1 : 2); };
  std::vector<T> in = test::noise<T>(scalars(shape.input), 5), out;
  const auto place = [&](const fft::array_side& side, std::int64_t offset, int part) {
    return at(side.real ? offset : what.split ? part * side.extent + offset : 2 * offset + part);
  };
  // A half spectrum that is one: the spectrum of reals.
  std::vector<numbers<W>> wanted;
  for (std::int64_t b = 0; b < signals; ++b) {
    numbers<W> z(at(points));
    if (what.kind == fft::kind::c2r) {
      const std::vector<T> noise = test::noise<T>(points, static_cast<std::uint64_t>(b) + 9);
      for (std::int64_t i = 0; i < points; ++i) z[at(i)] = noise[at(i)];
      transform_array<W>(what, fft::direction::forward, z);
      visit(shape, true, b, [&](std::int64_t point, std::int64_t offset) {
        for (int part = 0; part < 2; ++part) {
          T& to = in[place(shape.input, offset, part)];
          to = static_cast<T>(part == 0 ? z[at(point)].real() : z[at(point)].imag());
        }
      });
    }
  }
  for (std::int64_t b = 0; b < signals; ++b) {
    numbers<W> z(at(points));
    std::vector<bool> known(at(points));
    visit(shape, true, b, [&](std::int64_t point, std::int64_t offset) {
      z[at(point)] = {in[place(shape.input, offset, 0)], shape.input.real ? T(0) : in[place(shape.input, offset, 1)]};
      known[at(point)] = true;
    });
    for (std::int64_t i = 0; i < points; ++i) {
      if (!known[at(i)]) z[at(i)] = std::conj(z[at(mirrored(what.shape, i))]);
    }
    transform_array<W>(what, given.way, z);
    wanted.push_back(std::move(z));
  }

  const fft::plan made(what, {.backend = where});
  const std::vector<T> kept = in;
  std::vector<T>& memory = given.in_place ? in : out;
  memory.resize(std::max(at(scalars(shape.output)), given.in_place ? in.size() : std::size_t{0}));
  const std::int64_t in_extent = shape.input.extent, out_extent = shape.output.extent;
  const report seen = [&] {
    if (what.split) {
      const T* const from = in.data();
      T* const to = memory.data();
      const auto side = [](auto* first, std::int64_t extent) {
        using part = std::span<std::remove_pointer_t<decltype(first)>>;
        return fft::parts<std::remove_pointer_t<decltype(first)>>{part(first, at(extent)), part(first + extent, at(extent))};
      };
      if (what.kind == fft::kind::r2c) return made.forward(std::span(from, at(in_extent)), side(to, out_extent));
      if (what.kind == fft::kind::c2r) return made.inverse(side(from, in_extent), std::span(to, at(out_extent)));
      return given.way == fft::direction::forward ? made.forward(side(from, in_extent), side(to, out_extent))
                                                  : made.inverse(side(from, in_extent), side(to, out_extent));
    }
    if (what.kind == fft::kind::r2r)
      return made.forward(std::span<const T>(in.data(), at(in_extent)), std::span(memory.data(), at(out_extent)));
    fft::geometry sides;
    sides.kind = what.kind;
    sides.input.extent = in_extent;
    sides.output.extent = out_extent;
    return test::execute<T>(made, sides, given.way, in.data(), memory.data(), {});
  }();
  if (seen.verdict != verdict::clean || seen.detected != 0) throw std::runtime_error("a fault in clean data: " + to_json(seen));
  if (!given.in_place && in != kept) throw std::runtime_error("the input was changed");

  errors seen_errors{.signals = signals};
  for (std::int64_t b = 0; b < signals; ++b) {
    double squares = 0, norm = 0;
    visit(shape, false, b, [&](std::int64_t point, std::int64_t offset) {
      const std::complex<W> right = shape.output.real ? std::complex<W>(wanted[at(b)][at(point)].real()) : wanted[at(b)][at(point)];
      const std::complex<W> got(memory[place(shape.output, offset, 0)], shape.output.real ? T(0) : memory[place(shape.output, offset, 1)]);
      squares += static_cast<double>(std::norm(got - right));
      norm += static_cast<double>(std::norm(right));
    });
    const double error = !std::isfinite(squares) ? 1e150 : squares == 0 ? 0 : std::sqrt(squares / norm);
    seen_errors.most = std::max(seen_errors.most, error);
    seen_errors.squares += error * error;
  }
  return seen_errors;
}

// The bound of the mean: test::error_bound_of_kind, in which the errors of the stages add as squares; a real transform has up to three more
// steps than that of its length.
double allowed(const parsed& given, precision type) {
  fft::problem what = given.problem;
  what.precision = type;
  return test::error_bound_of_kind(what) * (what.kind == fft::kind::r2r ? std::sqrt(3.0) : 1);
}

// The bound of every signal: the errors of the log₂N stages all in one direction, √log₂N times as much. The worst of 5000 signals of 8
// points has 1.26 times the bound of the mean.
double allowed_of_each(const parsed& given, precision type) {
  double stages = 0;
  for (const std::int64_t n : given.problem.shape) stages += std::log2(static_cast<double>(std::max<std::int64_t>(n, 2)));
  return allowed(given, type) * std::sqrt(std::max(1.0, stages));
}

}  // namespace

int main(int count, char** words) {
  constexpr backend k_backends[] = {backend::reference, backend::cpu, backend::cuda};
  backend where = backend::cpu;
  precision type = precision::f64;
  std::vector<std::string> problems;
  bool asks = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const auto next = [&]() -> std::string_view {
      if (i + 1 == count) throw std::invalid_argument(std::string(word) + ": expected a value");
      return words[++i];
    };
    if (word == "--verify") {
      problems.emplace_back(next());
    } else if (word == "--can-do") {
      asks = true;
      problems.emplace_back(next());
    } else if (word == "--backend") {
      const std::string_view name = next();
      const auto found = std::ranges::find(k_backends, name, [](backend each) { return to_string(each); });
      if (found == std::end(k_backends)) throw std::runtime_error("--backend: expected reference, cpu or cuda, got " + std::string(name));
      where = *found;
    } else if (word == "--f32") {
      type = precision::f32;
    } else if (word == "-o") {
      (void)next();  // options of FFTW's planner
    } else if (!word.starts_with("-")) {
      problems.emplace_back(word);
    }
  }
  if (problems.empty()) {
    for (std::string line; std::getline(std::cin, line);) {
      if (!line.empty()) problems.push_back(line);
    }
  }
  std::size_t passed = 0;
  for (const std::string& each : problems) {
    try {
      const parsed given = reader(each).read();
      if (asks) {
        std::puts(given.empty ? "#f" : "#t");
        return 0;
      }
      const errors found = given.empty              ? errors{.signals = 1}
                           : type == precision::f32 ? error_of<float>(given, where)
                                                    : error_of<double>(given, where);
      if (found.mean() <= allowed(given, type) && found.most <= allowed_of_each(given, type))
        ++passed;
      else
        std::printf("%s: expected a mean error of at most %g and none above %g, got %g and %g\n", each.c_str(), allowed(given, type),
                    allowed_of_each(given, type), found.mean(), found.most);
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", each.c_str(), error.what());
    }
  }
  std::printf("%zu of %zu\n", passed, problems.size());
  return passed == problems.size() ? 0 : 1;
}
