// Ranks over NCCL, with the library of fake_nccl.hpp: messages of any length and their faults, blocks and sums between devices, lost ranks,
// and whole calls.
// Layer: backend tests.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <complex>
#include <cstdint>
#include <latch>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>
#include <ballast/qr_rows.hpp>

#include "core/counter_rng.hpp"
#include "group/fake_nccl.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "inject/active.hpp"
#include "inject/injector.hpp"
#include "run/dispatch.hpp"

namespace ballast {
namespace {

using test::nccl_fault;

group_options quick(double patience = 20) { return {.resend_after = 0.02, .patience = patience}; }

void expect_no_errors(const std::vector<std::exception_ptr>& ends) {
  for (std::size_t r = 0; r < ends.size(); ++r) {
    if (!ends[r]) continue;
    try {
      std::rethrow_exception(ends[r]);
    } catch (const std::exception& seen) {
      ADD_FAILURE() << "rank " << r << ": " << seen.what();
    }
  }
}

std::vector<std::int64_t> words_of(int rank, std::size_t count) {
  std::vector<std::int64_t> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<std::int64_t>(core::random_bits(7, static_cast<std::uint64_t>(rank), i));
  return made;
}

// Every rank adds words of its own, which must give the sum of all. Returns the faults that the ranks saw.
struct seen_faults {
  std::uint64_t detected = 0, uncorrectable = 0;
};
seen_faults add_everywhere(int ranks, std::size_t count, int times) {
  std::vector<std::int64_t> expected(count);
  for (int r = 0; r < ranks; ++r) {
    const auto own = words_of(r, count);
    for (std::size_t i = 0; i < count; ++i)
      expected[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(expected[i]) + static_cast<std::uint64_t>(own[i]));
  }
  std::vector<report> reports(static_cast<std::size_t>(ranks));
  const auto ends = test::run_nccl_ranks(ranks, quick(), [&](int r, const group& own) {
    EXPECT_EQ(own.rank(), r);
    EXPECT_EQ(own.size(), ranks);
    wire::exchange& over = wire::exchange_of(own, "test");
    inject::active_injector quiet(nullptr, {});
    const run::settings how = run::settings_of(execution{}, call{.throw_on_uncorrectable = false});
    run::recorder seen("test", backend::automatic, "", how, quiet);
    reports[static_cast<std::size_t>(r)] = wire::in_group(over, seen, "test", [&] {
      for (int i = 0; i < times; ++i) {
        auto words = words_of(r, count);
        over.add(words);
        EXPECT_EQ(words, expected) << "rank " << r << ", sum " << i;
      }
      return wire::joined(over, seen.collect());
    });
  });
  expect_no_errors(ends);
  return {reports[0].detected, reports[0].uncorrectable};
}

class nccl_ranks : public testing::Test {
 protected:
  test::nccl_devices devices_{4};
};

TEST_F(nccl_ranks, carry_messages_of_any_length) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{300}, std::size_t{70'000}}) {
      test::begin_fake_nccl();
      EXPECT_EQ(add_everywhere(ranks, count, 3).detected, 0U) << ranks << " ranks, " << count << " words";
    }
  }
}

