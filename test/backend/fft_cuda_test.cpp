// The cuda backend's FFT on the emulator, through the public plan: accuracy of every case of fft_cuda_cases.hpp for several orders of
// threads, layouts, memory, reports; then faults at every site, and clean data of every kind without a false alarm.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "backend/fft_cuda_cases.hpp"
#include "backend/fft_reference.hpp"
#include "fft/contract.hpp"
#include "fft/problem.hpp"

namespace ballast::fft {
namespace {

[[maybe_unused]] const bool ready = [] {
  ignore_user_tuning();
  return true;
}();

constexpr int k_orders = BALLAST_SLOW_BUILD ? 1 : 3;  // seeds of the emulator's order of threads

// The emulated device is current while it lives.
class emulator {
 public:
  explicit emulator(machine which, std::uint64_t seed = 1) : device_(std::make_shared<simt::emulated_device>(capabilities_of(which), seed << 32)) {
    ballast::cuda::override_device(device_);
  }
  ~emulator() { ballast::cuda::override_device(nullptr); }
  emulator(const emulator&) = delete;
  emulator& operator=(const emulator&) = delete;
  const std::shared_ptr<simt::emulated_device>& operator*() const { return device_; }
  simt::emulated_device* operator->() const { return device_.get(); }

 private:
  std::shared_ptr<simt::emulated_device> device_;
};

execution on_cuda(protection guard = protection::correct, const inject::plan* faults = nullptr) {
  execution how;
  how.backend = backend::cuda;
  how.protection = guard;
  how.faults = faults;
  how.throw_on_uncorrectable = false;
  return how;
}

// Memory on the current device, with a copy of `values`.
template <class T>
class on_device {
 public:
  explicit on_device(const std::vector<T>& values)
      : device_(ballast::cuda::current_device()), size_(values.size()), memory_(device_, static_cast<std::int64_t>(size_ * sizeof(T))) {
    device_->copy(memory_.data(), values.data(), memory_.bytes(), nullptr);
  }
  T* data() const { return static_cast<T*>(memory_.data()); }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    device_->copy(values.data(), memory_.data(), memory_.bytes(), nullptr);
    return values;
  }

 private:
  std::shared_ptr<ballast::cuda::device> device_;
  std::size_t size_;
  ballast::cuda::device_buffer memory_;
};

constexpr double k_untouched = 77;  // what outputs hold before they are written

// A case with its data: arrays are scalars, two a complex number, strided as the case says.
template <class T>
struct subject {
  fft::problem problem;
  fft::direction way;
  geometry shape;
  double scale = 1;
  std::vector<T> in;

  subject(const cuda_case& which, std::uint64_t seed) : problem(which.problem()), way(which.direction()), shape(resolve(problem)) {
    const auto points = static_cast<double>(shape.points());
    if (problem.norm == norm::ortho) {
      scale = 1 / std::sqrt(points);
    } else if (way == direction::forward ? problem.norm == norm::forward : problem.norm == norm::backward) {
      scale = 1 / points;
    }
    set(noise<T>(count(shape.input) * shape.batch, seed));
  }

  static std::int64_t count(const side& s) { return s.length[0] * s.length[1] * s.length[2]; }
  static std::size_t at(const side& s, std::int64_t batch, std::int64_t i) {
    return static_cast<std::size_t>(batch * s.distance + i / (s.length[1] * s.length[2]) * s.stride[0] +
                                    i / s.length[2] % s.length[1] * s.stride[1] + i % s.length[2] * s.stride[2]);
  }
  static std::size_t scalars(const side& s) { return static_cast<std::size_t>(s.extent) * (s.real ? 1 : 2); }
  static std::complex<T> read(const std::vector<T>& from, const side& s, std::int64_t batch, std::int64_t i) {
    const std::size_t place = at(s, batch, i);
    return s.real ? std::complex<T>(from[place]) : std::complex<T>(from[2 * place], from[2 * place + 1]);
  }

