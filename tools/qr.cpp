// The subcommands `ballast qr` and `ballast lstsq`.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <type_traits>

#include <fmt/format.h>

#include "command.hpp"
#include "matrices.hpp"

namespace ballast::tools {
namespace {

struct qr_options : common_options {
  std::string input, q, r, devices, grid;
  bool pivot = false;
  std::int64_t block = 0;  // on ranks and devices; 0: not given
};

struct lstsq_options : common_options {
  std::string a, b, x, devices;
  double rcond = std::numeric_limits<double>::quiet_NaN();  // NaN: not given
  bool of_any_rank() const { return rcond == rcond; }       // by complete orthogonal factorization
};

template <class T>
qr::plan<T> plan_for(const common_options& wanted, const invocation& work, std::int64_t rows, std::int64_t columns,
                     std::int64_t batch = 1) {
  return qr::plan<T>({.rows = rows, .columns = columns, .batch = batch}, work.where(),
                     {.tf32x3 = !wanted.no_tf32x3, .full_rank = !wanted.any_rank});
}

// Calls work(T{}) for the type of the numbers: complex, or of double precision.
template <class Work>
int with_type(const common_options& wanted, bool complex, bool is_double, Work&& work) {
  const bool single = wanted.precision_for(is_double) == precision::f32;
  if (complex && single) return work(std::complex<float>());
  if (complex) return work(std::complex<double>());
  if (single) return work(float());
  return work(double());
}

// A number in JSON: a complex one as [real, imaginary]; and in a line.
template <class T>
nlohmann::ordered_json number_json(const T& x) {
  if constexpr (is_complex<T>)
    return {json_number(static_cast<double>(x.real())), json_number(static_cast<double>(x.imag()))};
  else
    return json_number(static_cast<double>(x));
}
template <class T>
std::string number_text(const T& x) {
  if constexpr (is_complex<T>)
    return fmt::format("{:.12g}{:+.12g}i", static_cast<double>(x.real()), static_cast<double>(x.imag()));
  else
    return fmt::format("{:.12g}", static_cast<double>(x));
}

// The columns of A in this order.
template <class T>
matrix<T> in_order(const matrix<T>& A, const std::vector<std::int64_t>& pivots) {
  matrix<T> made(A.rows(), A.columns(), order::column_major);
  for (std::int64_t j = 0; j < A.columns(); ++j)
    for (std::int64_t i = 0; i < A.rows(); ++i) made(i, j) = A(i, pivots[static_cast<std::size_t>(j)]);
  return made;
}

std::string list_of(const std::vector<std::int64_t>& numbers) {
  std::string line;
  for (std::size_t i = 0; i < numbers.size() && i < 20; ++i) line += fmt::format(" {}", numbers[i]);
  return numbers.size() > 20 ? line + " …" : line;
}

// The execution on the devices of a list, for one matrix of real numbers.
template <class T>
execution on_devices(const std::string& list, const invocation& work, bool no_tf32x3) {
  if (is_complex<T>) throw invalid_argument_error("--devices: expected real values, got complex ones");
  if (no_tf32x3) throw invalid_argument_error("--devices: expected without --no-tf32x3");
  execution where = work.where();
  where.group = group::devices(devices_of(list));
  return where;
}

// Returns the columns of a block, or 0 for a division by rows: so that every device takes part, unless the user has chosen.
std::int64_t block_on_devices(std::int64_t rows, std::int64_t columns, std::int64_t devices, std::int64_t wanted) {
  constexpr std::int64_t k_wide = 512;
  if (wanted > 0) return wanted;
  return rows / devices >= columns ? 0 : std::clamp<std::int64_t>((columns + devices - 1) / devices, 1, k_wide);
}

// Q and R by the devices of a list.
template <class T>
int run_qr_on_devices(const qr_options& wanted, array read) {
  invocation work(wanted, "qr");
  if (!wanted.q.empty()) work.reserve(wanted.q, 2);
  if (!wanted.r.empty()) work.reserve(wanted.r, 2);
  const matrix<T> A = matrix_of<T>(std::move(read), wanted.input);
  const execution where = on_devices<T>(wanted.devices, work, wanted.no_tf32x3);
  const std::vector<int> numbers = devices_of(wanted.devices);
  const std::int64_t block = block_on_devices(A.rows(), A.columns(), static_cast<std::int64_t>(numbers.size()), wanted.block);
  nlohmann::ordered_json results;
  std::vector<std::string> lines;
  [[maybe_unused]] const auto use = [&](const auto& factors) {
    if (!work.add(factors.report)) return;
    const qr::computed<T> Q = factors.q(work.now());
    if (!work.add(Q.report)) return;
    const matrix<T> R = factors.r();
    work.count<T>({Q.values.data(), Q.values.size()});
    work.count<T>({R.data(), R.size()});
    errors found;
    std::mt19937_64 random(1);
    found.add(A.view(), Q.values.view(), R.view(), random, k_probes);
    results = found.json();
    results["devices"] = numbers;
    if (block > 0) results["block"] = block;
    lines.push_back(found.line());
    if (!wanted.q.empty()) work.write(wanted.q, array_of(Q.values));
    if (!wanted.r.empty()) work.write(wanted.r, array_of(R));
  };
  if constexpr (!is_complex<T>) {
    if (block == 0)
      use(qr::factor_rows(A.view(), where, work.now()));
    else
      use(qr::factor_columns(A.view(), block, where, work.now()));
  }
  return work.finish(results, lines);
}

template <class T>
int run_qr(const qr_options& wanted, array read) {
  if (!wanted.devices.empty()) return run_qr_on_devices<T>(wanted, std::move(read));
  invocation work(wanted, "qr");
  if (!wanted.q.empty()) work.reserve(wanted.q, 2);
  if (!wanted.r.empty()) work.reserve(wanted.r, 2);
  const matrix<T> A = matrix_of<T>(std::move(read), wanted.input);
  const std::int64_t rank = std::min(A.rows(), A.columns());
  matrix<T> F = A;
  std::vector<T> tau(static_cast<std::size_t>(rank));
  const qr::plan<T> plan = plan_for<T>(wanted, work, A.rows(), A.columns());
  std::vector<std::int64_t> pivots(wanted.pivot ? static_cast<std::size_t>(A.columns()) : 0);
  nlohmann::ordered_json results;
  std::vector<std::string> lines;
  if (work.add(wanted.pivot ? plan.geqp3(F.view(), pivots, tau, work.now()) : plan.geqrf(F.view(), tau, work.now()))) {
    // The protected orgqr forms Q from the factors' first min(m, n) columns.
    matrix<T> Q(A.rows(), rank, order::column_major), R(rank, A.columns());
    std::copy_n(F.data(), Q.size(), Q.data());
    if (work.add(plan.orgqr(Q.view(), tau, work.now()))) {
      for (std::int64_t i = 0; i < rank; ++i)
        for (std::int64_t j = i; j < A.columns(); ++j) R(i, j) = F(i, j);
      work.count<T>({Q.data(), static_cast<std::size_t>(Q.size())});
      work.count<T>({R.data(), static_cast<std::size_t>(R.size())});
      errors found;
      std::mt19937_64 random(1);
      found.add(wanted.pivot ? in_order(A, pivots).view() : A.view(), std::as_const(Q).view(), std::as_const(R).view(), random, k_probes);
      results = found.json();
      lines.push_back(found.line());
      if (wanted.pivot) {
        lines.push_back("columns in the order of their pivots:" + list_of(pivots));
        if (pivots.size() <= 10000) results["pivots"] = pivots;
      }
      if (!wanted.q.empty()) work.write(wanted.q, array_of(Q));
      if (!wanted.r.empty()) work.write(wanted.r, array_of(R));
    }
  }
  return work.finish(results, lines);
}

// A batch: the array as `count` matrices, batch × m × n. They are stored contiguously, each in column-major order.
template <class T>
struct matrices {
  std::int64_t count = 0, rows = 0, columns = 0;
  std::vector<T> values;

