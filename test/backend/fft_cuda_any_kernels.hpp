// Prints the kernels that a problem of fft_cuda_any_cases.hpp or of fft_cuda_reals_cases.hpp needs: runs its plans on a device that loads
// every kernel and launches none.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include <ballast/fft.hpp>

#include "backend/fft_any_example.hpp"
#include "backend/fft_cuda_any_cases.hpp"
#include "backend/fft_emulator.hpp"
#include "fft/sites.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "support/devices.hpp"

namespace ballast::fft {

inline void record_kernels(const any_case& each, protection guard, const inject::plan* faults) {
  const inject::scope struck(faults);
  const plan made(each.problem, {.backend = backend::cuda, .protection = guard}, each.options());
  const auto run = [&]<class T>(T) {
    const example<T> given(each.problem, each.way, 1);
    std::vector<T> in = given.in, out = given.fresh();
    in.resize(std::max(in.size(), out.size()));
    (void)given.enqueue(made, in.data(), each.in_place ? in.data() : out.data(), {}).get();
  };
  each.problem.precision == precision::f32 ? run(float{}) : run(double{});
}

inline void print_kernels(const any_case& each) {
  const inject::plan faults({inject::request{.site = site::output}});
  const auto device = std::make_shared<test::recording_device>(with_memory(capabilities_of(each.where), each.memory));
  device->only_fallback = each.where == machine::fallback;
  const test::current_device_guard current(device);
  for (const protection guard : {protection::correct, protection::off}) {
    record_kernels(each, guard, nullptr);
    record_kernels(each, guard, &faults);
  }
  device->print();
}

}  // namespace ballast::fft
