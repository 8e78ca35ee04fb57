// The subject of strikes: a problem with its data, the call of the public interface, and the judgement of its result. For every backend.
// Layer: test program, over include/ballast only: it does not depend on the library's algorithms or injection sites. Needs no package.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>

#include "../../../bench/gpu.hpp"

namespace ballast::strike {

// The distance of a result from the result of the same call without a strike. Inf if it contains a NaN.
struct effect {
  bool same = true;      // true if all bits are equal
  double roundings = 0;  // in units of the clean rounding error; the maximum over all parts of the result
  double floors = 0;     // in units of the change that, by docs/protection.md, is never missed; above 1 it is material

  void add(double change, double rounding, double floor) {
    const auto worse = [&](double& most, double unit) {
      const double ratio = std::isnan(change) ? std::numeric_limits<double>::infinity() : change == 0 ? 0 : change / unit;
      if (!(ratio <= most)) most = ratio;
    };
    worse(roundings, rounding);
    worse(floors, floor);
  }
};

// Numbers that a call reads or writes, in the memory of the backend: that of the device, or the host's after bench::gpu::pretend().
template <class T>
class operand {
 public:
  // Stores the values. Their number is always the same.
  void set(const std::vector<T>& values) {
    if (there_.data() == nullptr) {
      there_ = bench::gpu::buffer(static_cast<std::int64_t>(values.size() * sizeof(T)));
      here_.resize(values.size());
    }
    bench::gpu::copy(there_.data(), values.data(), there_.bytes());
  }
  void set_zero(std::int64_t count) {
    if (there_.data() == nullptr) {
      there_ = bench::gpu::buffer(count * static_cast<std::int64_t>(sizeof(T)));
      here_.resize(static_cast<std::size_t>(count));
    }
    bench::gpu::fill(there_.data(), 0, there_.bytes());
  }
  T* data() { return static_cast<T*>(there_.data()); }
  std::span<T> all() { return {data(), here_.size()}; }
  // Returns the values after all work has ended.
  const std::vector<T>& read() {
    bench::gpu::copy(here_.data(), there_.data(), there_.bytes());
    bench::gpu::synchronize();
    return here_;
  }

 private:
  bench::gpu::buffer there_;
  std::vector<T> here_;
};

// One operation with its data. The striker constructs it (data, and the reference in higher precision); the struck process uses it.
class subject {
 public:
  virtual ~subject() = default;
  virtual void prepare(const execution& where) = 0;  // constructs the plan and allocates the operands; not struck
  virtual void reset() = 0;                          // restores the data that a call overwrites; not struck
  virtual report run(const call& now) = 0;           // calls the plan once; struck
  virtual void keep() = 0;                           // keeps the result of the last call as the clean one, and measures its rounding error
  virtual effect judge() = 0;                        // compares the result of the last call with the kept one
  virtual double clean_error() const = 0;            // returns the relative error of the kept result
  virtual int number_bits() const = 0;               // returns the bits of the numbers that it computes with: 32 or 64
};

// The name of a subject: an operation and the token of its problem.
//   fft_…                                       a transform
//   strided_fft_…                               the same with strides of its axes and a loop of signals (fft::problem::loops)
//   split_fft_…                                 the same with real and imaginary parts in two arrays
//   end_to_end_fft_…                            the same by the scheme end_to_end, on cuda
//   convolve_…, correlate_…                     of any rank
//   kmeans_…, predict_…, transform_…            of kmeans_…, spherical too; a fit has three iterations from given centroids,
//                                               of mini-batches one pass
//   geqrf_…, geqp3_…, ormqr_…, orgqr_…, gels_…, gelsy_…  of qr_…; ormqr_ computes Qᵀ C, ormqr_right_… C Q; complex: geqrf_c64_…,
//   geqrf_c128_…
//   qr_update_geqrf_…, qr_update_geqp3_…, …     the same by the scheme qr_update
// Batches have "_b" and a number at the end. Throws invalid_argument_error.
struct subject_name {
  std::string operation;  // "fft", "kmeans", …, "ormqr_right", …
  std::string token;      // the token of the algorithm
  std::string scheme;     // empty: the default
  std::string layout;     // "strided" or "split" for a transform, otherwise empty
};
subject_name parse_subject(std::string_view name);

// Constructs a subject for a backend, which decides the floors. Throws invalid_argument_error.
std::unique_ptr<subject> make_subject(std::string_view name, backend on);

std::unique_ptr<subject> make_fft(std::string_view token, backend on, std::string_view scheme, std::string_view layout);
std::unique_ptr<subject> make_convolve(std::string_view token);
std::unique_ptr<subject> make_kmeans(std::string_view operation, std::string_view token);
std::unique_ptr<subject> make_qr(std::string_view operation, std::string_view token, std::string_view scheme);

// The type of references: the next higher precision.
template <class T>
struct wider {
  using type = double;
};
template <>
struct wider<double> {
  using type = long double;
};
template <class T>
using wide = typename wider<T>::type;

template <class T>
inline constexpr double k_unit_roundoff = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;

// Returns normally distributed numbers, the same for the same seed.
template <class T>
std::vector<T> normal(std::int64_t count, std::uint64_t seed);

// The parts of a result (signals, columns, rows) with their reference. The change of a part is the 2-norm of its difference. The rounding
// is the root mean square, over all parts, of the clean differences from the reference.
template <class T>
class judged_parts {
 public:
  // `reference` has parts × length numbers; `floors` has one absolute value for each part.
  judged_parts(std::vector<wide<T>> reference, std::int64_t length, std::vector<double> floors)
      : reference_(std::move(reference)), length_(length), floors_(std::move(floors)) {}

  void keep(const std::vector<T>& got) {
    kept_ = got;
    double errors = 0, sizes = 0;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      const auto difference = static_cast<double>(kept_[i] - reference_[i]), size = static_cast<double>(reference_[i]);
      errors += difference * difference;
      sizes += size * size;
    }
    rounding_ = std::sqrt(errors / static_cast<double>(floors_.size()));
    error_ = std::sqrt(errors / sizes);
  }

  void judge(const std::vector<T>& got, effect& seen) const;

  double clean_error() const { return error_; }
  double rounding() const { return rounding_; }

 private:
  std::vector<wide<T>> reference_;
  std::vector<T> kept_;
  std::int64_t length_;
  std::vector<double> floors_;
  double rounding_ = 0, error_ = 0;
};

}  // namespace ballast::strike
