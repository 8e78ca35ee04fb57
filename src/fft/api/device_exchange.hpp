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
#include "fft/sites.hpp"
#include "group/exchange.hpp"
#include "group/nccl_engine.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

namespace ballast::fft {

// The memory of one device for a call on several. Others write to it, so that it lives until the call has ended on all of them.
struct device_room {
  std::shared_ptr<ballast::cuda::device> on;
  bool peers = false;                      // the devices reach each other's memory
  wire::nccl_link* link = nullptr;         // the devices are those of ranks; or null
  std::int64_t chunk = 0;                  // bytes of `staged` for each device
  ballast::cuda::device_buffer halves[2];  // the data before and after a step
  ballast::cuda::device_buffer sums;       // the sums of all blocks that are sent, then of all that have come
  ballast::cuda::device_buffer packed[2];  // without peers: the blocks on their way
  ballast::cuda::pinned_buffer staged;     // without peers: a chunk of the block for each device
};

// The kernel that turns the data stores each element at its place in the memory of the device that has it in the new division. Devices
// that do not reach each other pack blocks, which go through page-locked memory of the host by chunks. Before that the source
// sums the words of each block, by their numbers in the whole array; the destination sums what lies in its memory after it. If the sums of
// one block differ, all exchange again, at most twice: the source is kept.
template <class T>
class exchange_on_devices {
  using element = std::complex<T>;
  static constexpr int k_bytes = sizeof(element);
  using steps = std::int64_t[3];

 public:
  exchange_on_devices(const division_of_array& was, const division_of_array& becomes, wire::exchange& over, device_room& room,
                      const cuda::box_kernels& kernels)
      : was_(was), becomes_(becomes), over_(over), room_(room), kernels_(kernels), me_(over.place()), ranks_(over.size()) {}

  // Reads `from` in the old division, in memory of this device, and writes the new one to half number `to` of each room.
  void run(const void* from, int to, run::recorder& seen, protection wanted, inject::active_injector& injector) {
    from_ = static_cast<const element*>(from);
    here_ = static_cast<element*>(room_.halves[to].data());
    room_.on->synchronize(nullptr);  // this half is free, and the source complete
    const std::int64_t own[] = {reinterpret_cast<std::int64_t>(here_), reinterpret_cast<std::int64_t>(room_.staged.data())};
    halves_.clear();
    staged_.clear();
    for (const auto& each : over_.gather(std::span<const std::int64_t>(own))) {
      halves_.push_back(reinterpret_cast<element*>(each[0]));        // NOLINT(performance-no-int-to-ptr): a message has integers
      staged_.push_back(reinterpret_cast<unsigned char*>(each[1]));  // NOLINT(performance-no-int-to-ptr)
    }
    verify_ = wanted != protection::off;
    const auto once = [&](int) {
      abft::finding found;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      const bool right = exchange_once(injector);
      if (verify_) seen.checked(ranks_);
      // No device goes on before all have their blocks.
      const std::int64_t verdict[] = {right ? 0 : 1};
      for (const auto& each : over_.gather(std::span<const std::int64_t>(verdict)))
        if (each[0] != 0) found.word = abft::k_fail;
      return found;
    };
    if (verify_)
      (void)run::attempt(seen, wanted, "group.transpose", 0, once);
    else
      (void)once(0);
  }

 private:
  box sent_to(std::size_t p) const { return common(was_.of(me_), becomes_.of(p)); }
  box come_from(std::size_t q) const { return common(was_.of(q), becomes_.of(me_)); }
  unsigned long long* slot(std::size_t number) const { return static_cast<unsigned long long*>(room_.sums.data()) + number; }

  static void steps_of(const box& in, steps& to) {
    const places at(in);
    for (int a = 0; a < 3; ++a) to[a] = at.stride(a);
  }
  // Copies a part from the memory of one box to that of another.
  void copy(const element* from, const box& in, const box& part, element* to, const box& out) const {
    steps from_step, to_step, count;
    steps_of(in, from_step);
    steps_of(out, to_step);
    std::copy_n(part.count.begin(), 3, count);
    kernels_.copy(from + places(in).of(part), from_step, to + places(out).of(part), to_step, count, nullptr);
  }
  void sum(const element* data, const box& in, const box& part, std::size_t to) const {
    const places all({.first = {}, .count = was_.shape});
    steps step, number_step, count;
    steps_of(in, step);
    for (int a = 0; a < 3; ++a) number_step[a] = all.stride(a);
    std::copy_n(part.count.begin(), 3, count);
    kernels_.sum(data + places(in).of(part), step, count, all.of(part), number_step, slot(to), nullptr);
  }
  std::vector<std::uint64_t> read_sums(std::size_t first) const {
    std::vector<std::uint64_t> made(ranks_);
    room_.on->copy(made.data(), slot(first), static_cast<std::int64_t>(made.size() * sizeof(std::uint64_t)), nullptr);
    room_.on->synchronize(nullptr);
    return made;
  }

