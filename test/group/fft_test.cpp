// Transforms of one, two and three dimensions on the ranks of a group, against the definition in extended precision, with faults of the
// wire, of the copies around exchanges and of the lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numbers>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/fft_group.hpp>

#include "core/counter_rng.hpp"
#include "fft/sites.hpp"
#include "group/fft_scenes.hpp"
#include "group/state.hpp"
#include "group/wire_faults.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "support/effort.hpp"
#include "support/ranks.hpp"
#include "support/typed_suite.hpp"

namespace ballast::fft {
namespace {

using namespace on_groups;
using test::quick;
using wire::fault;
using wire::switchboard;
using wire::wire_fault;

const inject::registration k_sites(site::group_table());

// Every division, order and kind of data, on shapes that most numbers of ranks do not divide; fewer lines than ranks, and an axis of one.
std::vector<scene> scenes() {
  std::vector<scene> made;
  for (const result_order order : {result_order::transposed, result_order::natural}) {
    for (const bool real : {false, true}) {
      for (const auto& [n0, n1] : {std::pair<std::int64_t, std::int64_t>{12, 20}, {31, 9}, {5, 3}, {1, 16}})
        made.push_back({"two dimensions", {n0, n1}, {.real = real, .order = order}});
      for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{6, 5, 7}, {3, 10, 8}, {9, 1, 4}}) {
        made.push_back({"slabs", shape, {.real = real, .order = order}});
        made.push_back({"pencils", shape, {.real = real, .division = division::pencils, .order = order}});
      }
    }
    for (const std::int64_t n : {60, 225, 37, 1}) {
      made.push_back({"one dimension", {n}, {.order = order}});
      if (order == result_order::transposed) made.push_back({"one dimension", {n}, {.real = true}});
    }
  }
  // The same in many pieces: of one row, of several, and of a multiple of 16 rows.
  for (const scene& each : std::vector(made))
    if (each.shape != std::vector<std::int64_t>{1}) made.push_back({each.name, each.shape, each.how, 64});
  made.push_back({"two dimensions", {70, 3}, {}, 100});
  made.push_back({"two dimensions", {70, 9}, {.order = result_order::natural}, 300});
  return made;
}

template <class T>
struct outcome {
  std::vector<std::complex<T>> spectrum, back;  // in row-major order
  std::vector<int> stored;                      // how many ranks have stored an element of the spectrum
  std::vector<std::int64_t> shape;              // group_plan::shape
  int ended = 0, lost = 0, errors = 0;
  std::uint64_t detected = 0, checks = 0;
  bool clean = true, uncorrectable = false;
  std::string message;
  std::vector<std::uint64_t> messages;
};

// Transforms and transforms back. `inside`: faults of the last rank.
template <class T>
outcome<T> transform_on(int ranks, const scene& what, const std::vector<std::complex<T>>& x, const std::vector<wire_fault>& faults = {},
                        protection level = protection::correct, double patience = 60, const inject::plan* inside = nullptr) {
  const auto board = std::make_shared<switchboard>(ranks, faults);
  outcome<T> made;
  made.spectrum.resize(x.size());
  made.back.resize(x.size());
  made.stored.resize(x.size());
  std::mutex mutex;
  const auto endings = test::run_ranks(board, quick(patience), [&](int rank, const group& own) {
    if (what.block_bytes > 0) own.internal()->block_bytes = what.block_bytes;
    const group_plan<T> plan(what.shape, {.backend = backend::cpu, .threads = 1, .protection = level, .group = own}, what.how);
    const box data = plan.data(), spectrum = plan.spectrum();
    const auto shape = plan.shape();
    std::vector<std::complex<T>> in(static_cast<std::size_t>(data.size())), out(static_cast<std::size_t>(spectrum.size())), back(in.size());
    each_element(data, [&](std::size_t e, const auto& at) { in[e] = x[number_of(what, shape, at, false)]; });
    const inject::scope struck(rank == ranks - 1 ? inside : nullptr);
    const call kept = {.throw_on_uncorrectable = false};
    report there, again;
    if (what.how.real) {
      std::vector<T> real(in.size()), real_back(in.size());
      std::ranges::transform(in, real.begin(), [](const std::complex<T>& each) { return each.real(); });
      there = plan.forward(std::span<const T>(real), std::span(out), kept);
      again = plan.inverse(std::span<const std::complex<T>>(out), std::span(real_back), kept);
      std::ranges::copy(real_back, back.begin());
    } else {
      there = plan.forward(std::span<const std::complex<T>>(in), std::span(out), kept);
      again = plan.inverse(std::span<const std::complex<T>>(out), std::span(back), kept);
    }
    const std::lock_guard lock(mutex);
    ++made.ended;
    made.shape = shape;
    for (const report* each : {&there, &again}) {
      made.detected += each->detected;
      made.checks += each->checks;
      made.clean = made.clean && each->verdict == verdict::clean;
      made.uncorrectable = made.uncorrectable || each->verdict == verdict::uncorrectable;
    }
    each_element(spectrum, [&](std::size_t e, const auto& at) {
      made.spectrum[number_of(what, shape, at, true)] = out[e];
      ++made.stored[number_of(what, shape, at, true)];
    });
    each_element(data, [&](std::size_t e, const auto& at) { made.back[number_of(what, shape, at, false)] = back[e]; });
  });
  test::add_endings(endings, made);
  for (int r = 0; r < ranks; ++r) made.messages.push_back(board->messages(r));
  return made;
}

