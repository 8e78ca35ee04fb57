// Computes the lines again whose check from end to end has failed (line_ends.cuh): a launch for each of their passes, by the code of lines
// that are verified before their store. If no line has failed, each block reads the verdicts and ends.
// Layer: fft/cuda kernels.
#pragma once

#include <cstdint>

#include "fft/cuda/kernel/line_ends.cuh"
#include "fft/cuda/kernel/line_verify.cuh"

namespace ballast::fft::cuda {

// Returns whether a whole line needs no repair. A line without a verdict needs one.
__device__ __forceinline__ bool needs_nothing(const line_arguments& a, std::uint32_t line) {
  const whole_line_record& r = a.whole_line.records[line];
  return is_settled(r, abft::k_pass) || (a.repairs == 0 && is_settled(r, abft::k_fail));
}

// After the last tile of a repaired line. If the check failed, its event is written; results that are as before show that the check was
// wrong. If there was no verdict, results that have changed show a fault.
template <class Injector>
__device__ __noinline__ void conclude_repair(const line_launch<Injector>& launch, std::uint32_t line, std::int64_t tile,
                                             std::int64_t number) {
  const whole_line_record& r = launch.arguments.whole_line.records[line];
  const bool changed = static_cast<const volatile whole_line_record&>(r).changed != 0;
  if (is_settled(r, abft::k_fail)) {
    if (!changed) ballast::cuda::count(launch.arguments.events->false_alarms);
  } else if (changed) {
    report_whole_line<Injector>(launch, tile, number, 0, 0);
  }
}

template <line_policy P, class Injector>
__global__ void __launch_bounds__(P.block(), P.min_blocks) repair_kernel(const __grid_constant__ line_launch<Injector> given) {
  static_assert(P.check == check_form::verify_before_store && P.cluster == 1 && !P.staged);
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  const line_arguments& a = given.arguments;
  const end_to_end_arguments& e = a.whole_line;
  // Two threads read each verdict.
  bool open = false;
  for (std::uint32_t i = threadIdx.x; i < e.lines; i += P.block()) open = open || !needs_nothing(a, i);
  for (std::uint32_t i = P.block() - 1 - threadIdx.x; i < e.lines; i += P.block()) open = open || !needs_nothing(a, i);
  if (__syncthreads_or(open) == 0) return;
  line_tile<P, Injector> tile(given);
  for (std::uint32_t line = 0; line < e.lines; ++line) {
    if (__syncthreads_or(!needs_nothing(a, line)) == 0) continue;
    if constexpr (P.repair == repair_form::pass) {
      // A struck counter has kept a count of arrivals, which would hide the end of the repair. The last pass counts from 0.
      if (blockIdx.x == 0 && threadIdx.x == 0) ballast::cuda::reset_counter(&e.records[line].arrived);
    }
    for (std::uint32_t i = blockIdx.x; i < e.tiles; i += gridDim.x) {
      tile.changed = false;
      tile.select(std::int64_t{line} * e.tiles + i);
      tile.run();
      const bool changed = __syncthreads_or(tile.changed) != 0;
      if constexpr (P.repair == repair_form::last) {
        if (threadIdx.x == 0) {
          if (changed) atomicOr(&e.records[line].changed, 1u);
          if (ballast::cuda::arrives_last(&e.records[line].arrived, e.tiles))
            conclude_repair<Injector>(given, line, tile.tile, tile.number_of(0));
        }
      }
    }
  }
}

}  // namespace ballast::fft::cuda
