// Starts processes and waits for them. See processes.hpp.
#include "nccl/processes.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <thread>
#include <vector>

#include <ballast/error.hpp>

#include "../../bench/gpu.hpp"
#include "../../bench/stopwatch.hpp"
#include "output.hpp"

namespace ballast::gpu_check {
namespace {

constexpr double k_grace = 20;  // seconds for the others after a process has failed

pid_t start(const std::function<int()>& work) {
  std::fflush(nullptr);
  const pid_t made = fork();
  if (made < 0) throw error("fork failed");
  if (made != 0) return made;
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 1;
  try {
    status = work();
  } catch (const std::exception& thrown) {
    std::fprintf(stderr, "ballast-gpu-check: %s\n", thrown.what());
  }
  std::fflush(nullptr);
  _exit(status);
}

std::string words_of(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

int run_process(const scene& what, const process& own, const std::function<int(const process&, const group&)>& work) {
  row failure("nccl failure");
  failure.add("name", what.name).add("rank", own.rank);
  try {
    (void)bench::gpu::open(own.rank);
    loaded_nccl::load(what.library);
    int failed = 0;
    {
      const bench::stopwatch clock;
      const group all = own.join(0, own.rank, own.size);
      if (own.rank == 0)
        row("nccl group")
            .add("name", what.name)
            .add("version", loaded_nccl::version())
            .add("ranks", all.size())
            .add("seconds", clock.seconds())
            .print();
      failed = work(own, all);
    }
    return failed == 0 ? 0 : 1;
  } catch (const std::exception& thrown) {
    failure.add("pass", false).add("wrong", thrown.what()).print();
    return 1;
  }
}

}  // namespace

group process::join(int which, int place, int of) const {
  shared_by_processes::entry& entry = shared->ids[which];
  if (place == 0) {
    entry.id = loaded_nccl::make_id();
    entry.made.store(true, std::memory_order_release);
  }
  while (!entry.made.load(std::memory_order_acquire)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  void* const communicator = loaded_nccl::join(entry.id, place, of);
  const group made = group::nccl(communicator, {.patience = patience});
  made.barrier();
  loaded_nccl::leave(communicator);  // the group has its own
  return made;
}

int count_devices() {
  const pid_t made = start([] { return std::min(bench::gpu::devices(), 100); });
  int status = 0;
  if (waitpid(made, &status, 0) != made || !WIFEXITED(status)) throw error("the process that counts devices failed");
  return WEXITSTATUS(status);
}

int run_scene(const scene& what, const std::function<int(const process&, const group&)>& work) {
  void* const memory = mmap(nullptr, sizeof(shared_by_processes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw error("mmap failed");
  auto* const shared = new (memory) shared_by_processes;
  const bench::stopwatch clock;
  std::vector<pid_t> running;
  for (int r = 0; r < what.processes; ++r)
    running.push_back(start([&] { return run_process(what, {r, what.processes, shared, what.patience}, work); }));
  double end = what.seconds;
  int failed = 0;
  std::string wrong;
  const auto fails = [&](std::size_t r, const std::string& how) {
    ++failed;
    wrong += (wrong.empty() ? "rank " : ", rank ") + std::to_string(r) + ": " + how;
    end = std::min(end, clock.seconds() + k_grace);
  };
  const auto left = [&] { return std::ranges::any_of(running, [](pid_t each) { return each != 0; }); };
  while (left()) {
    const bool over = clock.seconds() > end;
    for (std::size_t r = 0; r < running.size(); ++r) {
      if (running[r] == 0) continue;
      int status = 0;
      if (over) kill(running[r], SIGKILL);
      if (waitpid(running[r], &status, over ? 0 : WNOHANG) != running[r]) continue;
      running[r] = 0;
      const bool dies = static_cast<int>(r) == what.dies;
      const bool right = dies ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && shared->ended.load() > 0 : status == 0;
      if (over)
        fails(r, "had not ended after " + std::to_string(static_cast<int>(end)) + " s");
      else if (!right)
        fails(r, words_of(status));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  row line("nccl scene");
  line.add("name", what.name).add("ranks", what.processes).add("seconds", clock.seconds()).add("pass", failed == 0);
  if (failed > 0) line.add("wrong", wrong);
  line.print();
  munmap(memory, sizeof(shared_by_processes));
  return failed;
}

}  // namespace ballast::gpu_check
