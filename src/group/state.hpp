// The state of a group that its handles share.
// Layer: group.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ballast/group.hpp>

#include "group/exchange.hpp"
#include "group/nccl_engine.hpp"
#include "group/thread_engine.hpp"

namespace ballast {

namespace wire {
enum class road { none, host, peers, link };
}

inline namespace abi_1 {

struct group::state {
  state(std::shared_ptr<transport> engine, const group_options& how) : over(std::in_place, std::move(engine), how), how(how) {}
  state(std::vector<int> numbers, const group_options& how) : devices(std::move(numbers)), how(how) {}

  std::optional<wire::exchange> over;     // for one rank of an engine
  std::vector<int> devices;               // empty: the group has an engine
  std::shared_ptr<wire::nccl_link> link;  // NCCL: the rank computes on its device
  group_options how;
  // How exchanges between the memories of devices went in the last call that had any.
  std::atomic<wire::road> road = wire::road::none;
  std::atomic<double> seconds = 0;           // the time of that call on its first device, from operands in device memory to a result there
  std::atomic<double> exchange_seconds = 0;  // the part of it in which the first device only exchanged
  std::int64_t piece_bytes = std::int64_t{64} << 20;   // a device transforms about so many before they travel
  std::int64_t block_bytes = std::int64_t{512} << 10;  // a rank transforms about so many for each rank before they travel
  std::atomic<bool> overlap = true;  // false: data travel when all lines are transformed, so that exchange_seconds has it all
  std::int64_t host_chunk = std::int64_t{16} << 20;  // bytes of page-locked memory for each pair of devices that cannot reach each other
  std::vector<wire::wire_fault> faults;              // faults of messages between the threads of devices, for tests
};

}  // namespace abi_1
}  // namespace ballast
