// Transforms on the devices of a group: the data of all steps stay in the memory of the devices.
// Layer: algorithm, over fft::plan and device_exchange.hpp.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
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

using clock = std::chrono::steady_clock;
double seconds_since(clock::time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }

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
        kernels_(room.on, static_cast<int>(sizeof(std::complex<T>))),
        transformed_(room.on->make_event(false)) {
    if (of.one_dimension && of.how.real) real_kernels_.emplace(room.on, static_cast<int>(sizeof(T)));
  }

  // Reads the part of this device from `all`: where it lies if it is dense there and in the memory of this device.
  template <class Number>
  void load(std::span<const Number> all, const box& whole, const box& part) {
    if (part.size() == 0) return;
    if (const Number* const here = dense_part(all, whole, part); here != nullptr) {
      from_ = here;
      return;
    }
    // Complex lines are transformed in a half, so that the next exchange can store to the other one.
    constexpr bool real = std::is_same_v<Number, T>;
    if (real) room_.given = ballast::cuda::device_buffer(room_.on, part.size() * static_cast<std::int64_t>(sizeof(Number)));
    void* const to = real ? room_.given.data() : half(0);
    copy_stretches(*room_.on, const_cast<Number*>(all.data()), whole, part, static_cast<Number*>(to), true);
    room_.on->synchronize(nullptr);
    from_ = to;
    if (!real) current_ = 0;
  }

  // Lets the last step store its lines to the part of this device in `all`, if it is dense there and in the memory of this device.
  template <class Number>
  void store_directly(std::span<Number> all, const box& whole, const box& part) {
    const bool ends_by_exchange = of_.one_dimension && !forward_;
    if (part.size() != 0 && !ends_by_exchange) result_ = const_cast<Number*>(dense_part(std::span<const Number>(all), whole, part));
  }

  void run() {
    const std::vector<group_step>& steps = of_.steps;
    const bool one_dimension = of_.one_dimension, real = of_.how.real;
    if (forward_) {
      if (one_dimension && real)
        turn<T>(of_.of_data, of_.of_real, *real_kernels_);
      else if (one_dimension)
        turn<std::complex<T>>(of_.of_data, steps[0].divided, kernels_);
      for (std::size_t s = 0; s < steps.size(); ++s) {
        along(steps[s], s + 1 < steps.size() ? &steps[s + 1].divided : of_.natural ? &*of_.natural : nullptr);
        if (one_dimension && s == 0) multiply(steps[1].divided);
      }
      return;
    }
    if (of_.natural) turn<std::complex<T>>(*of_.natural, steps.back().divided, kernels_);
    for (std::size_t s = steps.size(); s-- > 0;) {
      along(steps[s], s > 0 ? &steps[s - 1].divided : one_dimension && !real ? &of_.of_data : nullptr);
      if (one_dimension && s == 1) multiply(steps[0].divided);
    }
    if (!one_dimension || !real) return;
    over_.barrier();  // the lines were read where others are going to store
    turn<T>(of_.of_real, of_.of_data, *real_kernels_);
  }

  // Stores the result in its part of `all`.
  template <class Number>
  void store(std::span<Number> all, const box& whole, const box& part) {
    if (part.size() == 0 || stored_) return;
    copy_stretches(*room_.on, all.data(), whole, part, static_cast<Number*>(half(current_)), false);
    room_.on->synchronize(nullptr);
  }

  const report& lines() const { return lines_; }
  double exchange_seconds() const { return exchange_seconds_; }

 private:
  void* half(int number) const { return room_.halves[number].data(); }

  // The place of a part in `all`, as the kernels can use it there; or null.
  template <class Number>
  const Number* dense_part(std::span<const Number> all, const box& whole, const box& part) const {
    std::int64_t stretches = 0, first = 0;
    each_stretch(whole, part, [&](std::int64_t place, std::int64_t, std::int64_t) {
      if (stretches++ == 0) first = place;
    });
    const bool aligned = reinterpret_cast<std::uintptr_t>(all.data()) % sizeof(Number) == 0;
    return stretches == 1 && aligned && room_.on->accessible(all.data()) ? all.data() + first : nullptr;
  }

  template <class Element>
  exchange_on_devices<Element> exchange_into(const division_of_array& was, const division_of_array& becomes,
                                             const cuda::box_kernels& kernels, int half) {
    return {was, becomes, over_, room_, kernels, from_, half, wanted_};
  }
  void lies_in(int half_number) {
    current_ = half_number;
    from_ = half(current_);
  }

  template <class Element>
  void turn(const division_of_array& was, const division_of_array& becomes, const cuda::box_kernels& kernels) {
    const clock::time_point begin = clock::now();
    const int to = current_ < 0 ? 1 : 1 - current_;  // the same on all devices, wherever their operands lie
    auto running = exchange_into<Element>(was, becomes, kernels, to);
    running.send_all();
    running.finish(seen_, injector_);
    lies_in(to);
    exchange_seconds_ += seconds_since(begin);
  }

  // Multiplies by the factors between the two steps of one dimension. The product is made again with the other tables and must have the
  // same bits. A repetition makes all tables anew: one of them may be damaged.
  void multiply(const division_of_array& divided) {
    const box part = divided.of(of_.place);
    const auto slow = static_cast<std::size_t>(part.order[0]), fast = static_cast<std::size_t>(part.order[1]);
    const cuda::product_part all{part.count[slow], part.count[fast], part.first[slow], part.first[fast]};
    const cuda::product_kernels kernels(room_.on, static_cast<int>(sizeof(std::complex<T>)));
    const std::int64_t n = of_.shape[0] * of_.shape[1];
    const int to = 1 - current_;  // the source of the exchange before, which is over
    const ballast::cuda::stream on = room_.streams->near.get();
    const auto once = [&](int number) {
      abft::finding found;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      const auto tables = [&](int copy) { return number == 0 ? room_.streams->roots[copy] : cuda::roots_of(room_.on, n, copy, false); };
      const cuda::root_tables by = tables(0);
      kernels.multiply(from_, half(to), all, by, !forward_, on);
      strike_product(static_cast<std::complex<T>*>(half(to)), all, on);
      if (wanted_ == protection::off) {
        room_.on->synchronize(on);
        return found;
      }
      const cuda::root_tables again = tables(1);
      auto* const wrong = static_cast<unsigned long long*>(room_.sums.data());
      unsigned long long count = 0;
      room_.on->zero(wrong, sizeof *wrong, on);
      kernels.check(from_, half(to), all, again, !forward_, wrong, on);
      room_.on->copy(&count, wrong, sizeof count, on);
      room_.on->synchronize(on);
      if (count != 0) found.word = abft::k_fail;
      seen_.checked(static_cast<std::uint64_t>(part.size()));
      return found;
    };
    if (wanted_ == protection::off)
      (void)once(0);
    else
      (void)run::attempt(seen_, wanted_, "group.twiddle", 0, once);
    lies_in(to);
    over_.barrier();  // all have read the half where the next exchange stores
  }

  // Strikes the middle row of the products.
  void strike_product(std::complex<T>* products, const cuda::product_part& all, ballast::cuda::stream on) {
    if constexpr (inject::active_injector::enabled) {
      if (!injector_.armed(site::product) || all.rows * all.columns == 0) return;
      std::vector<std::complex<T>> row(static_cast<std::size_t>(all.columns));
      const auto bytes = static_cast<std::int64_t>(row.size() * sizeof(row[0]));
      std::complex<T>* const there = products + all.rows / 2 * all.columns;
      room_.on->copy(row.data(), there, bytes, on);
      room_.on->synchronize(on);
      (void)injector_.strike(site::product, {}, reinterpret_cast<T*>(row.data()), 2 * all.columns);
      room_.on->copy(there, row.data(), bytes, on);
      room_.on->synchronize(on);
    }
  }

  // Transforms the lines of a step. If the data become divided otherwise after it, each piece is sent when it is transformed.
  void along(const group_step& which, const division_of_array* becomes) {
    // Complex lines stay in the half where they lie: other devices may store to the other one as soon as their first piece is ready.
    const bool of_real = of_.how.real && &which == &of_.steps.front();
    // Real lines lie in the half where other devices are going to store: no device sends before all have read theirs.
    const bool in_the_way = becomes != nullptr && of_real && current_ >= 0, overlap = room_.overlap && !in_the_way;
    const int to = current_ < 0 ? 0 : of_real ? 1 - current_ : current_;
    const bool last = becomes == nullptr && result_ != nullptr;
    const void* const from = from_;
    void* const out = last ? result_ : half(to);
    const ballast::cuda::stream on = room_.streams->lines.get();
    from_ = out;
    current_ = to;
    stored_ = last;
    std::optional<exchange_on_devices<std::complex<T>>> next;
    if (becomes != nullptr) next.emplace(exchange_into<std::complex<T>>(which.divided, *becomes, kernels_, 1 - to));
    std::vector<pending_report> running;
    const auto piece = [&](const line_plans& by, std::int64_t first, std::int64_t count) {
      running.push_back(of_.enqueue_lines(which, by, first, count, forward_, from, out, on));
      if (!next || !overlap) return;
      room_.on->record(*transformed_, on);
      next->send(first, count, transformed_.get(), count == which.rows ? cuda::k_alone : cuda::k_beside);
    };
    if (which.rows > 0 && (!next || which.piece == which.rows)) {
      piece(which.all, 0, which.rows);
    } else {
      for (std::int64_t first = 0; first < which.rows; first += which.piece) {
        const bool whole = first + which.piece <= which.rows;
        piece(whole ? which.of_piece : which.of_rest, first, whole ? which.piece : which.rows - first);
      }
    }
    for (pending_report& each : running) {
      const report part = each.get();
      lines_.backend = part.backend;
      lines_.scheme = part.scheme;
      lines_.merge(part);
    }
    if (!next) return;
    const clock::time_point begin = clock::now();
    if (in_the_way) over_.barrier();
    if (!overlap) next->send_all();
    next->finish(seen_, injector_);
    lies_in(1 - to);
    exchange_seconds_ += seconds_since(begin);
  }

  const implementation& of_;
  bool forward_;
  wire::exchange& over_;
  run::recorder& seen_;
  protection wanted_;
  inject::active_injector& injector_;
  device_room& room_;
  cuda::box_kernels kernels_;
  std::optional<cuda::box_kernels> real_kernels_;  // one dimension of real data
  std::unique_ptr<ballast::cuda::stream_event> transformed_;
  const void* from_ = nullptr;
  int current_ = -1;        // the half with the data; −1: they lie elsewhere
  void* result_ = nullptr;  // the caller's memory, for the last step; null: a half
  bool stored_ = false;     // the result lies there
  double exchange_seconds_ = 0;
  report lines_;
};

