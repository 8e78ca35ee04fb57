// Timers, the two signal handlers, and the state that they share.
#include "interrupt.hpp"

#include <link.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace ballast::strike {
namespace {

constexpr int k_refresh = 64;                // the number of calls after which the threads are counted again
constexpr greg_t k_trap_flag = 0x100;        // single stepping
constexpr std::uint64_t k_stack_words = 64;  // the number of stack words that are searched for a caller

struct range {
  std::uint64_t first = 0, last = 0;
  bool has(std::uint64_t address) const { return address >= first && address < last; }
};

enum class phase : int { idle, armed, stepping, landed };

// The state of the current strike.
struct {
  std::atomic<phase> now{phase::idle};
  std::atomic<int> steps{0};
  std::atomic<bool> inside{false};
  bool changes = false;
  register_bit where;
  hit* shared = nullptr;
  range own[8], scheduler[8];  // the code of this program, and of oneTBB
} g;

bool within(const range (&all)[8], std::uint64_t address) {
  for (const range& each : all) {
    if (each.has(address)) return true;
  }
  return false;
}

void find_code() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void*) {
        const std::string name = info->dlpi_name;
        const bool scheduler = name.find("libtbb") != std::string::npos;
        if (!scheduler && !name.empty() && name.find("ballast") == std::string::npos) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
          for (range& each : scheduler ? g.scheduler : g.own) {
            if (each.last != 0) continue;
            each = {info->dlpi_addr + part.p_vaddr, info->dlpi_addr + part.p_vaddr + part.p_memsz};
            break;
          }
        }
        return 0;
      },
      nullptr);
}

greg_t& general(void* context, int which) { return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[which]; }

std::uint64_t address_of(void* context) { return static_cast<std::uint64_t>(general(context, REG_RIP)); }

// Returns whether the interrupted thread may hold data in registers: not directly after a system call, and not in oneTBB's scheduler.
bool at_work(void* context) {
  const std::uint64_t address = address_of(context);
  if (!g.inside || within(g.scheduler, address)) return false;
  unsigned char before[2];
  std::memcpy(before, reinterpret_cast<const unsigned char*>(address) - 2, 2);
  return !(before[0] == 0x0f && before[1] == 0x05);
}

// Returns the nearest word on the stack that is the address after a call instruction in this program; 0: none.
std::uint64_t caller_of(void* context) {
  if (within(g.own, address_of(context))) return 0;
  const auto* stack = reinterpret_cast<const std::uint64_t*>(general(context, REG_RSP));
  for (std::uint64_t i = 0; i < k_stack_words; ++i) {
    if (!within(g.own, stack[i])) continue;
    const auto* behind = reinterpret_cast<const unsigned char*>(stack[i]);
    if (behind[-5] == 0xe8 || behind[-2] == 0xff || behind[-3] == 0xff || behind[-6] == 0xff || behind[-7] == 0xff) return stack[i];
  }
  return 0;
}

// Returns whether code near `address` moves the vector register to a general register: VMOVQ, in its VEX and EVEX encodings. This is needed
// because an integer 0, for example the distance between two arrays, looks like a vector of zeros.
bool moved_to_general(std::uint64_t address, int index) {
  constexpr std::uint64_t near = 4096;
  if (!within(g.own, address - near) || !within(g.own, address + near)) return false;
  const auto* const code = reinterpret_cast<const unsigned char*>(address - near);
  for (std::uint64_t i = 0; i + 6 <= 2 * near; ++i) {
    const unsigned char* at = code + i;
    const bool vex = at[0] == 0xc4 && (at[1] & 0x1f) == 1 && at[2] == 0xf9 && at[3] == 0x7e && at[4] >= 0xc0;
    const bool evex = at[0] == 0x62 && (at[1] & 0x0f) == 1 && at[2] == 0xfd && at[3] == 0x08 && at[4] == 0x7e && at[5] >= 0xc0;
    if (!vex && !evex) continue;
    const int low = (at[vex ? 4 : 5] >> 3) & 7;
    if (low + ((at[1] & 0x80) != 0 ? 0 : 8) + (evex && (at[1] & 0x10) == 0 ? 16 : 0) == index) return true;
  }
  return false;
}

