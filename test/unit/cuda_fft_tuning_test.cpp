// The tuning table: its text, the errors in it, and the policy that a line of it gives.
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fft/cuda/plan/schedule.hpp"
#include "fft/cuda/policy/choose_policy.hpp"
#include "fft/cuda/policy/radices.hpp"
#include "fft/cuda/tune/candidates.hpp"
#include "fft/problem.hpp"
#include "unit/cuda_fft_devices.hpp"

namespace ballast::fft::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(cuda_fft_tuning, comes_back_as_it_was_written) {
  const std::string text =
      "fft sm_80 f64 1000 rows columns unchecked 10.10.10 50 4 split 3 1.25\n"
      "fft sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 3 1.08\n"
      "fft sm_90 f64 1024 rows rows checked 16.8.8 64 4 staged_split 3 1\n"
      "fft_split sm_90 f32 16777216 unchecked 4096.4096 1.2\n"
      "fft_split sm_90 f64 8388608 few_checked 128.256.256 1\n";
  const tuning_table table = tuning_table::parse("# a comment\n\n" + text);
  EXPECT_EQ(table.to_text(), text);
  EXPECT_EQ(tuning_table::parse(table.to_text()).to_text(), text);
  line_request wanted;
  wanted.length = 1024;
  wanted.check = check_form::verify_before_store;
  const auto found = table.find(wanted, 9);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(*found, (tuned_line{{16, 8, 8}, 64, 4, false, 3, false, 1.08}));
  EXPECT_FALSE(table.find(wanted, 8).has_value());
  wanted.wide = true;
  EXPECT_TRUE(table.find(wanted, 9)->staged && table.find(wanted, 9)->split);
  wanted.in_columns = true;
  EXPECT_FALSE(table.find(wanted, 9).has_value());
  EXPECT_EQ(tuning_table::parse("").to_text(), "");
  const tuning_table& active = tuning_table::active();
  EXPECT_EQ(tuning_table::parse(active.to_text()).to_text(), active.to_text());
  EXPECT_GT(active.entries().size(), 60u);
  EXPECT_THAT(tuning_table::parse(line_form::built_in).warnings(), IsEmpty());
}

// Before lines named their algorithm, all lines belonged to the FFT.
TEST(cuda_fft_tuning, reads_lines_without_an_algorithm) {
  const std::string line = "sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 3 1.08\n";
  EXPECT_EQ(tuning_table::parse(line).to_text(), "fft " + line);
}

TEST(cuda_fft_tuning, lines_of_other_algorithms_are_not_its_own) {
  const std::string others = "kmeans sm_90 f32 128 128 64 3\nfourier sm_90 1\n";
  const std::string line = "fft sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 3 1.08\n";
  const tuning_table table = tuning_table::parse("# all of them\n" + others + line);
  EXPECT_EQ(table.to_text(), line);
  EXPECT_THAT(table.warnings(), IsEmpty());
  EXPECT_EQ(ballast::cuda::tuning_lines_of_others("# all of them\n" + others + line, "fft"), others);
  EXPECT_THAT(ballast::cuda::tuning_warnings("# all of them\n" + others + line, {"fft", "kmeans"}), ElementsAre(HasSubstr("line 3")));
}

