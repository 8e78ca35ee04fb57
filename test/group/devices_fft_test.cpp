// Transforms on several devices of one process, on the emulator: the definition in extended precision, faults of the messages between their
// threads, injected faults, operands on a device, and what is refused.
// Layer: backend tests.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>
#include <ballast/fft_group.hpp>

#include "cuda/memory/shared_state.hpp"
#include "fft/cuda/group/box_arguments.hpp"
#include "fft/sites.hpp"
#include "group/devices_fft_cases.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/several_devices.hpp"
#include "support/typed_suite.hpp"

namespace ballast::fft {
namespace {

using namespace on_groups;

const inject::registration k_sites(site::group_table());

// A block that never arrives, so that its place holds older data; one whose rows arrive in reversed order; one without its last row.
enum class mishap { stale, swapped, short_of_a_row };

// Lets one copy of a block go wrong, and counts all.
class device_with_mishaps final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  std::int64_t copies = 0;
  std::int64_t victim = -1;  // the number of the copy
  mishap what = mishap::stale;
  bool happened = false;

  const ballast::cuda::kernel& load(const ballast::cuda::kernel_request& wanted) override {
    const ballast::cuda::kernel& made = forwarding_device::load(wanted);
    const std::string_view name = "box_copy_kernel<";
    if (const std::size_t at = wanted.expression.find(name); at != std::string::npos)
      copying_[&made] = std::stoll(wanted.expression.substr(at + name.size()));
    return made;
  }
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> given,
              ballast::cuda::stream on) override {
    const auto copying = copying_.find(&which);
    if (copying == copying_.end() || copies++ != victim) return forwarding_device::launch(which, blocks, given, on);
    fft::cuda::box_copy_arguments a;
    std::memcpy(&a, given[0].data, sizeof a);
    int longest = 0;
    for (int i = 1; i < 3; ++i)
      if (a.count[i] > a.count[longest]) longest = i;
    happened = what == mishap::stale || a.count[longest] > 1;
    if (what == mishap::stale) return;
    if (what == mishap::swapped) {
      a.to = static_cast<char*>(a.to) + (a.count[longest] - 1) * a.to_step[longest] * copying->second;
      a.to_step[longest] = -a.to_step[longest];
    } else if (happened) {
      --a.count[longest];
    }
    const ballast::cuda::kernel_argument struck{&a, sizeof a};
    forwarding_device::launch(which, blocks, std::span(&struck, 1), on);
  }

 private:
  std::map<const ballast::cuda::kernel*, std::int64_t> copying_;  // the bytes of their elements
};

template <class T>
class fft_devices : public testing::Test {
 protected:
  test::several_devices three_{4, 4, 4};
};
using reals = testing::Types<float, double>;
TYPED_SUITE(fft_devices, reals, test::number_names);

// The same limits as on ranks of an engine (fft_test.cpp).
TYPED_TEST(fft_devices, definition_and_inverse) {
  using T = TypeParam;
  const double u = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
  for (const scene& what : scenes_on_devices<T>()) {
    const auto x = random_numbers<T>(what);
    const auto expected = transform_of(x, what.shape);
    const double limit = 4 * u * std::sqrt(std::log2(static_cast<double>(x.size())) + 1);
    for (const std::vector<int>& list : lists_of_devices()) {
      const group_plan<T> plan(what.shape, {.group = group::devices(list)}, what.how);
      const auto shape = plan.shape();
      EXPECT_EQ(plan.data().size(), static_cast<std::int64_t>(x.size()));
      const results<T> found = transform_on_devices(list, what, x);
      EXPECT_EQ(found.backend, backend::cuda);
      EXPECT_EQ(found.road, wire::road::peers);
      EXPECT_EQ(found.detected, 0U) << what;
      EXPECT_GT(found.checks, 0U) << what;
      long double error = 0, size = 0, error_back = 0, size_back = 0;
      std::vector<int> met(x.size());
      each_element(plan.spectrum(), [&](std::size_t e, const auto& at) {
        // The number of the element of the whole spectrum, of which real data have half.
        const std::size_t number = number_of(what, shape, at, true);
        ++met[number];
        error += std::norm(static_cast<extended>(found.spectrum[e]) - expected[number]);
        size += std::norm(expected[number]);
      });
      each_element(plan.data(), [&](std::size_t e, const auto& at) {
        const std::size_t number = number_of(what, shape, at, false);
        ASSERT_EQ(number, e);  // data lie as in one call
        error_back += std::norm(static_cast<extended>(found.back[e]) - static_cast<extended>(x[e]));
        size_back += std::norm(static_cast<extended>(x[e]));
      });
      EXPECT_LE(*std::ranges::max_element(met), 1) << what;
      EXPECT_LE(std::sqrt(static_cast<double>(error / size)), limit) << what << ", " << list.size() << " devices";
      EXPECT_LE(std::sqrt(static_cast<double>(error_back / size_back)), 2 * limit) << what << ", " << list.size() << " devices";
      // The place of the operands does not matter.
      const results<T> there = transform_on_devices(list, what, x, protection::correct, {}, {.memory = this->three_[1]});
      EXPECT_EQ(there.spectrum, found.spectrum) << what;
      EXPECT_EQ(there.back, found.back) << what;
    }
  }
}

