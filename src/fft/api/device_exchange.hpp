// The exchange that turns one division of an array among devices, of one process or of ranks over NCCL, into another, from device memory
// to device memory.
// Layer: algorithm, over fft/cuda/group. Source: docs/design/distributed.md, "Devices".
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cuda/device/device.hpp"
#include "fft/api/boxes.hpp"
#include "fft/cuda/group/boxes.hpp"
#include "fft/cuda/group/product.hpp"
#include "fft/sites.hpp"
#include "group/exchange.hpp"
#include "group/nccl_engine.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

namespace ballast::fft {

// State of a device in calls on several; its plan keeps it. Streams: the lines of a transform; what is stored for other devices, which is
// urgent, so that the link does not wait for the lines; sums, and what stays here. Tables of one dimension, twice.
struct device_streams {
  explicit device_streams(const std::shared_ptr<ballast::cuda::device>& on) : lines(on), far(on, true), near(on, true) {}
  ballast::cuda::device_stream lines, far, near;
  cuda::root_tables roots[2];
};

// The memory of one device for a call on several. Others write to it, so that it lives until the call has ended on all of them.
struct device_room {
  std::shared_ptr<ballast::cuda::device> on;
  std::shared_ptr<const device_streams> streams;
  bool peers = false;                      // the devices reach each other's memory
  bool overlap = true;                     // pieces travel while others are transformed
  wire::nccl_link* link = nullptr;         // the devices are those of ranks; or null
  std::int64_t chunk = 0;                  // bytes of `staged` for each device
  ballast::cuda::device_buffer given;      // real data that do not lie here
  ballast::cuda::device_buffer halves[2];  // the data before and after a step
  ballast::cuda::device_buffer sums;       // the sums of all blocks that are sent, then of all that have come
  ballast::cuda::device_buffer packed[2];  // without peers: the blocks on their way
  ballast::cuda::pinned_buffer staged;     // without peers: a chunk of the block for each device
  std::vector<void*> all_halves[2];        // those of all devices
  std::vector<unsigned char*> all_staged;

  device_room() = default;
  device_room(const device_room&) = delete;
  device_room& operator=(const device_room&) = delete;
  ~device_room() { wait(); }  // a call that ended by an error has left work that uses the memory

  void wait() const noexcept {
    if (on == nullptr) return;
    for (const ballast::cuda::stream each : {ballast::cuda::stream{}, streams ? streams->lines.get() : nullptr,
                                             streams ? streams->far.get() : nullptr, streams ? streams->near.get() : nullptr}) {
      try {
        on->synchronize(each);
      } catch (...) {  // a device that fails here does no more work
      }
    }
  }

  // Tells all devices where this one's memory is, and learns it of them. When it returns, all are ready.
  void introduce(wire::exchange& over) {
    on->synchronize(nullptr);  // the memory is there on all streams
    const std::int64_t own[] = {reinterpret_cast<std::int64_t>(halves[0].data()), reinterpret_cast<std::int64_t>(halves[1].data()),
                                reinterpret_cast<std::int64_t>(staged.data())};
    for (const auto& each : over.gather(std::span<const std::int64_t>(own))) {
      for (std::size_t h = 0; h < 2; ++h)
        all_halves[h].push_back(reinterpret_cast<void*>(each[h]));      // NOLINT(performance-no-int-to-ptr): a message has integers
      all_staged.push_back(reinterpret_cast<unsigned char*>(each[2]));  // NOLINT(performance-no-int-to-ptr)
    }
  }
};

// One exchange. The kernel that turns the data stores each element at its place in the memory of the device that has it in the new
// division. Devices that do not reach each other pack blocks, which go through page-locked memory of the host by chunks. Beside that the
// source sums the words of each block, by their numbers in the whole array; the destination sums what lies in its memory after it. If the
// sums of one block differ, all exchange again, at most twice: the source is kept.
template <class Element>
class exchange_on_devices {
  using element = Element;
  using number = typename component<Element>::type;
  static constexpr int k_bytes = sizeof(element);
  static constexpr std::int64_t k_components = sizeof(element) / sizeof(number);
  using steps = std::int64_t[3];

