// Lists of problems, and the kernels that their schedules load.
#include "fft/cuda/tune/bundle_catalogue.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fft/cuda/convolve/arguments.hpp"
#include "fft/cuda/convolve/convolve.hpp"
#include "fft/cuda/group/boxes.hpp"
#include "fft/cuda/group/product.hpp"
#include "fft/cuda/plan/fallback.hpp"
#include "fft/cuda/plan/kernels.hpp"
#include "fft/cuda/plan/real_lines.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "fft/cuda/policy/choose_policy.hpp"
#include "fft/cuda/run/line_maps.hpp"
#include "fft/problem.hpp"

namespace ballast::fft::cuda {

namespace {

std::string c2c(const char* type, std::int64_t n, std::int64_t points) {
  return std::string("fft_c2c_") + type + "_n" + std::to_string(n) + "_b" + std::to_string(std::max<std::int64_t>(points / n, 1)) + "_fwd";
}

// A list of requests without duplicates.
class collection {
 public:
  explicit collection(const ballast::cuda::capabilities& device) : device_(device) {}

  void add(ballast::cuda::kernel_request wanted) {
    if (std::ranges::find(made_, wanted) == made_.end()) made_.push_back(std::move(wanted));
  }

  void add(const std::string& text, check_form check, bool inverse = false, bool end_to_end = false) {
    const token what = parse_token(text);
    schedule_request wanted{.shape = resolve(what.problem), .precision = what.problem.precision};
    wanted.direction = inverse ? direction::inverse : what.direction;
    wanted.scaled = inverse;
    wanted.check = check;
    wanted.end_to_end = end_to_end;
    const schedule made = make_schedule(wanted, device_);
    for (std::size_t i = 0; i < made.passes.size(); i += made.passes[i].pair ? 2 : 1) add(kernel_for(made, i, false));
  }

  // Real-to-real lines in one pass; across: along the first of two axes.
  void add_reals(real_kind what, std::int64_t n, precision type, check_form check, bool across = false) {
    if (!one_pass_of(what, n, type == precision::f64, device_)) return;
    problem one{.kind = kind::r2r, .precision = type, .shape = {n}, .real_kinds = {what}};
    if (across) {
      one.shape.push_back(n);
      one.real_kinds.push_back(what);
    }
    one.batch = std::max<std::int64_t>((std::int64_t{1} << 25) / (across ? n * n : n), 1);
    schedule_request wanted{.shape = lines_along(describe(one), 0, what, true).inner, .precision = type};
    wanted.check = check;
    add(kernel_for(make_schedule(wanted, device_), 0, false));
  }

  std::vector<ballast::cuda::kernel_request> take() { return std::move(made_); }

