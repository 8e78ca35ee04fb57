// What a plan of the FFT refuses, with which words; and tokens.
#include <complex>
#include <cstdint>
#include <span>
#include <string>
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
  refused({.shape = {2, 2, 2, 2}}, "four axes");
  refused({.shape = {0}}, "empty");
  refused({.shape = {-3}}, "negative");
  refused({.shape = {4}, .batch = 0}, "no signal");
  refused({.shape = {huge}}, "bytes overflow");
  refused({.shape = {1 << 30, 1 << 30, 1 << 30}}, "product overflows");
  refused({.shape = {4}, .batch = huge}, "batch overflows");
  refused({.shape = {4, 4}, .input = {{1}, 0}}, "one stride for two axes");
  refused({.shape = {4}, .input = {{0}, 0}}, "stride 0");
  refused({.shape = {4}, .input = {{-1}, 0}}, "negative stride");
  refused({.shape = {4}, .batch = 2, .output = {{1}, 3}}, "signals overlap");
  refused({.shape = {4, 4}, .output = {{3, 1}, 0}}, "rows overlap");
  refused({.shape = {4}, .input = {{huge}, 0}}, "extent overflows");
  execution how;
  how.backend = backend::cuda;
  EXPECT_THROW(plan({.shape = {4}}, how), unsupported_error);
  how = {};
  how.scheme = "hope";
  EXPECT_THROW(plan({.shape = {4}}, how), unsupported_error);
  how = {};
  how.threads = -1;
  EXPECT_THROW(plan({.shape = {4}}, how), invalid_argument_error);
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
  const plan strided({.shape = {4}, .input = {{1}, 0}, .output = {{2}, 0}});
  EXPECT_THROW((void)strided.forward(x, x), invalid_argument_error) << "in place with different layouts";
  const plan real({.kind = kind::r2c, .shape = {8}});
  EXPECT_THROW((void)real.inverse(x, y), invalid_argument_error);
  const plan rows({.kind = kind::r2c, .shape = {8}, .batch = 2});
  std::vector<float> memory(20);
  EXPECT_THROW((void)rows.forward(memory, std::span(reinterpret_cast<std::complex<float>*>(memory.data()), 10)), invalid_argument_error)
      << "in place needs padded rows";
}

TEST(fft_token, round_trip_and_errors) {
  for (const char* text :
       {"fft_c2c_f32_n1024_b16384_fwd", "fft_r2c_f64_n320x320_b256_fwd", "fft_c2r_f32_n2x3x4_b1_inv", "fft_c2c_f64_n1_b1_inv"}) {
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
                           "fft_c2c_f32_n8x8x8x8_b1_fwd",
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
