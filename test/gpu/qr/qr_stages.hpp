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
// Rows of type "factorization": milliseconds of geqrf in device memory, without protection and with it, of cuSOLVER's two interfaces, and
// of the scheme hybrid; of batches beside cuBLAS's.
int bench(const settings& wanted, const time_limit& limit);

// The same for a batch, beside cuBLAS's batched geqrf. Returns the failed cases.
template <class T>
int time_batch(const std::string& token, const time_limit& limit);

// What is verified, sanitized and timed: tokens.
std::vector<std::string> verified_set(bool quick);
std::vector<std::string> sanitized_set();
std::vector<std::string> timed_set(bool quick);

// Floating-point operations of geqrf, by LAPACK's convention.
double flops_of(const qr::problem& what);

// One row of type "factorization". `refused` says why there are no times.
void print_times(const std::string& token, std::string_view variant, const std::vector<double>& milliseconds, const std::string& refused);

// m × n numbers in column-major order, nearly normal; of a batch one matrix behind the other. The same for the same arguments.
template <class T>
std::vector<T> matrix_of(const qr::problem& what, std::uint64_t seed);

}  // namespace ballast::gpu_check::factors
