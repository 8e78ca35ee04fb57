// `ballast qr` on the ranks of MPI: each reads a block of rows, which become block columns, or its blocks on a grid; the first prints and
// writes.
// Layer: tools, over the public API. docs/distributed.md, "The command".
#include <algorithm>
#include <array>
#include <charconv>
#include <complex>
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
#include <ballast/qr_grid.hpp>

#include "command.hpp"
#include "matrices.hpp"

namespace ballast::tools {
namespace {

// ScaLAPACK's descriptor of an m × n matrix in blocks of the given size, the first on the first process.
std::array<int, 9> descriptor(std::int64_t m, std::int64_t n, std::int64_t block_rows, std::int64_t block_columns, std::int64_t leading) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  return {1, 0, number(m), number(n), number(block_rows), number(block_columns), 0, 0, number(std::max<std::int64_t>(leading, 1))};
}

// A call of either division: the shape of the whole matrix, and the result on the first rank.
template <class T>
struct ranks_call {
  invocation& work;
  const ranks_options& how;
  std::int64_t m, n;
  nlohmann::ordered_json results = nlohmann::ordered_json::object();  // ranks but the first have none
  std::vector<std::string> lines = {};

  void tell(const matrix<T>& A, const matrix<T>& Q, const matrix<T>& R) {
    work.count<T>({Q.data(), Q.size()});
    work.count<T>({R.data(), R.size()});
    errors found;
    std::mt19937_64 random(1);
    found.add(A.view(), Q.view(), R.view(), random, k_probes);
    results = found.json();
    results["ranks"] = work.where().group.size();
    results["block"] = how.block;
    if (how.grid) results["grid"] = {how.grid->rows, how.grid->columns};
    lines.push_back(found.line());
    if (!how.q.empty()) work.write(how.q, array_of(Q));
    if (!how.r.empty()) work.write(how.r, array_of(R));
  }
  int finish() { return work.finish(results, lines); }
  bool is_first() const { return work.where().group.rank() == 0; }
};

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
int by_columns(ranks_call<T>& call, const matrix<T>& rows) {
  invocation& work = call.work;
  const std::int64_t m = call.m, n = call.n, block = call.how.block;
  const int ranks = work.where().group.size();
  const std::int64_t share = (m + ranks - 1) / ranks;  // as axis_part::k_one_block divides them
  // Every rank has the report of all, so that all go the same way.
  const qr::computed<T> A = qr::to_block_columns(std::span<const T>(rows.data(), rows.size()), descriptor(m, n, share, n, rows.rows()),
                                                 {.rows = ranks, .columns = 1}, block, work.where(), work.now());
  if (A.report.verdict == verdict::uncorrectable) {
    (void)work.add(A.report);
    return call.finish();
  }
  const qr::column_factors<T> factors = qr::factor_columns(A.values.view(), block, work.where(), work.now());
  report seen = A.report;  // The report names the whole problem.
  seen.scheme = factors.report.scheme;
  seen.merge(factors.report);
  if (!work.add(seen)) return call.finish();
  const qr::computed<T> Q = factors.q(work.now());
  if (!work.add(Q.report)) return call.finish();
  bool good = true;
  const matrix<T> whole_a = on_first<T>(work, A.values.view(), n, block, good);
  const matrix<T> whole_q = on_first<T>(work, Q.values.view(), std::min(m, n), block, good);
  const matrix<T> own_r = factors.r();
  const matrix<T> whole_r = on_first<T>(work, own_r.view(), n, block, good);
  if (good && call.is_first()) call.tell(whole_a, whole_q, whole_r);
  return call.finish();
}

template <class T>
int on_grid(ranks_call<T>& call, const matrix<T>& local) {
  invocation& work = call.work;
  const qr::process_grid& grid = *call.how.grid;
  const auto desc = [&](std::int64_t rows, std::int64_t columns, const matrix<T>& part) {
    return descriptor(rows, columns, call.how.block, call.how.block, part.rows());
  };
  const auto numbers = [](const matrix<T>& part) { return std::span<const T>(part.data(), part.size()); };
  const qr::grid_factors<T> factors = qr::factor_grid(numbers(local), desc(call.m, call.n, local), grid, work.where(), work.now());
  if (!work.add(factors.report)) return call.finish();
  const qr::computed<T> Q = factors.q(work.now());
  if (!work.add(Q.report)) return call.finish();
  bool good = true;
  // One block of all columns is the first rank's.
  const auto on_first = [&](const matrix<T>& part, std::int64_t rows, std::int64_t columns) {
    qr::computed<T> made = qr::to_block_columns(numbers(part), desc(rows, columns, part), grid, columns, work.where(), work.now());
    good = work.add(made.report) && good;
    return std::move(made.values);
  };
  const std::int64_t steps = std::min(call.m, call.n);
  const matrix<T> whole_a = on_first(local, call.m, call.n), whole_q = on_first(Q.values, call.m, steps),
                  whole_r = on_first(factors.r(), steps, call.n);
  if (good && call.is_first()) call.tell(whole_a, whole_q, whole_r);
  return call.finish();
}

}  // namespace

qr::process_grid grid_of(const std::string& given, int ranks) {
  qr::process_grid made{.rows = 0, .columns = 0};
  const char* const end = given.data() + given.size();
  const auto [cross, wrong] = std::from_chars(given.data(), end, made.rows);
  const bool crossed = wrong == std::errc() && cross != end && *cross == 'x';
  const auto [last, failed] = std::from_chars(crossed ? cross + 1 : end, end, made.columns);
  if (!crossed || failed != std::errc() || last != end || made.rows < 1 || made.columns < 1)
    throw invalid_argument_error(
        fmt::format("--grid: expected the numbers of rows and columns of a grid of ranks, such as 2x3, got \"{}\"", printable(given)));
  if (static_cast<std::int64_t>(made.rows) * made.columns != ranks)
    throw invalid_argument_error(
        fmt::format("--grid: expected rows × columns of the job's {} ranks, got {} × {}", ranks, made.rows, made.columns));
  return made;
}

array_part ranks_options::part(const group& all) const {
  if (!grid) return {.rows = {all.rank(), all.size(), axis_part::k_one_block}};
  return {.rows = {all.rank() / grid->columns, grid->rows, block},
          .columns = {all.rank() % grid->columns, grid->columns, block},
          .of_matrix = true};
}

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
  matrix<T> own(read.shape[0], read.shape.size() == 2 ? read.shape[1] : 1, order::column_major);
  if (read.size() > 0) own = matrix_of<T>(std::move(read), how.input);
  ranks_call<T> call{work, how, m, n};
  return how.grid ? on_grid(call, own) : by_columns(call, own);
}

template int run_qr_on_ranks<float>(const common_options&, const ranks_options&, array);
template int run_qr_on_ranks<double>(const common_options&, const ranks_options&, array);
template int run_qr_on_ranks<std::complex<float>>(const common_options&, const ranks_options&, array);
template int run_qr_on_ranks<std::complex<double>>(const common_options&, const ranks_options&, array);

}  // namespace ballast::tools
