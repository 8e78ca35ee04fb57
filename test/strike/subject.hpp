// The subject of strikes: a problem with its data, the call of the public interface, and the judgement of its result.
// Layer: test program, over include/ballast only: it does not depend on the library's algorithms or injection sites.
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

// One operation with its data. The striker constructs it (data, and the reference in higher precision); the struck process uses it.
class subject {
 public:
  virtual ~subject() = default;
  virtual void prepare(const execution& where) = 0;  // constructs the plan; not struck
  virtual void reset() = 0;                          // restores the data that a call overwrites; not struck
  virtual report run(const call& now) = 0;           // calls the plan once; struck
  virtual void keep() = 0;                           // keeps the result of the last call as the clean one, and measures its rounding error
  virtual effect judge() = 0;                        // compares the result of the last call with the kept one
  virtual double clean_error() const = 0;            // returns the relative error of the kept result
};

// Constructs a subject. `name`: like those of `default_subjects`, with any sizes. Throws invalid_argument_error.
std::unique_ptr<subject> make_subject(std::string_view name);
std::span<const std::string_view> default_subjects();

std::unique_ptr<subject> make_fft(std::string_view token);
std::unique_ptr<subject> make_kmeans(std::string_view token);
std::unique_ptr<subject> make_qr(std::string_view operation, std::string_view token);

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

  void keep(const T* got) {
    kept_.assign(got, got + reference_.size());
    double errors = 0, sizes = 0;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      const auto difference = static_cast<double>(kept_[i] - reference_[i]), size = static_cast<double>(reference_[i]);
      errors += difference * difference;
      sizes += size * size;
    }
    rounding_ = std::sqrt(errors / static_cast<double>(floors_.size()));
    error_ = std::sqrt(errors / sizes);
  }

  void judge(const T* got, effect& seen) const;

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
