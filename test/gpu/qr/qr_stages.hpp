// The stages of QR. Each prints rows (output.hpp) until it is done or its time is over.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/qr.hpp>

#include "each_case.hpp"
#include "stages.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check::factors {

// Rows of type "check": one per case, with `pass`. Returns the number of failed cases. Groups: accuracy, clean, faults.
int verify(const settings& wanted, const time_limit& limit);
// A few calls of small problems, for compute-sanitizer.
int sanitize(const settings& wanted, const time_limit& limit);
// Rows of type "factorization": milliseconds of geqrf in device memory without and with protection, and of cuSOLVER's two interfaces; of
// ormqr and orgqr for some problems; of batches, compared with cuBLAS's.
int bench(const settings& wanted, const time_limit& limit);

// Rows of type "repair": milliseconds of geqrf without protection, with it, and with one fault that it repairs. A run fails if it does not
// repair the fault, or if clean data raise an alarm.
int repairs(const settings& wanted, const time_limit& limit);

// Rows of type "call": milliseconds of geqrf, ormqr, orgqr, Q and R and least squares by the host's clock, without and with protection, and
// of NVIDIA's functions where there are some; and what they do (calls.hpp).
int calls(const settings& wanted, const time_limit& limit);
// Rows of type "kind" and "check": what bench does not take: the same of complex numbers, and geqp3; and their errors (kinds.hpp).
int kinds(const settings& wanted, const time_limit& limit);
std::vector<std::string> kinds_set(bool quick);
void check_kind_token(std::string_view token);
// A row of type "first call": of the only token, in a process that has not used the library yet.
int first_call(const settings& wanted, const time_limit& limit);

// Rows of type "rotations", "curve" and "overhead": the paper's Figure 5, Figures 7 to 9 and §7.1 for the scheme hybrid. The run of a
// problem fails if a result is wrong, clean data raise an alarm, or a fault is not repaired.
int paper(const settings& wanted, const time_limit& limit);

// Runs bench() for a batch, compared with cuBLAS's batched geqrf. Returns the number of failed cases.
template <class T>
int time_batch(const std::string& token, const time_limit& limit);

// The tokens of the problems that are verified, sanitized and timed.
std::vector<std::string> verified_set(bool quick);
std::vector<std::string> sanitized_set();
std::vector<std::string> timed_set(bool quick);
std::vector<std::string> called_set(bool quick);
std::vector<std::string> repaired_set(bool quick);
std::vector<std::string> paper_set(bool quick);

// Returns the floating-point operations of geqrf, by LAPACK's convention; one of complex numbers is four real ones.
double flops_of(const qr::problem& what);

// One row of times. `refused`: the reason why there are no valid times, or empty.
struct timed {
  const char* type;
  std::string token;
  const char* operation;
  const char* variant;
};
void print_times(const timed& what, const std::vector<double>& milliseconds, double flops, const std::string& refused);

// As time_each (each_case.hpp), also for complex numbers: `zero` is of the type of the elements.
template <class Body>
int time_each_number(const std::vector<std::string>& tokens, const time_limit& limit, std::string_view type, const Body& body) {
  return time_each(tokens, qr::parse_token, limit, type, [&](auto zero, const std::string& token) {
    return qr::parse_token(token).complex ? body(std::complex<decltype(zero)>(), token) : body(zero, token);
  });
}

// Returns m × n nearly normal numbers in column-major order; the matrices of a batch are contiguous. Equal arguments give equal numbers.
template <class T>
std::vector<T> matrix_of(const qr::problem& what, std::uint64_t seed);

}  // namespace ballast::gpu_check::factors
