// Memory of a device over the driver: in the order of a stream, and kept for the next call.
#include <cstdint>
#include <new>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/memory/idle_memory.hpp"
#include "unit/cuda_fake_driver.hpp"

namespace ballast::cuda {
namespace {

using namespace fakes;
using testing::ElementsAre;

class cuda_memory : public cuda_runtime {};

TEST_F(cuda_memory, allocates_in_stream_order) {
  const auto on = open();
  {
    const device_buffer buffer(on, 1000, k_stream);
    on->zero(buffer.data(), 1000, k_stream);
    EXPECT_EQ(static_cast<char*>(buffer.data())[999], 0);
  }
  { const device_buffer nothing(on, 0, k_stream); }
  EXPECT_THAT(fake.calls, ElementsAre("allocate", "fill", "release", "allocate", "release"));
  fake.out_of_memory = true;
  EXPECT_THROW(on->allocate(1, k_stream), std::bad_alloc);
}

// A call on a stream of Ballast's own releases its buffers, and the next call of the same size takes them without the driver.
TEST_F(cuda_memory, keeps_the_memory_of_its_own_streams) {
  const auto on = open();
  fake.made_stream = k_stream;
  const stream mine = on->make_stream(false);
  ASSERT_EQ(mine, k_stream);
  fake.calls.clear();
  const auto call = [&] {
    const device_buffer small(on, 100, mine), large(on, 3 << 20, mine), same(on, 100, mine);
    on->zero(large.data(), 3 << 20, mine);
    EXPECT_NE(small.data(), same.data());
  };
  call();
  EXPECT_THAT(fake.calls, ElementsAre("allocate", "allocate", "allocate", "fill"));
  fake.calls.clear();
  call();
  EXPECT_THAT(fake.calls, ElementsAre("fill"));
  // Idle memory goes back before the stream ends, and what is released later goes to the pool.
  fake.calls.clear();
  void* const late = on->allocate(100, mine);
  on->release_stream(mine);
  EXPECT_THAT(fake.calls, ElementsAre("release", "release", "destroy stream"));
  on->release(late, mine);
  EXPECT_EQ(fake.calls.back(), "release");
  // The handle may now be another stream's.
  on->release(on->allocate(100, mine), mine);
  EXPECT_EQ(fake.calls.back(), "release");
}

TEST_F(cuda_memory, gives_idle_memory_back_when_memory_runs_out) {
  const auto on = open();
  fake.made_stream = k_stream;
  const stream mine = on->make_stream(false);
  on->release(on->allocate(100, mine), mine);
  fake.calls.clear();
  fake.out_of_memory = true;
  EXPECT_THROW(on->allocate(5000, mine), std::bad_alloc);
  EXPECT_THAT(fake.calls, ElementsAre("allocate", "release", "untimed event", "record", "synchronize event", "allocate"));
  fake.calls.clear();
  EXPECT_THROW(on->allocate(5000, mine), std::bad_alloc) << "another thread may have given memory back";
  EXPECT_THAT(fake.calls, ElementsAre("allocate", "allocate"));
}

// A sixteenth of the device's memory.
TEST_F(cuda_memory, keeps_a_bounded_amount_of_idle_memory) {
  idle_memory kept(1024);
  const auto number = [](int i) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(i)); };
  std::vector<void*> released;
  const auto release = [&](const idle_memory::block& each) { released.push_back(each.memory); };
  kept.serve(k_stream);
  for (int i = 1; i <= 4; ++i) kept.note({number(i), 400, k_stream});
  kept.note({number(5), 1025, k_stream});
  EXPECT_FALSE(kept.keep(number(5), k_stream, release));
  EXPECT_FALSE(kept.keep(number(6), k_stream, release)) << "never noted";
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(kept.keep(number(i), k_stream, release));
  EXPECT_THAT(released, ElementsAre(number(1))) << "idle for longest";
  EXPECT_EQ(kept.idle_bytes(), 800);
  EXPECT_EQ(kept.take(400, k_second_stream), nullptr);
  EXPECT_EQ(kept.take(300, k_stream), nullptr);
  EXPECT_NE(kept.take(400, k_stream), nullptr);
  EXPECT_NE(kept.take(400, k_stream), nullptr);
  EXPECT_EQ(kept.take(400, k_stream), nullptr);
  EXPECT_EQ(kept.idle_bytes(), 0);
  EXPECT_FALSE(kept.keep(number(4), k_second_stream, release)) << "of a caller's stream";
  EXPECT_TRUE(kept.serves(k_stream, 400));
  EXPECT_FALSE(kept.serves(k_stream, 1025)) << "larger memory is not rounded up";
}

TEST_F(cuda_memory, rounds_kept_sizes_by_an_eighth) {
  EXPECT_EQ(idle_memory::rounded(0), 512);
  EXPECT_EQ(idle_memory::rounded(513), 1024);
  for (std::int64_t bytes = 1; bytes < std::int64_t{1} << 40; bytes += bytes / 3 + 1) {
    const std::int64_t made = idle_memory::rounded(bytes);
    EXPECT_GE(made, bytes);
    EXPECT_LE(made, std::max<std::int64_t>(bytes + bytes / 8, bytes + 511));
    EXPECT_EQ(idle_memory::rounded(made), made);
  }
}

}  // namespace
}  // namespace ballast::cuda
