// Shapes, lines and tables of real-to-real transforms in one pass.
#include "fft/cuda/plan/real_lines.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <utility>

#include "core/at.hpp"
#include "core/counter_rng.hpp"
#include "fft/cuda/policy/radices.hpp"
#include "fft/problem.hpp"
#include "fft/tables/checks.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "fft/tables/real_to_real.hpp"

namespace ballast::fft::cuda {

using core::at;

namespace {

reals_form form_of(real_kind kind) {
  switch (kind) {
    case real_kind::r2hc:
    case real_kind::dht: return reals_form::pairs;
    case real_kind::hc2r: return reals_form::halves;
    case real_kind::dct1:
    case real_kind::dst1: return reals_form::first;
    case real_kind::dct2:
    case real_kind::dst2: return reals_form::second;
    case real_kind::dct3:
    case real_kind::dst3: return reals_form::third;
    default: return reals_form::fourth;
  }
}

bool is_sine(real_kind kind) {
  return kind == real_kind::dst1 || kind == real_kind::dst2 || kind == real_kind::dst3 || kind == real_kind::dst4;
}

template <class T, class W>
void push(std::vector<T>& to, const std::complex<W>& z) {
  to.push_back(static_cast<T>(z.real()));
  to.push_back(static_cast<T>(z.imag()));
}

template <class W>
std::complex<W> turned(const std::complex<W>& z) {  // i z
  return {-z.imag(), z.real()};
}

// Loops over lines, those that continue each other as one. The last one is the fastest.
struct line_loop {
  std::int64_t count, input, output, number;
};
void add_loop(std::vector<line_loop>& to, const line_loop& one) {
  if (one.count == 1) return;
  if (!to.empty() && to.back().input == one.input * one.count && to.back().output == one.output * one.count &&
      to.back().number == one.number * one.count)
    to.back() = {to.back().count * one.count, one.input, one.output, one.number};
  else
    to.push_back(one);
}

}  // namespace

std::optional<real_line_shape> one_pass_of(real_kind kind, std::int64_t n, bool wide, const ballast::cuda::capabilities& device) {
  real_line_shape made{form_of(kind), is_sine(kind), n};
  if (made.form == reals_form::first) {
    made.length = made.sines ? n + 1 : n - 1;
  } else if (n % 2 == 0) {
    made.length = n / 2;
  } else if (made.form == reals_form::fourth) {
    return {};
  }
  if (made.length < 2 || radix_before_definition(made.length, wide) != 0 || !fits_one_pass(made.length, wide, device)) return {};
  // One line of complex numbers, its pitch, and the sums of its threads must fit.
  constexpr std::int64_t beside = 8192;
  if (made.length * (wide ? 16 : 8) + beside > device.shared_per_block) return {};
  return made;
}

nested_geometry lines_along(const array_problem& shape, std::size_t number, real_kind kind, bool from_input) {
  const axis& along = shape.axes[number];
  const auto in_of = [&](const auto& each, auto input, auto output) { return from_input ? each.*input : each.*output; };
  nested_geometry made;
  geometry& inner = made.inner;
  inner.kind = kind::r2r;
  inner.real = kind;
  inner.n = {1, 1, along.n};
  // Lines of one signal, then signals.
  std::vector<line_loop> lines, signals;
  std::int64_t count = shape.signals();
  for (const loop& each : shape.loops) {
    count /= each.count;
    add_loop(signals, {each.count, in_of(each, &loop::input, &loop::output), each.output, count});
  }
  for (std::size_t i = 0; i < shape.axes.size(); ++i) {
    if (i == number) continue;
    const axis& other = shape.axes[i];
    add_loop(lines, {other.n, in_of(other, &axis::in_stride, &axis::out_stride), other.out_stride, 0});
  }
  // The transform takes the longest loop of signals and the two longest of lines.
  const auto take_longest = [](std::vector<line_loop>& from) {
    if (from.empty()) return line_loop{1, 0, 0, 1};
    const auto longest = std::ranges::max_element(from, {}, &line_loop::count);
    const line_loop taken = *longest;
    from.erase(longest);
    return taken;
  };
  const line_loop batch = take_longest(signals), first = take_longest(lines), second = take_longest(lines);
  inner.batch = batch.count;
  made.batch_number = batch.number;
  const auto place = [&](side& of, std::int64_t line_loop::*distance, std::int64_t element) {
    of.real = true;
    of.length = {second.count, first.count, along.n};
    of.stride = {second.*distance, first.*distance, element};
    of.distance = batch.*distance;
  };
  place(inner.input, &line_loop::input, from_input ? along.in_stride : along.out_stride);
  place(inner.output, &line_loop::output, along.out_stride);
  for (const auto* rest : {&signals, &lines}) {
    for (const line_loop& each : *rest) made.outer.push_back({each.count, each.input, each.output, each.number});
  }
  made.input = {true, 0, inner.input.extent};
  made.output = {true, 0, inner.output.extent};
  return made;
}

double growth_of(real_kind kind, std::int64_t n) {
  const auto points = static_cast<double>(n);
  switch (kind) {
    case real_kind::r2hc:
    case real_kind::dht: return points;
    case real_kind::dst1: return 2 * (points + 1);
    default: return 2 * points;
  }
}

template <class T>
std::vector<T> real_load_factors(real_kind kind, std::int64_t n) {
  using W = wide<T>;
  using number = std::complex<W>;
  const reals_form form = form_of(kind);
  std::vector<T> made;
  if (form == reals_form::fourth) {
    for (std::int64_t j = 0; j < n / 2; ++j) push(made, fft::root_of_unity<W>(4 * j + 1, 8 * n));
    return made;
  }
  if (form != reals_form::halves && form != reals_form::third) return made;
  // V_k = own(k) x_k + other(k) x_{n−k} for 0 < k < n/2; V_0 and V_{n/2} are real.
  const bool third = form == reals_form::third;
  const auto own = [&](std::int64_t k) { return third ? std::conj(fft::root_of_unity<W>(k, 4 * n)) : number(1); };
  const auto other = [&](std::int64_t k) { return third ? -turned(own(k)) : number(0, 1); };
  if (n % 2 != 0) {
    for (std::int64_t k = 0; k < n; ++k) {
      const bool mirrored = 2 * k > n;
      const std::int64_t f = mirrored ? n - k : k;
      const number first = own(f), second = f == 0 ? number(0) : other(f);
      push(made, mirrored ? first : std::conj(first));
      push(made, mirrored ? second : std::conj(second));
    }
    return made;
  }
  // Z_k = V_k + V*_{m−k} + i e^{πik/m} (V_k − V*_{m−k}), m = n/2.
  const std::int64_t m = n / 2;
  for (std::int64_t k = 0; k < m; ++k) {
    const number turn = turned(std::conj(fft::root_of_unity<W>(k, n)));
    const number direct = number(1) + turn, mirrored = number(1) - turn;
    const number last = k == 0 ? number(third ? std::numbers::sqrt2_v<W> : W(1)) : std::conj(own(m - k));
    push(made, std::conj(multiply(direct, own(k))));
    push(made, k == 0 ? number(0) : std::conj(multiply(direct, other(k))));
    push(made, std::conj(multiply(mirrored, last)));
    push(made, k == 0 ? number(0) : std::conj(multiply(mirrored, std::conj(other(m - k)))));
  }
  return made;
}

template <class T>
std::vector<T> real_store_factors(real_kind kind, std::int64_t n) {
  using W = wide<T>;
  using number = std::complex<W>;
  const reals_form form = form_of(kind);
  std::vector<T> made;
  if (form == reals_form::fourth) {
    for (std::int64_t k = 0; k < n / 2; ++k) push(made, W(2) * fft::root_of_unity<W>(k, 2 * n));
    return made;
  }
  if (form == reals_form::halves || form == reals_form::third) return made;
  const bool sines = is_sine(kind);
  const auto add = [&](const number& z) { push(made, std::conj(z)); };
  for (std::int64_t t = 0; t < n; ++t) {
    const std::int64_t row = sines && form == reals_form::second ? n - 1 - t : t;
    const bool upper = form != reals_form::first && 2 * row > n;
    const std::int64_t k = form == reals_form::first ? (sines ? t + 1 : t) : upper ? n - row : row;
    // y = Re γ X_k.
    number factor(1);
    switch (kind) {
      case real_kind::r2hc: factor = upper ? number(0, -1) : number(1); break;
      case real_kind::dht: factor = upper ? number(1, -1) : number(1, 1); break;
      case real_kind::dct1: break;
      case real_kind::dst1: factor = number(0, 1); break;
      default: factor = W(2) * (upper ? turned(fft::root_of_unity<W>(k, 4 * n)) : fft::root_of_unity<W>(k, 4 * n));
    }
    if (form != reals_form::first && n % 2 != 0) {
      add(factor);
      continue;
    }
    // X_k = (1 − i w^k)/2 Z_k + (1 + i w^k)/2 Z*_{m−k}, w = e^{−πi/m}.
    const std::int64_t m = form == reals_form::first ? (sines ? n + 1 : n - 1) : n / 2;
    const number turn = turned(fft::root_of_unity<W>(k, 2 * m));
    add(W(0.5) * multiply(factor, number(1) - turn));
    add(W(0.5) * std::conj(multiply(factor, number(1) + turn)));
  }
  return made;
}

template <class T>
real_weights<T> make_real_weights(real_kind kind, std::int64_t n) {
  using W = wide<T>;
  real_weights<T> made;
  std::vector<std::complex<W>> a[2];
  for (std::int64_t k = 0; k < n; ++k) {
    const double angle =
        2 * std::numbers::pi * core::random_uniform(k_weight_seed, static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(k));
    // Rounded first: both sides use the same numbers.
    const T re = static_cast<T>(std::cos(angle)), im = static_cast<T>(std::sin(angle));
    made.verify.push_back(re);
    made.verify.push_back(im);
    for (const int v : {0, 1}) {
      const W sign = v == 1 && k >= second_half(n) ? W(-1) : W(1);
      a[v].emplace_back(sign * static_cast<W>(re), sign * static_cast<W>(im));
    }
  }
  const auto first = transposed_real_transform(kind, a[0]), second = transposed_real_transform(kind, a[1]);
  for (std::int64_t j = 0; j < n; ++j) {
    push(made.encode, first[at(j)]);
    push(made.encode, second[at(j)]);
  }
  return made;
}

template std::vector<float> real_load_factors(real_kind, std::int64_t);
template std::vector<double> real_load_factors(real_kind, std::int64_t);
template std::vector<float> real_store_factors(real_kind, std::int64_t);
template std::vector<double> real_store_factors(real_kind, std::int64_t);
template real_weights<float> make_real_weights(real_kind, std::int64_t);
template real_weights<double> make_real_weights(real_kind, std::int64_t);

}  // namespace ballast::fft::cuda
