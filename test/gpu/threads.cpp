// The stage `threads`: many threads of one process call all algorithms at the same time, on all devices.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "../../bench/gpu.hpp"
#include "../strike/subjects/subject.hpp"
#include "algorithm.hpp"
#include "output.hpp"
#include "support/fft_data.hpp"

namespace ballast::gpu_check {
namespace {

constexpr int k_callers = 32, k_callers_quick = 8;
constexpr int k_calls = 3;  // calls of a plan before it is made anew

// The counts of all threads for one subject.
struct seen_of {
  std::int64_t plans = 0, calls = 0, changed = 0, alarms = 0, thrown = 0;
  std::string message;  // the text of the first exception
};

class callers {
 public:
  explicit callers(std::vector<std::string> names) : names_(std::move(names)) {}

  // Calls all subjects in turn, from one that depends on the thread's number on, until time is over, but each of them at least once.
  // Each thread has its own stream, operands and plans.
  void serve(int number, const time_limit& limit) {
    const int device = number % std::max(bench::gpu::devices(), 1);
    execution where{.backend = tested};
    if (tested == backend::cuda) {
      (void)bench::gpu::open(device);
      where.device = device;
    } else {
      where.threads = 2;
    }
    std::map<std::string, std::unique_ptr<strike::subject>> own;
    for (std::size_t round = 0; round < names_.size() || !limit.over(); ++round) {
      const std::string& name = names_[(static_cast<std::size_t>(number) + round) % names_.size()];
      seen_of here;
      try {
        std::unique_ptr<strike::subject>& subject = own[name];
        const bool first = subject == nullptr;
        if (first) subject = strike::make_subject(name, tested);
        subject->prepare(where);
        ++here.plans;
        for (int i = 0; i < k_calls; ++i) {
          subject->reset();
          const report said = subject->run(test::quiet_call(bench::gpu::stream()));
          ++here.calls;
          if (said.detected > 0) ++here.alarms;
          if (first && i == 0) {
            subject->keep();
          } else if (!subject->judge().same) {
            ++here.changed;
          }
        }
      } catch (const std::exception& e) {
        ++here.thrown;
        here.message = e.what();
        own.erase(name);
      }
      add(name, here);
    }
  }

  // Prints a row for each subject. Returns the number of those that failed.
  int print(int threads) const {
    int failed = 0;
    for (const auto& [name, seen] : seen_) {
      const bool good = seen.changed == 0 && seen.alarms == 0 && seen.thrown == 0;
      row line("threads");
      line.add("token", name)
          .add("threads", threads)
          .add("devices", bench::gpu::devices())
          .add("plans", seen.plans)
          .add("calls", seen.calls);
      line.add("changed", seen.changed).add("alarms", seen.alarms).add("thrown", seen.thrown).add("pass", good);
      if (!seen.message.empty()) line.add("wrong", seen.message);
      line.print();
      if (!good) ++failed;
    }
    return failed;
  }

 private:
  void add(const std::string& name, const seen_of& here) {
    const std::scoped_lock lock(mutex_);
    seen_of& all = seen_[name];
    all.plans += here.plans;
    all.calls += here.calls;
    all.changed += here.changed;
    all.alarms += here.alarms;
    all.thrown += here.thrown;
    if (all.message.empty()) all.message = here.message;
  }

  std::vector<std::string> names_;
  std::mutex mutex_;
  std::map<std::string, seen_of> seen_;
};

}  // namespace

int threads(const settings& wanted, const time_limit& limit) {
  std::vector<std::string> names = wanted.tokens;
  if (names.empty()) {
    for (const algorithm* each : algorithms()) {
      const std::vector<std::string> more = each->strike_set(false);
      names.insert(names.end(), more.begin(), more.end());
    }
  }
  const int count = wanted.quick ? k_callers_quick : k_callers;
  callers all(names);
  std::vector<std::jthread> running;
  for (int t = 0; t < count; ++t) running.emplace_back([&, t] { all.serve(t, limit); });
  running.clear();
  return all.print(count);
}

}  // namespace ballast::gpu_check
