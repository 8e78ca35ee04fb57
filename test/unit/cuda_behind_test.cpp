// Kernels that another process compiles while the callers go on: when they are there, the messages meanwhile and after a failure, and the
// processes that are left.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "unit/cuda_jit_fixture.hpp"

namespace ballast::cuda {
namespace {

using origin = kernel_cache::origin;
using testing::HasSubstr;

class cuda_jit_behind : public cuda_jit {
 protected:
  static constexpr const char* k_compiling = "they are being compiled";
  kernel_cache with(const fs::path& helper) const { return kernel_cache({.folder = folder / "cache", .helper = helper}); }
  // A helper that is a script.
  fs::path script(const std::string& body) const {
    write_all(folder / "helper", "#!/bin/sh\n" + body + "\n");
    fs::permissions(folder / "helper", fs::perms::owner_all);
    return folder / "helper";
  }
  static std::string ask(kernel_cache& cache, const kernel_request& wanted = k_probe, bool compile = true) {
    return cache.why_not_ready({&wanted, 1}, 9, 0, k_any, compile);
  }
  // Returns the last message, within a minute.
  static std::string at_last(kernel_cache& cache, const kernel_request& wanted = k_probe) {
    std::string said = k_compiling;
    for (int i = 0; i < 6000 && said == k_compiling; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      said = ask(cache, wanted);
    }
    return said;
  }
};

TEST_F(cuda_jit_behind, kernels_are_there_when_their_process_has_ended) {
  BALLAST_NEED_NVRTC();
  kernel_cache cache = with(BALLAST_COMPILE_PROGRAM);
  EXPECT_EQ(ask(cache, k_probe, false), k_compiling) << "they would have to be";
  EXPECT_FALSE(fs::exists(folder / "cache") && !fs::is_empty(folder / "cache")) << "nobody asked for that";
  const std::vector<kernel_request> both{k_probe, k_doubled};
  std::string said = cache.why_not_ready(both, 9, 0, k_any, true);
  EXPECT_EQ(said, k_compiling);
  for (int i = 0; i < 6000 && said == k_compiling; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    said = cache.why_not_ready(both, 9, 0, k_any, true);
  }
  EXPECT_EQ(said, "");
  for (const kernel_request& each : both) EXPECT_EQ(cache.get(each, 9, 0, k_any).from, origin::memory);
  kernel_cache other = with({});
  EXPECT_EQ(ask(other), "") << "from the disk, without a process";
}

TEST_F(cuda_jit_behind, a_refusal_of_the_compiler_is_said_and_kept) {
  BALLAST_NEED_NVRTC();
  kernel_cache cache = with(BALLAST_COMPILE_PROGRAM);
  const kernel_request wrong{.header = "cuda/device/probe.cuh", .expression = "ballast::cuda::no_such_kernel"};
  EXPECT_EQ(ask(cache, wrong), k_compiling);
  EXPECT_THAT(at_last(cache, wrong), HasSubstr("no_such_kernel"));
  EXPECT_THAT(ask(cache, wrong), HasSubstr("no_such_kernel"));
  EXPECT_THROW(cache.get(wrong, 9, 0, k_any), error) << "who waits is told, too";
}

// Its disk was full, or it was killed: that is nothing against the kernel, which get() may well make.
TEST_F(cuda_jit_behind, a_process_that_ends_without_a_word_leaves_the_kernel_to_get) {
  BALLAST_NEED_NVRTC();
  kernel_cache crashed = with(script("echo run >> " + (folder / "runs").string() + "; kill -SEGV $$"));
  EXPECT_EQ(ask(crashed), k_compiling);
  EXPECT_EQ(at_last(crashed), "");
  EXPECT_EQ(ask(crashed), "") << "and is not started over and over";
  EXPECT_EQ(read_all(folder / "runs"), "run\n");
  EXPECT_EQ(crashed.get(k_probe, 9, 0, k_any).from, origin::compiler);
  EXPECT_EQ(ask(crashed), "");
}

// The program that looks for a compiler itself finds none, or another than this process.
TEST_F(cuda_jit_behind, the_process_has_the_compiler_of_its_caller) {
  BALLAST_NEED_NVRTC();
  const char* const before = std::getenv("BALLAST_NVRTC");
  const std::string kept = before == nullptr ? "" : before;
  setenv("BALLAST_NVRTC", (folder / "no-such-file").c_str(), 1);
  kernel_cache cache = with(BALLAST_COMPILE_PROGRAM);
  EXPECT_EQ(ask(cache), k_compiling);
  EXPECT_EQ(at_last(cache), "");
  before == nullptr ? unsetenv("BALLAST_NVRTC") : setenv("BALLAST_NVRTC", kept.c_str(), 1);
  kernel_cache other = with({});
  EXPECT_EQ(other.get(k_probe, 9, 0, k_any).from, origin::disk);
}

kernel_request numbered(int threads) {
  return {.header = "cuda/device/probe.cuh",
          .expression = "ballast::cuda::probe_kernel<ballast::cuda::probe_policy{.threads = " + std::to_string(threads) + "}>",
          .threads = threads};
}

int open_files() { return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator())); }

bool has_children() {
  siginfo_t about{};
  return waitid(P_ALL, 0, &about, WEXITED | WNOHANG | WNOWAIT) == 0;
}

