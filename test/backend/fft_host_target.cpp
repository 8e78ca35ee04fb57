// The reference and the cpu backend, for fft_test.cpp.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string>

#include "backend/fft_target.hpp"
#include "fft/cpu/one_pass.hpp"
#include "fft/sites.hpp"
#include "support/effort.hpp"

namespace ballast::fft {
namespace {

class host_target final : public target {
 public:
  explicit host_target(backend which) : which_(which) {}
  backend where() const override { return which_; }
  std::string_view signal_site() const override { return "fft.signal"; }
  std::shared_ptr<const void> prepare(const fft_case&, std::uint64_t) const override { return nullptr; }
  double floor() const override { return test::k_host_floor; }
  double floor_of(const fft_case& each) const override { return is_repeated(each) ? 0 : floor(); }
  bool has(const fft_case& each, inject::site where) const override {
    if (!is_repeated(each)) return true;
    // The factors of short lines of one butterfly are constants of the code.
    return where != site::threshold && (where != site::twiddle || !is_one_butterfly(each));
  }
  execution how(std::uint64_t order, protection guard) const override {
    return {.backend = which_, .threads = static_cast<int>(1 + (order - 1) % 3), .protection = guard};
  }
  std::shared_ptr<void> allocate(std::size_t bytes) const override { return {std::malloc(bytes), std::free}; }
  bool same_arithmetic(const test::subject<float>&, bool) const override { return true; }
  bool same_arithmetic(const test::subject<double>&, bool) const override { return true; }

 private:
  bool is_repeated(const fft_case& each) const {
    const geometry shape = resolve(each.problem());
    if (which_ != backend::cpu || shape.n[0] != 1 || shape.n[1] != 1) return false;
    return each.problem().precision == precision::f32 ? cpu::one_pass<float>::is_repeated(shape)
                                                      : cpu::one_pass<double>::is_repeated(shape);
  }

  static bool is_one_butterfly(const fft_case& each) {
    const std::int64_t n = each.problem().shape.back();
    const bool single = each.problem().precision == precision::f32;
    return (single ? cpu::kernels<float>().shape_of_short(n) : cpu::kernels<double>().shape_of_short(n)).second == 1;
  }

  backend which_;
};

const host_target k_reference(backend::reference), k_cpu(backend::cpu);

const target* const k_both[] = {&k_reference, &k_cpu};

// The cases `tokens` on both backends.
std::vector<run_of_case> both(const std::vector<const char*>& tokens, int repeats_f32 = 1, int repeats_f64 = 1) {
  std::vector<run_of_case> made;
  for (const char* each : tokens) {
    const bool single = parse_token(each).problem.precision == precision::f32;
    for (const target* on : k_both) made.push_back({{each, machine::whole, k_bare | k_faults}, on, single ? repeats_f32 : repeats_f64});
  }
  return made;
}

// Norms differ in a factor at the end: once is enough where a test is slow.
bool worth_many_data(const run_of_case& run) {
  const geometry shape = resolve(run.which.problem());
  return run.which.norm == norm::backward && !(test::sampled() && shape.points() * shape.batch > 3000);
}

}  // namespace

int orders() { return 3; }

const std::vector<run_of_case>& every_run() {
  static const std::vector<run_of_case> runs = [] {
    std::vector<run_of_case> made;
    std::set<std::string> names;
    const auto add = [&](fft_case each) {
      each.uses |= k_bare;
      each.where = machine::whole;
      const std::size_t before = names.size();
      if (!names.insert(name_of(each)).second) return;
      if (test::taken(before, 3)) made.push_back({each, &k_reference});  // the slower by far
      made.push_back({each, &k_cpu});
    };
    for (const fft_case& each : host_cases()) add(each);
    std::uint64_t number = 0;
    for (const fft_case& each : small_cases()) {
      if (test::taken(number++, 3)) add(each);
    }
    return made;
  }();
  return runs;
}

std::vector<run_of_case> clean_runs() {
  std::vector<run_of_case> made;
  std::ranges::copy_if(every_run(), std::back_inserter(made), worth_many_data);
  return made;
}

std::vector<run_of_case> special_runs() {
  std::vector<run_of_case> made = clean_runs();
  std::erase_if(made, [](const run_of_case& run) { return run.which.problem().batch < 2; });
  return made;
}

const std::vector<run_of_case>& fault_runs() {
  static const std::vector<run_of_case> runs = [] {
    std::vector<run_of_case> made;
    const auto add = [&](const fft_case& each, const target* on, int repeats, int model_step = 1) {
      made.push_back({each, on, repeats, model_step, made.size()});
    };
    std::size_t number = 0;
    for (const fft_case& each : host_fault_cases()) {
      const problem p = each.problem();
      const int repeats = test::sampled() ? 2 : p.precision == precision::f32 ? 6 : 3;
      const bool long_line = p.shape[0] == 10007;
      if (long_line && test::sampled()) continue;
      // The reference is the slower by far. In a sample it has a third of the cases. The only twiddle factors that it has for a
      // prime number of points are ones: a zero imaginary part that is struck with zero changes nothing.
      const bool prime = p.shape.size() == 1 && (p.shape[0] == 5 || p.shape[0] == 7 || p.shape[0] == 37);
      if (test::taken(number++, 3) && !prime && !long_line) add(each, &k_reference, repeats);
      add(each, &k_cpu, repeats, long_line ? 3 : 1);
    }
    // The cases that are struck on the emulator, on the faster backend, two seeds each.
    std::set<std::string> names;
    for (const run_of_case& run : made) names.insert(name_of(run.which));
    for (fft_case each : small_cases()) {
      each.where = machine::whole;
      if ((each.uses & k_faults) == 0 || test::sampled() || !names.insert(name_of(each)).second) continue;
      const geometry shape = resolve(each.problem());
      if (shape.points() * shape.batch <= 5000) add(each, &k_cpu, 2);
    }
    return made;
  }();
  return runs;
}

std::vector<run_of_case> flip_runs() {
  return both({"fft_c2c_f32_n256_b16_fwd", "fft_c2c_f64_n256_b16_fwd", "fft_c2c_f32_n64x64_b1_fwd", "fft_c2c_f64_n12x15x24_b1_fwd"},
              test::sampled() ? 200 : 3000, test::sampled() ? 200 : 1000);
}

std::vector<run_of_case> persistent_runs() { return both({"fft_c2c_f32_n64_b20_fwd", "fft_c2c_f64_n64_b20_fwd"}); }

std::vector<run_of_case> many_tile_runs() { return both({"fft_c2c_f32_n64_b200_fwd", "fft_c2c_f64_n64_b200_fwd"}); }

std::vector<run_of_case> allocation_runs() {
  return both({"fft_c2c_f32_n1_b3_fwd", "fft_c2c_f32_n64_b40_fwd", "fft_c2c_f64_n134_b20_fwd", "fft_c2c_f64_n263_b9_inv",
               "fft_c2c_f32_n8192_b2_fwd", "fft_c2c_f64_n8192_b9_inv", "fft_c2c_f32_n10007_b1_fwd", "fft_c2c_f32_n48x32_b40_fwd",
               "fft_c2c_f64_n6x20x24_b1_fwd", "fft_c2c_f64_n40x56x16_b1_fwd", "fft_r2c_f32_n90_b18_fwd", "fft_r2c_f64_n33_b9_fwd",
               "fft_c2r_f32_n90_b18_inv", "fft_c2r_f64_n35_b9_inv", "fft_r2c_f64_n12x18_b3_fwd", "fft_c2r_f32_n12x18_b3_inv"});
}

}  // namespace ballast::fft