// Operands that are given divided have the bits of whole ones: on their devices, in place, and in host memory.
TYPED_TEST(fft_devices, take_divided_operands) {
  using T = TypeParam;
  const std::vector<std::shared_ptr<ballast::cuda::device>> all = {this->three_[0], this->three_[1], this->three_[2]};
  for (const scene& what : scenes_on_devices<T>()) {
    const auto x = random_numbers<T>(what);
    for (const std::vector<int>& list : lists_of_devices()) {
      const results<T> whole = transform_on_devices(list, what, x);
      for (const ways& how :
           {ways{.divided = true, .parts_on = all}, ways{.divided = true}, ways{.divided = true, .parts_on = all, .in_place = true}}) {
        if (how.in_place && what.how.real) continue;  // real and complex parts have different sizes
        const results<T> found = transform_on_devices(list, what, x, protection::correct, {}, how);
        EXPECT_EQ(found.spectrum, whole.spectrum) << what << ", " << list.size() << " devices";
        EXPECT_EQ(found.back, whole.back) << what << ", " << list.size() << " devices";
        EXPECT_EQ(found.detected, 0U) << what;
        EXPECT_EQ(found.checks, whole.checks) << what;
      }
    }
  }
}

// Pieces that travel beside the lines of others give the bits of an exchange after all lines; one piece gives those of several, up to
// rounding.
TYPED_TEST(fft_devices, send_pieces_while_others_are_transformed) {
  using T = TypeParam;
  const double u = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
  const std::vector<int> list = {2, 0, 1};
  for (const scene& what : scenes_on_devices<T>()) {
    const auto x = random_numbers<T>(what);
    const results<T> pieces = transform_on_devices(list, what, x);
    for (const protection level : {protection::off, protection::correct}) {
      const results<T> after = transform_on_devices(list, what, x, level, {}, {.overlap = false});
      const results<T> beside = transform_on_devices(list, what, x, level);
      EXPECT_EQ(after.spectrum, beside.spectrum) << what;
      EXPECT_EQ(after.back, beside.back) << what;
    }
    const results<T> one = transform_on_devices(list, what, x, protection::correct, {}, {.piece_bytes = 0});
    double difference = 0, size = 0;
    for (std::size_t e = 0; e < one.spectrum.size(); ++e) {
      difference += std::norm(static_cast<std::complex<double>>(one.spectrum[e]) - static_cast<std::complex<double>>(pieces.spectrum[e]));
      size += std::norm(static_cast<std::complex<double>>(one.spectrum[e]));
    }
    EXPECT_LE(std::sqrt(difference / size), 8 * u * std::sqrt(std::log2(static_cast<double>(x.size())) + 1)) << what;
  }
}

