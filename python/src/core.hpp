// The parts of the extension ballast._core, and what they share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <ballast/ballast.hpp>

#include <bit>
#include <complex>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ballast_python {

namespace nb = nanobind;

void add_errors(nb::module_& m);
void add_device(nb::module_& m);
void add_reports(nb::module_& m);
void add_information(nb::module_& m);
void add_groups(nb::module_& m);
void add_fft(nb::module_& m);
void add_numpy_calls(nb::module_& m);
void add_numpy_linalg(nb::module_& m);
void add_qr(nb::module_& m);
void add_qr_groups(nb::module_& m);
void add_kmeans(nb::module_& m);
void add_jax(nb::module_& m);  // defined where jaxlib's headers were found (BALLAST_PYTHON_JAX)
void add_everything(nb::module_& m);

// Makes a call of a program of JAX, on a thread of XLA. Empty but in _core_instrumented, where such calls have faults, too.
inline std::function<void(const std::function<void()>& call)> around_program_call;

// Arrays of the host, or of a CUDA device (ballast._device describes these). Python passes arrays of the right type, so nothing is
// converted here.
using input = nb::ndarray<nb::ro>;
using output = nb::ndarray<>;

// The call on a stream of the CUDA driver or runtime; 0: the default stream.
inline ballast::call on_stream(std::uintptr_t stream) { return {.stream = std::bit_cast<void*>(stream)}; }

template <class T>
const T* data_of(const input& from) {
  return static_cast<const T*>(from.data());
}
template <class T>
T* data_of(const output& to) {
  return static_cast<T*>(to.data());
}

// Throws unless `given`, an array argument named `name`, has elements of type T.
template <class T, class Array>
void expect_type(const Array& given, const char* name) {
  if (given.dtype() != nb::dtype<T>())
    throw ballast::invalid_argument_error(std::string(name) + ": expected elements of another type: kind " +
                                          std::to_string(nb::dtype<T>().code) + " of " + std::to_string(nb::dtype<T>().bits) +
                                          " bits, got kind " + std::to_string(given.dtype().code) + " of " +
                                          std::to_string(given.dtype().bits) + " bits");
}

// The strides of a matrix, or of a stack of matrices: rows and columns are the last two axes.
template <class T>
ballast::matrix_view<T> matrix_of(T* data, const auto& from) {
  if (from.ndim() != 2) throw ballast::invalid_argument_error("expected 2 axes, got " + std::to_string(from.ndim()));
  return {data, static_cast<std::int64_t>(from.shape(0)), static_cast<std::int64_t>(from.shape(1)), from.stride(0), from.stride(1)};
}
template <class T>
ballast::matrix_batch_view<T> batch_of(T* data, const auto& from) {
  if (from.ndim() != 3) throw ballast::invalid_argument_error("expected 3 axes, got " + std::to_string(from.ndim()));
  return {data,
          static_cast<std::int64_t>(from.shape(0)),
          static_cast<std::int64_t>(from.shape(1)),
          static_cast<std::int64_t>(from.shape(2)),
          from.stride(1),
          from.stride(2),
          from.stride(0)};
}

// The inverses of to_string. They throw invalid_argument_error. The name of a real_kind is r2r's.
ballast::fft::kind kind_of(std::string_view name);
std::optional<ballast::fft::real_kind> real_kind_of(std::string_view name);  // nothing where the name is none
ballast::fft::norm norm_of(std::string_view name);

// Calls `use` with two values of the types of the elements of the transform's input and output.
template <class Use>
void with_types(const ballast::fft::problem& of, Use&& use) {
  const auto with = [&]<class T>(T real) {
    switch (of.kind) {
      case ballast::fft::kind::r2c: return use(real, std::complex<T>());
      case ballast::fft::kind::c2r: return use(std::complex<T>(), real);
      case ballast::fft::kind::r2r: return use(real, real);
      default: return use(std::complex<T>(), std::complex<T>());
    }
  };
  of.precision == ballast::precision::f64 ? with(double()) : with(float());
}

// Computes without the interpreter's lock.
template <class Function>
auto unlocked(Function&& compute) {
  const nb::gil_scoped_release released;
  return compute();
}

// Adds a later report of the same call to the first.
inline void add(ballast::report& first, const ballast::report& later) {
  first.seconds += later.seconds;
  first.merge(later);
}

// The reports of one call from Python that is several enqueued calls, at least one.
class pending {
 public:
  pending() = default;
  pending(pending&&) = default;
  pending(const pending&) = delete;
  void add(ballast::pending_report part);
  ballast::report get();  // waits for the stream; the reports as one

 private:
  std::vector<ballast::pending_report> parts_;
};

}  // namespace ballast_python
