// QR of rows on the ranks of a group, and on its devices, each of which is the rank of a thread. See include/ballast/qr_rows.hpp.
// Layer: algorithm, over the calls of one rank, group/session.hpp and group/device_threads.hpp.
#include <ballast/qr_rows.hpp>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "group/device_threads.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "qr/api/group_operation.hpp"
#include "qr/api/own_rows.hpp"
#include "qr/api/packed_rows.hpp"
#include "qr/api/validation.hpp"

namespace ballast::qr {

namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& from) {
  return std::as_bytes(std::span<const T>(from));
}

// A rank's part in the members of row_factors: its rows, and the factors of all triangles.
template <class T>
struct rank_factors {
  const own_rows<T>& own;
  const factors<T>& joined;
  const std::vector<std::int64_t>& tops;
};

void check_group(const execution& where) {
  if (!where.group) throw invalid_argument_error("qr: group: expected one whose ranks have the rows, got none");
}

// The part of a rank in factor_rows: everything but its own factors, which it leaves in `own`.
template <class T>
row_factors<T> factor_own_rows(matrix_view<const T> A, own_rows<T>& own, const execution& where, const call& now) {
  row_factors<T> made;
  group_operation<T> call(where, now, to_token({precision_of<T>, A.rows, A.columns}), group_call::factor, 0);
  made.report = call.run([&] {
    if (A.columns < 1) throw invalid_argument_error(fmt::format("qr: A: expected at least one column, got {}", A.columns));
    if (A.rows != 0) check_view(A, "A", to_token({precision_of<T>, A.rows, A.columns}));
    const std::int64_t shape[] = {A.rows, A.columns};
    std::int64_t rows = 0;
    made.tops = {0};
    for (const auto& each : call.over().gather(std::span<const std::int64_t>(shape))) {
      if (each[1] != A.columns)
        throw invalid_argument_error(fmt::format("qr: A: expected as many columns on all ranks, got {} and {}", A.columns, each[1]));
      rows += each[0];
      made.tops.push_back(made.tops.back() + std::min(each[0], each[1]));
    }
    if (rows < A.columns)
      throw invalid_argument_error(
          fmt::format("qr: A: expected at least as many rows as columns, got {} × {} on all ranks", rows, A.columns));
    std::vector<T> triangle;
    if (A.rows > 0) triangle = own.factor(call, A);
    const std::vector<wire::bytes> triangles = call.over().gather(bytes_of(triangle));
    std::vector<T> packed;
    if (call.first()) {
      matrix<T> stack(made.tops.back(), A.columns);
      for (std::size_t p = 0; p < triangles.size(); ++p)
        if (!store_rows(triangles[p], stack.view(), made.tops[p])) throw error("qr: a triangle has another size than its rank said");
      const factors<T> joined = factor(std::as_const(stack).view(), call.alone(), call.silent());
      call.add(joined.report);
      packed = rows_of(std::as_const(joined.storage).view(), 0, joined.storage.rows());
      packed.insert(packed.end(), joined.tau.begin(), joined.tau.end());
    }
    const wire::bytes sent = call.from_first(bytes_of(packed));
    made.joined.storage = matrix<T>(made.tops.back(), A.columns, order::column_major);
    made.joined.tau.resize(static_cast<std::size_t>(A.columns));
    const std::size_t matrix_bytes = made.joined.storage.size() * sizeof(T);
    if (sent.size() != matrix_bytes + made.joined.tau.size() * sizeof(T))
      throw error("qr: the factors have another size than the triangles");
    (void)store_rows(wire::bytes(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(matrix_bytes)), made.joined.storage.view(), 0);
    std::memcpy(made.joined.tau.data(), sent.data() + matrix_bytes, sent.size() - matrix_bytes);
  });
  made.joined.report = made.report;
  return made;
}

template <class T>
void check_ranks(const rank_factors<T>& from, group_operation<T>& call) {
  if (from.tops.size() != call.over().size() + 1)
    throw invalid_argument_error(
        fmt::format("qr: group: expected the {} ranks that made the factors, got {}", from.tops.size() - 1, call.over().size()));
}

void check_rows(std::int64_t expected, std::int64_t rows) {
  if (rows != expected) throw invalid_argument_error(fmt::format("qr: B: expected the rank's {} rows, got {}", expected, rows));
}

