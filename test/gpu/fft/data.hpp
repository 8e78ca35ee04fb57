// Input data, references in more precision, errors. Host only; on all cores.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ballast/fft.hpp>

#include "fft/problem.hpp"
#include "fft/wide.hpp"

namespace ballast::gpu_check {

// Calls body(first, last) for pieces of [0, count), on all cores if there is enough of it.
void in_pieces(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body);

// Normally distributed words, the same for the same seed.
template <class T>
std::vector<T> noise(std::int64_t count, std::uint64_t seed);

// What clean data may look like without a false alarm.
inline const std::vector<std::string> k_hostile = {"normal", "huge",      "tiny", "constant", "impulse",
                                                   "cauchy", "subnormal", "zero", "scales"};
template <class T>
std::vector<T> hostile(const std::string& kind, const fft::geometry& shape, std::uint64_t seed);

// Words (real numbers) of one signal on one side, packed in C order.
std::int64_t words_of_signal(const fft::side& side);

// The words of all signals without what lies between them.
template <class T>
std::vector<T> pack(const fft::side& side, std::int64_t batch, const T* data);

// The transform of signal `b`, its packed output words, computed on the host in wide<T>.
template <class T>
std::vector<fft::wide<T>> reference(const fft::problem& problem, fft::direction way, const fft::geometry& shape, const T* in,
                                    std::int64_t b);

// The factor of the norm.
double scale_of(const fft::problem& problem, fft::direction way);

// ‖got − wanted · factor‖₂ and ‖wanted · factor‖₂ over packed words; NaN counts as infinitely wrong.
struct distance {
  double difference = 0;
  double size = 0;
  double relative() const;
};
template <class T, class W>
distance distance_of(const T* got, const W* wanted, std::int64_t words, double factor = 1);

// The accuracy that the documentation promises: relative L2.
double error_bound(const fft::problem& problem);
// The effect above which nothing is missed: relative L2 of one signal.
double detection_floor(const fft::problem& problem);

extern template std::vector<float> noise(std::int64_t, std::uint64_t);
extern template std::vector<double> noise(std::int64_t, std::uint64_t);

}  // namespace ballast::gpu_check