 private:
  const ballast::cuda::capabilities& device_;
  std::vector<ballast::cuda::kernel_request> made_;
};

constexpr check_form k_checks[] = {check_form::none, check_form::verify_before_store};

void add_common(collection& to) {
  for (const char* type : {"f32", "f64"}) {
    for (int e = 5; e <= 20; ++e) {
      const std::string problem = c2c(type, std::int64_t{1} << e, std::int64_t{1} << 24);
      for (const check_form check : k_checks) to.add(problem, check);
      // Inverse transforms of one pass with protection, which is the default.
      if (e >= 6 && e <= 12) to.add(problem, check_form::verify_before_store, true);
    }
  }
  for (const check_form check : k_checks) to.add(c2c("f32", 1000, 1 << 24), check);
}

constexpr real_kind k_real_kinds[] = {real_kind::r2hc, real_kind::hc2r, real_kind::dct1, real_kind::dst1, real_kind::dct2,
                                      real_kind::dst2, real_kind::dct3, real_kind::dst3, real_kind::dct4, real_kind::dst4};

// dct1 and dst1 of as many complex numbers as the others of 2n reals.
std::int64_t points_of(real_kind what, std::int64_t n) { return what == real_kind::dct1 ? n + 1 : what == real_kind::dst1 ? n - 1 : n; }

void add_common_reals(collection& to) {
  for (const check_form check : k_checks) {
    for (const real_kind what : k_real_kinds) {
      for (const precision type : {precision::f32, precision::f64}) to.add_reals(what, points_of(what, 1024), type, check);
    }
    for (const std::int64_t n : {256, 512, 2048}) {
      for (const real_kind what : {real_kind::dct2, real_kind::dct3}) to.add_reals(what, n, precision::f32, check);
    }
    to.add_reals(real_kind::dct2, 512, precision::f32, check, true);
  }
}

// Mixed radices, more threads, and odd lines.
void add_more_reals(collection& to) {
  for (const check_form check : k_checks) {
    for (const precision type : {precision::f32, precision::f64}) {
      for (const real_kind what : {real_kind::dct2, real_kind::dst3, real_kind::dct4}) {
        for (const std::int64_t n : {100, 4096}) to.add_reals(what, n, type, check);
      }
      for (const real_kind what : {real_kind::dct2, real_kind::dct3}) to.add_reals(what, 45, type, check);
    }
  }
}

// For up to so many axes.
void add_convolution(collection& to, std::size_t most) {
  for (const precision type : {precision::f32, precision::f64}) {
    for (const bool complex : {false, true}) {
      for (std::size_t axes = 1; axes <= most; ++axes) {
        for (ballast::cuda::kernel_request& each : convolve_kernels(type, complex, axes, false)) to.add(std::move(each));
      }
    }
  }
}

}  // namespace

std::vector<std::string> tuned_problems() {
  std::vector<std::string> made;
  for (const char* type : {"f32", "f64"}) {
    for (int e = 3; e <= 24; ++e) made.push_back(c2c(type, std::int64_t{1} << e, std::int64_t{1} << 24));
    for (const std::int64_t n : {100, 360, 400, 1000, 1331, 4099}) made.push_back(c2c(type, n, std::int64_t{1} << 24));
  }
  return made;
}

std::vector<std::string> benchmark_problems() {
  // 2^28 points in f32, 2^27 in f64: 2 GB on each side.
  std::vector<std::string> made;
  for (const int e : {6, 10, 12, 13, 14, 15, 16, 17, 18, 20}) made.push_back(c2c("f32", std::int64_t{1} << e, std::int64_t{1} << 28));
  made.emplace_back("fft_c2c_f32_n16777216_b8_fwd");
  for (const int e : {10, 13, 14, 16, 20}) made.push_back(c2c("f64", std::int64_t{1} << e, std::int64_t{1} << 27));
  for (const char* one : {"fft_c2c_f32_n1024_b8_fwd",        "fft_c2c_f32_n131072_b1_fwd",      "fft_r2c_f32_n400_b262144_fwd",
                          "fft_r2c_f32_n65536_b1024_fwd",    "fft_c2c_f32_n1000_b131072_fwd",   "fft_c2c_f32_n1331_b131072_fwd",
                          "fft_c2c_f32_n4099_b16384_fwd",    "fft_c2c_f64_n65537_b1024_fwd",    "fft_r2c_f32_n320x320_b256_fwd",
                          "fft_c2c_f64_n256x256x256_b1_fwd", "fft_c2c_f64_n200x200x200_b1_fwd", "fft_r2c_f32_n108x108x120_b1_fwd",
                          "fft_c2c_f32_n4096x4096_b4_fwd",   "fft_c2c_f32_n16384x16384_b1_fwd", "fft_c2c_f64_n8192x8192_b1_fwd",
                          "fft_c2r_f32_n400_b262144_inv",    "fft_c2r_f32_n65536_b1024_inv",    "fft_r2c_f64_n4096_b16384_fwd",
                          "fft_c2r_f64_n1000_b65536_inv",    "fft_r2c_f32_n512x512_b128_fwd",   "fft_c2r_f32_n512x512_b128_inv",
                          "fft_c2c_f32_n256x256x256_b2_fwd", "fft_r2c_f32_n256x256x256_b2_fwd", "fft_c2r_f64_n128x128x128_b8_inv"})
    made.emplace_back(one);
  return made;
}

std::vector<ballast::cuda::kernel_request> common_kernels(const ballast::cuda::capabilities& device) {
  collection made(device);
  for (ballast::cuda::kernel_request& each : fallback_kernels()) made.add(std::move(each));
  for (ballast::cuda::kernel_request& each : map_kernels()) made.add(std::move(each));
  add_convolution(made, k_convolve_few_axes);
  add_common(made);
  add_common_reals(made);
  return made.take();
}

std::vector<ballast::cuda::kernel_request> checked_kernels(const ballast::cuda::capabilities& device) {
  collection made(device);
  for (ballast::cuda::kernel_request& each : fallback_kernels()) made.add(std::move(each));
  for (ballast::cuda::kernel_request& each : map_kernels()) made.add(std::move(each));
  add_convolution(made, k_convolve_few_axes + 1);
  for (const int bytes : {4, 8, 16}) {
    for (const bool turned : {false, true}) made.add(box_copy_request(bytes, turned));
    made.add(box_sum_request(bytes));
    for (const bool check : {false, true})
      if (bytes > 4) made.add(product_request(bytes, check));
  }
  add_common(made);
  add_common_reals(made);
  add_more_reals(made);
  for (const std::string& problem : benchmark_problems()) {
    for (const check_form check : k_checks) made.add(problem, check);
    made.add(problem, check_form::verify_before_store, false, true);
  }
  for (const auto& [request, value] : tuning_table::active().lines()) {
    if (value.cluster > 1 && device.major < 9) continue;
    line_request stageable = request;
    stageable.stageable = true;
    line_policy p = make_policy(stageable, value);
    if (p.shared_bytes() > device.shared_per_block) continue;
    p.source_unit = !p.in_columns;
    p.target_unit = !p.out_columns;
    // Only a pass that another pass follows has lines in columns on both sides.
    for (const factor_form factors : {factor_form::twiddle, factor_form::separated}) {
      const bool behind = p.in_columns && p.out_columns;
      if (factors == factor_form::separated && !behind) continue;
      line_policy formed = p;
      if (behind) formed.store_factor = factors;
      limit_registers(formed, device);
      // No plan uses the entries of another architecture here. They must compile nevertheless, with a third fewer blocks and a few spilled
      // registers, since code for this architecture may need more of them.
      const bool used = tuning_table::active().find(request, device.major).has_value();
      if (!used && formed.min_blocks > 1) formed.min_blocks -= (formed.min_blocks + 2) / 3;
      ballast::cuda::kernel_request kernel = kernel_for(formed, false);
      if (!used) kernel.spills = 16;
      made.add(std::move(kernel));
    }
  }
  return made.take();
}

}  // namespace ballast::fft::cuda
