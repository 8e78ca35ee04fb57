// Transforms of two and three dimensions on the devices of a group: the data of all steps stay in the memory of the devices.
// Layer: algorithm, over fft::plan and device_exchange.hpp.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <type_traits>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/device/residence.hpp"
#include "fft/api/device_exchange.hpp"
#include "fft/api/group_plan.hpp"
#include "fft/api/part_of_array.hpp"
#include "group/device_threads.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "run/call_scope.hpp"

namespace ballast::fft {

namespace {

// Copies a part between the whole array of the caller and memory where it lies without gaps.
template <class Element>
void copy_stretches(ballast::cuda::device& on, Element* array, const box& whole, const box& part, Element* dense, bool load) {
  const auto width = static_cast<std::int64_t>(sizeof(Element));
  // Neighbouring stretches of one length and one distance are the columns of one copy.
  std::int64_t first = 0, first_dense = 0, length = 0, distance = 0, columns = 0;
  const auto flush = [&] {
    if (columns == 0) return;
    Element* const outer = array + first;
    Element* const inner = dense + first_dense;
    const std::int64_t outer_pitch = std::max(distance, length) * width, inner_pitch = length * width;
    if (columns == 1)
      load ? on.copy(inner, outer, length * width, nullptr) : on.copy(outer, inner, length * width, nullptr);
    else if (load)
      on.copy_columns(inner, inner_pitch, outer, outer_pitch, length * width, columns, nullptr);
    else
      on.copy_columns(outer, outer_pitch, inner, inner_pitch, length * width, columns, nullptr);
  };
  each_stretch(whole, part, [&](std::int64_t place, std::int64_t at, std::int64_t count) {
    if (columns == 1 && count == length) distance = place - first;
    if (columns > 0 && count == length && place == first + columns * distance) {
      ++columns;
      return;
    }
    flush();
    first = place, first_dense = at, length = count, distance = 0, columns = 1;
  });
  flush();
}

// The data of a call between two steps, in one of the halves of the room, or where the caller has it.
template <class T>
class call_on_device {
 public:
  using implementation = typename group_plan<T>::implementation;
  call_on_device(const implementation& of, bool forward, wire::exchange& over, run::recorder& seen, protection wanted,
                 inject::active_injector& injector, device_room& room)
      : of_(of),
        forward_(forward),
        over_(over),
        seen_(seen),
        wanted_(wanted),
        injector_(injector),
        room_(room),
        kernels_(room.on, static_cast<int>(sizeof(std::complex<T>))) {}

  // Reads the part of this device from the whole array: where it lies if it is dense there and in the memory of this device.
  template <class Number>
  void load(std::span<const Number> all, const box& whole, const box& part) {
    if (part.size() == 0) return;
    std::int64_t stretches = 0, first = 0;
    each_stretch(whole, part, [&](std::int64_t place, std::int64_t, std::int64_t) {
      if (stretches++ == 0) first = place;
    });
    const bool aligned = reinterpret_cast<std::uintptr_t>(all.data()) % sizeof(Number) == 0;  // as the kernel that reads it needs
    if (stretches == 1 && aligned && room_.on->accessible(all.data())) {
      from_ = all.data() + first;
      return;
    }
    copy_stretches(*room_.on, const_cast<Number*>(all.data()), whole, part, static_cast<Number*>(half(0)), true);
    room_.on->synchronize(nullptr);
    from_ = half(0);
    current_ = 0;
  }

  void run() {
    const std::vector<group_step>& steps = of_.steps;
    if (forward_) {
      for (std::size_t s = 0; s < steps.size(); ++s) {
        if (s > 0) turn(steps[s - 1].divided, steps[s].divided);
        along(steps[s]);
      }
      if (of_.natural) turn(steps.back().divided, *of_.natural);
      return;
    }
    if (of_.natural) turn(*of_.natural, steps.back().divided);
    for (std::size_t s = steps.size(); s-- > 0;) {
      along(steps[s]);
      if (s > 0) turn(steps[s].divided, steps[s - 1].divided);
    }
  }

  // Stores the result in its part of the caller's array.
  template <class Number>
  void store(std::span<Number> all, const box& whole, const box& part) {
    if (part.size() == 0) return;
    copy_stretches(*room_.on, all.data(), whole, part, static_cast<Number*>(half(current_)), false);
    room_.on->synchronize(nullptr);
  }

  const report& lines() const { return lines_; }

