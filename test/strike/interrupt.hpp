// Performs a strike in the struck process: a timer interrupts one of its threads by a signal, the thread is single-stepped for a few
// instructions, and the handler flips a bit of the registers that the kernel has saved for the thread.
// Layer: test program. x86-64 under Linux.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <ctime>

#include "registers.hpp"

namespace ballast::strike {

// The moment of a strike in a call: first a time from its beginning, then a number of single steps of the interrupted thread. Without the
// steps, strikes would occur more often after slow instructions.
struct moment {
  std::int64_t nanoseconds = 0;
  int instructions = 0;
  double thread = 0;  // in [0, 1): selects a thread; threads that were at work more often are selected more often
};

// The handler's record of a strike. It is in memory that the striker shares, so that it survives the struck process.
struct hit {
  std::atomic<bool> landed{false};
  bool integer = false;       // true: the bit belonged to an integer or address; see flip()
  std::uint64_t address = 0;  // the address of the next instruction
  std::uint64_t caller = 0;   // if the instruction is in a system library: the nearest return address into this program; 0: none
};

// Interrupts threads. Only one per process, because signal handlers find it through global state.
class interrupter {
 public:
  explicit interrupter(hit& shared);
  interrupter(const interrupter&) = delete;
  interrupter& operator=(const interrupter&) = delete;

  // Starts the timer of one strike. `where` empty: the thread is interrupted, and nothing is changed.
  void arm(const std::optional<register_bit>& where, const moment& when);
  // Allows strikes until leave(). Threads are not struck inside of the operating system's kernel, nor in oneTBB's code: that is its
  // scheduler, in which workers look for work, and holds no data.
  void enter();
  // Ends the time in which strikes are allowed. Returns whether the strike happened, or would have happened if `where` was empty.
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
  bool armed_ = false;
};

}  // namespace ballast::strike
