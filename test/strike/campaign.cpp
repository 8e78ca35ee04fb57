// Runs a campaign with two processes: the striker, and the struck process, which is forked from it. They share the book of the campaign.
// The struck process draws strikes, performs them and classifies the outcomes. The striker starts it again if a strike has ended it, or if
// it must not be used any more.
#include "campaign.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <type_traits>

#include <ballast/error.hpp>

#include <fmt/format.h>

namespace ballast::strike {
namespace {

constexpr int k_clean_calls = 3;
constexpr std::int64_t k_most_missed = 10'000;  // consecutive misses; more than a busy machine explains
constexpr int k_steps = 31;                     // the largest number of single steps after the timer

// The entry of a strike in the book.
struct entry {
  target what = target::numbers;
  register_bit where;
  moment when;
  std::uint64_t address = 0, caller = 0;
  outcome result = outcome::crashed;  // the default until the outcome is known
  effect change;
  std::uint64_t detected = 0;
  int signal = 0;
};
static_assert(std::is_trivially_copyable_v<entry>);

// The data that both processes share. `count` entries follow it in memory, and one more during a struck call.
struct book {
  std::atomic<std::int64_t> count{0};
  std::atomic<bool> calling{false};
  std::atomic<double> began{0};  // the start time of the call
  std::int64_t last = -1;        // the last strike that this process survived; −1: none
  std::int64_t attempts = 0;     // the number of strikes including misses
  std::int64_t missed = 0, useless = 0;
  hit under_way;
  double seconds = 0;  // the shortest time of a clean call
  double usual = 0;    // a running estimate of the median time of the last calls
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

// The result of a call.
struct seen_call {
  bool threw = false;
  report said;
  effect change;
};

outcome classify(const seen_call& seen) {
  if (seen.threw) return outcome::failed;
  if (seen.said.verdict == verdict::uncorrectable) return outcome::uncorrectable;
  const bool right = seen.change.same || seen.change.floors <= 1;
  if (seen.said.detected > 0) return right ? outcome::repaired : outcome::wrongly_repaired;
  if (seen.change.same) return outcome::masked;
  return !right ? outcome::material : seen.change.roundings <= 1 ? outcome::rounding : outcome::below_floor;
}

// Returns whether the process may be struck again. If a wrong address has caused a write elsewhere, it may not: that must not be counted
// twice.
bool stays_fresh(const entry& one) {
  return (one.result == outcome::masked || one.result == outcome::repaired || one.result == outcome::rounding) &&
         !(one.what == target::general && one.result != outcome::masked);
}

// The struck process.
class struck {
 public:
  struck(subject& problem, book& shared, std::span<entry> entries, const execution& how, const plan& wanted, bool small)
      : problem_(problem), book_(shared), entries_(entries), how_(how), wanted_(wanted), small_(small), clock_(shared.under_way) {}

  // Performs strikes until all are done, or until this process must not be used any more.
  void serve() {
    problem_.prepare(how_);
    (void)call();
    problem_.keep();
    book_.clean_error = problem_.clean_error();
    double least = 1e9;
    for (int i = 0; i < k_clean_calls; ++i) {
      const seen_call seen = call();
      if (classify(seen) != outcome::masked) return broken(seen);
      least = std::min(least, seconds_);
      put(book_.scheme, seen.said.scheme);
    }
    book_.seconds = book_.seconds == 0 ? least : std::min(least, book_.seconds);
    if (book_.usual == 0) book_.usual = seconds_;
    while (book_.count < static_cast<std::int64_t>(entries_.size()) && book_.useless < k_most_missed) {
      if (!strike_once()) return;
    }
  }

 private:
  seen_call call() {
    problem_.reset();
    seen_call made;
    const double began = now();
    book_.began = began;
    book_.calling = true;
    clock_.enter();
    try {
      made.said = problem_.run(now_);
    } catch (const std::exception& e) {
      made.threw = true;
      put(book_.message, e.what());
    }
    landed_ = clock_.leave();
    seconds_ = now() - began;
    if (kept_) made.change = made.threw ? effect{} : problem_.judge();
    kept_ = true;
    book_.calling = false;
    return made;
  }

