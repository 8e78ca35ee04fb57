// The exchanges of a group: right results for any number of ranks, with every fault of the wire at every message, and after lost ranks.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "group/device_threads.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "inject/injector.hpp"
#include "kmeans/sites.hpp"
#include "run/recorder.hpp"
#include "support/effort.hpp"
#include "support/ranks.hpp"

namespace ballast::wire {
namespace {

using test::quick;
using test::run_ranks;

// A recorder with what it needs.
struct record {
  explicit record(protection wanted = protection::correct) : how{.protection = wanted, .throw_on_uncorrectable = false} {}
  run::settings how;
  inject::active_injector injector{nullptr, kmeans::site::table()};
  run::recorder seen{"group_test", backend::cpu, "", how, injector};
};

std::int64_t word(int from, int to, std::size_t i) { return from * 1000003 + to * 7919 + static_cast<std::int64_t>(i) * 31 - 500; }

// A round of everything, checked: blocks of different lengths, empty ones among them, to all and to some; small and large sums. Returns
// whether it was right.
bool round(exchange& over) {
  bool right = true;
  const std::vector<int> members = over.members();
  const auto length = [](int from, int to) { return static_cast<std::size_t>((from * 5 + to * 3) % 11); };
  std::vector<std::vector<std::int64_t>> out;
  std::vector<std::span<const std::byte>> blocks;
  for (const int to : members) {
    out.emplace_back();
    for (std::size_t i = 0; i < length(over.rank(), to); ++i) out.back().push_back(word(over.rank(), to, i));
  }
  for (const auto& each : out) blocks.push_back(std::as_bytes(std::span(each)));
  std::vector<bool> awaited;
  for (const int from : members) awaited.push_back(length(from, over.rank()) > 0);
  enum class exchanges { all, some, some_in_halves };
  for (const exchanges how : {exchanges::all, exchanges::some, exchanges::some_in_halves}) {
    if (how == exchanges::some_in_halves) over.begin_some_to_some(blocks, awaited);
    const std::vector<bytes> in = how == exchanges::all    ? over.all_to_all(blocks)
                                  : how == exchanges::some ? over.some_to_some(blocks, awaited)
                                                           : over.end_some_to_some();
    for (std::size_t p = 0; p < members.size(); ++p) {
      right = right && in[p].size() == 8 * length(members[p], over.rank());
      for (std::size_t i = 0; right && i < in[p].size() / 8; ++i) {
        std::int64_t found = 0;
        std::memcpy(&found, in[p].data() + 8 * i, 8);
        right = found == word(members[p], over.rank(), i);
      }
    }
  }
  for (const std::size_t count : {std::size_t{3}, std::size_t{5000}}) {
    std::vector<std::int64_t> sum(count), expected(count, 0);
    // Modulo 2^64, as the sum is.
    const auto part = [&](int from, std::size_t i) { return static_cast<std::uint64_t>(word(from, 1, i)) * 0x123456789; };
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] = static_cast<std::int64_t>(part(over.rank(), i));
      std::uint64_t all = 0;
      for (const int from : members) all += part(from, i);
      expected[i] = static_cast<std::int64_t>(all);
    }
    over.add(sum);
    right = right && sum == expected;
  }
  return right;
}

// How ranks exchange: directly, or by relays however few they are.
enum class way { directly, by_relays };

exchange& over_of(const group& own, way how) {
  exchange& made = *own.internal()->over;
  made.set_direct_ranks(how == way::by_relays ? 1 : 1000);
  return made;
}

class group_ranks : public testing::TestWithParam<std::tuple<int, way>> {};

TEST_P(group_ranks, exchange_and_add) {
  const auto [ranks, how] = GetParam();
  std::atomic<int> right{0};
  run_ranks(ranks, [&, how = how, ranks = ranks](int, const group& own) {
    record here;
    exchange& over = over_of(own, how);
    over.begin_call(&here.seen, protection::correct);
    for (int i = 0; i < 3; ++i) right += round(over) ? 1 : 0;
    const report all = joined(over, here.seen.collect());
    over.end_call();
    own.barrier();
    EXPECT_EQ(all.verdict, verdict::clean);
    EXPECT_EQ(own.size(), ranks);
    EXPECT_TRUE(ranks == 1 || all.checks > 0);
  });
  EXPECT_EQ(right, 3 * ranks);
}

INSTANTIATE_TEST_SUITE_P(all, group_ranks,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5, 7, 8, 17), testing::Values(way::directly, way::by_relays)));
INSTANTIATE_TEST_SUITE_P(many, group_ranks, testing::Values(std::tuple(64, way::by_relays)));

