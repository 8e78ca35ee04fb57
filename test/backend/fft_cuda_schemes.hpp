// The cases of the tests of the cuda backend's schemes. The generator of their kernels reads the same list.
// Layer: tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <ballast/fft.hpp>

#include "fft/contract.hpp"
#include "fft/cuda/run/transform.hpp"
#include "fft/problem.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "simt/emulated_device.hpp"
#include "support/effort.hpp"
#include "support/fft_data.hpp"

namespace scheme_test {

using namespace ballast;

// In the place of cuFFT, in the emulator's memory.
class reference_transform final : public fft::cuda::dense_transform {
 public:
  reference_transform(const fft::problem& shape, fft::direction way)
      : problem_{.precision = shape.precision, .shape = shape.shape, .batch = shape.batch}, way_(way) {
    if (way == fft::direction::inverse) problem_.norm = fft::norm::forward;  // cuFFT does not scale
  }
  void execute(const void* in, void* out, ballast::cuda::stream) override {
    if (problem_.precision == precision::f32) {
      execute_as<float>(in, out);
    } else {
      execute_as<double>(in, out);
    }
  }

 private:
  template <class T>
  void execute_as(const void* in, void* out) const {
    const fft::geometry shape = fft::resolve(problem_);
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      const auto y = test::reference<T>(problem_, way_, shape, static_cast<const T*>(in), b);
      std::ranges::transform(y, static_cast<T*>(out) + 2 * b * shape.points(), [](auto word) { return static_cast<T>(word); });
    }
  }
  fft::problem problem_;
  fft::direction way_;
};

inline void replace_cufft() {
  fft::cuda::override_cufft(
      [](const fft::problem& shape, fft::direction way) { return std::make_unique<reference_transform>(shape, way); });
}

struct scheme_case {
  std::string scheme;
  std::string token;
  bool protect = true;
  bool small = false;                         // on a device with so little shared memory that 4096 points are two passes, or a cluster's
  test::effort least = test::effort::sample;  // less effort leaves the case out

  ballast::protection protection() const { return protect ? ballast::protection::correct : ballast::protection::off; }
};

// As the name of a test.
inline std::string name_of(const scheme_case& what) { return what.scheme + '_' + what.token; }
inline void PrintTo(const scheme_case& what, std::ostream* to) { *to << name_of(what); }

inline const std::vector<scheme_case>& cases() {
  static const std::vector<scheme_case> all = {
      {"multi_transaction_4", "fft_c2c_f32_n64_b37_fwd", true, false, test::effort::smoke},
      {"multi_transaction_2", "fft_c2c_f32_n1024_b5_fwd", true, false, test::effort::wide},
      {"multi_transaction_8", "fft_c2c_f64_n128_b70_inv"},
      {"multi_transaction_2", "fft_r2c_f32_n96_b41_fwd"},
      {"multi_transaction_4", "fft_c2c_f32_n4096_b3_fwd", true, true},
      {"threadblock", "fft_c2c_f32_n64_b9_fwd"},
      {"multi_transaction_32", "fft_c2r_f32_n64_b300_inv"},
      {"one_sided", "fft_c2c_f32_n64_b9_fwd", true, false, test::effort::smoke},
      {"thread", "fft_c2c_f32_n96_b9_fwd", true, false, test::effort::smoke},
      {"thread", "fft_c2c_f64_n64_b16_fwd", true, false, test::effort::wide},
      {"one_sided", "fft_c2c_f32_n4096_b2_fwd", true, true},
      {"thread", "fft_c2c_f32_n4096_b2_inv", true, true, test::effort::wide},
      {"end_to_end", "fft_c2c_f32_n4096_b3_fwd", true, true, test::effort::smoke},
      {"end_to_end", "fft_c2c_f64_n1024_b3_inv", true, true},
      {"end_to_end", "fft_c2c_f32_n8000_b2_inv", true, true},
      {"end_to_end", "fft_c2c_f64_n8000_b2_fwd", true, true, test::effort::wide},
      {"end_to_end", "fft_c2c_f32_n3x1024_b2_fwd", true, true},
      {"offline", "fft_c2c_f32_n60x90_b3_inv"},
      {"offline", "fft_c2c_f64_n256_b9_fwd", true, false, test::effort::smoke},
      {"v0", "fft_c2c_f32_n256_b5_inv", false, false, test::effort::smoke},
      {"v1", "fft_c2c_f32_n4096_b2_fwd", false, true},
      {"v2", "fft_c2c_f32_n1024_b2_fwd", false},
      {"tuned", "fft_c2c_f32_n1024_b2_fwd", false},
  };
  static const std::vector<scheme_case> taken = [] {
    std::vector<scheme_case> made = all;
    std::erase_if(made, [](const scheme_case& each) { return each.least > test::chosen_effort(); });
    return made;
  }();
  return taken;
}

inline ballast::cuda::capabilities device_for(const scheme_case& what) {
  auto about = simt::emulated_capabilities(2);
  if (what.small) about.shared_per_block = 12 << 10;
  if (what.scheme == "end_to_end") {  // lines of more than 64 floats or 32 doubles take two or three passes
    about.shared_per_block = about.shared_per_multiprocessor = 8192 + 4 * 64;
    about.major = 8;
  }
  return about;
}

template <class T>
struct result {
  ballast::report report;
  std::vector<T> out;  // scalars of the output side
};

// Runs the case on the current device, in its memory, struck by `faults`. Data are `in`, scalars of the input side; `in_place`: c2c only.
template <class T>
result<T> execute(const scheme_case& what, protection guard, const inject::plan* faults, const std::vector<T>& in, bool in_place) {
  const fft::token parsed = fft::parse_token(what.token);
  const fft::geometry shape = fft::resolve(parsed.problem);
  const inject::scope struck(faults);
  const fft::plan plan(parsed.problem, {.backend = backend::cuda, .protection = guard, .scheme = what.scheme});
  const auto device = ballast::cuda::current_device();
  const auto outputs = static_cast<std::size_t>(test::words_of_side(shape.output));
  ballast::cuda::device_buffer source(device, static_cast<std::int64_t>(in.size() * sizeof(T)));
  ballast::cuda::device_buffer target(device, static_cast<std::int64_t>(outputs * sizeof(T)));
  device->copy(source.data(), in.data(), source.bytes(), nullptr);
  auto* const to = static_cast<T*>(in_place ? source.data() : target.data());
  result<T> made{test::execute<T>(plan, shape, parsed.direction, source.data(), to), {}};
  made.out.assign(to, to + outputs);
  return made;
}

// Words of the input side.
inline std::int64_t input_words(const scheme_case& what) {
  return test::words_of_side(fft::resolve(fft::parse_token(what.token).problem).input);
}

}  // namespace scheme_test
