// The instructions of the GPU that CUDA C++ has no words for: typed, each with a scalar twin for the test emulator. The only PTX of the
// project. What it offers is in the headers below.
// Layer: foundation, device. Compiles by nvcc, NVRTC and, against test/simt, by g++.
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
