// The CUDA backend of QR: operands, memory, copies, triangular solves.
// Layer: backend "cuda" of QR. Implements engine<S>.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "abft/seal.hpp"
#include "core/memory.hpp"
#include "cuda/memory/device_staging.hpp"
#include "qr/cuda/engine/applier.hpp"
#include "qr/cuda/engine/choice.hpp"
#include "qr/cuda/engine/factorizer.hpp"
#include "qr/cuda/engine/hybrid.hpp"
#include "qr/host/columns.hpp"
#include "qr/sites.hpp"

namespace ballast::qr::cuda {

namespace {

template <class S>
class device_engine final : public engine<S> {
 public:
  explicit device_engine(const context& run) : on_(run), staging_(on_.device(), on_.main()) {}

  void wait() override { on_.wait(); }

  matrix_view<const S> read(const matrix_view<const S>& operand) override { return staging_.read(operand); }
  std::span<const S> read(std::span<const S> operand) override {
    if (operand.empty()) return operand;
    return {static_cast<const S*>(staging_.read(operand.data(), static_cast<index>(operand.size_bytes()))), operand.size()};
  }
  matrix_view<S> write(const matrix_view<S>& operand) override { return staging_.write(operand); }
  std::span<S> write(std::span<S> operand) override {
    if (operand.empty()) return operand;
    return {static_cast<S*>(staging_.write(operand.data(), static_cast<index>(operand.size_bytes()), true)), operand.size()};
  }
  void commit() override { staging_.commit(); }

  bool works_on(const matrix_view<const S>& v) const override {
    return v.row_stride == 1 && v.column_stride >= std::max<index>(v.rows, 1) && (v.data == nullptr || on_.device()->accessible(v.data));
  }

  std::shared_ptr<S> allocate(index elements) override {
    const auto made =
        std::allocate_shared<ballast::cuda::device_buffer>(core::pooled_allocator<S>(), on_.template allocate_of<S>(elements));
    return {made, static_cast<S*>(made->data())};
  }

  void copy(const matrix_view<const S>& from, const matrix_view<S>& to) override { copy_scaled(from, to, nullptr, nullptr); }

  void copy_scaled(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns) override {
    copy_then(from, to, rows, columns, {}, [](const copy_arguments<S>&) {});
  }

  index copy_checked(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns,
                     bool checked) override {
    return copy_compared(from, to, rows, columns, {}, checked);
  }
  index conjugate_checked(const matrix_view<const S>& from, const matrix_view<S>& to, bool upper, bool checked) override {
    return copy_compared(from, to, nullptr, nullptr, {is_complex<S>, upper}, checked);
  }
  struct copy_form {
    bool conjugated = false;
    bool triangle = false;
  };
  index copy_compared(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns, copy_form how,
                      bool checked) {
    constexpr long long none = std::numeric_limits<long long>::max();
    long long first = none;
    copy_then(from, to, rows, columns, how, [&](const copy_arguments<S>& made) {
      strike_stored(made);
      if (!checked) return;
      const ballast::cuda::device_buffer differs = on_.upload(&first, 1);
      on_.launch(work::compare, tiles(made.rows, made.columns), compare_arguments<S>{made, static_cast<long long*>(differs.data())});
      on_.template fetch<long long>(differs.data(), 1, [&first](const long long* seen) { first = *seen; });
      on_.wait();
    });
    return first == none ? -1 : static_cast<index>(first);
  }

  void exponents(const matrix_view<const S>& X, bool upper, const int* rows, int* columns) override {
    constexpr index least = 4096;  // rows of a chunk
    const index all = 2 * on_.device()->about().multiprocessors;
    const index chunks = std::clamp<index>(all / std::max<index>(X.columns, 1), 1, std::max<index>(1, X.rows / least));
    const ballast::cuda::device_buffer row_shifts = rows != nullptr ? on_.upload(rows, X.rows) : ballast::cuda::device_buffer();
    const ballast::cuda::device_buffer to = on_.template allocate_of<int>(X.columns * chunks);
    on_.launch(work::exponents, X.columns * chunks,
               exponents_arguments<S>{X.data, X.row_stride, X.column_stride, X.rows, upper, static_cast<const int*>(row_shifts.data()),
                                      chunks, static_cast<int*>(to.data())});
    on_.template fetch<int>(to.data(), X.columns * chunks, [columns, chunks, n = X.columns](const int* made) {
      for (index j = 0; j < n; ++j) columns[j] = *std::max_element(made + j * chunks, made + (j + 1) * chunks);
    });
  }

