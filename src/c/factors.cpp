// Factorizations that own their storage, in host memory.
// Layer: interface.
#include <complex>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "c/handles.hpp"
#include "c/outputs.hpp"
#include "c/tensor.hpp"
#include "core/format.hpp"

namespace {

std::string token_of(ballast::c::element type, std::int64_t rows, std::int64_t columns) {
  return ballast::qr::to_token({ballast::c::precision_of_element(type), rows, columns, 1, ballast::c::is_complex(type)});
}

// The functions below treat both kinds of factors alike. Those of a group keep the execution that made them.
template <class T>
using factors = ballast::qr::factors<T>;
template <class T>
using row_factors = ballast::qr::row_factors<T>;
using ballast::call;
using ballast::execution;
using ballast::matrix_view;

template <class T>
std::int64_t rows_of(const factors<T>& of) {
  return of.storage.rows();
}
template <class T>
std::int64_t rows_of(const row_factors<T>& of) {
  std::int64_t rows = of.own.storage.rows();  // those of a rank, which has no devices
  for (const ballast::qr::device_factors<T>& each : of.devices) rows += each.storage.rows;
  return rows;
}
template <class T>
std::int64_t columns_of(const factors<T>& of) {
  return of.storage.columns();
}
template <class T>
std::int64_t columns_of(const row_factors<T>& of) {
  return of.joined.storage.columns();
}
// min(m, n) of the whole matrix, which has at least as many rows as columns if ranks have its rows; one of them may have fewer.
template <class T>
std::int64_t smaller_of(const factors<T>& of) {
  return std::min(rows_of(of), columns_of(of));
}
template <class T>
std::int64_t smaller_of(const row_factors<T>& of) {
  return columns_of(of);
}
template <class T>
auto q_of(const factors<T>& of, const execution& where, const call& now) {
  return of.q(where, now);
}
template <class T>
auto q_of(const row_factors<T>& of, const execution&, const call& now) {
  return of.q(now);
}
template <class T>
auto solution_of(const factors<T>& of, matrix_view<const T> B, const execution& where, const call& now) {
  return of.solve(B, where, now);
}
template <class T>
auto solution_of(const row_factors<T>& of, matrix_view<const T> B, const execution&, const call& now) {
  return of.solve(B, now);
}
template <class T>
const factors<T>& one_piece(const factors<T>& of, const std::string&) {
  return of;
}
template <class T>
const factors<T>& one_piece(const row_factors<T>&, const std::string& token) {
  throw ballast::unsupported_error(token + ": expected factors of one device for their storage, got those of a group");
}

}  // namespace

struct ballast_factors : ballast::c::handle<ballast::c::kind::factors> {
  using any_factors = std::variant<ballast::qr::factors<float>, ballast::qr::factors<double>, ballast::qr::factors<std::complex<float>>,
                                   ballast::qr::factors<std::complex<double>>, ballast::qr::row_factors<float>,
                                   ballast::qr::row_factors<double>>;  // the last two: of a group
  ballast_factors(any_factors made, const ballast::execution& at) : value(std::move(made)), where(at) {
    token = std::visit(
        [](const auto& each) {
          using T = std::remove_pointer_t<decltype(each.r().data())>;
          return token_of(ballast::c::element_of<T>, rows_of(each), columns_of(each));
        },
        value);
  }
  any_factors value;
  ballast::execution where;
  std::string token;
};

namespace ballast::c {

namespace {

// The group of factors; none where they are null or no factors.
group group_of_factors(const ballast_factors* given) noexcept {
  return given != nullptr && given->mark == ballast_factors::k_kind ? given->where.group : group();
}

// Calls work(factors, T{}) with factors<T> or row_factors<T>.
template <class Work>
void with_factors(const ballast_factors& of, Work&& work) {
  std::visit([&]<template <class> class Factors, class T>(const Factors<T>& from) { work(from, T{}); }, of.value);
}

}  // namespace

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_qr_factor(const DLTensor* A, const ballast_options* options, const ballast_call* call, ballast_factors** factors,
                          ballast_report* report, ballast_error* error) {
  return guarded(error, group_of(options), [&](frame& here) {
    output(factors, "factors") = nullptr;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast::execution where = options == nullptr ? ballast::execution{} : where_of(options_for(options, algorithm::qr));
    const bool divided = static_cast<bool>(where.group);
    const tensor given(A, {"qr", "A"});
    if (!is_number(given.type)) given.expect(element::f64);
    given.expect_axes(2);
    here.poses(token_of(given.type, given.length[0], given.length[1]));
    const auto made = [&]<class T>(T) {
      const auto keep = [&](auto found) {
        ballast::report seen = found.report;
        *factors = new ballast_factors(std::move(found), where);
        fill(report, std::move(seen));
      };
      const auto matrix = matrix_of<const T>(given, where);
      if constexpr (std::is_floating_point_v<T>) {
        if (divided) return keep(ballast::qr::factor_rows(matrix, where, now));
      }
      keep(ballast::qr::factor(matrix, where, now));
    };
    switch (given.type) {
      case element::f32: return made(float());
      case element::c64: return made(std::complex<float>());
      case element::c128: return made(std::complex<double>());
      default: return made(double());
    }
  });
}

void ballast_factors_destroy(ballast_factors* factors) { destroy(factors); }

int32_t ballast_factors_r(const ballast_factors* factors, const DLTensor* R, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast_factors& of = needed(factors, "factors");
    here.problem = of.token;
    with_factors(of, [&]<class T>(const auto& from, T) {
      const std::int64_t rows = smaller_of(from);
      const auto to = target_of<T>(tensor(R, {of.token, "R"}), rows, columns_of(from));
      const ballast::matrix<T> made = from.r();
      copy<T>(made.view(), to);
    });
  });
}

int32_t ballast_factors_storage(const ballast_factors* factors, const DLTensor* A, const DLTensor* tau, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast_factors& of = needed(factors, "factors");
    here.problem = of.token;
    with_factors(of, [&]<class T>(const auto& given, T) { copy_storage(one_piece(given, of.token), of.token, A, tau); });
  });
}

int32_t ballast_factors_q(const ballast_factors* factors, const DLTensor* Q, const ballast_call* call, ballast_report* report,
                          ballast_error* error) {
  return guarded(error, group_of_factors(factors), [&](frame& here) {
    const ballast_factors& of = needed(factors, "factors");
    here.problem = of.token;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    with_factors(of, [&]<class T>(const auto& from, T) {
      const std::int64_t columns = smaller_of(from);
      const auto to = target_of<T>(tensor(Q, {of.token, "Q"}), rows_of(from), columns);
      ballast::qr::computed<T> made = q_of(from, of.where, now);
      copy<T>(std::as_const(made.values).view(), to);
      fill(report, std::move(made.report));
    });
  });
}

int32_t ballast_factors_solve(const ballast_factors* factors, const DLTensor* B, const DLTensor* X, const ballast_call* call,
                              ballast_report* report, ballast_error* error) {
  return guarded(error, group_of_factors(factors), [&](frame& here) {
    const ballast_factors& of = needed(factors, "factors");
    here.problem = of.token;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    with_factors(of, [&]<class T>(const auto& from, T) {
      const auto right = matrix_of<const T>(tensor(B, {of.token, "B"}), of.where, true);
      const auto to = target_of<T>(tensor(X, {of.token, "X"}), columns_of(from), right.columns, true);
      ballast::qr::computed<T> made = solution_of(from, right, of.where, now);
      copy<T>(std::as_const(made.values).view(), to);
      fill(report, std::move(made.report));
    });
  });
}
