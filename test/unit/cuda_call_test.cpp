// The surroundings of every call of a CUDA backend: staged operands, workspaces, the event ring, faults, shared states; and the functions
// that choose and write its policies.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "cuda/call/device_call.hpp"
#include "cuda/device/bank_conflicts.hpp"
#include "cuda/device/occupancy.hpp"
#include "cuda/jit/expression.hpp"
#include "cuda/memory/device_staging.hpp"
#include "cuda/memory/shared_state.hpp"
#include "cuda/memory/workspace.hpp"
#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"

namespace ballast::cuda {
namespace {

std::shared_ptr<simt::emulated_device> emulator() { return std::make_shared<simt::emulated_device>(); }

// ---- Operands ----

TEST(cuda_staging, copies_host_operands_there_and_back) {
  const auto device = emulator();
  const std::vector<int> in{1, 2, 3};
  std::vector<int> out{7, 7, 7}, both{4, 5, 6, 0};
  {
    device_staging staging(device, nullptr);
    const void* const source = staging.read(in.data(), 12);
    auto* const target = static_cast<int*>(staging.write(out.data(), 12, true));
    auto* const updated = static_cast<int*>(staging.update(both.data(), 12, 16));
    EXPECT_TRUE(device->accessible(source) && device->accessible(target) && device->accessible(updated));
    EXPECT_EQ(std::memcmp(source, in.data(), 12), 0);
    EXPECT_EQ(target[1], 7) << "what is not written stays";
    EXPECT_EQ(updated[2], 6);
    target[0] = 8;
    updated[3] = 9;
    staging.commit();
  }
  EXPECT_EQ(out, (std::vector<int>{8, 7, 7}));
  EXPECT_EQ(both, (std::vector<int>{4, 5, 6, 9}));
  EXPECT_EQ(device->allocated(), 0);
}

TEST(cuda_staging, passes_device_operands_through) {
  const auto device = emulator();
  const device_buffer memory(device, 64);
  const std::int64_t before = device->allocated();
  device_staging staging(device, nullptr);
  EXPECT_EQ(staging.read(memory.data(), 64), memory.data());
  EXPECT_EQ(staging.write(memory.data(), 64), memory.data());
  EXPECT_EQ(staging.update(memory.data(), 64, 64), memory.data());
  EXPECT_EQ(device->allocated(), before);
}

// ---- Workspaces ----

TEST(cuda_workspace, is_kept_for_the_next_execution) {
  const auto device = emulator();
  {
    const workspace_pool pool(device, 1000);
    unsigned char* first = nullptr;
    {
      const workspace one = pool.take({}, nullptr);
      const workspace two = pool.take({}, nullptr);
      EXPECT_TRUE(one.fresh() && two.fresh());
      EXPECT_NE(one.data(), two.data());
      first = one.data();
    }
    EXPECT_EQ(device->allocated(), 2000);
    const workspace again = pool.take({}, nullptr);
    EXPECT_FALSE(again.fresh());
    EXPECT_EQ(again.data(), first);
    EXPECT_EQ(device->allocated(), 2000);
  }
  EXPECT_EQ(device->allocated(), 0);
}

TEST(cuda_workspace, may_be_the_callers) {
  const auto device = emulator();
  const workspace_pool pool(device, 1000);
  const device_buffer memory(device, 1000);
  const std::span<std::byte> given(static_cast<std::byte*>(memory.data()), 1000);
  const std::int64_t before = device->allocated();
  for (int call = 0; call < 2; ++call) {
    const workspace taken = pool.take(given, nullptr);
    EXPECT_EQ(static_cast<void*>(taken.data()), memory.data());
    EXPECT_TRUE(taken.fresh()) << "the caller may have used it";
  }
  EXPECT_EQ(device->allocated(), before);
  EXPECT_THROW((void)pool.take(given.first(999), nullptr), invalid_argument_error);
  std::vector<std::byte> host(1000);
  EXPECT_THROW((void)pool.take(host, nullptr), invalid_argument_error);
  const workspace_pool small(device, 100);
  EXPECT_NO_THROW((void)small.take(given.subspan(256), nullptr));
  EXPECT_THROW((void)small.take(given.subspan(128), nullptr), invalid_argument_error) << "not aligned as CUDA's own allocations are";
}

// ---- Events and faults ----

device_event event(std::int64_t index, event_action what) {
  device_event made{};
  made.index = index;
  made.residual = 3;
  made.threshold = 4;
  made.what = event_word(5, 6, what);
  made.multiprocessor = 7;
  made.time = 2'000'000'000;
  made.seal = event_seal(made);
  return made;
}

TEST(cuda_event_log, is_read_once_and_damage_shows) {
  const auto device = emulator();
  const workspace_pool pool(device, k_ring_bytes);
  const inject::active_injector no_faults(nullptr, fft::site::table());
  {
    const device_call call(device, pool.take({}, nullptr), no_faults, nullptr);
    EXPECT_FALSE(call.instrumented());
    event_ring& ring = *call.events();  // the emulator's memory is the host's
    ring.events[0] = event(11, event_action::recomputed);
    ring.events[1] = event(12, event_action::uncorrectable);
    ring.events[1].residual = 99;
    ring.recomputed = ring.uncorrectable = ring.false_alarms = 1;
    ring.written = 2;
    const event_log seen = call.collect([](const device_event& e, event_log::entry& out) {
      EXPECT_EQ(part_of(e.what), 5u);
      EXPECT_EQ(check_of(e.what), 6u);
      out.site = "test.site";
      out.index = e.index + 100;
    });
    EXPECT_EQ(seen.corrected, 0u);
    EXPECT_EQ(seen.recomputed, 1u);
    EXPECT_EQ(seen.uncorrectable, 1u);
    EXPECT_EQ(seen.false_alarms, 1u);
    ASSERT_EQ(seen.events.size(), 2u);
    EXPECT_STREQ(seen.events[0].site, "test.site");
    EXPECT_EQ(seen.events[0].index, 111);
    EXPECT_EQ(seen.events[0].residual, 3);
    EXPECT_EQ(seen.events[0].threshold, 2) << "kernels log its square";
    EXPECT_EQ(seen.events[0].what, action::recomputed);
    EXPECT_EQ(seen.events[0].multiprocessor, 7);
    EXPECT_EQ(seen.events[0].time, 2);
    EXPECT_FALSE(seen.events[0].damaged);
    EXPECT_EQ(seen.events[1].what, action::uncorrectable);
    EXPECT_TRUE(seen.events[1].damaged);
  }
  // The next call gets the same memory, and an empty ring.
  const device_call call(device, pool.take({}, nullptr), no_faults, nullptr);
  EXPECT_FALSE(call.fresh());
  EXPECT_TRUE(call.collect([](const device_event&, event_log::entry&) {}).events.empty());
}

// Keeps the argument of the last launch.
class launch_recorder final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  void launch(const kernel&, std::int64_t blocks, std::span<const kernel_argument> arguments, stream) override {
    const auto* const first = static_cast<const unsigned char*>(arguments.front().data);
    count = blocks;
    last.assign(first, first + arguments.front().bytes);
  }
  std::int64_t count = 0;
  std::vector<unsigned char> last;
};
class no_kernel final : public kernel {};

TEST(cuda_launch, puts_the_faults_behind_the_argument) {
  struct arguments {
    double x;
    int n;
  };
  const auto device = std::make_shared<launch_recorder>(emulator());
  const workspace_pool pool(device, k_ring_bytes);
  const no_kernel which;
  const arguments given{2.5, 3};
  const inject::plan wanted({{.site = fft::site::stage}, {.site = fft::site::output}});
  const inject::active_injector no_faults(nullptr, fft::site::table()), two_faults(&wanted, fft::site::table());
  const device_call bare(device, pool.take({}, nullptr), no_faults, nullptr);
  bare.launch(which, 4, given);
  EXPECT_EQ(device->count, 4);
  ASSERT_EQ(device->last.size(), sizeof(arguments));
  const device_call struck(device, pool.take({}, nullptr), two_faults, nullptr);
  EXPECT_TRUE(struck.instrumented());
  struck.launch(which, 5, given);
  ASSERT_EQ(device->last.size(), sizeof(arguments) + sizeof(inject::device_faults));
  inject::device_faults faults;
  std::memcpy(&faults, device->last.data() + sizeof(arguments), sizeof(faults));
  EXPECT_EQ(faults.count, 2);
  EXPECT_EQ(faults.armed, two_faults.armed_sites());
  EXPECT_TRUE(device->accessible(faults.list));
}

// ---- Shared states ----

TEST(cuda_shared_state, tables_are_made_once_and_twins_lie_elsewhere) {
  const auto device = emulator();
  int made = 0;
  const auto make = [&] {
    ++made;
    return std::vector<float>{1, 2, 3};
  };
  {
    const auto first = share_table(device, "test numbers", 0, make);
    const auto same = share_table(device, "test numbers", 0, make);
    EXPECT_EQ(made, 1);
    EXPECT_EQ(first, same);
    const auto twin = share_table(device, "test numbers", 1, make);
    EXPECT_NE(twin->data(), first->data());
    EXPECT_EQ(std::memcmp(twin->data(), first->data(), 12), 0);
    const auto elsewhere = share_table(emulator(), "test numbers", 0, make);
    EXPECT_EQ(made, 3);
    EXPECT_EQ(device->allocated(), 24);
  }
  EXPECT_EQ(device->allocated(), 0) << "nobody uses them";
}

// ---- Policies ----

struct inner_policy {
  int size = 1;
  bool operator==(const inner_policy&) const = default;
};
enum class flavour : int { plain, other };
struct some_policy {
  bool wide = false;
  flavour kind = flavour::plain;
  int length = 1;
  int radix[3] = {1, 1, 1};
  inner_policy parts[2] = {};
};

std::string text_of(const some_policy& p) {
  return policy_text(p, "test::some_policy")
      .add("wide", &some_policy::wide)
      .add("kind", &some_policy::kind, "test::flavour")
      .add("length", &some_policy::length)
      .add("radix", &some_policy::radix)
      .add("parts", &some_policy::parts,
           [](const inner_policy& each) { return policy_text(each, "").add("size", &inner_policy::size).text(); })
      .text();
}

TEST(cuda_expression, names_what_is_not_as_usual) {
  some_policy p;
  EXPECT_EQ(text_of(p), "test::some_policy{}");
  p.wide = true;
  p.length = 64;
  p.radix[1] = 8;
  EXPECT_EQ(text_of(p), "test::some_policy{.wide=true,.length=64,.radix={1,8,1}}");
  p = {};
  p.kind = flavour::other;
  p.parts[1].size = 2;
  EXPECT_EQ(text_of(p), "test::some_policy{.kind=test::flavour(1),.parts={{},{.size=2}}}");
  EXPECT_EQ(kernel_expression("test::kernel", {"a{}", "b{}"}, false), "test::kernel<a{},b{},ballast::inject::no_device_injector>");
  EXPECT_EQ(kernel_expression("test::kernel", {}, true), "test::kernel<ballast::inject::device_injector>");
}

TEST(cuda_occupancy, counts_registers_by_quarters) {
  const capabilities about = simt::emulated_capabilities();
  EXPECT_EQ(registers_of_thread(256, 1, about), 256);
  EXPECT_EQ(registers_of_thread(256, 2, about), 128);
  EXPECT_EQ(registers_of_thread(1024, 1, about), 64);
  EXPECT_EQ(registers_of_thread(96, 3, about), 168) << "nine warps: three for one of the quarters";
  EXPECT_EQ(blocks_by_registers(64, 256, about), 4);
  EXPECT_EQ(blocks_by_registers(65, 256, about), 3);
  EXPECT_EQ(blocks_by_registers(255, 1024, about), 1);
  EXPECT_EQ(blocks_by_registers(8, 32, about), k_most_resident_blocks);
  EXPECT_EQ(blocks_by_shared(about.shared_per_multiprocessor / 4 - k_reserved_shared, about), 4);
  EXPECT_EQ(blocks_by_shared(about.shared_per_multiprocessor, about), 0);
}

TEST(cuda_bank_conflicts, are_counted_by_bank) {
  const auto as_they_are = [](int word) { return word; };
  warp_access side_by_side, strided, same(32, 5), nobody(32, -1);
  for (int lane = 0; lane < 32; ++lane) {
    side_by_side.push_back(lane);
    strided.push_back(2 * lane);
  }
  EXPECT_EQ(bank_cycles(side_by_side, 4, as_they_are), 1);
  EXPECT_EQ(bank_cycles(strided, 4, as_they_are), 2);
  EXPECT_EQ(bank_cycles(same, 4, as_they_are), 1) << "one word for all lanes";
  EXPECT_EQ(bank_cycles(side_by_side, 8, as_they_are), 2) << "a cycle serves 16 lanes";
  const auto spread = [](int word) { return word ^ (word >> 5 & 1); };
  EXPECT_EQ(bank_cycles(strided, 4, spread), 1);
  const std::vector<warp_access> all{side_by_side, strided, nobody};
  EXPECT_EQ(bank_cost(std::span(all), 4, as_they_are), 1.5);
  EXPECT_EQ(bank_cost(std::span(all), 4, spread), 1);
  EXPECT_FALSE(conflict_free(std::span(all), 4, as_they_are));
  EXPECT_TRUE(conflict_free(std::span(all), 4, spread));
}

}  // namespace
}  // namespace ballast::cuda
