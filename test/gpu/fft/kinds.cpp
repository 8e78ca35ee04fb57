// The stage `kinds` of the FFT: transforms of any rank, with strides and in nests of loops, beside cuFFT; of reals to reals; convolutions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include <ballast/convolve.hpp>

#include "convolution_error.hpp"
#include "device_problem.hpp"
#include "fft_stages.hpp"
#include "kinds.hpp"
#include "placed.hpp"
#include "support/convolution_sum.hpp"
#include "support/convolution_token.hpp"

namespace ballast::gpu_check {
namespace {

// Numbers repeat after so many: a prime. Random ones for all would take the host longer than the calls.
constexpr std::int64_t k_numbers_of_kinds = 4'194'301;

// Device memory with the first `words` words of the repeated numbers.
template <class T>
gpu::buffer repeated_noise(const std::vector<T>& numbers, std::int64_t words) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  gpu::buffer made(words * size);
  const auto all = static_cast<std::int64_t>(numbers.size());
  for (std::int64_t at = 0; at < words; at += all)
    gpu::copy(static_cast<char*>(made.data()) + at * size, numbers.data(), std::min(all, words - at) * size);
  gpu::synchronize();
  return made;
}

template <class T>
void time_placed(const std::string& token, double seconds, tally& seen) {
  const placed_problem what = parse_placed(token);
  const std::vector<T> numbers = noise<T>(std::min(k_numbers_of_kinds, what.in_words()), 1);
  const gpu::buffer in = repeated_noise(numbers, what.in_words()), out(what.out_words() * static_cast<std::int64_t>(sizeof(T)));
  const fft::plan off(what.problem, on_gpu(protection::off)), correct(what.problem, on_gpu(protection::correct));
  const int calls = repeated(what.bytes());
  std::vector<call_variant> variants;
  for (const fft::plan* plan : {&off, &correct}) {
    variants.push_back({plan == &off ? "off" : "correct", {}, [&, plan] {
                          for (int c = 0; c < calls; ++c)
                            (void)run_placed<T>(what, *plan, in.data(), out.data(), tested != backend::cuda, gpu::stream());
                        }});
  }
  if (what.problem.kind != fft::kind::r2r && tested == backend::cuda) {
    call_variant rival{"cuFFT", {}, {}};
    try {
      rival.run = [way = cufft_way(what), &in, &out, calls] {
        for (int c = 0; c < calls; ++c) way(in.data(), out.data());
      };
    } catch (const std::exception& e) {
      rival.refused = e.what();
    }
    variants.push_back(std::move(rival));
  }
  for (call_variant& each : variants) each.calls = calls;
  (void)time_call({token, "transform", k_kind_row}, variants, 0.7 * seconds);
  for (const fft::plan* plan : {&off, &correct}) {
    check_kind(seen, token, plan == &off ? "off" : "correct", [&]() -> measured_error {
      gpu::fill(out.data(), 0xff, out.bytes());  // an element that is not written is NaN
      const report found = run_placed<T>(what, *plan, in.data(), out.data(), true, gpu::stream());
      if (found.detected > 0) throw error("a false alarm");
      std::vector<T> results(static_cast<std::size_t>(what.out_words()));
      gpu::copy(results.data(), out.data(), out.bytes());
      gpu::synchronize();
      const std::function<T(std::int64_t)> word = [&](std::int64_t i) {
        return numbers[static_cast<std::size_t>(i % static_cast<std::int64_t>(numbers.size()))];
      };
      // Real data: as the bound of r2c in the tests (support/fft_tolerances.hpp), for r2r with a step before and one after the transform,
      // each of which rounds once more.
      const double rounding = test::error_bound_of_kind(what.problem);
      return {error_of_placed<T>(what, word, results), what.problem.kind == fft::kind::r2r ? 3 * rounding : rounding};
    });
  }
}

// The words of x, h and y.
template <class T>
struct convolution_operands {
  std::span<const T> x, h;
  std::span<T> y;
};

template <class T>
report convolve(const fft::convolution& plan, const convolution_operands<T>& on, const call& now) {
  if (!plan.problem().complex) return plan.run(on.x, on.h, on.y, now);
  const auto points = [](std::span<const T> of) { return std::span(reinterpret_cast<const std::complex<T>*>(of.data()), of.size() / 2); };
  return plan.run(points(on.x), points(on.h), std::span(reinterpret_cast<std::complex<T>*>(on.y.data()), on.y.size() / 2), now);
}

// Operands in host memory; with the backend cuda in device memory, too.
template <class T>
void time_convolution(const std::string& token, double seconds, tally& seen) {
  const fft::convolution_problem what = test::parse_convolution(token);
  using test::points_of;
  const std::int64_t words = what.complex ? 2 : 1;
  const fft::convolution off(what, on_gpu(protection::off)), correct(what, on_gpu(protection::correct));
  const std::vector<T> x = noise<T>(words * points_of(what.first), 1), h = noise<T>(words * points_of(what.second), 2);
  std::vector<T> y(static_cast<std::size_t>(words * points_of(off.output_shape())));
  const auto measure = [&](const char* where, const convolution_operands<T>& on, const auto& clear, const auto& read) {
    std::vector<call_variant> variants;
    for (const fft::convolution* plan : {&off, &correct})
      variants.push_back({plan == &off ? "off" : "correct", {}, [&, plan] { (void)convolve(*plan, on, on_stream()); }});
    (void)time_call({token, where, k_kind_row}, variants, 0.35 * seconds);
    for (const fft::convolution* plan : {&off, &correct}) {
      check_kind(seen, token, plan == &off ? "off" : "correct", [&]() -> measured_error {
        clear();
        const report found = convolve(*plan, on, on_stream());
        if (found.detected > 0) throw error("a false alarm: " + std::string(to_string(found.verdict)));
        read();
        return error_of_convolution<T>(what, x, h, y);
      });
    }
  };
  measure(
      "operands on the host", {x, h, y}, [&] { std::ranges::fill(y, std::numeric_limits<T>::quiet_NaN()); }, [] {});
  if (tested != backend::cuda) return;
  const auto bytes = [](const std::vector<T>& of) { return static_cast<std::int64_t>(of.size() * sizeof(T)); };
  const gpu::buffer dx(bytes(x)), dh(bytes(h)), dy(bytes(y));
  gpu::copy(dx.data(), x.data(), bytes(x));
  gpu::copy(dh.data(), h.data(), bytes(h));
  gpu::synchronize();
  measure(
      "operands on the device",
      {{static_cast<const T*>(dx.data()), x.size()}, {static_cast<const T*>(dh.data()), h.size()}, {static_cast<T*>(dy.data()), y.size()}},
      [&] { gpu::fill(dy.data(), 0xff, dy.bytes()); },  // an element that is not written is NaN
      [&] {
        gpu::copy(y.data(), dy.data(), bytes(y));
        gpu::synchronize();
      });
}

template <class T>
void time_one(const std::string& token, double seconds, tally& seen) {
  convolves(token) ? time_convolution<T>(token, seconds, seen) : time_placed<T>(token, seconds, seen);
}

bool single(const std::string& token) {
  return (convolves(token) ? test::parse_convolution(token).precision : parse_placed(token).problem.precision) == precision::f32;
}

}  // namespace

