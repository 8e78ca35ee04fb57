// A campaign of faults of the wire: in each trial one random fault at one random message of a random call on 2 to 7 ranks, which are
// threads and exchange directly or by relays. Every trial is compared with the clean call, bit by bit. group_campaign [--faults N] [--seed
// S] [--first F] [--jobs J] begins with trial F and prints what became of the faults, by call and by kind. Exit status 0 if none was
// silent, 1 otherwise, 2 if a call did not end or the clean calls are wrong.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ballast/error.hpp>
#include <ballast/fft_group.hpp>
#include <ballast/kmeans.hpp>
#include <ballast/qr_columns.hpp>
#include <ballast/qr_descriptor.hpp>
#include <ballast/qr_grid.hpp>
#include <ballast/qr_rows.hpp>

#include "abft/seal.hpp"
#include "core/counter_rng.hpp"
#include "group/state.hpp"
#include "support/ranks.hpp"

namespace ballast::test {
namespace {

constexpr int k_fewest_ranks = 2, k_most_ranks = 7;
constexpr int k_ways = 2;                // ranks exchange directly, or by relays
constexpr double k_longest_trial = 300;  // seconds; a trial that takes longer hangs
constexpr std::string_view k_fault_names[] = {"bit", "swapped", "misrouted", "stale", "dropped", "repeated", "late", "lost_rank"};
static_assert(std::size(k_fault_names) == std::size(wire::k_faults));

// The hash of the results of a rank, and its report.
struct stored {
  abft::result_hash bits;
  std::uint64_t detected = 0;
  bool uncorrectable = false;
  template <class T>
  void add(std::span<const T> numbers) {
    for (const T& each : numbers) bits.add(each);
  }
  template <class T>
  void add(std::span<const std::complex<T>> numbers) {
    for (const std::complex<T>& each : numbers) {
      bits.add(each.real());
      bits.add(each.imag());
    }
  }
  template <class T>
  void add(const matrix<T>& numbers) {
    add(std::span<const T>(numbers.data(), numbers.size()));
  }
  void add(const report& seen) {
    detected += seen.detected;
    uncorrectable = uncorrectable || seen.verdict == verdict::uncorrectable;
  }
};

// A call of all ranks, at least 2. Its data depend on nothing but their place, so every trial has the same.
struct scene {
  std::string_view name;
  std::function<void(const group&, stored&)> work;
};

template <class T>
std::vector<T> numbers(std::int64_t count, std::uint64_t stream) {
  std::vector<T> made;
  for (std::int64_t i = 0; i < count; ++i)
    made.push_back(static_cast<T>(2 * core::random_uniform(7, stream, static_cast<std::uint64_t>(i)) - 1 + static_cast<double>(i % 3)));
  return made;
}

std::int64_t begin_of(std::int64_t all, int ranks, int rank) { return all * rank / ranks; }

execution on(const group& own) { return {.backend = backend::cpu, .threads = 1, .group = own}; }

// The rows of `all`, m × n, on this rank, those of others on demand, and the first k rows as centroids.
template <class T>
kmeans::data<T> rows_of(const group& own, const std::vector<T>& all, std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto rows = [&all, n](std::int64_t from, std::int64_t some) {
    kmeans::data<T> part;
    part.points = row_major<const T>(all.data() + from * n, some, n);
    return part;
  };
  const int ranks = static_cast<int>(own.size());
  const std::int64_t first = begin_of(m, ranks, own.rank());
  kmeans::data<T> mine = rows(first, begin_of(m, ranks, own.rank() + 1) - first);
  mine.reload = rows;
  mine.centroids = row_major<const T>(all.data(), k, n);
  return mine;
}

// A fit.
template <class T>
void cluster(const group& own, kmeans::init init, stored& made) {
  constexpr std::int64_t m = 90, n = 3, k = 4;
  const std::vector<T> all = numbers<T>(m * n, 1);
  const kmeans::data<T> mine = rows_of(own, all, m, n, k);
  const auto found = kmeans::fit(mine, static_cast<int>(k), {.init = init, .max_iter = 6, .seed = 5}, on(own));
  made.add(found.centroids);
  made.bits.add(found.inertia);
  made.add(std::span<const std::int32_t>(found.labels));
  made.add(found.report);
}

template <class T>
void assign(const group& own, stored& made) {
  constexpr std::int64_t m = 90, n = 3, k = 4;
  const std::vector<T> all = numbers<T>(m * n, 3);
  const kmeans::data<T> mine = rows_of(own, all, m, n, k);
  const auto labels = kmeans::predict(mine, on(own));
  made.add(std::span<const std::int32_t>(labels.labels));
  made.bits.add(labels.inertia);
  made.add(labels.report);
  const auto far = kmeans::transform(mine, on(own));
  made.add(far.values);
  made.add(far.report);
}

template <class T>
void factor(const group& own, stored& made) {
  constexpr std::int64_t m = 40, n = 5, p = 2;
  const std::vector<T> A = numbers<T>(m * n, 4), B = numbers<T>(m * p, 5);
  const int ranks = static_cast<int>(own.size());
  const std::int64_t first = begin_of(m, ranks, own.rank()), count = begin_of(m, ranks, own.rank() + 1) - first;
  const auto b = row_major<const T>(B.data() + first * p, count, p);
  const auto factors = qr::factor_rows(row_major<const T>(A.data() + first * n, count, n), on(own));
  made.add(factors.report);
  made.add(factors.r());
  const auto q = factors.q();
  const auto x = factors.solve(b);
  const auto projected = factors.apply_transposed(b);
  for (const auto* each : {&q, &x, &projected}) {
    made.add(each->values);
    made.add(each->report);
  }
}

// Block columns, which came from ScaLAPACK's layout on a grid of 1 × P and blocks of another width.
template <class T>
void factor_columns(const group& own, stored& made) {
  constexpr std::int64_t n = 20, p = 2, block = 4;
  const std::vector<T> A = numbers<T>(n * n, 20), B = numbers<T>(n * p, 21);
  const qr::block_columns given{n, 3, static_cast<int>(own.size()), own.rank()};
  std::vector<T> mine;
  for (std::int64_t j = 0; j < given.count(); ++j)
    mine.insert(mine.end(), A.begin() + given.global(j) * n, A.begin() + (given.global(j) + 1) * n);
  const int desc[] = {1, 0, static_cast<int>(n), static_cast<int>(n), 7, 3, 0, 0, static_cast<int>(n)};
  const auto columns = qr::to_block_columns(std::span<const T>(mine), desc, {1, given.ranks, false}, block, on(own));
  made.add(columns.values);
  made.add(columns.report);
  const auto factors = qr::factor_columns(std::as_const(columns.values).view(), block, on(own));
  made.add(factors.storage);
  made.add(std::span<const T>(factors.tau));
  made.add(factors.report);
  const auto b = column_major<const T>(B.data(), n, p);
  const auto q = factors.q();
  const auto x = factors.solve(b);
  const auto projected = factors.apply_transposed(b);
  for (const auto* each : {&q, &x, &projected}) {
    made.add(each->values);
    made.add(each->report);
  }
  made.add(qr::from_block_columns(factors.storage.view(), block, std::span(mine), desc, {1, given.ranks, false}, on(own)));
  made.add(std::span<const T>(mine));
}

// A matrix where it lies on a grid of 2 × P/2, or of P × 1; numbers of their own on each rank.
template <class T>
void factor_grid(const group& own, stored& made) {
  constexpr int n = 20, block = 4, p = 2;
  const int ranks = static_cast<int>(own.size());
  const qr::process_grid grid{ranks % 2 == 0 ? 2 : ranks, ranks % 2 == 0 ? ranks / 2 : 1, false};
  const std::int64_t rows = qr::block_columns{n, block, grid.rows, own.rank() / grid.columns}.count(),
                     columns = qr::block_columns{n, block, grid.columns, own.rank() % grid.columns}.count();
  const int leading = std::max(1, static_cast<int>(rows));
  const int desc[] = {1, 0, n, n, block, block, 0, 0, leading};
  const auto stream = 30 + static_cast<std::uint64_t>(own.rank());
  const std::vector<T> A = numbers<T>(leading * columns, stream), B = numbers<T>(leading * p, stream + 10);
  const auto factors = qr::factor_grid(std::span<const T>(A), desc, grid, on(own));
  made.add(factors.storage);
  made.add(std::span<const T>(factors.tau));
  made.add(factors.report);
  const auto b = column_major<const T>(B.data(), rows, p, leading);
  const auto q = factors.q();
  const auto x = factors.solve(b);
  const auto projected = factors.apply_transposed(b);
  for (const auto* each : {&q, &x, &projected}) {
    made.add(each->values);
    made.add(each->report);
  }
}

template <class T>
std::vector<std::complex<T>> complex_numbers(std::int64_t count, std::uint64_t stream) {
  const std::vector<T> real = numbers<T>(2 * count, stream);
  std::vector<std::complex<T>> made;
  for (std::size_t i = 0; i < real.size(); i += 2) made.emplace_back(real[i], real[i + 1]);
  return made;
}

template <class T>
void transform(const group& own, const std::vector<std::int64_t>& shape, const fft::distribution& how, stored& made) {
  const fft::group_plan<T> plan(shape, on(own), how);
  const fft::box data = plan.data();
  // Numbers of their own on each rank.
  const auto in = complex_numbers<T>(data.size(), 6 + static_cast<std::uint64_t>(own.rank()));
  std::vector<std::complex<T>> out(static_cast<std::size_t>(plan.spectrum().size())), back(in.size());
  if (how.real) {
    const std::vector<T> real = numbers<T>(data.size(), 6 + static_cast<std::uint64_t>(own.rank()));
    std::vector<T> real_back(real.size());
    made.add(plan.forward(std::span<const T>(real), std::span(out)));
    made.add(std::span<const std::complex<T>>(out));
    made.add(plan.inverse(std::span<const std::complex<T>>(out), std::span(real_back)));
    made.add(std::span<const T>(real_back));
    return;
  }
  made.add(plan.forward(std::span<const std::complex<T>>(in), std::span(out)));
  made.add(std::span<const std::complex<T>>(out));
  made.add(plan.inverse(std::span<const std::complex<T>>(out), std::span(back)));
  made.add(std::span<const std::complex<T>>(back));
}

std::vector<scene> scenes() {
  using enum fft::result_order;
  return {{"kmeans fit", [](const group& own, stored& made) { cluster<float>(own, kmeans::init::kmeans_plus_plus, made); }},
          {"kmeans fit", [](const group& own, stored& made) { cluster<double>(own, kmeans::init::given, made); }},
          {"kmeans predict, transform", [](const group& own, stored& made) { assign<float>(own, made); }},
          {"qr rows", [](const group& own, stored& made) { factor<float>(own, made); }},
          {"qr rows", [](const group& own, stored& made) { factor<double>(own, made); }},
          {"qr columns", [](const group& own, stored& made) { factor_columns<float>(own, made); }},
          {"qr columns", [](const group& own, stored& made) { factor_columns<double>(own, made); }},
          {"qr grid", [](const group& own, stored& made) { factor_grid<float>(own, made); }},
          {"qr grid", [](const group& own, stored& made) { factor_grid<double>(own, made); }},
          {"fft 2-D",
           [](const group& own, stored& made) {
             transform<float>(own, {12, 9}, {}, made);
           }},
          {"fft 2-D",
           [](const group& own, stored& made) {
             transform<double>(own, {12, 9}, {.real = true, .order = natural}, made);
           }},
          {"fft 3-D slabs",
           [](const group& own, stored& made) {
             transform<double>(own, {7, 6, 4}, {}, made);
           }},
          {"fft 3-D pencils",
           [](const group& own, stored& made) {
             transform<float>(own, {5, 6, 7}, {.division = fft::division::pencils}, made);
           }},
          {"fft 1-D", [](const group& own, stored& made) { transform<double>(own, {225}, {.order = natural}, made); }},
          {"fft in pieces", [](const group& own, stored& made) {
             own.internal()->block_bytes = 128;
             transform<double>(own, {9, 6, 4}, {}, made);
           }}};
}

// The outcome of a rank: the hash of what it stored, or an end without results.
struct rank_outcome {
  bool stored = false, lost = false, reported = false;
  std::uint64_t bits = 0, detected = 0;
};

struct trial {
  std::vector<rank_outcome> ranks;
  std::vector<std::uint64_t> messages;
  std::uint64_t struck = 0;
  std::string reason;  // the text of a rank's error
};

trial run(const scene& what, int ranks, bool relays, const std::vector<wire::wire_fault>& faults) {
  const auto board = std::make_shared<wire::switchboard>(ranks, faults);
  trial made;
  made.ranks.resize(static_cast<std::size_t>(ranks));
  const auto endings = run_ranks(board, quick(), [&](int rank, const group& own) {
    stored mine;
    own.internal()->over->set_direct_ranks(relays ? 1 : wire::exchange::k_direct_ranks);
    what.work(own, mine);
    made.ranks[static_cast<std::size_t>(rank)] = {true, false, mine.uncorrectable, mine.bits.bits(), mine.detected};
  });
  for (std::size_t r = 0; r < endings.size(); ++r) {
    made.ranks[r].lost = endings[r].lost;
    if (!endings[r].error) continue;
    made.ranks[r].reported = true;
    try {
      std::rethrow_exception(endings[r].error);
    } catch (const std::exception& seen) {
      made.reason = seen.what();
    }
  }
  for (int r = 0; r < ranks; ++r) made.messages.push_back(board->messages(r));
  made.struck = board->struck();
  return made;
}

// The end of a trial. harmless: all results are right and no rank reports anything, for instance if a confirmation was lost.
enum outcome : std::size_t { k_repaired, k_harmless, k_reported, k_silent, k_outcomes };
constexpr std::string_view k_outcome_names[] = {"repaired", "harmless", "reported", "silent"};
using counts = std::array<std::uint64_t, k_outcomes>;

outcome judge(const trial& clean, const trial& found) {
  bool reported = false, seen = false;
  for (std::size_t r = 0; r < found.ranks.size(); ++r) {
    const rank_outcome& each = found.ranks[r];
    if (each.stored && !each.reported && each.bits != clean.ranks[r].bits) return k_silent;
    reported = reported || each.reported;
    seen = seen || each.detected > 0;
  }
  return reported ? k_reported : seen ? k_repaired : k_harmless;
}

class campaign {
 public:
  campaign(std::uint64_t faults, std::uint64_t seed, std::uint64_t first, std::uint64_t jobs)
      : faults_(faults), seed_(seed), jobs_(jobs), next_(first) {}

