// The macros of the foundation.
#pragma once

// Marks functions that both host compilers and CUDA compile.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define BALLAST_HD __host__ __device__
#else
#define BALLAST_HD
#endif
