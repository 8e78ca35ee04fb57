// Counts the allocations of plans on the host: the second call of a kind makes none, on every backend. Tests also that memory runs out.
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "backend/fft_target.hpp"
#include "cuda/device/device.hpp"
#include "support/allocations.hpp"
#include "support/devices.hpp"

namespace ballast::fft {
namespace {

using test::subject;

// Excludes its own allocations from the count, since the emulator stands for a GPU.
class quiet_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  void* allocate(std::int64_t bytes, ballast::cuda::stream on) override {
    const test::uncounted pause;
    return inner_->allocate(bytes, on);
  }
  void release(void* memory, ballast::cuda::stream on) noexcept override {
    const test::uncounted pause;
    inner_->release(memory, on);
  }
  void copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream on) override {
    const test::uncounted pause;
    inner_->copy(to, from, bytes, on);
  }
  void zero(void* memory, std::int64_t bytes, ballast::cuda::stream on) override {
    const test::uncounted pause;
    inner_->zero(memory, bytes, on);
  }
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const test::uncounted pause;
    inner_->launch(which, blocks, arguments, on);
  }
  void synchronize(ballast::cuda::stream on) override {
    const test::uncounted pause;
    inner_->synchronize(on);
  }
};

class fft_allocation_test : public fft_test {
 protected:
  fft_allocation_test() : prepared_(on().prepare(run().which, k_order)) {
    if (run().emulated()) ballast::cuda::override_device(std::make_shared<quiet_device>(ballast::cuda::current_device()));
  }

  // Counts the allocations of the second of two calls.
  template <class Call>
  static std::int64_t second_of(const Call& call) {
    call();
    return test::allocations_of(call);
  }

  // Returns both directions of complex data on the host. The emulator has the kernels of one direction.
  static std::vector<direction> ways(const problem& what, direction own) {
    if (what.kind != kind::c2c || run().emulated()) return {own};
    return {direction::forward, direction::inverse};
  }

  static constexpr std::uint64_t k_order = 3;  // three threads on the host

 private:
  std::shared_ptr<const void> prepared_;
};

TEST_P(fft_allocation_test, a_second_call_allocates_nothing) {
  with_data([&]<class T>(const subject<T>& given) {
    for (const protection guard : {protection::correct, protection::detect, protection::off}) {
      if (guard == protection::off && (run().which.uses & k_bare) == 0) continue;
      SCOPED_TRACE(to_string(guard));
      const plan made = make(given.problem, k_order, guard);
      const device_copy<T> in(on(), given.in), out(on(), given.fresh());
      for (const direction way : ways(given.problem, given.way)) {
        SCOPED_TRACE(to_string(way));
        const call now = test::quiet_call();
        const auto once = [&] { EXPECT_EQ(test::execute<T>(made, given.shape, way, in.data(), out.data(), now).detected, 0u); };
        EXPECT_EQ(second_of(once), 0);
        if (!given.can_be_in_place()) continue;
        const device_copy<T> both(on(), given.in);
        EXPECT_EQ(second_of([&] { (void)given.run(made, both.data(), both.data(), now); }), 0) << "in place";
      }
    }
  });
}

TEST_P(fft_allocation_test, data_that_are_not_finite_make_no_difference) {
  with_data([&]<class T>(const subject<T>& given) {
    const plan made = make(given.problem, k_order, protection::correct);
    std::vector<T> special = given.in;
    special[0] = std::numeric_limits<T>::infinity();
    const device_copy<T> in(on(), given.in), other(on(), special), out(on(), given.fresh());
    (void)given.run(made, in.data(), out.data());
    EXPECT_EQ(test::allocations_of([&] { (void)given.run(made, other.data(), out.data()); }), 0);
  });
}

TEST_P(fft_allocation_test, operands_on_the_host_and_enqueued_calls) {
  with_data([&]<class T>(const subject<T>& given) {
    const plan made = make(given.problem, k_order, protection::correct);
    std::vector<T> out = given.fresh();
    EXPECT_EQ(second_of([&] { (void)given.run(made, out); }), 0);
    const device_copy<T> from(on(), given.in), to(on(), given.fresh());
    if (run().emulated()) {
      EXPECT_EQ(second_of([&] { EXPECT_EQ(given.enqueue(made, from.data(), to.data()).get().verdict, verdict::clean); }), 0);
    } else {
      EXPECT_THROW((void)given.enqueue(made, from.data(), to.data()), unsupported_error);
    }
  });
}

// Lets the allocations fail, one in each round, while a plan is constructed and runs. The distance between them grows.
TEST_P(fft_allocation_test, memory_that_runs_out_is_an_error_of_its_class) {
  if (run().emulated()) GTEST_SKIP() << "an emulated device is not made for it";
  with_data([&]<class T>(const subject<T>& given) {
    const execution how = on().how(1, protection::correct);
    std::vector<T> wanted = given.fresh();
    (void)given.run(plan(given.problem, how), wanted);
    std::int64_t number = 0;
    for (bool failed = true; failed; number = 1 + number * 21 / 20) {
      SCOPED_TRACE(number);
      std::vector<T> out = given.fresh();
      std::optional<plan> made;
      problem asked = given.problem;
      try {
        const test::failing_allocation fails(number);
        try {
          made.emplace(std::move(asked), how);
          (void)given.run(*made, out);
        } catch (...) {
          failed = fails.failed();
          throw;
        }
        failed = fails.failed();  // the library can do without some allocations
      } catch (const out_of_memory_error& seen) {
        EXPECT_NE(std::string(seen.what()).find("fft"), std::string::npos) << seen.what();
      }
      if (!made) continue;
      (void)given.run(*made, out);
      EXPECT_TRUE(test::same(out, wanted)) << "and the plan can be used afterwards";
    }
    EXPECT_GT(number, 10);
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_allocation_test, testing::ValuesIn(allocation_runs()), test_name);

}  // namespace
}  // namespace ballast::fft
