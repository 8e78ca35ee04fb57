// QR on groups: the factors of rows, of block columns and on a grid, and ScaLAPACK's layout. Results are copied to arrays that the caller
// made.
#include <algorithm>
#include <complex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ballast/qr_columns.hpp>
#include <ballast/qr_descriptor.hpp>
#include <ballast/qr_grid.hpp>
#include <ballast/qr_rows.hpp>

#include "core.hpp"

namespace ballast_python {

namespace {

namespace qr = ballast::qr;

// Copies a result to an array of the host with as many rows and columns.
template <class T>
void copy_to(const ballast::matrix<T>& made, const output& to) {
  expect_type<T>(to, "out");
  const auto there = matrix_of(data_of<T>(to), to);
  if (there.rows != made.rows() || there.columns != made.columns())
    throw ballast::invalid_argument_error("out: expected " + std::to_string(made.rows()) + " x " + std::to_string(made.columns()) +
                                          ", got " + std::to_string(there.rows) + " x " + std::to_string(there.columns));
  for (std::int64_t j = 0; j < made.columns(); ++j)
    for (std::int64_t i = 0; i < made.rows(); ++i) there(i, j) = made(i, j);
}

template <class T>
ballast::report store(qr::computed<T>&& made, const output& to) {
  copy_to(made.values, to);
  return std::move(made.report);
}

template <class T>
ballast::matrix_view<const T> operand(const input& given, const char* name) {
  expect_type<T>(given, name);
  return matrix_of(data_of<T>(given), given);
}

// The members that all kinds of factors have.
template <class Factors, class T>
void add_members(nb::class_<Factors>& made) {
  made.def_prop_ro("report", [](const Factors& of) { return of.report; })
      .def("r", [](const Factors& of, const output& to) { copy_to(unlocked([&] { return of.r(); }), to); })
      .def("q", [](const Factors& of, const output& to) { return store(unlocked([&] { return of.q(); }), to); })
      .def("multiply",
           [](const Factors& of, const input& c, bool adjoint, const output& to) {
             const auto C = operand<T>(c, "c");
             return store(unlocked([&] { return adjoint ? of.apply_transposed(C) : of.apply(C); }), to);
           })
      .def("solve", [](const Factors& of, const input& b, const output& to) {
        const auto B = operand<T>(b, "b");
        return store(unlocked([&] { return of.solve(B); }), to);
      });
}

// Those of factors that are kept in LAPACK's form.
template <class Factors, class T>
void add_storage(nb::class_<Factors>& made) {
  made.def("storage", [](const Factors& of, const output& to) { copy_to(of.storage, to); })
      .def("tau", [](const Factors& of, const output& to) {
        expect_type<T>(to, "tau");
        if (to.ndim() != 1 || to.size() != of.tau.size())
          throw ballast::invalid_argument_error("tau: expected " + std::to_string(of.tau.size()) + " elements, got " +
                                                std::to_string(to.size()));
        std::copy(of.tau.begin(), of.tau.end(), data_of<T>(to));
      });
}

template <class T>
void add_row_factors(nb::module_& m, const char* name) {
  using factors = qr::row_factors<T>;
  nb::class_<factors> made(m, name);
  made.def_static("of", [](const input& a, const ballast::execution& where) {
    const auto A = operand<T>(a, "a");
    return unlocked([&] { return qr::factor_rows(A, where); });
  });
  add_members<factors, T>(made);
}

template <class T>
void add_column_factors(nb::module_& m, const char* name) {
  using factors = qr::column_factors<T>;
  nb::class_<factors> made(m, name);
  made.def_static("of",
                  [](const input& a, std::int64_t block, const ballast::execution& where) {
                    const auto A = operand<T>(a, "a");
                    return unlocked([&] { return qr::factor_columns(A, block, where); });
                  })
      .def_prop_ro("columns", [](const factors& of) { return of.own.columns; })
      .def_prop_ro("on_devices", [](const factors& of) { return !of.devices.empty(); });
  add_storage<factors, T>(made);
  add_members<factors, T>(made);
  made.def_static("from_layout", [](const input& local, const std::vector<int>& desc, int rows, int columns, bool by_columns,
                                    std::int64_t block, const ballast::execution& where, const output& to) {
    expect_type<T>(local, "local");
    const std::span<const T> given(data_of<T>(local), local.size());
    return store(unlocked([&] {
                   return qr::to_block_columns(given, std::span<const int>(desc), {rows, columns, by_columns}, block, where);
                 }),
                 to);
  });
  made.def_static("to_layout", [](const input& given, std::int64_t block, const output& local, const std::vector<int>& desc, int rows,
                                  int columns, bool by_columns, const ballast::execution& where) {
    const auto from = operand<T>(given, "columns");
    expect_type<T>(local, "local");
    const std::span<T> to(data_of<T>(local), local.size());
    return unlocked([&] {
      return qr::from_block_columns(from, block, to, std::span<const int>(desc), {rows, columns, by_columns}, where);
    });
  });
}

template <class T>
void add_grid_factors(nb::module_& m, const char* name) {
  using factors = qr::grid_factors<T>;
  nb::class_<factors> made(m, name);
  made.def_static(
      "of", [](const input& local, const std::vector<int>& desc, int rows, int columns, bool by_columns, const ballast::execution& where) {
        expect_type<T>(local, "local");
        const std::span<const T> given(data_of<T>(local), local.size());
        return unlocked([&] { return qr::factor_grid(given, std::span<const int>(desc), {rows, columns, by_columns}, where); });
      });
  add_storage<factors, T>(made);
  add_members<factors, T>(made);
}

std::vector<std::int64_t> numbers_of(const qr::block_columns& own) {
  std::vector<std::int64_t> made;
  for (std::int64_t j = 0; j < own.count(); ++j) made.push_back(own.global(j));
  return made;
}

}  // namespace

void add_qr_groups(nb::module_& m) {
  add_row_factors<float>(m, "RowFactorsF32");
  add_row_factors<double>(m, "RowFactorsF64");
  add_column_factors<float>(m, "ColumnFactorsF32");
  add_column_factors<double>(m, "ColumnFactorsF64");
  add_column_factors<std::complex<float>>(m, "ColumnFactorsC64");
  add_column_factors<std::complex<double>>(m, "ColumnFactorsC128");
  add_grid_factors<float>(m, "GridFactorsF32");
  add_grid_factors<double>(m, "GridFactorsF64");
  add_grid_factors<std::complex<float>>(m, "GridFactorsC64");
  add_grid_factors<std::complex<double>>(m, "GridFactorsC128");
  m.def("block_columns", [](std::int64_t columns, std::int64_t block, int ranks, int rank) {
    if (columns < 0 || block < 1 || ranks < 1 || rank < 0 || rank >= ranks)
      throw ballast::invalid_argument_error(
          "block_columns: expected 0 columns or more in blocks of 1 or more, and a rank below size, got " + std::to_string(columns) +
          " in blocks of " + std::to_string(block) + ", rank " + std::to_string(rank) + " of " + std::to_string(ranks));
    return numbers_of({columns, block, ranks, rank});
  });
  m.def("layout_part", [](const std::vector<int>& desc, int rows, int columns, bool by_columns, int rank) {
    const qr::layout_part own = qr::part_of_layout(std::span<const int>(desc), {rows, columns, by_columns}, rank);
    return nb::make_tuple(numbers_of(own.rows), numbers_of(own.columns));
  });
}

}  // namespace ballast_python