// Joins the parts of Qᵀ B of all ranks on the first, which computes finish(stack) from them; returns its elements on all ranks.
template <class T, class Finish>
computed<T> joined_rows(const rank_factors<T>& from, const execution& where, matrix_view<const T> B, const call& now, group_call what,
                        const Finish& finish) {
  const std::int64_t n = from.joined.storage.columns();
  group_operation<T> call(where, now, to_token({precision_of<T>, from.joined.storage.rows(), n}), what, B.columns);
  computed<T> made{matrix<T>(n, B.columns, order::column_major), {}};
  std::string refused;
  made.report = call.run([&] {
    check_ranks(from, call);
    check_rows(from.own.rows(), B.rows);
    const std::vector<T> part = from.own.transposed_times(call, B);
    const std::vector<wire::bytes> parts = call.over().gather(bytes_of(part));
    // The first element says whether the columns depend on each other; then their error follows.
    std::vector<std::byte> block(1, std::byte{0});
    if (call.first()) {
      matrix<T> stack(from.joined.storage.rows(), B.columns, order::column_major);
      for (std::size_t p = 0; p < parts.size(); ++p)
        if (!store_rows(parts[p], stack.view(), from.tops[p])) throw error("qr: a part of B has another size than its rank said");
      try {
        const matrix<T> result = finish(call, stack);
        const std::vector<T> values = rows_of(std::as_const(result).view(), 0, n);
        const auto bytes = bytes_of(values);
        block.insert(block.end(), bytes.begin(), bytes.end());
      } catch (const rank_deficient_error& refused) {
        const std::string text = refused.what();
        block[0] = std::byte{1};
        for (const char each : text) block.push_back(static_cast<std::byte>(each));
      }
    }
    const wire::bytes sent = call.from_first(block);
    if (sent.empty()) throw error("qr: the first rank sent nothing");
    const wire::bytes rest(sent.begin() + 1, sent.end());
    if (sent[0] != std::byte{0}) {
      refused.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
      return;
    }
    if (!store_rows(rest, made.values.view(), 0)) throw error("qr: the result has another size than expected");
  });
  if (!refused.empty()) throw rank_deficient_error(refused);  // after the call: the others may still wait for messages in it
  return made;
}

// The rank's rows of Q C.
template <class T>
report own_rows_of_product(const rank_factors<T>& from, const execution& where, matrix_view<const T> C, matrix_view<T> to,
                           const call& now) {
  const std::int64_t n = from.joined.storage.columns();
  group_operation<T> call(where, now, to_token({precision_of<T>, from.own.rows(), n}), group_call::apply, C.columns);
  return call.run([&] {
    check_ranks(from, call);
    if (C.rows != n) throw invalid_argument_error(fmt::format("qr: C: expected {} rows, got {}", n, C.rows));
    std::vector<std::vector<T>> parts(call.over().size());
    if (call.first()) {
      matrix<T> stack(from.joined.storage.rows(), C.columns, order::column_major);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < C.columns; ++j) stack(i, j) = C(i, j);
      call.add(ormqr(side::left, transpose::no, from.joined.storage.view(), std::span<const T>(from.joined.tau), stack.view(), call.alone(),
                     call.silent()));
      for (std::size_t p = 0; p < parts.size(); ++p)
        parts[p] = rows_of(std::as_const(stack).view(), from.tops[p], from.tops[p + 1] - from.tops[p]);
    }
    std::vector<std::span<const std::byte>> blocks;
    blocks.reserve(parts.size());
    for (const std::vector<T>& each : parts) blocks.push_back(bytes_of(each));
    const std::vector<wire::bytes> sent = call.over().all_to_all(blocks);
    from.own.times(call, sent[0], to);
  });
}

// finish(stack) of the two products with Qᵀ.
template <class T>
auto keep_product(const factors<T>& joined) {
  return [&joined](group_operation<T>& on, matrix<T>& stack) {
    on.add(ormqr(side::left, transpose::yes, joined.storage.view(), std::span<const T>(joined.tau), stack.view(), on.alone(), on.silent()));
    return std::move(stack);
  };
}
template <class T>
auto solve_product(const factors<T>& joined) {
  return [&joined](group_operation<T>& on, matrix<T>& stack) {
    computed<T> found = joined.solve(std::as_const(stack).view(), on.alone(), on.silent());
    on.add(found.report);
    return std::move(found.values);
  };
}

// ---------------------------------------------------------------- Devices of one process.

// A call on a group of devices: each has a share of the rows, with the same calls as a rank of an engine.
template <class T>
class call_on_devices {
 public:
  // `shares`: the first row of each device's share, and the number of all.
  call_on_devices(const execution& where, const call& now, std::string token, std::vector<std::int64_t> shares)
      : how_(run::settings_of(where, now)),
        token_(std::move(token)),
        shares_(std::move(shares)),
        threads_(where.group, shares_.size() - 1) {
    wire::check_execution_on_devices(where, token_);
    run::check_protection(where, token_, false);
    wire::check_call_on_devices(now, token_);
  }

