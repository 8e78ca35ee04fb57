// Prints the kernels that fft_cuda_convolve_cases.hpp needs: runs its convolutions on a device that loads every kernel and launches none.
// Layer: backend tests.
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include <ballast/convolve.hpp>

#include "backend/fft_cuda_convolve_cases.hpp"
#include "backend/fft_emulator.hpp"
#include "fft/cuda/convolve/convolve.hpp"
#include "fft/sites.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "support/devices.hpp"

namespace {

using namespace ballast;

// Without launches the checks find that no block was judged.
void record(const fft::device_convolution_case& each, protection guard, const inject::plan* faults) {
  const inject::scope struck(faults);
  const fft::convolution made(each.problem, {.backend = backend::cuda, .protection = guard});
  const auto run = [&]<class Element>(Element) {
    const auto zeros = [](const std::vector<std::int64_t>& shape) {
      std::size_t count = 1;
      for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
      return std::vector<Element>(count);
    };
    const std::vector<Element> x = zeros(each.problem.first), h = zeros(each.problem.second);
    std::vector<Element> y = zeros(made.output_shape());
    call now;
    now.throw_on_uncorrectable = false;
    (void)made.run(x, h, y, now);
  };
  const bool single = each.problem.precision == precision::f32;
  if (each.problem.complex) {
    single ? run(std::complex<float>{}) : run(std::complex<double>{});
  } else {
    single ? run(float{}) : run(double{});
  }
}

}  // namespace

int main() {
  try {
    const inject::plan faults({inject::request{.site = fft::site::output}});
    fft::choose_pairing(fft::machine::whole);
    const auto device = std::make_shared<test::recording_device>(fft::capabilities_of(fft::machine::whole));
    const test::current_device_guard current(device);
    for (const fft::device_convolution_case& each : fft::device_convolution_cases()) {
      fft::cuda::override_convolution_group(each.most_elements);
      for (const protection guard : {protection::correct, protection::off}) {
        record(each, guard, nullptr);
        record(each, guard, &faults);
      }
    }
    device->print();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
