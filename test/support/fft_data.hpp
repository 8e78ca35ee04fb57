// Data for tests of the FFT: clean data of every kind, the same transform in higher precision, errors, and calls of a plan with plain
// addresses. The packed words of a signal are its real numbers in C order, two for a complex number, without the gaps between its elements.
// Layer: test harness. Needs no package, so that test/gpu can use it. Host only; large data are generated on all cores.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <ballast/fft.hpp>

#include "fft/problem.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::test {

// Calls body(first, last) for pieces of [0, count), on all cores if `count` is large enough.
void in_pieces(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body);

// ---- Layouts ----

// Returns the number of packed words of one signal.
std::int64_t words_of_signal(const fft::side& side);
// Returns the number of words from the first to the last element of all signals, including gaps.
std::int64_t words_of_side(const fft::side& side);

// Returns the packed words of all signals.
template <class T>
std::vector<T> pack(const fft::side& side, std::int64_t batch, const T* data);
// The reverse: returns an array of words_of_side words, with `between` in the gaps.
template <class T>
std::vector<T> unpack(const fft::side& side, std::int64_t batch, const std::vector<T>& packed, T between);

// Returns the same problem with layouts that allow the output to overwrite the input: rows of reals are padded to n/2 + 1 complex numbers.
fft::problem in_place_problem(fft::problem problem);

// ---- Data ----

// Returns normally distributed words, the same for the same seed.
template <class T>
std::vector<T> noise(std::int64_t count, std::uint64_t seed);

// Clean data on which no check may fail, by name. constant: 1. huge, tiny: 10^±30, in f64 10^±300. subnormal: 10^-41, 10^-315. cauchy:
// ratios of normal numbers. impulse: one element is 1. decades: elements differ by up to 10^20. cosine: one frequency, between two bins.
// nearly_one: 1 + 10^-6 times noise. scales: signals differ by 10^35. ramp: each element is 10^-3 larger than the previous one.
inline constexpr std::string_view k_fillings[] = {"normal",  "constant", "huge",       "tiny",        "subnormal", "cauchy", "impulse",
                                                  "decades", "cosine",   "nearly_one", "alternating", "zero",      "scales", "ramp"};
// Returns the packed words of all signals, with this kind of data.
template <class T>
std::vector<T> filled(std::string_view kind, const fft::side& side, std::int64_t batch, std::uint64_t seed);

// ---- Results ----

// One call on `stream` that returns its report even if a fault persists.
inline call quiet_call(void* stream = nullptr) {
  call made;
  made.stream = stream;
  made.throw_on_uncorrectable = false;
  return made;
}

// Calls forward(in, out) or inverse(in, out) with spans that reach from the first to the last element of both layouts.
template <class T, class Forward, class Inverse>
auto with_spans(const fft::geometry& shape, fft::direction way, const void* in, void* out, const Forward& forward, const Inverse& inverse) {
  const auto from = static_cast<std::size_t>(shape.input.extent), to = static_cast<std::size_t>(shape.output.extent);
  using complex = std::complex<T>;
  if (shape.kind == fft::kind::r2c) return forward(std::span(static_cast<const T*>(in), from), std::span(static_cast<complex*>(out), to));
  if (shape.kind == fft::kind::c2r) return inverse(std::span(static_cast<const complex*>(in), from), std::span(static_cast<T*>(out), to));
  const std::span x(static_cast<const complex*>(in), from);
  const std::span y(static_cast<complex*>(out), to);
  return way == fft::direction::forward ? forward(x, y) : inverse(x, y);
}

// Executes with data of type T at plain addresses.
template <class T>
report execute(const fft::plan& plan, const fft::geometry& shape, fft::direction way, const void* in, void* out,
               const call& now = quiet_call()) {
  return with_spans<T>(
      shape, way, in, out, [&](auto x, auto y) { return plan.forward(x, y, now); },
      [&](auto x, auto y) { return plan.inverse(x, y, now); });
}
// The same without waiting.
template <class T>
pending_report enqueue(const fft::plan& plan, const fft::geometry& shape, fft::direction way, const void* in, void* out,
                       const call& now = quiet_call()) {
  return with_spans<T>(
      shape, way, in, out, [&](auto x, auto y) { return plan.enqueue_forward(x, y, now); },
      [&](auto x, auto y) { return plan.enqueue_inverse(x, y, now); });
}

// Returns the factor of the normalization.
double scale_of(const fft::problem& problem, fft::direction way);

// Returns the packed words of the exact transform of signal `b`, computed in wide<T>. `in`: all signals, in the layout of the problem.
template <class T>
std::vector<fft::wide<T>> reference(const fft::problem& problem, fft::direction way, const fft::geometry& shape, const T* in,
                                    std::int64_t b);

// ‖got − wanted · factor‖₂ and ‖wanted · factor‖₂ over packed words. NaN gives an infinite difference.
struct distance {
  double difference = 0;
  double size = 0;
  double relative() const;
};
template <class T, class W>
distance distance_of(const T* got, const W* wanted, std::int64_t words, double factor = 1);

}  // namespace ballast::test
