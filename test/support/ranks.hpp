// Ranks of a group as threads of the test, with faults of the wire.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/group.hpp>

#include "group/thread_engine.hpp"

namespace ballast::test {

// Short waits: tests drop messages.
inline group_options quick(double patience = 60) { return {.tries = 5, .resend_after = 0.005, .patience = patience}; }

// The end of a rank: it ended by work(), by an injected loss, or by another exception.
struct ending {
  bool lost = false;
  std::exception_ptr error;
};

// Runs work(rank, group) on `ranks` threads and returns how each ended. A rank's group is destroyed when its work is done.
inline std::vector<ending> run_ranks(const std::shared_ptr<wire::switchboard>& board, const group_options& how,
                                     const std::function<void(int, const group&)>& work) {
  std::vector<ending> made(static_cast<std::size_t>(board->ranks()));
  std::vector<std::thread> threads;
  for (int r = 0; r < board->ranks(); ++r) {
    threads.emplace_back([&, r] {
      try {
        const group own(std::make_shared<wire::thread_engine>(board, r), how);
        work(r, own);
      } catch (const wire::rank_ended&) {
        made[static_cast<std::size_t>(r)].lost = true;
      } catch (...) {
        made[static_cast<std::size_t>(r)].error = std::current_exception();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  return made;
}

// The same without faults; an exception of a rank leaves it.
inline void run_ranks(int ranks, const std::function<void(int, const group&)>& work) {
  for (const ending& each : run_ranks(std::make_shared<wire::switchboard>(ranks), group_options{}, work))
    if (each.error) std::rethrow_exception(each.error);
}

// Adds up how the ranks ended: those that were lost, those that threw, and the text of the last error; in `refused`, where an outcome has
// it, those that found a matrix without full rank.
template <class Outcome>
void add_endings(const std::vector<ending>& endings, Outcome& made) {
  for (const ending& each : endings) {
    made.lost += each.lost ? 1 : 0;
    if (!each.error) continue;
    ++made.errors;
    try {
      std::rethrow_exception(each.error);
    } catch (const std::exception& seen) {
      if constexpr (requires { made.refused; }) made.refused += dynamic_cast<const rank_deficient_error*>(&seen) != nullptr ? 1 : 0;
      made.message = seen.what();
    }
  }
}

}  // namespace ballast::test