// One call of a round on three ranks with these faults. Returns the rounds that were right, and the reports.
struct outcome {
  int right = 0, wrong = 0, ended = 0, lost = 0, errors = 0;
  std::vector<report> reports;
};

outcome call_with(const std::vector<wire_fault>& faults, protection wanted = protection::correct, double patience = 60,
                  std::vector<std::uint64_t>* messages = nullptr, way by = way::directly, int ranks = 3) {
  const auto board = std::make_shared<switchboard>(ranks, faults);
  outcome made;
  std::mutex mutex;
  const auto endings = run_ranks(board, quick(patience), [&](int, const group& own) {
    record here(wanted);
    exchange& over = over_of(own, by);
    for (;;) {
      try {
        bool right = false;
        const report all = in_group(over, here.seen, "group_test", [&] {
          right = round(over);
          return joined(over, here.seen.collect());
        });
        const std::lock_guard lock(mutex);
        made.reports.push_back(all);
        if (all.verdict == verdict::uncorrectable) {
          ++made.ended;
        } else {
          ++(right ? made.right : made.wrong);
        }
        return;
      } catch (const ranks_lost&) {
        over.regroup();
      }
    }
  });
  for (const test::ending& each : endings) {
    made.lost += each.lost ? 1 : 0;
    made.errors += each.error ? 1 : 0;
  }
  for (int r = 0; messages != nullptr && r < ranks; ++r) messages->push_back(board->messages(r));
  return made;
}

class group_faults : public testing::TestWithParam<std::tuple<fault, way>> {};

// Every message of every rank, confirmations among them.
TEST_P(group_faults, each_message) {
  const auto [what, by] = GetParam();
  const int ranks = by == way::directly ? 3 : 5;
  std::vector<std::uint64_t> messages;
  ASSERT_EQ(call_with({}, protection::correct, 60, &messages, by, ranks).right, ranks);
  std::uint64_t seen = 0, tried = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::uint64_t number = 0; number < messages[static_cast<std::size_t>(rank)]; ++number) {
      for (std::uint64_t seed = 0; seed < (test::sampled() || by == way::by_relays ? 1U : 4U); ++seed) {
        const outcome found =
            call_with({{what, rank, number, 1, 17 * number + 5 + 1000 * seed}}, protection::correct, 60, nullptr, by, ranks);
        ++tried;
        const bool lost = what == fault::lost_rank;
        // A rank that is lost after the others have left the call is not missed.
        EXPECT_EQ(found.right, lost ? ranks - found.lost : ranks) << "rank " << rank << ", message " << number;
        EXPECT_EQ(found.wrong + found.ended + found.errors, 0) << "rank " << rank << ", message " << number;
        for (const report& each : found.reports) seen += each.detected;
      }
    }
  }
  EXPECT_GT(tried, 30U);
  const bool repaired =
      what == fault::bit || what == fault::swapped || what == fault::misrouted || what == fault::stale || what == fault::dropped;
  EXPECT_TRUE(!repaired || seen > tried / 4) << seen << " of " << tried;
}

INSTANTIATE_TEST_SUITE_P(all, group_faults, testing::Combine(testing::ValuesIn(k_faults), testing::Values(way::directly, way::by_relays)));

// Without protection the same bits go into the result.
TEST(group_protection, off_lets_a_bit_pass) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) wrong += call_with({{fault::bit, 1, seed % 6, 1, seed}}, protection::off).wrong;
  EXPECT_GT(wrong, 0);
}