  int run() {
    const auto start = std::chrono::steady_clock::now();
    if (!make_clean()) return 2;
    started_ = std::vector<std::atomic<std::int64_t>>(jobs_);
    std::vector<std::thread> workers;
    for (std::size_t j = 0; j < jobs_; ++j) workers.emplace_back([this, j] { work(j); });
    std::thread watch([this] { look_for_hangs(); });
    for (std::thread& each : workers) each.join();
    over_ = true;
    watch.join();
    print(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return silent_ == 0 ? 0 : 1;
  }

 private:
  using clock = std::chrono::steady_clock;
  static std::int64_t milliseconds() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(clock::now().time_since_epoch()).count();
  }

  // Runs every call without faults, twice: the same bits, nothing reported.
  bool make_clean() {
    for (const scene& each : scenes_) {
      for (int ranks = k_fewest_ranks; ranks <= k_most_ranks; ++ranks) {
        for (const bool relays : {false, true}) {
          clean_.push_back(test::run(each, ranks, relays, {}));
          const trial again = test::run(each, ranks, relays, {});
          if (judge(clean_.back(), again) == k_harmless && std::ranges::all_of(again.ranks, &rank_outcome::stored)) continue;
          fmt::print(stderr, "{} on {} ranks: two clean calls differ, or report faults\n", each.name, ranks);
          return false;
        }
      }
    }
    return true;
  }