// Another version wrote the line. The warning names the line and the error in it; writing the table keeps the line.
TEST(cuda_fft_tuning, skips_a_line_that_it_does_not_know_and_warns) {
  const std::pair<const char*, const char*> wrong[] = {
      {"sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 3", "12 fields"},
      {"sm_90 f32 n rows rows checked 16.8.8 64 4 whole 3 1", "12 fields"},
      {"gfx90 f32 1024 rows rows checked 16.8.8 64 4 whole 3 1", "an architecture like sm_90"},
      {"sm_x f32 1024 rows rows checked 16.8.8 64 4 whole 3 1", "an architecture like sm_90"},
      {"sm_90 f16 1024 rows rows checked 16.8.8 64 4 whole 3 1", "f32 or f64"},
      {"sm_90 f32 1024 row rows checked 16.8.8 64 4 whole 3 1", "rows or columns"},
      {"sm_90 f32 1024 rows column checked 16.8.8 64 4 whole 3 1", "rows or columns"},
      {"sm_90 f32 1024 rows rows yes 16.8.8 64 4 whole 3 1", "checked or unchecked"},
      {"sm_90 f32 1024 rows rows few 16.8.8 64 4 whole 3 1", "checked or unchecked"},
      {"sm_90 f32 1024 rows rows few_yes 16.8.8 64 4 whole 3 1", "checked or unchecked"},
      {"sm_90 f32 1024 rows rows checked 16.8.8 64 4 half 3 1", "whole, split, staged or staged_split"},
      {"sm_90 f32 1024 rows rows checked 64.16 64 4 whole 3 1", "radices from 1 to 32"},
      {"sm_90 f32 1024 rows rows checked 16.x.8 64 4 whole 3 1", "radices from 1 to 32"},
      {"sm_90 f32 1024 rows rows checked 16.8.4 64 4 whole 3 1", "whose product is the length"},
      {"sm_90 f32 512 rows rows checked 2.2.2.2.2.2.2.2.2 64 4 whole 3 1", "at most 8 radices"},
      {"sm_90 f32 1024 rows rows checked 16.8.8 0 4 whole 3 1", "of at least 1"},
      {"sm_90 f32 1024 rows rows checked 16.8.8 64 0 whole 3 1", "of at least 1"},
      {"sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 0 1", "of at least 1"},
  };
  const std::string good = "fft sm_90 f64 1024 rows rows checked 16.8.8 64 4 whole 3 1\n";
  for (const auto& [line, what] : wrong) {
    const tuning_table table = tuning_table::parse("# first\nfft " + std::string(line) + "\n" + good);
    ASSERT_EQ(table.warnings().size(), 1u) << "accepted: " << line;
    EXPECT_THAT(table.warnings().front(), HasSubstr("line 2"));
    EXPECT_THAT(table.warnings().front(), HasSubstr(what));
    EXPECT_THAT(table.warnings().front(), HasSubstr(line));
    EXPECT_EQ(table.entries().size(), 1u);
    EXPECT_EQ(table.to_text(), good + "fft " + line + "\n");
  }
}

TEST(cuda_fft_tuning, skips_a_split_that_it_does_not_know_and_warns) {
  const std::pair<const char*, const char*> wrong[] = {
      {"sm_90 f32 1048576 checked 1024.1024", "6 fields"},
      {"sm_x f32 1048576 checked 1024.1024 1", "an architecture like sm_90"},
      {"sm_90 bf16 1048576 checked 1024.1024 1", "f32 or f64"},
      {"sm_90 f32 1048576 many_checked 1024.1024 1", "checked or unchecked"},
      {"sm_90 f32 1048576 checked 1024.1023 1", "whose product is the length"},
      {"sm_90 f32 1048576 checked 1048576 1", "lengths from 2 to 16384"},
      {"sm_90 f32 1024 checked 1024 1", "two or three lengths"},
      {"sm_90 f32 1024 checked 4.4.8.8 1", "two or three lengths"},
      {"sm_90 f32 1048576 checked 1024.x 1", "lengths from 2 to 16384"},
      {"sm_90 f32 1048576 checked 1.1048576 1", "lengths from 2 to 16384"},
  };
  const std::string good = "fft_split sm_90 f32 1048576 checked 512.2048 1\n";
  for (const auto& [line, what] : wrong) {
    const tuning_table table = tuning_table::parse("fft_split " + std::string(line) + "\n" + good);
    ASSERT_EQ(table.warnings().size(), 1u) << "accepted: " << line;
    EXPECT_THAT(table.warnings().front(), HasSubstr(what)) << line;
    EXPECT_EQ(table.to_text(), good + "fft_split " + line + "\n");
  }
}

// Entries for few lines count only there; without one, the entry for any number of lines counts.
TEST(cuda_fft_tuning, an_entry_for_few_lines_is_for_few_lines) {
  const tuning_table table = tuning_table::parse(
      "fft sm_90 f32 1024 rows rows unchecked 16.8.8 64 4 whole 3 1\n"
      "fft sm_90 f32 1024 rows rows few_unchecked 8.8.4.4 128 1 whole 1 1\n"
      "fft_split sm_90 f32 1048576 unchecked 512.2048 1\n"
      "fft_split sm_90 f32 131072 few_unchecked 128.1024 1\n");
  line_request wanted;
  wanted.length = 1024;
  EXPECT_EQ(table.find(wanted, 9)->threads, 64);
  wanted.few = true;
  EXPECT_EQ(table.find(wanted, 9)->threads, 128);
  wanted.check = check_form::verify_before_store;
  EXPECT_FALSE(table.find(wanted, 9).has_value());
  EXPECT_EQ(table.find_split({9, false, 1 << 20, false, true})->lengths.front(), 512);
  EXPECT_FALSE(table.find_split({9, false, 1 << 17, false, false}).has_value());
  EXPECT_EQ(table.find_split({9, false, 1 << 17, false, true})->lengths.front(), 128);

  const auto lengths = [&](std::int64_t n, std::int64_t batch) {
    std::vector<int> made;
    const schedule_request one{.shape = resolve({.shape = {n}, .batch = batch}), .tuned = &table};
    for (const pass& each : make_schedule(one, hopper()).passes) made.push_back(each.policy.length);
    return made;
  };
  EXPECT_THAT(lengths(1 << 17, 1), ElementsAre(128, 1024));
  EXPECT_THAT(lengths(1 << 17, 3), ElementsAre(256, 512));
  EXPECT_THAT(lengths(1 << 20, 2), ElementsAre(512, 2048));
  const schedule_request short_lines{.shape = resolve({.shape = {1024}, .batch = 8}), .tuned = &table};
  EXPECT_EQ(make_schedule(short_lines, hopper()).passes.front().policy.threads, 128);
}