// A gather and two sums of 9 ranks.
constexpr int k_relayed = 9;
outcome relayed_with(const std::vector<wire_fault>& faults, protection wanted, std::vector<std::uint64_t>* messages = nullptr) {
  const auto board = std::make_shared<switchboard>(k_relayed, faults);
  outcome made;
  std::mutex mutex;
  const auto endings = run_ranks(board, quick(), [&](int, const group& own) {
    record here(wanted);
    exchange& over = *own.internal()->over;
    bool right = true;
    const report all = in_group(over, here.seen, "group_test", [&] {
      std::vector<std::int64_t> mine;
      for (int i = 0; i <= over.rank() % 4; ++i) mine.push_back(word(over.rank(), 2, static_cast<std::size_t>(i)));
      const auto found = over.gather(std::span<const std::int64_t>(mine));
      for (int p = 0; p < k_relayed; ++p) {
        const auto& part = found[static_cast<std::size_t>(p)];
        right = right && part.size() == static_cast<std::size_t>(p % 4 + 1);
        for (std::size_t i = 0; right && i < part.size(); ++i) right = part[i] == word(p, 2, i);
      }
      for (const std::size_t count : {std::size_t{5}, std::size_t{5000}}) {
        std::vector<std::int64_t> sum(count), expected(count, 0);
        for (std::size_t i = 0; i < count; ++i) {
          sum[i] = word(over.rank(), 1, i);
          for (int p = 0; p < k_relayed; ++p) expected[i] += word(p, 1, i);
        }
        over.add(sum);
        right = right && sum == expected;
      }
      return joined(over, here.seen.collect());
    });
    const std::lock_guard lock(mutex);
    made.reports.push_back(all);
    if (all.verdict == verdict::uncorrectable) {
      ++made.ended;
    } else {
      ++(right ? made.right : made.wrong);
    }
  });
  for (const test::ending& each : endings) made.errors += each.error ? 1 : 0;
  for (int r = 0; messages != nullptr && r < k_relayed; ++r) messages->push_back(board->messages(r));
  return made;
}

// A rank changes a bit of what it passes on, or adds wrongly, and seals that: the seals of the origins find it, and the repaired block is
// asked of the relay. A bit of each message with a block is struck.
TEST(group_relays, struck_blocks_are_found_and_repaired) {
  std::vector<std::uint64_t> messages;
  ASSERT_EQ(relayed_with({}, protection::correct, &messages).right, k_relayed);
  int wrong = 0;
  std::uint64_t detected = 0, tried = 0;
  for (int rank = 0; rank < k_relayed; rank += test::sampled() ? 4 : 1) {
    for (std::uint64_t number = 0; number < messages[static_cast<std::size_t>(rank)]; ++number) {
      const std::vector<wire_fault> faults = {{fault::struck, rank, number, 1, 31 * number + static_cast<std::uint64_t>(rank)}};
      const outcome found = relayed_with(faults, protection::correct);
      EXPECT_EQ(found.right, k_relayed) << "rank " << rank << ", message " << number;
      for (const report& each : found.reports) detected += each.detected;
      ++tried;
      wrong += relayed_with(faults, protection::off).wrong;
    }
  }
  EXPECT_GT(detected, tried / 4) << tried;
  EXPECT_GT(wrong, 0);  // without protection
}

// A relay whose blocks are always struck: those of others come from their origins, the call ends, as its own ones never come whole.
TEST(group_relays, a_relay_that_is_always_struck_is_reported) {
  const outcome found = relayed_with({{fault::struck, 2, 0, 1000000, 3}}, protection::correct);
  EXPECT_EQ(found.wrong, 0);
  EXPECT_EQ(found.right, 0);
  EXPECT_GE(found.ended, 1);
  const outcome some = relayed_with({{fault::struck, 2, 2, 3, 3}}, protection::correct);
  EXPECT_EQ(some.right, k_relayed);
}

// A relay ends, or is silent, in the middle of an exchange of many ranks: all others find that rank, and no other.
TEST(group_relays, a_dead_relay_is_found_and_no_other) {
  for (const std::uint64_t at : {0U, 1U, 3U, 5U, 8U}) {
    const auto board = std::make_shared<switchboard>(17, std::vector<wire_fault>{{fault::lost_rank, 6, at, 1, 0}});
    std::atomic<int> found{0}, right{0};
    const auto endings = run_ranks(board, quick(), [&](int, const group& own) {
      exchange& over = *own.internal()->over;
      record here;
      for (;;) {
        try {
          over.begin_call(&here.seen, protection::correct);
          right += round(over) ? 1 : 0;
          over.end_call();
          own.barrier();
          return;
        } catch (const ranks_lost&) {
          over.regroup();
          EXPECT_EQ(over.lost(), std::vector<int>{6});
          ++found;
        }
      }
    });
    for (const test::ending& each : endings) EXPECT_FALSE(each.error);
    EXPECT_EQ(found, 16);
    EXPECT_EQ(right, 16);
  }
}

