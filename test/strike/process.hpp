// A process that is struck: a fork of this program, traced with all its threads. It stops itself at marks (`mark`), and any of its threads
// can be stopped at any time in between. Layer: test program. Linux's ptrace(2).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

namespace ballast::strike {

// In the struck process: stops until the striker says go.
void mark();

class struck_process {
 public:
  // Runs `body` in a fork, which ends when it returns. Only before this process has threads. Throws std::runtime_error if tracing is
  // not allowed here.
  explicit struck_process(const std::function<void()>& body);
  ~struck_process();  // kills what is left
  struck_process(const struck_process&) = delete;
  struck_process& operator=(const struck_process&) = delete;

  // How a wait ended.
  enum class state : std::uint8_t { marked, ended, late };

  // Lets it run until its next mark, its end, or for so many seconds.
  state run_to_mark(double seconds);

  // Lets it run from its mark, without waiting.
  void go();

  // Stops one of the threads, the `choice`-th that runs in user mode counted from a random one. Nothing if none does or the process is at
  // its mark.
  std::optional<pid_t> stop(std::uint64_t choice);

  // Runs a stopped thread for so many instructions. False if it has not got so far: it waits in the kernel, reached a mark or ended.
  bool step(pid_t thread, int instructions);

  // Lets a stopped thread run again.
  void resume(pid_t thread);

  // Once it has ended: the signal that did it, else 0.
  int signal() const { return signal_; }

 private:
  enum class thread_state : std::uint8_t { running, stopped };

  template <class Done>
  bool wait(double seconds, Done done);
  void take(pid_t thread, int status);
  void end(int signal);

  pid_t process_ = 0;
  std::map<pid_t, thread_state> threads_;
  pid_t wanted_ = 0;  // the thread that is asked to stop, or steps
  bool marked_ = false, ended_ = false;
  int signal_ = 0;
};

}  // namespace ballast::strike