// The rooms of all devices of a call. Work of any of them may use each: all wait before one is released.
class rooms_of_call {
 public:
  template <class Devices>
  rooms_of_call(const wire::device_threads& threads, const group::state& how, const Devices& devices) : rooms_(threads.size()) {
    std::vector<std::shared_ptr<ballast::cuda::device>> all;
    for (std::size_t p = 0; p < threads.size(); ++p) {
      const ballast::cuda::device_scope on(threads.device(p));
      all.push_back(rooms_[p].on = ballast::cuda::current_device());
      rooms_[p].streams = devices[p].streams;
    }
    const bool peers = ballast::cuda::reach_each_other(all);
    for (device_room& each : rooms_) {
      each.peers = peers;
      each.overlap = how.overlap;
      each.chunk = how.host_chunk;
    }
  }
  rooms_of_call(const rooms_of_call&) = delete;
  rooms_of_call& operator=(const rooms_of_call&) = delete;
  ~rooms_of_call() {
    for (const device_room& each : rooms_) each.wait();
  }
  device_room& operator[](std::size_t p) { return rooms_[p]; }

 private:
  std::vector<device_room> rooms_;
};

}  // namespace

inline namespace abi_1 {

template <class T>
void group_plan<T>::implementation::make_streams() {
  const std::shared_ptr<ballast::cuda::device> on = ballast::cuda::current_device();
  const auto made = std::make_shared<device_streams>(on);
  for (int copy = 0; one_dimension && copy < 2; ++copy) made->roots[copy] = cuda::roots_of(on, shape[0] * shape[1], copy, true);
  streams = made;
}

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
report group_plan<T>::implementation::transform_in_room(bool forward, const device_operands<In, Out>& operands, const run::settings& given,
                                                        wire::exchange& over, device_room& room, device_seconds& seconds) const {
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
      const box& from = forward ? data : spectrum;
      const box& to = forward ? spectrum : data;
      running.load(operands.in, operands.in_box, from);
      if (operands.own) running.store_directly(operands.out, operands.out_box, to);
      room.introduce(over);  // all devices have their parts: the time below is of the transform alone
      const clock::time_point begin = clock::now();
      running.run();
      seconds = {.all = seconds_since(begin), .exchange = running.exchange_seconds()};
      report all = seen.collect();
      all.merge(running.lines());
      all.backend = running.lines().backend;
      all.scheme = running.lines().scheme;
      report joined = wire::joined(over, all);
      // All devices know the verdict now, and have read their operands.
      if (joined.verdict != verdict::uncorrectable) running.store(operands.out, operands.out_box, to);
      return joined;
    });
  } catch (const wire::ranks_lost&) {
    over.regroup();
    throw rank_lost_error(wire::lost_message(over, token), over.lost());
  }
}