  matrices(std::int64_t many, std::int64_t m, std::int64_t n)
      : count(many), rows(m), columns(n), values(static_cast<std::size_t>(many * m * n)) {}
  matrix_batch_view<T> view() { return batch_of(column_major(values.data(), rows, columns), count); }
  matrix_batch_view<const T> view() const { return batch_of(column_major(values.data(), rows, columns), count); }
};

template <class T>
matrices<T> matrices_of(array read, const std::string& file) {
  if (read.shape.size() != 3 || read.size() == 0)
    throw invalid_argument_error(
        fmt::format("{}: expected matrices with elements (3 axes), got shape {}", printable(file), to_string(read.shape)));
  matrices<T> made(read.shape[0], read.shape[1], read.shape[2]);
  const auto strides = read.strides();
  const std::vector<T> values = std::move(read).as<T>();
  const matrix_batch_view<const T> from{values.data(), made.count, made.rows, made.columns, strides[1], strides[2], strides[0]};
  const matrix_batch_view<T> to = made.view();
  for (std::int64_t b = 0; b < made.count; ++b)
    for (std::int64_t j = 0; j < made.columns; ++j)
      for (std::int64_t i = 0; i < made.rows; ++i) to[b](i, j) = from[b](i, j);
  return made;
}

using tools::array_of;  // beside the one for a batch

template <class T>
array array_of(const matrices<T>& value) {
  array made{{value.count, value.rows, value.columns}, false, std::vector<T>(value.values.size())};
  T* to = std::get<std::vector<T>>(made.values).data();
  const matrix_batch_view<const T> from = value.view();
  for (std::int64_t b = 0; b < value.count; ++b)
    for (std::int64_t i = 0; i < value.rows; ++i)
      for (std::int64_t j = 0; j < value.columns; ++j) *to++ = from[b](i, j);
  return made;
}

template <class T>
int run_qr_batch(const qr_options& wanted, array read) {
  invocation work(wanted, "qr");
  if (!wanted.q.empty()) work.reserve(wanted.q, 3);
  if (!wanted.r.empty()) work.reserve(wanted.r, 3);
  const matrices<T> A = matrices_of<T>(std::move(read), wanted.input);
  const std::int64_t m = A.rows, n = A.columns, rank = std::min(m, n);
  matrices<T> F = A;
  std::vector<T> tau(static_cast<std::size_t>(rank * A.count));
  nlohmann::ordered_json results;
  std::vector<std::string> lines;
  const qr::plan<T> plan = plan_for<T>(wanted, work, m, n, A.count);
  if (work.add(plan.geqrf(F.view(), tau, work.now()))) {
    matrices<T> Q(A.count, m, rank), R(A.count, rank, n);
    for (std::int64_t b = 0; b < A.count; ++b) {
      for (std::int64_t j = 0; j < n; ++j) {
        for (std::int64_t i = 0; i < m && j < rank; ++i) Q.view()[b](i, j) = F.view()[b](i, j);
        for (std::int64_t i = 0; i <= std::min(j, rank - 1); ++i) R.view()[b](i, j) = F.view()[b](i, j);
      }
    }
    if (work.add(plan.orgqr(Q.view(), tau, work.now()))) {
      work.count<T>(Q.values);
      work.count<T>(R.values);
      errors found;
      std::mt19937_64 random(1);
      for (std::int64_t b = 0; b < A.count; ++b) found.add(A.view()[b], std::as_const(Q).view()[b], std::as_const(R).view()[b], random, 1);
      results = found.json();
      lines.push_back(found.line() + ", the largest of all matrices");
      if (!wanted.q.empty()) work.write(wanted.q, array_of(Q));
      if (!wanted.r.empty()) work.write(wanted.r, array_of(R));
    }
  }
  return work.finish(results, lines);
}

// Solves on one backend, X to the first rows of `solution`.
template <class T>
report solve_alone(const lstsq_options& wanted, const invocation& work, const matrix<T>& A, const matrix<T>& B, matrix<T>& solution,
                   std::int64_t& rank, std::vector<std::int64_t>& pivots) {
  matrix<T> factored = A;
  for (std::int64_t j = 0; j < B.columns(); ++j)
    for (std::int64_t i = 0; i < B.rows(); ++i) solution(i, j) = B(i, j);
  const qr::plan<T> plan = plan_for<T>(wanted, work, A.rows(), A.columns());
  if (wanted.of_any_rank()) pivots.resize(static_cast<std::size_t>(A.columns()));
  return wanted.of_any_rank() ? plan.gelsy(factored.view(), solution.view(), pivots, wanted.rcond, rank, work.now())
                              : plan.gels(factored.view(), solution.view(), work.now());
}

// The same on the devices of a list. The report has both steps.
template <class T>
report solve_on_devices(const lstsq_options& wanted, const invocation& work, const matrix<T>& A, const matrix<T>& B, matrix<T>& solution) {
  if (A.rows() < A.columns())
    throw invalid_argument_error(fmt::format("--devices: expected at least as many rows as columns, got {} × {}", A.rows(), A.columns()));
  if (wanted.of_any_rank() || wanted.any_rank) throw invalid_argument_error("--devices: expected without --rcond and --any-rank");
  const execution where = on_devices<T>(wanted.devices, work, wanted.no_tf32x3);
  report seen;
  if constexpr (!is_complex<T>) {
    const qr::row_factors<T> factors = qr::factor_rows(A.view(), where, work.now());
    seen = factors.report;
    if (seen.verdict == verdict::uncorrectable) return seen;
    const qr::computed<T> X = factors.solve(B.view(), work.now());
    seen.merge(X.report);
    seen.condition = X.report.condition;
    for (std::int64_t j = 0; j < B.columns(); ++j)
      for (std::int64_t i = 0; i < A.columns(); ++i) solution(i, j) = X.values(i, j);
  }
  return seen;
}

template <class T>
int run_lstsq(const lstsq_options& wanted, array read_a, array read_b) {
  invocation work(wanted, "lstsq");
  if (!wanted.x.empty()) work.reserve(wanted.x, 2);
  const matrix<T> A = matrix_of<T>(std::move(read_a), wanted.a);
  const matrix<T> B = matrix_of<T>(std::move(read_b), wanted.b);
  if (A.rows() != B.rows())
    throw invalid_argument_error(fmt::format("expected {} ({} rows) and {} to have as many rows, got {}", printable(wanted.a), A.rows(),
                                             printable(wanted.b), B.rows()));
  const std::int64_t m = A.rows(), n = A.columns(), p = B.columns();
  matrix<T> solution(std::max(m, n), p, order::column_major);
  std::int64_t rank = std::min(m, n);
  std::vector<std::int64_t> pivots;
  const report seen =
      wanted.devices.empty() ? solve_alone(wanted, work, A, B, solution, rank, pivots) : solve_on_devices(wanted, work, A, B, solution);
  nlohmann::ordered_json results;
  std::vector<std::string> lines;
  if (work.add(seen)) {
    matrix<T> X(n, p, order::column_major);
    nlohmann::ordered_json norms = nlohmann::ordered_json::array(), values = nlohmann::ordered_json::array();
    for (std::int64_t j = 0; j < p; ++j) {
      std::vector<wide<T>> x(static_cast<std::size_t>(n));
      nlohmann::ordered_json column = nlohmann::ordered_json::array();
      for (std::int64_t i = 0; i < n; ++i) {
        X(i, j) = solution(i, j);
        x[static_cast<std::size_t>(i)] = X(i, j);
        column.push_back(number_json(X(i, j)));
      }
      auto difference = times(A.view(), x);
      for (std::int64_t i = 0; i < m; ++i) difference[static_cast<std::size_t>(i)] -= static_cast<wide<T>>(B(i, j));
      norms.push_back(json_number(static_cast<double>(norm(difference))));
      lines.push_back(fmt::format("column {}: ‖A x − b‖ = {:.10g}", j, static_cast<double>(norm(difference))));
      if (n <= 20) {
        std::string row = "  x =";
        for (std::int64_t i = 0; i < n; ++i) row.append(" ").append(number_text(X(i, j)));
        lines.push_back(row);
      }
      values.push_back(std::move(column));
    }
    work.count<T>({X.data(), static_cast<std::size_t>(X.size())});
    results = {{"residual", norms}};
    if (wanted.of_any_rank()) {
      lines.push_back(fmt::format("rank {}, condition number of what counts about {:.3g}", rank, seen.condition));
      results["pivots"] = pivots;
    } else if (!wanted.any_rank) {
      lines.push_back(
          fmt::format("rank {}, condition number about {:.3g} ({} scaled to norm 1)", rank, seen.condition, m < n ? "rows" : "columns"));
    }
    if (wanted.of_any_rank() || !wanted.any_rank) {
      results["rank"] = rank;
      results["condition"] = json_number(seen.condition);
    }
    if (n * p <= 10000) results["x"] = values;  // a list for each right-hand side; larger results need -o
    if (!wanted.x.empty()) work.write(wanted.x, array_of(X));
  }
  return work.finish(results, lines);
}

template <class T>
int run_lstsq_batch(const lstsq_options& wanted, array read_a, array read_b) {
  invocation work(wanted, "lstsq");
  if (!wanted.x.empty()) work.reserve(wanted.x, 3);
  const matrices<T> A = matrices_of<T>(std::move(read_a), wanted.a), B = matrices_of<T>(std::move(read_b), wanted.b);
  if (A.count != B.count || A.rows != B.rows)
    throw invalid_argument_error(fmt::format("expected {} ({} matrices of {} rows) and {} to have as many, got {} of {}",
                                             printable(wanted.a), A.count, A.rows, printable(wanted.b), B.count, B.rows));
  const std::int64_t m = A.rows, n = A.columns, p = B.columns;
  matrices<T> factored = A, solution(A.count, std::max(m, n), p), X(A.count, n, p);
  for (std::int64_t b = 0; b < A.count; ++b)
    for (std::int64_t j = 0; j < p; ++j)
      for (std::int64_t i = 0; i < m; ++i) solution.view()[b](i, j) = B.view()[b](i, j);
  nlohmann::ordered_json results;
  std::vector<std::string> lines;
  if (work.add(plan_for<T>(wanted, work, m, n, A.count).gels(factored.view(), solution.view(), work.now()))) {
    nlohmann::ordered_json norms = nlohmann::ordered_json::array();
    long double most = 0;
    for (std::int64_t b = 0; b < A.count; ++b) {
      nlohmann::ordered_json own = nlohmann::ordered_json::array();
      for (std::int64_t j = 0; j < p; ++j) {
        std::vector<wide<T>> x(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = X.view()[b](i, j) = solution.view()[b](i, j);
        auto difference = times(A.view()[b], x);
        for (std::int64_t i = 0; i < m; ++i) difference[static_cast<std::size_t>(i)] -= static_cast<wide<T>>(B.view()[b](i, j));
        const long double size = norm(difference);
        if (!(size <= most)) most = size;
        own.push_back(json_number(static_cast<double>(size)));
      }
      norms.push_back(std::move(own));
    }
    work.count<T>(X.values);
    lines.push_back(fmt::format("‖A x − b‖ ≤ {:.10g} for each of {} matrices", static_cast<double>(most), A.count));
    if (A.count * p <= 10000) results = {{"residual", norms}};  // for each matrix, a list over the right-hand sides
    if (!wanted.x.empty()) work.write(wanted.x, array_of(X));
  }
  return work.finish(results, lines);
}

constexpr const char* k_schemes =
    "Complex numbers: Q is unitary, R has a real diagonal; one complex matrix takes cuda only with --backend cuda.\n"
    "Schemes: block_checksum (default), qr_update (one pair of checksum columns, recovery by QR update), hybrid (the same on a GPU with "
    "its\n"
    "panels on the processor, --backend cuda).";

constexpr const char* k_devices =
    "numbers of CUDA devices, such as 0,1, that share one matrix of real numbers: the rows of a tall one, the block columns of others";
constexpr const char* k_block =
    "with --devices: divide by blocks of so many columns, 1 to 1024; default for matrices that are not tall: up to 512";

constexpr const char* k_no_tf32x3 = "on a Hopper GPU, multiply large f32 matrices in FP32, not as three products of TF32";

}  // namespace

void add_qr(command_line& program, const ranks& together) {
  auto wanted = std::make_shared<qr_options>();
  command_line& command = program.subcommand(
      "qr", together.several() ? "Factor INPUT (m × n) into Q R on the ranks" : "Factor INPUT (m × n, or a batch × m × n) into Q R");
  command.operand("INPUT", wanted->input, ".npy, .csv or .tsv, real or complex; - is standard input");
  command.text("--q", wanted->q, "write Q, m × min(m, n), or one for each of a batch (.npy)");
  command.text("--r", wanted->r, "write R, min(m, n) × n, or one for each of a batch (.npy)");
  command.flag("--pivot", wanted->pivot,
               "bring the columns of INPUT (one matrix) in an order in which R's diagonal falls, as LAPACK's xGEQP3, and print it; the\n"
               "backend chooses the order, the host where a device's memory does not suffice");
  command.text("--devices", wanted->devices, k_devices);
  if (together.several()) {
    command.text("--grid", wanted->grid,
                 "factor on a grid of so many rows and columns of ranks, such as 2x3, in ScaLAPACK's layout; default: by block columns");
    command.integer("--block", wanted->block,
                    "columns of a block, 1 to 96, of which the ranks have one after the other; with --grid rows and columns of a block,\n"
                    "best 32 to 96 or a multiple; default 64",
                    std::int64_t{1});
  } else {
    command.integer("--block", wanted->block, k_block, std::int64_t{1});
  }
  wanted->files->add_to(command);
  wanted->add_to(command);
  command.flag("--no-tf32x3", wanted->no_tf32x3, k_no_tf32x3);
  command.footer(k_schemes);
  command.action([wanted, together] {
    if (together.several()) {
      wanted->together = together;
      if (wanted->pivot || !wanted->devices.empty())
        throw invalid_argument_error(
            fmt::format("{}: expected a call without ranks, got one on ranks", wanted->pivot ? "--pivot" : "--devices"));
      ranks_options how;
      how.input = wanted->input;
      if (wanted->block > 0) how.block = wanted->block;
      if (!wanted->grid.empty()) {
        how.grid = grid_of(wanted->grid, together.group.size());
        how.block = std::min<std::int64_t>(how.block, std::numeric_limits<int>::max());  // no matrix is larger
      }
      wanted->files->read_part(how.part(together.group));
      if (together.group.rank() == 0) {
        how.q = wanted->q;
        how.r = wanted->r;
      } else {
        wanted->events.clear();
        wanted->quiet = true;
      }
      array read = wanted->files->operand(wanted->input);
      return with_type(*wanted, read.is_complex(), read.is_double(),
                       [&]<class T>(T) { return run_qr_on_ranks<T>(*wanted, how, std::move(read)); });
    }
    if (wanted->block > 0 && wanted->devices.empty()) throw invalid_argument_error("--block: expected with --devices, got it alone");
    array read = wanted->files->operand(wanted->input);
    if (read.shape.size() == 3 && wanted->pivot)
      throw invalid_argument_error(fmt::format("{}: expected one matrix for --pivot, got a batch", printable(wanted->input)));
    if (!wanted->devices.empty() && (read.shape.size() == 3 || wanted->pivot))
      throw invalid_argument_error(
          fmt::format("--devices: expected one matrix without --pivot, got {}", wanted->pivot ? "--pivot" : "a batch"));
    return with_type(*wanted, read.is_complex(), read.is_double(), [&]<class T>(T) {
      return read.shape.size() == 3 ? run_qr_batch<T>(*wanted, std::move(read)) : run_qr<T>(*wanted, std::move(read));
    });
  });
}

void add_lstsq(command_line& program) {
  auto wanted = std::make_shared<lstsq_options>();
  command_line& command =
      program.subcommand("lstsq", "Solve min ‖B − A X‖ by columns (m ≥ n), or find the X of least norm with A X = B (m < n)");
  command.operand("A", wanted->a, ".npy, .csv or .tsv, real or complex, m × n, or a batch × m × n; - is standard input");
  command.operand("B", wanted->b, ".npy, .csv or .tsv, m × right-hand sides, or a batch of them");
  command.text("-o,--output", wanted->x, "write X, n × right-hand sides, or one for each of a batch (.npy)");
  command.text("--devices", wanted->devices, "numbers of CUDA devices that share the rows of one tall matrix, such as 0,1");
  wanted->files->add_to(command, true);
  wanted->add_to(command);
  command.flag("--any-rank", wanted->any_rank,
               "solve even if columns of A depend on each other to rounding; refuse only an exact zero on R's diagonal");
  command.number(
      "--rcond", wanted->rcond,
      "solve for A (one matrix) of any rank, with the X of least norm: R's part with a condition number below 1 / RCOND counts;\n"
      "negative: NumPy's limit");
  command.flag("--no-tf32x3", wanted->no_tf32x3, k_no_tf32x3);
  command.footer(k_schemes);
  command.action([wanted] {
    array a = wanted->files->operand(wanted->a), b = wanted->files->second_operand(wanted->b);
    inputs::keep_common_rows(a, b);
    if (a.shape.size() == 3 && wanted->of_any_rank())
      throw invalid_argument_error(fmt::format("{}: expected one matrix for --rcond, got a batch", printable(wanted->a)));
    if (a.shape.size() == 3 && !wanted->devices.empty()) throw invalid_argument_error("--devices: expected one matrix, got a batch");
    return with_type(*wanted, a.is_complex() || b.is_complex(), a.is_double() || b.is_double(), [&]<class T>(T) {
      return a.shape.size() == 3 ? run_lstsq_batch<T>(*wanted, std::move(a), std::move(b))
                                 : run_lstsq<T>(*wanted, std::move(a), std::move(b));
    });
  });
}

}  // namespace ballast::tools