 private:
  void* half(int number) const { return room_.halves[number].data(); }

  void turn(const division_of_array& was, const division_of_array& becomes) {
    exchange_on_devices<T>(was, becomes, over_, room_, kernels_).run(from_, 1 - current_, seen_, wanted_, injector_);
    move_on();
  }
  void along(const group_step& which) {
    if (which.lines) {
      const report part = of_.run_lines(which, forward_, from_, half(1 - current_));
      lines_.backend = part.backend;
      lines_.scheme = part.scheme;
      lines_.merge(part);
    }
    move_on();
  }
  void move_on() {
    current_ = 1 - current_;
    from_ = half(current_);
  }

  const implementation& of_;
  bool forward_;
  wire::exchange& over_;
  run::recorder& seen_;
  protection wanted_;
  inject::active_injector& injector_;
  device_room& room_;
  cuda::box_kernels kernels_;
  const void* from_ = nullptr;
  int current_ = 0;
  report lines_;
};

// The rooms of all devices of a call. Work of any of them may use each: all wait before one is released.
class rooms_of_call {
 public:
  rooms_of_call(const wire::device_threads& threads, const group::state& how) : rooms_(threads.size()) {
    std::vector<std::shared_ptr<ballast::cuda::device>> all;
    for (std::size_t p = 0; p < threads.size(); ++p) {
      const ballast::cuda::device_scope on(threads.device(p));
      all.push_back(rooms_[p].on = ballast::cuda::current_device());
    }
    const bool peers = ballast::cuda::reach_each_other(all);
    for (device_room& each : rooms_) {
      each.peers = peers;
      each.chunk = how.host_chunk;
    }
  }
  rooms_of_call(const rooms_of_call&) = delete;
  rooms_of_call& operator=(const rooms_of_call&) = delete;
  ~rooms_of_call() {
    for (const device_room& each : rooms_) {
      try {
        each.on->synchronize(nullptr);
      } catch (...) {  // a device that fails here does no more work
      }
    }
  }
  device_room& operator[](std::size_t p) { return rooms_[p]; }