 public:
  // Reads `from` in the old division, in memory of this device, and writes the new one to half number `to` of each room, which no device
  // reads any more.
  exchange_on_devices(const division_of_array& was, const division_of_array& becomes, wire::exchange& over, device_room& room,
                      const cuda::box_kernels& kernels, const void* from, int to, protection wanted)
      : was_(was),
        becomes_(becomes),
        over_(over),
        room_(room),
        kernels_(kernels),
        me_(over.place()),
        ranks_(over.size()),
        from_(static_cast<const element*>(from)),
        here_(static_cast<element*>(room.halves[to].data())),
        wanted_(wanted),
        verify_(wanted != protection::off) {
    for (void* const each : room.all_halves[to]) halves_.push_back(static_cast<element*>(each));
    forget_sums();
  }

  // Sends the part of this device with these elements of its slowest axis, when the streams have passed `after`, if there is one. Does not
  // wait. `share`: of the device, see box_kernels.
  void send(std::int64_t first, std::int64_t count, const ballast::cuda::stream_event* after, int share) {
    if (after != nullptr)
      for (const ballast::cuda::stream each : {far(), near()}) room_.on->wait(*after, each);
    const box mine = was_.of(me_);
    const auto slow = static_cast<std::size_t>(mine.order[0]);
    const auto part_for = [&](std::size_t p) {
      box rows = mine;
      rows.first[slow] += first;
      rows.count[slow] = count;
      return common(rows, becomes_.of(p));
    };
    // Each begins with another device.
    for (std::size_t step = 1; step < ranks_ && room_.peers; ++step) {
      const std::size_t p = (me_ + step) % ranks_;
      copy(from_, mine, part_for(p), halves_[p], becomes_.of(p), share, far());
    }
    copy(from_, mine, part_for(me_), here_, becomes_.of(me_), share, near());
    for (std::size_t p = 0; verify_ && p < ranks_; ++p) sum(from_, mine, part_for(p), p, share);
  }
  void send_all() { send(0, was_.of(me_).count[static_cast<std::size_t>(was_.order[0])], nullptr, cuda::k_alone); }

  // Waits until all that was sent has come to all devices, verifies, and repeats if that fails.
  void finish(run::recorder& seen, inject::active_injector& injector) {
    const auto once = [&](int number) {
      if (number > 0) {
        forget_sums();
        send_all();
      }
      abft::finding found;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      const bool right = complete(injector);
      if (verify_) seen.checked(ranks_);
      // No device goes on before all have their blocks. Without checks all have them already.
      const std::int64_t verdict[] = {right ? 0 : 1};
      if (verify_)
        for (const auto& each : over_.gather(std::span<const std::int64_t>(verdict)))
          if (each[0] != 0) found.word = abft::k_fail;
      return found;
    };
    if (verify_)
      (void)run::attempt(seen, wanted_, "group.transpose", 0, once);
    else
      (void)once(0);
  }

 private:
  ballast::cuda::stream far() const { return room_.streams->far.get(); }
  ballast::cuda::stream near() const { return room_.streams->near.get(); }
  box sent_to(std::size_t p) const { return common(was_.of(me_), becomes_.of(p)); }
  box come_from(std::size_t q) const { return common(was_.of(q), becomes_.of(me_)); }
  unsigned long long* slot(std::size_t number) const { return static_cast<unsigned long long*>(room_.sums.data()) + number; }
  void forget_sums() const {
    if (verify_) room_.on->zero(room_.sums.data(), room_.sums.bytes(), near());
  }

