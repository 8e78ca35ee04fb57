// Threads of devices, and which of their exceptions leaves the call. See device_threads.hpp.
#include "group/device_threads.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"
#include "group/nccl_engine.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "inject/plan.hpp"

namespace ballast::wire {

namespace {

// How much an exception says: that another rank has left says less than why it left.
int weight_of(const std::exception_ptr& failure) {
  if (failure == nullptr) return 0;
  try {
    std::rethrow_exception(failure);
  } catch (const rank_ended&) {
    return 1;
  } catch (const left_by_other&) {
    return 2;
  } catch (const rank_lost_error&) {
    return 3;
  } catch (...) {
    return 4;
  }
}

}  // namespace

bool on_devices(const execution& where) { return where.group && !where.group.internal()->devices.empty(); }

void check_execution_on_devices(const execution& where, std::string_view token) {
  if (where.backend != backend::automatic && where.backend != backend::cuda)
    throw unsupported_error(fmt::format("{}: group: expected backend cuda for devices, got {}", token, to_string(where.backend)));
  if (where.device < 0) return;
  const nccl_link* const link = where.group.internal()->link.get();
  if (link == nullptr)
    throw invalid_argument_error(fmt::format("{}: device: expected -1 for a group of devices, got {}", token, where.device));
  if (where.device != link->device_number())
    throw invalid_argument_error(
        fmt::format("{}: device: expected {}, that of this rank, or -1, got {}", token, link->device_number(), where.device));
}

void check_call_on_devices(const call& now, std::string_view token) {
  if (now.stream != nullptr)
    throw invalid_argument_error(fmt::format("{}: stream: expected the default stream for a group of devices, got another", token));
  if (!now.workspace.empty())
    throw invalid_argument_error(
        fmt::format("{}: workspace: expected none for a group of devices, got {} bytes", token, now.workspace.size()));
}

device_threads::device_threads(const group& of, std::size_t ranks) {
  const group::state& state = *of.internal();
  all_ = state.devices;
  devices_.assign(state.devices.begin(), state.devices.begin() + static_cast<std::ptrdiff_t>(ranks));
  board_ = std::make_shared<switchboard>(static_cast<int>(ranks), state.faults, true);
  group_options how = state.how;
  how.patience = 1e15;  // a thread that computes is silent, and none is lost without a word
  for (std::size_t p = 0; p < ranks; ++p) ranks_.emplace_back(std::make_shared<thread_engine>(board_, static_cast<int>(p)), how);
}

exchange& device_threads::over(std::size_t p) const { return *ranks_[p].internal()->over; }

run::settings device_threads::settings_of(const run::settings& how, std::size_t p) const {
  run::settings made = how;
  made.backend = backend::cuda;
  made.device = devices_[p];
  made.group = ranks_[p];
  made.threads = std::max(1, core::thread_count(how.threads) / static_cast<int>(size()));
  const bool struck = how.faults != nullptr && !how.faults->requests().empty() && how.faults->requests()[0].seed % size() == p;
  if (!struck) made.faults = nullptr;
  if (p == 0) return made;
  made.on_event = {};
  made.on_progress = progress_of_all({}, static_cast<bool>(how.on_progress));
  return made;
}

void device_threads::wait_for(std::initializer_list<const void*> operands) const {
  const auto on_host = [](const void* each) { return cuda::residence_of(each) == cuda::residence::host; };
  if (std::ranges::all_of(operands, on_host)) return;
  for (const int number : all_) {
    const cuda::device_scope on(number);
    cuda::current_device()->synchronize(nullptr);
  }
}

void device_threads::run(std::string_view token, core::function_ref<void(std::size_t)> work) {
  std::vector<std::exception_ptr> failures(size());
  run_together(token, [&](std::size_t p) {
    try {
      work(p);
    } catch (...) {
      failures[p] = std::current_exception();
      board_->end(static_cast<int>(p));  // wherever it left the call, the others do not wait for it
    }
  });
  const auto worst = std::ranges::max_element(failures, {}, weight_of);
  if (*worst != nullptr) std::rethrow_exception(*worst);
}

void device_threads::run_together(std::string_view token, core::function_ref<void(std::size_t)> one) const {
  enum : int { waits, begins, gives_up };
  std::atomic<int> gate{waits};
  std::vector<std::thread> threads;
  const auto open = [&](int state) {
    gate = state;
    gate.notify_all();
  };
  threads.reserve(size());
  try {
    for (std::size_t p = 1; p < size(); ++p) {
      threads.emplace_back([&gate, &one, p] {
        gate.wait(waits);
        if (gate == begins) one(p);
      });
    }
  } catch (const std::exception& failed) {
    open(gives_up);
    for (std::thread& each : threads) each.join();
    throw error(fmt::format("{}: expected a thread for each device, got: {}", token, failed.what()));
  }
  open(begins);
  one(0);
  for (std::thread& each : threads) each.join();
}

}  // namespace ballast::wire