  void column_sizes(const matrix_view<const S>& R, column_size* sizes) override {
    const index n = R.columns;
    const ballast::cuda::device_buffer memory = on_.template allocate_of<column_result>(n);
    auto* const to = static_cast<column_result*>(memory.data());
    on_.scan(scan_arguments<S>{.X = R.data, .ld = R.column_stride, .rows = n, .first = 0, .upper = true, .lower = false, .to = to}, n,
             on_.main());
    on_.fetch_sizes(to, n, sizes);
  }

  // A call on a matrix in the device's memory needs three more of its size. Panels of reflectors, their images and scratch memory take up
  // to k_row_bytes bytes for each row.
  index resident_columns(const void* operand, index rows, index columns) const override {
    if (operand == nullptr || on_.run().hybrid || on_.device()->accessible(operand)) return columns;
    constexpr index k_row_bytes = 24 << 10;
    const index column = rows * static_cast<index>(sizeof(S)), available = on_.device()->available_memory() / 10 * 9 - rows * k_row_bytes;
    const index fits = available / (4 * column);
    // A piece must be wider than a usual panel. Without room for that, the allocation fails with its own message.
    return 3 * columns <= 4 * fits || fits < k_most_wide / 2 ? columns : fits / (k_most_wide / 2) * (k_most_wide / 2);
  }

  std::uint64_t hash(const matrix_view<const S>& X) override { return on_.hash(X.data, X.column_stride, X.rows, X.columns); }
  void strike(inject::site where, const inject::position& here, const matrix_view<S>& X) override {
    on_.strike(where, here, X.data, X.rows);
  }

  double encode_columns(const matrix_view<const S>& A, index first, double* weights, S* c) override {
    core::vector<column_size> sizes(static_cast<std::size_t>(A.columns));
    const ballast::cuda::device_buffer memory = on_.template allocate_of<column_result>(A.columns);
    auto* const to = static_cast<column_result*>(memory.data());
    on_.scan(scan_arguments<S>{A.data, A.column_stride, A.rows, 0, false, false, to}, A.columns, on_.main());
    on_.fetch_sizes(to, A.columns, sizes.data());
    on_.wait();
    const double squares = host::weights_of_columns<S>(sizes, first, weights);
    if (!std::isfinite(squares)) {
      on_.device()->zero(c, A.rows * static_cast<index>(sizeof(S)), on_.main());
      return squares;
    }
    return std::sqrt(squares) + weigh_columns(A, -1, weights, nullptr, c);
  }

  double residual_of_columns(const matrix_view<const S>& A, index panel, const double* weights, const S* c) override {
    return weigh_columns(A, panel, weights, c, nullptr);
  }

  // With too little memory, and where the textbook's choice is asked for, the host chooses.
  void choose_pivots(const matrix_view<const S>& A, std::span<index> order, bool plainly) override {
    if (plainly || !chooses<S>(on_, A.rows, A.columns)) {
      core::aligned_buffer<S> memory(core::checked_product(A.rows, A.columns));
      const matrix_view<S> there = column_major(memory.data(), A.rows, A.columns, std::max<index>(A.rows, 1));
      copy(A, there);
      on_.wait();
      return host::choose_pivots<S>(on_.run(), there, order, plainly);
    }
    if (works_on(A)) return cuda::choose_pivots<S>(on_, A, order);
    const std::shared_ptr<S> memory = allocate(core::checked_product(A.rows, A.columns));
    const matrix_view<S> by_columns = column_major(memory.get(), A.rows, A.columns, std::max<index>(A.rows, 1));
    copy(A, by_columns);
    cuda::choose_pivots<S>(on_, by_columns, order);
  }

  void permute_columns(const matrix_view<const S>& A, std::span<const index> order, const matrix_view<S>& P) override {
    const ballast::cuda::device_buffer by = on_.upload(order.data(), static_cast<index>(order.size()));
    const copy_arguments<S> made = in_order(A, by, P);
    on_.launch(work::copy, tiles(P.rows, P.columns), made);
    strike_stored(made);
  }

  index first_moved(const matrix_view<const S>& A, std::span<const index> order, const matrix_view<const S>& P) override {
    constexpr long long none = std::numeric_limits<long long>::max();
    long long first = none;
    const ballast::cuda::device_buffer by = on_.upload(order.data(), static_cast<index>(order.size())), differs = on_.upload(&first, 1);
    const matrix_view<S> made{const_cast<S*>(P.data), P.rows, P.columns, P.row_stride, P.column_stride};  // only read
    on_.launch(work::compare, tiles(P.rows, P.columns),
               compare_arguments<S>{in_order(A, by, made), static_cast<long long*>(differs.data())});
    on_.template fetch<long long>(differs.data(), 1, [&first](const long long* seen) { first = *seen; });
    on_.wait();
    return first == none ? -1 : static_cast<index>(first);
  }