TEST_F(nccl_ranks, send_damaged_messages_again) {
  std::uint64_t struck = 0, detected = 0;
  for (const nccl_fault each : {nccl_fault::bit, nccl_fault::swapped, nccl_fault::stale, nccl_fault::half, nccl_fault::late}) {
    for (std::uint64_t number = 0; number < 8; ++number) {
      // Several in a row: most of a slot is empty.
      test::begin_fake_nccl({{each, static_cast<int>(number % 3), number, 1 + number % 2, number}});
      const seen_faults found = add_everywhere(3, 20'000, 2);
      EXPECT_EQ(found.uncorrectable, 0U);
      struck += test::struck_nccl();
      detected += found.detected;
    }
  }
  EXPECT_GE(struck, 40U);
  EXPECT_GT(detected, 6U);
}

// The last messages of a call, one slot at a time: a rank that has all it needs must not leave the rounds while another asks a third one.
TEST_F(nccl_ranks, send_the_last_messages_again) {
  std::uint64_t struck = 0;
  for (std::uint64_t number = 0; number < 16; ++number) {
    for (const int rank : {0, 1, 2}) {
      test::begin_fake_nccl({{nccl_fault::stale, rank, number, 1, number}});
      const auto start = std::chrono::steady_clock::now();
      const seen_faults found = add_everywhere(3, 5, 1);
      EXPECT_EQ(found.uncorrectable, 0U);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "rank " << rank << ", slot " << number;
      struck += test::struck_nccl();
    }
  }
  EXPECT_GE(struck, 15U);
}

// A rank throws in a call while the others wait for its messages, for an operation of the devices, or compute for longer than a rank that
// ends takes for other messages. All end long before they would count it as lost, with an error that names it.
TEST_F(nccl_ranks, hear_at_once_of_an_exception) {
  enum class others { wait_for_messages, wait_for_devices, compute };
  for (const others way : {others::wait_for_messages, others::wait_for_devices, others::compute}) {
    test::begin_fake_nccl();
    const auto start = std::chrono::steady_clock::now();
    std::atomic<int> named{0};
    const auto ends = test::run_nccl_ranks(3, quick(), [&](int r, const group& own) {
      wire::exchange& over = wire::exchange_of(own, "test");
      inject::active_injector quiet(nullptr, {});
      const run::settings how = run::settings_of(execution{}, call{});
      run::recorder seen("test", backend::automatic, "", how, quiet);
      const cuda::device_buffer words(own.internal()->link->device(), 80), sum(own.internal()->link->device(), 80);
      const auto work = [&] {
        over.barrier();
        if (r == 1) throw std::bad_alloc();
        if (way == others::compute) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        if (way == others::wait_for_devices) {
          own.internal()->link->add(words.data(), sum.data(), 10, nullptr);
          own.internal()->link->finish(nullptr);
        }
        over.barrier();
        return wire::joined(over, seen.collect());
      };
      try {
        (void)wire::in_group(over, seen, "test", work);
        ADD_FAILURE() << "rank " << r << " ended without rank 1";
      } catch (const wire::left_by_other& left) {
        EXPECT_NE(r, 1);
        EXPECT_NE(std::string(left.what()).find("rank 1 of the group left the call"), std::string::npos) << left.what();
        ++named;
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(r, 1);
        // The rank keeps its group, and makes no calls.
        while (way != others::compute && named < 2 && std::chrono::steady_clock::now() - start < std::chrono::seconds(15))
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (way == others::wait_for_messages) own.barrier();  // the group goes on
    });
    expect_no_errors(ends);
    EXPECT_EQ(named, 2);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  }
}

// Later operations of devices on such a group end at once as well, on all ranks.
TEST_F(nccl_ranks, refuse_devices_after_an_exception) {
  test::begin_fake_nccl();
  std::atomic<int> refused{0}, named{0};
  expect_no_errors(test::run_nccl_ranks(3, quick(), [&](int r, const group& own) {
    wire::exchange& over = wire::exchange_of(own, "test");
    const cuda::device_buffer words(own.internal()->link->device(), 80), sum(own.internal()->link->device(), 80);
    inject::active_injector quiet(nullptr, {});
    const run::settings how = run::settings_of(execution{}, call{});
    run::recorder seen("test", backend::automatic, "", how, quiet);
    for (const bool throws : {true, false}) {
      try {
        (void)wire::in_group(over, seen, "test", [&] {
          over.barrier();  // as all calls begin
          if (r == 1 && throws) throw std::bad_alloc();
          own.internal()->link->add(words.data(), sum.data(), 10, nullptr);
          own.internal()->link->finish(nullptr);
          return wire::joined(over, seen.collect());
        });
        ADD_FAILURE() << "a sum ended without a rank";
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(r, 1);
      } catch (const wire::left_by_other&) {
        EXPECT_TRUE(throws ? r != 1 : r == 1);
        ++named;
      } catch (const device_error& ended) {
        EXPECT_NE(std::string(ended.what()).find("make a new group"), std::string::npos) << ended.what();
        ++refused;
      }
    }
  }));
  EXPECT_EQ(named, 3);
  EXPECT_EQ(refused, 2);
}

TEST_F(nccl_ranks, name_a_rank_that_is_silent) {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{5}}) {
    test::begin_fake_nccl();
    test::end_fake_rank_at(1, number);
    int named = 0;
    const auto ends = test::run_nccl_ranks(3, quick(3), [&](int, const group& own) {
      for (int i = 0; i < 5; ++i) own.barrier();
    });
    for (std::size_t r = 0; r < ends.size(); ++r) {
      ASSERT_TRUE(ends[r]) << "rank " << r << " ended without the lost one";
      if (r == 1) continue;
      try {
        std::rethrow_exception(ends[r]);
      } catch (const rank_lost_error& lost) {
        // A rank that waits for the lost one in the round before may be named, too.
        EXPECT_EQ(std::ranges::count(lost.ranks(), 1), 1) << lost.what();
        EXPECT_EQ(std::ranges::count(lost.ranks(), static_cast<int>(r)), 0) << lost.what();
        ++named;
      } catch (const std::exception& other) {
        ADD_FAILURE() << other.what();
      }
    }
    EXPECT_EQ(named, 2);
  }
}

