// What fft_test.cpp runs on. Each program that it is linked into has the backends of one kind: fft_host_target.cpp those of the host,
// fft_cuda_target.cpp the cuda backend on the emulator.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "backend/fft_cases.hpp"
#include "inject/plan.hpp"
#include "support/fft_subject.hpp"

namespace ballast::fft {

class target {
 public:
  target() = default;
  target(const target&) = delete;
  target& operator=(const target&) = delete;
  virtual ~target() = default;

  virtual backend where() const = 0;
  // The site of the event that a signal which fails its check gives.
  virtual std::string_view signal_site() const = 0;
  // Threads may run in different orders, numbered from 1: with more threads on the host, with another seed on the emulator. Results must be
  // the same bits for all of them. What a case needs in an order is there as long as the result of `prepare` lives.
  virtual std::shared_ptr<const void> prepare(const fft_case& which, std::uint64_t order) const = 0;
  virtual double floor() const = 0;  // in units of effect_unit
  virtual execution how(std::uint64_t order, protection guard, const inject::plan* faults = nullptr) const = 0;
  // Memory that the backend computes in. The host can read it.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) const = 0;
  // Whether transforms with and without protection make the same sums; with `tiles`, in the same tiles, so that a fault strikes the same
  // element. Asked while the case is prepared.
  virtual bool same_arithmetic(const test::subject<float>& given, bool tiles) const = 0;
  virtual bool same_arithmetic(const test::subject<double>& given, bool tiles) const = 0;
};

// A case and where it is run.
struct run_of_case {
  fft_case which;
  std::vector<const target*> targets;
  int repeats = 1;     // seeds of every fault, or trials
  int model_step = 1;  // one fault model in so many
};

// Every case of this program; one each that every fault strikes; small ones for many random faults, for one persistent fault, and one of
// many tiles for several faults.
const std::vector<run_of_case>& every_run();
const std::vector<run_of_case>& fault_runs();
const std::vector<run_of_case>& flip_runs();
const std::vector<run_of_case>& persistent_runs();
const std::vector<run_of_case>& many_tile_runs();
// Orders that results are compared for.
int orders();

// Calls body(target, run, subject<float or double>) for each target of each run.
template <class Body>
void for_each(const std::vector<run_of_case>& runs, const Body& body, std::uint64_t seed = 11) {
  for (const run_of_case& run : runs) {
    const auto with = [&]<class T>() {
      const test::subject<T> given(run.which.problem(), run.which.direction(), seed);
      for (const target* each : run.targets) {
        SCOPED_TRACE(name_of(run.which) + " on " + std::string(to_string(each->where())));
        body(*each, run, given);
      }
    };
    if (run.which.problem().precision == precision::f32) {
      with.template operator()<float>();
    } else {
      with.template operator()<double>();
    }
  }
}

// Words in the memory of a target, with a copy of `values`.
template <class T>
class placed {
 public:
  placed(const target& on, const std::vector<T>& values) : size_(values.size()), memory_(on.allocate(size_ * sizeof(T))) {
    std::memcpy(memory_.get(), values.data(), size_ * sizeof(T));
  }
  T* data() const { return static_cast<T*>(memory_.get()); }
  std::vector<T> read() const { return {data(), data() + size_}; }

 private:
  std::size_t size_;
  std::shared_ptr<void> memory_;
};

// Plans of one case, without and with protection, that look at the same list of faults.
template <class T>
struct struck_case {
  const test::subject<T>& given;
  inject::plan faults;
  std::vector<T> clean;
  double size = 0;  // the norm of the largest signal
  plan bare, guarded;

  struck_case(const target& on, std::uint64_t order, const test::subject<T>& data)
      : given(data),
        clean(data.fresh()),
        bare(data.problem, on.how(order, protection::off, &faults)),
        guarded(data.problem, on.how(order, protection::correct, &faults)) {
    EXPECT_EQ(given.run(guarded, clean).verdict, verdict::clean);
    for (std::int64_t b = 0; b < given.signals(); ++b) size = std::max(size, test::norm_of(given.got(clean, b)));
  }
  struck_case(const struck_case&) = delete;
  struck_case& operator=(const struck_case&) = delete;

  // ‖out − clean‖ in units of effect_unit; infinite if out is not finite.
  double effect(const std::vector<T>& out) const {
    double squares = 0;
    for (std::size_t i = 0; i < out.size(); ++i) squares += std::pow(static_cast<double>(out[i]) - static_cast<double>(clean[i]), 2);
    const double units = std::sqrt(squares) / (size * test::effect_unit(given.problem));
    return std::isfinite(units) ? units : std::numeric_limits<double>::infinity();
  }
};

}  // namespace ballast::fft