  static void steps_of(const box& in, steps& to) {
    const places at(in);
    for (int a = 0; a < 3; ++a) to[a] = at.stride(a);
  }
  // Copies a part from the memory of one box to that of another.
  void copy(const element* from, const box& in, const box& part, element* to, const box& out, int share, ballast::cuda::stream on) const {
    steps from_step, to_step, count;
    steps_of(in, from_step);
    steps_of(out, to_step);
    std::copy_n(part.count.begin(), 3, count);
    kernels_.copy(from + places(in).of(part), from_step, to + places(out).of(part), to_step, count, share, on);
  }
  void sum(const element* data, const box& in, const box& part, std::size_t to, int share) const {
    const places all({.first = {}, .count = was_.shape});
    steps step, number_step, count;
    steps_of(in, step);
    for (int a = 0; a < 3; ++a) number_step[a] = all.stride(a);
    std::copy_n(part.count.begin(), 3, count);
    kernels_.sum(data + places(in).of(part), step, count, all.of(part), number_step, slot(to), share, near());
  }
  std::vector<std::uint64_t> read_sums(std::size_t first) const {
    std::vector<std::uint64_t> made(ranks_);
    room_.on->copy(made.data(), slot(first), static_cast<std::int64_t>(made.size() * sizeof(std::uint64_t)), near());
    room_.on->synchronize(near());
    return made;
  }

  bool complete(inject::active_injector& injector) {
    const box next = becomes_.of(me_);
    if (!room_.peers) by_packed_blocks(injector);
    room_.on->synchronize(far());
    const std::vector<std::uint64_t> sent = read_sums(0);
    for (std::size_t p = 0; p < ranks_; ++p)
      if (room_.peers || p == me_) strike(site::block, p, halves_[p], becomes_.of(p), sent_to(p), injector);
    const auto expected = over_.gather(std::span<const std::uint64_t>(sent));  // all have stored
    for (std::size_t q = 0; q < ranks_; ++q) strike(site::copy, q, here_, next, come_from(q), injector);
    if (!verify_) return true;
    for (std::size_t q = 0; q < ranks_; ++q) sum(here_, next, come_from(q), ranks_ + q, cuda::k_alone);
    const std::vector<std::uint64_t> found = read_sums(ranks_);
    bool right = true;
    for (std::size_t q = 0; q < ranks_; ++q) right = right && found[q] == expected[q][me_];
    return right;
  }

  // The blocks for all others, or from all others, one after the other in `packed`.
  struct packing {
    unsigned char* data = nullptr;
    std::vector<std::int64_t> at;
  };
  template <class Part>
  packing room_for(int which, const Part& part) {
    packing made{nullptr, std::vector<std::int64_t>(ranks_)};
    std::int64_t end = 0;
    for (std::size_t p = 0; p < ranks_; ++p)
      if (p != me_) made.at[p] = std::exchange(end, end + bytes_of(part(p)));
    if (room_.packed[which].bytes() < end) {
      room_.packed[which] = ballast::cuda::device_buffer(room_.on, end);
      room_.on->synchronize(nullptr);  // it is there on the other streams
    }
    made.data = static_cast<unsigned char*>(room_.packed[which].data());
    return made;
  }
  static std::int64_t bytes_of(const box& part) { return part.size() * k_bytes; }

  void by_packed_blocks(inject::active_injector& injector) {
    const packing out = room_for(0, [&](std::size_t p) { return sent_to(p); });
    const packing in = room_for(1, [&](std::size_t q) { return come_from(q); });
    for (std::size_t p = 0; p < ranks_; ++p)
      if (p != me_)
        copy(from_, was_.of(me_), sent_to(p), reinterpret_cast<element*>(out.data + out.at[p]), sent_to(p), cuda::k_alone, far());
    room_.link != nullptr ? through_link(out, in, injector) : through_host(out, in, injector);
    for (std::size_t q = 0; q < ranks_; ++q)
      if (q != me_)
        copy(reinterpret_cast<const element*>(in.data + in.at[q]), come_from(q), come_from(q), here_, becomes_.of(me_), cuda::k_alone,
             far());
  }

