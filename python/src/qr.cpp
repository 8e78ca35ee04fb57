// QR factorization and least squares. A stack of matrices has three axes, one matrix two.
#include <algorithm>
#include <complex>
#include <optional>

#include "core.hpp"

namespace ballast_python {

namespace {

namespace qr = ballast::qr;

template <class T>
std::span<T> span_of(T* data, const auto& array) {
  return {data, array.size()};
}

// geqp3 of each matrix of a stack. The reports are one; an event's index is the matrix.
template <class T>
ballast::report pivoted_stack(const qr::plan<T>& on, const ballast::matrix_batch_view<T>& A, std::span<std::int64_t> order,
                              std::span<T> scalars, const ballast::call& now) {
  const std::size_t columns = static_cast<std::size_t>(A.columns);
  const std::size_t reflectors = static_cast<std::size_t>(std::min(A.rows, A.columns));
  std::optional<ballast::report> all;
  const auto take = [&](ballast::report seen, std::int64_t b) {
    for (ballast::event& each : seen.events) each.index = b;
    if (all) {
      add(*all, seen);
    } else {
      all = std::move(seen);
    }
  };
  for (std::int64_t b = 0; b < A.count; ++b) {
    const std::size_t at = static_cast<std::size_t>(b);
    try {
      take(on.geqp3(A[b], order.subspan(at * columns, columns), scalars.subspan(at * reflectors, reflectors), now), b);
    } catch (const ballast::uncorrectable_error& fault) {
      take(fault.report(), b);
      throw ballast::uncorrectable_error(std::move(all).value());
    }
  }
  return std::move(all).value();
}

qr::side side_of(const std::string& name) {
  if (name == "left") return qr::side::left;
  if (name == "right") return qr::side::right;
  throw ballast::invalid_argument_error("side: expected left or right, got \"" + name + "\"");
}

template <class T>
void add_plan(nb::module_& m, const char* name) {
  using plan = qr::plan<T>;
  nb::class_<plan>(m, name)
      .def("__init__",
           [](plan* made, std::int64_t rows, std::int64_t columns, std::int64_t batch, const ballast::execution& where) {
             const nb::gil_scoped_release released;
             new (made) plan({.rows = rows, .columns = columns, .batch = batch}, where);
           })
      .def("geqrf",
           [](const plan& on, const output& a, const output& tau, std::uintptr_t stream) {
             expect_type<T>(a, "a");
             expect_type<T>(tau, "tau");
             const std::span<T> scalars = span_of(data_of<T>(tau), tau);
             if (a.ndim() == 2) {
               const auto A = matrix_of(data_of<T>(a), a);
               return unlocked([&] { return on.geqrf(A, scalars, on_stream(stream)); });
             }
             const auto A = batch_of(data_of<T>(a), a);
             return unlocked([&] { return on.geqrf(A, scalars, on_stream(stream)); });
           })
      .def("geqp3",
           [](const plan& on, const output& a, const output& pivots, const output& tau, std::uintptr_t stream) {
             expect_type<T>(a, "a");
             expect_type<std::int64_t>(pivots, "pivots");
             expect_type<T>(tau, "tau");
             const std::span<std::int64_t> order = span_of(data_of<std::int64_t>(pivots), pivots);
             const std::span<T> scalars = span_of(data_of<T>(tau), tau);
             if (a.ndim() == 2) {
               const auto A = matrix_of(data_of<T>(a), a);
               return unlocked([&] { return on.geqp3(A, order, scalars, on_stream(stream)); });
             }
             const auto A = batch_of(data_of<T>(a), a);
             return unlocked([&] { return pivoted_stack(on, A, order, scalars, on_stream(stream)); });
           })
      .def("ormqr",
           [](const plan& on, const std::string& from, bool adjoint, const input& a, const input& tau, const output& c,
              std::uintptr_t stream) {
             expect_type<T>(a, "a");
             expect_type<T>(tau, "tau");
             expect_type<T>(c, "c");
             const qr::side side = side_of(from);
             const qr::transpose op = adjoint ? qr::transpose::yes : qr::transpose::no;
             const std::span<const T> scalars = span_of(data_of<T>(tau), tau);
             if (a.ndim() == 2) {
               const auto A = matrix_of(data_of<T>(a), a);
               const auto C = matrix_of(data_of<T>(c), c);
               return unlocked([&] { return on.ormqr(side, op, A, scalars, C, on_stream(stream)); });
             }
             const auto A = batch_of(data_of<T>(a), a);
             const auto C = batch_of(data_of<T>(c), c);
             return unlocked([&] { return on.ormqr(side, op, A, scalars, C, on_stream(stream)); });
           })
      .def("orgqr",
           [](const plan& on, const output& a, const input& tau, std::uintptr_t stream) {
             expect_type<T>(a, "a");
             expect_type<T>(tau, "tau");
             const std::span<const T> scalars = span_of(data_of<T>(tau), tau);
             if (a.ndim() == 2) {
               const auto A = matrix_of(data_of<T>(a), a);
               return unlocked([&] { return on.orgqr(A, scalars, on_stream(stream)); });
             }
             const auto A = batch_of(data_of<T>(a), a);
             return unlocked([&] { return on.orgqr(A, scalars, on_stream(stream)); });
           })
      .def("gelsy",
           [](const plan& on, const output& a, const output& b, const output& pivots, double rcond, std::uintptr_t stream) {
             expect_type<T>(a, "a");
             expect_type<T>(b, "b");
             expect_type<std::int64_t>(pivots, "pivots");
             const auto A = matrix_of(data_of<T>(a), a);
             const auto B = matrix_of(data_of<T>(b), b);
             const std::span<std::int64_t> order = span_of(data_of<std::int64_t>(pivots), pivots);
             std::int64_t rank = 0;
             ballast::report seen = unlocked([&] { return on.gelsy(A, B, order, rcond, rank, on_stream(stream)); });
             return nb::make_tuple(nb::cast(std::move(seen)), rank);
           })
      .def("gels", [](const plan& on, const output& a, const output& b, std::uintptr_t stream) {
        expect_type<T>(a, "a");
        expect_type<T>(b, "b");
        const auto A = matrix_of(data_of<T>(a), a);
        const auto B = matrix_of(data_of<T>(b), b);
        return unlocked([&] { return on.gels(A, B, on_stream(stream)); });
      });
}

}  // namespace

void add_qr(nb::module_& m) {
  add_plan<float>(m, "QrPlanF32");
  add_plan<double>(m, "QrPlanF64");
  add_plan<std::complex<float>>(m, "QrPlanC64");
  add_plan<std::complex<double>>(m, "QrPlanC128");
}

}  // namespace ballast_python
