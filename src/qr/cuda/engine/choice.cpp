// The choice of the pivots on a device: rounds of Cholesky with pivoting, and the projection between two rounds.
// Layer: backend "cuda" of QR. See choice.hpp.
#include "qr/cuda/engine/choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/at.hpp"
#include "cuda/call/faults.hpp"
#include "qr/cuda/kernels/choice_kernels.hpp"

namespace ballast::qr::cuda {

using core::at;

namespace {

constexpr int k_apart = 450;  // exponents of two apart: the square of a column is nothing beside the other's

// A matrix in double that the choice owns.
template <class Wide>
struct wide_matrix {
  wide_matrix() = default;
  template <class S>
  wide_matrix(const session<S>& on, index r, index c)
      : memory(on.template allocate_of<Wide>(core::checked_product(r, c))), data(static_cast<Wide*>(memory.data())), rows(r), columns(c) {}
  ballast::cuda::device_buffer memory;
  Wide* data = nullptr;
  index rows = 0, columns = 0;
};

template <class S>
class device_choice {
 public:
  using Wide = wide_of<S>;
  using matrix = wide_matrix<Wide>;
  using list = core::vector<std::int32_t>;

  device_choice(session<S>& on, const matrix_view<const S>& A, std::span<index> order)
      : on_(on),
        blas_(on.blas(on.main())),
        faults_(on.faults()),
        A_(A),
        steps_(std::min(A.rows, A.columns)),
        order_(order),
        place_(order.size()),
        columns_(order.size()),
        exponents_(order.size(), 0) {
    std::iota(order.begin(), order.end(), index{0});
    std::iota(place_.begin(), place_.end(), index{0});
    std::iota(columns_.begin(), columns_.end(), index{0});
  }

  void run() {
    while (count_ < steps_ && begin_round()) {
      choose();
      if (made_.empty() || count_ >= steps_) return;
      project();
    }
  }

 private:
  template <class Arguments>
  void launch(const ballast::cuda::kernel_request& what, index blocks, const Arguments& given) {
    on_.device()->launch(on_.device()->load(what), blocks, &given, sizeof given, on_.main());
  }

  // to ← the rows and columns of `from` in these lists, times 2^−shifts; null: all of them, no shifts.
  template <class From>
  void gather(const From* from, index ld, index rows, index columns, const void* row_list, const void* column_list, const void* shifts,
              Wide* to) {
    launch(choice_names<From>::gather(), slabs(rows) * columns,
           gather_arguments<From>{from, ld, rows, columns, static_cast<const std::int32_t*>(row_list),
                                  static_cast<const std::int32_t*>(column_list), static_cast<const std::int32_t*>(shifts), to, rows});
  }

  // Brings the remaining columns to norms near 1. Returns false if all of them are zero.
  bool begin_round() {
    const index m = A_.rows, n = static_cast<index>(columns_.size());
    const ballast::cuda::device_buffer sizes = on_.template allocate_of<column_result>(n);
    auto* const to = static_cast<column_result*>(sizes.data());
    const bool first = W_.data == nullptr;
    if (first) {
      on_.template scan<S>({.X = A_.data, .ld = A_.column_stride, .rows = m, .first = 0, .upper = false, .lower = false, .to = to}, n,
                           on_.main());
    } else {
      on_.template scan<Wide>({.X = W_.data, .ld = m, .rows = m, .first = 0, .upper = false, .lower = false, .to = to}, n, on_.main());
    }
    core::vector<column_size> seen(at(n));
    on_.fetch_sizes(to, n, seen.data());
    on_.wait();
    list shifts(at(n));
    int most = std::numeric_limits<int>::min();
    for (index c = 0; c < n; ++c) {
      shifts[at(c)] = seen[at(c)].norm > 0 ? seen[at(c)].exponent + 1 : 0;
      exponents_[at(c)] += shifts[at(c)];
      if (seen[at(c)].norm > 0) most = std::max(most, exponents_[at(c)]);
    }
    if (most == std::numeric_limits<int>::min()) return false;
    numbers_.resize(at(3 * n));
    for (index c = 0; c < n; ++c) {
      const double square = seen[at(c)].norm * seen[at(c)].norm / 4;
      const bool counts = square > 0 && exponents_[at(c)] - most >= -k_apart;
      const double scale = counts ? std::ldexp(1.0, 2 * (exponents_[at(c)] - most)) : 0;
      numbers_[at(c)] = square;
      numbers_[at(n + c)] = scale;
      numbers_[at(2 * n + c)] = square * scale;
    }
    const ballast::cuda::device_buffer by = on_.upload(shifts.data(), n);
    if (first) {
      W_ = matrix(on_, m, n);
      gather<S>(A_.data, A_.column_stride, m, n, nullptr, nullptr, by.data(), W_.data);
    } else {
      gather<Wide>(W_.data, m, m, n, nullptr, nullptr, by.data(), W_.data);
    }
    return true;
  }

