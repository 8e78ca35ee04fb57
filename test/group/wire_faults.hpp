// One fault of the wire in each of many calls. An outcome has errors, lost, ended, detected, message and messages (those of each rank).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "group/thread_engine.hpp"

namespace ballast::test {

// Strikes at most about `tries` messages of each rank. run(faults): the outcome of a call with these; messages: those of a clean call;
// expect(found, what): that its results are right. If a rank is lost, the others end, or name it.
template <class Run, class Expect>
void strike_messages(wire::fault kind, const std::vector<std::uint64_t>& messages, std::uint64_t tries, const Run& run,
                     const Expect& expect) {
  using wire::fault;
  const int ranks = static_cast<int>(messages.size());
  std::uint64_t detected = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::uint64_t all = messages[static_cast<std::size_t>(rank)], step = all / tries + 1;
    for (std::uint64_t number = static_cast<std::uint64_t>(rank) % step; number < all; number += step) {
      const auto found = run(std::vector<wire::wire_fault>{{kind, rank, number, 1, number}});
      const std::string what = "message " + std::to_string(number) + " of rank " + std::to_string(rank);
      detected += found.detected;
      if (kind == fault::lost_rank && found.lost == 0) {
        // Messages that are sent again make their number vary: in this run the rank has sent fewer.
        EXPECT_LE(found.messages[static_cast<std::size_t>(rank)], number) << what;
        EXPECT_EQ(found.ended, ranks) << what;
      } else if (kind == fault::lost_rank) {
        // Ranks that had not yet finished name the lost one; none stores anything wrong.
        EXPECT_EQ(found.lost, 1) << what;
        EXPECT_EQ(found.ended + found.errors, ranks - 1) << what;
        // The message ends with the lost ranks; one that has finished all calls may be among them.
        const std::size_t names = found.message.find("lost ");
        EXPECT_TRUE(found.errors == 0 ||
                    (names != std::string::npos && found.message.find(std::to_string(rank), names) != std::string::npos))
            << what << ": " << found.message;
        continue;
      }
      ASSERT_EQ(found.errors, 0) << what << ": " << found.message;
      expect(found, what);
    }
  }
  const bool unseen = kind == fault::repeated || kind == fault::late || kind == fault::lost_rank;
  EXPECT_TRUE(unseen || detected > 0);
}

// Without protection: changes a bit of messages of rank 1 in turn until differs(run(faults)).
template <class Run, class Differs>
void expect_a_bit_to_pass(const std::vector<std::uint64_t>& messages, const Run& run, const Differs& differs) {
  for (std::uint64_t number = 0; number < messages[1]; ++number)
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const auto found = run(std::vector<wire::wire_fault>{{wire::fault::bit, 1, number, 1, 37 * number + seed}});
      if (found.errors > 0 || differs(found)) return;
    }
  ADD_FAILURE() << "no bit of a message of rank 1 reached the results";
}

}  // namespace ballast::test