std::vector<std::string> kinds_set(bool quick) {
  if (quick)
    return {"columns_fft_c2c_f32_n64_b60_fwd",
            "transposed_fft_r2c_f64_n48_b33_fwd",
            "middle4_fft_c2c_f64_n48_b36_inv",
            "windows_fft_r2c_f32_n64_b40_fwd",
            "axes_fft_c2c_f32_n12x20_b9_fwd",
            "fft_c2c_f32_n6x10x4x8_b3_fwd",
            "fft_dct2_f32_n100_b20_fwd",
            "fft_dct3_f64_n64_b9_inv",
            "fft_dst1xdht_f64_n15x16_b5_fwd",
            "convolve_real_f32_n5000_m65_full",
            "correlate_complex_f64_n40x30_m5x7_same"};
  return {"columns_fft_c2c_f32_n1024_b16384_fwd",
          "columns_fft_c2c_f64_n1000_b8192_fwd",
          "transposed_fft_c2c_f32_n1024_b16384_fwd",
          "middle16_fft_c2c_f32_n256_b65536_fwd",
          "middle64_fft_c2c_f64_n500_b16384_fwd",
          "windows_fft_r2c_f32_n1024_b65536_fwd",
          "axes_fft_c2c_f32_n128x128_b1024_fwd",
          "fft_c2c_f32_n32x32x32x32_b16_fwd",
          "fft_c2c_f64_n16x16x16x16x16_b8_fwd",
          "fft_r2hc_f32_n1024_b32768_fwd",
          "fft_hc2r_f32_n1024_b32768_fwd",
          "fft_dht_f32_n1024_b32768_fwd",
          "fft_dct1_f32_n1025_b32768_fwd",
          "fft_dct2_f32_n1024_b32768_fwd",
          "fft_dct3_f32_n1024_b32768_fwd",
          "fft_dct4_f32_n1024_b32768_fwd",
          "fft_dst1_f32_n1023_b32768_fwd",
          "fft_dst2_f32_n1024_b32768_fwd",
          "fft_dst3_f32_n1024_b32768_fwd",
          "fft_dst4_f32_n1024_b32768_fwd",
          "fft_dct2_f64_n1000_b16384_fwd",
          "fft_dct2_f32_n512x512_b128_fwd",
          "convolve_real_f32_n16777216_m1025_full",
          "convolve_complex_f32_n4194304_m1025_same",
          "convolve_real_f32_n4096x4096_m33x33_same",
          "correlate_complex_f32_n2048x2048_m129x129_full",
          "convolve_real_f64_n256x256x256_m9x9x9_same",
          "correlate_real_f64_n4194304_m513_valid"};
}