  // The cluster that chooses among n columns.
  int cluster_for(index n) {
    if (n <= k_choice_alone || on_.device()->about().major < 9) return 0;
    for (int which = k_choice_cluster_count - 1; which > 0; --which) {
      const ballast::cuda::kernel& each = on_.device()->load(choice_names<S>::choose(which, faults_.armed()));
      if (on_.device()->resident_blocks(each) >= k_choice_clusters[which].blocks) return which;
    }
    return 0;
  }

  // One round: `made_` receives the pivots as columns of W, in their order.
  void choose() {
    const index m = A_.rows, n = W_.columns, most = std::min(steps_ - count_, n);
    G_ = matrix(on_, n, n);
    L_ = matrix(on_, n, most);
    blas_.gemm(k_adjoint<Wide>, 'N', n, n, m, Wide(1), W_.data, m, W_.data, m, Wide(0), G_.data, n);
    const ballast::cuda::device_buffer numbers = on_.upload(numbers_.data(), 3 * n);
    const ballast::cuda::device_buffer results = on_.template allocate_of<std::int32_t>(most + 2);
    on_.device()->zero(results.data(), (most + 2) * static_cast<index>(sizeof(std::int32_t)), on_.main());
    auto* const state = static_cast<std::int32_t*>(results.data());
    auto* const rest = static_cast<double*>(numbers.data());
    const int which = cluster_for(n);
    const index blocks = k_choice_clusters[which].blocks;
    const ballast::cuda::kernel& kernel = on_.device()->load(choice_names<S>::choose(which, faults_.armed()));
    for (index before = 0; before < most; before += k_choice_block) {
      const index width = std::min<index>(k_choice_block, most - before);
      Wide* const L = L_.data + before * n;
      const choice_arguments<Wide> given{.G = G_.data,
                                         .n = n,
                                         .L = L,
                                         .count = static_cast<int>(width),
                                         .before = before,
                                         .rest = rest,
                                         .scale = rest + n,
                                         .initial = rest + 2 * n,
                                         .order = state + 2,
                                         .state = state,
                                         .slab = (n + blocks - 1) / blocks,
                                         .chosen = count_,
                                         .steps = steps_};
      ballast::cuda::launch(*on_.device(), kernel, blocks, given, faults_, on_.main());
      if (before + width < most) blas_.gemm('N', k_adjoint<Wide>, n, n, width, Wide(-1), L, n, L, n, Wide(1), G_.data, n);
    }
    on_.template fetch<std::int32_t>(state, most + 2, [&](const std::int32_t* seen) {
      made_.clear();
      for (index k = 0; k < std::min<index>(seen[0], most); ++k) made_.push_back(seen[2 + k]);
    });
    on_.wait();
    // Numbers that are no columns must not become addresses. The check of R finds their absence.
    core::vector<bool> taken(at(n), false);
    for (std::size_t k = 0; k < made_.size(); ++k) {
      if (made_[k] < 0 || made_[k] >= n || taken[at(made_[k])]) made_.resize(k);
      if (k < made_.size()) taken[at(made_[k])] = true;
    }
    for (const std::int32_t c : made_) take(columns_[at(c)]);
    others_.clear();
    for (index c = 0; c < n; ++c) {
      if (!taken[at(c)]) others_.push_back(static_cast<std::int32_t>(c));
    }
  }

  // Column `column` changes places with the first one that is not chosen.
  void take(index column) {
    const index from = place_[at(column)], there = order_[at(count_)];
    std::swap(order_[at(count_)], order_[at(from)]);
    place_[at(there)] = from;
    place_[at(column)] = count_++;
  }