  void broken(const seen_call& seen) {
    put(book_.message, fmt::format("a call without a strike is {} {}", to_string(classify(seen)), std::string(book_.message)));
    _exit(1);
  }

  // Performs one strike. Returns false if this process must not be used any more.
  bool strike_once() {
    entry& one = entries_[static_cast<std::size_t>(book_.count)];
    one = drawn(static_cast<std::uint64_t>(book_.attempts++));
    book_.message[0] = '\0';
    clock_.arm(one.what == target::none ? std::nullopt : std::optional(one.where), one.when);
    const seen_call seen = call();
    const outcome result = classify(seen);
    if (!landed_) {
      ++book_.missed;
      ++book_.useless;
      book_.usual *= seconds_ > book_.usual ? 1.05 : 1 / 1.05;  // tends to the median, also on a busy machine
      if (result == outcome::masked) return true;
      if (book_.last < 0) broken(seen);
      // The previous strike has damaged this later call: that is its outcome.
      entry& before = entries_[static_cast<std::size_t>(book_.last)];
      before.result = result;
      before.change = seen.change;
      return false;
    }
    book_.useless = 0;
    one.address = book_.under_way.address;
    one.caller = book_.under_way.caller;
    if (book_.under_way.integer) one.what = target::general;
    one.result = result;
    one.change = seen.change;
    one.detected = seen.said.detected;
    if (one.what == target::none && result != outcome::masked) broken(seen);
    if (one.what != target::none) book_.last = book_.count;
    ++book_.count;
    return stays_fresh(one);
  }

