// Typed wrappers of GPU instructions that CUDA C++ does not have, each with a scalar twin for the test emulator. The project has no other
// PTX. This header includes all of them.
// Layer: foundation, device. Compiles with nvcc, NVRTC and, against test/simt, with g++.
#pragma once

#include "cuda/arch/async.cuh"
#include "cuda/arch/atomic.cuh"
#include "cuda/arch/cluster.cuh"
#include "cuda/arch/divide.cuh"
#include "cuda/arch/memory.cuh"
#include "cuda/arch/mma.cuh"
#include "cuda/arch/shared.cuh"
#include "cuda/arch/target.cuh"
#include "cuda/arch/thread.cuh"
#include "cuda/arch/wgmma.cuh"
