// The FFT as a subject of strikes: every signal of a batch of random data is one part of the result. Its elements lie side by side, or
// apart with loops around them, or in two arrays of real and imaginary parts.
#include <complex>
#include <numbers>
#include <optional>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "subject.hpp"
#include "support/fft_tolerances.hpp"
#include "support/real_transforms.hpp"

namespace ballast::strike {
namespace {

// Transforms n complex numbers at a distance of `stride`, by the recursion of Cooley and Tukey on the smallest factor. roots[j] =
// w^(j·root_step) of the whole length.
template <class W>
void transform(const std::complex<W>* x, std::int64_t stride, std::complex<W>* y, std::int64_t n,
               const std::vector<std::complex<W>>& roots) {
  if (n == 1) {
    *y = *x;
    return;
  }
  std::int64_t r = 2;
  while (n % r != 0) ++r;
  const std::int64_t rest = n / r;
  for (std::int64_t i = 0; i < r; ++i) transform(x + i * stride, stride * r, y + i * rest, rest, roots);
  const auto all = static_cast<std::int64_t>(roots.size());
  const std::int64_t step = all / n;
  std::vector<std::complex<W>> column(static_cast<std::size_t>(r));
  for (std::int64_t k = 0; k < rest; ++k) {
    for (std::int64_t i = 0; i < r; ++i)
      column[static_cast<std::size_t>(i)] = y[i * rest + k] * roots[static_cast<std::size_t>(i * k * step)];
    for (std::int64_t q = 0; q < r; ++q) {
      std::complex<W> sum = 0;
      for (std::int64_t i = 0; i < r; ++i)
        sum += column[static_cast<std::size_t>(i)] * roots[static_cast<std::size_t>(i * q * rest * step % all)];
      y[q * rest + k] = sum;
    }
  }
}

// The array of a transform of several axes, the last one contiguous.
template <class W>
struct volume {
  std::vector<std::int64_t> shape;
  std::vector<std::complex<W>> points;

  // Transforms all lines along an axis. turn: the sign of the exponent times 2π.
  void transform_axis(std::size_t axis, W turn) {
    const std::int64_t n = shape[axis];
    std::vector<std::complex<W>> roots(static_cast<std::size_t>(n));
    for (std::int64_t j = 0; j < n; ++j)
      roots[static_cast<std::size_t>(j)] = std::polar(W(1), turn * static_cast<W>(j) / static_cast<W>(n));
    for_each_line(axis, [&](const std::vector<std::complex<W>>& line, std::vector<std::complex<W>>& made) {
      transform<W>(line.data(), 1, made.data(), n, roots);
    });
  }

  // Replaces each line along an axis by what `change` makes of it.
  template <class Change>
  void for_each_line(std::size_t axis, const Change& change) {
    const std::int64_t n = shape[axis];
    std::int64_t inner = 1;
    for (std::size_t a = axis + 1; a < shape.size(); ++a) inner *= shape[a];
    std::vector<std::complex<W>> line(static_cast<std::size_t>(n)), made(line);
    const auto all = static_cast<std::int64_t>(points.size());
    for (std::int64_t first = 0; first < all; ++first) {
      if (first / inner % n != 0) continue;
      for (std::int64_t j = 0; j < n; ++j) line[static_cast<std::size_t>(j)] = points[static_cast<std::size_t>(first + j * inner)];
      change(line, made);
      for (std::int64_t j = 0; j < n; ++j) points[static_cast<std::size_t>(first + j * inner)] = made[static_cast<std::size_t>(j)];
    }
  }

  // Multiplies all lines along an axis by the matrix of a real transform.
  void transform_axis(std::size_t axis, fft::real_kind kind) {
    const std::int64_t n = shape[axis];
    std::vector<W> matrix;
    for (std::int64_t k = 0; k < n; ++k) {
      for (std::int64_t j = 0; j < n; ++j) matrix.push_back(test::real_element<W>(kind, n, k, j));
    }
    for_each_line(axis, [&](const std::vector<std::complex<W>>& line, std::vector<std::complex<W>>& made) {
      for (std::int64_t k = 0; k < n; ++k) {
        W sum = 0;
        for (std::int64_t j = 0; j < n; ++j) sum += matrix[static_cast<std::size_t>(k * n + j)] * line[static_cast<std::size_t>(j)].real();
        made[static_cast<std::size_t>(k)] = sum;
      }
    });
  }

