// The choices of the cpu backend: candidates, the estimate, lines of the tuning table, and plans by an entry.
#include <algorithm>
#include <cmath>
#include <complex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "fft/cpu/transform.hpp"
#include "fft/cpu/tune.hpp"
#include "fft/cpu/tuning.hpp"
#include "fft/problem.hpp"
#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "run/recorder.hpp"

namespace ballast::fft::cpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

geometry geometry_of(const std::string& token) { return nest_of(describe(parse_token(token).problem))->inner; }

TEST(cpu_fft_tuning, comes_back_as_it_was_written) {
  const std::string text =
      "fft_cpu AVX2 GenuineIntel-6-85 4 r2c f64 1x320x320 64 unchecked volume 0x0 tiles 2 1.25\n"
      "fft_cpu AVX3 AuthenticAMD-25-17 2 c2c f32 1x1x65536 64 checked matrix 512x128 signals 0 1.082\n";
  const choice_table table = choice_table::parse("# a comment\n\n" + text);
  EXPECT_THAT(table.warnings(), IsEmpty());
  EXPECT_EQ(table.to_text(), text);
  const auto found = table.find({"AVX3", "AuthenticAMD-25-17", 2, kind::c2c, false, {1, 1, 65536}, 64, true});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(*found, (choice_form::value{{method::matrix, 512, 128, sharing::signals, 0}, 1.082}));
  EXPECT_FALSE(table.find({"AVX3", "AuthenticAMD-25-17", 1, kind::c2c, false, {1, 1, 65536}, 64, true}).has_value());
  EXPECT_FALSE(table.find({"AVX2", "AuthenticAMD-25-17", 2, kind::c2c, false, {1, 1, 65536}, 64, true}).has_value());
}

// A damaged line is named with the word that is expected there, and stays in the file.
TEST(cpu_fft_tuning, skips_a_damaged_line_and_warns) {
  const std::pair<const char*, const char*> wrong[] = {
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked tile 0x0 by_size 0", "13 fields"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked tile 0x0 by_size 0 1 1", "13 fields"},
      {"AVX3 A-1-2 two c2c f32 1x1x64 4 checked tile 0x0 by_size 0 1", "13 fields"},
      {"AVX3 A-1-2 0 c2c f32 1x1x64 4 checked tile 0x0 by_size 0 1", "1 to 4096 threads"},
      {"AVX3 A-1-2 2 dct2 f32 1x1x64 4 checked tile 0x0 by_size 0 1", "c2c, r2c or c2r"},
      {"AVX3 A-1-2 2 c2c f16 1x1x64 4 checked tile 0x0 by_size 0 1", "f32 or f64"},
      {"AVX3 A-1-2 2 c2c f32 1x64 4 checked tile 0x0 by_size 0 1", "three lengths"},
      {"AVX3 A-1-2 2 c2c f32 1x0x64 4 checked tile 0x0 by_size 0 1", "three lengths"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 0 checked tile 0x0 by_size 0 1", "at least one signal"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 yes tile 0x0 by_size 0 1", "checked or unchecked"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked tiles 0x0 by_size 0 1", "tile, matrix"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked matrix 8x9 by_size 0 1", "product is the length"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked matrix 0x0 by_size 0 1", "product is the length"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked matrix 4294967296x4294967296 by_size 0 1", "product is the length"},
      {"AVX3 A-1-2 2 r2c f32 1x1x64 4 checked half_matrix 8x8 by_size 0 1", "product is the length"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked tile 8x8 by_size 0 1", "0x0 for other methods"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked tile 8 by_size 0 1", "two factors"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked tile 0x0 alone 0 1", "by_size, signals or tiles"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked tile 0x0 by_size 3 1", "at most the plan's threads"},
      {"AVX3 A-1-2 2 c2c f32 1x1x64 4 checked tile 0x0 by_size 0 0", "a gain above 0"},
  };
  for (const auto& [text, expected] : wrong) {
    const std::string line = "fft_cpu " + std::string(text) + "\n";
    const choice_table table = choice_table::parse("# one\n" + line);
    EXPECT_THAT(table.warnings(), ElementsAre(testing::AllOf(HasSubstr("line 2"), HasSubstr(expected), HasSubstr(text)))) << text;
    EXPECT_EQ(table.to_text(), line);
    EXPECT_THAT(table.entries(), IsEmpty());
  }
}

TEST(cpu_fft_tuning, the_table_chooses_only_what_is_a_candidate) {
  const geometry shape = geometry_of("fft_c2c_f32_n65536_b8_fwd");
  const choice rule = choose_by_rule(shape, precision::f32);
  const auto at = key_of(shape, precision::f32, true, 2);
  ASSERT_TRUE(at.has_value());
  choice_table table;
  EXPECT_EQ(choose(shape, precision::f32, true, 2, table), rule);
  const choice other{method::matrix, 1024, 64, sharing::tiles, 1};
  ASSERT_NE(other, rule);
  table.set(*at, {other, 1.5});
  EXPECT_EQ(choose(shape, precision::f32, true, 2, table), other);
  EXPECT_EQ(choose(shape, precision::f32, true, 1, table), rule);   // other threads
  EXPECT_EQ(choose(shape, precision::f32, false, 2, table), rule);  // without protection
  EXPECT_EQ(choose(shape, precision::f64, true, 2, table), choose_by_rule(shape, precision::f64));
  table.set(*at, {{method::matrix, 32768, 2, sharing::tiles, 0}, 1.5});  // further from a square than any candidate
  EXPECT_EQ(choose(shape, precision::f32, true, 2, table), rule);
  table.set(*at, {{.how = method::volume}, 1.5});
  EXPECT_EQ(choose(shape, precision::f32, true, 2, table), rule);
  // An array with gaps has no entry.
  fft::problem apart = parse_token("fft_c2c_f32_n65536_b8_fwd").problem;
  apart.input = {{1}, 70000};
  EXPECT_FALSE(key_of(nest_of(describe(apart))->inner, precision::f32, true, 2).has_value());
  // A processor of another make has other entries.
  choice_form::key foreign = *at;
  foreign.processor = "GenuineIntel-6-85";
  choice_table others;
  others.set(foreign, {other, 1.5});
  EXPECT_EQ(choose(shape, precision::f32, true, 2, others), rule);
}

