// Batches of small matrices on a device: one launch for each operation, in the order of the caller's stream.
// Layer: backend "cuda" of QR. See qr/batch.hpp; the kernels are in batch.cuh.
#include "qr/batch.hpp"

#include <algorithm>
#include <complex>
#include <exception>
#include <limits>
#include <utility>

#include <ballast/error.hpp>

#include "core/extent.hpp"
#include "core/format.hpp"
#include "cuda/call/device_call.hpp"
#include "cuda/memory/device_staging.hpp"
#include "qr/cuda/engine/device_tables.hpp"
#include "qr/cuda/kernels/batch_kernels.hpp"
#include "qr/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::qr::cuda {

namespace {

constexpr std::int64_t k_front = ballast::cuda::k_ring_bytes + 256;  // the ring, and the result of solve()

// The memory of a call after the front: scratch(), and the slabs of tiles that do not fit into shared memory.
struct batch_layout {
  std::int64_t slabs = 0;  // their first byte, after the front
  std::int64_t bytes = 0;  // scratch() and slabs
};
// Complex numbers have no slabs: their tiles are in registers.
std::int64_t slab_bytes(operation what, const batch_size& size, std::int64_t number, const ballast::cuda::capabilities& on) {
  const bool factors = what == operation::geqrf || what == operation::gels, applies = what != operation::geqrf;
  const std::int64_t m = what == operation::gels ? std::max(size.m, size.n) : size.m,
                     n = what == operation::gels ? std::min(size.m, size.n) : size.n;
  std::int64_t bytes = 0;
  if (factors && batch_policy_for(batch_work::factor, m, n, on) < 0) bytes = choose_tall(batch_work::factor, m, n, number, on).slab_bytes();
  // The columns of C, or of B, are not known when a workspace is measured.
  if (applies && batch_policy_for(batch_work::apply, m, 1, on) < 0)
    bytes = std::max(bytes, choose_tall(batch_work::apply, m, k_tall_slab_columns, number, on).slab_bytes());
  return bytes;
}
template <class S>
batch_layout layout_of(operation what, const batch_size& size, index scratch_elements) {
  constexpr auto number = static_cast<std::int64_t>(sizeof(S));
  const std::int64_t scratch = scratch_elements * number;
  const std::int64_t slabs = is_complex<S> ? 0 : slab_bytes(what, size, number, ballast::cuda::current_device()->about());
  if (slabs == 0) return {scratch, scratch};
  const std::int64_t begin = ballast::cuda::aligned_bytes(scratch);
  return {begin, begin + slabs};
}

// The type of a number in the kernels.
template <class S>
struct number_of {
  using type = S;
};
template <class R>
struct number_of<std::complex<R>> {
  using type = complex_number<R>;
};
template <class S>
struct number_of<const S> {
  using type = const typename number_of<S>::type;
};
template <class S>
typename number_of<S>::type* numbers_of(S* x) {
  return reinterpret_cast<typename number_of<S>::type*>(x);
}

template <class S>
auto each_of(const matrix_batch_view<S>& v) {
  return batch_matrix<typename number_of<S>::type>{numbers_of(v.data), v.row_stride, v.column_stride, v.stride};
}

template <class S>
class device_batch final : public batch_engine<S> {
  using number = typename number_of<S>::type;  // in kernels
  using real = real_of<S>;

 public:
  device_batch(const context& run, operation what, const batch_layout& layout)
      : device_(ballast::cuda::current_device()),
        plan_(static_cast<plan_tables*>(run.device)),
        protection_(run.how.protection),
        full_rank_(run.how.full_rank),
        staging_(device_, run.how.stream),
        kept_(plan_ != nullptr && run.how.workspace.empty()),
        captured_(device_->captured(run.how.stream)),
        slabs_(layout.slabs),
        call_(device_, workspace(run, what, k_front + layout.bytes), run.injector, run.how.stream) {
    run.seen.runs_on(device_->about().name);
    if (call_.fresh()) device_->zero(call_.memory(), 256, call_.order());
  }