TEST(cuda_fft_tuning, candidate_splits_fit_and_come_in_order) {
  EXPECT_THAT(candidate_splits(1 << 24, false, hopper()).front(), ElementsAre(4096, 4096));
  EXPECT_THAT(candidate_splits(1 << 18, false, hopper()).front(), ElementsAre(512, 512));
  EXPECT_THAT(candidate_splits(1 << 21, true, hopper()).front(), ElementsAre(1024, 2048));
  EXPECT_THAT(candidate_splits((1 << 16) + 1, false, hopper()), IsEmpty());  // a prime
  for (const std::int64_t n : {std::int64_t{1} << 18, std::int64_t{1000000}, std::int64_t{1} << 24}) {
    for (const bool wide : {false, true}) {
      const auto all = candidate_splits(n, wide, hopper());
      EXPECT_FALSE(all.empty()) << n;
      EXPECT_LE(all.size(), 12u);
      std::size_t passes = 2;
      for (const auto& lengths : all) {
        EXPECT_GE(lengths.size(), passes);
        passes = lengths.size();
        std::int64_t product = 1;
        for (const std::int64_t each : lengths) {
          EXPECT_TRUE(fits_one_pass(each, wide, hopper())) << each;
          product *= each;
        }
        EXPECT_EQ(product, n);
        tuning_table table;
        table.set_split({9, wide, n, true, false}, {lengths, 1});
        const schedule_request one{.shape = resolve({.precision = wide ? precision::f64 : precision::f32, .shape = {n}, .batch = 64}),
                                   .precision = wide ? precision::f64 : precision::f32,
                                   .check = check_form::verify_before_store,
                                   .tuned = &table};
        const auto passes_made = make_schedule(one, hopper()).passes;
        ASSERT_EQ(passes_made.size(), lengths.size());
        for (std::size_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(passes_made[i].policy.length, lengths[i]);
      }
    }
  }
}

TEST(cuda_fft_tuning, a_line_that_is_in_the_table_gets_its_policy) {
  line_request wanted;
  wanted.length = 64;
  wanted.count = wanted.columns = 100000;
  tuning_table table;
  table.set(wanted, 9, {{4, 4, 4}, 8, 16, true, 2});
  const line_policy p = choose_policy(wanted, hopper(), table);
  EXPECT_EQ(p.stages, 3);
  EXPECT_EQ(p.threads, 8);
  EXPECT_EQ(p.lines, 16);
  EXPECT_TRUE(p.split);
  EXPECT_EQ(p.min_blocks, 2);
  EXPECT_NE(choose_policy(wanted, ampere(), table).stages, 3);
  wanted.count = 4;  // fewer lines than a tile has
  wanted.columns = 4;
  EXPECT_LT(choose_policy(wanted, hopper(), table).lines, 16);
}

TEST(cuda_fft_tuning, gives_back_the_lines_that_it_was_given) {
  const std::string text = "fft sm_90 f32 1024 rows columns checked 16.8.8 64 4 split 3 1.08\n";
  const auto lines = tuning_table::parse(text).lines();
  ASSERT_EQ(lines.size(), 1u);
  const auto& [request, value] = lines.front();
  EXPECT_EQ(request.length, 1024);
  EXPECT_FALSE(request.wide);
  EXPECT_FALSE(request.in_columns);
  EXPECT_TRUE(request.out_columns);
  EXPECT_EQ(request.check, check_form::verify_before_store);
  EXPECT_EQ(value, (tuned_line{.radices = {16, 8, 8}, .threads = 64, .lines = 4, .split = true, .min_blocks = 3, .gain = 1.08}));
  tuning_table again;
  again.set(request, 9, value);
  EXPECT_EQ(again.to_text(), text);
}

}  // namespace
}  // namespace ballast::fft::cuda
