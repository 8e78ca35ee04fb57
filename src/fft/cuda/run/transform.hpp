// The transform of the cuda backend with all its options.
// Layer: fft/cuda. make_transform of the contract selects the scheme; the tuner passes trial tables.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fft/contract.hpp"
#include "fft/cuda/plan/fused_passes.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "run/pending.hpp"

namespace ballast::fft::cuda {

// The origin of policies: the installed table and the rules, the rules alone, or a trial table of the tuner.
enum class policy_origin : std::uint8_t { installed, rules, trial };

struct transform_options {
  check_form check = check_form::none;
  int transactions = 1;
  policy_origin origin = policy_origin::installed;
  bool end_to_end = false;  // check lines of several passes from end to end where their input is kept
  bool plain = false;       // no swizzle, and the same parameters for every problem
  fusion pairs = chosen_fusion();
  bool fallback = false;                // use fallback kernels only (fallback.hpp)
  const tuning_table* trial = nullptr;  // for policy_origin::trial; must outlive the transform

  const tuning_table& tuned() const {
    return origin == policy_origin::installed ? tuning_table::active() : origin == policy_origin::rules ? tuning_table::rules() : *trial;
  }
};

std::unique_ptr<transform> make_transform(const nested_geometry& shape, precision type, const transform_options& options);

// One execution of a transform whose runs, the steps of its outer loops, are launched one by one, with other work between them.
class open_runs : public run::pending {
 public:
  virtual void launch_run(std::int64_t number, const transform_args& how) = 0;
};

// A transform that can be executed so, on operands in device memory.
class run_by_run {
 public:
  run_by_run() = default;
  run_by_run(const run_by_run&) = delete;
  run_by_run& operator=(const run_by_run&) = delete;
  virtual ~run_by_run() = default;
  virtual std::unique_ptr<open_runs> open(const unsigned char* in, unsigned char* out, const transform_args& how) const = 0;
  // Returns why the kernels of such a call are not loaded yet, or an empty text. compile: begins to compile them.
  virtual std::string why_not_ready(const unsigned char* in, unsigned char* out, const transform_args& how, bool compile) const = 0;
  virtual std::int64_t runs() const = 0;
  virtual std::int64_t bytes() const = 0;  // the size of its workspace
};

std::unique_ptr<run_by_run> make_run_by_run(const nested_geometry& shape, precision type, const transform_options& options);

// One launch per stage of radix 2 (radix2.cpp). Throws unsupported_error unless the problem is 1-D, c2c, its length a power of two, and
// without outer loops and negative strides.
std::unique_ptr<transform> make_radix2_transform(const nested_geometry& shape, precision type);

// cuFFT with checksums before and after it (offline.cpp); without `protect` cuFFT alone. Throws unsupported_error if cuFFT is missing, or
// unless the problem is c2c with contiguous signals.
std::unique_ptr<transform> make_offline_transform(const nested_geometry& shape, precision type, bool protect);

// The interface to cuFFT for that scheme: an unnormalised transform of contiguous signals in device memory.
class dense_transform {
 public:
  dense_transform() = default;
  dense_transform(const dense_transform&) = delete;
  dense_transform& operator=(const dense_transform&) = delete;
  virtual ~dense_transform() = default;
  virtual void execute(const void* in, void* out, ballast::cuda::stream on) = 0;
};
using dense_transform_maker = std::function<std::unique_ptr<dense_transform>(const problem& shape, direction way)>;

// Replaces cuFFT by `other` until the next call with an empty one. For tests.
void override_cufft(dense_transform_maker other);

}  // namespace ballast::fft::cuda
