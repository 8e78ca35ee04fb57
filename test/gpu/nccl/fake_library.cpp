// An NCCL for the test of processes.hpp: a shared library with its functions between processes of one machine, over shared memory, for
// memory of the host. Nothing blocks: operations move on when ncclCommGetAsyncError is called, and wait for ever for a process that has
// ended.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int k_most = 4;               // ranks
constexpr std::size_t k_piece = 65536;  // bytes of a mailbox
constexpr int k_in_progress = 7;

struct mailbox {
  std::atomic<std::uint64_t> bytes{0};  // in the piece that waits; 0: none
  unsigned char piece[k_piece];
};
struct world {
  std::atomic<int> came{0};
  mailbox from_to[k_most][k_most];
};

struct operation {
  bool sends = false;
  unsigned char* memory = nullptr;
  std::size_t bytes = 0, done = 0;
  int peer = 0;
  // kept: a sum's words of the other ranks; they are added to `sum` when all its operations are done.
  std::shared_ptr<std::vector<unsigned char>> kept = {};
  std::uint64_t* sum = nullptr;
};

struct communicator {
  std::string name;
  world* shared = nullptr;
  int rank = 0, size = 1, splits = 0;
  std::deque<operation> waiting;
  bool aborted = false;
};

thread_local int depth = 0;

struct unique_id {
  char bytes[128];
};

communicator* open_world(const std::string& name, int rank, int size) {
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, sizeof(world)) != 0) return nullptr;
  void* const memory = mmap(nullptr, sizeof(world), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  auto* const made = new communicator;
  made->name = name;
  made->shared = static_cast<world*>(memory);  // new memory is zero, as a new world is
  made->rank = rank, made->size = size;
  // The last one to come removes the name.
  if (made->shared->came.fetch_add(1) + 1 == size) shm_unlink(name.c_str());
  return made;
}

bool move(communicator& of, operation& what) {
  mailbox& box = what.sends ? of.shared->from_to[of.rank][what.peer] : of.shared->from_to[what.peer][of.rank];
  const std::uint64_t waits = box.bytes.load(std::memory_order_acquire);
  if (what.sends) {
    if (waits != 0) return false;
    const std::size_t count = std::min(k_piece, what.bytes - what.done);
    std::memcpy(box.piece, what.memory + what.done, count);
    what.done += count;
    box.bytes.store(count, std::memory_order_release);
  } else {
    if (waits == 0) return false;
    std::memcpy(what.memory + what.done, box.piece, waits);
    what.done += waits;
    box.bytes.store(0, std::memory_order_release);
  }
  return true;
}

// Operations between the same two ranks move in their order.
void move_all(communicator& of) {
  for (bool moved = true; moved;) {
    moved = false;
    bool busy[2][k_most] = {};
    for (operation& each : of.waiting) {
      bool& before = busy[each.sends ? 1 : 0][each.peer];
      if (before) continue;
      if (each.done < each.bytes) {
        moved = move(of, each) || moved;
        before = each.done < each.bytes;
      }
    }
  }
  while (!of.waiting.empty() && of.waiting.front().done == of.waiting.front().bytes) {
    const operation& first = of.waiting.front();
    for (std::size_t i = 0; first.sum != nullptr && i < first.bytes / 8; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, first.memory + 8 * i, 8);
      first.sum[i] += word;
    }
    of.waiting.pop_front();
  }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* ncclGetErrorString(int status) { return status == 4 ? "invalid argument" : "an error"; }
int ncclGetVersion(int* made) { return *made = 29999, 0; }
int ncclGetUniqueId(unique_id* made) {
  static int number = 0;
  std::snprintf(made->bytes, sizeof made->bytes, "/ballast-fake-nccl-%d-%d", static_cast<int>(getpid()), number++);
  return 0;
}
int ncclCommInitRank(void** made, int size, unique_id id, int rank) {
  if (size > k_most) return 4;
  communicator* const joined = open_world(id.bytes, rank, size);
  if (joined == nullptr) return 2;
  while (joined->shared->came.load() < size) usleep(100);
  return *made = joined, 0;
}
int ncclCommCount(void* of, int* made) { return *made = static_cast<communicator*>(of)->size, 0; }
int ncclCommUserRank(void* of, int* made) { return *made = static_cast<communicator*>(of)->rank, 0; }
int ncclCommCuDevice(void*, int* made) { return *made = 0, 0; }
int ncclCommGetAsyncError(void* of, int* made) {
  auto& one = *static_cast<communicator*>(of);
  if (one.aborted) return 5;
  move_all(one);
  *made = one.shared->came.load() < one.size || !one.waiting.empty() ? k_in_progress : 0;
  return 0;
}
int ncclCommSplit(void* of, int, int key, void** made, void*) {
  auto& one = *static_cast<communicator*>(of);
  return *made = open_world(one.name + "." + std::to_string(one.splits++), key, one.size), *made == nullptr ? 2 : k_in_progress;
}
int ncclCommAbort(void* of) { return static_cast<communicator*>(of)->aborted = true, 0; }
int ncclCommDestroy(void* of) {
  return munmap(static_cast<communicator*>(of)->shared, sizeof(world)), delete static_cast<communicator*>(of), 0;
}
int ncclSend(const void* from, std::size_t count, int, int peer, void* of, void*) {
  static_cast<communicator*>(of)->waiting.push_back(
      {.sends = true, .memory = static_cast<unsigned char*>(const_cast<void*>(from)), .bytes = count, .peer = peer});
  return depth > 0 ? 0 : k_in_progress;
}
int ncclRecv(void* to, std::size_t count, int, int peer, void* of, void*) {
  static_cast<communicator*>(of)->waiting.push_back({.memory = static_cast<unsigned char*>(to), .bytes = count, .peer = peer});
  return depth > 0 ? 0 : k_in_progress;
}
int ncclAllReduce(const void* from, void* to, std::size_t count, int, int, void* of, void*) {
  auto& one = *static_cast<communicator*>(of);
  const std::size_t bytes = 8 * count;
  auto own = std::make_shared<std::vector<unsigned char>>(bytes);
  std::memcpy(own->data(), from, bytes);
  std::memmove(to, from, bytes);
  for (int p = 0; p < one.size; ++p) {
    if (p == one.rank) continue;
    one.waiting.push_back({.sends = true, .memory = own->data(), .bytes = bytes, .peer = p, .kept = own});
    auto come = std::make_shared<std::vector<unsigned char>>(bytes);
    one.waiting.push_back({.memory = come->data(), .bytes = bytes, .peer = p, .kept = come, .sum = static_cast<std::uint64_t*>(to)});
  }
  return k_in_progress;
}
int ncclGroupStart() { return ++depth, 0; }
int ncclGroupEnd() { return --depth, depth > 0 ? 0 : k_in_progress; }

}  // extern "C"
#pragma GCC visibility pop