  void through_link(const packing& out, const packing& in, inject::active_injector& injector) {
    std::vector<wire::nccl_link::block> go(ranks_), come(ranks_);
    for (std::size_t p = 0; p < ranks_; ++p) {
      if (p == me_) continue;
      strike(site::block, p, reinterpret_cast<element*>(out.data + out.at[p]), sent_to(p), sent_to(p), injector);
      go[p] = {out.data + out.at[p], bytes_of(sent_to(p))};
      come[p] = {in.data + in.at[p], bytes_of(come_from(p))};
    }
    room_.link->exchange(go, come, far());
    room_.link->finish(far());
  }

  // By rounds all copy a chunk of each block to the host, and fetch what the others have copied there.
  void through_host(const packing& out, const packing& in, inject::active_injector& injector) {
    std::int64_t most = 0;
    for (std::size_t p = 0; p < ranks_; ++p)
      for (std::size_t q = 0; q < ranks_; ++q)
        if (q != p) most = std::max(most, bytes_of(common(was_.of(q), becomes_.of(p))));
    const auto chunk = room_.chunk;
    const auto staged = static_cast<unsigned char*>(room_.staged.data());
    for (std::int64_t begin = 0; begin < most; begin += chunk) {
      const auto size = [&](const box& part) { return std::clamp<std::int64_t>(bytes_of(part) - begin, 0, chunk); };
      for (std::size_t p = 0; p < ranks_; ++p)
        if (p != me_) room_.on->copy(staged + static_cast<std::int64_t>(p) * chunk, out.data + out.at[p] + begin, size(sent_to(p)), far());
      room_.on->synchronize(far());
      for (std::size_t p = 0; p < ranks_ && begin == 0; ++p) {
        if (p == me_) continue;
        (void)injector.strike(site::block, {.interval = static_cast<std::int64_t>(p), .intervals = static_cast<std::int64_t>(ranks_)},
                              reinterpret_cast<number*>(staged + static_cast<std::int64_t>(p) * chunk),
                              size(sent_to(p)) / static_cast<std::int64_t>(sizeof(number)));
      }
      over_.barrier();  // the chunks of all are there
      for (std::size_t q = 0; q < ranks_; ++q)
        if (q != me_)
          room_.on->copy(in.data + in.at[q] + begin, room_.all_staged[q] + static_cast<std::int64_t>(me_) * chunk, size(come_from(q)),
                         far());
      room_.on->synchronize(far());
      over_.barrier();  // all have fetched them
    }
  }

  // Strikes one line of a part in the memory of a device: the part is not contiguous.
  void strike(inject::site where, std::size_t other, element* data, const box& in, const box& part,
              inject::active_injector& injector) const {
    if constexpr (inject::active_injector::enabled) {
      if (!injector.armed(where) || part.size() == 0) return;
      std::vector<element> line(static_cast<std::size_t>(part.count[static_cast<std::size_t>(part.order[2])]));
      const auto bytes = static_cast<std::int64_t>(line.size() * sizeof(element));
      element* const there = data + places(in).of(part);
      room_.on->copy(line.data(), there, bytes, near());
      room_.on->synchronize(near());
      (void)injector.strike(where, {.interval = static_cast<std::int64_t>(other), .intervals = static_cast<std::int64_t>(ranks_)},
                            reinterpret_cast<number*>(line.data()), k_components * static_cast<std::int64_t>(line.size()));
      room_.on->copy(there, line.data(), bytes, near());
      room_.on->synchronize(near());
    }
  }

  division_of_array was_, becomes_;
  wire::exchange& over_;
  device_room& room_;
  const cuda::box_kernels& kernels_;
  std::size_t me_, ranks_;
  const element* from_;
  element* here_;
  std::vector<element*> halves_;
  protection wanted_;
  bool verify_;
};

}  // namespace ballast::fft
