// A call on a group of devices of one process: a thread for each device, which exchanges messages with the others as a rank of an engine
// does.
// Layer: group. docs/design/distributed.md, "Devices".
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/group.hpp>

#include "core/function_ref.hpp"
#include "group/exchange.hpp"
#include "group/thread_engine.hpp"
#include "run/settings.hpp"

namespace ballast::wire {

// Returns whether the execution has a group of devices.
bool on_devices(const execution& where);

// Refuse what a group of devices cannot have, when a plan is made and when a call begins: another backend than cuda (unsupported_error); a
// device beside the list, or over NCCL another one than the rank's, a stream, a workspace (invalid_argument_error).
void check_execution_on_devices(const execution& where, std::string_view token);
void check_call_on_devices(const call& now, std::string_view token);

class device_threads {
 public:
  // `of`: a group of devices, of which the first `ranks` ≥ 1 take part. Their exchanges live as long as this object.
  device_threads(const group& of, std::size_t ranks);
  std::size_t size() const { return ranks_.size(); }
  int device(std::size_t p) const { return devices_[p]; }
  exchange& over(std::size_t p) const;
  // Returns the settings of thread p, as a rank of these threads on its device. Callbacks are called from the thread of the caller, and
  // injected faults strike one device.
  run::settings settings_of(const run::settings& how, std::size_t p) const;

  // Waits for the default stream of each device of the group, also of those that take no part, if one of these operands lies on a device:
  // the threads use other streams than the caller.
  void wait_for(std::initializer_list<const void*> operands) const;

  // Calls work(p) for each rank on a thread of its own, the first on this one. None begins before all have a thread. Throws what says most
  // of what they threw. A rank that throws is lost to the others.
  void run(std::string_view token, core::function_ref<void(std::size_t)> work);

 private:
  void run_together(std::string_view token, core::function_ref<void(std::size_t)> one) const;

  std::vector<int> devices_, all_;  // those that take part, and all of the group
  std::shared_ptr<switchboard> board_;
  std::vector<group> ranks_;
};

}  // namespace ballast::wire
