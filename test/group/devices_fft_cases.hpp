// The transforms of devices_fft_test.cpp. The generator of their kernels runs the same.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <ballast/fft_group.hpp>
#include <ballast/group.hpp>

#include "cuda/device/device.hpp"
#include "group/fft_scenes.hpp"
#include "group/state.hpp"
#include "support/effort.hpp"

namespace ballast::fft::on_groups {

// Lengths of 8 and 12 only, so that few kernels are compiled; three devices do not divide 8.
template <class T>
std::vector<scene> scenes_on_devices() {
  const std::vector<scene> all = {{"two dimensions", {12, 8}, {}},
                                  {"slabs", {8, 12, 8}, {.real = true}},
                                  {"pencils", {8, 8, 12}, {.division = division::pencils, .order = result_order::natural}},
                                  {"one dimension", {96}, {}},
                                  {"one dimension", {96}, {.real = true}},
                                  {"two dimensions", {12, 8}, {.real = true, .order = result_order::natural}},
                                  {"pencils", {8, 8, 12}, {.division = division::pencils}},
                                  {"one dimension", {96}, {.order = result_order::natural}}};
  std::vector<scene> made;
  for (const scene& each : all)
    if (ballast::test::chosen_effort() > ballast::test::effort::sample || (each.shape.size() == 3) == std::is_same_v<T, float>)
      made.push_back(each);
  return made;
}

inline std::vector<std::vector<int>> lists_of_devices() { return {{0}, {2, 0, 1}, {0, 1, 1, 2}}; }

template <class T>
struct results {
  std::vector<std::complex<T>> spectrum;  // in the order of its box
  std::vector<std::complex<T>> back;
  std::uint64_t detected = 0, checks = 0, uncorrectable = 0;
  ballast::backend backend = backend::automatic;
  wire::road road = wire::road::none;
};

// Transforms and transforms back. `memory`: a device on which data and spectrum lie; null: in host memory. `chunk`: bytes of a block that
// go through host memory at a time, where devices do not reach each other.
template <class T>
results<T> transform_on_devices(const std::vector<int>& devices, const scene& what, const std::vector<std::complex<T>>& x,
                                protection level = protection::correct, const std::vector<wire::wire_fault>& faults = {},
                                const std::shared_ptr<ballast::cuda::device>& memory = nullptr, std::int64_t chunk = 0) {
  execution where{.threads = 2, .protection = level, .group = group::devices(devices, {.resend_after = 0.01})};
  where.group.internal()->faults = faults;
  if (chunk > 0) where.group.internal()->host_chunk = chunk;
  const group_plan<T> plan(what.shape, where, what.how);
  const call kept{.throw_on_uncorrectable = false};
  results<T> made;
  made.spectrum.resize(static_cast<std::size_t>(plan.spectrum().size()));
  made.back.resize(x.size());
  const auto add = [&](const report& seen) {
    made.detected += seen.detected;
    made.checks += seen.checks;
    made.uncorrectable += seen.uncorrectable;
    made.backend = seen.backend;
  };
  // Calls use(span) with the numbers where they shall lie, and copies them back.
  const auto placed = [&]<class Number>(std::vector<Number>& numbers, const auto& use) {
    if (memory == nullptr) return use(std::span<Number>(numbers));
    const auto bytes = static_cast<std::int64_t>(numbers.size() * sizeof(Number));
    const ballast::cuda::device_buffer there(memory, bytes);
    memory->copy(there.data(), numbers.data(), bytes, nullptr);
    use(std::span<Number>(static_cast<Number*>(there.data()), numbers.size()));
    memory->copy(numbers.data(), there.data(), bytes, nullptr);
  };
  const auto both = [&]<class Number>(std::vector<Number> in, std::vector<Number>& back) {
    placed(made.spectrum, [&](auto spectrum) {
      placed(in, [&](auto from) { add(plan.forward(std::span<const Number>(from), spectrum, kept)); });
      placed(back, [&](auto to) { add(plan.inverse(std::span<const std::complex<T>>(spectrum), to, kept)); });
    });
  };
  if (what.how.real) {
    std::vector<T> real(x.size()), back(x.size());
    std::ranges::transform(x, real.begin(), [](const std::complex<T>& each) { return each.real(); });
    both(real, back);
    std::ranges::copy(back, made.back.begin());
  } else {
    both(x, made.back);
  }
  made.road = where.group.internal()->road;
  return made;
}

}  // namespace ballast::fft::on_groups