  void work(std::size_t job) {
    for (;;) {
      const std::uint64_t number = next_.fetch_add(1);
      if (struck_ >= faults_) return;
      std::uint64_t draws = 0;
      const auto draw = [&](std::uint64_t below) { return core::random_bits(seed_, number, draws++) % below; };
      const std::size_t which = draw(scenes_.size());
      const int ranks = k_fewest_ranks + static_cast<int>(draw(k_most_ranks - k_fewest_ranks + 1));
      const bool relays = draw(k_ways) == 1;
      const trial& clean =
          clean_[k_ways * (which * (k_most_ranks - k_fewest_ranks + 1) + static_cast<std::size_t>(ranks - k_fewest_ranks)) +
                 (relays ? 1 : 0)];
      const std::size_t kind = draw(std::size(wire::k_faults));
      const int rank = static_cast<int>(draw(static_cast<std::uint64_t>(ranks)));
      const std::uint64_t message = draw(clean.messages[static_cast<std::size_t>(rank)]);
      const wire::wire_fault fault{wire::k_faults[kind], rank, message, 1, draw(~std::uint64_t{0})};
      const std::string text = fmt::format("trial {}: {} on {} ranks{}, {} at message {} of rank {}", number, scenes_[which].name, ranks,
                                           relays ? " by relays" : "", k_fault_names[kind], message, rank);
      {
        const std::lock_guard lock(mutex_);
        running_[job] = text;
      }
      started_[job] = milliseconds();
      const trial found = test::run(scenes_[which], ranks, relays, {fault});
      const std::int64_t taken = milliseconds() - started_[job].exchange(0);
      if (found.struck == 0) continue;  // the rank sent fewer messages this time
      ++struck_;
      const outcome how = judge(clean, found);
      const std::lock_guard lock(mutex_);
      ++by_scene_[std::string(scenes_[which].name)][how];
      ++by_kind_[kind][how];
      if (how == k_silent) {
        ++silent_;
        fmt::print(stderr, "silent: {}\n", text);
      }
      if (how == k_reported && wire::k_faults[kind] != wire::fault::lost_rank)
        fmt::print(stderr, "not repaired: {}: {}\n", text, found.reason);
      if (taken > longest_) {
        longest_ = taken;
        longest_text_ = text;
      }
    }
  }

