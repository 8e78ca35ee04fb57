// The interface that a backend of the FFT implements, and the resolved problem that it receives.
// Layer: algorithm, backend-free. reference/ and cpu/ each define make_transform.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <ballast/fft.hpp>

#include "inject/active.hpp"
#include "run/pending.hpp"
#include "run/recorder.hpp"

namespace ballast::fft {

// One side of a problem with every default filled in. Strides are in elements of that side.
struct side {
  std::array<std::int64_t, 3> length{};  // length of each axis as this side stores it: n/2 + 1 on the last axis of a half spectrum
  std::array<std::int64_t, 3> stride{};
  std::int64_t distance = 0;
  bool real = false;
  std::int64_t extent = 0;  // elements from the first to the last, inclusive

  bool operator==(const side&) const = default;
};

// A checked problem. Axes are those of the problem, padded in front to three with length 1.
struct geometry {
  fft::kind kind = fft::kind::c2c;
  std::array<std::int64_t, 3> n{1, 1, 1};  // transform lengths
  real_kind real = real_kind::r2hc;        // r2r (cuda): that of the last axis. The lengths of the other two count lines
  std::int64_t batch = 1;
  side input;
  side output;

  std::int64_t points() const { return n[0] * n[1] * n[2]; }  // points of one signal
};

// One axis of an array_problem: its points, the elements that each side stores, and their strides.
struct axis {
  std::int64_t n = 1;
  std::int64_t in_length = 1, out_length = 1;
  std::int64_t in_stride = 1, out_stride = 1;
  real_kind what = real_kind::r2hc;  // r2r
};

// One side of an array_problem. The span of the caller begins `first` elements before element (0, …, 0) of signal 0.
struct array_side {
  bool real = false;
  std::int64_t first = 0;
  std::int64_t extent = 1;  // elements from the lowest to the highest, inclusive
};

// A checked problem of any rank, with every default filled in.
struct array_problem {
  fft::kind kind = fft::kind::c2c;
  std::vector<axis> axes;
  std::vector<loop> loops;  // the batch is the last one
  array_side input;
  array_side output;
  bool split = false;  // complex sides are two arrays

  std::int64_t points() const;   // the product of the n
  std::int64_t signals() const;  // the product of the counts
};

// A loop of a nested_geometry. Its steps are `number` apart in the order of all parts of signals.
struct nest_loop {
  std::int64_t count = 1;
  std::int64_t input = 0, output = 0;  // distances
  std::int64_t number = 0;
};

// A problem as loops around one that a backend's transform computes.
struct nested_geometry {
  geometry inner;
  std::int64_t batch_number = 1;  // as nest_loop::number, for the batch of `inner`
  std::vector<nest_loop> outer;
  std::int64_t parts = 1;    // the parts of a signal that are transformed by themselves
  array_side input, output;  // the sides of the whole problem

  std::int64_t runs() const;  // the product of the outer counts
  std::int64_t output_elements() const;
  // The begin of one run: elements from the begin of the caller's spans to element (0, …, 0), and the number of its first part.
  struct place {
    std::int64_t input, output, number;
  };
  place begin_of(std::int64_t run) const;
};

// The arguments of one execution except the data.
struct transform_args {
  fft::direction direction = fft::direction::forward;
  double scale = 1;        // the factor of the norm
  double check_scale = 1;  // the same, computed separately for the checks: the factor of the data does not verify itself
  bool in_place = false;
  ballast::protection protection = ballast::protection::correct;
  int threads = 1;
  void* stream = nullptr;               // cuda
  std::span<std::byte> workspace = {};  // cuda
  run::recorder& seen;
  inject::active_injector& injector;
  bool own_kernels = true;  // cuda: fft::kernels::own
  // Split operands: `in` or `out` has the real parts, and these the imaginary parts, with the same layout. Transforms of
  // array_problem::split take them.
  const void* in_imaginary = nullptr;
  void* out_imaginary = nullptr;
};

// A prepared transform of one backend. `run` reads every element of `in` before it writes the elements of `out` that lie over it;
// it is const and thread-safe.
class transform {
 public:
  transform() = default;
  transform(const transform&) = delete;
  transform& operator=(const transform&) = delete;
  virtual ~transform() = default;
  virtual void run(const void* in, void* out, const transform_args& how) const = 0;

  // The same without waiting, for operands on the device; null if the backend has no such thing. The findings of the checks are collected
  // later.
  virtual std::unique_ptr<run::pending> enqueue(const void* in, void* out, const transform_args& how) const {
    static_cast<void>(in), static_cast<void>(out), static_cast<void>(how);
    return nullptr;
  }
  virtual std::int64_t workspace_bytes() const { return 0; }
};

namespace reference {
std::unique_ptr<transform> make_transform(const geometry& shape, precision type, bool protect);
}
namespace cuda {
// Takes every kind, with any rank, loops and strides.
std::unique_ptr<transform> make_transform(const array_problem& shape, precision type, bool protect, std::string_view scheme);
// The names that `scheme` can have, the default first.
const std::vector<std::string_view>& schemes();
}  // namespace cuda
namespace cpu {
std::unique_ptr<transform> make_transform(const geometry& shape, precision type, bool protect);
// The same by the user's tuning table, if it has the problem for a plan of so many threads.
std::unique_ptr<transform> make_tuned_transform(const geometry& shape, precision type, bool protect, int threads);
}  // namespace cpu

}  // namespace ballast::fft