TEST(group_relays, a_silent_relay_is_found_and_no_other) {
  const auto board = std::make_shared<switchboard>(17);
  std::atomic<int> found{0}, ready{0};
  (void)run_ranks(board, quick(0.5), [&](int rank, const group& own) {
    if (rank == 6) {
      while (ready < 16) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    try {
      own.barrier();
    } catch (const rank_lost_error& lost) {
      EXPECT_EQ(lost.ranks(), std::vector<int>{6});
      ++found;
    }
    ++ready;
    own.barrier();
  });
  EXPECT_EQ(found, 16);
}

TEST(group_protection, detect_repairs_nothing_in_silence) {
  const outcome found = call_with({{fault::dropped, 1, 0, 1, 0}}, protection::detect);
  EXPECT_EQ(found.ended, 3);
  for (const report& each : found.reports) EXPECT_GT(each.uncorrectable, 0U);
}

// A wire that is always damaged ends the call on all ranks.
TEST(group_protection, gives_up_on_all_ranks) {
  for (const fault what : {fault::bit, fault::swapped}) {
    const outcome found = call_with({{what, 2, 0, 100000, 3}}, protection::correct, 0.3);
    EXPECT_EQ(found.right + found.wrong, 0);
    EXPECT_GE(found.ended, 1);
  }
}

// Events of all ranks are in every report, with the rank that saw them.
TEST(group_report, events_of_all_ranks) {
  const outcome found = call_with({{fault::dropped, 1, 0, 1, 0}});
  ASSERT_EQ(found.reports.size(), 3U);
  for (const report& each : found.reports) {
    EXPECT_EQ(each.verdict, verdict::recomputed);
    ASSERT_EQ(each.events.size(), 1U);
    EXPECT_EQ(each.events[0].site, "group.wire");
    EXPECT_EQ(each.events[0].index, 1);
    EXPECT_EQ(each.events[0].rank, 2);
  }
}

TEST(group_ranks_lost, silent_rank_is_found) {
  const auto board = std::make_shared<switchboard>(3);
  std::atomic<int> found{0};
  const auto start = std::chrono::steady_clock::now();
  (void)run_ranks(board, quick(0.2), [&](int rank, const group& own) {
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(900));
      return;
    }
    try {
      own.barrier();
    } catch (const rank_lost_error& lost) {
      EXPECT_EQ(lost.ranks(), std::vector<int>{1});
      EXPECT_EQ(own.size(), 2);
      ++found;
    }
    own.barrier();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(850));
  });
  EXPECT_EQ(found, 2);
}

// An engine whose first wait takes longer than it was asked for, as if the process had been suspended.
class suspended_engine final : public transport {
 public:
  suspended_engine(std::shared_ptr<switchboard> board, int rank) : over_(std::move(board), rank) {}
  int rank() const override { return over_.rank(); }
  int size() const override { return over_.size(); }
  void send(int to, std::span<const std::byte> message) override { over_.send(to, message); }
  int receive(bytes& message, double seconds) override {
    if (std::exchange(first_, false)) std::this_thread::sleep_for(std::chrono::milliseconds(2000));
    return over_.receive(message, seconds);
  }
  bool lost(int rank) override { return over_.lost(rank); }

 private:
  thread_engine over_;
  bool first_ = true;
};

// All ranks were suspended for longer than their patience: none counts as lost.
TEST(group_ranks_lost, suspended_ranks_are_not) {
  const auto board = std::make_shared<switchboard>(2);
  std::atomic<int> ended{0};
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));
    const group own(std::make_shared<thread_engine>(board, 1), quick(1));
    own.barrier();
    ++ended;
  });
  {
    const group own(std::make_shared<suspended_engine>(board, 0), quick(1));
    EXPECT_NO_THROW(own.barrier());
    EXPECT_EQ(own.size(), 2);
    ++ended;
    other.join();
  }
  EXPECT_EQ(ended, 2);
}

TEST(group_errors, different_calls) {
  for (const way how : {way::directly, way::by_relays}) {
    for (const bool gathers : {false, true}) {
      std::atomic<int> refused{0};
      run_ranks(5, [&](int rank, const group& own) {
        exchange& over = over_of(own, how);
        over.expect_alike(rank == 2 ? 1 : 0);
        try {
          if (gathers) {
            (void)over.gather(std::span<const std::byte>());
          } else {
            over.barrier();
          }
        } catch (const invalid_argument_error&) {
          ++refused;
        }
      });
      EXPECT_EQ(refused, 5);
    }
  }
}

TEST(group_errors, an_exception_of_one_rank_ends_all) {
  std::atomic<int> ended{0};
  const auto endings = run_ranks(std::make_shared<switchboard>(3), quick(), [&](int rank, const group& own) {
    record here;
    try {
      (void)in_group(*own.internal()->over, here.seen, "group_test", [&]() -> report {
        if (rank == 1) throw std::bad_alloc();
        own.internal()->over->barrier();
        return {};
      });
    } catch (const std::bad_alloc&) {
      ++ended;
    } catch (const error& other) {
      EXPECT_NE(std::string(other.what()).find("rank 1"), std::string::npos);
      ++ended;
    }
    own.barrier();  // the group goes on
  });
  EXPECT_EQ(ended, 3);
  for (const auto& each : endings) EXPECT_FALSE(each.error);
}

