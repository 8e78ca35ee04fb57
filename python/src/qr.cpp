// QR factorization and least squares. A stack of matrices has three axes, one matrix two.
#include "core.hpp"

namespace ballast_python {

namespace {

namespace qr = ballast::qr;

template <class T>
std::span<T> span_of(T* data, const auto& array) {
  return {data, array.size()};
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
             const auto A = matrix_of(data_of<T>(a), a);
             const std::span<std::int64_t> order = span_of(data_of<std::int64_t>(pivots), pivots);
             const std::span<T> scalars = span_of(data_of<T>(tau), tau);
             return unlocked([&] { return on.geqp3(A, order, scalars, on_stream(stream)); });
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
}

}  // namespace ballast_python
