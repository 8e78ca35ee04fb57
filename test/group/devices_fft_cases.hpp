// The transforms of devices_fft_test.cpp. The generator of their kernels runs the same.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <ballast/fft_group.hpp>
#include <ballast/group.hpp>

#include "cuda/device/device.hpp"
#include "fft/api/boxes.hpp"
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
    if (ballast::test::chosen_effort() > ballast::test::effort::sample || (each.shape.size() == 3) == std::is_same_v<T, float> ||
        (each.shape.size() == 1 && each.how.real))  // real numbers of both sizes travel
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

// The places of operands, and the ways of the data.
struct ways {
  std::shared_ptr<ballast::cuda::device> memory = nullptr;  // the device on which whole arrays lie; null: in host memory
  std::int64_t host_chunk =
      0;  // bytes of a block that go through host memory at a time, where devices do not reach each other; 0: as always
  std::int64_t piece_bytes = 100;  // that are transformed before they travel: a few rows of the scenes above
  bool overlap = true;
  // Operands are given divided; on these devices, of which a list has the numbers, or in host memory if there are none.
  bool divided = false;
  std::vector<std::shared_ptr<ballast::cuda::device>> parts_on = {};
  bool in_place = false;  // divided complex data: `in` and `out` are the same memory
};

// An operand in memory of a device, if there is one. The destructor copies it back.
template <class Number>
class placed {
 public:
  placed(std::vector<Number>& numbers, const std::shared_ptr<ballast::cuda::device>& on) : numbers_(numbers), on_(on) {
    if (on == nullptr) return;
    there_ = ballast::cuda::device_buffer(on, bytes());
    on->copy(there_.data(), numbers.data(), bytes(), nullptr);
  }
  placed(const placed&) = delete;
  placed& operator=(const placed&) = delete;
  ~placed() {
    if (on_ != nullptr) on_->copy(numbers_.data(), there_.data(), bytes(), nullptr);
  }
  std::span<Number> view() const { return {on_ == nullptr ? numbers_.data() : static_cast<Number*>(there_.data()), numbers_.size()}; }

 private:
  std::int64_t bytes() const { return static_cast<std::int64_t>(numbers_.size() * sizeof(Number)); }
  std::vector<Number>& numbers_;
  std::shared_ptr<ballast::cuda::device> on_;
  ballast::cuda::device_buffer there_;
};

// Copies a part of a whole array to memory of its own, or back.
template <class Number>
void move_part(std::vector<Number>& whole, const box& of, const box& part, std::vector<Number>& own, bool take) {
  own.resize(static_cast<std::size_t>(part.size()));
  each_element(part, [&](std::size_t place, const std::array<std::int64_t, 3>& at) {
    Number& there = whole[static_cast<std::size_t>(places(of).of({.first = at, .count = {1, 1, 1}, .order = of.order}))];
    take ? own[place] = there : there = own[place];
  });
}

// One transform with operands for each device: transform(in, out).
template <class T, class In, class Out, class Transform>
void with_parts(const group_plan<T>& plan, bool forward, const std::vector<int>& devices, const ways& how, std::vector<In>& in,
                std::vector<Out>& out, const Transform& transform) {
  std::vector<std::vector<In>> in_parts(devices.size());
  std::vector<std::vector<Out>> out_parts(devices.size());
  const auto boxes = [&](bool of_data, std::size_t p) {
    return of_data ? plan.data_of(static_cast<int>(p)) : plan.spectrum_of(static_cast<int>(p));
  };
  for (std::size_t p = 0; p < devices.size(); ++p) {
    move_part(in, forward ? plan.data() : plan.spectrum(), boxes(forward, p), in_parts[p], true);
    out_parts[p].resize(static_cast<std::size_t>(boxes(!forward, p).size()));
  }
  {
    std::vector<std::unique_ptr<placed<In>>> from;
    std::vector<std::unique_ptr<placed<Out>>> to;
    std::vector<std::span<const In>> in_views;
    std::vector<std::span<Out>> out_views;
    for (std::size_t p = 0; p < devices.size(); ++p) {
      const auto on = how.parts_on.empty() ? nullptr : how.parts_on[static_cast<std::size_t>(devices[p])];
      if constexpr (std::is_same_v<In, Out>) {
        if (how.in_place) {
          out_parts[p].assign(in_parts[p].begin(), in_parts[p].end());
          out_parts[p].resize(std::max(in_parts[p].size(), static_cast<std::size_t>(boxes(!forward, p).size())));
          to.push_back(std::make_unique<placed<Out>>(out_parts[p], on));
          in_views.push_back(to.back()->view().first(in_parts[p].size()));
          out_views.push_back(to.back()->view().first(static_cast<std::size_t>(boxes(!forward, p).size())));
          continue;
        }
      }
      from.push_back(std::make_unique<placed<In>>(in_parts[p], on));
      to.push_back(std::make_unique<placed<Out>>(out_parts[p], on));
      in_views.push_back(from.back()->view());
      out_views.push_back(to.back()->view());
    }
    transform(std::span<const std::span<const In>>(in_views), std::span<const std::span<Out>>(out_views));
  }
  for (std::size_t p = 0; p < devices.size(); ++p) {
    out_parts[p].resize(static_cast<std::size_t>(boxes(!forward, p).size()));
    move_part(out, forward ? plan.spectrum() : plan.data(), boxes(!forward, p), out_parts[p], false);
  }
}

// Transforms and transforms back.
template <class T>
results<T> transform_on_devices(const std::vector<int>& devices, const scene& what, const std::vector<std::complex<T>>& x,
                                protection level = protection::correct, const std::vector<wire::wire_fault>& faults = {},
                                const ways& how = {}) {
  execution where{.threads = 2, .protection = level, .group = group::devices(devices, {.resend_after = 0.01})};
  group::state& state = *where.group.internal();
  state.faults = faults;
  state.piece_bytes = how.piece_bytes;
  state.overlap = how.overlap;
  if (how.host_chunk > 0) state.host_chunk = how.host_chunk;
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
  const auto both = [&]<class Number>(std::vector<Number> in, std::vector<Number>& back) {
    if (how.divided) {
      with_parts(plan, true, devices, how, in, made.spectrum,
                 [&](const auto& from, const auto& to) { add(plan.forward_divided(from, to, kept)); });
      with_parts(plan, false, devices, how, made.spectrum, back,
                 [&](const auto& from, const auto& to) { add(plan.inverse_divided(from, to, kept)); });
      return;
    }
    const placed spectrum(made.spectrum, how.memory);
    {
      const placed from(in, how.memory);
      add(plan.forward(std::span<const Number>(from.view()), spectrum.view(), kept));
    }
    const placed to(back, how.memory);
    add(plan.inverse(std::span<const std::complex<T>>(spectrum.view()), to.view(), kept));
  };
  if (what.how.real) {
    std::vector<T> real(x.size()), back(x.size());
    std::ranges::transform(x, real.begin(), [](const std::complex<T>& each) { return each.real(); });
    both(real, back);
    std::ranges::copy(back, made.back.begin());
  } else {
    both(x, made.back);
  }
  made.road = state.road;
  return made;
}

}  // namespace ballast::fft::on_groups