  // The next call of the plan may take the same workspace. It must not find uncollected events, or an uncollected singular matrix; a graph
  // that runs again may have written new ones.
  ~device_batch() override {
    if (!kept_ || (collected_ && !captured_)) return;
    try {
      if (device_->captured(call_.order())) return;
      ballast::cuda::clear_events(*device_, call_.events(), call_.order());
      device_->zero(call_.memory(), 256, call_.order());
    } catch (const std::exception&) {
      return;  // the device is lost
    }
  }

  matrix_batch_view<const S> read(const matrix_batch_view<const S>& operand) override { return staging_.read(operand); }
  std::span<const S> read(std::span<const S> operand) override {
    if (operand.empty()) return operand;
    check_alignment(operand.data());
    return {static_cast<const S*>(staging_.read(operand.data(), static_cast<std::int64_t>(operand.size_bytes()))), operand.size()};
  }
  matrix_batch_view<S> write(const matrix_batch_view<S>& operand) override { return staging_.write(operand); }
  std::span<S> write(std::span<S> operand) override {
    check_alignment(operand.data());
    const auto bytes = static_cast<std::int64_t>(operand.size_bytes());
    return {static_cast<S*>(staging_.update(operand.data(), bytes, bytes)), operand.size()};
  }
  void commit() override { staging_.commit(); }

  S* scratch(index) override { return reinterpret_cast<S*>(call_.memory() + 256); }
  void copy(const S* from, S* to, index elements) override {
    device_->copy(to, from, elements * static_cast<index>(sizeof(S)), call_.order());
  }

  bool conjugates() const override { return true; }

  void factor(const matrix_batch_view<S>& A, S* tau, bool conjugated) override {
    const int which = policy_for(batch_work::factor, A.rows, A.columns);
    batch_factor_arguments<number> given;
    given.A = each_of(A);
    given.tau = numbers_of(tau);
    given.conjugated = conjugated;
    given.events = call_.events();
    given.count = A.count;
    given.limits = {thresholds::residual<real>(1, k_reals<S> * A.rows, A.columns), thresholds::reflector<real>(k_reals<S> * A.rows)};
    given.m = static_cast<int>(A.rows);
    given.n = static_cast<int>(A.columns);
    given.repeats = repeats();
    given.stores = protection_ != protection::correct;
    if (which < 0) {
      const tall_choice tall = choose_tall(batch_work::factor, A.rows, A.columns, sizeof(S), device_->about());
      launch_tall(batch_work::factor, tall, A.count, tall_factor_arguments<number>{given, slabs_of(tall)});
    } else {
      launch(batch_work::factor, which, A.count, given);
    }
    checks_ += 2 * static_cast<std::uint64_t>(A.count);
  }

  void apply(const batch_factors<S>& Q, bool transposed, const matrix_batch_view<S>& X, index given_rows, bool identity,
             bool conjugated) override {
    const int which = policy_for(batch_work::apply, X.rows, X.columns);
    const tall_choice tall = which < 0 ? choose_tall(batch_work::apply, X.rows, X.columns, sizeof(S), device_->about()) : tall_choice{};
    const int width = which < 0 ? tall.width : batch_width(which);
    batch_apply_arguments<number> given = arguments_of(X, width);
    given.V = each_of(Q.V);
    given.V_conjugated = Q.conjugated;
    given.X_conjugated = conjugated;
    given.tau = numbers_of(Q.tau);
    given.given = static_cast<int>(given_rows);
    given.reflectors = static_cast<int>(Q.V.columns);
    given.identity = identity;
    given.ascending = transposed;
    if (identity && given.chunks > 1) {
      // Without a copy, a team would overwrite columns that others still read.
      const core::extent<const S> all = core::extent_of(Q.V);
      S* const copy = scratch(all.elements);
      device_->copy(copy, all.first, all.bytes(), call_.order());
      given.V.data = numbers_of(core::in_copy(Q.V, copy).data);
    }
    if (which < 0) {
      launch_tall(batch_work::apply, tall, X.count * given.chunks, tall_apply_arguments<number>{given, slabs_of(tall), width});
    } else {
      launch(batch_work::apply, which, X.count * given.chunks, given);
    }
    checks_ += static_cast<std::uint64_t>(X.count * given.chunks);
  }

