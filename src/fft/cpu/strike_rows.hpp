// Strikes at tiles: the lanes that hold signals.
// Layer: backend "cpu". For sources that see the injector.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/memory.hpp"
#include "fft/cpu/kernels.hpp"
#include "inject/injector.hpp"

namespace ballast::fft::cpu {

// Strikes the used lanes of `rows` rows that are `stride` apart; halves = 1 strikes the real parts only.
template <class T>
void strike_rows(inject::active_injector& injector, inject::site where, const inject::position& here, T* base, std::int64_t stride,
                 std::int64_t rows, int used, int halves = 2) {
  if constexpr (inject::active_injector::enabled) {
    const int lanes = kernels<T>().lanes;
    if (!injector.armed(where)) return;
    if (used == lanes && stride == 2 * lanes && halves == 2) {
      injector.strike(where, here, base, rows * stride);
      return;
    }
    core::vector<T> compact;
    for (std::int64_t j = 0; j < rows; ++j) {
      for (int half = 0; half < halves; ++half)
        compact.insert(compact.end(), base + j * stride + half * lanes, base + j * stride + half * lanes + used);
    }
    if (!injector.strike(where, here, compact.data(), static_cast<std::int64_t>(compact.size()))) return;
    const T* next = compact.data();
    for (std::int64_t j = 0; j < rows; ++j) {
      for (int half = 0; half < halves; ++half, next += used)
        std::memcpy(base + j * stride + half * lanes, next, static_cast<std::size_t>(used) * sizeof(T));
    }
  }
}

}  // namespace ballast::fft::cpu