TYPED_TEST(fft_devices, survive_faults_of_messages) {
  using T = TypeParam;
  const std::vector<int> list = {2, 0, 1};
  for (const scene& what : scenes_on_devices<T>()) {
    const auto x = random_numbers<T>(what);
    const results<T> clean = transform_on_devices(list, what, x);
    std::uint64_t detected = 0, message = 0;
    for (const wire::fault each : wire::k_faults) {
      if (each == wire::fault::lost_rank) continue;
      for (int number = 0; number < (test::sampled() ? 2 : 8); ++number, ++message) {
        const wire::wire_fault one{each, static_cast<int>(message % 3), message % 9, 1, message};
        const results<T> found = transform_on_devices(list, what, x, protection::correct, {one});
        EXPECT_EQ(found.spectrum, clean.spectrum) << what << ", fault " << static_cast<int>(each);
        EXPECT_EQ(found.back, clean.back) << what << ", fault " << static_cast<int>(each);
        EXPECT_EQ(found.uncorrectable, 0U);
        detected += found.detected;
      }
    }
    EXPECT_GT(detected, 0U) << what;
  }
}

TYPED_TEST(fft_devices, name_a_lost_thread) {
  using T = TypeParam;
  const scene what = scenes_on_devices<T>().front();
  try {
    (void)transform_on_devices({2, 0, 1}, what, random_numbers<T>(what), protection::correct, {{wire::fault::lost_rank, 1, 1}});
    ADD_FAILURE() << "a call ended without a rank";
  } catch (const rank_lost_error& lost) {
    EXPECT_EQ(lost.ranks(), std::vector<int>{1});
    EXPECT_NE(std::string(lost.what()).find("lost 1"), std::string::npos) << lost.what();
  }
}

// A fault on one device, at sites of the exchange, of the products and of the kernels; and without protection it reaches the output.
TYPED_TEST(fft_devices, repair_faults_of_one_device) {
  using T = TypeParam;
  const std::vector<int> list = {2, 0, 1};
  struct strike {
    const char* site;
    bool exact;
  };
  for (const scene& what : scenes_on_devices<T>()) {
    const auto x = random_numbers<T>(what);
    const results<T> clean = transform_on_devices(list, what, x), bare = transform_on_devices(list, what, x, protection::off);
    for (const strike& each : {strike{"fft_group.block", true},
                               {"fft_group.copy", true},
                               {"fft_group.product", true},
                               {"fft.input", false},
                               {"fft.stage", false},
                               {"fft.output", false}}) {
      if (std::string(each.site) == "fft_group.product" && what.shape.size() > 1) continue;
      int reached = 0, detected = 0;
      // A strike may hit a lane of a tile that has no signal: there are few signals.
      const std::uint64_t least = test::sampled() ? 3 : 9;
      for (std::uint64_t seed = 0; seed < least || (seed < 100 && (reached == 0 || detected == 0)); ++seed) {
        const inject::plan faults({inject::request{.site = inject::site_of(each.site), .seed = seed, .bit = sizeof(T) == 4 ? 30 : 62}});
        const inject::scope inside(&faults);
        const results<T> found = transform_on_devices(list, what, x);
        EXPECT_EQ(found.uncorrectable, 0U) << what << ", " << each.site;
        double difference = 0, size = 0;
        for (std::size_t e = 0; e < found.spectrum.size(); ++e) {
          difference +=
              std::norm(static_cast<std::complex<double>>(found.spectrum[e]) - static_cast<std::complex<double>>(clean.spectrum[e]));
          size += std::norm(static_cast<std::complex<double>>(clean.spectrum[e]));
        }
        if (each.exact) {
          EXPECT_EQ(difference, 0) << what << ", " << each.site;
        }
        // The floor of the lines (docs/protection.md): 400 u √(log₂N + 1).
        const double u = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
        EXPECT_LE(std::sqrt(difference / size), 400 * u * std::sqrt(std::log2(static_cast<double>(x.size())) + 1))
            << what << ", " << each.site;
        detected += found.detected > 0 ? 1 : 0;
        const results<T> off = transform_on_devices(list, what, x, protection::off);
        reached += off.spectrum != bare.spectrum || off.back != bare.back ? 1 : 0;
      }
      EXPECT_GT(reached, 0) << what << ", " << each.site;
      EXPECT_GT(detected, 0) << what << ", " << each.site;
    }
  }
}

