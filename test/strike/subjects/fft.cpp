// The FFT as a subject of strikes: every signal of a batch of random data is one part of the result.
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
    std::int64_t inner = 1;
    for (std::size_t a = axis + 1; a < shape.size(); ++a) inner *= shape[a];
    std::vector<std::complex<W>> roots(static_cast<std::size_t>(n)), line(roots), made(roots);
    for (std::int64_t j = 0; j < n; ++j)
      roots[static_cast<std::size_t>(j)] = std::polar(W(1), turn * static_cast<W>(j) / static_cast<W>(n));
    const auto all = static_cast<std::int64_t>(points.size());
    for (std::int64_t first = 0; first < all; ++first) {
      if (first / inner % n != 0) continue;
      for (std::int64_t j = 0; j < n; ++j) line[static_cast<std::size_t>(j)] = points[static_cast<std::size_t>(first + j * inner)];
      transform<W>(line.data(), 1, made.data(), n, roots);
      for (std::int64_t j = 0; j < n; ++j) points[static_cast<std::size_t>(first + j * inner)] = made[static_cast<std::size_t>(j)];
    }
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
  fft_subject(const fft::token& token, backend on, std::string_view scheme)
      : problem_(token.problem), way_(token.direction), scheme_(scheme) {
    const bool reals = problem_.kind == fft::kind::r2r;
    if (reals && problem_.shape.size() != 1) throw invalid_argument_error("expected a real-to-real transform of one dimension");
    const std::int64_t n = problem_.shape.back(), half = n / 2 + 1;
    std::int64_t lines = 1;
    for (std::size_t axis = 0; axis + 1 < problem_.shape.size(); ++axis) lines *= problem_.shape[axis];
    const bool from_reals = problem_.kind == fft::kind::r2c || reals, to_reals = problem_.kind == fft::kind::c2r || reals;
    in_words_ = lines * (from_reals ? n : to_reals ? 2 * half : 2 * n);
    out_words_ = lines * (to_reals ? n : from_reals ? 2 * half : 2 * n);
    input_ = normal<T>(in_words_ * problem_.batch, 1);

    using W = wide<T>;
    const fft::real_kind kind = !reals                            ? fft::real_kind::r2hc
                                : way_ == fft::direction::forward ? problem_.real_kinds[0]
                                                                  : inverse_of(problem_.real_kinds[0]);
    const std::int64_t points = reals ? logical_length(problem_.real_kinds[0], n) : lines * n;
    const W scale = way_ == fft::direction::forward ? W(1) : W(1) / static_cast<W>(points);  // norm::backward
    std::vector<W> matrix;
    for (std::int64_t k = 0; reals && k < n; ++k) {
      for (std::int64_t j = 0; j < n; ++j) matrix.push_back(test::real_element<W>(kind, n, k, j));
    }
    std::vector<W> reference;
    std::vector<double> floors;
    for (std::int64_t b = 0; b < problem_.batch; ++b) {
      const T* from = input_.data() + b * in_words_;
      double size = 0;
      const auto add = [&](W value) {
        reference.push_back(value * scale);
        size += static_cast<double>(reference.back() * reference.back());
      };
      if (reals) {
        for (std::int64_t k = 0; k < n; ++k) {
          W sum = 0;
          for (std::int64_t j = 0; j < n; ++j) sum += matrix[static_cast<std::size_t>(k * n + j)] * W(from[j]);
          add(sum);
        }
      } else {
        const volume<W> made = transformed<W>(from);
        for (std::size_t i = 0; i < made.points.size(); ++i) {
          if (from_reals && static_cast<std::int64_t>(i) % n >= half) continue;
          add(made.points[i].real());
          if (!to_reals) add(made.points[i].imag());
        }
      }
      // The weights of real-to-real transforms are drawn, not chosen.
      floors.push_back((on == backend::cuda || reals ? test::k_floor : test::k_host_floor) * test::effect_unit(problem_) * std::sqrt(size));
    }
    judged_.emplace(std::move(reference), out_words_, std::move(floors));
  }

  void prepare(const execution& where) override {
    execution with = where;
    if (with.protection != protection::off) with.scheme = scheme_;
    plan_.emplace(problem_, with);
    in_.set(input_);
  }
  void reset() override { output_.set_zero(out_words_ * problem_.batch); }
  report run(const call& now) override {
    using complex = std::complex<T>;
    const auto points = [](auto words) {
      using word = std::remove_reference_t<decltype(words[0])>;
      using point = std::conditional_t<std::is_const_v<word>, const complex, complex>;
      return std::span<point>(reinterpret_cast<point*>(words.data()), words.size() / 2);
    };
    const std::span<const T> in = in_.all();
    switch (problem_.kind) {
      case fft::kind::r2c: return plan_->forward(in, points(output_.all()), now);
      case fft::kind::c2r: return plan_->inverse(points(in), output_.all(), now);
      case fft::kind::r2r:
        return way_ == fft::direction::forward ? plan_->forward(in, output_.all(), now) : plan_->inverse(in, output_.all(), now);
      default:
        return way_ == fft::direction::forward ? plan_->forward(points(in), points(output_.all()), now)
                                               : plan_->inverse(points(in), points(output_.all()), now);
    }
  }
  void keep() override { judged_->keep(output_.read()); }
  effect judge() override {
    effect seen;
    judged_->judge(output_.read(), seen);
    return seen;
  }
  double clean_error() const override { return judged_->clean_error(); }

 private:
  // The transform of one signal, without its norm: all points, also of a half spectrum. The axes before the last one of c2r come first.
  template <class W>
  volume<W> transformed(const T* from) const {
    const W turn = (way_ == fft::direction::forward ? -2 : 2) * std::numbers::pi_v<W>;
    const bool from_reals = problem_.kind == fft::kind::r2c, to_reals = problem_.kind == fft::kind::c2r;
    volume<W> made{problem_.shape, {}};
    if (to_reals) made.shape.back() = made.shape.back() / 2 + 1;
    for (std::int64_t i = 0; i < in_words_; i += from_reals ? 1 : 2) made.points.emplace_back(from[i], from_reals ? T(0) : from[i + 1]);
    for (std::size_t axis = 0; axis + 1 < made.shape.size(); ++axis) made.transform_axis(axis, turn);
    if (to_reals) made.expand_lines(problem_.shape.back());
    made.transform_axis(made.shape.size() - 1, turn);
    return made;
  }

  fft::problem problem_;
  fft::direction way_;
  std::string scheme_;
  std::int64_t in_words_ = 0, out_words_ = 0;
  std::vector<T> input_;
  operand<T> in_, output_;
  std::optional<judged_parts<T>> judged_;
  std::optional<fft::plan> plan_;
};

}  // namespace

std::unique_ptr<subject> make_fft(std::string_view token, backend on, std::string_view scheme) {
  const fft::token parsed = fft::parse_token(token);
  if (parsed.problem.precision == precision::f32) return std::make_unique<fft_subject<float>>(parsed, on, scheme);
  return std::make_unique<fft_subject<double>>(parsed, on, scheme);
}

}  // namespace ballast::strike
