// A campaign: a sequence of strikes in the calls of one subject, and the outcome of each. Two processes run it: the supervisor, and the
// struck process, which is forked from it. They share the book of the campaign. The struck process draws strikes, performs them and
// classifies the outcomes. The supervisor starts it again if a strike has ended it, or if it must not be used any more.
// Layer: test program, for strikes at processors and at GPUs. Under Linux. Needs no package.
//
// A Striker defines what a strike is. It lives in the struck process and has
//   shot                                         a strike: what is drawn, and where it hit; trivially copyable
//   shared                                       what it writes during a call, in memory that survives the process; has std::atomic<bool>
//                                                landed
//   Striker(shared&, const execution&)           before the subject is prepared
//   call how() const                             of each call
//   ready(caller)                                after the clean calls; caller() makes one call, and is valid as long as the Striker
//   shot draw(random, seconds)                   `seconds`: the usual time of a call
//   arm(const shot&), enter(), bool leave()      before a call, when it begins, when it has ended. leave: whether the strike happened
//   std::string note() const                     what a reader of the counts must know; called after ready
//   static complete(const shared&, shot&)        where it hit, for the supervisor, too, after the struck process has crashed
//   static bool changes(const shot&)             whether anything was struck; a strike that changes nothing must have no effect
//   static bool may_write_elsewhere(const shot&) whether it may have changed an address
//   static bool fresh_after(const shot&, outcome)   whether the process may be struck again
//   static bool possible(const shot&)            whether draw or complete can have written it: an index of a name is in its range, a text
//                                                has its end
//
// A strike may make the struck process write anywhere, into the book as well. So the supervisor keeps a copy of what earlier processes have
// left, and takes what the last one has left only if a struck process can have written it. Otherwise the strikes of that process are
// discarded, except one, which counts as crashed.
#pragma once

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
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <ballast/error.hpp>

#include "outcome.hpp"

namespace ballast::strike {

inline constexpr int k_clean_calls = 3;
inline constexpr std::int64_t k_most_missed = 10'000;  // consecutive misses; more than a busy machine explains
inline constexpr double k_progress = 10;               // seconds between two lines of progress

struct plan {
  std::int64_t strikes = 1000;
  std::uint64_t seed = 1;
  double seconds = 1e9;      // time limit of the strikes
  double preparation = 600;  // the most seconds until the first call has ended: it may compile kernels
  bool progress = false;     // lines to stderr
  double patience = 10;      // a call hangs if it takes this many seconds longer than 200 clean ones
  int most_restarts = 1000;  // the most processes that are started after the first
};

// A strike with its outcome.
template <class Shot>
struct entry {
  Shot shot{};
  outcome result = outcome::crashed;  // the default until the outcome is known
  effect change;
  std::uint64_t detected = 0;
  int signal = 0;
  bool lasting = false;  // the next call, without a strike, was not masked: this strike damaged what calls share
};

template <class Shot>
struct record {
  std::string subject;
  ballast::protection protection = ballast::protection::correct;
  std::vector<entry<Shot>> strikes;
  std::int64_t missed = 0;  // strikes that did not happen before the end of the call
  std::int64_t processes = 0;
  std::int64_t damaged = 0;  // processes that damaged the book; their strikes are left out, except one each, a crash that was drawn as {}
  double clean_error = 0, call_seconds = 0, seconds = 0;
  std::string scheme, note;
  std::string stopped;  // the reason why no more strikes were possible; empty if all were made, or time was over
};

// Counts, times and texts that pass from one struck process to the next, and to the result of the campaign.
struct progress {
  std::int64_t attempts = 0;  // the number of strikes including misses
  std::int64_t missed = 0, useless = 0;
  double seconds = 0;  // the shortest time of a clean call
  double usual = 0;    // a running estimate of the median time of the last calls
  double clean_error = 0;
  char scheme[64] = {};
  char note[512] = {};
  char message[512] = {};
};

// The data that both processes share. Entries follow it in memory.
template <class Striker>
struct book : progress {
  std::atomic<std::int64_t> count{0};
  std::atomic<bool> calling{false};
  std::atomic<double> began{0};    // the start time of the call
  std::atomic<bool> armed{false};  // the call has a strike
  std::int64_t last = -1;          // the last strike that this process survived; −1: none
  typename Striker::shared under_way;
};

inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The struck process.
template <class Striker>
class struck {
  using one_strike = entry<typename Striker::shot>;