void land(void* context) {
  general(context, REG_EFL) &= ~k_trap_flag;
  if (!at_work(context)) {
    g.now = phase::idle;
    return;
  }
  g.shared->address = address_of(context);
  g.shared->caller = caller_of(context);
  const bool zero = g.changes && g.where.kind == register_kind::vector && g.where.bit < 64 && is_zero(context, g.where.index);
  g.shared->integer = g.changes && (flip(context, g.where) || (zero && moved_to_general(address_of(context), g.where.index)));
  g.shared->landed = true;
  g.now = phase::landed;
}

void on_time(int, siginfo_t*, void* context) {
  const int before = errno;
  phase wanted = phase::armed;
  if (g.now.compare_exchange_strong(wanted, phase::stepping)) {
    if (!at_work(context)) {
      g.now = phase::idle;
    } else if (g.steps == 0) {
      land(context);
    } else {
      general(context, REG_EFL) |= k_trap_flag;
    }
  }
  errno = before;
}

void on_step(int, siginfo_t*, void* context) {
  const int before = errno;
  if (g.now != phase::stepping) {
    general(context, REG_EFL) &= ~k_trap_flag;  // a step of a call that has ended
  } else if (--g.steps == 0) {
    land(context);
  }
  errno = before;
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction wanted {};
  wanted.sa_sigaction = handler;
  wanted.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&wanted.sa_mask);
  if (sigaction(signal, &wanted, nullptr) != 0) throw std::runtime_error(std::string("sigaction: ") + std::strerror(errno));
}

}  // namespace

interrupter::interrupter(hit& shared) {
  g.shared = &shared;
  (void)registers();  // initialises it, so that a handler does not have to
  find_code();
  handle(SIGRTMIN, on_time);
  handle(SIGTRAP, on_step);
}

timer_t interrupter::timer_for(int thread) {
  sigevent what{};
  what.sigev_notify = SIGEV_THREAD_ID;
  what.sigev_signo = SIGRTMIN;
#if defined(sigev_notify_thread_id)
  what.sigev_notify_thread_id = thread;
#else
  what._sigev_un._tid = thread;
#endif
  timer_t made{};
  if (timer_create(CLOCK_MONOTONIC, &what, &made) != 0) throw std::runtime_error(std::string("timer_create: ") + std::strerror(errno));
  return made;
}

void interrupter::count_threads() {
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
    const int id = std::stoi(each.path().filename());
    if (timers_.contains(id)) continue;
    timers_[id] = timer_for(id);
    threads_.push_back({.id = id});
  }
}

void interrupter::arm(const std::optional<register_bit>& where, const moment& when) {
  if (calls_++ % k_refresh == 0) count_threads();
  armed_ = true;
  g.shared->landed = false;
  g.changes = where.has_value();
  if (where) g.where = *where;
  g.steps = when.instructions;
  g.now = phase::armed;
  double all = 0;
  for (const thread& each : threads_) all += each.hit / each.chosen;
  double part = when.thread * all;
  for (chosen_ = 0; chosen_ + 1 < threads_.size(); ++chosen_) {
    part -= threads_[chosen_].hit / threads_[chosen_].chosen;
    if (part < 0) break;
  }
  ++threads_[chosen_].chosen;
  const itimerspec alarm{{0, 0}, {when.nanoseconds / 1'000'000'000, when.nanoseconds % 1'000'000'000 + 1}};
  (void)timer_settime(timers_.at(threads_[chosen_].id), 0, &alarm, nullptr);  // if the thread has ended, the strike misses
}

void interrupter::enter() { g.inside = true; }

bool interrupter::leave() {
  g.inside = false;
  g.now = phase::idle;
  const bool landed = armed_ && g.shared->landed;
  if (landed) ++threads_[chosen_].hit;
  armed_ = false;
  return landed;
}

}  // namespace ballast::strike
