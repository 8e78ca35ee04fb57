// One problem with its data on the GPU: buffers with guard zones, poisoned outputs, plans by protection and scheme.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "../../../bench/gpu.hpp"
#include "fft/problem.hpp"
#include "stages.hpp"
#include "support/fft_data.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::gpu_check {

namespace gpu = bench::gpu;
using test::detection_floor;
using test::distance;
using test::distance_of;
using test::error_bound;
using test::in_place_problem;
using test::noise;
using test::pack;
using test::reference;
using test::scale_of;
using test::words_of_side;
using test::words_of_signal;

// Plans wait for the kernels of their problem, which are what is timed and verified.
inline execution on_gpu(protection guard, const std::string& scheme = {}) {
  return {.backend = tested, .protection = guard, .scheme = scheme};
}

// A call on the stream of the GPU; an uncorrectable fault is only reported.
inline call on_stream() { return test::quiet_call(gpu::stream()); }

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

  // Writes the input and the guards, and poisons the output. Call it before every run.
  void prepare(const std::vector<T>& input) const {
    gpu::fill(in_.data(), k_guard_value, in_.bytes());
    if (!in_place_) gpu::fill(out_.data(), k_guard_value, out_.bytes());
    gpu::fill(out(), k_poison, out_bytes_);
    gpu::copy(const_cast<void*>(in()), input.data(), in_bytes_);
    gpu::synchronize();
  }

  report run(const fft::plan& plan, const call& now = on_stream()) const { return test::execute<T>(plan, shape_, way_, in(), out(), now); }
  pending_report enqueue(const fft::plan& plan) const { return test::enqueue<T>(plan, shape_, way_, in(), out(), on_stream()); }

  // Returns the raw output. Sets `wrong` to a description if anything outside the output was written or an element was not; otherwise to
  // "".
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

  static std::int64_t bytes_of(const fft::side& side) { return words_of_side(side) * static_cast<std::int64_t>(sizeof(T)); }
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
