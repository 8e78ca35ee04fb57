// Roads between the memories of devices, on a driver of the test's own: which pools are opened, and to whom.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/runtime/runtime.hpp"

namespace ballast::cuda {
namespace {

using driver::k_success;

struct peers_asked {
  int has_road = 1;
  std::vector<std::string> questions;
  std::vector<driver::pool_access> opened;
};
peers_asked asked;

driver::api api_of_peers() {
  driver::api made{};
  made.device_name = [](char* text, int bytes, driver::device_id) {
    return std::strncpy(text, "Peer", static_cast<std::size_t>(bytes)), k_success;
  };
  made.device_memory = [](std::size_t* bytes, driver::device_id) { return *bytes = 1024, k_success; };
  made.device_attribute = [](int* value, driver::device_attribute, driver::device_id) { return *value = 9, k_success; };
  made.default_pool = [](driver::memory_pool* pool, driver::device_id) { return *pool = nullptr, k_success; };
  made.pool_get = [](driver::memory_pool, int, void* value) { return std::memset(value, 1, sizeof(std::uint64_t)), k_success; };
  made.exchange_capture_mode = [](int*) { return k_success; };
  made.context_current = [](driver::context* current) { return *current = nullptr, k_success; };
  made.can_reach = [](int* does, driver::device_id from, driver::device_id memory_of) {
    asked.questions.push_back(std::to_string(from) + " to " + std::to_string(memory_of));
    return *does = asked.has_road, k_success;
  };
  made.pool_open = [](driver::memory_pool, const driver::pool_access* wanted, std::size_t count) {
    return asked.opened.insert(asked.opened.end(), wanted, wanted + count), k_success;
  };
  return made;
}

TEST(cuda_peers, a_pool_is_opened_to_devices_that_have_a_road) {
  const driver::api api = api_of_peers();
  kernel_cache kernels({.folder = {}, .bundle = {}, .compiler = [](int) -> const nvrtc::compiler* { return nullptr; }});
  const auto on = open_device(api, 13000, nullptr, 3, kernels), other = open_device(api, 13000, nullptr, 5, kernels);
  EXPECT_TRUE(on->opens_to(*on));
  EXPECT_TRUE(asked.opened.empty());
  EXPECT_TRUE(on->opens_to(*other));
  EXPECT_EQ(asked.questions, std::vector<std::string>{"5 to 3"});
  ASSERT_EQ(asked.opened.size(), 1U);
  EXPECT_EQ(asked.opened[0].place_type, driver::k_place_device);
  EXPECT_EQ(asked.opened[0].place, 5);
  EXPECT_EQ(asked.opened[0].allowed, driver::k_read_and_write);
  EXPECT_TRUE(reach_each_other(std::vector{on, other}));
  asked = {.has_road = 0, .questions = {}, .opened = {}};
  EXPECT_FALSE(on->opens_to(*other));
  EXPECT_FALSE(reach_each_other(std::vector{on, other}));
  EXPECT_TRUE(asked.opened.empty());
}

}  // namespace
}  // namespace ballast::cuda