// The same faults where the last step stores to the caller's memory, and none of the data leaves the devices.
TYPED_TEST(fft_devices, repair_faults_of_divided_operands) {
  using T = TypeParam;
  const std::vector<int> list = {2, 0, 1};
  const ways how{.divided = true, .parts_on = {this->three_[0], this->three_[1], this->three_[2]}};
  for (const scene& what : scenes_on_devices<T>()) {
    const auto x = random_numbers<T>(what);
    const results<T> clean = transform_on_devices(list, what, x), bare = transform_on_devices(list, what, x, protection::off, {}, how);
    for (const char* site : {"fft_group.block", "fft_group.copy"}) {
      int reached = 0, detected = 0;
      const std::uint64_t least = test::sampled() ? 3 : 9;
      for (std::uint64_t seed = 0; seed < least || (seed < 100 && (reached == 0 || detected == 0)); ++seed) {
        const inject::plan faults({inject::request{.site = inject::site_of(site), .seed = seed, .bit = 20}});
        const inject::scope inside(&faults);
        const results<T> found = transform_on_devices(list, what, x, protection::correct, {}, how);
        EXPECT_EQ(found.spectrum, clean.spectrum) << what << ", " << site;
        EXPECT_EQ(found.back, clean.back) << what << ", " << site;
        EXPECT_EQ(found.uncorrectable, 0U) << what << ", " << site;
        detected += found.detected > 0 ? 1 : 0;
        const results<T> off = transform_on_devices(list, what, x, protection::off, {}, how);
        reached += off.spectrum != bare.spectrum || off.back != bare.back ? 1 : 0;
      }
      EXPECT_GT(reached, 0) << what << ", " << site;
      EXPECT_GT(detected, 0) << what << ", " << site;
    }
  }
}

// Blocks that go wrong on their way, of any device at any place of both transforms: repaired, and with protection off they reach the
// output.
TYPED_TEST(fft_devices, send_blocks_again_that_went_wrong) {
  using T = TypeParam;
  const std::vector<int> list = {2, 0, 1};
  std::vector<std::shared_ptr<device_with_mishaps>> devices;
  for (std::size_t p = 0; p < 3; ++p) devices.push_back(std::make_shared<device_with_mishaps>(this->three_[p]));
  const std::vector<std::shared_ptr<ballast::cuda::device>> all(devices.begin(), devices.end());
  ballast::cuda::override_devices(all);
  const ways how{.divided = true, .parts_on = all};
  const auto with = [&](std::size_t device, std::int64_t victim, mishap what, const auto& run) {
    for (const auto& each : devices) each->copies = 0, each->victim = -1, each->happened = false;
    devices[device]->victim = victim;
    devices[device]->what = what;
    return run();
  };
  for (const scene& what : scenes_on_devices<T>()) {
    const auto x = random_numbers<T>(what);
    const auto protect = [&](protection level) { return [&, level] { return transform_on_devices(list, what, x, level, {}, how); }; };
    const results<T> clean = with(0, -1, mishap::stale, protect(protection::correct));
    const std::int64_t copies = devices[0]->copies;
    ASSERT_GT(copies, 3) << what;
    const results<T> bare = with(0, -1, mishap::stale, protect(protection::off));
    for (const mishap each : {mishap::stale, mishap::swapped, mishap::short_of_a_row}) {
      int reached = 0;
      const int trials = test::sampled() ? 3 : 12;
      for (int trial = 0; trial < trials; ++trial) {
        const std::size_t device = static_cast<std::size_t>(trial) % 3;
        const std::int64_t victim = trial * (copies - 1) / trials;
        const results<T> found = with(device, victim, each, protect(protection::correct));
        EXPECT_EQ(found.spectrum, clean.spectrum) << what << ", " << static_cast<int>(each) << ", copy " << victim;
        EXPECT_EQ(found.back, clean.back) << what << ", " << static_cast<int>(each) << ", copy " << victim;
        EXPECT_EQ(found.uncorrectable, 0U);
        EXPECT_EQ(found.detected > 0, devices[device]->happened) << what << ", " << static_cast<int>(each) << ", copy " << victim;
        const results<T> off = with(device, victim, each, protect(protection::off));
        reached += off.spectrum != bare.spectrum || off.back != bare.back ? 1 : 0;
      }
      EXPECT_GT(reached, 0) << what << ", " << static_cast<int>(each);
    }
  }
  ballast::cuda::forget_idle_states();
  ballast::cuda::override_devices({this->three_[0], this->three_[1], this->three_[2]});
}

