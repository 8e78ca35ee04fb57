// The reference and the cpu backend, for fft_test.cpp.
#include <cstdlib>
#include <set>

#include "backend/fft_target.hpp"
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
  execution how(std::uint64_t order, protection guard, const inject::plan* faults) const override {
    execution made;
    made.backend = which_;
    made.protection = guard;
    made.faults = faults;
    made.threads = static_cast<int>(1 + (order - 1) % 3);
    made.throw_on_uncorrectable = false;
    return made;
  }
  std::shared_ptr<void> allocate(std::size_t bytes) const override { return {std::malloc(bytes), std::free}; }
  bool same_arithmetic(const test::subject<float>&, bool) const override { return true; }
  bool same_arithmetic(const test::subject<double>&, bool) const override { return true; }

 private:
  backend which_;
};

const host_target k_reference(backend::reference), k_cpu(backend::cpu);

std::vector<run_of_case> both(const std::vector<const char*>& tokens, int repeats_f32 = 1, int repeats_f64 = 1) {
  std::vector<run_of_case> made;
  for (const char* each : tokens) {
    const bool single = parse_token(each).problem.precision == precision::f32;
    made.push_back({{each, machine::whole, k_bare | k_faults}, {&k_reference, &k_cpu}, single ? repeats_f32 : repeats_f64});
  }
  return made;
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
      if (each.strided() || names.insert(name_of(each)).second) made.push_back({each, {&k_reference, &k_cpu}});
    };
    for (const fft_case& each : host_cases()) add(each);
    std::uint64_t number = 0;
    for (const fft_case& each : emulated_cases()) {
      if (test::taken(number++, 3)) add(each);
    }
    return made;
  }();
  return runs;
}

const std::vector<run_of_case>& fault_runs() {
  static const std::vector<run_of_case> runs = [] {
    std::vector<run_of_case> made;
    for (const fft_case& each : host_fault_cases()) {
      const problem p = each.problem();
      run_of_case run{each, {&k_reference, &k_cpu}, test::sampled() ? 2 : p.precision == precision::f32 ? 6 : 3};
      // The only twiddle factors of the reference are ones here: a zero imaginary part that is struck with zero changes nothing.
      if (p.shape[0] == 37) run.targets = {&k_cpu};
      if (p.shape[0] == 10007) {
        if (test::sampled()) continue;
        run.targets = {&k_cpu};
        run.model_step = 3;
      }
      // The reference is the slower by far. Of a sample it takes a third.
      if (!test::taken(made.size(), 3)) run.targets = {&k_cpu};
      made.push_back(run);
    }
    // What the emulator is struck with, on the backend that is fast, two seeds each.
    for (const fft_case& each : emulated_cases()) {
      if ((each.uses & k_faults) == 0 || test::sampled()) continue;
      const geometry shape = resolve(each.problem());
      if (shape.points() * shape.batch <= 5000) made.push_back({each, {&k_cpu}, 2});
    }
    return made;
  }();
  return runs;
}

const std::vector<run_of_case>& flip_runs() {
  static const std::vector<run_of_case> runs =
      both({"fft_c2c_f32_n256_b16_fwd", "fft_c2c_f64_n256_b16_fwd"}, test::sampled() ? 200 : 3000, test::sampled() ? 200 : 1000);
  return runs;
}

const std::vector<run_of_case>& persistent_runs() {
  static const std::vector<run_of_case> runs = both({"fft_c2c_f32_n64_b20_fwd", "fft_c2c_f64_n64_b20_fwd"});
  return runs;
}

const std::vector<run_of_case>& many_tile_runs() {
  static const std::vector<run_of_case> runs = both({"fft_c2c_f32_n64_b200_fwd", "fft_c2c_f64_n64_b200_fwd"});
  return runs;
}

}  // namespace ballast::fft
