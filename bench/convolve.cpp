// Times convolutions without and with protection, on operands of the host. FFTW has no call to compare with.
#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <ballast/convolve.hpp>

#include "bench.hpp"
#include "stopwatch.hpp"
#include "support/convolution_token.hpp"

namespace ballast::bench {
namespace {

std::int64_t product(const std::vector<std::int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{1}, std::multiplies<>());
}

// T: the components of the numbers.
template <class T, class Number>
subject make(const fft::convolution_problem& wanted, const settings& how) {
  struct data {
    std::vector<Number> first, second, out;
  };
  const auto held = std::make_shared<data>();
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  const auto fill = [&](std::vector<Number>& x, const std::vector<std::int64_t>& lengths) {
    x.resize(static_cast<std::size_t>(product(lengths)));
    auto* const parts = reinterpret_cast<T*>(x.data());
    for (std::size_t i = 0; i < x.size() * sizeof(Number) / sizeof(T); ++i) parts[i] = static_cast<T>(normal(random));
  };
  fill(held->first, wanted.first);
  fill(held->second, wanted.second);

  subject made;
  made.token = to_token(wanted);
  made.unit = "convolution";
  made.type = wanted.precision;
  made.missing["FFTW"] = "it has no convolution";
  for (const auto level : {protection::off, protection::correct}) {
    const fft::convolution plan(wanted, {.backend = how.backend, .threads = how.threads, .protection = level});
    held->out.resize(static_cast<std::size_t>(product(plan.output_shape())));
    made.variants.push_back({std::string(to_string(level)), [held, plan] {
                               return seconds_of([&] {
                                 (void)plan.run(std::span<const Number>(held->first), std::span<const Number>(held->second),
                                                std::span<Number>(held->out));
                               });
                             }});
  }
  // Three transforms of the full result by the count of a transform: 2.5 N log₂ N for reals, 5 N log₂ N for complex numbers.
  double points = 1;
  for (std::size_t axis = 0; axis < wanted.first.size(); ++axis)
    points *= static_cast<double>(wanted.first[axis] + wanted.second[axis] - 1);
  made.flops = 3 * (wanted.complex ? 5 : 2.5) * points * std::log2(points);
  return made;
}

}  // namespace

subject make_convolution(const std::string& token, const settings& how) {
  const fft::convolution_problem wanted = test::parse_convolution(token);
  const bool single = wanted.precision == precision::f32;
  if (wanted.complex) return single ? make<float, std::complex<float>>(wanted, how) : make<double, std::complex<double>>(wanted, how);
  return single ? make<float, float>(wanted, how) : make<double, double>(wanted, how);
}

}  // namespace ballast::bench
