// A strike within the struck process: a timer interrupts one of its threads by a signal, a few single instructions pass, and the handler
// changes a bit of the registers that the kernel has saved for the thread. Layer: test program. x86-64 under Linux.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <ctime>

#include "registers.hpp"

namespace ballast::strike {

// When in a call. First a time from its beginning, then single instructions of the interrupted thread: an interrupt alone prefers what
// follows slow instructions.
struct moment {
  std::int64_t nanoseconds = 0;
  int instructions = 0;
  double thread = 0;  // in [0, 1): of those that this process has; those that were found at work more often are chosen more often
};

// What the handler says of a strike. Lies in memory that the striker shares, so that it survives the struck process.
struct hit {
  std::atomic<bool> landed{false};
  bool integer = false;       // flip() says so
  std::uint64_t address = 0;  // of the next instruction
  std::uint64_t caller = 0;   // where it is in a library of the system: the nearest return address to this program; 0: none
};

// One for each process: handlers have no other way to find it.
class interrupter {
 public:
  explicit interrupter(hit& shared);
  interrupter(const interrupter&) = delete;
  interrupter& operator=(const interrupter&) = delete;

  // Starts the clock of one strike. `where` empty: the thread is interrupted, and nothing changed.
  void arm(const std::optional<register_bit>& where, const moment& when);
  // From here on to leave(), threads may be struck, but not inside of the kernel, nor in oneTBB's code, which is its scheduler: workers
  // that look for work. It holds no data.
  void enter();
  // The call is over, and nothing is struck any more. Whether something was, or would have been.
  bool leave();

 private:
  struct thread {
    int id = 0;
    double chosen = 1, hit = 1;
  };
  void count_threads();
  static timer_t timer_for(int thread);
  std::vector<thread> threads_;
  std::map<int, timer_t> timers_;
  std::size_t chosen_ = 0;
  int calls_ = 0;
};

}  // namespace ballast::strike