TEST_F(cuda_jit_behind, an_ended_process_leaves_nothing) {
  BALLAST_NEED_NVRTC();
  ASSERT_FALSE(has_children());
  kernel_cache cache = with(script("exit 0"));
  const int before = open_files();
  for (int i = 1; i <= 8; ++i) {
    const kernel_request wanted = numbered(32 * i);
    EXPECT_EQ(ask(cache, wanted), k_compiling);
    (void)at_last(cache, wanted);
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_FALSE(has_children());
}

TEST_F(cuda_jit_behind, the_process_is_no_child_of_the_application) {
  BALLAST_NEED_NVRTC();
  ASSERT_FALSE(has_children());
  kernel_cache cache = with(BALLAST_COMPILE_PROGRAM);
  std::string said = ask(cache);
  // On a busy machine the first process, which ends at once, takes longer than its start is waited for.
  while (said == k_compiling && has_children()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    said = ask(cache);
  }
  EXPECT_EQ(said, k_compiling) << "wait() of the application would see it as long as it compiles";
  EXPECT_EQ(at_last(cache), "");
}

// As Ctrl-C in a terminal, which goes to all processes of the application's group.
TEST_F(cuda_jit_behind, a_signal_to_the_application_does_not_end_the_process) {
  BALLAST_NEED_NVRTC();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (setpgid(0, 0) != 0) _exit(2);
    if (signal(SIGINT, SIG_DFL) == SIG_ERR) _exit(2);  // a shell ignores it for the programs that it runs in the background
    kernel_cache cache = with(BALLAST_COMPILE_PROGRAM);
    if (ask(cache) != k_compiling) _exit(1);
    kill(0, SIGINT);
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
  kernel_cache other = with({});
  std::string said = k_compiling;
  for (int i = 0; i < 600 && !said.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    said = ask(other, k_probe, false);
  }
  EXPECT_EQ(said, "");
}

TEST_F(cuda_jit_behind, two_processes_run_at_most) {
  BALLAST_NEED_NVRTC();
  const std::string runs = (folder / "runs").string(), go = (folder / "go").string();
  kernel_cache cache = with(script("echo run >> " + runs + "; while [ ! -e " + go + " ]; do sleep 0.02; done"));
  for (int round = 0; round < 2; ++round) {
    for (int i = 1; i <= 5; ++i) EXPECT_EQ(ask(cache, numbered(32 * i)), k_compiling);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(read_all(runs), "run\nrun\n");
  write_all(go, "");
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(at_last(cache, numbered(32 * i)), "");
  EXPECT_EQ(read_all(runs), "run\nrun\nrun\nrun\nrun\n");
}

TEST_F(cuda_jit_behind, nobody_waits_for_a_process_that_says_no_more) {
  BALLAST_NEED_NVRTC();
  kernel_cache cache = with(script("exec 1>&-; sleep 15"));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ask(cache), k_compiling);
  EXPECT_EQ(at_last(cache), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
}

// Another thread begins to wait for one of the kernels after this one has looked at it.
TEST_F(cuda_jit_behind, nobody_waits_for_a_caller_that_waits) {
  BALLAST_NEED_NVRTC();
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<bool> may_start = false, has_started = false, done = false;
  int looked = 0;
  const auto until = [](const std::atomic<bool>& it) {
    for (int i = 0; i < 1000 && !it; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  // Twice for each kernel: to look on the disk, and to ask for it to be compiled.
  kernel_cache cache({.folder = folder / "cache",
                      .compiler =
                          [&](int newest) {
                            if (std::this_thread::get_id() != here) {
                              has_started = true;
                              until(done);
                            } else if (++looked == 3) {
                              may_start = true;
                              until(has_started);
                            }
                            return nvrtc::find(newest);
                          },
                      .helper = script("exit 0")});
  std::jthread other([&] {
    until(may_start);
    (void)cache.get(k_probe, 9, 0, k_any);
  });
  const auto start = std::chrono::steady_clock::now();
  const std::vector<kernel_request> both{k_probe, k_doubled};
  EXPECT_EQ(cache.why_not_ready(both, 9, 0, k_any, true), k_compiling);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_TRUE(has_started);
  done = true;
}

TEST_F(cuda_jit_behind, nobody_waits_for_the_process) {
  BALLAST_NEED_NVRTC();
  const auto start = std::chrono::steady_clock::now();
  {
    kernel_cache cache = with(script("sleep 20; : > " + (folder / "late").string()));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(ask(cache), k_compiling);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_EQ(ask(cache), k_compiling); });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(cuda_jit_behind, without_a_process_or_a_folder_get_is_the_way) {
  BALLAST_NEED_NVRTC();
  kernel_cache none = with({});
  EXPECT_EQ(ask(none), "");
  kernel_cache missing = with(folder / "missing");
  EXPECT_EQ(ask(missing), "");
  kernel_cache without({.helper = BALLAST_COMPILE_PROGRAM});
  EXPECT_EQ(ask(without), "");
  kernel_cache no_compiler({.folder = folder, .compiler = [](int) -> const nvrtc::compiler* { return nullptr; }, .helper = "/bin/true"});
  EXPECT_THAT(ask(no_compiler), HasSubstr("cannot be compiled"));
}

// A process that uses the library and ends at once: the compiler's static objects are gone before its threads would be.
TEST_F(cuda_jit_behind, the_end_of_the_process_is_quick_and_clean) {
  BALLAST_NEED_NVRTC();
  for (const int milliseconds : {0, 100, 400}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      kernel_cache cache = with(BALLAST_COMPILE_PROGRAM);
      if (ask(cache) != k_compiling && milliseconds == 0) _exit(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      std::exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << milliseconds;
  }
}
}  // namespace
}  // namespace ballast::cuda
