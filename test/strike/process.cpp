// The striker's side of ptrace: one place where events of the struck threads arrive (`take`), and waits for what is wanted of them.
#include "process.hpp"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <vector>

#include "registers.hpp"

namespace ballast::strike {
namespace {

constexpr int k_mark = SIGUSR1;

using clock = std::chrono::steady_clock;

}  // namespace

void mark() { (void)::raise(k_mark); }

struck_process::struck_process(const std::function<void()>& body) {
  // Ends of waits arrive as SIGCHLD, which sigtimedwait takes.
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, nullptr);

  int ready[2];
  if (pipe(ready) != 0) throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
  process_ = fork();
  if (process_ < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (process_ == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit none{0, 0};  // thousands of crashes are expected
    (void)setrlimit(RLIMIT_CORE, &none);
    close(ready[1]);
    char byte = 0;
    while (read(ready[0], &byte, 1) < 0 && errno == EINTR) {  // until it is traced
    }
    close(ready[0]);
    body();
    _exit(0);
  }
  close(ready[0]);
  const bool traced = ptrace(PTRACE_SEIZE, process_, nullptr, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL) == 0;
  const int why = errno;
  if (!traced) kill(process_, SIGKILL);
  close(ready[1]);
  if (!traced) {
    int status = 0;
    waitpid(process_, &status, 0);
    throw std::runtime_error(std::string("this system does not allow a process to trace its own child (ptrace: ") + std::strerror(why) +
                             ")");
  }
  threads_[process_] = thread_state::running;
}

struck_process::~struck_process() {
  if (ended_) return;
  kill(process_, SIGKILL);
  (void)wait(10, [&] { return ended_; });
}

void struck_process::end(int signal) {
  ended_ = true;
  signal_ = signal;
  threads_.clear();
}

void struck_process::take(pid_t thread, int status) {
  if (WIFEXITED(status) || WIFSIGNALED(status)) {
    threads_.erase(thread);
    if (thread == process_) end(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return;
  }
  const int signal = WSTOPSIG(status), event = status >> 16;
  threads_[thread] = thread_state::stopped;
  if (event == PTRACE_EVENT_STOP || (event == 0 && signal == SIGTRAP)) {  // a stop that was asked for, a new thread, or the end of a step
    if (thread == wanted_) return;
    resume(thread);
  } else if (event != 0) {
    resume(thread);
  } else if (signal == k_mark && thread == process_) {
    marked_ = true;
  } else if (signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGABRT || signal == SIGSYS) {
    kill(process_, SIGKILL);  // no handler can repair it: the end, without a core
    (void)wait(10, [&] { return ended_; });
    end(signal);
  } else {
    threads_[thread] = thread_state::running;
    ptrace(PTRACE_CONT, thread, nullptr, static_cast<long>(signal));
  }
}

template <class Done>
bool struck_process::wait(double seconds, Done done) {
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  const auto until = clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    int status = 0;
    while (!done()) {
      const pid_t thread = waitpid(-1, &status, __WALL | WNOHANG);
      if (thread <= 0) break;
      take(thread, status);
    }
    if (done()) return true;
    const double left = std::chrono::duration<double>(until - clock::now()).count();
    if (left <= 0) return false;
    const timespec most{static_cast<time_t>(left), static_cast<long>((left - static_cast<double>(static_cast<time_t>(left))) * 1e9)};
    (void)sigtimedwait(&children, nullptr, &most);
  }
}

void struck_process::resume(pid_t thread) {
  threads_[thread] = thread_state::running;
  ptrace(PTRACE_CONT, thread, nullptr, 0L);
}

void struck_process::go() {
  if (!marked_) return;
  marked_ = false;
  resume(process_);
}

struck_process::state struck_process::run_to_mark(double seconds) {
  go();
  const bool arrived = wait(seconds, [&] { return marked_ || ended_; });
  return !arrived ? state::late : ended_ ? state::ended : state::marked;
}

std::optional<pid_t> struck_process::stop(std::uint64_t choice) {
  std::vector<pid_t> order;
  for (const auto& [thread, state] : threads_) order.push_back(thread);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const pid_t thread = order[(choice + i) % order.size()];
    wanted_ = thread;
    const bool asked = ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0;
    const auto found = [&] { return threads_.find(thread); };
    const bool answered =
        asked && wait(1, [&] { return marked_ || ended_ || found() == threads_.end() || found()->second == thread_state::stopped; });
    wanted_ = 0;
    if (marked_ || ended_) return std::nullopt;
    if (!answered || found() == threads_.end()) continue;
    if (!position_of(thread).in_kernel) return thread;
    resume(thread);
  }
  return std::nullopt;
}

bool struck_process::step(pid_t thread, int instructions) {
  for (int i = 0; i < instructions; ++i) {
    wanted_ = thread;
    threads_[thread] = thread_state::running;
    const bool asked = ptrace(PTRACE_SINGLESTEP, thread, nullptr, nullptr) == 0;
    const auto found = [&] { return threads_.find(thread); };
    const bool answered =
        asked && wait(0.5, [&] { return marked_ || ended_ || found() == threads_.end() || found()->second == thread_state::stopped; });
    wanted_ = 0;
    if (!answered || marked_ || ended_ || found() == threads_.end()) return false;
  }
  return true;
}

}  // namespace ballast::strike