  pivot_sums measure_pivots(const matrix_view<const S>& R, index m) override { return cuda::measure_pivots<S>(on_, R, m); }

  index panel_width(index rows, index steps) const override {
    if (steps <= 1) return k_inner;
    // With very many rows, only the passes over them count. A single panel needs no update, and no check of one.
    const launch_choices& choices = on_.choices();
    if (steps <= k_most_wide && rows >= choices.one_panel * steps && on_.uses_cholesky_qr(rows, steps)) return steps;
    const index widest = widest_panel(on_.device()->about()) / k_reals<S>;
    // A tall panel takes the same number of launches and passes over its rows for any width.
    if (steps >= choices.wide_steps || (steps >= choices.wide_tall_steps && on_.uses_cholesky_qr(rows, widest)))
      return std::min((steps + 1) / 2, widest);
    const index wanted = steps >= choices.medium_steps || on_.uses_cholesky_qr(rows, 64) ? 64 : k_inner;
    return std::min((steps + 1) / 2, wanted);
  }

  std::unique_ptr<factorizer<S>> make_factorizer(const layout& shape, const matrix_view<S>& A, S* tau,
                                                 const matrix_view<const S>& source) override {
    if (on_.run().hybrid) return std::make_unique<hybrid_factorizer<S>>(on_, shape, A, tau, source);
    return std::make_unique<device_factorizer<S>>(on_, shape, A, tau, source);
  }

  std::unique_ptr<applier<S>> make_applier(const matrix_view<const S>& V, const S* tau) override {
    return std::make_unique<device_applier<S>>(on_, V, tau);
  }

  void solve(bool transposed, const matrix_view<const S>& U, const matrix_view<const S>& B, const matrix_view<S>& X, index width,
             solve_sums* seen) override {
    const index n = U.rows, k = B.columns;
    copy(B, X);
    // BLAS libraries multiply by reciprocals of the diagonal. The reciprocal of a number below this is Inf.
    constexpr double smallest = sizeof(real_of<S>) == 4 ? 0x1p-120 : 0x1p-1000;
    if (look_at_diagonal(U, smallest)[1] == 0) {
      for (index first = 0; first < k; first += width)
        on_.blas(on_.main())
            .trsm('L', 'U', transposed ? k_adjoint<S> : 'N', 'N', n, std::min(width, k - first), S(1), U.data, U.column_stride,
                  X.data + first * X.column_stride, X.column_stride);
    } else {
      const ballast::cuda::device_buffer rest = on_.template allocate_of<wide_of<S>>(core::checked_product(n, k));
      on_.launch(
          work::solve, k,
          solve_arguments<S>{U.data, U.column_stride, n, transposed, X.data, X.column_stride, static_cast<wide_of<S>*>(rest.data())});
    }
    if (seen == nullptr) return;
    const index chunks = solve_chunks(n);
    const ballast::cuda::device_buffer results = on_.template allocate_of<solve_result>(core::checked_product(k, chunks));
    auto* const to = static_cast<solve_result*>(results.data());
    on_.launch(work::solve_check, k * chunks,
               solve_check_arguments<S>{U.data, U.column_stride, n, transposed, X.data, X.column_stride, B.data, B.row_stride,
                                        B.column_stride, to});
    on_.template fetch<solve_result>(to, k * chunks, [seen, k, chunks, width](const solve_result* made) {
      for (index e = 0; e < k * chunks; ++e) {
        const index c = e / chunks;
        const solve_result& own = made[e];
        solve_sums& block = seen[c / width];
        if (c % width == 0 && e % chunks == 0) block = {};
        block.bits = abft::chained(block.bits, own.bits) | 1;
        block.odd |= own.finite == 0;
        if (own.finite == 0 || own.residual / own.threshold <= block.residual / block.threshold) continue;
        block.residual = own.residual;
        block.threshold = own.threshold;
        block.column = c % width;
      }
    });
  }

  index zero_on_diagonal(const matrix_view<const S>& R) override { return look_at_diagonal(R, 0)[0]; }

 private:
  void strike_stored(const copy_arguments<S>& made) {
    for (index j = 0; j < made.columns && on_.armed(site::store); ++j) {
      for (index i = 0; i < made.rows; ++i)
        on_.strike(site::store, {i + j * made.rows, made.rows * made.columns, 0, 1}, made.to + i * made.to_row + j * made.to_column, 1);
    }
  }

