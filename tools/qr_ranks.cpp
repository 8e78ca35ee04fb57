// `ballast qr` on the ranks of MPI: each reads a block of rows, which become block columns; the first prints and writes.
// Layer: tools, over the public API. docs/distributed.md, "The command".
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ballast/qr_columns.hpp>
#include <ballast/qr_descriptor.hpp>

#include "command.hpp"
#include "matrices.hpp"

namespace ballast::tools {
namespace {

// ScaLAPACK's descriptor of an m × n matrix in blocks of the given size, the first on the first process.
std::array<int, 9> descriptor(std::int64_t m, std::int64_t n, std::int64_t block_rows, std::int64_t block_columns, std::int64_t leading) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  return {1, 0, number(m), number(n), number(block_rows), number(block_columns), 0, 0, number(std::max<std::int64_t>(leading, 1))};
}

// All columns on the first rank; an empty matrix on the others.
template <class T>
matrix<T> on_first(invocation& work, matrix_view<const T> own, std::int64_t n, std::int64_t block, bool& good) {
  const group& all = work.where().group;
  matrix<T> made(all.rank() == 0 ? own.rows : 0, n, order::column_major);
  const std::array<int, 9> whole = descriptor(own.rows, n, own.rows, n, own.rows);
  const qr::process_grid grid{.rows = 1, .columns = all.size()};
  good =
      work.add(qr::from_block_columns(own, block, std::span<T>(made.data(), made.size()), whole, grid, work.where(), work.now())) && good;
  return made;
}

template <class T>
void tell(invocation& work, const ranks_options& how, const matrix<T>& A, const matrix<T>& Q, const matrix<T>& R,
          nlohmann::ordered_json& results, std::vector<std::string>& lines) {
  work.count<T>({Q.data(), Q.size()});
  work.count<T>({R.data(), R.size()});
  errors found;
  std::mt19937_64 random(1);
  found.add(A.view(), Q.view(), R.view(), random, k_probes);
  results = found.json();
  results["ranks"] = work.where().group.size();
  results["block"] = how.block;
  lines.push_back(found.line());
  if (!how.q.empty()) work.write(how.q, array_of(Q));
  if (!how.r.empty()) work.write(how.r, array_of(R));
}

}  // namespace

template <class T>
int run_qr_on_ranks(const common_options& wanted, const ranks_options& how, array read) {
  const std::vector<std::int64_t> shape = read.facts->shape;  // the whole file's
  if (shape.empty() || shape.size() > 2)
    throw invalid_argument_error(
        fmt::format("{}: expected a matrix (1 or 2 axes) on ranks, got shape {}", printable(how.input), to_string(shape)));
  const std::int64_t m = shape[0], n = shape.size() == 2 ? shape[1] : 1;
  if (std::max(m, n) > std::numeric_limits<int>::max())
    throw invalid_argument_error(
        fmt::format("{}: expected at most 2^31 - 1 rows and columns on ranks, got {} × {}", printable(how.input), m, n));
  invocation work(wanted, "qr");
  if (!how.q.empty()) work.reserve(how.q, 2);
  if (!how.r.empty()) work.reserve(how.r, 2);
  if (m == 0 || n == 0)
    throw invalid_argument_error(fmt::format("{}: expected a matrix with elements, got shape {}", printable(how.input), to_string(shape)));
  const matrix<T> rows = read.size() > 0 ? matrix_of<T>(std::move(read), how.input) : matrix<T>(0, n, order::column_major);
  const group& all = work.where().group;
  const std::int64_t share = (m + all.size() - 1) / all.size();       // as row_part::blocks divides them
  nlohmann::ordered_json results = nlohmann::ordered_json::object();  // ranks but the first have none
  std::vector<std::string> lines;
  // Every rank has the report of all, so that all go the same way.
  const qr::computed<T> A = qr::to_block_columns(std::span<const T>(rows.data(), rows.size()), descriptor(m, n, share, n, rows.rows()),
                                                 {.rows = all.size(), .columns = 1}, how.block, work.where(), work.now());
  if (A.report.verdict == verdict::uncorrectable) {
    (void)work.add(A.report);
    return work.finish(results, lines);
  }
  const qr::column_factors<T> factors = qr::factor_columns(A.values.view(), how.block, work.where(), work.now());
  report seen = A.report;  // The report names the whole problem.
  seen.scheme = factors.report.scheme;
  seen.merge(factors.report);
  if (!work.add(seen)) return work.finish(results, lines);
  const qr::computed<T> Q = factors.q(work.now());
  if (!work.add(Q.report)) return work.finish(results, lines);
  bool good = true;
  const matrix<T> whole_a = on_first<T>(work, A.values.view(), n, how.block, good);
  const matrix<T> whole_q = on_first<T>(work, Q.values.view(), std::min(m, n), how.block, good);
  const matrix<T> own_r = factors.r();
  const matrix<T> whole_r = on_first<T>(work, own_r.view(), n, how.block, good);
  if (good && all.rank() == 0) tell(work, how, whole_a, whole_q, whole_r, results, lines);
  return work.finish(results, lines);
}

template int run_qr_on_ranks<float>(const common_options&, const ranks_options&, array);
template int run_qr_on_ranks<double>(const common_options&, const ranks_options&, array);
template int run_qr_on_ranks<std::complex<float>>(const common_options&, const ranks_options&, array);
template int run_qr_on_ranks<std::complex<double>>(const common_options&, const ranks_options&, array);

}  // namespace ballast::tools