// A rank whose arguments are refused before a call does not make the others wait, whether the call or its caller refuses them. Without
// leave_call() they would wait for `patience`.
TEST(group_errors, a_refused_call_ends_at_once) {
  for (const int ranks : {3, k_relayed}) {
    std::atomic<int> named{0}, refused{0};
    const auto start = std::chrono::steady_clock::now();
    const auto endings = run_ranks(std::make_shared<switchboard>(ranks), quick(), [&](int rank, const group& own) {
      const auto call_of_all = [&](const auto& work) {
        record here;
        (void)in_group(*own.internal()->over, here.seen, "group_test", [&] {
          work();
          own.internal()->over->barrier();
          return joined(*own.internal()->over, here.seen.collect());
        });
      };
      const auto nothing = [] {};
      const auto throws = [] { throw std::length_error("refused"); };
      for (int i = 0; i < 4; ++i) {
        const std::uint64_t before = own.calls();
        try {
          if (rank != 1) {
            call_of_all(nothing);
          } else if (i == 0) {  // before the call
            prepare_call(own, throws);
          } else if (i == 1) {  // within another that prepares it
            prepare_call(own, [&] { prepare_call(own, throws); });
          } else if (i == 2) {  // in the call, of which the others hear by the call itself
            prepare_call(own, [&] { call_of_all(throws); });
          } else {
            own.leave_call();
            throw std::length_error("refused");
          }
          ADD_FAILURE() << "rank " << rank << " ended without rank 1";
        } catch (const left_by_other& left) {
          EXPECT_NE(std::string(left.what()).find("rank 1 of the group left the call"), std::string::npos) << left.what();
          ++named;
        } catch (const std::length_error&) {
          EXPECT_EQ(rank, 1);
          ++refused;
        }
        EXPECT_EQ(own.calls(), before + 1) << "rank " << rank << ", call " << i;
        // The group goes on.
        EXPECT_EQ(prepare_call(own,
                               [&] {
                                 call_of_all(nothing);
                                 return 7;
                               }),
                  7);
      }
    });
    for (const auto& each : endings) EXPECT_FALSE(each.error);
    EXPECT_EQ(named, 4 * (ranks - 1));
    EXPECT_EQ(refused, 4);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
  // Without ranks of an engine leave_call() tells no rank.
  for (const group& each : {group(), group::devices({0, 1})}) {
    EXPECT_THROW(prepare_call(each, [] { throw std::length_error("refused"); }), std::length_error);
    EXPECT_EQ(each.calls(), 0U);
  }
}

TEST(group_errors, arguments) {
  EXPECT_THROW((void)group::threads(0), invalid_argument_error);
  EXPECT_THROW((void)group::threads(2, {.tries = 0}), invalid_argument_error);
  EXPECT_THROW((void)group::threads(2, {.resend_after = 0}), invalid_argument_error);
  EXPECT_THROW((void)group::threads(2, {.patience = -1}), invalid_argument_error);
  EXPECT_THROW(group(nullptr), invalid_argument_error);
  EXPECT_EQ(group().size(), 1);
}

// A thread of a device that throws, whether it has begun a call or not, leaves none of the others waiting, and its exception is the one
// that is told.
TEST(group_devices, an_exception_of_one_thread_ends_all) {
  const group three = group::devices({0, 5, 1});
  for (const bool begun : {false, true}) {
    device_threads threads(three, 3);
    std::atomic<int> ended{0};
    const auto work = [&](std::size_t p) {
      exchange& over = threads.over(p);
      if (begun) over.begin_call(nullptr, protection::correct);
      if (p == 1) throw std::length_error("enough");
      if (!begun) over.begin_call(nullptr, protection::correct);
      try {
        over.barrier();
      } catch (const ranks_lost&) {
        ++ended;
        over.regroup();
        throw rank_lost_error(lost_message(over, "a call"), over.lost());
      }
    };
    EXPECT_THROW(threads.run("a call", work), std::length_error);
    EXPECT_EQ(ended, 2);
  }
  device_threads threads(three, 2);
  EXPECT_EQ(threads.size(), 2U);
  EXPECT_EQ(threads.device(1), 5);
  threads.run("a call", [&](std::size_t p) { threads.over(p).barrier(); });
}

}  // namespace
}  // namespace ballast::wire
