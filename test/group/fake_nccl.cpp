// See fake_nccl.hpp. It has no thread of its own: each call moves on what can move.
#include "group/fake_nccl.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <ballast/error.hpp>

#include "core/counter_rng.hpp"
#include "cuda/memory/shared_state.hpp"
#include "group/nccl.hpp"
#include "group/state.hpp"
#include "simt/emulated_device.hpp"

namespace ballast::test {

namespace {

using clock = std::chrono::steady_clock;

enum class kind { send, receive, sum };
struct operation {
  kind what = kind::send;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
  int peer = -1;
  bool done = false;
  std::uint64_t number = 0;
  std::uint64_t block = 0;  // the number among short ones
  clock::time_point due{};
};
struct group_of_operations {
  std::vector<operation> all;
  const void* stream = nullptr;
};
// One rank of one communicator.
struct member {
  int world = 0, rank = 0, size = 1, device = 0;
  bool aborted = false;
  int splits = 0;
  std::deque<group_of_operations> waiting;
};

struct library {
  std::mutex mutex;
  std::vector<std::unique_ptr<member>> members;
  std::map<int, std::vector<member*>> worlds;  // by number: its members by rank
  std::map<std::pair<int, int>, int> split;    // (parent, number of the split) → world
  std::vector<nccl_strike> strikes;
  std::map<int, std::uint64_t> sent, blocks, sums;  // by rank
  std::map<int, std::uint64_t> ends_at;
  std::set<int> ended, joined;
  std::uint64_t struck = 0;
  int next_world = 1;
};
library& state() {
  static library made;
  return made;
}

// The calls between ncclGroupStart and ncclGroupEnd of a thread.
thread_local int depth = 0;
thread_local std::vector<std::pair<member*, std::pair<const void*, operation>>> gathered;

constexpr std::size_t k_block = 4096;  // bytes; slots are longer

const nccl_strike* strike_of(library& all, bool sum, int rank, const operation& what) {
  if (!all.joined.contains(rank)) return nullptr;
  for (const nccl_strike& each : all.strikes) {
    if (each.of_blocks && what.bytes >= k_block) continue;
    const std::uint64_t number = each.of_blocks ? what.block : what.number;
    const std::size_t bytes = what.bytes;
    const bool of_sum = each.what == nccl_fault::bit_of_sum || each.what == nccl_fault::left_out;
    if (of_sum == sum && each.rank == rank && number >= each.number &&
        number - each.number<each.count&& static_cast<std::int64_t>(bytes)> each.longer)
      return &each;
  }
  return nullptr;
}

void flip(void* data, std::size_t bytes, std::uint64_t random) {
  static_cast<unsigned char*>(data)[random / 8 % bytes] ^= static_cast<unsigned char>(1U << random % 8);
}

void carry(library& all, const operation& from, operation& to, int sender) {
  const nccl_strike* const found = strike_of(all, false, sender, from);
  auto* const target = static_cast<unsigned char*>(to.to);
  if (found == nullptr || found->what == nccl_fault::late) {
    if (found != nullptr) ++all.struck;
    std::memcpy(target, from.from, from.bytes);
    return;
  }
  ++all.struck;
  switch (found->what) {
    case nccl_fault::bit:
      std::memcpy(target, from.from, from.bytes);
      flip(target, from.bytes, core::random_bits(found->seed, 0, from.number));
      return;
    case nccl_fault::swapped:
      std::memcpy(target, from.from, from.bytes);
      std::rotate(target, target + from.bytes / 16 * 8, target + from.bytes);
      return;
    case nccl_fault::half: std::memcpy(target, from.from, from.bytes / 2); return;
    default: return;
  }
}

// Moves what both sides have begun. With the lock.
void move_all(library& all) {
  bool moved = true;
  while (moved) {
    moved = false;
    for (auto& [world, members] : all.worlds) {
      const auto live = [&](const member* each) { return each != nullptr && !each->aborted && !all.ended.contains(each->rank); };
      for (member* const one : members) {
        if (!live(one) || one->waiting.empty()) continue;
        for (operation& out : one->waiting.front().all) {
          if (out.done || out.what != kind::send) continue;
          if (const auto end = all.ends_at.find(one->rank);
              end != all.ends_at.end() && all.joined.contains(one->rank) && out.number >= end->second) {
            all.ended.insert(one->rank);
            break;
          }
          member* const other = members[static_cast<std::size_t>(out.peer)];
          if (!live(other) || other->waiting.empty() || clock::now() < out.due) continue;
          for (operation& in : other->waiting.front().all) {
            if (in.done || in.what != kind::receive || in.peer != one->rank) continue;
            if (in.bytes != out.bytes) throw error("fake NCCL: expected a receive of as many bytes as are sent");
            carry(all, out, in, one->rank);
            out.done = in.done = moved = true;
            break;
          }
        }
      }
      // Sums, when all have begun theirs.
      const bool sum = std::ranges::all_of(members, [&](const member* each) {
        return live(each) && !each->waiting.empty() && each->waiting.front().all.front().what == kind::sum &&
               !each->waiting.front().all.front().done;
      });
      if (sum && !members.empty()) {
        const std::size_t words = members[0]->waiting.front().all.front().bytes / 8;
        std::vector<std::uint64_t> total(words);
        for (member* const each : members) {
          const operation& own = each->waiting.front().all.front();
          if (own.bytes != 8 * words) throw error("fake NCCL: expected sums of as many words on all ranks");
          const nccl_strike* const found = strike_of(all, true, each->rank, own);
          if (found != nullptr && found->what == nccl_fault::left_out) {
            ++all.struck;
            continue;
          }
          for (std::size_t i = 0; i < words; ++i) {
            std::uint64_t word = 0;
            std::memcpy(&word, static_cast<const unsigned char*>(own.from) + 8 * i, 8);
            total[i] += word;
          }
        }
        for (member* const each : members) {
          operation& own = each->waiting.front().all.front();
          std::memcpy(own.to, total.data(), 8 * words);
          const nccl_strike* const found = strike_of(all, true, each->rank, own);
          if (found != nullptr && found->what == nccl_fault::bit_of_sum) {
            ++all.struck;
            flip(own.to, own.bytes, core::random_bits(found->seed, 0, own.number));
          }
          own.done = true;
        }
        moved = true;
      }
      for (member* const each : members) {
        while (each != nullptr && !each->waiting.empty() && std::ranges::all_of(each->waiting.front().all, &operation::done)) {
          each->waiting.pop_front();
          moved = true;
        }
      }
    }
  }
}

int add(void* communicator, const void* stream, operation what) {
  auto* const one = static_cast<member*>(communicator);
  library& all = state();
  const std::lock_guard lock(all.mutex);
  if (one->aborted) return 5;
  if (all.ended.contains(one->rank)) return 2;
  std::uint64_t& next = what.what == kind::sum ? all.sums[one->rank] : all.sent[one->rank];
  if (what.what != kind::receive) what.number = next++;
  if (what.what == kind::send && what.bytes < k_block) what.block = all.blocks[one->rank]++;
  if (const nccl_strike* const found = strike_of(all, false, one->rank, what);
      what.what == kind::send && found != nullptr && found->what == nccl_fault::late)
    what.due = clock::now() + std::chrono::milliseconds(1 + found->seed % 20);
  if (depth > 0) {
    gathered.push_back({one, {stream, what}});
    return 0;
  }
  one->waiting.push_back({{what}, stream});
  return nccl::k_success;
}

}  // namespace

void begin_fake_nccl(std::vector<nccl_strike> strikes) {
  library& all = state();
  const std::lock_guard lock(all.mutex);
  all.members.clear();
  all.worlds.clear();
  all.split.clear();
  all.sent.clear();
  all.blocks.clear();
  all.sums.clear();
  all.ended.clear();
  all.joined.clear();
  all.ends_at.clear();
  all.struck = 0;
  all.next_world = 1;
  all.strikes = std::move(strikes);
}

std::uint64_t struck_nccl() {
  library& all = state();
  const std::lock_guard lock(all.mutex);
  return all.struck;
}

void* make_fake_communicator(int rank, int size, int device) {
  library& all = state();
  const std::lock_guard lock(all.mutex);
  std::vector<member*>& members = all.worlds[0];
  members.resize(static_cast<std::size_t>(size));
  all.members.push_back(std::make_unique<member>(member{0, rank, size, device, false, 0, {}}));
  return members[static_cast<std::size_t>(rank)] = all.members.back().get();
}

void end_fake_rank(int rank) {
  library& all = state();
  const std::lock_guard lock(all.mutex);
  all.ended.insert(rank);
}

void end_fake_rank_at(int rank, std::uint64_t number) {
  library& all = state();
  const std::lock_guard lock(all.mutex);
  all.ends_at[rank] = number;
}

bool fake_nccl_works(int device, const void* stream, bool hopeless) {
  library& all = state();
  const std::lock_guard lock(all.mutex);
  move_all(all);
  if (hopeless && !all.ended.empty()) return false;
  return std::ranges::any_of(all.members, [&](const auto& each) {
    return each->device == device && !each->aborted &&
           std::ranges::any_of(each->waiting, [&](const group_of_operations& one) { return one.stream == stream; });
  });
}

// ---------------------------------------------------------------- The functions of NCCL.

#pragma GCC visibility push(default)
extern "C" {

const char* ncclGetErrorString(int status) { return status == 6 ? "remote process exited or there was a network error" : "an error"; }
int ncclCommCount(void* communicator, int* made) { return *made = static_cast<member*>(communicator)->size, 0; }
int ncclCommUserRank(void* communicator, int* made) { return *made = static_cast<member*>(communicator)->rank, 0; }
int ncclCommCuDevice(void* communicator, int* made) { return *made = static_cast<member*>(communicator)->device, 0; }

int ncclCommGetAsyncError(void* communicator, int* made) {
  library& all = state();
  const std::lock_guard lock(all.mutex);
  const member& one = *static_cast<member*>(communicator);
  move_all(all);
  if (all.ended.contains(one.rank)) return 2;
  // A split ends when all have come.
  const std::vector<member*>& members = all.worlds[one.world];
  const bool here = std::ranges::all_of(members, [](const member* each) { return each != nullptr; });
  *made = here ? nccl::k_success : nccl::k_in_progress;
  return 0;
}

int ncclCommSplit(void* communicator, int, int key, void** made, nccl::configuration* how) {
  library& all = state();
  const std::lock_guard lock(all.mutex);
  member& one = *static_cast<member*>(communicator);
  if (how->magic != 0xcafebeef || how->blocking != 0 || key != one.rank) return 4;
  int& world = all.split[{one.world, one.splits++}];
  if (world == 0) world = all.next_world++;
  std::vector<member*>& members = all.worlds[world];
  members.resize(static_cast<std::size_t>(one.size));
  all.members.push_back(std::make_unique<member>(member{world, one.rank, one.size, one.device, false, 0, {}}));
  *made = members[static_cast<std::size_t>(one.rank)] = all.members.back().get();
  return nccl::k_in_progress;
}

int ncclCommAbort(void* communicator) {
  library& all = state();
  const std::lock_guard lock(all.mutex);
  static_cast<member*>(communicator)->aborted = true;
  return 0;
}

int ncclGroupStart() { return ++depth, 0; }
int ncclGroupEnd() {
  if (--depth > 0) return 0;
  library& all = state();
  const std::lock_guard lock(all.mutex);
  std::map<member*, group_of_operations> groups;
  for (auto& [one, what] : gathered) {
    groups[one].stream = what.first;
    groups[one].all.push_back(what.second);
  }
  gathered.clear();
  for (auto& [one, group] : groups) one->waiting.push_back(std::move(group));
  return nccl::k_in_progress;
}
int ncclSend(const void* from, std::size_t count, int, int peer, void* communicator, void* stream) {
  return add(communicator, stream, {.what = kind::send, .from = from, .bytes = count, .peer = peer});
}
int ncclRecv(void* to, std::size_t count, int, int peer, void* communicator, void* stream) {
  return add(communicator, stream, {.what = kind::receive, .to = to, .bytes = count, .peer = peer});
}
int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation_of, void* communicator, void* stream) {
  if (type != static_cast<int>(nccl::data_type::words) || operation_of != nccl::k_sum) return 4;
  return add(communicator, stream, {.what = kind::sum, .from = from, .to = to, .bytes = 8 * count});
}

}  // extern "C"
#pragma GCC visibility pop

