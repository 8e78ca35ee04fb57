// The striker and the struck process's own loop. They share one page: the striker's orders are stops, the answers are in the page.
#include "campaign.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>

#include <ballast/error.hpp>

#include <fmt/format.h>

#include "process.hpp"

namespace ballast::strike {
namespace {

constexpr int k_clean_calls = 3;
constexpr std::int64_t k_most_missed = 10'000;  // in a row: then something else is wrong than a busy machine
constexpr int k_steps = 31;                     // of a moment by time
// A stop comes later than it was asked for. So the struck process waits for so many nanoseconds in front of each call: then also the
// beginning of a call is struck.
constexpr std::int64_t k_lead = 500'000;

// What the struck process says of itself.
struct page {
  std::atomic<bool> inside{false};  // in the library's call
  std::uint64_t calls = 0;
  double seconds = 0;  // of the last call
  bool threw = false;
  ballast::verdict verdict = ballast::verdict::clean;
  std::uint64_t detected = 0;
  effect change;
  double clean_error = 0;
  char scheme[64] = {};
  char message[512] = {};
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <std::size_t N>
void put(char (&to)[N], std::string_view text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

[[noreturn]] void serve(subject& struck, page& shared, const execution& how) {
  const timespec lead{0, k_lead};
  const int nowhere = open("/dev/null", O_WRONLY);  // what the C library says of damaged memory, thousands of times
  if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
  try {
    struck.prepare(how);
  } catch (const std::exception& e) {
    put(shared.message, e.what());
    _exit(1);
  }
  for (;;) {
    struck.reset();
    shared.message[0] = '\0';
    mark();
    clock_nanosleep(CLOCK_MONOTONIC, 0, &lead, nullptr);
    report seen;
    shared.threw = false;
    const double began = now();
    shared.inside = true;
    try {
      seen = struck.call(how);
    } catch (const std::exception& e) {
      shared.threw = true;
      put(shared.message, e.what());
    }
    shared.inside = false;
    shared.seconds = now() - began;
    shared.verdict = seen.verdict;
    shared.detected = seen.detected;
    put(shared.scheme, seen.scheme);
    if (shared.calls++ == 0) {
      struck.keep();
      shared.clean_error = struck.clean_error();
    }
    shared.change = shared.threw ? effect{} : struck.judge();
  }
}

outcome classify(const page& seen) {
  if (seen.threw) return outcome::failed;
  if (seen.verdict == verdict::uncorrectable) return outcome::uncorrectable;
  const bool right = seen.change.same || seen.change.floors <= 1;
  if (seen.detected > 0) return right ? outcome::repaired : outcome::wrongly_repaired;
  if (seen.change.same) return outcome::masked;
  return !right ? outcome::material : seen.change.roundings <= 1 ? outcome::rounding : outcome::below_floor;
}

class campaign {
 public:
  campaign(const std::string& name, protection how, const plan& wanted)
      : wanted_(wanted), random_(wanted.seed), subject_(make_subject(name)), shared_(new_page()) {
    how_.backend = backend::cpu;
    how_.threads = wanted.threads;
    how_.protection = how;
    how_.throw_on_uncorrectable = false;
    made_.subject = name;
    made_.protection = how;
    (void)prctl(PR_SET_TIMERSLACK, 1);
  }
  ~campaign() {
    process_.reset();
    munmap(shared_, sizeof(page));
  }
  campaign(const campaign&) = delete;
  campaign& operator=(const campaign&) = delete;

  record run() {
    const double began = now();
    std::int64_t useless = 0;
    for (std::int64_t struck = 0; struck < wanted_.strikes && now() - began < wanted_.seconds;) {
      if (!process_) start();
      strike one = drawn();
      if (!deliver(one)) {
        ++made_.missed;
        if (++useless > k_most_missed)
          throw std::runtime_error(fmt::format("{}: {} strikes in a row missed the call", made_.subject, useless));
        continue;
      }
      useless = 0;
      ++struck;
      finish(one);
    }
    made_.seconds = now() - began;
    return made_;
  }

 private:
  static page* new_page() {
    void* memory = mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return new (memory) page;
  }

  double patience() const { return 5 + 200 * made_.call_seconds; }

  [[noreturn]] void broken(const std::string& why) const { throw std::runtime_error(made_.subject + ": " + why); }

  void require_mark(double seconds) {
    switch (process_->run_to_mark(seconds)) {
      case struck_process::state::marked: return;
      case struck_process::state::late: broken("a call without a strike does not end");
      case struck_process::state::ended:
        broken(fmt::format("ended without a strike{}{}", process_->signal() != 0 ? fmt::format(" by signal {}", process_->signal()) : "",
                           shared_->message[0] != '\0' ? std::string(": ") + shared_->message : ""));
    }
  }

  void start() {
    new (shared_) page;
    process_ = std::make_unique<struck_process>([this] { serve(*subject_, *shared_, how_); });
    ++made_.processes;
    require_mark(600);
    double least = 1e9;
    for (int i = 0; i < k_clean_calls; ++i) {
      require_mark(600);
      if (classify(*shared_) != outcome::masked)
        broken(fmt::format("a call without a strike is {} {}", to_string(classify(*shared_)), shared_->message));
      if (i > 0) least = std::min(least, shared_->seconds);
    }
    made_.call_seconds = made_.call_seconds == 0 ? least : std::min(least, made_.call_seconds);
    made_.clean_error = shared_->clean_error;
    made_.scheme = shared_->scheme;
  }

  std::int64_t below(std::int64_t count) { return std::uniform_int_distribution<std::int64_t>(0, count - 1)(random_); }

  strike drawn() {
    const register_set& have = registers();
    strike one;
    const std::int64_t percent = below(100);
    one.what = percent < 60   ? target::numbers
               : percent < 80 ? target::bits
               : percent < 87 ? target::masks
               : percent < 97 ? target::general
                              : target::none;
    if (one.what == target::masks && have.masks == 0) one.what = target::bits;
    switch (one.what) {
      case target::numbers: {
        const bool small = made_.subject.find("_f32_") != std::string::npos;
        const int width = small ? 32 : 64, first = small ? 17 : 46;
        one.where = {register_kind::vector, static_cast<int>(below(have.vectors)),
                     static_cast<int>(below(have.vector_bits / width)) * width + first + static_cast<int>(below(width - first))};
        break;
      }
      case target::masks:
        one.where = {register_kind::mask, static_cast<int>(below(have.masks)), static_cast<int>(below(have.mask_bits))};
        break;
      case target::general:
        one.where = {register_kind::general, static_cast<int>(below(have.generals)), static_cast<int>(below(64))};
        break;
      default: one.where = {register_kind::vector, static_cast<int>(below(have.vectors)), static_cast<int>(below(have.vector_bits))};
    }
    one.when = {below(k_lead + static_cast<std::int64_t>(made_.call_seconds * 1e9)), static_cast<int>(below(k_steps + 1)), random_()};
    return one;
  }

  // The thread of the strike, stopped at its moment. Nothing if it does not get there.
  std::optional<pid_t> stopped_at(const moment& when) {
    process_->go();
    const timespec pause{when.nanoseconds / 1'000'000'000, when.nanoseconds % 1'000'000'000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
    const auto thread = process_->stop(when.thread);
    return thread && process_->step(*thread, when.instructions) ? thread : std::nullopt;
  }

  // True if the strike fell into the call. Else the process is at its next mark, or gone.
  bool deliver(strike& one) {
    const auto thread = stopped_at(one.when);
    if (thread) {
      const position at = position_of(*thread);
      one.instruction = code_at(at.address);
      // oneTBB's code is its scheduler: workers that look for work. It holds no data.
      const bool there = shared_->inside && !at.in_kernel && one.instruction.module.find("libtbb") == std::string::npos;
      if (there && one.what != target::none && flip(*thread, one.where)) one.what = target::general;
      process_->resume(*thread);
      if (there) return true;
    }
    if (process_->run_to_mark(patience()) == struck_process::state::marked && classify(*shared_) == outcome::masked) return false;
    if (!last_) broken(fmt::format("a call without a strike is {} {}", to_string(classify(*shared_)), shared_->message));
    blame_last(outcome::crashed);
    return false;
  }

  // What the last strike in this process left behind shows in a later call: that was its outcome.
  void blame_last(outcome what) {
    tally& to = made_.tallies[static_cast<std::size_t>(last_->what)];
    --to.outcomes[static_cast<std::size_t>(last_->result)];
    ++to.outcomes[static_cast<std::size_t>(what)];
    last_->result = what;
    made_.worth_a_look.push_back(*last_);
    discard();
  }

  void discard() {
    process_.reset();
    last_.reset();
  }

  void finish(strike& one) {
    const auto ended = process_->run_to_mark(patience());
    switch (ended) {
      case struck_process::state::late: one.result = outcome::hung; break;
      case struck_process::state::ended:
        one.result = outcome::crashed;
        one.signal = process_->signal();
        break;
      case struck_process::state::marked:
        one.result = classify(*shared_);
        one.change = shared_->change;
        one.detected = shared_->detected;
    }
    if (one.what == target::none && one.result != outcome::masked)
      broken(fmt::format("a stop without a strike is {}", to_string(one.result)));
    tally& to = made_.tallies[static_cast<std::size_t>(one.what)];
    ++to.strikes;
    ++to.outcomes[static_cast<std::size_t>(one.result)];
    if (one.result != outcome::masked && one.result != outcome::repaired && one.result != outcome::rounding)
      made_.worth_a_look.push_back(one);
    // What a wrong address has written elsewhere must not be counted again.
    const bool fresh = ended == struck_process::state::marked &&
                       (one.result == outcome::masked || one.result == outcome::repaired || one.result == outcome::rounding);
    if (!fresh || (one.what == target::general && one.result != outcome::masked)) return discard();
    if (one.what != target::none) last_ = one;
  }

  plan wanted_;
  std::mt19937_64 random_;
  std::unique_ptr<subject> subject_;
  page* shared_;
  execution how_;
  record made_;
  std::unique_ptr<struck_process> process_;
  std::optional<strike> last_;  // in this process
};

}  // namespace

std::string_view to_string(target value) {
  static constexpr std::string_view names[k_targets] = {"numbers", "bits", "masks", "general", "none"};
  return names[static_cast<std::size_t>(value)];
}

std::string_view to_string(outcome value) {
  static constexpr std::string_view names[k_outcomes] = {"masked",  "repaired", "wrongly repaired", "uncorrectable", "failed",
                                                         "crashed", "hung",     "rounding",         "below floor",   "material"};
  return names[static_cast<std::size_t>(value)];
}

record strike_subject(const std::string& name, protection how, const plan& wanted) { return campaign(name, how, wanted).run(); }

}  // namespace ballast::strike