// Each thread takes its part, transforms as a rank, and stores its part of the result.
template <class T>
template <class In, class Out, class Operands>
report group_plan<T>::implementation::run_on_devices(bool forward, const Operands& operands, wire::device_threads& threads,
                                                     const call& now) const {
  const run::settings given = run::settings_of(where, now);
  std::vector<report> reports(devices.size());
  std::vector<device_seconds> seconds(devices.size());
  group::state& state = *where.group.internal();
  rooms_of_call rooms(threads, state, devices);
  state.road = rooms[0].peers ? wire::road::peers : wire::road::host;
  threads.run(token, [&](std::size_t p) {
    const run::settings own = threads.settings_of(given, p);
    reports[p] = run::in_call(nullptr, threads.device(p), token, [&] {
      return devices[p].transform_in_room(forward, operands(p), own, threads.over(p), rooms[p], seconds[p]);
    });
  });
  state.seconds = seconds[0].all;
  state.exchange_seconds = seconds[0].exchange;
  return std::move(reports[0]);
}

// A call on a group of devices with whole arrays.
template <class T>
template <class In, class Out>
report group_plan<T>::implementation::transform_on_devices(bool forward, std::span<const In> in, std::span<Out> out,
                                                           const call& now) const {
  wire::check_call_on_devices(now, token);
  check_operands(forward, in, out);
  wire::device_threads threads(where.group, devices.size());
  threads.wait_for({in.data(), out.data()});
  const auto operands = [&](std::size_t) {
    return device_operands<In, Out>{in, forward ? data : spectrum, out, forward ? spectrum : data, false};
  };
  return run_on_devices<In, Out>(forward, operands, threads, now);
}