// ---------------------------------------------------------------- Devices.

namespace {

// The rank of this thread calls it while it waits. Returns whether there is still something to wait for.
thread_local std::function<bool()> answer;

struct recorded final : cuda::stream_event {
  std::unique_ptr<cuda::stream_event> inner;
  cuda::stream on = nullptr;
};

}  // namespace

// On a GPU the host would go on, and answer the other ranks when it waits for the device; so it goes on when a rank has left the call.
void nccl_device::wait_for(const void* stream) const {
  const auto start = clock::now();
  while (fake_nccl_works(number_, stream, true)) {
    if (answer && clock::now() - start > std::chrono::milliseconds(20)) {
      const auto own = std::exchange(answer, nullptr);
      const bool waits = own();
      answer = own;
      if (!waits) return;
    }
    std::this_thread::yield();
  }
}
void nccl_device::copy(void* to, const void* from, std::int64_t bytes, cuda::stream on) {
  wait_for(on);
  inner_->copy(to, from, bytes, on);
}
void nccl_device::copy_columns(void* to, std::int64_t to_pitch, const void* from, std::int64_t from_pitch, std::int64_t bytes,
                               std::int64_t columns, cuda::stream on) {
  wait_for(on);
  inner_->copy_columns(to, to_pitch, from, from_pitch, bytes, columns, on);
}
void nccl_device::zero(void* memory, std::int64_t bytes, cuda::stream on) {
  wait_for(on);
  inner_->zero(memory, bytes, on);
}
void nccl_device::launch(const cuda::kernel& which, std::int64_t blocks, std::span<const cuda::kernel_argument> arguments,
                         cuda::stream on) {
  wait_for(on);
  inner_->launch(which, blocks, arguments, on);
}
void nccl_device::synchronize(cuda::stream on) {
  wait_for(on);
  inner_->synchronize(on);
}
std::unique_ptr<cuda::stream_event> nccl_device::make_event(bool timed) {
  auto made = std::make_unique<recorded>();
  made->inner = inner_->make_event(timed);
  return made;
}
void nccl_device::record(cuda::stream_event& event, cuda::stream on) {
  auto& own = dynamic_cast<recorded&>(event);
  own.on = on;
  inner_->record(*own.inner, on);
}
void nccl_device::wait(const cuda::stream_event& event, cuda::stream on) {
  const auto& own = dynamic_cast<const recorded&>(event);
  wait_for(own.on);
  inner_->wait(*own.inner, on);
}
bool nccl_device::passed(const cuda::stream_event& event) {
  const auto& own = dynamic_cast<const recorded&>(event);
  return !fake_nccl_works(number_, own.on, false) && inner_->passed(*own.inner);
}