  void look_for_hangs() {
    while (!over_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (std::size_t j = 0; j < jobs_; ++j) {
        const std::int64_t since = started_[j];
        if (since == 0 || milliseconds() - since < static_cast<std::int64_t>(1000 * k_longest_trial)) continue;
        const std::lock_guard lock(mutex_);
        fmt::print(stderr, "does not end: {}\n", running_[j]);
        std::_Exit(2);
      }
    }
  }

  void print(double seconds) const {
    fmt::print("{:<28}{:>10}", "", "faults");
    for (const std::string_view each : k_outcome_names) fmt::print("{:>10}", each);
    const auto row = [](std::string_view name, const counts& of) {
      fmt::print("\n{:<28}{:>10}", name, of[0] + of[1] + of[2] + of[3]);
      for (const std::uint64_t each : of) fmt::print("{:>10}", each);
    };
    counts all{};
    for (const auto& [name, of] : by_scene_) {
      row(name, of);
      for (std::size_t i = 0; i < k_outcomes; ++i) all[i] += of[i];
    }
    for (std::size_t kind = 0; kind < by_kind_.size(); ++kind) row(k_fault_names[kind], by_kind_[kind]);
    row("all", all);
    fmt::print("\nseed {}, {:.0f} s; the longest trial took {:.1f} s ({})\n", seed_, seconds, static_cast<double>(longest_) / 1000,
               longest_text_);
  }

