// The hook through which kernels on a device are struck: the counterpart of inject/injector.hpp.
// Layer: foundation. A kernel is a template over one of the two injectors; calls of no_device_injector compile to nothing.
#pragma once

#include <cstdint>

#include "cuda/block/bits.cuh"
#include "inject/device_fault.hpp"
#include "inject/site.hpp"

namespace ballast::inject {

struct no_device_injector {
  static constexpr bool enabled = false;
};

// The position of a strike in the computation; see inject::position. `thread` of `threads` holds every threads-th word of the interval.
struct device_position {
  std::int64_t interval;
  std::int64_t intervals;
  int step;
  int steps;
  int thread;
  int threads;
};

struct device_injector {
  static constexpr bool enabled = true;
  device_faults faults;

  // Returns whether a fault may wait at `where`.
  __device__ bool armed(site where) const { return (faults.armed >> bit_of(where) & 1) != 0; }

  // Strikes the words of this thread that a fault selects: word w of the interval is data[w / threads] of thread w % threads.
  // Not inlined, so that the compiler has less to unroll (NVRTC 13.0 crashed on kernels with an inlined copy at every site). The price is
  // only time: the struck registers of an instrumented kernel are in memory.
  template <int Count, class T>
  __device__ __noinline__ void strike(site where, const device_position& here, T* data) const {
    if (!armed(where)) return;
    for (int i = 0; i < faults.count; ++i) strike_one<Count>(faults.list[i], where, here, data);
  }

 private:
  template <int Count, class T>
  __device__ void strike_one(device_fault& f, site where, const device_position& here, T* data) const {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    if (f.site != where) return;
    if (f.interval % static_cast<std::uint64_t>(here.intervals) != static_cast<std::uint64_t>(here.interval)) return;
    if (f.step % static_cast<std::uint64_t>(here.steps) != static_cast<std::uint64_t>(here.step)) return;
    const std::uint64_t word = f.element % (static_cast<std::uint64_t>(Count) * static_cast<unsigned>(here.threads));
    const int owner = static_cast<int>(word % static_cast<unsigned>(here.threads));
    const int slot = static_cast<int>(word / static_cast<unsigned>(here.threads));
    const bool wide_mask = f.action == device_fault::flip_neighbours;
    if (wide_mask ? owner / 16 != here.thread / 16 : owner != here.thread) return;
    const unsigned lane = static_cast<unsigned>(wide_mask ? here.thread % 16 : 0);
    const std::int64_t visit = atomicAdd(&f.visits[lane], 1u);
    const bool persistent = f.action == device_fault::stick;
    if (persistent ? visit < f.visit : visit != f.visit) return;
    atomicAdd(&f.fired, 1u);
    for (int j = 0; j < Count; ++j) {
      if (j == slot) data[j] = struck(f, data[j]);
    }
  }

  template <class T>
  __device__ T struck(device_fault& f, T value) const {
    if constexpr (sizeof(T) == 4) {
      std::uint32_t word = cuda::bits(value);
      word = changed(f, word, static_cast<std::uint32_t>(f.mask32), f.value32);
      return cuda::from_bits<T>(word);
    } else {
      std::uint64_t word = cuda::bits(value);
      word = changed(f, word, f.mask64, f.value);
      return cuda::from_bits<T>(word);
    }
  }

  template <class Word>
  __device__ Word changed(device_fault& f, Word word, Word mask, Word value) const {
    if (f.action == device_fault::stick) {
      atomicCAS(&f.stuck, 0u, 2u + ((word & mask) == 0 ? 1u : 0u));
      return f.stuck == 3 ? word | mask : word & ~mask;
    }
    if (f.action == device_fault::flip || f.action == device_fault::flip_neighbours) return word ^ mask;
    return value;
  }
};

}  // namespace ballast::inject