  // Makes the lines of a half spectrum of n points whole. Numbers that are their own mirror images are real.
  void expand_lines(std::int64_t n) {
    const std::int64_t half = shape.back();
    std::vector<std::complex<W>> whole;
    for (std::size_t first = 0; first < points.size(); first += static_cast<std::size_t>(half)) {
      for (std::int64_t j = 0; j < n; ++j) {
        const std::complex<W> z = points[first + static_cast<std::size_t>(j < half ? j : n - j)];
        whole.push_back(j == 0 || 2 * j == n ? std::complex<W>(z.real()) : j < half ? z : std::conj(z));
      }
    }
    points = std::move(whole);
    shape.back() = n;
  }
};

template <class T>
class fft_subject final : public subject {
 public:
  fft_subject(const fft::token& token, backend on, std::string_view scheme, std::string_view layout)
      : problem_(token.problem), way_(token.direction), scheme_(scheme), signals_(problem_.batch) {
    const bool reals = problem_.kind == fft::kind::r2r;
    if (reals && layout == "split") throw invalid_argument_error("expected complex numbers on one side of a transform of split numbers");
    const std::int64_t n = problem_.shape.back(), half = n / 2 + 1;
    std::int64_t lines = 1;
    for (std::size_t axis = 0; axis + 1 < problem_.shape.size(); ++axis) lines *= problem_.shape[axis];
    const bool from_reals = problem_.kind == fft::kind::r2c || reals, to_reals = problem_.kind == fft::kind::c2r || reals;
    in_words_ = lines * (from_reals ? n : to_reals ? 2 * half : 2 * n);
    out_words_ = lines * (to_reals ? n : from_reals ? 2 * half : 2 * n);
    input_ = normal<T>(in_words_ * signals_, 1);
    place(layout, from_reals, to_reals);

    using W = wide<T>;
    std::int64_t points = lines * n;
    if (reals) {
      points = 1;
      for (std::size_t axis = 0; axis < problem_.shape.size(); ++axis)
        points *= logical_length(problem_.real_kinds[axis], problem_.shape[axis]);
    }
    const W scale = way_ == fft::direction::forward ? W(1) : W(1) / static_cast<W>(points);  // norm::backward
    // The weights of real-to-real transforms, of split numbers and of more than three axes are drawn, not chosen.
    const bool drawn = on == backend::cuda || reals || problem_.split || problem_.shape.size() > 3;
    std::vector<W> reference;
    std::vector<double> floors;
    for (std::int64_t b = 0; b < signals_; ++b) {
      const T* from = input_.data() + b * in_words_;
      double size = 0;
      const auto add = [&](W value) {
        reference.push_back(value * scale);
        size += static_cast<double>(reference.back() * reference.back());
      };
      const volume<W> made = transformed<W>(from);
      for (std::size_t i = 0; i < made.points.size(); ++i) {
        if (from_reals && !to_reals && static_cast<std::int64_t>(i) % n >= half) continue;
        add(made.points[i].real());
        if (!to_reals) add(made.points[i].imag());
      }
      floors.push_back((drawn ? test::k_floor : test::k_host_floor) * test::effect_unit(problem_) * std::sqrt(size));
    }
    judged_.emplace(std::move(reference), out_words_, std::move(floors));
  }

  void prepare(const execution& where) override {
    execution with = where;
    if (with.protection != protection::off) with.scheme = scheme_;
    plan_.emplace(problem_, with);
    std::vector<T> memory(static_cast<std::size_t>(in_.words), T(0));
    for (std::size_t i = 0; i < input_.size(); ++i) memory[in_.at(i)] = input_[i];
    in_.memory.set(memory);
  }
  void reset() override { out_.memory.set_zero(out_.words); }
  report run(const call& now) override {
    using complex = std::complex<T>;
    const auto points = [](auto words) {
      using word = std::remove_reference_t<decltype(words[0])>;
      using point = std::conditional_t<std::is_const_v<word>, const complex, complex>;
      return std::span<point>(reinterpret_cast<point*>(words.data()), words.size() / 2);
    };
    const std::span<const T> in = in_.memory.all();
    const std::span<T> out = out_.memory.all();
    const bool forward = way_ == fft::direction::forward;
    if (problem_.split) {
      const auto halves = [](auto words) {
        using word = std::remove_reference_t<decltype(words[0])>;
        return fft::parts<word>{words.first(words.size() / 2), words.subspan(words.size() / 2)};
      };
      if (problem_.kind == fft::kind::r2c) return plan_->forward(in, halves(out), now);
      if (problem_.kind == fft::kind::c2r) return plan_->inverse(halves(in), out, now);
      return forward ? plan_->forward(halves(in), halves(out), now) : plan_->inverse(halves(in), halves(out), now);
    }
    switch (problem_.kind) {
      case fft::kind::r2c: return plan_->forward(in, points(out), now);
      case fft::kind::c2r: return plan_->inverse(points(in), out, now);
      case fft::kind::r2r: return forward ? plan_->forward(in, out, now) : plan_->inverse(in, out, now);
      default: return forward ? plan_->forward(points(in), points(out), now) : plan_->inverse(points(in), points(out), now);
    }
  }
  void keep() override { judged_->keep(result()); }
  effect judge() override {
    effect seen;
    judged_->judge(result(), seen);
    return seen;
  }
  int number_bits() const override { return 8 * sizeof(T); }
  double clean_error() const override { return judged_->clean_error(); }

