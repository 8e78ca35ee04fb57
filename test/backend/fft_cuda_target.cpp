// See fft_cuda_target.hpp.
#include "backend/fft_cuda_target.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "backend/fft_emulator.hpp"
#include "cuda/memory/shared_state.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"

namespace ballast::fft {
namespace {

[[maybe_unused]] const bool ready = [] {
  use_own_tuning();
  return true;
}();

class emulated_target final : public target {
 public:
  backend where() const override { return backend::cuda; }
  std::string_view signal_site() const override { return "fft.line"; }
  std::shared_ptr<const void> prepare(const fft_case& which, std::uint64_t order) const override {
    struct watched {
      emulator device;
      ~watched() {
        ballast::cuda::forget_idle_states();  // the tables that the next plan would find
        EXPECT_EQ(device->allocated(), 0) << "memory that a plan has not released";
      }
    };
    return std::shared_ptr<const watched>(new watched{emulator(which.where, order)});
  }
  double floor() const override { return test::k_floor; }
  execution how(std::uint64_t, protection guard) const override { return {.backend = backend::cuda, .protection = guard}; }
  std::shared_ptr<void> allocate(std::size_t bytes) const override {
    const auto held = std::make_shared<ballast::cuda::device_buffer>(ballast::cuda::current_device(), static_cast<std::int64_t>(bytes));
    return {held, held->data()};
  }
  bool same_arithmetic(const test::subject<float>& given, bool tiles) const override { return compare(given, tiles); }
  bool same_arithmetic(const test::subject<double>& given, bool tiles) const override { return compare(given, tiles); }

 private:
  template <class T>
  static bool compare(const test::subject<T>& given, bool tiles) {
    cuda::schedule_request wanted;
    wanted.shape = given.shape;
    wanted.precision = given.problem.precision;
    wanted.direction = given.way;
    wanted.scaled = given.scale() != 1;
    wanted.pairs = cuda::chosen_fusion();
    wanted.fallback = std::dynamic_pointer_cast<fallback_device>(ballast::cuda::current_device()) != nullptr;
    const auto& about = ballast::cuda::current_device()->about();
    const auto bare = cuda::make_schedule(wanted, about).passes;
    wanted.check = cuda::check_form::verify_before_store;
    const auto checked = cuda::make_schedule(wanted, about).passes;
    return std::ranges::equal(bare, checked, [&](const cuda::pass& x, const cuda::pass& y) {
      return std::ranges::equal(x.policy.radix, y.policy.radix) &&
             (!tiles || (x.policy.lines == y.policy.lines && x.policy.threads == y.policy.threads));
    });
  }
};

// Returns whether the emulator has all kernels of the problem in every form that the tests run: unchanged, and with rows for in place.
bool has_kernels(const fft_case& which, protection guard) {
  choose_pairing(which.where);
  const auto device = std::make_shared<test::recording_device>(capabilities_of(which.where));
  device->only_fallback = which.where == machine::fallback;
  const test::current_device_guard current(device);
  std::vector<problem> forms = {which.problem()};
  if (forms[0].kind != kind::c2c && !which.strided()) forms.push_back(test::in_place_problem(forms[0]));
  for (const problem& form : forms) {
    const plan made(form, emulated().how(1, guard), which.options());
    const geometry shape = resolve(form);
    const std::size_t bytes = static_cast<std::size_t>(std::max(shape.input.extent, shape.output.extent)) * 16;
    const std::vector<std::byte> memory(2 * bytes);
    auto* const out = const_cast<std::byte*>(memory.data()) + bytes;
    if (form.precision == precision::f32) {
      (void)test::enqueue<float>(made, shape, which.direction(), memory.data(), out).get();
    } else {
      (void)test::enqueue<double>(made, shape, which.direction(), memory.data(), out).get();
    }
  }
  return std::ranges::all_of(device->requests, [](const auto& each) { return simt::is_registered(each.expression); });
}

std::vector<run_of_case> of(const std::vector<const fft_case*>& cases, int repeats = 1) {
  std::vector<run_of_case> made;
  for (const fft_case* each : cases) made.push_back({*each, &emulated(), repeats});
  return made;
}

}  // namespace

const target& emulated() {
  static const emulated_target only;
  return only;
}

const fft_case& case_of(std::string_view token, machine where) {
  for (const fft_case& each : emulated_cases()) {
    if (each.token == token && each.where == where && !each.strided()) return each;
  }
  throw std::logic_error(std::string(token));
}

int orders() { return test::sampled() ? 1 : 3; }

const std::vector<run_of_case>& every_run() {
  static const std::vector<run_of_case> runs = [] {
    std::vector<run_of_case> made;
    std::map<std::string, std::size_t> places;
    const auto add = [&](const fft_case& each) {
      const auto [there, is_new] = places.try_emplace(name_of(each), made.size());
      if (is_new) {
        made.push_back({each, &emulated()});
      } else {
        made[there->second].which.uses |= each.uses;
      }
    };
    for (const fft_case& each : emulated_cases()) add(each);
    const auto add_where_possible = [&](fft_case each) {
      if (!has_kernels(each, protection::correct)) return;
      if (has_kernels(each, protection::off)) each.uses = k_bare;
      add(each);
    };
    for (const fft_case& each : host_cases()) add_where_possible(each);
    // Every problem can be computed by fallback kernels alone, and those are the same for many problems.
    std::size_t number = 0;
    for (fft_case each : host_cases()) {
      each.where = machine::fallback;
      if (test::taken(number++, 24)) add_where_possible(each);
    }
    return made;
  }();
  return runs;
}

std::vector<run_of_case> clean_runs() {
  std::vector<run_of_case> made = every_run();
  std::erase_if(made, [](const run_of_case& run) {
    const geometry shape = resolve(run.which.problem());
    return test::sampled() && shape.points() * shape.batch > 3000;
  });
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
    for (const fft_case& each : emulated_cases()) {
      const geometry shape = resolve(each.problem());
      const std::int64_t points = shape.points() * shape.batch;
      if ((each.uses & k_faults) == 0 || points > (test::sampled() ? 5000 : 20000)) continue;
      // A sample tries a third of the models: as many seeds more, for one strike may find only lanes that have no element.
      made.push_back({each, &emulated(), test::sampled() ? 6 : points > 1000 ? 2 : 4, test::sampled() ? 3 : 1, made.size()});
    }
    return made;
  }();
  return runs;
}