  // Runs work(p, execution of p, call of p) on the thread of each device.
  template <class Work>
  void run(const Work& work) {
    threads_.run(token_, [&](std::size_t p) {
      const run::settings own = threads_.settings_of(how_, p);
      const inject::scope faults(own.faults);
      work(p, own.where(), own.now());
    });
  }
  void wait_for(const void* operand) const { threads_.wait_for({operand}); }
  matrix_view<const T> share(matrix_view<const T> of, std::size_t p) const {
    return of.block(shares_[p], 0, shares_[p + 1] - shares_[p], of.columns);
  }
  std::int64_t first(std::size_t p) const { return shares_[p]; }

 private:
  run::settings how_;
  std::string token_;
  std::vector<std::int64_t> shares_;
  wire::device_threads threads_;
};

// As evenly as can be. Fewer devices have rows if one would have fewer than columns.
std::vector<std::int64_t> divide_rows(std::int64_t m, std::int64_t n, std::size_t devices) {
  const std::int64_t ranks = std::clamp<std::int64_t>(m / std::max<std::int64_t>(n, 1), 1, static_cast<std::int64_t>(devices));
  std::vector<std::int64_t> made;
  for (std::int64_t p = 0; p <= ranks; ++p) made.push_back(p * m / ranks);
  return made;
}

// Part p on the device p.
template <class T>
row_factors<T> factor_parts(std::span<const matrix_view<const T>> parts, const execution& where, const call& now) {
  std::vector<std::int64_t> shares = {0};
  for (const matrix_view<const T>& each : parts) shares.push_back(shares.back() + each.rows);
  const std::vector<int>& devices = where.group.internal()->devices;
  const std::string token = to_token({precision_of<T>, shares.back(), parts[0].columns});
  call_on_devices<T> call(where, now, token, std::move(shares));
  std::vector<row_factors<T>> made(parts.size());
  std::vector<device_factors<T>> own(parts.size());
  for (const matrix_view<const T>& each : parts) call.wait_for(each.data);
  call.run([&](std::size_t p, const execution& alone, const ballast::call& current) {
    made[p] = factor_own_rows(parts[p], *make_rows_on_device(own[p], devices), alone, current);
  });
  made[0].where = where;
  made[0].devices = std::move(own);
  return std::move(made[0]);
}

template <class T>
row_factors<T> factor_rows_on_devices(matrix_view<const T> A, const execution& where, const call& now) {
  const std::string token = to_token({precision_of<T>, A.rows, A.columns});
  check_view(A, "A", token);
  if (A.rows < A.columns)
    throw invalid_argument_error(fmt::format("{}: A: expected at least as many rows as columns, got {} × {}", token, A.rows, A.columns));
  const std::vector<std::int64_t> shares = divide_rows(A.rows, A.columns, where.group.internal()->devices.size());
  std::vector<matrix_view<const T>> parts;
  for (std::size_t p = 0; p + 1 < shares.size(); ++p) parts.push_back(A.block(shares[p], 0, shares[p + 1] - shares[p], A.columns));
  return factor_parts<T>(parts, where, now);
}

template <class T>
row_factors<T> factor_given_parts(std::span<const matrix_view<const T>> parts, const execution& where, const call& now) {
  check_group(where);
  if (!wire::on_devices(where)) throw invalid_argument_error("qr: group: expected one of devices for rows in parts, got one of ranks");
  const std::size_t devices = where.group.internal()->devices.size();
  if (parts.empty() || parts.size() > devices)
    throw invalid_argument_error(fmt::format("qr: parts: expected 1 to {}, one for each device, got {}", devices, parts.size()));
  for (const matrix_view<const T>& each : parts) check_view(each, "A", to_token({precision_of<T>, each.rows, each.columns}));
  return factor_parts(parts, where, now);
}

template <class T>
call_on_devices<T> call_for(const row_factors<T>& of, const call& now) {
  std::vector<std::int64_t> shares = {0};
  for (const device_factors<T>& each : of.devices) shares.push_back(shares.back() + each.storage.rows);
  if (of.devices.empty() || of.devices.size() > of.where.group.internal()->devices.size())
    throw invalid_argument_error(fmt::format("qr: group: expected the devices that made the factors of {} parts, got {}", of.devices.size(),
                                             of.where.group.internal()->devices.size()));
  return call_on_devices<T>(of.where, now, to_token({precision_of<T>, shares.back(), of.joined.storage.columns()}), shares);
}