  void solve(const matrix_batch_view<const S>& U, bool transposed, const matrix_batch_view<S>& X, bool conjugated) override {
    const int which = policy_for(batch_work::solve, X.rows, X.columns);
    batch_apply_arguments<number> given = arguments_of(X, batch_width(which));
    given.V = each_of(transposed ? U.transposed() : U);
    given.V_conjugated = transposed != conjugated;
    given.given = given.m;
    given.reflectors = given.m;
    given.ascending = transposed;
    given.singular = reinterpret_cast<std::int64_t*>(call_.memory());
    if (full_rank_) given.least_pivot = given.least_pivot_twin = thresholds::least_pivot<real>(X.rows);
    launch(batch_work::solve, which, X.count * given.chunks, given);
    checks_ += static_cast<std::uint64_t>(X.count * given.chunks);
    solved_ = X.count;
  }

  void collect(run::recorder& seen) override {
    collected_ = true;
    seen.runs_on(device_->about().name);
    if (protection_ != protection::off) seen.checked(std::exchange(checks_, 0));
    seen.add(call_.collect([](const ballast::cuda::device_event& e, ballast::cuda::event_log::entry& out) {
      static constexpr const char* sites[] = {"qr.certificate", "qr.tau", "qr.q", "qr.solve"};
      const std::uint32_t check = ballast::cuda::check_of(e.what);
      out.site = sites[std::min<std::uint32_t>(check, 3)];
      out.index = e.index;
    }));
    if (solved_ == 0) return;
    std::int64_t left = 0;  // counted from the end, so that none is 0
    device_->copy(&left, call_.memory(), sizeof left, call_.order());
    device_->zero(call_.memory(), sizeof left, call_.order());
    device_->synchronize(call_.order());
    singular_ = left == 0 ? -1 : solved_ * k_singular_columns - left;
    if (singular_ >= 0) singular_ = singular_ / k_singular_columns * k_batch_side + singular_ % k_singular_columns;
  }
  index singular() override { return singular_; }

 private:
  ballast::cuda::workspace workspace(const context& run, operation what, std::int64_t bytes) const {
    if (plan_ != nullptr) return plan_->workspace_for(device_, what, bytes, run.how.workspace, run.how.stream);
    return ballast::cuda::workspace_pool(device_, bytes).take(run.how.workspace, run.how.stream);
  }
  const ballast::cuda::kernel& kernel_of(batch_work what, int which) const {
    if (plan_ != nullptr) return plan_->batch_kernel_for<number>(device_, what, which, call_.instrumented());
    return device_->load(batch_kernel<number>(what, which, call_.instrumented()));
  }
  int policy_for(batch_work what, index m, index n) const { return batch_policy_for(what, m, n, device_->about(), is_complex<S>); }

  // A kernel loads a complex number by one instruction. The staging's memory is aligned; matrices were checked with the other arguments.
  void check_alignment(const S* scalars) const {
    if (reinterpret_cast<std::uintptr_t>(scalars) % sizeof(S) != 0 && device_->accessible(scalars))
      throw invalid_argument_error(
          fmt::format("tau: expected device memory at a multiple of {} bytes, an element's size, got another address", sizeof(S)));
  }

  int repeats() const { return protection_ == protection::off ? -1 : run::repeats_of(protection_); }

