// Plans of the FFT: what they refuse and with which words, several threads at once, copies; and tokens.
#include <complex>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

namespace ballast::fft {
namespace {

TEST(fft_plan, refuses_what_has_no_meaning_and_says_why) {
  const auto refused = [](const problem& p, const char* why) {
    try {
      plan made(p);
      ADD_FAILURE() << "accepted: " << why;
    } catch (const invalid_argument_error& e) {
      EXPECT_NE(std::string(e.what()).find("fft_"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("expected"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("got"), std::string::npos) << e.what();
    }
  };
  const std::int64_t huge = std::int64_t{1} << 62;
  refused({.shape = {}}, "no axis");
  refused({.kind = kind::r2r, .shape = {4}}, "no kind for an axis");
  refused({.shape = {4}, .real_kinds = {real_kind::dct2}}, "a kind of another problem");
  refused({.kind = kind::r2r, .shape = {1}, .real_kinds = {real_kind::dct1}}, "a dct1 of one point");
  refused({.shape = {4}, .loops = {{0, 4, 4}}}, "an empty loop");
  refused({.shape = {4}, .loops = {{2, 4, 2}}}, "loops overlap");
  refused({.shape = {4}, .batch = huge / 4, .loops = {{8, 4, 4}}}, "loops overflow");
  refused({.shape = {0}}, "empty");
  refused({.shape = {-3}}, "negative");
  refused({.shape = {4}, .batch = 0}, "no signal");
  refused({.shape = {huge}}, "bytes overflow");
  refused({.shape = {1 << 30, 1 << 30, 1 << 30}}, "product overflows");
  refused({.shape = {4}, .batch = huge}, "batch overflows");
  refused({.shape = {4, 4}, .input = {{1}, 0}}, "one stride for two axes");
  refused({.shape = {4}, .output = {{0}, 0}}, "stride 0");
  refused({.shape = {4}, .batch = 2, .output = {{1}, 0}}, "signals at one place");
  refused({.shape = {4}, .batch = 2, .output = {{1}, 3}}, "signals overlap");
  refused({.shape = {4, 4}, .output = {{3, 1}, 0}}, "rows overlap");
  refused({.shape = {4}, .input = {{huge}, 0}}, "extent overflows");
  EXPECT_THROW(plan({.shape = {4}}, {.threads = -1}), invalid_argument_error);
  for (const int sampled : {0, -2}) {
    try {
      plan made({.shape = {4}}, {.sampled = sampled});
      ADD_FAILURE() << "accepted";
    } catch (const invalid_argument_error& e) {
      EXPECT_NE(std::string(e.what()).find("fft_c2c_f32_n4_b1_fwd: sampled: expected 1 or more, got " + std::to_string(sampled)),
                std::string::npos)
          << e.what();
    }
  }
  try {
    plan made({.shape = {4}}, {.protection = protection::final_only});
    ADD_FAILURE() << "accepted";
  } catch (const unsupported_error& e) {
    EXPECT_NE(std::string(e.what()).find("expected off, detect or correct, got final_only, which is for K-Means"), std::string::npos)
        << e.what();
  }
}

// Both directions count by themselves; a further plan of the problem begins one call later.
TEST(fft_plan, samples_its_calls) {
  std::vector<std::complex<double>> x(48, 1), y(48);
  std::string seen;
  for (int number = 0; number < 3; ++number) {
    const plan made({.precision = precision::f64, .shape = {48}}, {.sampled = 3});
    for (int call = 0; call < 4; ++call) {
      seen += made.forward(x, y).protection == protection::correct ? '1' : '0';
      EXPECT_EQ(made.inverse(y, x).protection == protection::correct, seen.back() == '1');
    }
    seen += ' ';
  }
  EXPECT_EQ(seen, "1001 0010 0100 ");
}

// A refused call takes no turn.
TEST(fft_plan, samples_calls_that_are_not_refused) {
  std::vector<std::complex<double>> x(50, 1), y(50);
  const plan made({.precision = precision::f64, .shape = {50}}, {.sampled = 2});
  std::string seen;
  for (int call = 0; call < 4; ++call) {
    seen += made.forward(x, y).protection == protection::correct ? '1' : '0';
    EXPECT_THROW((void)made.enqueue_forward(x, y), unsupported_error);
    EXPECT_THROW((void)made.forward(std::span(x).first(40), y), invalid_argument_error);
  }
  EXPECT_EQ(seen, "1010");
}

TEST(fft_plan, refuses_what_this_machine_cannot_run) {
  EXPECT_THROW(plan({.shape = {4}}, {.backend = backend::cuda}), unsupported_error);
  EXPECT_THROW(plan({.shape = {4}}, {.scheme = "hope"}), unsupported_error);
  EXPECT_THROW(plan({.shape = {4}}, {.scheme = "one_sided"}), unsupported_error) << "a scheme of cuda alone";
  std::vector<std::complex<float>> x(4), y(4);
  EXPECT_THROW((void)plan({.shape = {4}}).enqueue_forward(x, y), unsupported_error);
  EXPECT_THROW((void)plan({.shape = {4}}).enqueue_inverse(x, y), unsupported_error);
}

TEST(fft_plan, says_what_it_is) {
  const problem asked{.precision = precision::f64, .shape = {12, 18}, .batch = 3};
  const plan made(asked, {.backend = backend::cpu});
  EXPECT_EQ(to_token(made.problem(), direction::forward), "fft_c2c_f64_n12x18_b3_fwd");
  EXPECT_EQ(made.backend(), backend::cpu);
  EXPECT_EQ(made.workspace_bytes(), 0);
}

TEST(fft_plan, refuses_data_that_do_not_fit) {
  std::vector<std::complex<float>> x(10), y(10);
  std::vector<float> r(10);
  const plan made({.shape = {8}});
  EXPECT_THROW((void)made.forward(std::span<const std::complex<float>>(x.data(), 7), y), invalid_argument_error);
  EXPECT_THROW((void)made.forward(x, std::span<std::complex<float>>(y.data(), 7)), invalid_argument_error);
  EXPECT_THROW((void)made.forward(r, y), invalid_argument_error);
  std::vector<std::complex<double>> wide_x(8), wide_y(8);
  EXPECT_THROW((void)made.forward(wide_x, wide_y), invalid_argument_error);
  EXPECT_THROW((void)made.forward(x, std::span<std::complex<float>>(x.data() + 1, 9)), invalid_argument_error) << "overlap";
  const plan real({.kind = kind::r2c, .shape = {8}});
  EXPECT_THROW((void)real.inverse(x, y), invalid_argument_error);
}

TEST(fft_plan, refuses_both_directions_of_the_wrong_type) {
  std::vector<std::complex<float>> x(10), y(10);
  std::vector<std::complex<double>> wide_x(10), wide_y(10);
  std::vector<float> r(10);
  std::vector<double> wide_r(10);
  const auto refused = [](const auto& call) { EXPECT_THROW((void)call(), invalid_argument_error); };
  const plan made({.precision = precision::f64, .shape = {8}}), to_half({.kind = kind::r2c, .shape = {8}}),
      from_half({.kind = kind::c2r, .precision = precision::f64, .shape = {8}});
  refused([&] { return made.forward(x, y); });
  refused([&] { return made.inverse(x, y); });
  refused([&] { return made.forward(wide_r, wide_y); });
  refused([&] { return made.inverse(wide_x, wide_r); });
  refused([&] { return made.enqueue_forward(x, y); });
  refused([&] { return made.enqueue_inverse(wide_x, wide_r); });
  refused([&] { return to_half.forward(wide_r, wide_y); });
  refused([&] { return to_half.inverse(x, r); });
  refused([&] { return to_half.enqueue_forward(x, y); });
  refused([&] { return from_half.inverse(x, r); });
  refused([&] { return from_half.enqueue_forward(wide_r, wide_y); });
  EXPECT_EQ(to_half.forward(r, y).verdict, verdict::clean);
  EXPECT_EQ(from_half.inverse(wide_x, wide_r).verdict, verdict::clean);
}

TEST(fft_plan, events_and_errors_belong_to_the_call) {
  const plan made({.shape = {8}});
  std::vector<std::complex<float>> x(8, 1), y(8);
  int events = 0;
  EXPECT_EQ(made.forward(x, y, {.on_event = [&](const event&) { ++events; }}).verdict, verdict::clean);
  EXPECT_EQ(events, 0);
}

// ---- Several threads at once ----

struct shared_plan {
  const char* token;
  backend where;
};
class fft_shared_plan_test : public testing::TestWithParam<shared_plan> {};

TEST_P(fft_shared_plan_test, gives_the_same_bits_to_every_thread) {
  const token read = parse_token(GetParam().token);
  const plan made(read.problem, {.backend = GetParam().where, .threads = 2});
  std::int64_t points = read.problem.batch;
  for (const std::int64_t n : read.problem.shape) points *= n;
  const auto data = [&](int number) {
    std::vector<std::complex<double>> x(static_cast<std::size_t>(points));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = {static_cast<double>((i * 37 + 11) % 101) + number, static_cast<double>(i % 89)};
    return x;
  };
  constexpr int k_threads = 4;
  std::vector<std::vector<std::complex<double>>> wanted(k_threads, std::vector<std::complex<double>>(static_cast<std::size_t>(points)));
  for (int t = 0; t < k_threads; ++t) {
    EXPECT_EQ(plan(read.problem, {.backend = GetParam().where}).forward(data(t), wanted[static_cast<std::size_t>(t)]).verdict,
              verdict::clean);
  }
  std::vector<int> right(k_threads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < k_threads; ++t) {
      threads.emplace_back([&, t] {
        const plan mine = made;  // copies share everything
        const auto x = data(t);
        for (int round = 0; round < 10; ++round) {
          std::vector<std::complex<double>> y(x.size());
          const report seen = mine.forward(x, y);
          right[static_cast<std::size_t>(t)] += seen.verdict == verdict::clean && y == wanted[static_cast<std::size_t>(t)] ? 1 : 0;
        }
      });
    }
  }
  EXPECT_EQ(right, std::vector<int>(k_threads, 10));
}

INSTANTIATE_TEST_SUITE_P(
    fft, fft_shared_plan_test,
    testing::Values(shared_plan{"fft_c2c_f64_n64_b40_fwd", backend::reference}, shared_plan{"fft_c2c_f64_n64_b40_fwd", backend::cpu},
                    shared_plan{"fft_c2c_f64_n263_b40_fwd", backend::cpu}, shared_plan{"fft_c2c_f64_n8192_b2_fwd", backend::cpu},
                    shared_plan{"fft_c2c_f64_n12x18_b40_fwd", backend::cpu}, shared_plan{"fft_c2c_f64_n10007_b1_fwd", backend::cpu}),
    [](const auto& info) { return std::string(to_string(info.param.where)) + '_' + info.param.token; });

// ---- Tokens ----

TEST(fft_token, round_trip_and_errors) {
  for (const char* text :
       {"fft_c2c_f32_n1024_b16384_fwd", "fft_r2c_f64_n320x320_b256_fwd", "fft_c2r_f32_n2x3x4_b1_inv", "fft_c2c_f64_n1_b1_inv",
        "fft_c2c_f32_n8x8x8x8_b1_fwd", "fft_dct2_f32_n512_b64_fwd", "fft_dht_f64_n8x9_b1_inv", "fft_dct1xdst4xr2hc_f64_n65x64x3_b1_inv"}) {
    const token read = parse_token(text);
    EXPECT_EQ(to_token(read.problem, read.direction), text);
  }
  for (const char* text : {"",
                           "fft",
                           "fft_c2c_f32_n1024_b16384",
                           "dft_c2c_f32_n8_b1_fwd",
                           "fft_c2d_f32_n8_b1_fwd",
                           "fft_c2c_f16_n8_b1_fwd",
                           "fft_c2c_f32_8_b1_fwd",
                           "fft_c2c_f32_n_b1_fwd",
                           "fft_c2c_f32_n0_b1_fwd",
                           "fft_c2c_f32_n-8_b1_fwd",
                           "fft_c2c_f32_n+8_b1_fwd",
                           "fft_c2c_f32_n08_b1_fwd",
                           "fft_c2c_f32_n8x_b1_fwd",
                           "fft_r2r_f32_n8_b1_fwd",
                           "fft_dct5_f32_n8_b1_fwd",
                           "fft_dct2xdct2_f32_n8x8_b1_fwd",
                           "fft_dct2xdst2_f32_n8_b1_fwd",
                           "fft_c2c_f32_n8_b0_fwd",
                           "fft_c2c_f32_n8_1_fwd",
                           "fft_c2c_f32_n8_b1_up",
                           "fft_c2c_f32_n8_b1_fwd_",
                           "fft_r2c_f32_n8_b1_inv",
                           "fft_c2r_f32_n8_b1_fwd",
                           "fft_c2c_f32_n99999999999999999999_b1_fwd",
                           "fft_c2c_f32_n4611686018427387904_b4_fwd",
                           "fft_c2c_f32_n8_b 1_fwd",
                           "fft_c2c_f32_n8_b1x_fwd"})
    EXPECT_THROW(parse_token(text), invalid_argument_error) << text;
}

}  // namespace
}  // namespace ballast::fft
