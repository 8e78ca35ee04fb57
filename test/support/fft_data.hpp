// Data for tests of the FFT: clean data of every kind, the same transform in more precision, errors, and calls of a plan with plain
// addresses. Packed words of a signal are its real numbers in C order, a complex number as two, without what lies between its elements.
// Layer: test harness. Needs no package, so that test/gpu can use it. Host only; large data are made on all cores.
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

// Calls body(first, last) for pieces of [0, count), on all cores if there is enough of it.
void in_pieces(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body);

// ---- Places ----

// The packed words of one signal.
std::int64_t words_of_signal(const fft::side& side);
// The words from the first to the last element of all signals, with what lies between them.
std::int64_t words_of_side(const fft::side& side);

// The packed words of all signals.
template <class T>
std::vector<T> pack(const fft::side& side, std::int64_t batch, const T* data);
// The reverse: an array of words_of_side words, `between` where no element is.
template <class T>
std::vector<T> unpack(const fft::side& side, std::int64_t batch, const std::vector<T>& packed, T between);

// The same problem with layouts that allow its output to overwrite its input: rows of reals are padded to n/2 + 1 complex numbers.
fft::problem in_place_problem(fft::problem problem);

// ---- Data ----

// Normally distributed words, the same for the same seed.
template <class T>
std::vector<T> noise(std::int64_t count, std::uint64_t seed);

// Clean data on which no check may fail, by name. constant: 1. huge, tiny: 10^±30, in f64 10^±300. subnormal: 10^-41, 10^-315. cauchy:
// ratios of normal numbers. impulse: one element is 1. decades: elements differ by up to 10^20. cosine: one frequency between two others.
// nearly_one: 1 + 10^-6 times noise. scales: signals differ by 10^35. ramp: each element 10^-3 more than the one before.
inline constexpr std::string_view k_fillings[] = {"normal",  "constant", "huge",       "tiny",        "subnormal", "cauchy", "impulse",
                                                  "decades", "cosine",   "nearly_one", "alternating", "zero",      "scales", "ramp"};
// Packed words of all signals.
template <class T>
std::vector<T> filled(std::string_view kind, const fft::side& side, std::int64_t batch, std::uint64_t seed);

// ---- Results ----

// Executes with data of type T wherever `in` and `out` are: spans of the extents that the layouts need.
template <class T>
report execute(const fft::plan& plan, const fft::geometry& shape, fft::direction way, const void* in, void* out) {
  const auto from = static_cast<std::size_t>(shape.input.extent), to = static_cast<std::size_t>(shape.output.extent);
  using complex = std::complex<T>;
  if (shape.kind == fft::kind::r2c)
    return plan.forward(std::span(static_cast<const T*>(in), from), std::span(static_cast<complex*>(out), to));
  if (shape.kind == fft::kind::c2r)
    return plan.inverse(std::span(static_cast<const complex*>(in), from), std::span(static_cast<T*>(out), to));
  const std::span x(static_cast<const complex*>(in), from);
  const std::span y(static_cast<complex*>(out), to);
  return way == fft::direction::forward ? plan.forward(x, y) : plan.inverse(x, y);
}

// The factor of the norm.
double scale_of(const fft::problem& problem, fft::direction way);

// The packed words that the transform of signal `b` should have, computed in wide<T>. `in`: all signals as the layout has them.
template <class T>
std::vector<fft::wide<T>> reference(const fft::problem& problem, fft::direction way, const fft::geometry& shape, const T* in,
                                    std::int64_t b);

// ‖got − wanted · factor‖₂ and ‖wanted · factor‖₂ over packed words; NaN counts as infinitely wrong.
struct distance {
  double difference = 0;
  double size = 0;
  double relative() const;
};
template <class T, class W>
distance distance_of(const T* got, const W* wanted, std::int64_t words, double factor = 1);

}  // namespace ballast::test