 public:
  struck(subject& problem, book<Striker>& shared, std::span<one_strike> entries, const execution& how, const plan& wanted)
      : problem_(problem), book_(shared), entries_(entries), how_(how), wanted_(wanted), striker_(shared.under_way, how) {}

  // Performs strikes until all are done, or until this process must not be used any more.
  void serve() {
    book_.message[0] = '\0';
    problem_.prepare(how_);
    (void)call();
    if (book_.message[0] != '\0') _exit(1);  // the first call threw
    problem_.keep();
    kept_ = true;
    book_.clean_error = problem_.clean_error();
    // Rough: it finds kernels that compute something else.
    if (!(book_.clean_error < 1e-2)) {
      put(book_.message, "a clean result is far from the reference: relative error " + std::to_string(book_.clean_error));
      _exit(1);
    }
    double least = 1e9;
    for (int i = 0; i < k_clean_calls; ++i) {
      const seen_call seen = call();
      if (classify(seen) != outcome::masked) return broken(seen);
      least = std::min(least, seconds_);
      put(book_.scheme, seen.said.scheme);
    }
    book_.seconds = book_.seconds == 0 ? least : std::min(least, book_.seconds);
    if (book_.usual == 0) book_.usual = seconds_;
    striker_.ready([this] { (void)call(); });
    put(book_.note, striker_.note());
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
    striker_.enter();
    try {
      made.said = problem_.run(striker_.how());
    } catch (const std::exception& e) {
      made.threw = true;
      put(book_.message, e.what());
    }
    landed_ = striker_.leave();
    seconds_ = now() - began;
    if (kept_) made.change = made.threw ? effect{} : problem_.judge();
    book_.calling = false;
    return made;
  }

  void broken(const seen_call& seen) {
    const std::string before = book_.message;
    put(book_.message, "a call without a strike is " + std::string(to_string(classify(seen))) + " " + before);
    _exit(1);
  }

  // After a wrong result, or a strike that may have written elsewhere, makes a call without a strike. Returns whether it is masked: damage
  // that lasts is the outcome of this strike, not of the next one.
  bool last_is_over(one_strike& one) {
    const bool wrong = one.result == outcome::material || one.result == outcome::wrongly_repaired;
    if (!wrong && !Striker::may_write_elsewhere(one.shot)) return true;
    one.lasting = wrong;  // also if the call does not end
    const seen_call after = call();
    const outcome next = classify(after);
    one.lasting = next != outcome::masked;
    if (one.lasting && !wrong) {
      one.result = next;
      one.change = after.change;
    }
    return !one.lasting;
  }

  // Performs one strike. Returns false if this process must not be used any more.
  bool strike_once() {
    one_strike& one = entries_[static_cast<std::size_t>(book_.count)];
    one = {};
    std::seed_seq seed{wanted_.seed, static_cast<std::uint64_t>(book_.attempts++)};
    std::mt19937_64 random(seed);
    one.shot = striker_.draw(random, book_.usual);
    book_.message[0] = '\0';
    striker_.arm(one.shot);
    book_.armed = true;
    const seen_call seen = call();
    book_.armed = false;
    const outcome result = classify(seen);
    if (!landed_) {
      ++book_.missed;
      ++book_.useless;
      book_.usual *= seconds_ > book_.usual ? 1.05 : 1 / 1.05;  // tends to the median, also on a busy machine
      if (result == outcome::masked) return true;
      if (book_.last < 0) broken(seen);
      // The previous strike has damaged this later call: that is its outcome.
      one_strike& before = entries_[static_cast<std::size_t>(book_.last)];
      before.result = result;
      before.change = seen.change;
      return false;
    }
    book_.useless = 0;
    Striker::complete(book_.under_way, one.shot);
    one.result = result;
    one.change = seen.change;
    one.detected = seen.said.detected;
    if (!Striker::changes(one.shot)) {
      if (result != outcome::masked) broken(seen);
    } else {
      book_.last = book_.count;
    }
    ++book_.count;
    return last_is_over(one) && Striker::fresh_after(one.shot, one.result);
  }

