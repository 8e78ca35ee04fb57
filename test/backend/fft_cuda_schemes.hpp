// What the tests of the cuda backend's schemes run, and what their kernels are generated for: both read this list.
// Layer: tests.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include <ballast/fft.hpp>

#include "fft/contract.hpp"
#include "fft/cuda/transform.hpp"
#include "fft/problem.hpp"
#include "inject/plan.hpp"
#include "simt/emulated_device.hpp"

namespace scheme_test {

using namespace ballast;

// The transform of one signal along each axis in turn, by its definition. sign: −1 forward, 1 inverse; unnormalised.
inline std::vector<std::complex<double>> by_definition(std::vector<std::complex<double>> x, const std::vector<std::int64_t>& shape,
                                                       int sign) {
  std::size_t below = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto n = static_cast<std::size_t>(shape[axis]);
    using wide = long double;
    std::vector<std::complex<double>> y(x.size());
    std::vector<std::complex<wide>> roots(n);
    for (std::size_t i = 0; i < n; ++i)
      roots[i] = std::polar(wide(1), wide(sign) * 2 * std::numbers::pi_v<wide> * static_cast<wide>(i) / static_cast<wide>(n));
    for (std::size_t at = 0; at < x.size(); ++at) {
      const std::size_t k = at / below % n;
      wide re = 0;
      wide im = 0;
      for (std::size_t j = 0; j < n; ++j) {
        const std::complex<double>& z = x[at - k * below + j * below];
        const std::complex<wide>& w = roots[j * k % n];
        re += z.real() * w.real() - z.imag() * w.imag();
        im += z.real() * w.imag() + z.imag() * w.real();
      }
      y[at] = {static_cast<double>(re), static_cast<double>(im)};
    }
    x = std::move(y);
    below *= n;
  }
  return x;
}

// In the place of cuFFT, in the emulator's memory.
class defined_transform final : public fft::cuda::dense_transform {
 public:
  defined_transform(const fft::problem& shape, fft::direction way) : shape_(shape), sign_(way == fft::direction::forward ? -1 : 1) {}
  void execute(const void* in, void* out, ballast::cuda::stream) override {
    if (shape_.precision == precision::f32) {
      execute_as<float>(in, out);
    } else {
      execute_as<double>(in, out);
    }
  }

 private:
  template <class T>
  void execute_as(const void* in, void* out) const {
    std::size_t points = 1;
    for (const std::int64_t n : shape_.shape) points *= static_cast<std::size_t>(n);
    for (std::size_t b = 0; b < static_cast<std::size_t>(shape_.batch); ++b) {
      const auto* from = static_cast<const std::complex<T>*>(in) + b * points;
      auto* to = static_cast<std::complex<T>*>(out) + b * points;
      const auto y = by_definition({from, from + points}, shape_.shape, sign_);
      std::ranges::transform(y, to, [](const auto& z) { return std::complex<T>(static_cast<T>(z.real()), static_cast<T>(z.imag())); });
    }
  }
  fft::problem shape_;
  int sign_;
};

inline void replace_cufft() {
  fft::cuda::override_cufft([](const fft::problem& shape, fft::direction way) { return std::make_unique<defined_transform>(shape, way); });
}

struct scheme_case {
  std::string scheme;
  std::string token;
  bool protect = true;
  bool small = false;  // on a device with so little shared memory that 4096 points are two passes, or a cluster's

  ballast::protection protection() const { return protect ? ballast::protection::correct : ballast::protection::off; }
};

