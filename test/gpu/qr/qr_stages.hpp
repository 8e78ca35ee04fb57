// The stages of QR. Each prints rows (output.hpp) until it is done or its time is over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/qr.hpp>

#include "stages.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check::factors {

// Rows of type "check": one for each case, with `pass`. Returns the failed cases. Groups: accuracy, clean, faults.
int verify(const settings& wanted, const time_limit& limit);
// A few calls of small problems, for compute-sanitizer.
int sanitize(const settings& wanted, const time_limit& limit);
// Rows of type "factorization": milliseconds of geqrf in device memory, without protection and with it, and of cuSOLVER's two interfaces;
// of ormqr and orgqr for some problems; of batches beside cuBLAS's.
int bench(const settings& wanted, const time_limit& limit);

// Rows of type "repair": milliseconds of geqrf without protection, with it, and with one fault that it repairs. A run fails where it does
// not, or where clean data give an alarm.
int repairs(const settings& wanted, const time_limit& limit);

// Rows of type "rotations", "curve" and "overhead": the paper's Figure 5, Figures 7 to 9 and §7.1 on the scheme hybrid. A run of one
// problem fails where a result is wrong, clean data give an alarm, or a fault is not repaired.
int paper(const settings& wanted, const time_limit& limit);

// The same as bench() for a batch, beside cuBLAS's batched geqrf. Returns the failed cases.
template <class T>
int time_batch(const std::string& token, const time_limit& limit);

// What is verified, sanitized and timed: tokens.
std::vector<std::string> verified_set(bool quick);
std::vector<std::string> sanitized_set();
std::vector<std::string> timed_set(bool quick);
std::vector<std::string> repaired_set(bool quick);
std::vector<std::string> paper_set(bool quick);

// Floating-point operations of geqrf, by LAPACK's convention.
double flops_of(const qr::problem& what);

// One row of times. `refused`: why there are none that count; empty where there is no such reason.
struct timed {
  const char* type;
  std::string token;
  const char* operation;
  const char* variant;
};
void print_times(const timed& what, const std::vector<double>& milliseconds, double flops, const std::string& refused);

// m × n numbers in column-major order, nearly normal; of a batch one matrix behind the other. The same for the same arguments.
template <class T>
std::vector<T> matrix_of(const qr::problem& what, std::uint64_t seed);

}  // namespace ballast::gpu_check::factors
