// The state of a group that its handles share.
// Layer: group.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ballast/group.hpp>

#include "group/exchange.hpp"
#include "group/thread_engine.hpp"

namespace ballast {
inline namespace abi_1 {

struct group::state {
  state(std::shared_ptr<transport> engine, const group_options& how) : over(std::in_place, std::move(engine), how), how(how) {}
  state(std::vector<int> numbers, const group_options& how) : devices(std::move(numbers)), how(how) {}

  std::optional<wire::exchange> over;  // for one rank of an engine
  std::vector<int> devices;            // empty: the group has an engine
  group_options how;
  std::vector<wire::wire_fault> faults;  // faults of messages between the threads of devices, for tests
};

}  // namespace abi_1
}  // namespace ballast
