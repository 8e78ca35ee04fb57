// Targets and lists of cases for the tests of the FFT. Each program has the backends of one kind: fft_host_target.cpp has those of the
// host, fft_cuda_target.cpp has the cuda backend on the emulator. Every case on every backend is a named test: the parameter of a suite
// here.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "backend/fft_cases.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/site.hpp"
#include "support/fft_subject.hpp"

namespace ballast::fft {

class target {
 public:
  target() = default;
  target(const target&) = delete;
  target& operator=(const target&) = delete;
  virtual ~target() = default;

  virtual backend where() const = 0;
  // The site of the event that a signal gives when it fails its check.
  virtual std::string_view signal_site() const = 0;
  // Threads may run in different orders, numbered from 1: with more threads on the host, with another seed on the emulator. Results must be
  // the same bits for all of them. The needs of a case in an order exist during the lifetime of the result of `prepare`.
  virtual std::shared_ptr<const void> prepare(const fft_case& which, std::uint64_t order) const = 0;
  virtual double floor() const = 0;  // in units of effect_unit
  // The floor of a case, and whether it has a site. Short lines on processors are computed twice: every changed bit is found.
  virtual double floor_of(const fft_case&) const { return floor(); }
  virtual bool has(const fft_case&, inject::site) const { return true; }
  virtual execution how(std::uint64_t order, protection guard) const = 0;
  // Returns memory that the backend computes in. The host can read it.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) const = 0;
  // Returns whether transforms with and without protection add the same numbers in the same order; with `tiles`, in the same tiles, so that
  // a fault strikes the same element. Asked while the case is prepared.
  virtual bool same_arithmetic(const test::subject<float>& given, bool tiles) const = 0;
  virtual bool same_arithmetic(const test::subject<double>& given, bool tiles) const = 0;
};

// A case on one backend.
struct run_of_case {
  fft_case which;
  const target* on = nullptr;
  int repeats = 1;         // seeds of every fault, or trials
  int model_step = 1;      // one fault model in so many
  std::size_t number = 0;  // its place in the list of faults

  bool emulated() const { return on->where() == backend::cuda; }
};

// The name of a test: "cpu_fft_c2c_f32_n64_b33_fwd_ortho".
inline std::string name_of(const run_of_case& run) { return std::string(to_string(run.on->where())) + '_' + name_of(run.which); }
inline std::string test_name(const testing::TestParamInfo<run_of_case>& info) { return name_of(info.param); }
inline void PrintTo(const run_of_case& run, std::ostream* to) { *to << name_of(run); }

// The lists of this program. every_run: every case. clean_runs: those whose clean data of every kind are tried. special_runs: the same with
// several signals. fault_runs: cases that every fault strikes. flip_runs, persistent_runs: small cases for many random faults, and for one
// persistent fault. many_tile_runs: cases of many tiles for several faults. allocation_runs: one case for each way that a backend computes.
const std::vector<run_of_case>& every_run();
std::vector<run_of_case> clean_runs();
std::vector<run_of_case> special_runs();
const std::vector<run_of_case>& fault_runs();
std::vector<run_of_case> flip_runs();
std::vector<run_of_case> persistent_runs();
std::vector<run_of_case> many_tile_runs();
std::vector<run_of_case> allocation_runs();
// How many orders of threads results are compared for.
int orders();

// The data of a case. The test before may have used them on another backend: what their transform should be is computed once.
template <class T>
const test::subject<T>& data_of(const fft_case& which) {
  static std::optional<std::pair<std::string, test::subject<T>>> last;
  const std::string name = name_of(which);
  if (!last || last->first != name) last.emplace(name, test::subject<T>(which.problem(), which.direction(), 11));
  return last->second;
}

// Calls body(data) with data of the case's precision.
template <class Body>
void with_data_of(const fft_case& which, const Body& body) {
  if (which.problem().precision == precision::f32) {
    body(data_of<float>(which));
  } else {
    body(data_of<double>(which));
  }
}

// A suite whose tests each have one case on one backend.
class fft_test : public testing::TestWithParam<run_of_case> {
 protected:
  static const run_of_case& run() { return GetParam(); }
  static const target& on() { return *GetParam().on; }
  static plan make(const problem& what, std::uint64_t order, protection guard) {
    return plan(what, on().how(order, guard), run().which.options());
  }
  template <class Body>
  static void with_data(const Body& body) {
    with_data_of(GetParam().which, body);
  }
};

// Words in the memory of a target, with a copy of `values`.
template <class T>
class device_copy {
 public:
  device_copy(const target& on, const std::vector<T>& values) : size_(values.size()), memory_(on.allocate(size_ * sizeof(T))) {
    std::memcpy(memory_.get(), values.data(), size_ * sizeof(T));
  }
  T* data() const { return static_cast<T*>(memory_.get()); }
  std::vector<T> read() const { return {data(), data() + size_}; }

 private:
  std::size_t size_;
  std::shared_ptr<void> memory_;
};

// Plans of one case, without and with protection, and the faults that strike their calls.
template <class T>
struct struck_case {
  const test::subject<T>& given;
  inject::plan faults;
  std::vector<T> clean;
  double size = 0;  // the norm of the largest signal
  plan bare, guarded;

  struck_case(const target& on, const fft_case& which, std::uint64_t order, const test::subject<T>& data)
      : given(data),
        clean(data.fresh()),
        bare(data.problem, on.how(order, protection::off), which.options()),
        guarded(data.problem, on.how(order, protection::correct), which.options()) {
    EXPECT_EQ(given.run(guarded, clean).verdict, verdict::clean);
    for (std::int64_t b = 0; b < given.signals(); ++b) size = std::max(size, test::norm_of(given.got(clean, b)));
  }
  struck_case(const struck_case&) = delete;
  struck_case& operator=(const struck_case&) = delete;

  report run(const plan& by, const T* from, T* to, const call& now = test::quiet_call()) const {
    const inject::scope struck(&faults);
    return given.run(by, from, to, now);
  }
  report run(const plan& by, std::vector<T>& out) const { return run(by, given.in.data(), out.data()); }

  // Returns ‖out − clean‖ in units of effect_unit; infinite if out is not finite.
  double effect(const std::vector<T>& out) const {
    double squares = 0;
    for (std::size_t i = 0; i < out.size(); ++i) squares += std::pow(static_cast<double>(out[i]) - static_cast<double>(clean[i]), 2);
    const double units = std::sqrt(squares) / (size * test::effect_unit(given.problem));
    return std::isfinite(units) ? units : std::numeric_limits<double>::infinity();
  }
};

}  // namespace ballast::fft