 private:
  // The words of one side in the order of its signals' elements, and where they lie in memory.
  struct side {
    std::vector<std::size_t> places;  // empty: one after the other
    std::int64_t words = 0;           // the size of the memory
    operand<T> memory;
    std::size_t at(std::size_t word) const { return places.empty() ? word : places[word]; }
  };

  // Decides where elements lie. "strided": the input's axes in the reverse order; the output's elements two apart; the signals in a loop,
  // on the output side backwards. "split": real and imaginary parts in two arrays.
  void place(std::string_view layout, bool from_reals, bool to_reals) {
    const auto put = [&](side& to, std::int64_t words, bool real, std::int64_t apart, bool backwards, bool from_first) {
      std::vector<std::int64_t> lengths = problem_.shape, strides(lengths.size());
      if (problem_.kind != fft::kind::c2c && !real) lengths.back() = lengths.back() / 2 + 1;
      std::int64_t elements = apart;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::size_t axis = from_first ? i : lengths.size() - 1 - i;
        strides[axis] = elements;
        elements *= lengths[axis];
      }
      const std::int64_t each = real ? 1 : 2, all = elements * signals_;
      to.words = all * each;
      if (layout.empty()) return strides;
      for (std::int64_t word = 0; word < words * signals_; ++word) {
        const std::int64_t signal = word / words;
        std::int64_t element = word % words / each, lies = (backwards ? signals_ - 1 - signal : signal) * elements;
        for (std::size_t axis = lengths.size(); axis-- > 0; element /= lengths[axis]) lies += element % lengths[axis] * strides[axis];
        to.places.push_back(static_cast<std::size_t>(problem_.split ? word % each * all + lies : lies * each + word % each));
      }
      return strides;
    };
    problem_.split = layout == "split";
    const bool strided = layout == "strided";
    auto in = put(in_, in_words_, from_reals, 1, false, strided);
    auto out = put(out_, out_words_, to_reals, strided ? 2 : 1, strided, false);
    if (!strided) return;
    problem_.loops = {{signals_, in_words_ / (from_reals ? 1 : 2), -2 * (out_words_ / (to_reals ? 1 : 2))}};
    problem_.batch = 1;
    problem_.input.strides = std::move(in);
    problem_.output.strides = std::move(out);
  }

  // The words of the result, signal after signal.
  std::vector<T> result() {
    const std::vector<T>& words = out_.memory.read();
    if (out_.places.empty()) return words;
    std::vector<T> made;
    for (const std::size_t place : out_.places) made.push_back(words[place]);
    return made;
  }

  // The transform of one signal, without its norm: all points, also of a half spectrum. The axes before the last one of c2r come first.
  template <class W>
  volume<W> transformed(const T* from) const {
    const W turn = (way_ == fft::direction::forward ? -2 : 2) * std::numbers::pi_v<W>;
    const bool reals = problem_.kind == fft::kind::r2r;
    const bool from_reals = problem_.kind == fft::kind::r2c || reals, to_reals = problem_.kind == fft::kind::c2r;
    volume<W> made{problem_.shape, {}};
    if (to_reals) made.shape.back() = made.shape.back() / 2 + 1;
    for (std::int64_t i = 0; i < in_words_; i += from_reals ? 1 : 2) made.points.emplace_back(from[i], from_reals ? T(0) : from[i + 1]);
    if (reals) {
      for (std::size_t axis = 0; axis < made.shape.size(); ++axis) {
        const fft::real_kind kind = problem_.real_kinds[axis];
        made.transform_axis(axis, way_ == fft::direction::forward ? kind : inverse_of(kind));
      }
      return made;
    }
    for (std::size_t axis = 0; axis + 1 < made.shape.size(); ++axis) made.transform_axis(axis, turn);
    if (to_reals) made.expand_lines(problem_.shape.back());
    made.transform_axis(made.shape.size() - 1, turn);
    return made;
  }

  fft::problem problem_;
  fft::direction way_;
  std::string scheme_;
  std::int64_t signals_, in_words_ = 0, out_words_ = 0;  // words: of a signal
  std::vector<T> input_;
  side in_, out_;
  std::optional<judged_parts<T>> judged_;
  std::optional<fft::plan> plan_;
};

}  // namespace

std::unique_ptr<subject> make_fft(std::string_view token, backend on, std::string_view scheme, std::string_view layout) {
  const fft::token parsed = fft::parse_token(token);
  if (parsed.problem.precision == precision::f32) return std::make_unique<fft_subject<float>>(parsed, on, scheme, layout);
  return std::make_unique<fft_subject<double>>(parsed, on, scheme, layout);
}

}  // namespace ballast::strike