  entry drawn(std::uint64_t attempt) const {
    std::seed_seq seed{wanted_.seed, attempt};
    std::mt19937_64 random(seed);
    const auto below = [&](std::int64_t count) { return std::uniform_int_distribution<std::int64_t>(0, count - 1)(random); };
    const register_set& have = registers();
    entry one;
    const std::int64_t percent = below(100);
    one.what = percent < 60   ? target::numbers
               : percent < 80 ? target::bits
               : percent < 87 ? target::masks
               : percent < 97 ? target::general
                              : target::none;
    if (one.what == target::masks && have.masks == 0) one.what = target::bits;
    switch (one.what) {
      case target::numbers: {
        const int width = small_ ? 32 : 64, first = small_ ? 17 : 46;
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
    one.when = {below(static_cast<std::int64_t>(book_.usual * 1e9) + 1), static_cast<int>(below(k_steps + 1)),
                std::uniform_real_distribution<double>(0, 1)(random)};
    return one;
  }

  subject& problem_;
  book& book_;
  std::span<entry> entries_;
  const execution& how_;
  const ballast::call now_{.throw_on_uncorrectable = false};
  const plan& wanted_;
  const bool small_;  // true: numbers have 32 bits
  interrupter clock_;
  bool kept_ = false, landed_ = false;
  double seconds_ = 0;
};

class campaign {
 public:
  campaign(const std::string& name, protection how, const plan& wanted)
      : wanted_(wanted), subject_(make_subject(name)), bytes_(sizeof(book) + static_cast<std::size_t>(wanted.strikes) * sizeof(entry)) {
    how_.backend = backend::cpu;
    how_.threads = wanted.threads;
    how_.protection = how;
    made_.subject = name;
    made_.protection = how;
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    book_ = new (memory) book;
    auto* const first = reinterpret_cast<entry*>(static_cast<char*>(memory) + sizeof(book));
    entries_ = {first, static_cast<std::size_t>(wanted.strikes)};
    std::uninitialized_default_construct(entries_.begin(), entries_.end());
    // The end of a child process sends SIGCHLD, which sigtimedwait receives.
    sigemptyset(&children_);
    sigaddset(&children_, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children_, nullptr);
  }
  ~campaign() {
    stop();
    munmap(book_, bytes_);
  }
  campaign(const campaign&) = delete;
  campaign& operator=(const campaign&) = delete;

  record run() {
    const double began = now();
    const auto late = [&] { return now() - began >= wanted_.seconds; };
    while (book_->count < wanted_.strikes && !late()) {
      start();
      int status = 0;
      bool hangs = false;
      while (waitpid(process_, &status, WNOHANG) == 0) {
        hangs = book_->calling && now() - book_->began > patience();
        if (hangs || late()) kill(process_, SIGKILL);
        const timespec most{0, 50'000'000};
        (void)sigtimedwait(&children_, nullptr, &most);
      }
      process_ = 0;
      if (!late() || hangs) ended(status, hangs);
      if (book_->useless >= k_most_missed) broken(fmt::format("{} strikes in a row missed the call", k_most_missed));
    }
    for (const entry& each : entries_.first(static_cast<std::size_t>(book_->count))) count(each);
    made_.missed = book_->missed;
    made_.clean_error = book_->clean_error;
    made_.call_seconds = book_->seconds;
    made_.scheme = book_->scheme;
    made_.seconds = now() - began;
    return made_;
  }

 private:
  // A busy machine may stop the process for some seconds.
  double patience() const { return 10 + 200 * book_->seconds; }

  [[noreturn]] void broken(const std::string& why) const { throw std::runtime_error(made_.subject + ": " + why); }

  void start() {
    ++made_.processes;
    book_->last = -1;
    book_->calling = false;
    book_->under_way.landed = false;
    process_ = fork();
    if (process_ < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
    if (process_ != 0) return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit none{0, 0};  // thousands of crashes are expected
    (void)setrlimit(RLIMIT_CORE, &none);
    // Discards messages: the C library reports damaged memory, and the BLAS wrong arguments, thousands of times.
    const int nowhere = open("/dev/null", O_WRONLY);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      if (nowhere >= 0) dup2(nowhere, stream);
    }
    try {
      struck(*subject_, *book_, entries_, how_, wanted_, made_.subject.find("_f32_") != std::string::npos).serve();
    } catch (const std::exception& e) {
      put(book_->message, e.what());
      _exit(1);
    }
    _exit(0);
  }

  void stop() {
    if (process_ == 0) return;
    kill(process_, SIGKILL);
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = 0;
  }

  // Handles the end of the process. If it did not end normally, either the current strike ended it, or damage from the previous strike.
  void ended(int status, bool hung) {
    if (!hung && WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const bool landed = book_->under_way.landed && book_->count < wanted_.strikes;
    if (!landed && book_->last < 0)
      broken(fmt::format("ended without a strike{}{}", signal != 0 ? fmt::format(" by signal {}", signal) : "",
                         book_->message[0] != '\0' ? std::string(": ") + book_->message : ""));
    entry& one = entries_[static_cast<std::size_t>(landed ? book_->count.load() : book_->last)];
    if (landed) {
      one.address = book_->under_way.address;
      one.caller = book_->under_way.caller;
      if (book_->under_way.integer) one.what = target::general;
      ++book_->count;
    }
    if (one.what == target::none) broken("a stop without a strike ended the process");
    one.result = hung ? outcome::hung : outcome::crashed;
    one.signal = hung ? 0 : signal;
  }

  void count(const entry& one) {
    tally& to = made_.tallies[static_cast<std::size_t>(one.what)];
    ++to.strikes;
    ++to.outcomes[static_cast<std::size_t>(one.result)];
    if (one.result == outcome::masked || one.result == outcome::repaired || one.result == outcome::rounding) return;
    made_.worth_a_look.push_back({.what = one.what,
                                  .where = one.where,
                                  .when = one.when,
                                  .instruction = code_at(one.address),
                                  .caller = one.caller == 0 ? code_address{} : code_at(one.caller - 1),
                                  .result = one.result,
                                  .change = one.change,
                                  .detected = one.detected,
                                  .signal = one.signal});
  }

  plan wanted_;
  std::unique_ptr<subject> subject_;
  std::size_t bytes_;
  book* book_ = nullptr;
  std::span<entry> entries_;
  sigset_t children_{};
  execution how_;
  record made_;
  pid_t process_ = 0;
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
