// The steps of a transform on a group, and the parts of its ranks.
// Layer: algorithm. group_plan.cpp runs the steps on ranks and in host memory, group_devices.cpp in the memory of devices.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/fft.hpp>
#include <ballast/fft_group.hpp>

#include "fft/api/boxes.hpp"
#include "fft/sites.hpp"
#include "group/exchange.hpp"
#include "inject/plan.hpp"
#include "run/settings.hpp"

namespace ballast::fft {

// One step of a transform on a rank: the lines along the last axes of its box, with the other axes as a batch.
struct group_step {
  division_of_array divided;
  std::vector<int> axes;             // those that are transformed, in their order in memory
  std::optional<fft::plan> lines;    // none if the rank has nothing
  std::optional<fft::plan> spectra;  // real data: the plan of the way back
};

struct device_room;

// Faults of exchanges and products are those of the group's call, all others those of the lines.
inline void split_faults(const inject::plan* given, inject::plan& of_call, inject::plan& of_lines) {
  if (given == nullptr) return;
  for (const inject::request& each : given->requests()) (site::is_of_group(each.site) ? of_call : of_lines).add(each);
}

inline namespace abi_1 {

template <class T>
struct group_plan<T>::implementation {
  std::vector<std::int64_t> shape;  // the lengths of the data; A and B for one dimension
  bool one_dimension = false;
  distribution how;
  execution where;
  std::size_t place = 0, ranks = 1;
  std::string token;
  box data, spectrum;
  std::vector<group_step> steps;               // the steps of the forward transform
  std::optional<division_of_array> natural;    // the division after the last exchange
  division_of_array of_data, of_real;          // the data's; real data: that which the first step reads
  std::vector<std::complex<T>> factors, twin;  // one dimension: the factors after the first step, twice
  // The part of each device of a group of devices. The boxes of this object are those of one rank: the whole array.
  std::vector<implementation> devices;

  void choose_grid();
  void divide();
  void plan_lines();
  report run_lines(const group_step& which, bool forward, const void* in, void* out) const;
  std::uint64_t digest(bool forward) const;
  template <class In, class Out>
  void check_operands(bool forward, std::span<const In> in, std::span<Out> out) const;
  template <class In, class Out>
  report transform(bool forward, std::span<const In> in, std::span<Out> out, const call& now) const;
  template <class In, class Out>
  report transform_own(bool forward, std::span<const In> in, std::span<Out> out, const run::settings& given, wire::exchange& over) const;
  template <class In, class Out>
  report transform_on_devices(bool forward, std::span<const In> in, std::span<Out> out, const call& now) const;
  template <class In, class Out>
  report transform_on_own_device(bool forward, std::span<const In> in, std::span<Out> out, const call& now) const;
  // The call of one device, for two and three dimensions, with the data of all steps in its memory: `whole` has the arrays. Peers write to
  // the room; it outlives the call on all devices. `seconds`: of the steps, without the copies of operands and result.
  template <class In, class Out>
  report transform_in_room(const implementation& whole, bool forward, std::span<const In> in, std::span<Out> out,
                           const run::settings& given, wire::exchange& over, device_room& room, double& seconds) const;
  // The bytes of each half of a room.
  std::int64_t half_bytes() const;
};

}  // namespace abi_1

}  // namespace ballast::fft
