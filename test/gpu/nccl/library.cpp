// Passes NCCL's calls on, and strikes some. See library.hpp.
#include "nccl/library.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <ballast/error.hpp>

#include "core/counter_rng.hpp"
#include "cuda/device/device.hpp"
#include "group/nccl.hpp"

namespace ballast::gpu_check::loaded_nccl {
namespace {

using handle = void*;

struct functions {
  const char* (*ncclGetErrorString)(int) = nullptr;
  int (*ncclGetVersion)(int*) = nullptr;
  int (*ncclGetUniqueId)(unique_id*) = nullptr;
  int (*ncclCommInitRank)(handle*, int, unique_id, int) = nullptr;
  int (*ncclCommDestroy)(handle) = nullptr;
  int (*ncclCommCount)(handle, int*) = nullptr;
  int (*ncclCommUserRank)(handle, int*) = nullptr;
  int (*ncclCommCuDevice)(handle, int*) = nullptr;
  int (*ncclCommGetAsyncError)(handle, int*) = nullptr;
  int (*ncclCommSplit)(handle, int, int, handle*, void*) = nullptr;
  int (*ncclCommAbort)(handle) = nullptr;
  int (*ncclSend)(const void*, std::size_t, int, int, handle, void*) = nullptr;
  int (*ncclRecv)(void*, std::size_t, int, int, handle, void*) = nullptr;
  int (*ncclAllReduce)(const void*, void*, std::size_t, int, int, handle, void*) = nullptr;
  int (*ncclGroupStart)() = nullptr;
  int (*ncclGroupEnd)() = nullptr;
};
functions real;

// The fault to make, and counts. One thread calls NCCL.
struct {
  std::optional<strike> armed;
  std::uint64_t messages = 0, sums = 0, struck = 0;
  std::optional<std::uint64_t> end;
  std::uint64_t operations = 0;
  std::atomic<double>* when = nullptr;
  std::vector<cuda::device_buffer> kept;  // copies that NCCL may still read
} state;

void check(int status, const char* call) {
  if (status != ballast::nccl::k_success) throw error(std::string(call) + ": expected success, got " + real.ncclGetErrorString(status));
}

bool of_sums(fault what) { return what == fault::left_out || what == fault::bit_of_sum; }

void count_operation() {
  if (!state.end || state.operations++ < *state.end) return;
  if (state.when != nullptr) state.when->store(now());
  kill(getpid(), SIGKILL);
}

bool meets(bool sum, std::size_t bytes) {
  if (!state.armed || of_sums(state.armed->what) != sum || static_cast<std::int64_t>(bytes) <= state.armed->longer) return false;
  std::uint64_t& next = sum ? state.sums : state.messages;
  const std::uint64_t number = next++;
  if (number < state.armed->number || number - state.armed->number >= state.armed->count) return false;
  ++state.struck;
  return true;
}

// Flips a bit of device memory. With odd seeds it is among the first 256 bytes, where a short message is. Each row of a sum has words
// after its features that nothing reads. The first 16 words of a fit with 16 features or more are read.
constexpr std::size_t k_read_of_sum = 128;  // bytes
void flip(cuda::device& on, char* memory, std::size_t bytes, cuda::stream order) {
  const std::uint64_t seed = state.armed->seed, random = core::random_bits(seed, 1, state.struck);
  const std::size_t within = seed % 2 == 1 ? std::min<std::size_t>(bytes, 256) : bytes;
  char* const at = memory + random / 8 % within;
  char byte = 0;
  on.copy(&byte, at, 1, order);
  on.synchronize(order);
  byte = static_cast<char>(byte ^ (1 << random % 8));
  on.copy(at, &byte, 1, order);
  on.synchronize(order);
}

// Returns a struck copy of what a message would send.
const void* struck_copy(const void* from, std::size_t bytes, cuda::stream order) {
  const std::shared_ptr<cuda::device> on = cuda::current_device();
  const auto all = static_cast<std::int64_t>(bytes), half = all / 16 * 8;
  auto& copy = state.kept.emplace_back(on, all);
  auto* const to = static_cast<char*>(copy.data());
  const auto* const source = static_cast<const char*>(from);
  on->synchronize(nullptr);
  switch (state.armed->what) {
    case fault::stale: on->zero(to, all, order); break;
    case fault::swapped:
      on->copy(to, source + half, all - half, order);
      on->copy(to + (all - half), source, half, order);
      break;
    default:
      on->copy(to, source, all, order);
      flip(*on, to, bytes, order);
      break;
  }
  return to;
}

template <class Function>
void bind(void* library, Function& target, const char* name) {
  target = reinterpret_cast<Function>(dlsym(library, name));
  if (target == nullptr) throw error(std::string("NCCL: the library has no function ") + name);
}

}  // namespace

const char* to_string(fault what) {
  constexpr const char* names[] = {"bit", "swapped", "stale", "left out", "bit of sum"};
  return names[static_cast<std::size_t>(what)];
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void load(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw error(std::string("NCCL: ") + dlerror());
#define BALLAST_BIND(name) bind(library, real.name, #name)
  BALLAST_BIND(ncclGetErrorString);
  BALLAST_BIND(ncclGetVersion);
  BALLAST_BIND(ncclGetUniqueId);
  BALLAST_BIND(ncclCommInitRank);
  BALLAST_BIND(ncclCommDestroy);
  BALLAST_BIND(ncclCommCount);
  BALLAST_BIND(ncclCommUserRank);
  BALLAST_BIND(ncclCommCuDevice);
  BALLAST_BIND(ncclCommGetAsyncError);
  BALLAST_BIND(ncclCommSplit);
  BALLAST_BIND(ncclCommAbort);
  BALLAST_BIND(ncclSend);
  BALLAST_BIND(ncclRecv);
  BALLAST_BIND(ncclAllReduce);
  BALLAST_BIND(ncclGroupStart);
  BALLAST_BIND(ncclGroupEnd);
#undef BALLAST_BIND
}

std::string version() {
  int number = 0;
  check(real.ncclGetVersion(&number), "ncclGetVersion");
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

unique_id make_id() {
  unique_id made;
  check(real.ncclGetUniqueId(&made), "ncclGetUniqueId");
  return made;
}

void* join(const unique_id& id, int rank, int size) {
  handle made = nullptr;
  check(real.ncclCommInitRank(&made, size, id, rank), "ncclCommInitRank");
  return made;
}

void leave(void* communicator) { check(real.ncclCommDestroy(communicator), "ncclCommDestroy"); }

void arm(const strike& what) {
  disarm();
  state.armed = what;
}

void disarm() {
  state.armed.reset();
  state.messages = state.sums = state.struck = 0;
  state.kept.clear();
}

std::uint64_t struck() { return state.struck; }

void end_at(std::uint64_t number, std::atomic<double>* when) {
  state.operations = 0;
  state.end = number;
  state.when = when;
}

}  // namespace ballast::gpu_check::loaded_nccl

// ---------------------------------------------------------------- NCCL's functions.

namespace {
namespace loaded = ballast::gpu_check::loaded_nccl;
}

#pragma GCC visibility push(default)
extern "C" {

const char* ncclGetErrorString(int status) { return loaded::real.ncclGetErrorString(status); }
int ncclCommCount(void* communicator, int* made) { return loaded::real.ncclCommCount(communicator, made); }
int ncclCommUserRank(void* communicator, int* made) { return loaded::real.ncclCommUserRank(communicator, made); }
int ncclCommCuDevice(void* communicator, int* made) { return loaded::real.ncclCommCuDevice(communicator, made); }
int ncclCommGetAsyncError(void* communicator, int* made) { return loaded::real.ncclCommGetAsyncError(communicator, made); }
int ncclCommSplit(void* communicator, int color, int key, void** made, void* how) {
  return loaded::real.ncclCommSplit(communicator, color, key, made, how);
}
int ncclCommAbort(void* communicator) { return loaded::real.ncclCommAbort(communicator); }
int ncclSend(const void* from, std::size_t count, int type, int peer, void* communicator, void* stream) {
  loaded::count_operation();
  if (loaded::meets(false, count)) from = loaded::struck_copy(from, count, stream);
  return loaded::real.ncclSend(from, count, type, peer, communicator, stream);
}
int ncclRecv(void* to, std::size_t count, int type, int peer, void* communicator, void* stream) {
  return loaded::real.ncclRecv(to, count, type, peer, communicator, stream);
}
int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation, void* communicator, void* stream) {
  loaded::count_operation();
  const bool strikes = loaded::meets(true, 8 * count);
  if (strikes && loaded::state.armed->what == loaded::fault::left_out) {
    const std::shared_ptr<ballast::cuda::device> on = ballast::cuda::current_device();
    auto& zeros = loaded::state.kept.emplace_back(on, static_cast<std::int64_t>(8 * count));
    on->synchronize(nullptr);
    on->zero(zeros.data(), zeros.bytes(), stream);
    from = zeros.data();
  }
  const int status = loaded::real.ncclAllReduce(from, to, count, type, operation, communicator, stream);
  if (strikes && loaded::state.armed->what == loaded::fault::bit_of_sum) {
    // A communicator that does not block may not have enqueued the sum yet.
    int now = ballast::nccl::k_in_progress;
    while (now == ballast::nccl::k_in_progress && loaded::real.ncclCommGetAsyncError(communicator, &now) == ballast::nccl::k_success) {
    }
    if (now == ballast::nccl::k_success)
      loaded::flip(*ballast::cuda::current_device(), static_cast<char*>(to), std::min(8 * count, loaded::k_read_of_sum), stream);
  }
  return status;
}
int ncclGroupStart() { return loaded::real.ncclGroupStart(); }
int ncclGroupEnd() { return loaded::real.ncclGroupEnd(); }

}  // extern "C"
#pragma GCC visibility pop
