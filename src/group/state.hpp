// The state of a group that its handles share.
// Layer: group.
#pragma once

#include <memory>
#include <utility>

#include <ballast/group.hpp>

#include "group/exchange.hpp"

namespace ballast {
inline namespace abi_1 {

struct group::state {
  state(std::shared_ptr<transport> over, const group_options& how) : over(std::move(over), how) {}
  wire::exchange over;
};

}  // namespace abi_1
}  // namespace ballast