template <class T>
template <class In, class Out>
report group_plan<T>::implementation::transform_divided(bool forward, std::span<const std::span<const In>> in,
                                                        std::span<const std::span<Out>> out, const call& now) const {
  if (devices.empty())
    throw unsupported_error(fmt::format("{}: group: expected a group of devices for operands that are given divided, got ranks", token));
  wire::check_call_on_devices(now, token);
  check_kind<In, Out>();
  if (in.size() != devices.size() || out.size() != devices.size())
    throw invalid_argument_error(
        fmt::format("{}: expected a part for each of {} devices, got {} in and {} out", token, devices.size(), in.size(), out.size()));
  const auto overlap = [](const auto& a, const auto& b) {
    const auto* const first = reinterpret_cast<const std::byte*>(a.data());
    const auto* const other = reinterpret_cast<const std::byte*>(b.data());
    return first < other + b.size_bytes() && other < first + a.size_bytes();
  };
  wire::device_threads threads(where.group, devices.size());
  for (std::size_t p = 0; p < devices.size(); ++p) {
    devices[p].check_operands(forward, in[p], out[p]);
    for (std::size_t q = 0; q < devices.size(); ++q) {
      const bool in_place = p == q && static_cast<const void*>(in[p].data()) == static_cast<const void*>(out[p].data());
      if ((!in_place && overlap(out[p], in[q])) || (p != q && overlap(out[p], out[q])))
        throw invalid_argument_error(fmt::format("{}: expected parts that do not overlap, got those of devices {} and {}", token, p, q));
    }
    threads.wait_for({in[p].data(), out[p].data()});
  }
  const auto operands = [&](std::size_t p) {
    const implementation& each = devices[p];
    return device_operands<In, Out>{in[p], forward ? each.data : each.spectrum, out[p], forward ? each.spectrum : each.data, true};
  };
  return run_on_devices<In, Out>(forward, operands, threads, now);
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
    device_seconds seconds;
    device_room room;
    room.on = state.link->device();
    room.streams = streams;
    room.link = state.link.get();
    const device_operands<In, Out> operands{in, forward ? data : spectrum, out, forward ? spectrum : data, false};
    report made = transform_in_room(forward, operands, given, over, room, seconds);
    state.road = wire::road::link;
    state.seconds = seconds.all;
    state.exchange_seconds = seconds.exchange;
    return made;
  });
}

template std::int64_t group_plan<float>::implementation::half_bytes() const;
template std::int64_t group_plan<double>::implementation::half_bytes() const;
template void group_plan<float>::implementation::make_streams();
template void group_plan<double>::implementation::make_streams();
#define BALLAST_CALLS(T, In, Out)                                                                                                    \
  template report group_plan<T>::implementation::transform_divided(bool, std::span<const std::span<const In>>,                       \
                                                                   std::span<const std::span<Out>>, const call&) const;              \
  template report group_plan<T>::implementation::transform_on_devices(bool, std::span<const In>, std::span<Out>, const call&) const; \
  template report group_plan<T>::implementation::transform_on_own_device(bool, std::span<const In>, std::span<Out>, const call&) const;
BALLAST_EACH_PAIR_OF_OPERANDS(BALLAST_CALLS)
#undef BALLAST_CALLS

}  // namespace abi_1
}  // namespace ballast::fft