template <class T>
class fft_group : public testing::Test {};
using precisions = testing::Types<float, double>;
TYPED_SUITE(fft_group, precisions, test::number_names);

// A transform errs by a few u √log₂ N of the norm of the spectrum (docs/design/fft.md, "Accuracy"); 4 are allowed, for both together 8.
TYPED_TEST(fft_group, definition_and_inverse) {
  using T = TypeParam;
  const double u = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
  for (const scene& what : scenes()) {
    const auto x = random_numbers<T>(what);
    const auto expected = transform_of(x, what.shape);
    const double limit = 4 * u * std::sqrt(std::log2(static_cast<double>(x.size())) + 1);
    for (const int ranks : {1, 2, 3, 4, 7, 12}) {
      const auto found = transform_on(ranks, what, x);
      ASSERT_EQ(found.errors, 0) << found.message << "; " << what;
      EXPECT_TRUE(found.clean) << what;
      long double error = 0, size = 0, error_back = 0, size_back = 0;
      std::size_t elements = 0;
      // Half of the last axis; of one dimension, of the first axis of shape().
      const auto halved = static_cast<std::size_t>(what.shape.size() == 1 ? found.shape[0] : what.shape.back());
      for (std::size_t e = 0; e < x.size(); ++e) {
        const bool kept = !what.how.real || e % halved < halved / 2 + 1;
        ASSERT_EQ(found.stored[e], kept ? 1 : 0) << what << ", " << ranks << " ranks, element " << e;
        elements += kept ? 1 : 0;
        size += std::norm(expected[e]);
        error += kept ? std::norm(static_cast<extended>(found.spectrum[e]) - expected[e]) : 0;
        error_back += std::norm(static_cast<extended>(found.back[e]) - static_cast<extended>(x[e]));
        size_back += std::norm(static_cast<extended>(x[e]));
      }
      ASSERT_GT(elements, 0U);
      EXPECT_LE(std::sqrt(static_cast<double>(error / size)), limit) << what << ", " << ranks << " ranks";
      EXPECT_LE(std::sqrt(static_cast<double>(error_back / size_back)), 2 * limit) << what << ", " << ranks << " ranks";
    }
  }
}

std::vector<scene> struck_scenes() {
  return {{"two dimensions", {12, 20}, {}},
          {"two dimensions", {12, 20}, {.order = result_order::natural}},
          {"slabs", {6, 5, 8}, {.real = true}},
          {"pencils", {6, 5, 7}, {.division = division::pencils, .order = result_order::natural}},
          {"one dimension", {225}, {}},
          {"one dimension", {120}, {.order = result_order::natural}},
          {"one dimension", {120}, {.real = true}},
          {"slabs", {9, 6, 8}, {}, 200},
          {"pencils", {6, 5, 7}, {.division = division::pencils, .order = result_order::natural}, 200},
          {"one dimension", {225}, {.order = result_order::natural}, 200}};
}

// The parts of large arrays travel by pieces, so that more messages go.
TEST(fft_group_pieces, are_more_messages) {
  for (const scene& usual : struck_scenes()) {
    if (usual.block_bytes > 0) continue;
    scene pieces = usual;
    pieces.block_bytes = 64;
    const auto x = random_numbers<double>(usual);
    const auto one = transform_on(3, usual, x), many = transform_on(3, pieces, x);
    ASSERT_EQ(many.errors, 0) << many.message;
    EXPECT_TRUE(many.clean) << usual;
    EXPECT_GT(many.messages[1], one.messages[1]) << usual;
  }
}

