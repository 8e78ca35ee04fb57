// The largest absolute value of many numbers; a NaN is not lost.
// Layer: algorithm, backend-free.
#pragma once

#include <cmath>
#include <limits>

#include "qr/contract.hpp"

namespace ballast::qr {

// The largest |x|, or NaN if any x is NaN.
class largest {
 public:
  void add(double x) {
    const double size = std::abs(x);
    nan_ |= size != size;
    if (size > most_) most_ = size;
  }
  template <class T>
  void add(const T* x, index count) {
    // Branch-free, with eight partial results that a compiler can keep in registers.
    double most[8] = {}, sum[8] = {};
    index i = 0;
    for (; i + 8 <= count; i += 8) {
      for (int l = 0; l < 8; ++l) {
        const double size = std::abs(static_cast<double>(x[i + l]));
        most[l] = size > most[l] ? size : most[l];
        sum[l] += size - size;  // NaN for NaN and Inf
      }
    }
    for (; i < count; ++i) add(static_cast<double>(x[i]));
    for (int l = 0; l < 8; ++l) {
      add(most[l]);
      nan_ |= sum[l] != sum[l];
    }
  }
  double value() const { return nan_ ? std::numeric_limits<double>::quiet_NaN() : most_; }

 private:
  double most_ = 0;
  bool nan_ = false;
};

}  // namespace ballast::qr