  bool exchange_once(inject::active_injector& injector) {
    const box mine = was_.of(me_), next = becomes_.of(me_);
    room_.on->zero(room_.sums.data(), room_.sums.bytes(), nullptr);
    for (std::size_t p = 0; verify_ && p < ranks_; ++p) sum(from_, mine, sent_to(p), p);
    for (std::size_t p = 0; p < ranks_; ++p)
      if (room_.peers || p == me_) copy(from_, mine, sent_to(p), halves_[p], becomes_.of(p));
    if (!room_.peers) by_packed_blocks(injector);
    const std::vector<std::uint64_t> sent = read_sums(0);
    for (std::size_t p = 0; p < ranks_; ++p)
      if (room_.peers || p == me_) strike(site::block, p, halves_[p], becomes_.of(p), sent_to(p), injector);
    const auto expected = over_.gather(std::span<const std::uint64_t>(sent));  // all have stored
    for (std::size_t q = 0; q < ranks_; ++q) strike(site::copy, q, here_, next, come_from(q), injector);
    if (!verify_) return true;
    for (std::size_t q = 0; q < ranks_; ++q) sum(here_, next, come_from(q), ranks_ + q);
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
    if (room_.packed[which].bytes() < end) room_.packed[which] = ballast::cuda::device_buffer(room_.on, end);
    made.data = static_cast<unsigned char*>(room_.packed[which].data());
    return made;
  }
  static std::int64_t bytes_of(const box& part) { return part.size() * k_bytes; }

  void by_packed_blocks(inject::active_injector& injector) {
    const packing out = room_for(0, [&](std::size_t p) { return sent_to(p); });
    const packing in = room_for(1, [&](std::size_t q) { return come_from(q); });
    for (std::size_t p = 0; p < ranks_; ++p)
      if (p != me_) copy(from_, was_.of(me_), sent_to(p), reinterpret_cast<element*>(out.data + out.at[p]), sent_to(p));
    room_.link != nullptr ? through_link(out, in, injector) : through_host(out, in, injector);
    for (std::size_t q = 0; q < ranks_; ++q)
      if (q != me_) copy(reinterpret_cast<const element*>(in.data + in.at[q]), come_from(q), come_from(q), here_, becomes_.of(me_));
  }

  void through_link(const packing& out, const packing& in, inject::active_injector& injector) {
    std::vector<wire::nccl_link::block> go(ranks_), come(ranks_);
    for (std::size_t p = 0; p < ranks_; ++p) {
      if (p == me_) continue;
      strike(site::block, p, reinterpret_cast<element*>(out.data + out.at[p]), sent_to(p), sent_to(p), injector);
      go[p] = {out.data + out.at[p], bytes_of(sent_to(p))};
      come[p] = {in.data + in.at[p], bytes_of(come_from(p))};
    }
    room_.link->exchange(go, come, nullptr);
    room_.link->finish(nullptr);
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
        if (p != me_)
          room_.on->copy(staged + static_cast<std::int64_t>(p) * chunk, out.data + out.at[p] + begin, size(sent_to(p)), nullptr);
      room_.on->synchronize(nullptr);
      for (std::size_t p = 0; p < ranks_ && begin == 0; ++p) {
        if (p == me_) continue;
        (void)injector.strike(site::block, {.interval = static_cast<std::int64_t>(p), .intervals = static_cast<std::int64_t>(ranks_)},
                              reinterpret_cast<T*>(staged + static_cast<std::int64_t>(p) * chunk),
                              size(sent_to(p)) / static_cast<std::int64_t>(sizeof(T)));
      }
      over_.barrier();  // the chunks of all are there
      for (std::size_t q = 0; q < ranks_; ++q)
        if (q != me_)
          room_.on->copy(in.data + in.at[q] + begin, staged_[q] + static_cast<std::int64_t>(me_) * chunk, size(come_from(q)), nullptr);
      room_.on->synchronize(nullptr);
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
      room_.on->copy(line.data(), there, bytes, nullptr);
      room_.on->synchronize(nullptr);
      (void)injector.strike(where, {.interval = static_cast<std::int64_t>(other), .intervals = static_cast<std::int64_t>(ranks_)},
                            reinterpret_cast<T*>(line.data()), 2 * static_cast<std::int64_t>(line.size()));
      room_.on->copy(there, line.data(), bytes, nullptr);
      room_.on->synchronize(nullptr);
    }
  }

  division_of_array was_, becomes_;
  wire::exchange& over_;
  device_room& room_;
  const cuda::box_kernels& kernels_;
  std::size_t me_, ranks_;
  const element* from_ = nullptr;
  element* here_ = nullptr;
  std::vector<element*> halves_;
  std::vector<unsigned char*> staged_;
  bool verify_ = true;
};

}  // namespace ballast::fft