nccl_devices::nccl_devices(int count) {
  for (int i = 0; i < count; ++i)
    all_.push_back(std::make_shared<nccl_device>(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(4)), i));
  cuda::override_devices(all_);
}
nccl_devices::~nccl_devices() {
  cuda::forget_idle_states();
  cuda::override_devices({});
}

namespace {
// The operations of the rank that make its group are over: those that are struck are numbered from here.
void count_from_here(int rank) {
  library& all = state();
  const std::lock_guard lock(all.mutex);
  all.sent[rank] = all.blocks[rank] = all.sums[rank] = 0;
  all.joined.insert(rank);
}
}  // namespace

std::vector<std::exception_ptr> run_nccl_ranks(int ranks, const group_options& how, const std::function<void(int, const group&)>& work) {
  std::vector<std::exception_ptr> made(static_cast<std::size_t>(ranks));
  std::vector<void*> communicators;
  for (int r = 0; r < ranks; ++r) communicators.push_back(make_fake_communicator(r, ranks, r));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        const group own = group::nccl(communicators[static_cast<std::size_t>(r)], how);
        count_from_here(r);
        const struct answering {
          explicit answering(wire::exchange& over) {
            answer = [&over] { return over.answer(), !over.has_call_ended(); };
          }
          ~answering() { answer = nullptr; }
        } scope(*own.internal()->over);
        work(r, own);
      } catch (...) {
        made[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  return made;
}

}  // namespace ballast::test
