// A place where the threads of several devices tell each other, turn by turn, which memory they offer, and which event follows its writing.
// The host waits for no work of a device here.
// Layer: group. docs/design/distributed.md, "Devices".
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/device/device.hpp"
#include "group/exchange.hpp"

namespace ballast::wire {

class device_meeting {
 public:
  struct offer {
    const void* memory = nullptr;
    const cuda::stream_event* written = nullptr;
  };

  // `peers`: whether the devices reach each other's memory.
  device_meeting(std::size_t ranks, bool peers) : peers_(peers) {
    for (std::size_t p = 0; p < ranks; ++p) ranks_.push_back(std::make_unique<own>());
  }
  bool peers() const { return peers_; }

  // The number of the next turn of a rank; all ranks take the same turns. A turn's memory and event are used again two turns later: by then
  // all have ordered their reading before what they offered in between.
  std::uint64_t turn(std::size_t rank) const { return ranks_[rank]->turns.load(std::memory_order_relaxed); }
  void tell(std::size_t rank, const offer& what) {
    own& mine = *ranks_[rank];
    const std::uint64_t turn = mine.turns.load(std::memory_order_relaxed);
    mine.offers[turn % 2] = what;
    mine.turns.store(turn + 1, std::memory_order_release);
  }
  // Returns what a rank offers in this turn. Throws as an exchange if the rank has ended.
  offer of(std::size_t rank, std::uint64_t turn, exchange& over) const {
    const own& there = *ranks_[rank];
    for (int turns = 0; there.turns.load(std::memory_order_acquire) <= turn; ++turns) {
      if (turns % 64 == 63 && over.has_ended(rank)) over.barrier();
      if (turns < 4000)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return there.offers[turn % 2];
  }

 private:
  struct own {
    std::atomic<std::uint64_t> turns{0};
    offer offers[2];
  };
  bool peers_;
  std::vector<std::unique_ptr<own>> ranks_;
};

}  // namespace ballast::wire
