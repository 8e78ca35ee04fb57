// Ranks of a group in C that are threads of one process: an engine that is a table of functions, with faults.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "c/support.hpp"

namespace ballast::test {

using c_group_handle = owned<ballast_group, ballast_group_destroy>;

// Boxes of messages for ranks that are threads.
class post_office {
 public:
  explicit post_office(int ranks) : boxes_(static_cast<std::size_t>(ranks)) {}
  struct desk {
    post_office* office = nullptr;
    int rank = 0;
    std::atomic<int> sent = 0, destroyed = 0;
    int damaged = -1;                                 // the number of a message, of which one bit is flipped
    std::int32_t answer_of_send = 0, says_lost = -1;  // the values that the functions return
  };
  static std::int32_t send(void* user, std::int32_t to, const void* bytes, std::size_t count) {
    auto& own = *static_cast<desk*>(user);
    if (own.answer_of_send != 0) return own.answer_of_send;
    const auto* const first = static_cast<const unsigned char*>(bytes);
    std::vector<unsigned char> message(first, first + count);
    if (own.sent++ == own.damaged) message[count - 1] ^= 4;
    {
      const std::lock_guard lock(own.office->mutex_);
      own.office->boxes_[static_cast<std::size_t>(to)].emplace_back(own.rank, std::move(message));
    }
    own.office->came_.notify_all();
    return 0;
  }
  static std::int32_t receive(void* user, double seconds, void (*take)(void*, const void*, std::size_t), void* to) {
    auto& own = *static_cast<desk*>(user);
    std::unique_lock lock(own.office->mutex_);
    auto& box = own.office->boxes_[static_cast<std::size_t>(own.rank)];
    if (!own.office->came_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !box.empty(); })) return -1;
    const auto [from, message] = std::move(box.front());
    box.pop_front();
    take(to, message.data(), message.size());
    return from;
  }
  static std::int32_t lost(void* user, std::int32_t rank) { return static_cast<desk*>(user)->says_lost == rank ? 1 : 0; }
  static void destroy(void* user) { ++static_cast<desk*>(user)->destroyed; }
  ballast_transport table(desk& of, int rank) {
    of.office = this;
    of.rank = rank;
    return {sizeof(ballast_transport), &of, rank, static_cast<std::int32_t>(boxes_.size()), send, receive, lost, destroy};
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::deque<std::pair<int, std::vector<unsigned char>>>> boxes_;
};

// Runs work(rank, group) on a thread for each rank.
inline void on_threads(int ranks, const std::function<void(int, ballast_group*)>& work,
                       const std::function<void(int, post_office::desk&)>& prepare = {}, double patience = 5) {
  post_office office(ranks);
  std::vector<post_office::desk> desks(static_cast<std::size_t>(ranks));
  std::vector<std::thread> all;
  for (int r = 0; r < ranks; ++r)
    all.emplace_back([&, r] {
      post_office::desk& own = desks[static_cast<std::size_t>(r)];
      if (prepare) prepare(r, own);
      const ballast_transport table = office.table(own, r);
      const ballast_group_settings quick = {sizeof quick, 0, 0.01, patience};
      error failed;
      EXPECT_EQ(ballast_error_create(&failed), BALLAST_OK);
      {
        c_group_handle group;
        ASSERT_EQ(ballast_group_create(&table, &quick, &group, failed), BALLAST_OK) << ballast_error_message(failed);
        std::int32_t place = -1, size = -1;
        EXPECT_EQ(ballast_group_place(group, &place, &size, failed), BALLAST_OK);
        EXPECT_EQ(place, r);
        EXPECT_EQ(size, ranks);
        work(r, group);
        EXPECT_EQ(own.destroyed, 0);
      }
      EXPECT_EQ(own.destroyed, 1);
    });
  for (std::thread& each : all) each.join();
}

}  // namespace ballast::test
