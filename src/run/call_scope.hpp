// The scope of a public call: the memory of its plan, its device, and the error class of exhausted memory.
// Layer: run.
#pragma once

#include <new>
#include <string_view>
#include <utility>

#include <ballast/error.hpp>
#include <ballast/execution.hpp>

#include "core/fork.hpp"
#include "core/format.hpp"
#include "core/memory.hpp"
#include "cuda/device/device.hpp"

namespace ballast::run {

// Calls work() with the memory of a plan (`memory`, null: the heap) and its device. std::bad_alloc becomes out_of_memory_error.
template <class Work>
decltype(auto) in_call(core::arena* memory, int device, std::string_view token, Work&& work) {
  const core::active_call call;
  const core::arena_scope pool(memory);
  const cuda::device_scope on(device);
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    throw out_of_memory_error(fmt::format("{}: expected enough memory for the call, got none from the system or the device", token));
  }
}

}  // namespace ballast::run