inline const std::vector<scheme_case>& cases() {
  static const std::vector<scheme_case> all = {
      {"multi_transaction_4", "fft_c2c_f32_n64_b37_fwd"},
      {"multi_transaction_2", "fft_c2c_f32_n1024_b5_fwd"},
      {"multi_transaction_8", "fft_c2c_f64_n128_b70_inv"},
      {"multi_transaction_2", "fft_r2c_f32_n96_b41_fwd"},
      {"multi_transaction_4", "fft_c2c_f32_n4096_b3_fwd", true, true},
      {"threadblock", "fft_c2c_f32_n64_b9_fwd"},
      {"multi_transaction_32", "fft_c2r_f32_n64_b300_inv"},
      {"one_sided", "fft_c2c_f32_n64_b9_fwd"},
      {"thread", "fft_c2c_f32_n96_b9_fwd"},
      {"thread", "fft_c2c_f64_n64_b16_fwd"},
      {"one_sided", "fft_c2c_f32_n4096_b2_fwd", true, true},
      {"thread", "fft_c2c_f32_n4096_b2_inv", true, true},
      {"offline", "fft_c2c_f32_n60x90_b3_inv"},
      {"offline", "fft_c2c_f64_n256_b9_fwd"},
      {"v0", "fft_c2c_f32_n256_b5_inv", false},
      {"v1", "fft_c2c_f32_n4096_b2_fwd", false, true},
      {"v2", "fft_c2c_f32_n1024_b2_fwd", false},
      {"tuned", "fft_c2c_f32_n1024_b2_fwd", false},
  };
  return all;
}

inline ballast::cuda::capabilities device_for(const scheme_case& what) {
  auto about = simt::emulated_capabilities(2);
  if (what.small) about.shared_per_block = 12 << 10;
  return about;
}

template <class T>
struct result {
  ballast::report report;
  std::vector<T> out;  // scalars of the output side
};

// Runs the case on the current device, in its memory. Data are `in`, scalars of the input side; `in_place`: c2c only.
template <class T>
result<T> execute(const scheme_case& what, execution how, const std::vector<T>& in, bool in_place) {
  const fft::token parsed = fft::parse_token(what.token);
  const fft::geometry shape = fft::resolve(parsed.problem);
  how.backend = backend::cuda;
  how.scheme = what.scheme;
  how.throw_on_uncorrectable = false;
  const fft::plan plan(parsed.problem, how);
  const auto device = ballast::cuda::current_device();
  const auto scalars = [](const fft::side& s) { return static_cast<std::size_t>(s.extent) * (s.real ? 1 : 2); };
  const std::size_t outputs = scalars(shape.output);
  ballast::cuda::device_buffer source(device, static_cast<std::int64_t>(in.size() * sizeof(T)));
  ballast::cuda::device_buffer target(device, static_cast<std::int64_t>(outputs * sizeof(T)));
  device->copy(source.data(), in.data(), source.bytes(), nullptr);
  auto* const from = static_cast<T*>(source.data());
  auto* const to = static_cast<T*>(in_place ? source.data() : target.data());
  using number = std::complex<T>;
  const auto numbers = [](T* at, const fft::side& s) {
    return std::span<number>(reinterpret_cast<number*>(at), static_cast<std::size_t>(s.extent));
  };
  const auto reals = [](T* at, const fft::side& s) { return std::span<T>(at, static_cast<std::size_t>(s.extent)); };
  const auto run = [&]() -> report {
    if (parsed.problem.kind == fft::kind::r2c) return plan.forward(reals(from, shape.input), numbers(to, shape.output));
    if (parsed.problem.kind == fft::kind::c2r) return plan.inverse(numbers(from, shape.input), reals(to, shape.output));
    if (parsed.direction == fft::direction::forward) return plan.forward(numbers(from, shape.input), numbers(to, shape.output));
    return plan.inverse(numbers(from, shape.input), numbers(to, shape.output));
  };
  result<T> made{run(), {}};
  made.out.assign(to, to + outputs);
  return made;
}

template <class T>
std::size_t input_scalars(const scheme_case& what) {
  const fft::geometry shape = fft::resolve(fft::parse_token(what.token).problem);
  return static_cast<std::size_t>(shape.input.extent) * (shape.input.real ? 1 : 2);
}

}  // namespace scheme_test