// Devices that do not reach each other's memory have the same bits, by one chunk of each block or by several, and repair the same faults.
TYPED_TEST(fft_devices, have_the_same_bits_through_the_host) {
  using T = TypeParam;
  const std::vector<int> list = {2, 0, 1};
  std::vector<results<T>> clean;
  for (const scene& what : scenes_on_devices<T>()) clean.push_back(transform_on_devices(list, what, random_numbers<T>(what)));
  const test::several_devices apart({4, 4, 4}, false);
  auto expected = clean.begin();
  for (const scene& what : scenes_on_devices<T>()) {
    const results<T>& right = *expected++;
    const auto x = random_numbers<T>(what);
    for (const std::int64_t chunk : {0, 256}) {
      const results<T> found = transform_on_devices(list, what, x, protection::correct, {}, {.host_chunk = chunk});
      EXPECT_EQ(found.road, wire::road::host);
      EXPECT_EQ(found.spectrum, right.spectrum) << what;
      EXPECT_EQ(found.back, right.back) << what;
      EXPECT_EQ(found.detected, 0U) << what;
    }
    for (const char* site : {"fft_group.block", "fft_group.copy"}) {
      int reached = 0, detected = 0;
      for (std::uint64_t seed = 0; seed < 3 || (seed < 30 && (reached == 0 || detected == 0)); ++seed) {
        const inject::plan faults({inject::request{.site = inject::site_of(site), .seed = seed, .bit = 20}});
        const inject::scope inside(&faults);
        const results<T> found = transform_on_devices(list, what, x);
        EXPECT_EQ(found.spectrum, right.spectrum) << what << ", " << site;
        EXPECT_EQ(found.back, right.back) << what << ", " << site;
        EXPECT_EQ(found.uncorrectable, 0U);
        detected += found.detected > 0 ? 1 : 0;
        reached += transform_on_devices(list, what, x, protection::off).spectrum != right.spectrum ? 1 : 0;
      }
      EXPECT_GT(detected, 0) << what << ", " << site;
      EXPECT_GT(reached, 0) << what << ", " << site;
    }
  }
}