  std::uint64_t faults_, seed_;
  std::size_t jobs_;
  std::atomic<std::uint64_t> next_;
  std::vector<scene> scenes_ = scenes();
  std::vector<trial> clean_;  // by call, number of ranks and way
  std::atomic<std::uint64_t> struck_{0};
  std::atomic<bool> over_{false};
  std::vector<std::atomic<std::int64_t>> started_;  // by job: when its trial began, 0 between trials
  std::mutex mutex_;
  std::map<std::size_t, std::string> running_;
  std::map<std::string, counts> by_scene_;
  std::array<counts, std::size(wire::k_faults)> by_kind_{};
  std::uint64_t silent_ = 0;
  std::int64_t longest_ = 0;
  std::string longest_text_;
};

int run_campaign(int argc, char** argv) {
  std::uint64_t faults = 1000, seed = 1, first = 0, jobs = 1;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    std::uint64_t* const to = name == "--faults"  ? &faults
                              : name == "--seed"  ? &seed
                              : name == "--first" ? &first
                              : name == "--jobs"  ? &jobs
                                                  : nullptr;
    char* end = nullptr;
    const std::uint64_t value = i + 1 < argc ? std::strtoull(argv[i + 1], &end, 10) : 0;
    if (to == nullptr || end == nullptr || *end != '\0' || (value < 1 && to != &first)) {
      fmt::print(stderr, "usage: group_campaign [--faults N] [--seed S] [--first F] [--jobs J]\n");
      return 2;
    }
    *to = value;
  }
  return campaign(faults, seed, first, jobs).run();
}

}  // namespace
}  // namespace ballast::test

int main(int argc, char** argv) {
  try {
    return ballast::test::run_campaign(argc, argv);
  } catch (const std::exception& seen) {
    fmt::print(stderr, "{}\n", seen.what());
    return 2;
  }
}