std::vector<run_of_case> flip_runs() {
  return of({&case_of("fft_c2c_f32_n64_b43_fwd", machine::whole), &case_of("fft_c2c_f64_n100_b9_fwd", machine::whole)},
            test::sampled() ? 60 : 1200);
}

std::vector<run_of_case> persistent_runs() {
  return of({&case_of("fft_c2c_f32_n64_b43_fwd", machine::whole), &case_of("fft_c2c_f64_n32_b35_fwd", machine::whole)});
}

std::vector<run_of_case> allocation_runs() {
  std::vector<run_of_case> made;
  for (const char* token : {"fft_c2c_f64_n32_b35_fwd", "fft_c2r_f64_n512_b5_inv", "fft_c2c_f32_n1331_b2_fwd"})
    made.push_back({case_of(token, machine::whole), &emulated()});
  for (const char* token : {"fft_c2c_f32_n1024_b3_fwd", "fft_c2c_f32_n131_b3_fwd", "fft_c2c_f32_n4096_b70_fwd"})
    made.push_back({case_of(token, machine::small), &emulated()});
  made.push_back({case_of("fft_c2c_f64_n512_b3_inv", machine::clustered), &emulated()});
  made.push_back({case_of("fft_c2c_f32_n1024_b19_inv", machine::paired), &emulated()});
  return made;
}

std::vector<run_of_case> many_tile_runs() {
  return of({&case_of("fft_c2c_f32_n256_b77_fwd", machine::single), &case_of("fft_c2c_f64_n32_b35_fwd", machine::whole)});
}

}  // namespace ballast::fft
