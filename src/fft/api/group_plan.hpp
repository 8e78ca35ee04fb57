// The steps of a transform on a group, and the parts of its ranks.
// Layer: algorithm. group_ranks.cpp runs the steps on ranks and in host memory, group_devices.cpp in the memory of devices.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/fft.hpp>
#include <ballast/fft_group.hpp>
#include <ballast/pending_report.hpp>

#include "core/aligned_buffer.hpp"
#include "core/idle_pool.hpp"
#include "fft/api/boxes.hpp"
#include "fft/api/rank_exchange.hpp"
#include "fft/sites.hpp"
#include "group/device_threads.hpp"
#include "group/exchange.hpp"
#include "inject/plan.hpp"
#include "run/settings.hpp"

// Expands CALLS(T, In, Out) for the types of operands that a transform has in either direction.
#define BALLAST_EACH_PAIR_OF_OPERANDS(CALLS)                \
  CALLS(float, std::complex<float>, std::complex<float>)    \
  CALLS(float, float, std::complex<float>)                  \
  CALLS(float, std::complex<float>, float)                  \
  CALLS(double, std::complex<double>, std::complex<double>) \
  CALLS(double, double, std::complex<double>)               \
  CALLS(double, std::complex<double>, double)

namespace ballast::fft {

// The plans of some lines.
struct line_plans {
  std::optional<fft::plan> lines;
  std::optional<fft::plan> spectra;  // real data: the plan of the way back
};

// One step of a forward transform on a rank: the lines along some axes of its box, with the other axes as a batch. `divided` has the order
// in which they are read, `stored` the same division in the order in which their results are stored; of devices both are the same, and the
// axes are the last ones.
struct group_step {
  division_of_array divided;
  std::vector<int> axes;  // those that are transformed, in their order in memory
  division_of_array stored = {};
  // Devices: the plans, none if the device has nothing; how many elements of the slowest axis it has, and the pieces in which they are
  // transformed before an exchange.
  line_plans all = {};
  std::int64_t rows = 0, piece = 0;
  line_plans of_piece = {}, of_rest = {};  // the latter for the last piece, if it is shorter
};

// Ranks: the lines of a step in one direction, and the exchange after it. They are transformed by the pieces that travel; if there is no
// exchange, all at once.
struct rank_lines {
  box from, to;          // the part of this rank, in the order in which it is read, and stored; real data: their real box
  std::int64_t pad = 0;  // that `from` has in its memory
  int cut = 0;           // the axis along which the part is cut into pieces
  std::int64_t piece = 0;
  std::optional<fft::plan> of_piece, of_rest;  // plans of so many elements along it, and of the last piece if it has fewer
  std::optional<turn_of_array> turn;
  std::int64_t piece_elements = 0;  // the number of results of a piece
};

// A direction of a transform on ranks: its steps, and the exchange before them.
struct rank_way {
  std::optional<turn_of_array> first;
  std::vector<rank_lines> steps;
};

// Memory of a call on a rank. The data before and after an exchange; a piece of lines, and of products with factors.
struct rank_memory {
  core::aligned_buffer<std::byte> arrays[2], pieces[2];
};

struct device_room;
struct device_streams;

// The operands of a device: its parts, or the whole arrays.
template <class In, class Out>
struct device_operands {
  std::span<const In> in;
  box in_box;
  std::span<Out> out;
  box out_box;
  bool own;  // they are its parts, and the last step may store to `out`
};

// Seconds of a call on devices: from operands in their memory to the result there, and the part of them in which a device only exchanged.
struct device_seconds {
  double all = 0, exchange = 0;
};

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
  std::shared_ptr<const device_streams> streams;  // a device's; the plans of the steps use them
  std::vector<group_step> steps;                  // the steps of the forward transform
  bool on_ranks = true;                           // in host memory
  rank_way ways[2];                               // ranks: forward and inverse
  std::shared_ptr<core::idle_pool<rank_memory>> memory = std::make_shared<core::idle_pool<rank_memory>>();
  std::optional<division_of_array> natural;    // the division after the last exchange
  division_of_array of_data, of_real;          // the data's; real data: that which the first step reads
  std::vector<std::complex<T>> factors, twin;  // one dimension: the factors after the first step, twice
  // The part of each device of a group of devices. The boxes of this object are those of one rank: the whole array.
  std::vector<implementation> devices;

  void choose_grid();
  void divide();
  // Devices: about so many bytes of the data are transformed before they travel; 0: all.
  void plan_lines(std::int64_t piece_bytes);
  // Ranks: about so many bytes are transformed for each rank before they travel.
  void plan_ways(std::int64_t block_bytes);
  rank_lines lines_of(std::size_t step, bool forward, bool turned, std::int64_t block_bytes) const;
  fft::plan plan_of(const rank_lines& which, const group_step& step, std::int64_t count, bool real, bool forward) const;
  // Devices: makes the streams of the current one.
  void make_streams();
  // Transforms lines of a step without waiting, those of some of the elements of the slowest axis, by the plans that have so many.
  pending_report enqueue_lines(const group_step& which, const line_plans& by, std::int64_t first, std::int64_t count, bool forward,
                               const void* in, void* out, void* stream) const;
  std::uint64_t digest(bool forward) const;
  const implementation& of_device(int device) const;
  // Refuses numbers of the other kind.
  template <class In, class Out>
  void check_kind() const;
  template <class In, class Out>
  void check_operands(bool forward, std::span<const In> in, std::span<Out> out) const;
  template <class In, class Out>
  report transform(bool forward, std::span<const In> in, std::span<Out> out, const call& now) const;
  template <class In, class Out>
  report transform_own(bool forward, std::span<const In> in, std::span<Out> out, const run::settings& given, wire::exchange& over) const;
  template <class In, class Out>
  report transform_on_devices(bool forward, std::span<const In> in, std::span<Out> out, const call& now) const;
  // The same with an operand for each device.
  template <class In, class Out>
  report transform_divided(bool forward, std::span<const std::span<const In>> in, std::span<const std::span<Out>> out,
                           const call& now) const;
  // The part of a call that is the same for both: `operands` returns those of device p.
  template <class In, class Out, class Operands>
  report run_on_devices(bool forward, const Operands& operands, wire::device_threads& threads, const call& now) const;
  template <class In, class Out>
  report transform_on_own_device(bool forward, std::span<const In> in, std::span<Out> out, const call& now) const;
  // The call of one device, for two and three dimensions, with the data of all steps in its memory. Peers write to the room; it outlives
  // the call on all devices.
  template <class In, class Out>
  report transform_in_room(bool forward, const device_operands<In, Out>& operands, const run::settings& given, wire::exchange& over,
                           device_room& room, device_seconds& seconds) const;
  // The bytes of each half of a room.
  std::int64_t half_bytes() const;
};

}  // namespace abi_1

}  // namespace ballast::fft