// Every candidate computes the transform, with protection and without, and has an estimate.
TEST(cpu_fft_tuning, every_candidate_computes_the_transform) {
  for (const char* const token : {"fft_c2c_f64_n4096_b3_fwd", "fft_r2c_f64_n8192_b5_fwd", "fft_c2r_f64_n6000_b2_inv",
                                  "fft_c2c_f64_n12x40x24_b3_fwd", "fft_c2c_f64_n1_b2_fwd", "fft_r2c_f64_n30x62_b7_fwd"}) {
    const auto what = parse_token(token);
    const geometry shape = geometry_of(token);
    const auto scalars = [](const side& of) { return static_cast<std::size_t>(of.extent * (of.real ? 1 : 2)); };
    std::vector<double> in(scalars(shape.input)), first;
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::cos(static_cast<double>(i) * 1.37) + 0.01 * static_cast<double>(i % 17);
    for (int threads : {1, 2}) {
      for (const bool protect : {false, true}) {
        for (choice each : candidates(shape, precision::f64, threads)) {
          for (const int most : {0, 1}) {
            each.threads = most;
            EXPECT_GT(estimated_seconds(shape, precision::f64, each, threads, protect), 0) << token;
            run::settings how;
            how.protection = protect ? protection::correct : protection::off;
            inject::active_injector none(nullptr, site::table());
            run::recorder seen(token, backend::cpu, "", how, none);
            std::vector<double> out(scalars(shape.output), -1);
            const transform_args one{what.direction, 1, 1, false, how.protection, threads, nullptr, {}, seen, none, true};
            make_chosen_transform(shape, precision::f64, protect, each)->run(in.data(), out.data(), one);
            const report said = seen.finish();
            EXPECT_EQ(said.verdict, verdict::clean) << token;
            EXPECT_EQ(said.checks > 0, protect) << token;
            if (first.empty()) first = out;
            double norm = 0, apart = 0;
            for (std::size_t i = 0; i < out.size(); ++i) {
              norm += first[i] * first[i];
              apart += (out[i] - first[i]) * (out[i] - first[i]);
            }
            // Two results of a relative error of at most 1.28 u √log₂n each (docs/design/fft.md, "Accuracy"), with room for a factor 2.
            EXPECT_LE(std::sqrt(apart / norm), 4 * 1.28 * 1.2e-16 * std::sqrt(std::log2(static_cast<double>(shape.points()) + 1)))
                << token << ' ' << to_string(each.how) << ' ' << each.n1 << 'x' << each.n2 << ' ' << to_string(each.share);
          }
        }
      }
    }
    first.clear();
  }
}

TEST(cpu_fft_tuning, the_estimate_prefers_square_matrices_and_counts_threads) {
  const geometry one = geometry_of("fft_c2c_f32_n1048576_b1_fwd"), many = geometry_of("fft_c2c_f32_n1048576_b64_fwd");
  const auto seconds = [](const geometry& of, const choice& by, int threads, bool protect) {
    return estimated_seconds(of, precision::f32, by, threads, protect);
  };
  const choice square{method::matrix, 1024, 1024, sharing::tiles};
  EXPECT_LT(seconds(one, square, 2, true), seconds(one, square, 1, true));
  EXPECT_LT(seconds(one, square, 1, false), seconds(one, square, 1, true));
  EXPECT_GT(seconds(many, square, 1, true), 30 * seconds(one, square, 1, true));
  // One signal keeps one thread only, if threads take whole signals.
  EXPECT_LT(seconds(one, square, 4, true), seconds(one, {method::matrix, 1024, 1024, sharing::signals}, 4, true));
}

// A short measurement of a small problem: the result is an entry that a plan would use, or none, and an old entry does not survive.
TEST(cpu_fft_tuning, measures_and_keeps_what_is_faster) {
  const std::string token = "fft_c2c_f32_n4096_b8_fwd";
  const geometry shape = geometry_of(token);
  choice_table table;
  const auto at = key_of(shape, precision::f32, true, 1);
  table.set(*at, {{method::matrix, 32, 128, sharing::by_size}, 7.5});
  std::vector<std::string> lines;
  const auto results = tune({token}, 1, table, [&](const std::string& line) { lines.push_back(line); });
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], HasSubstr(token + ", checked"));
  EXPECT_EQ(table.entries().size(), results.size());
  for (const auto& [key, entry] : table.entries()) {
    EXPECT_GE(entry.gain, 1.02);
    EXPECT_NE(entry.gain, 7.5);
    EXPECT_EQ(choose(shape, precision::f32, key.checked, 1, table), entry.chosen);
  }
  EXPECT_EQ(choice_table::parse(table.to_text()).to_text(), table.to_text());
  EXPECT_THROW(tune({"fft_dct2_f32_n64_b4_fwd"}, 1, table, [](const std::string&) {}), invalid_argument_error);
  EXPECT_THROW(tune({"fft_c2c_f32_n0_b4_fwd"}, 1, table, [](const std::string&) {}), invalid_argument_error);
  for (const std::string& each : tuned_problems()) EXPECT_NO_THROW((void)geometry_of(each)) << each;
}

}  // namespace
}  // namespace ballast::fft::cpu