  static copy_arguments<S> in_order(const matrix_view<const S>& A, const ballast::cuda::device_buffer& order, const matrix_view<S>& P) {
    copy_arguments<S> made{A.data, A.row_stride, A.column_stride, P.data, P.row_stride, P.column_stride, P.rows, P.columns, P.rows,
                           0,      nullptr,      nullptr,         1,      false};
    made.order = static_cast<const index*>(order.data());
    return made;
  }

  // Copies, and calls then(copy) before a copy for the host returns there.
  template <class Then>
  void copy_then(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns, copy_form how,
                 Then&& then) {
    if (to.rows == 0 || to.columns == 0) return;
    // Either side may lie on the host.
    ballast::cuda::device_staging sides(on_.device(), on_.main());
    const matrix_view<const S> source = sides.read(from.block(0, 0, to.rows, to.columns));
    const matrix_view<S> target = sides.write(to);
    const ballast::cuda::device_buffer row_shifts = rows != nullptr ? on_.upload(rows, to.rows) : ballast::cuda::device_buffer();
    const ballast::cuda::device_buffer column_shifts =
        columns != nullptr ? on_.upload(columns, to.columns) : ballast::cuda::device_buffer();
    const copy_arguments<S> made{source.data,
                                 source.row_stride,
                                 source.column_stride,
                                 target.data,
                                 target.row_stride,
                                 target.column_stride,
                                 to.rows,
                                 to.columns,
                                 to.rows,
                                 0,
                                 static_cast<const int*>(row_shifts.data()),
                                 static_cast<const int*>(column_shifts.data()),
                                 1,
                                 false,
                                 how.conjugated,
                                 nullptr,
                                 how.triangle};
    on_.launch(work::copy, tiles(to.rows, to.columns), made);
    then(made);
    sides.commit();
  }

  // Computes A d, or init − A d, to `to` if that is not null, and returns its norm. `panel`: as in residual_of_columns().
  double weigh_columns(const matrix_view<const S>& A, index panel, const double* weights, const S* init, S* to) {
    const ballast::cuda::device_buffer d = on_.upload(weights, A.columns);
    const ballast::cuda::device_buffer sums = on_.template allocate_of<double>(row_blocks(A.rows) + 1);
    double* const squares = static_cast<double*>(sums.data());
    // The kernel takes the diagonal of a block from the number of its first column, so the block gets that number: the columns before it do
    // not exist and are not read.
    const index first = std::max<index>(panel, 0), width = first > 0 ? first : A.columns;
    on_.launch(work::weigh, row_blocks(A.rows),
               weigh_arguments<S>{.X = A.data - first * A.column_stride,
                                  .row_stride = 1,
                                  .column_stride = A.column_stride,
                                  .rows = A.rows,
                                  .blocks = {first + A.columns, first + A.columns, static_cast<int>(width)},
                                  .first_block = first > 0 ? 1 : 0,
                                  .chunks = 1,
                                  .r = panel >= 0,
                                  .z = static_cast<const double*>(d.data()) - first,
                                  .ldz = A.columns,
                                  .count = 1,
                                  .init = init,
                                  .ldi = A.rows,
                                  .to_column = to,
                                  .squares = squares});
    on_.launch(work::norm, 1, norm_arguments{squares, row_blocks(A.rows), 1, squares + row_blocks(A.rows)});
    double norm = 0;
    on_.template fetch<double>(squares + row_blocks(A.rows), 1, [&norm](const double* made) { norm = *made; });
    on_.wait();
    return norm;
  }

  // Returns the index of the first zero, −1 if there is none; and 1 if a number is smaller than `small`, else 0.
  std::array<long long, 2> look_at_diagonal(const matrix_view<const S>& R, double small) {
    const ballast::cuda::device_buffer to = on_.template allocate_of<long long>(2);
    std::array<long long, 2> made{};
    on_.launch(work::diagonal, 1, diagonal_arguments<S>{R.data, R.column_stride, R.columns, small, static_cast<long long*>(to.data())});
    on_.template fetch<long long>(to.data(), 2, [&made](const long long* seen) { std::copy_n(seen, 2, made.begin()); });
    on_.wait();
    return made;
  }

  session<S> on_;
  ballast::cuda::device_staging staging_;
};

}  // namespace

template <class S>
std::unique_ptr<engine<S>> make_engine(const context& run) {
  return std::make_unique<device_engine<S>>(run);
}

template std::unique_ptr<engine<float>> make_engine<float>(const context& run);
template std::unique_ptr<engine<double>> make_engine<double>(const context& run);
template std::unique_ptr<engine<std::complex<float>>> make_engine<std::complex<float>>(const context& run);
template std::unique_ptr<engine<std::complex<double>>> make_engine<std::complex<double>>(const context& run);

}  // namespace ballast::qr::cuda
