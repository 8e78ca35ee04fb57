// Pairs of passes that become one launch.
// Layer: fft/cuda, host. kernel/fused_passes.cuh is their kernel.
#pragma once

#include "cuda/device/device.hpp"
#include "fft/cuda/plan/schedule.hpp"

namespace ballast::fft::cuda {

// Fuses pairs of consecutive passes as `wanted.pairs` says. The last step of make_schedule.
void fuse_passes(schedule& result, const schedule_request& wanted, const ballast::cuda::capabilities& device);

// Sets the fusion of transforms that are constructed from now on. For tests and comparisons.
void override_fusion(fusion which);
fusion chosen_fusion();

}  // namespace ballast::fft::cuda