  // Projects the pivots of the round, W1, out of the other columns W2, which become W. W1 = Q L11ᴴ and QᴴW2 = L21ᴴ, up to the rounding of
  // G; the second subtraction removes what that has left.
  void project() {
    const index m = A_.rows, n = W_.columns, c = static_cast<index>(made_.size()), r = static_cast<index>(others_.size());
    const ballast::cuda::device_buffer pivots = on_.upload(made_.data(), c), others = on_.upload(others_.data(), r);
    const matrix Q(on_, m, c), L11(on_, c, c), L21(on_, r, c), C(on_, c, r);
    matrix W2(on_, m, r);
    gather<Wide>(W_.data, m, m, c, nullptr, pivots.data(), nullptr, Q.data);
    gather<Wide>(W_.data, m, m, r, nullptr, others.data(), nullptr, W2.data);
    gather<Wide>(L_.data, n, c, c, pivots.data(), nullptr, nullptr, L11.data);
    gather<Wide>(L_.data, n, r, c, others.data(), nullptr, nullptr, L21.data);
    blas_.trsm('R', 'L', k_adjoint<Wide>, 'N', m, c, Wide(1), L11.data, c, Q.data, m);
    blas_.gemm('N', k_adjoint<Wide>, m, r, c, Wide(-1), Q.data, m, L21.data, r, Wide(1), W2.data, m);
    blas_.gemm(k_adjoint<Wide>, 'N', c, r, m, Wide(1), Q.data, m, W2.data, m, Wide(0), C.data, c);
    blas_.gemm('N', 'N', m, r, c, Wide(-1), Q.data, m, C.data, c, Wide(1), W2.data, m);
    W_ = std::move(W2);
    core::vector<index> columns;
    core::vector<int> exponents;
    for (const std::int32_t each : others_) {
      columns.push_back(columns_[at(each)]);
      exponents.push_back(exponents_[at(each)]);
    }
    columns_ = std::move(columns);
    exponents_ = std::move(exponents);
  }

  session<S>& on_;
  ballast::cuda::blas& blas_;
  const ballast::cuda::fault_list& faults_;
  const matrix_view<const S> A_;
  const index steps_;
  const std::span<index> order_;
  index count_ = 0;               // chosen columns
  core::vector<index> place_;     // the place of each column of A in the order
  core::vector<index> columns_;   // the column of A by column of W
  core::vector<int> exponents_;   // column c stands for 2^exponent_c · W(:, c)
  core::vector<double> numbers_;  // squares, 4^exponent and their products by column of W
  matrix W_, G_, L_;
  list made_, others_;
};

}  // namespace

template <class S>
bool chooses(const session<S>& on, index rows, index columns) {
  const double m = static_cast<double>(rows), n = static_cast<double>(columns), steps = std::min(m, n);
  // W twice, the columns that are projected, G, L and its parts.
  const double numbers = 3 * m * n + n * n + 3 * n * steps;
  return columns < std::numeric_limits<std::int32_t>::max() &&
         numbers * static_cast<double>(sizeof(wide_of<S>)) <= 0.8 * static_cast<double>(on.device()->available_memory());
}

template <class S>
void choose_pivots(session<S>& on, const matrix_view<const S>& A, std::span<index> order) {
  device_choice<S>(on, A, order).run();
}

template <class S>
pivot_sums measure_pivots(session<S>& on, const matrix_view<const S>& R, index m) {
  const index n = R.columns, steps = R.rows;
  const ballast::cuda::device_buffer sizes = on.template allocate_of<column_result>(n), results = on.template allocate_of<pivot_result>(n);
  auto* const of = static_cast<column_result*>(sizes.data());
  on.template scan<S>({.X = R.data, .ld = R.column_stride, .rows = steps, .first = 0, .upper = true, .lower = false, .to = of}, n,
                      on.main());
  constexpr index warps = k_threads / 32;
  const measure_pivots_arguments<S> given{
      R.data, R.column_stride, steps, n, k_reals<S> * m, of, static_cast<pivot_result*>(results.data())};
  on.device()->launch(on.device()->load(choice_names<S>::measure()), (n + warps - 1) / warps, &given, sizeof given, on.main());
  pivot_sums worst;
  on.template fetch<pivot_result>(results.data(), n, [&](const pivot_result* seen) {
    for (index j = 0; j < n && std::isfinite(worst.residual); ++j) {
      if (!(seen[j].residual * worst.threshold <= worst.residual * seen[j].threshold)) worst = {seen[j].residual, seen[j].threshold, j};
    }
  });
  on.wait();
  return worst;
}

#define BALLAST_INSTANTIATE(S)                                                                \
  template bool chooses<S>(const session<S>&, index, index);                                  \
  template void choose_pivots<S>(session<S>&, const matrix_view<const S>&, std::span<index>); \
  template pivot_sums measure_pivots<S>(session<S>&, const matrix_view<const S>&, index);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr::cuda