TYPED_TEST(fft_devices, refuse_what_they_cannot) {
  using T = TypeParam;
  const execution two{.group = group::devices({0, 1})};
  EXPECT_THROW((group_plan<T>({12, 8}, {.group = group::devices({0, 3})})), invalid_argument_error);
  EXPECT_THROW((group_plan<T>({12, 8}, {.backend = backend::cpu, .group = group::devices({0, 1})})), unsupported_error);
  EXPECT_THROW((group_plan<T>({12, 8}, {.device = 1, .group = group::devices({0, 1})})), invalid_argument_error);
  EXPECT_THROW((group_plan<T>({8, 8, 12}, two, {.division = division::pencils, .grid = {2, 2}})), invalid_argument_error);
  const group_plan<T> plan({12, 8}, two);
  std::vector<std::complex<T>> in(96), out(96), part(48);
  std::vector<T> real(96);
  EXPECT_THROW((void)plan.forward(std::span<const std::complex<T>>(part), std::span(out)), invalid_argument_error);
  EXPECT_THROW((void)plan.forward(std::span<const T>(real), std::span(out)), invalid_argument_error);
  int stream = 0;
  EXPECT_THROW((void)plan.forward(std::span<const std::complex<T>>(in), std::span(out), {.stream = &stream}), invalid_argument_error);
  // Divided operands: another number of parts, other sizes, other numbers, parts that overlap, a device that is not there.
  using complex = std::complex<T>;
  const auto in_of = [&](std::size_t first, std::size_t count) { return std::span<const complex>(in).subspan(first, count); };
  const auto out_of = [&](std::size_t first, std::size_t count) { return std::span(out).subspan(first, count); };
  const auto divided = [&](std::vector<std::span<const complex>> from, std::vector<std::span<complex>> to, const call& now = {}) {
    return plan.forward_divided(std::span<const std::span<const complex>>(from), std::span<const std::span<complex>>(to), now);
  };
  EXPECT_EQ(divided({in_of(0, 48), in_of(48, 48)}, {out_of(0, 48), out_of(48, 48)}).verdict, verdict::clean);
  EXPECT_THROW((void)divided({in_of(0, 96)}, {out_of(0, 96)}), invalid_argument_error);
  EXPECT_THROW((void)divided({in_of(0, 47), in_of(48, 48)}, {out_of(0, 48), out_of(48, 48)}), invalid_argument_error);
  EXPECT_THROW((void)divided({in_of(0, 48), in_of(48, 48)}, {out_of(0, 48), out_of(40, 48)}), invalid_argument_error);
  EXPECT_THROW((void)divided({in_of(0, 48), in_of(48, 48)}, {out_of(0, 48), out_of(48, 48)}, {.stream = &stream}), invalid_argument_error);
  const std::vector<std::span<const T>> real_parts(2, std::span<const T>(real).first(48));
  const std::vector<std::span<complex>> out_parts = {out_of(0, 48), out_of(48, 48)};
  EXPECT_THROW((void)plan.forward_divided(std::span<const std::span<const T>>(real_parts), std::span<const std::span<complex>>(out_parts)),
               invalid_argument_error);
  EXPECT_THROW((void)plan.data_of(2), invalid_argument_error);
  EXPECT_THROW((void)plan.spectrum_of(-1), invalid_argument_error);
  EXPECT_EQ(plan.data_of(1).first[0], 6);
}

// A plan of one array on a group of devices has the results of group_plan in natural order, in place too.
TEST(fft_devices_plan, is_a_group_plan_in_natural_order) {
  const test::several_devices three{4, 4, 4};
  const execution where{.group = group::devices({2, 0, 1})};
  const scene what{"two dimensions", {12, 8}, {.order = result_order::natural}};
  const auto x = random_numbers<double>(what);
  const results<double> expected = transform_on_devices({2, 0, 1}, what, x);
  const fft::problem of{.kind = kind::c2c, .precision = precision::f64, .shape = {12, 8}};
  const fft::plan plan(of, where);
  EXPECT_EQ(plan.backend(), backend::cuda);
  EXPECT_EQ(plan.workspace_bytes(), 0);
  std::vector<std::complex<double>> out(96), back = x;
  report seen = plan.forward(std::span<const std::complex<double>>(x), std::span(out));
  EXPECT_GT(seen.checks, 0U);
  EXPECT_EQ(out, expected.spectrum);
  seen = plan.forward(std::span<const std::complex<double>>(back), std::span(back));
  EXPECT_EQ(back, expected.spectrum);
  seen = plan.inverse(std::span<const std::complex<double>>(back), std::span(back));
  EXPECT_EQ(back, expected.back);
  EXPECT_THROW((void)plan.enqueue_forward(std::span<const std::complex<double>>(x), std::span(out)), unsupported_error);
  fft::problem several = of, columns = of, real = of;
  several.batch = 2;
  columns.input.strides = {1, 12};
  real.kind = kind::r2r;
  real.real_kinds = {real_kind::dct2, real_kind::dct2};
  for (const fft::problem& each : {several, columns, real}) EXPECT_THROW(fft::plan(each, where), unsupported_error);
}

}  // namespace
}  // namespace ballast::fft
