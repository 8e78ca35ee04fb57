// The parts of the stage `nccl`: what each process of a scene does.
#pragma once

#include <cstdint>

#include "nccl/processes.hpp"
#include "stages.hpp"

namespace ballast::gpu_check::over_nccl {

// The first row of a rank of K-Means: whole segments, as the library wants them on all ranks but the last.
std::int64_t first_row(std::int64_t rows, int rank, int ranks);

// Fits of K-Means on all processes and on the own device alone. Rows of type "nccl fit".
int fits(const process& own, const group& all);
// Times of iterations, in device memory. Rows of type "nccl time".
int fit_times(const process& own, const group& all, bool quick);
// Transforms on all processes and on the own device alone: errors and times, in device memory. Rows of type "nccl transform".
int transforms(const process& own, const group& all, bool quick);
// QR of rows, operands on the host: errors. Rows of type "nccl qr".
int factorizations(const process& own, const group& all, bool quick);
// Faults of what NCCL moves, during fits and transforms. The first process prints a row of type "nccl faults" for each kind.
int faults(const process& own, const group& all, bool quick);

// Rank 1 ends itself at its operation `number` during calls of this kind. The others must find that within the time that their patience
// allows, name it, refuse the next call, and fit on a new group of those that are left, with the bits of one device.
enum class lost_during { barriers, fit, transform };
int loss(const process& own, const group& all, lost_during what, std::uint64_t number);

}  // namespace ballast::gpu_check::over_nccl
