// Prints the kernels that the cases of fft_cases.hpp and fft_cuda_any_cases.hpp need: runs their plans on a device that loads every
// kernel and launches none.
// Layer: backend tests; what it prints is compiled into backend_fft_cuda.
#include <algorithm>
#include <complex>
#include <memory>
#include <vector>

#include "backend/fft_any_example.hpp"
#include "backend/fft_cuda_any_cases.hpp"
#include "backend/fft_cuda_any_kernels.hpp"
#include "backend/fft_emulator.hpp"
#include "fft/sites.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "support/devices.hpp"
#include "support/fft_data.hpp"

namespace {

using namespace ballast;

void record(const fft::fft_case& each, const fft::problem& problem, protection guard, const inject::plan* faults, std::size_t shift = 0) {
  const inject::scope struck(faults);
  const fft::plan made(problem, {.backend = backend::cuda, .protection = guard}, each.options());
  const fft::geometry shape = fft::resolve(made.problem());
  std::vector<std::complex<double>> in(static_cast<std::size_t>(shape.input.extent) + 1),
      out(static_cast<std::size_t>(shape.output.extent) + 1);
  const std::size_t out_shift = shape.output.real ? shift : 0;
  const std::byte* const from = reinterpret_cast<std::byte*>(in.data()) + (shift - out_shift);
  std::byte* const to = reinterpret_cast<std::byte*>(out.data()) + out_shift;
  if (problem.precision == precision::f32) {
    (void)test::enqueue<float>(made, shape, each.direction(), from, to).get();
  } else {
    (void)test::enqueue<double>(made, shape, each.direction(), from, to).get();
  }
}

}  // namespace

int main() {
  fft::use_own_tuning();
  const inject::plan faults({inject::request{.site = fft::site::output}});
  for (const fft::fft_case& each : fft::emulated_cases()) {
    fft::choose_pairing(each.where);
    const auto device = std::make_shared<test::recording_device>(fft::capabilities_of(each.where));
    device->only_fallback = each.where == fft::machine::fallback;
    const test::current_device_guard current(device);
    const fft::problem problem = each.problem();
    const bool real = problem.kind != fft::kind::c2c;
    record(each, problem, protection::correct, nullptr);
    if (real && problem.input.strides.empty()) record(each, test::in_place_problem(problem), protection::correct, nullptr);
    if ((each.uses & fft::k_unaligned) != 0) record(each, problem, protection::correct, nullptr, real ? 4 : 8);
    if ((each.uses & fft::k_bare) != 0) record(each, problem, protection::off, nullptr);
    if ((each.uses & fft::k_faults) != 0) {
      record(each, problem, protection::correct, &faults);
      record(each, problem, protection::off, &faults);
    }
    device->print();
  }
  fft::choose_pairing(fft::machine::whole);
  for (const fft::any_case& each : fft::any_cases()) fft::print_kernels(each);
}
