// One problem with its data on the GPU: buffers with guard zones, poisoned outputs, plans by protection and scheme.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "../../../bench/gpu.hpp"
#include "data.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {

namespace gpu = bench::gpu;

inline execution on_gpu(protection guard, const std::string& scheme = {}, const inject::plan* faults = nullptr) {
  execution how;
  how.backend = tested;
  how.stream = gpu::stream();
  how.protection = guard;
  how.scheme = scheme;
  how.faults = faults;
  how.throw_on_uncorrectable = false;
  return how;
}

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

// The same problem with layouts that allow in == out: real rows padded to n/2 + 1 complex elements.
inline fft::problem in_place_problem(fft::problem problem) {
  if (problem.kind == fft::kind::c2c) return problem;
  std::int64_t row = 2 * (problem.shape.back() / 2 + 1);
  fft::layout real;
  real.strides.assign(problem.shape.size(), 1);
  for (std::size_t axis = problem.shape.size() - 1; axis-- > 0; row *= problem.shape[axis]) real.strides[axis] = row;
  // `row` has become the words of all axes but the first.
  real.distance = problem.shape.size() > 1 ? real.strides[0] * problem.shape[0] : row;
  (problem.kind == fft::kind::r2c ? problem.input : problem.output) = real;
  return problem;
}

template <class T>
class device_problem {
 public:
  device_problem(fft::problem what, fft::direction way, bool in_place = false)
      : problem_(std::move(what)), way_(way), in_place_(in_place), shape_(fft::resolve(problem_)) {
    in_bytes_ = bytes_of(shape_.input);
    out_bytes_ = bytes_of(shape_.output);
    in_ = gpu::buffer(2 * k_guard + (in_place ? std::max(in_bytes_, out_bytes_) : in_bytes_));
    if (!in_place) out_ = gpu::buffer(2 * k_guard + out_bytes_);
  }

  const fft::problem& problem() const { return problem_; }
  const fft::geometry& shape() const { return shape_; }
  fft::direction way() const { return way_; }
  std::int64_t in_words() const { return in_bytes_ / static_cast<std::int64_t>(sizeof(T)); }
  std::int64_t out_words() const { return out_bytes_ / static_cast<std::int64_t>(sizeof(T)); }
  const void* in() const { return static_cast<const char*>(in_.data()) + k_guard; }
  void* out() const { return static_cast<char*>((in_place_ ? in_ : out_).data()) + k_guard; }

  // Puts the input and the guards where a run expects them, and poison where its output goes. Before every run.
  void prepare(const std::vector<T>& input) const {
    gpu::fill(in_.data(), k_guard_value, in_.bytes());
    if (!in_place_) gpu::fill(out_.data(), k_guard_value, out_.bytes());
    gpu::fill(out(), k_poison, out_bytes_);
    gpu::copy(const_cast<void*>(in()), input.data(), in_bytes_);
    gpu::synchronize();
  }

  report run(const fft::plan& plan) const { return execute<T>(plan, shape_, way_, in(), out()); }

  // The output as it lies in memory. `wrong`, if anything outside the output was written or an element was not: what, else empty.
  std::vector<T> read(std::string& wrong) const {
    std::vector<T> raw(static_cast<std::size_t>(out_words()));
    std::vector<unsigned char> before(k_guard), after(k_guard);
    gpu::copy(raw.data(), out(), out_bytes_);
    gpu::copy(before.data(), static_cast<char*>(out()) - k_guard, k_guard);
    gpu::copy(after.data(), static_cast<char*>(out()) + std::max(out_bytes_, in_place_ ? in_bytes_ : 0), k_guard);
    gpu::synchronize();
    const auto intact = [](unsigned char byte) { return byte == k_guard_value; };
    if (!std::ranges::all_of(before, intact)) wrong = "written before the output";
    if (!std::ranges::all_of(after, intact)) wrong = "written behind the output";
    const std::vector<T> packed = pack(shape_.output, shape_.batch, raw.data());
    if (std::ranges::any_of(packed, poisoned)) wrong = "an element of the output was not written";
    if (!in_place_ && static_cast<std::int64_t>(packed.size()) < out_words()) {
      const auto untouched = std::ranges::count_if(raw, poisoned);
      if (untouched != out_words() - static_cast<std::int64_t>(packed.size())) wrong = "written between the elements of the output";
    }
    return packed;
  }

 private:
  static constexpr std::int64_t k_guard = 4096;
  static constexpr unsigned char k_guard_value = 0xa5, k_poison = 0xff;

  static std::int64_t bytes_of(const fft::side& side) { return side.extent * (side.real ? 1 : 2) * static_cast<std::int64_t>(sizeof(T)); }
  static bool poisoned(const T& value) {
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    return std::ranges::all_of(bytes, [](unsigned char byte) { return byte == k_poison; });
  }

  fft::problem problem_;
  fft::direction way_;
  bool in_place_;
  fft::geometry shape_;
  std::int64_t in_bytes_ = 0, out_bytes_ = 0;
  gpu::buffer in_, out_;
};

}  // namespace ballast::gpu_check
