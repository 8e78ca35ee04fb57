// Transforms on ranks over NCCL, a device of the emulator each: the definition in extended precision, faults of the blocks between devices,
// lost ranks, and what is refused. The kernels are those of devices_fft_test.cpp.
// Layer: backend tests.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft_group.hpp>

#include "group/devices_fft_cases.hpp"
#include "group/fake_nccl.hpp"
#include "support/typed_suite.hpp"

namespace ballast::fft {
namespace {

using namespace on_groups;
using test::nccl_fault;

constexpr int k_ranks = 3;

struct on_ranks {
  long double error = 0, size = 0, error_back = 0, size_back = 0;
  std::uint64_t detected = 0, uncorrectable = 0, met_twice = 0;
  double relative() const { return std::sqrt(static_cast<double>(error / size)); }
  double relative_back() const { return std::sqrt(static_cast<double>(error_back / size_back)); }
};

template <class T>
double limit_of(std::size_t count) {
  return 4 * (sizeof(T) == 4 ? 0x1p-24 : 0x1p-53) * std::sqrt(std::log2(static_cast<double>(count)) + 1);
}

// Transforms the rank's part of x and back, with operands on its device, and compares.
template <class T, class Number>
on_ranks transform_part(const scene& what, const std::vector<std::complex<T>>& x, const std::vector<extended>& expected, protection level,
                        const group& own) {
  const group_plan<T> plan(what.shape, {.threads = 1, .protection = level, .group = own}, what.how);
  const auto device = own.internal()->link->device();
  std::vector<Number> in(static_cast<std::size_t>(plan.data().size()));
  std::vector<std::complex<T>> out(static_cast<std::size_t>(plan.spectrum().size()));
  each_element(plan.data(), [&](std::size_t e, const auto& at) {
    const std::complex<T> value = x[number_of(what, plan.shape(), at, false)];
    if constexpr (std::is_same_v<Number, T>)
      in[e] = value.real();
    else
      in[e] = value;
  });
  const auto bytes = [](const auto& of) { return static_cast<std::int64_t>(std::span(of).size_bytes()); };
  // A rank may have no part; memory of no bytes cannot be allocated.
  const ballast::cuda::device_buffer from(device, bytes(in) + 8), to(device, bytes(out) + 8);
  device->copy(from.data(), in.data(), bytes(in), nullptr);
  const std::span there_in(static_cast<Number*>(from.data()), in.size());
  const std::span there_out(static_cast<std::complex<T>*>(to.data()), out.size());
  const call kept{.throw_on_uncorrectable = false};
  report seen = plan.forward(std::span<const Number>(there_in), there_out, kept);
  device->copy(out.data(), to.data(), bytes(out), nullptr);
  seen.merge(plan.inverse(std::span<const std::complex<T>>(there_out), there_in, kept));
  std::vector<Number> back(in.size());
  device->copy(back.data(), from.data(), bytes(in), nullptr);
  EXPECT_EQ(seen.backend, backend::cuda);
  EXPECT_EQ(own.internal()->road, wire::road::link);
  on_ranks made;
  std::vector<int> met(x.size());
  each_element(plan.spectrum(), [&](std::size_t e, const auto& at) {
    const std::size_t number = number_of(what, plan.shape(), at, true);
    made.met_twice += met[number]++ > 0 ? 1 : 0;
    made.error += std::norm(static_cast<extended>(out[e]) - expected[number]);
    made.size += std::norm(expected[number]);
  });
  for (std::size_t e = 0; e < in.size(); ++e) {
    made.error_back += std::norm(static_cast<extended>(back[e]) - static_cast<extended>(in[e]));
    made.size_back += std::norm(static_cast<extended>(in[e]));
  }
  made.detected = seen.detected;
  made.uncorrectable = seen.uncorrectable;
  return made;
}

// The errors are those of all ranks together; the report is the same on each.
template <class T>
on_ranks transform_on_ranks(const scene& what, protection level, double patience = 30) {
  const auto x = random_numbers<T>(what);
  const auto expected = transform_of(x, what.shape);
  std::vector<on_ranks> parts(k_ranks);
  const auto ends = test::run_nccl_ranks(k_ranks, {.resend_after = 0.02, .patience = patience}, [&](int r, const group& own) {
    parts[static_cast<std::size_t>(r)] = what.how.real ? transform_part<T, T>(what, x, expected, level, own)
                                                       : transform_part<T, std::complex<T>>(what, x, expected, level, own);
  });
  for (const std::exception_ptr& each : ends)
    if (each) std::rethrow_exception(each);
  on_ranks all = parts[0];
  for (std::size_t r = 1; r < parts.size(); ++r) {
    EXPECT_EQ(parts[r].detected, all.detected);
    all.error += parts[r].error, all.size += parts[r].size;
    all.error_back += parts[r].error_back, all.size_back += parts[r].size_back;
    all.met_twice += parts[r].met_twice;
  }
  return all;
}

template <class T>
class fft_nccl : public testing::Test {
 protected:
  test::nccl_devices devices_{k_ranks};
  static scene pencils() {
    for (const scene& each : scenes_on_devices<float>())
      if (each.how.division == division::pencils && each.how.order == result_order::natural) return each;
    throw error("expected pencils in natural order among the scenes");
  }
};
using reals_of_ranks = testing::Types<float, double>;
TYPED_SUITE(fft_nccl, reals_of_ranks, test::number_names);

TYPED_TEST(fft_nccl, definition_and_inverse) {
  using T = TypeParam;
  for (const scene& what : scenes_on_devices<T>()) {
    test::begin_fake_nccl();
    const on_ranks made = transform_on_ranks<T>(what, protection::correct);
    const double limit = limit_of<T>(random_numbers<T>(what).size());
    EXPECT_LE(made.relative(), limit) << what;
    EXPECT_LE(made.relative_back(), 2 * limit) << what;
    EXPECT_GT(made.size, 0.0L) << what;
    EXPECT_EQ(made.met_twice, 0U) << what;
    EXPECT_EQ(made.detected, 0U) << what;
  }
}

using fft_nccl_faults = fft_nccl<float>;

// Every block of both exchanges of a transform and of its inverse, on each rank in turn. Without protection the same faults reach the
// result.
TEST_F(fft_nccl_faults, damaged_blocks_are_exchanged_again) {
  const scene what = pencils();
  const double limit = limit_of<float>(random_numbers<float>(what).size());
  double least_off = std::numeric_limits<double>::infinity();
  for (const nccl_fault each : {nccl_fault::bit, nccl_fault::swapped, nccl_fault::stale, nccl_fault::half}) {
    std::uint64_t struck = 0, detected = 0;
    double worst_off = 0;
    for (std::uint64_t number = 0; number < 8; ++number) {
      const std::vector<test::nccl_strike> strikes = {
          {.what = each, .rank = static_cast<int>(number % k_ranks), .number = number, .seed = 30 + number, .of_blocks = true}};
      test::begin_fake_nccl(strikes);
      const on_ranks made = transform_on_ranks<float>(what, protection::correct);
      EXPECT_LE(made.relative(), limit) << "fault " << static_cast<int>(each) << " at " << number;
      EXPECT_LE(made.relative_back(), 2 * limit) << "fault " << static_cast<int>(each) << " at " << number;
      EXPECT_EQ(made.uncorrectable, 0U);
      EXPECT_EQ(made.detected > 0, test::struck_nccl() > 0) << "fault " << static_cast<int>(each) << " at " << number;
      struck += test::struck_nccl();
      detected += made.detected;
      test::begin_fake_nccl(strikes);
      const on_ranks off = transform_on_ranks<float>(what, protection::off);
      EXPECT_EQ(off.detected, 0U);
      worst_off = std::max({worst_off, off.relative(), off.relative_back()});
    }
    EXPECT_GE(struck, 6U);
    EXPECT_GE(detected, struck);
    least_off = std::min(least_off, worst_off / limit);
  }
  EXPECT_GT(least_off, 10) << "without protection a kind of fault reached no result";
}

// A block that is damaged each time: all ranks know that the result is wrong.
TEST_F(fft_nccl_faults, a_block_that_stays_damaged_is_uncorrectable) {
  test::begin_fake_nccl({{.what = nccl_fault::stale, .rank = 1, .number = 0, .count = 1000, .of_blocks = true}});
  const on_ranks made = transform_on_ranks<float>(pencils(), protection::correct);
  EXPECT_GT(made.uncorrectable, 0U);
}

TEST_F(fft_nccl_faults, messages_that_are_damaged_are_sent_again) {
  const scene what = pencils();
  const double limit = limit_of<float>(random_numbers<float>(what).size());
  std::uint64_t struck = 0, detected = 0;
  for (const nccl_fault each : {nccl_fault::stale, nccl_fault::half, nccl_fault::late}) {
    for (std::uint64_t number = 0; number < 6; ++number) {
      test::begin_fake_nccl(
          {{.what = each, .rank = static_cast<int>(number % k_ranks), .number = 5 * number, .seed = number, .longer = 4096}});
      const on_ranks made = transform_on_ranks<float>(what, protection::correct);
      EXPECT_LE(made.relative(), limit);
      EXPECT_LE(made.relative_back(), 2 * limit);
      EXPECT_EQ(made.uncorrectable, 0U);
      struck += test::struck_nccl();
      detected += made.detected;
    }
  }
  EXPECT_GE(struck, 10U);
  EXPECT_GT(detected, 0U);
}

// Lost between messages, and within an exchange of blocks.
TEST_F(fft_nccl_faults, name_a_lost_rank) {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{16}}) {
    test::begin_fake_nccl();
    test::end_fake_rank_at(1, number);
    std::atomic<int> named = 0;
    const auto ends = test::run_nccl_ranks(k_ranks, {.resend_after = 0.02, .patience = 3}, [&](int r, const group& own) {
      const group_plan<float> plan(pencils().shape, {.threads = 1, .group = own}, pencils().how);
      std::vector<std::complex<float>> in(static_cast<std::size_t>(plan.data().size())),
          out(static_cast<std::size_t>(plan.spectrum().size()));
      try {
        for (int i = 0; i < 20; ++i) (void)plan.forward(std::span<const std::complex<float>>(in), std::span(out));
        ADD_FAILURE() << "calls ended without a rank";
      } catch (const rank_lost_error& lost) {
        if (r == 1) throw;
        EXPECT_EQ(std::ranges::count(lost.ranks(), 1), 1) << lost.what();
        EXPECT_EQ(std::ranges::count(lost.ranks(), r), 0) << lost.what();
        EXPECT_THROW((void)plan.forward(std::span<const std::complex<float>>(in), std::span(out)), rank_lost_error);
        ++named;
      }
    });
    EXPECT_EQ(named, k_ranks - 1) << "lost at " << number;
    EXPECT_TRUE(ends[1]) << "lost at " << number;
  }
}

TEST_F(fft_nccl_faults, refuses_a_backend_of_processors_and_wrong_sizes) {
  test::begin_fake_nccl();
  const auto ends = test::run_nccl_ranks(k_ranks, {.patience = 20}, [&](int, const group& own) {
    EXPECT_THROW((void)group_plan<float>({12, 8}, {.backend = backend::reference, .group = own}), error);
    const group_plan<float> plan(pencils().shape, {.threads = 1, .group = own}, pencils().how);
    std::vector<std::complex<float>> in(static_cast<std::size_t>(plan.data().size()) + 1),
        out(static_cast<std::size_t>(plan.spectrum().size()));
    EXPECT_THROW((void)plan.forward(std::span<const std::complex<float>>(in), std::span(out)), invalid_argument_error);
  });
  for (const std::exception_ptr& each : ends)
    if (each) std::rethrow_exception(each);
}

}  // namespace
}  // namespace ballast::fft