// A grid that the caller chooses, of one row and of one column too.
TEST(fft_group_grid, any_rows_and_columns) {
  const scene usual{"pencils", {6, 5, 7}, {.division = division::pencils}};
  const auto x = random_numbers<double>(usual);
  const auto expected = transform_on(1, usual, x);
  for (const std::array<int, 2> grid : {std::array<int, 2>{1, 6}, {6, 1}, {3, 2}, {2, 3}}) {
    scene what = usual;
    what.how.grid = grid;
    const auto found = transform_on(6, what, x);
    ASSERT_EQ(found.errors, 0) << found.message;
    EXPECT_EQ(found.spectrum, expected.spectrum);
    EXPECT_EQ(found.back, expected.back);
  }
}

class fft_group_faults : public testing::TestWithParam<fault> {};

TEST_P(fft_group_faults, wire) {
  for (const scene& what : struck_scenes()) {
    const auto x = random_numbers<double>(what);
    const auto clean = transform_on(3, what, x);
    ASSERT_EQ(clean.errors, 0) << clean.message;
    test::strike_messages(
        GetParam(), clean.messages, test::sampled() ? 6 : 30,
        [&](const std::vector<wire_fault>& faults) { return transform_on(3, what, x, faults); },
        [&](const auto& found, const std::string& at) {
          EXPECT_EQ(found.spectrum, clean.spectrum) << what << ", " << at;
          EXPECT_EQ(found.back, clean.back) << what << ", " << at;
        });
  }
}

INSTANTIATE_TEST_SUITE_P(all, fft_group_faults, testing::ValuesIn(wire::k_faults));

// A fault inside one rank, at sites of the exchange, of the products and of the lines: with protection on the bits are those without the
// fault, or, where a checksum has rebuilt an element, the numbers to rounding; with protection off the fault reaches the output.
TEST(fft_group_inside, repaired_and_without_protection_not) {
  struct strike {
    const char* site;
    bool exact;
  };
  for (const scene& what : struck_scenes()) {
    const auto x = random_numbers<double>(what);
    const auto clean = transform_on(3, what, x), bare = transform_on(3, what, x, {}, protection::off);
    for (const strike& each : {strike{"fft_group.block", true},
                               {"fft_group.copy", true},
                               {"fft_group.product", true},
                               {"fft.input", false},
                               {"fft.stage", false},
                               {"fft.output", false}}) {
      if (std::string(each.site) == "fft_group.product" && what.shape.size() > 1) continue;
      int reached = 0;
      for (const inject::model model : {inject::model::bit_flip, inject::model::random_bits, inject::model::nan, inject::model::zero}) {
        for (std::uint64_t seed = 0; seed < (test::sampled() ? 2U : 6U); ++seed) {
          inject::request wanted{.site = inject::site_of(each.site), .model = model, .seed = seed};
          if (model == inject::model::bit_flip) wanted.bit = each.exact ? static_cast<int>(9 * seed % 64) : 62;
          const inject::plan faults({wanted});
          const auto found = transform_on(3, what, x, {}, protection::correct, 60, &faults);
          ASSERT_EQ(found.errors, 0) << found.message << "; " << what << ", " << each.site;
          EXPECT_FALSE(found.uncorrectable) << what << ", " << each.site;
          if (each.exact) {
            EXPECT_EQ(found.spectrum, clean.spectrum) << what << ", " << each.site << ", model " << static_cast<int>(model);
            EXPECT_EQ(found.back, clean.back) << what << ", " << each.site << ", model " << static_cast<int>(model);
          }
          double difference = 0, size = 0;
          for (std::size_t e = 0; e < x.size(); ++e) {
            difference += std::norm(found.spectrum[e] - clean.spectrum[e]) + std::norm(found.back[e] - clean.back[e]);
            size += std::norm(clean.spectrum[e]);
          }
          // The floor of the lines (docs/protection.md): 400 u √(log₂N + 1).
          EXPECT_LE(std::sqrt(difference / size), 1e-12) << what << ", " << each.site << ", model " << static_cast<int>(model);
          const auto off = transform_on(3, what, x, {}, protection::off, 60, &faults);
          reached += off.spectrum != bare.spectrum || off.back != bare.back ? 1 : 0;
          EXPECT_TRUE(found.detected > 0 || !(off.spectrum != bare.spectrum) || !each.exact) << what << ", " << each.site;
        }
      }
      EXPECT_GT(reached, 0) << what << ", " << each.site;
    }
  }
}

