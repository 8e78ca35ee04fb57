// Pairs of passes that become one launch.
// Layer: fft/cuda, host. pair.cuh is their kernel.
#pragma once

#include "cuda/device/device.hpp"
#include "fft/cuda/plan/schedule.hpp"

namespace ballast::fft::cuda {

// Makes pairs of passes that follow each other, as `wanted.pairs` says. The last step of make_schedule.
void pair_passes(schedule& made, const schedule_request& wanted, const ballast::cuda::capabilities& device);

// What transforms that are made from now on do about pairs. For tests and comparisons.
void override_pairing(pairing which);
pairing chosen_pairing();

}  // namespace ballast::fft::cuda