  batch_apply_arguments<number> arguments_of(const matrix_batch_view<S>& X, int width) const {
    batch_apply_arguments<number> given;
    given.X = each_of(X);
    given.from = {given.X.data, X.row_stride, X.column_stride, X.stride};
    given.events = call_.events();
    given.count = X.count;
    given.m = static_cast<int>(X.rows);
    given.n = static_cast<int>(X.columns);
    given.chunks = static_cast<int>((X.columns + width - 1) / width);
    given.repeats = repeats();
    given.stores = protection_ != protection::correct;
    return given;
  }

  template <class Arguments>
  void launch(batch_work what, int which, std::int64_t teams, const Arguments& given) const {
    const batch_policy& p = k_batch_policies[static_cast<std::size_t>(which)];
    call_.launch(kernel_of(what, which), (teams + p.matrices - 1) / p.matrices * p.blocks, given);
  }

  tall_slabs slabs_of(const tall_choice& tall) const {
    return tall.pitch == 0 ? tall_slabs{} : tall_slabs{call_.memory() + 256 + slabs_, tall.pitch};
  }
  template <class Arguments>
  void launch_tall(batch_work what, const tall_choice& tall, std::int64_t items, const Arguments& given) const {
    if constexpr (is_complex<S>) {
      throw unsupported_error("expected complex matrices that the kernels for batches hold, got larger ones");
    } else {
      const bool instrumented = call_.instrumented();
      const ballast::cuda::kernel& kernel = plan_ != nullptr
                                                ? plan_->tall_kernel_for<S>(device_, what, tall.size, instrumented)
                                                : device_->load(tall_kernel<S>(what, tall.size, device_->about(), instrumented));
      // A block of the outside size takes one item after the other, in its slab.
      const std::int64_t most = tall.pitch == 0 ? std::numeric_limits<std::int32_t>::max() : tall.slabs;
      call_.launch(kernel, std::min(items, most), given);
    }
  }

  std::shared_ptr<ballast::cuda::device> device_;
  plan_tables* const plan_;
  const protection protection_;
  const bool full_rank_;
  ballast::cuda::device_staging staging_;
  const bool kept_;      // the plan keeps the workspace
  const bool captured_;  // the call goes into a graph
  const std::int64_t slabs_;
  bool collected_ = false;
  ballast::cuda::device_call call_;
  std::uint64_t checks_ = 0;
  index solved_ = 0;
  index singular_ = -1;
};

}  // namespace

template <class S>
std::unique_ptr<batch_engine<S>> make_batch_engine(const context& run, operation what, const batch_size& size, index scratch_elements) {
  return std::make_unique<device_batch<S>>(run, what, layout_of<S>(what, size, scratch_elements));
}

template <class S>
index batch_workspace(operation what, const batch_size& size, index scratch_elements) {
  return k_front + layout_of<S>(what, size, scratch_elements).bytes;
}

#define BALLAST_INSTANTIATE(S)                                                                                         \
  template std::unique_ptr<batch_engine<S>> make_batch_engine<S>(const context&, operation, const batch_size&, index); \
  template index batch_workspace<S>(operation, const batch_size&, index);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE

bool takes_batch(operation what, const batch_size& size, index precision_bytes, bool complex) {
  const ballast::cuda::capabilities& on = ballast::cuda::current_device()->about();
  const bool factors = what == operation::geqrf || what == operation::gels;
  index m = size.m, n = size.n;
  if (what == operation::gels && m < n) std::swap(m, n);
  if (what == operation::gels && batch_policy_for(batch_work::solve, n, 1, on, complex) < 0) return false;
  return batch_policy_for(factors ? batch_work::factor : batch_work::apply, m, n, on, complex) >= 0 ||
         (!complex && takes_tall(m, n, size.count, precision_bytes, on));
}

bool batch_copies(index m, index n, index precision_bytes, bool complex) {
  const ballast::cuda::capabilities& on = ballast::cuda::current_device()->about();
  const int which = batch_policy_for(batch_work::apply, m, n, on, complex);
  if (which >= 0) return n > batch_width(which);
  return !complex && n > choose_tall(batch_work::apply, m, n, precision_bytes, on).width;
}

}  // namespace ballast::qr::cuda