int record_convolution(std::string_view token) {
  const fft::convolution_problem what = test::parse_convolution(token);
  // Without launches the checks find that no block was judged; nothing is read from these addresses.
  const auto use = [&]<class T>(T, protection guard) {
    const fft::convolution plan(what, on_gpu(guard));
    const std::int64_t words = what.complex ? 2 : 1;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses without memory
    const auto place = [](int part) { return reinterpret_cast<T*>(std::uintptr_t{1} << (40 + part)); };
    const auto size = [&](const std::vector<std::int64_t>& shape) { return static_cast<std::size_t>(words * test::points_of(shape)); };
    call now;
    now.throw_on_uncorrectable = false;
    (void)convolve<T>(plan, {{place(0), size(what.first)}, {place(5), size(what.second)}, {place(10), size(plan.output_shape())}}, now);
  };
  int failed = 0;
  for (const protection guard : {protection::off, protection::correct}) {
    try {
      what.precision == precision::f32 ? use(float(), guard) : use(double(), guard);
    } catch (const std::exception& e) {
      ++failed;
      row("kernel").add("token", token).add("refused", e.what()).print();
    }
  }
  return failed;
}

void check_kind_token(std::string_view token) {
  if (convolves(token)) {
    (void)test::parse_convolution(token);
  } else {
    (void)parse_placed(token);
  }
}

int record_fft_kinds(test::recording_device& on, const settings& wanted) {
  int failed = 0;
  for (const std::string& token : wanted.tokens.empty() ? kinds_set(wanted.quick) : wanted.tokens) {
    on.user = token;
    if (convolves(token)) {
      failed += record_convolution(token);
      continue;
    }
    const placed_problem what = parse_placed(token);
    void* const from = reinterpret_cast<void*>(std::uintptr_t{1} << 40);  // NOLINT(performance-no-int-to-ptr)
    void* const to = reinterpret_cast<void*>(std::uintptr_t{1} << 50);    // NOLINT(performance-no-int-to-ptr)
    for (const protection guard : {protection::off, protection::correct}) {
      try {
        const fft::plan plan(what.problem, {.backend = backend::cuda, .protection = guard});
        if (what.problem.precision == precision::f32) {
          (void)run_placed<float>(what, plan, from, to, true, nullptr);
        } else {
          (void)run_placed<double>(what, plan, from, to, true, nullptr);
        }
      } catch (const std::exception& e) {
        ++failed;
        row("kernel").add("token", token).add("refused", e.what()).print();
      }
    }
  }
  return failed;
}

int kinds(const settings& wanted, const time_limit& limit) {
  tally seen;
  return each_kind(wanted.tokens.empty() ? kinds_set(wanted.quick) : wanted.tokens, limit, seen,
                   [&](const std::string& token, double seconds) {
                     single(token) ? time_one<float>(token, seconds, seen) : time_one<double>(token, seconds, seen);
                   });
}

}  // namespace ballast::gpu_check