// The head of each slot of a rank comes damaged, so that nothing of it is ever read, though all rounds end: the others find it within
// `patience`, while they wait for messages and while they wait for an operation of devices.
TEST_F(nccl_ranks, name_a_rank_whose_slots_are_always_damaged) {
  for (const bool with_devices : {false, true}) {
    // Operations of slots only, so that the rank's group is made.
    test::begin_fake_nccl({{.what = nccl_fault::swapped, .rank = 2, .number = 40, .count = ~std::uint64_t{0}, .longer = 4096}});
    std::atomic<int> named{0};
    const auto start = std::chrono::steady_clock::now();
    (void)test::run_nccl_ranks(3, quick(3), [&](int r, const group& own) {
      try {
        for (int i = 0; i < 1000; ++i) {
          own.barrier();
          if (with_devices && i % 4 == 3) {
            wire::nccl_link& link = *own.internal()->link;
            const cuda::device_buffer words(link.device(), 80), sum(link.device(), 80);
            link.add(words.data(), sum.data(), 10, nullptr);
            link.finish(nullptr);
          }
        }
        ADD_FAILURE() << "rank " << r << " went on";
      } catch (const rank_lost_error& lost) {
        // A rank that another one has given up may be named by those who see it go.
        if (r != 2) named += std::ranges::count(lost.ranks(), 2) == 1 ? 1 : 0;
        EXPECT_EQ(std::ranges::count(lost.ranks(), r), 0) << lost.what();
        // Later calls say the same.
        EXPECT_THROW(own.barrier(), rank_lost_error);
      }
    });
    EXPECT_GT(test::struck_nccl(), 0U);
    EXPECT_EQ(named, 2);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  }
}

// A rank whose slots come damaged for less than that is not: the messages are sent again.
TEST_F(nccl_ranks, read_a_rank_again_whose_slots_were_damaged) {
  test::begin_fake_nccl({{.what = nccl_fault::swapped, .rank = 2, .number = 6, .count = 12, .longer = 4096}});
  const seen_faults found = add_everywhere(3, 2000, 3);
  EXPECT_EQ(found.uncorrectable, 0U);
  EXPECT_GT(test::struck_nccl(), 0U);
}