  // `values`: [batch][element]. Between strided elements is NaN, which nobody must read.
  void set(const signal<T>& values) {
    in.assign(scalars(shape.input), std::numeric_limits<T>::quiet_NaN());
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t i = 0; i < count(shape.input); ++i) {
        const std::size_t place = at(shape.input, b, i);
        const auto z = values[static_cast<std::size_t>(b * count(shape.input) + i)];
        if (shape.input.real) {
          in[place] = z.real();
        } else {
          in[2 * place] = z.real();
          in[2 * place + 1] = z.imag();
        }
      }
    }
  }

  std::vector<T> fresh() const { return std::vector<T>(scalars(shape.output), static_cast<T>(k_untouched)); }

  // The transform of signal b in more precision.
  exact<T> wanted(std::int64_t b) const {
    exact<T> x;
    for (std::int64_t i = 0; i < count(shape.input); ++i) x.push_back(std::complex<wide<T>>(read(in, shape.input, b, i)));
    const std::vector<std::int64_t> lengths(shape.n.begin(), shape.n.end());
    exact<T> y;
    if (shape.kind != kind::c2r) {
      const auto full = dft_of_volume<T>(std::move(x), lengths, way == direction::inverse);
      for (std::int64_t i = 0; i < count(shape.output); ++i) {
        const std::int64_t row = i / shape.output.length[2];
        y.push_back(full[static_cast<std::size_t>(row * shape.n[2] + i % shape.output.length[2])]);
      }
    } else {
      // The other axes first; then each row is the half of a Hermitian line.
      const std::int64_t half = shape.input.length[2];
      x = dft_of_volume<T>(std::move(x), {shape.n[0], shape.n[1], half}, true, 2);
      for (std::int64_t row = 0; row < shape.n[0] * shape.n[1]; ++row) {
        exact<T> line(static_cast<std::size_t>(shape.n[2]));
        for (std::int64_t k = 0; k < half; ++k) {
          auto z = x[static_cast<std::size_t>(row * half + k)];
          if (k == 0 || 2 * k == shape.n[2]) z.imag(0);
          line[static_cast<std::size_t>(k)] = z;
          if (k > 0) line[static_cast<std::size_t>(shape.n[2] - k)] = std::conj(z);
        }
        line = inverse_dft<T>(std::move(line));
        for (const auto& z : line) y.push_back(z.real());
      }
    }
    for (auto& z : y) z *= static_cast<wide<T>>(scale);
    return y;
  }

  signal<T> got(const std::vector<T>& out, std::int64_t b) const {
    signal<T> y;
    for (std::int64_t i = 0; i < count(shape.output); ++i) y.push_back(read(out, shape.output, b, i));
    return y;
  }

  // What is not an element of `out` is as it was.
  void expect_gaps_kept(const std::vector<T>& out) const {
    std::vector<bool> written(static_cast<std::size_t>(shape.output.extent));
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t i = 0; i < count(shape.output); ++i) written[at(shape.output, b, i)] = true;
    }
    const std::size_t width = shape.output.real ? 1 : 2;
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(written[i / width] || out[i] == static_cast<T>(k_untouched)) << i;
  }

  report run(const plan& by, const T* from, T* to) const {
    const std::span<const std::complex<T>> complex_in(reinterpret_cast<const std::complex<T>*>(from), static_cast<std::size_t>(shape.input.extent));
    const std::span<std::complex<T>> complex_out(reinterpret_cast<std::complex<T>*>(to), static_cast<std::size_t>(shape.output.extent));
    if (shape.kind == kind::r2c) return by.forward(std::span(from, scalars(shape.input)), complex_out);
    if (shape.kind == kind::c2r) return by.inverse(complex_in, std::span(to, scalars(shape.output)));
    return way == direction::forward ? by.forward(complex_in, complex_out) : by.inverse(complex_in, complex_out);
  }
  report run(const plan& by, std::vector<T>& out) const { return run(by, in.data(), out.data()); }
};

// body(subject<float or double>) of a case.
template <class Body>
void with_data(const cuda_case& which, const Body& body, std::uint64_t seed = 11) {
  if (which.problem().precision == precision::f32) {
    body(subject<float>(which, seed));
  } else {
    body(subject<double>(which, seed));
  }
}

// Bitwise, so that NaN equals itself.
template <class T>
bool same(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

std::string name_of(const cuda_case& each) {
  return fmt::format("{}{}{}", each.token, each.where == machine::small ? " small" : "", each.input.strides.empty() ? "" : " strided");
}

// ---- Accuracy, layouts, memory ----

TEST(fft_cuda, every_case_is_accurate_whatever_the_order_of_threads) {
  double worst = 0;
  for (const cuda_case& each : cuda_cases()) {
    SCOPED_TRACE(name_of(each));
    with_data(each, [&]<class T>(const subject<T>& given) {
      std::vector<T> first;
      for (std::uint64_t seed = 1; seed <= k_orders; ++seed) {
        const emulator device(each.where, seed);
        std::vector<T> out = given.fresh();
        {
          const plan made(given.problem, on_cuda());
          const report seen = given.run(made, out);
          ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
          EXPECT_EQ(seen.backend, backend::cuda);
          EXPECT_GE(seen.checks, static_cast<std::uint64_t>(given.shape.batch));
        }
        EXPECT_EQ(device->allocated(), 0);
        if (seed == 1) {
          first = out;
          given.expect_gaps_kept(out);
          for (std::int64_t b = 0; b < given.shape.batch; ++b) {
            const double allowed = bound<T>(given.shape.points()) * (given.shape.kind == kind::c2c ? 1 : 1.5) + (given.scale == 1 ? 0 : u<T>);
            const double e = error<T>(given.got(out, b).data(), given.wanted(b));
            worst = std::max(worst, e / allowed);
            ASSERT_LE(e, allowed) << "signal " << b;
          }
        }
        EXPECT_TRUE(same(out, first)) << "seed " << seed;
      }
    });
  }
  RecordProperty("worst_over_bound", fmt::format("{:.3f}", worst));
}

}  // namespace
}  // namespace ballast::fft