// A fault that stays: the call is uncorrectable on all ranks and stores nothing, as the last lines are not transformed.
TEST(fft_group_inside, persistent_fault_is_reported) {
  struct strike {
    const char* site;
    scene what;
  };
  for (const strike& each : {strike{"fft_group.block", {"one dimension", {225}, {}}},
                             {"fft_group.product", {"one dimension", {225}, {}}},
                             {"fft_group.block", {"slabs", {9, 6, 8}, {}, 200}},
                             {"fft.stage", {"slabs", {9, 6, 8}, {}, 200}},
                             {"fft.stage", {"pencils", {6, 5, 7}, {.division = division::pencils}}}}) {
    const auto x = random_numbers<double>(each.what);
    std::vector<inject::request> again;
    for (std::int64_t visit = 0; visit < 60; ++visit)
      again.push_back({.site = inject::site_of(each.site), .model = inject::model::random_value, .seed = 3, .visit = visit, .interval = 0});
    const inject::plan faults(again);
    const auto found = transform_on(3, each.what, x, {}, protection::correct, 60, &faults);
    ASSERT_EQ(found.errors, 0) << found.message;
    EXPECT_TRUE(found.uncorrectable) << each.site << ", " << each.what;
    EXPECT_TRUE(std::ranges::all_of(found.spectrum, [](const auto& number) { return number == std::complex<double>(); }))
        << each.site << ", " << each.what;
  }
}

TEST(fft_group_protection, off_lets_a_bit_pass) {
  for (const scene& what : struck_scenes()) {
    const auto x = random_numbers<double>(what);
    const auto clean = transform_on(3, what, x, {}, protection::off);
    int different = 0;
    // A bit of the head, or one that no one reads, changes nothing: several bits of each message.
    for (std::uint64_t seed = 0; seed < 8 && different == 0; ++seed) {
      for (std::uint64_t number = 0; number < clean.messages[1] && different == 0; ++number) {
        const auto found = transform_on(3, what, x, {{fault::bit, 1, number, 1, 8191 * number + seed}}, protection::off, 1);
        different += found.errors > 0 || found.spectrum != clean.spectrum || found.back != clean.back ? 1 : 0;
      }
    }
    EXPECT_GT(different, 0) << what;
  }
}

TEST(fft_group_errors, arguments) {
  EXPECT_THROW(group_plan<float>({4, 4}, execution{}), invalid_argument_error);
  std::atomic<int> refused{0};
  test::run_ranks(2, [&](int rank, const group& own) {
    const execution where = {.backend = backend::cpu, .group = own};
    const auto refuses = [&](const std::vector<std::int64_t>& shape, const distribution& how) {
      try {
        const group_plan<float> none(shape, where, how);
      } catch (const invalid_argument_error&) {
        ++refused;
      }
    };
    refuses({0, 4}, {});
    refuses({2, 2, 2, 2}, {});
    refuses({4, 4}, {.division = division::pencils});
    refuses({4, 4, 4}, {.division = division::pencils, .grid = {2, 2}});
    refuses({4, 4, 4}, {.grid = {1, 2}});
    EXPECT_THROW(group_plan<float>({8}, where, {.real = true, .order = result_order::natural}), unsupported_error);
    try {
      const group_plan<float> plan({rank == 0 ? 4 : 6, 4}, where);
      std::vector<std::complex<float>> in(static_cast<std::size_t>(plan.data().size())),
          out(static_cast<std::size_t>(plan.spectrum().size()));
      (void)plan.forward(std::span<const std::complex<float>>(in), std::span(out));
    } catch (const invalid_argument_error&) {
      ++refused;
    }
    const group_plan<float> plan({4, 4}, where);
    std::vector<std::complex<float>> in(3), out(8);
    std::vector<float> real(8);
    try {
      (void)plan.forward(std::span<const std::complex<float>>(in), std::span(out));
    } catch (const error&) {
      ++refused;
    }
    try {
      (void)plan.forward(std::span<const float>(real), std::span(out));
    } catch (const error&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 16);
}

}  // namespace
}  // namespace ballast::fft