TEST_F(nccl_ranks, move_blocks_and_sums_between_devices) {
  test::begin_fake_nccl({{nccl_fault::late, 2, 0, 3, 5}});
  expect_no_errors(test::run_nccl_ranks(3, quick(), [&](int r, const group& own) {
    wire::nccl_link& link = *own.internal()->link;
    const auto on = link.device();
    EXPECT_EQ(link.device_number(), r);
    cuda::device_buffer out(on, 3 * 800), in(on, 3 * 800), sum(on, 800);
    std::vector<wire::nccl_link::block> go, come;
    for (int p = 0; p < 3; ++p) {
      const auto words = words_of(10 * r + p, 100);
      on->copy(static_cast<char*>(out.data()) + 800 * p, words.data(), 800, nullptr);
      go.push_back({static_cast<char*>(out.data()) + 800 * p, 800});
      come.push_back({static_cast<char*>(in.data()) + 800 * p, 800});
    }
    link.exchange(go, come, nullptr);
    link.add(out.data(), sum.data(), 100, nullptr);
    link.finish(nullptr);
    std::vector<std::int64_t> found(100);
    std::vector<std::uint64_t> total(100);
    for (int p = 0; p < 3; ++p) {
      const auto first = words_of(10 * p, 100);
      for (std::size_t i = 0; i < 100; ++i) total[i] += static_cast<std::uint64_t>(first[i]);
      if (p == r) continue;
      on->copy(found.data(), come[static_cast<std::size_t>(p)].data, 800, nullptr);
      EXPECT_EQ(found, words_of(10 * p + r, 100));
    }
    std::vector<std::uint64_t> added(100);
    on->copy(added.data(), sum.data(), 800, nullptr);
    EXPECT_EQ(added, total);
    own.barrier();
  }));
}

TEST_F(nccl_ranks, name_a_rank_that_leaves_an_operation_of_devices) {
  test::begin_fake_nccl();
  std::atomic<int> named = 0;
  std::latch others(2);  // rank 2 ends when the others have left the barrier, so that none of them misses it there
  const auto ends = test::run_nccl_ranks(3, quick(3), [&](int r, const group& own) {
    own.barrier();
    if (r == 2) {
      others.wait();
      test::end_fake_rank(2);
      return;
    }
    others.count_down();
    wire::nccl_link& link = *own.internal()->link;
    const cuda::device_buffer words(link.device(), 80), sum(link.device(), 80);
    try {
      link.add(words.data(), sum.data(), 10, nullptr);
      link.finish(nullptr);
      ADD_FAILURE() << "a sum ended without a rank";
    } catch (const rank_lost_error& lost) {
      EXPECT_EQ(lost.ranks(), std::vector<int>{2});
      ++named;
    }
    // Later calls say the same.
    EXPECT_THROW(own.barrier(), rank_lost_error);
  });
  expect_no_errors(ends);
  EXPECT_EQ(named, 2);
}

TEST_F(nccl_ranks, refuse) {
  EXPECT_THROW((void)group::nccl(nullptr), invalid_argument_error);
  test::begin_fake_nccl();
  int one = 0;
  EXPECT_THROW((void)group::nccl(&one, {.tries = 0}), invalid_argument_error);
}

// QR of rows on processors, with the group's messages over NCCL.
TEST_F(nccl_ranks, factor_rows_on_processors) {
  test::begin_fake_nccl();
  constexpr std::int64_t m = 40, n = 5;
  std::vector<std::vector<double>> R(3);
  expect_no_errors(test::run_nccl_ranks(3, quick(), [&](int r, const group& own) {
    std::vector<double> A(static_cast<std::size_t>(m * n));
    for (std::size_t i = 0; i < A.size(); ++i) A[i] = core::random_uniform(3, static_cast<std::uint64_t>(r), i) - 0.5;
    const auto factors = qr::factor_rows(row_major<const double>(A.data(), m, n), {.backend = run::host_backend(), .group = own});
    const auto top = factors.r();
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) R[static_cast<std::size_t>(r)].push_back(top(i, j));
  }));
  EXPECT_EQ(R[0].size(), static_cast<std::size_t>(n * n));
  EXPECT_EQ(R[0], R[1]);
  EXPECT_EQ(R[0], R[2]);
}

}  // namespace
}  // namespace ballast