  subject& problem_;
  book<Striker>& book_;
  std::span<one_strike> entries_;
  const execution& how_;
  const plan& wanted_;
  Striker striker_;
  bool kept_ = false, landed_ = false;
  double seconds_ = 0;
};

// The supervisor.
template <class Striker>
class campaign {
  using one_strike = entry<typename Striker::shot>;
  static_assert(std::is_trivially_copyable_v<one_strike>);

 public:
  // `problem`: not prepared.
  campaign(const std::string& name, std::unique_ptr<subject> problem, const execution& how, const plan& wanted)
      : wanted_(wanted),
        subject_(std::move(problem)),
        bytes_(sizeof(book<Striker>) + static_cast<std::size_t>(wanted.strikes) * sizeof(one_strike)),
        how_(how) {
    made_.subject = name;
    made_.protection = how.protection;
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    book_ = new (memory) book<Striker>;
    auto* const first = reinterpret_cast<one_strike*>(static_cast<char*>(memory) + sizeof(book<Striker>));
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

  record<typename Striker::shot> run() {
    const double began = now();
    double prepared = began;  // when the strikes began
    const auto late = [&] {
      if (is_preparing()) prepared = now();
      return now() - prepared >= wanted_.seconds;
    };
    double said = began;
    while (book_->count < wanted_.strikes && !late() && made_.stopped.empty()) {
      if (made_.processes > wanted_.most_restarts) {
        made_.stopped = "the struck process was started " + std::to_string(made_.processes) + " times";
        break;
      }
      start();
      int status = 0;
      bool hangs = false;
      while (waitpid(process_, &status, WNOHANG) == 0) {
        hangs = book_->calling && !(now() - book_->began <= patience());
        if (hangs || late()) kill(process_, SIGKILL);
        const timespec most{0, 50'000'000};
        (void)sigtimedwait(&children_, nullptr, &most);
        if (wanted_.progress && now() - said >= k_progress) {
          said = now();
          say(said - began);
        }
      }
      process_ = 0;
      if (!intact()) {
        discard();
        continue;
      }
      if (!late() || hangs) ended(status, hangs);
      keep();
      if (book_->useless >= k_most_missed) broken(std::to_string(k_most_missed) + " strikes in a row missed the call");
    }
    made_.strikes = std::move(kept_strikes_);
    made_.missed = kept_.missed;
    made_.clean_error = kept_.clean_error;
    made_.call_seconds = kept_.seconds;
    made_.scheme = kept_.scheme;
    made_.note = kept_.note;
    made_.seconds = now() - began;
    return std::move(made_);
  }

 private:
  // Returns whether the first process has not yet said how long a call takes. Then it has struck nothing.
  bool is_preparing() const { return made_.processes == 1 && book_->seconds == 0; }

  // A busy machine may stop the process for some seconds.
  double patience() const {
    if (is_preparing()) return wanted_.preparation;
    return wanted_.patience + 200 * (made_.processes > 1 ? kept_.seconds : std::clamp(book_->seconds, 0.0, 60.0));
  }

  // Returns whether a struck process can have left the book as it is. None runs.
  bool intact() const {
    const std::int64_t before = static_cast<std::int64_t>(kept_strikes_.size()), count = book_->count;
    if (count < before || count > wanted_.strikes || book_->last < -1 || book_->last >= count) return false;
    if (book_->attempts < kept_.attempts || book_->missed < kept_.missed || book_->useless < 0) return false;
    const auto is_time = [](double value) { return std::isfinite(value) && value >= 0; };
    if (!is_time(book_->seconds) || !is_time(book_->usual) || std::isnan(book_->clean_error)) return false;
    if (!has_end(book_->scheme) || !has_end(book_->note) || !has_end(book_->message)) return false;
    // The shot under way may have been drawn.
    const std::int64_t drawn = std::min(count + 1, wanted_.strikes);
    return std::ranges::all_of(entries_.first(static_cast<std::size_t>(drawn)), [](const one_strike& one) {
      return static_cast<int>(one.result) < k_outcomes && Striker::possible(one.shot);
    });
  }

  // Makes the supervisor's own copy of the book.
  void keep() {
    kept_ = static_cast<const progress&>(*book_);
    kept_strikes_.assign(entries_.begin(), entries_.begin() + book_->count);
  }

  // Replaces a damaged book by the copy. The strikes of the process are not drawn again.
  void discard() {
    ++made_.damaged;
    kept_.attempts += k_most_missed;
    kept_strikes_.push_back({});
    static_cast<progress&>(*book_) = kept_;
    std::ranges::copy(kept_strikes_, entries_.begin());
    book_->count = static_cast<std::int64_t>(kept_strikes_.size());
  }

  // Strikes that were made are kept.
  void broken(const std::string& why) {
    made_.stopped = why;
    if (book_->count == 0) throw std::runtime_error(made_.subject + ": " + why);
  }

  void say(double seconds) const {
    tally all;
    const std::int64_t count = std::clamp<std::int64_t>(book_->count, 0, wanted_.strikes);
    for (const one_strike& each : entries_.first(static_cast<std::size_t>(count))) {
      const outcome result = each.result;  // a running process may have damaged it
      if (static_cast<int>(result) < k_outcomes) all.add(result);
    }
    std::fprintf(stderr, "%s: %lld of %lld strikes in %.0f s, %lld repaired, %lld silent above the floor, %lld crashed or hung\n",
                 made_.subject.c_str(), static_cast<long long>(count), static_cast<long long>(wanted_.strikes), seconds,
                 static_cast<long long>(all.of(outcome::repaired)), static_cast<long long>(all.of(outcome::material)),
                 static_cast<long long>(all.of(outcome::crashed) + all.of(outcome::failed) + all.of(outcome::hung)));
  }

  void start() {
    ++made_.processes;
    book_->last = -1;
    book_->calling = false;
    book_->armed = false;
    book_->under_way.landed = false;
    std::fflush(nullptr);
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
      struck<Striker>(*subject_, *book_, entries_, how_, wanted_).serve();
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
    const bool landed = book_->armed && book_->under_way.landed && book_->count < wanted_.strikes;
    if (!landed && book_->last < 0)
      return broken("ended without a strike" + (signal != 0 ? " by signal " + std::to_string(signal) : std::string()) +
                    (book_->message[0] != '\0' ? std::string(": ") + book_->message : ""));
    one_strike& one = entries_[static_cast<std::size_t>(landed ? book_->count.load() : book_->last)];
    if (landed) {
      Striker::complete(book_->under_way, one.shot);
      ++book_->count;
    }
    if (!Striker::changes(one.shot)) return broken("a stop without a strike ended the process");
    if (one.lasting) return;  // its own result was wrong before
    one.result = hung ? outcome::hung : outcome::crashed;
    one.signal = hung ? 0 : signal;
  }

  plan wanted_;
  std::unique_ptr<subject> subject_;
  std::size_t bytes_;
  book<Striker>* book_ = nullptr;
  std::span<one_strike> entries_;
  progress kept_;
  std::vector<one_strike> kept_strikes_;
  sigset_t children_{};
  execution how_;
  record<typename Striker::shot> made_;
  pid_t process_ = 0;
};

}  // namespace ballast::strike