 private:
  std::vector<device_room> rooms_;
};

}  // namespace

inline namespace abi_1 {

template <class T>
std::int64_t group_plan<T>::implementation::half_bytes() const {
  const auto of = [&](const division_of_array& each, std::size_t bytes) {
    return each.of(place).size() * static_cast<std::int64_t>(bytes);
  };
  std::int64_t made = of(of_data, how.real ? sizeof(T) : sizeof(std::complex<T>));
  for (const group_step& each : steps) made = std::max(made, of(each.divided, sizeof(std::complex<T>)));
  return natural ? std::max(made, of(*natural, sizeof(std::complex<T>))) : made;
}

template <class T>
template <class In, class Out>
report group_plan<T>::implementation::transform_in_room(const implementation& whole, bool forward, std::span<const In> in,
                                                        std::span<Out> out, const run::settings& given, wire::exchange& over,
                                                        device_room& room, double& seconds) const {
  inject::plan mine, of_lines;
  split_faults(given.faults, mine, of_lines);
  const inject::scope inner(given.faults == nullptr ? nullptr : &of_lines);
  inject::active_injector injector(given.faults == nullptr ? nullptr : &mine, site::group_table());
  run::recorder seen(token, ballast::backend::automatic, "", given, injector);
  try {
    return wire::in_group(over, seen, token, [&] {
      for (ballast::cuda::device_buffer& each : room.halves) each = ballast::cuda::device_buffer(room.on, half_bytes());
      room.sums = ballast::cuda::device_buffer(room.on, static_cast<std::int64_t>(2 * ranks * sizeof(std::uint64_t)));
      if (!room.peers && room.link == nullptr)
        room.staged = ballast::cuda::pinned_buffer(room.on, static_cast<std::int64_t>(ranks) * room.chunk);
      over.expect_alike(digest(forward));
      call_on_device<T> running(*this, forward, over, seen, given.protection, injector, room);
      running.load(in, forward ? whole.data : whole.spectrum, forward ? data : spectrum);
      over.barrier();  // all devices have their parts: the time below is of the transform alone
      const auto begin = std::chrono::steady_clock::now();
      running.run();
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      report all = seen.collect();
      all.merge(running.lines());
      all.backend = running.lines().backend;
      all.scheme = running.lines().scheme;
      report joined = wire::joined(over, all);
      // All devices know the verdict now, and have read their operands.
      if (joined.verdict != verdict::uncorrectable) running.store(out, forward ? whole.spectrum : whole.data, forward ? spectrum : data);
      return joined;
    });
  } catch (const wire::ranks_lost&) {
    over.regroup();
    throw rank_lost_error(wire::lost_message(over, token), over.lost());
  }
}

// A call on a group of devices: each thread takes its part of the whole array, transforms as a rank, and stores its part of the result.
template <class T>
template <class In, class Out>
report group_plan<T>::implementation::transform_on_devices(bool forward, std::span<const In> in, std::span<Out> out,
                                                           const call& now) const {
  wire::check_call_on_devices(now, token);
  check_operands(forward, in, out);
  wire::device_threads threads(where.group, devices.size());
  threads.wait_for({in.data(), out.data()});
  const run::settings given = run::settings_of(where, now);
  std::vector<report> reports(devices.size());
  std::vector<double> seconds(devices.size());
  group::state& state = *where.group.internal();
  rooms_of_call rooms(threads, state);
  state.road = one_dimension || !rooms[0].peers ? wire::road::host : wire::road::peers;
  const bool lines_first = !forward && !natural;  // lines of one dimension are read by a plan
  threads.run(token, [&](std::size_t p) {
    const run::settings own = threads.settings_of(given, p);
    reports[p] = run::in_call(nullptr, threads.device(p), token, [&] {
      const implementation& each = devices[p];
      if (!one_dimension) return each.transform_in_room(*this, forward, in, out, own, threads.over(p), rooms[p], seconds[p]);
      part_of_array<const In> source(in, forward ? data : spectrum, forward ? each.data : each.spectrum, lines_first);
      part_of_array<Out> result(out, forward ? spectrum : data, forward ? each.spectrum : each.data, false);
      report made = each.transform_own(forward, source.view(), result.view(), own, threads.over(p));
      if (made.verdict != verdict::uncorrectable) result.commit();
      return made;
    });
  });
  state.seconds = seconds[0];
  return std::move(reports[0]);
}

// A call of one rank over NCCL, with its own parts.
template <class T>
template <class In, class Out>
report group_plan<T>::implementation::transform_on_own_device(bool forward, std::span<const In> in, std::span<Out> out,
                                                              const call& now) const {
  group::state& state = *where.group.internal();
  wire::exchange& over = *state.over;
  const run::settings given = run::settings_of(where, now);
  const int number = state.link->device_number();
  return run::in_call(nullptr, number, token, [&] {
    wire::prepare(over, [&] {
      wire::check_call_on_devices(now, token);
      check_operands(forward, in, out);
      for (const void* each : {static_cast<const void*>(in.data()), static_cast<const void*>(out.data())})
        if (ballast::cuda::residence_of(each) != ballast::cuda::residence::host) state.link->device()->synchronize(nullptr);
    });
    double seconds = 0;
    if (!one_dimension) {
      device_room room;
      room.on = state.link->device();
      room.link = state.link.get();
      report made = transform_in_room(*this, forward, in, out, given, over, room, seconds);
      state.road = wire::road::link;
      state.seconds = seconds;
      return made;
    }
    part_of_array<const In> source(in, forward ? data : spectrum, forward ? data : spectrum, false);
    part_of_array<Out> result(out, forward ? spectrum : data, forward ? spectrum : data, false);
    report made = transform_own(forward, source.view(), result.view(), given, over);
    if (made.verdict != verdict::uncorrectable) result.commit();
    state.road = wire::road::host;
    return made;
  });
}

template std::int64_t group_plan<float>::implementation::half_bytes() const;
template std::int64_t group_plan<double>::implementation::half_bytes() const;
#define BALLAST_CALLS(T, In, Out)                                                                                                    \
  template report group_plan<T>::implementation::transform_on_devices(bool, std::span<const In>, std::span<Out>, const call&) const; \
  template report group_plan<T>::implementation::transform_on_own_device(bool, std::span<const In>, std::span<Out>, const call&) const;
BALLAST_CALLS(float, std::complex<float>, std::complex<float>)
BALLAST_CALLS(float, float, std::complex<float>)
BALLAST_CALLS(float, std::complex<float>, float)
BALLAST_CALLS(double, std::complex<double>, std::complex<double>)
BALLAST_CALLS(double, double, std::complex<double>)
BALLAST_CALLS(double, std::complex<double>, double)
#undef BALLAST_CALLS

}  // namespace abi_1
}  // namespace ballast::fft