// All rows of Q C.
template <class T>
computed<T> product_on_devices(const row_factors<T>& of, matrix_view<const T> C, const call& now) {
  call_on_devices<T> call = call_for(of, now);
  const std::int64_t m = call.first(of.devices.size());
  check_view(C, "C", "qr", 0);
  call.wait_for(C.data);
  const matrix<T> small = packed_rows(C, of.where.group.internal()->devices[0]);
  computed<T> made{matrix<T>(m, C.columns, order::column_major), {}};
  std::vector<report> reports(of.devices.size());
  call.run([&](std::size_t p, const execution& alone, const ballast::call& current) {
    device_factors<T> own = of.devices[p];
    const auto rows = make_rows_on_device(own, of.where.group.internal()->devices);
    reports[p] = own_rows_of_product(rank_factors<T>{*rows, of.joined, of.tops}, alone, small.view(),
                                     made.values.view().block(call.first(p), 0, rows->rows(), C.columns), current);
  });
  made.report = std::move(reports[0]);
  return made;
}

template <class T, class Finish>
computed<T> joined_on_devices(const row_factors<T>& of, matrix_view<const T> B, const call& now, group_call what, const Finish& finish) {
  call_on_devices<T> call = call_for(of, now);
  check_view(B, "B", "qr", 0);
  check_rows(call.first(of.devices.size()), B.rows);
  std::vector<computed<T>> parts(of.devices.size());
  call.wait_for(B.data);
  call.run([&](std::size_t p, const execution& alone, const ballast::call& current) {
    device_factors<T> own = of.devices[p];
    const auto rows = make_rows_on_device(own, of.where.group.internal()->devices);
    parts[p] = joined_rows(rank_factors<T>{*rows, of.joined, of.tops}, alone, call.share(B, p), current, what, finish);
  });
  return std::move(parts[0]);
}

template <class T, class Finish>
computed<T> joined_by(const row_factors<T>& of, matrix_view<const T> B, const call& now, group_call what, const Finish& finish) {
  check_group(of.where);
  if (wire::on_devices(of.where)) return joined_on_devices(of, B, now, what, finish);
  const rows_on_host<T> rows(of.own);
  return joined_rows(rank_factors<T>{rows, of.joined, of.tops}, of.where, B, now, what, finish);
}

template <class T>
row_factors<T> factor_rows_of(matrix_view<const T> A, const execution& where, const call& now) {
  check_group(where);
  if (wire::on_devices(where)) return factor_rows_on_devices(A, where, now);
  factors<T> own;
  rows_on_host<T> rows(own);
  row_factors<T> made = factor_own_rows(A, rows, where, now);
  made.own = std::move(own);
  made.where = where;
  return made;
}

}  // namespace

inline namespace abi_1 {

row_factors<float> factor_rows(matrix_view<const float> A, const execution& where, const call& now) {
  return prepare_call(where.group, [&] { return factor_rows_of(A, where, now); });
}
row_factors<double> factor_rows(matrix_view<const double> A, const execution& where, const call& now) {
  return prepare_call(where.group, [&] { return factor_rows_of(A, where, now); });
}
row_factors<float> factor_rows(std::span<const matrix_view<const float>> parts, const execution& where, const call& now) {
  return factor_given_parts(parts, where, now);
}
row_factors<double> factor_rows(std::span<const matrix_view<const double>> parts, const execution& where, const call& now) {
  return factor_given_parts(parts, where, now);
}

template <class T>
matrix<T> row_factors<T>::r() const {
  return joined.r();
}

template <class T>
computed<T> row_factors<T>::apply(matrix_view<const T> C, const call& now) const {
  check_group(where);
  if (wire::on_devices(where)) return product_on_devices(*this, C, now);
  return prepare_call(where.group, [&] {
    computed<T> made{matrix<T>(own.storage.rows(), C.columns, order::column_major), {}};
    made.report = own_rows_of_product(rank_factors<T>{rows_on_host<T>(own), joined, tops}, where, C, made.values.view(), now);
    return made;
  });
}

template <class T>
computed<T> row_factors<T>::q(const call& now) const {
  const std::int64_t n = joined.storage.columns();
  matrix<T> one(n, n);
  for (std::int64_t i = 0; i < n; ++i) one(i, i) = 1;
  return apply(std::as_const(one).view(), now);
}

template <class T>
computed<T> row_factors<T>::apply_transposed(matrix_view<const T> B, const call& now) const {
  return prepare_call(where.group, [&] { return joined_by(*this, B, now, group_call::apply_transposed, keep_product(joined)); });
}

template <class T>
computed<T> row_factors<T>::solve(matrix_view<const T> B, const call& now) const {
  return prepare_call(where.group, [&] { return joined_by(*this, B, now, group_call::solve, solve_product(joined)); });
}

template class row_factors<float>;
template class row_factors<double>;

}  // namespace abi_1
}  // namespace ballast::qr
