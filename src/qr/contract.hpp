// The interface that a backend of QR implements. A driver decides; it sees scalars, small arrays and verdicts. The backend owns the matrix
// with its checksums, and has all loops over elements.
// Layer: algorithm, backend-free. host/ and cuda/ implement it.
//
// Order and waiting: the operations of one object take effect in the order of the calls. They may return before they are done. A result
// that an operation writes through a pointer is valid after wait(); data that it reads through a pointer are read before it returns. An
// operation that returns a value waits itself; such operations belong to repair, which is rare. One thread at a time calls an object;
// advance() and each() state their exceptions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <ballast/execution.hpp>
#include <ballast/view.hpp>

#include "core/function_ref.hpp"
#include "core/memory.hpp"
#include "inject/active.hpp"
#include "qr/arithmetic/scalar.hpp"
#include "run/recorder.hpp"

namespace ballast::qr {

using index = std::int64_t;

// The state that the calls of one plan share on a device: streams, kernels, memory. cuda::make_device_state() makes one.
class device_state {
 public:
  device_state() = default;
  device_state(const device_state&) = delete;
  device_state& operator=(const device_state&) = delete;
  virtual ~device_state() = default;
};

// The environment of a call.
struct context {
  run::recorder& seen;
  inject::active_injector& injector;
  const run::settings& how;
  backend which = backend::cpu;
  int threads = 1;
  bool hybrid = false;  // on cuda: the host factors the panels
  // On cuda: recover_column() computes and applies one rotation after the other. Only measurements of the blocked recovery set it.
  bool plain_recovery = false;
  device_state* device = nullptr;  // on cuda: the plan's; null: the call is on its own
};

// The columns of a matrix, divided into blocks. The first `panels` blocks become panels; the blocks after them (m < n) do not.
struct layout {
  struct block {
    index first = 0, width = 0;
    bool panel = false;
    index group = 0;  // the group of its checksum columns
  };
  struct group {
    index first = 0, width = 0;
  };
  index m = 0, n = 0, steps = 0;  // steps = min(m, n)
  index panel_width = 0;          // the largest width of a panel
  index panels = 0;
  core::vector<block> blocks;
  core::vector<group> groups;  // one for each block, or with the schemes qr_update and hybrid one for all columns
  bool single_group = false;

  index count() const { return static_cast<index>(blocks.size()); }
  bool one_block() const { return count() == 1 && !single_group; }
  const block& operator[](index b) const { return blocks[static_cast<std::size_t>(b)]; }
};

// The norm of a column is norm · 2^exponent.
struct column_size {
  double norm = 0;
  int exponent = 0;
  bool finite = true;  // false: the column holds Inf or NaN
};
// Columns of extreme size are scanned again, until two scans in a row agree, at most so many times in all.
inline constexpr int k_most_scans = 4;

// The sums that the checks of a factored panel H_1 … H_w = I − V T Vᴴ compare. A sum is NaN if one of its elements is.
struct panel_sums {
  // The element of Tᴴ(VᴴV)T x − (T + Tᴴ)x, x random, that is largest relative to its threshold; and that threshold.
  double orthogonality = 0;
  double orthogonality_threshold = 1;
  double reflectors = 0;  // max |τ‖v‖² − 2|, for complex τ max ||τ|²‖v‖² / Re τ − 2|; NaN if a tau differs from T's diagonal in any bit
  double data = 0;  // ‖Qᴴc − [Rd; 0]‖, the larger of the two checksum columns c; 0 with a single group
  double sent = 0;  // NaN if V, R, T or tau differ in any bit from the data that another memory sent
};

// The limits of a panel that is begun ahead of the driver.
struct panel_limits {
  bool measured = false;  // its entry and its sums are measured
  bool holds = false;     // a measured value above these limits, or NaN, holds all later work back
  double entry = 0;       // for ‖residual‖ of its entry
  double data = 0;        // for panel_sums::data
  double reflectors = 0;  // for panel_sums::reflectors
};

// The result of a panel that was begun ahead of the driver. If it is neither passed nor held, a fault has struck the word.
struct panel_seen {
  double entry = 0;  // as measure_block() before the panel was factored; 0 if panels have no entry check
  panel_sums sums;
  bool factored = false;  // R, V, tau and T were computed
  bool passed = false;    // later work took effect
  // Held, and not factored, because the backend had expected other data: the driver begins the panel ahead once more.
  bool again = false;
  // The panel did not pass, or was not computed, and later work has changed nothing. Exception: if the panel was factored, the next block
  // may have changed.
  bool held = false;
};

// The sums that the checks at the end compare, for one block. Only panels have v and t.
struct block_sums {
  double v = 0;  // the largest change of a checkpoint of V
  double t = 0;  // NaN if T or tau changed since the panel was verified
  // A block without a panel: ‖residual‖, as measure_block(). A panel: NaN if R's rows changed since they were verified.
  double rows = 0;
};

// The residuals r, s (m values each) of all columns against the single group's two checksums.
struct matrix_sums {
  double norm = 0;                // the larger of both
  double rr = 0, rs = 0, ss = 0;  // rᵀr, rᵀs, sᵀs over norm²
};

// One factorization A = Q R, in LAPACK's storage.
template <class S>
class factorizer : public core::pooled {
 public:
  factorizer() = default;
  factorizer(const factorizer&) = delete;
  factorizer& operator=(const factorizer&) = delete;
  virtual ~factorizer() = default;

  virtual void wait() {}

  // --- The input.

  // Computes the norms of the columns: n sizes. scan_r: those of R's columns as they are stored.
  virtual void scan(column_size* sizes) = 0;
  virtual void scan_r(column_size* sizes) = 0;

  // From here on, until unscale() or restart(), column j is computed as 2^shifts_j · a. The unscaled input is kept.
  virtual void scale(const int* shifts) = 0;

  // Reverses the scaling in R.
  virtual void unscale() = 0;

  // Does the part of encode() that does not depend on the input, while scan() runs. Called before each encode(); the work is lost if the
  // input holds Inf or NaN. `keep`: as in encode().
  virtual void prepare([[maybe_unused]] bool keep) {}

  // Computes the two checksum columns of every group and the certificate's product with weights d_j ε_j, d_j ε_j ρ_j and d_j r_j (n × 3),
  // each from one reading of the input; if the input lies elsewhere, not from the working copy. `squares`: the larger squared norm of the
  // checksum columns of each group, then that of the product; valid after await_encoded(). `keep`: restart() must be possible. Not called
  // without protection, and then the operations do not touch checksums.
  virtual void encode(const double* weights, bool keep, double* squares) = 0;

  // Waits for the results of encode(). Does not wait for work that was enqueued after it.
  virtual void await_encoded() { wait(); }

  // Restores the input, not scaled and not encoded.
  virtual void restart() = 0;

  // Restores A and tau as they were given, after a repair has failed.
  virtual void give_back() = 0;

  // --- One pass over the panels: begin_pass, then for each panel begin, factor, measure, accept, end and advance; end_pass.

  // Resets the certificate's product.
  virtual void begin_pass() = 0;

  // Block k has had all its updates and becomes a panel.
  virtual void begin_panel(index k) = 0;

  // Computes the Householder QR of panel k: R, V, tau and T. `finite`: A has no Inf and no NaN; if it has, no column may depend on the
  // columns to its right.
  virtual void factor_panel(index k, bool finite) = 0;

  // Computes the sums of the panel's checks and the checkpoint of V, and seals T and R's last rows.
  virtual void measure_panel(index k, panel_sums* seen) = 0;

  // Computes only `orthogonality` and `reflectors`, from V, T and tau as they are stored now.
  virtual void measure_reflectors(index k, panel_sums* seen) = 0;

  // The panel passed: its checksums become those of R, and the certificate's product advances by one panel.
  virtual void accept_panel(index k) = 0;

  // Panel k is final: it passed its checks, or there is no repair.
  virtual void end_panel(index k) = 0;

  // Returns a hash of all rows of block b, as abft::finding::bits.
  virtual std::uint64_t hash_block(index b) = 0;

  // Applies panel k to block b and to its own checksums.
  virtual void update(index k, index b) = 0;

  // Applies panel k to blocks `first` … and to their checksums (including a single group's), while `ahead` runs: the lookahead, which
  // calls this object for block first − 1, maybe on another thread. Both are done, or enqueued, on return. A backend that enqueues may put
  // off the update of the other blocks until `ahead` first waits.
  virtual void advance(index k, index first, core::function_ref<void()> ahead) = 0;

  // All panels are final.
  virtual void end_pass() = 0;

  // --- Panels ahead of the driver, for a backend that runs asynchronously: the driver judges a panel when later ones are enqueued already.

  // Returns true if panel k may be begun before the panels before it were judged. A has no Inf and no NaN.
  virtual bool goes_ahead(index) const { return false; }

  // Does begin_panel, measure_block of the entry (except for the first panel, and with a single group), factor_panel, measure_panel,
  // accept_panel and end_panel in one step. The backend compares the results with `limits` and with panel_sums::orthogonality_threshold.
  // The first panel that does not pass, or that needs a decision of the host, stops all changes until resume() or begin_pass(): work that
  // is enqueued meanwhile has no effect. A panel whose entry does not pass is not factored. Checksums and blocks keep their values;
  // only the next block after a factored panel may hold anything.
  // `limits` is called once, after all work of the first panel was enqueued, because it may wait for encode().
  virtual void begin_ahead(index, [[maybe_unused]] core::function_ref<panel_limits()> limits) {}

  // Returns the result of panel k. Waits for it, but not for work enqueued after advance(k), which is called first.
  virtual panel_seen await_panel(index) { return {}; }

  // Drops the work that was enqueued after the panel that was held back. That panel is as panel_seen says, except that its T is lost.
  virtual void resume() {}

  // --- A block.

  // Computes ‖residual‖ of block b against its checksums, the larger of the two. Over all rows, after R's rows above a panel were sealed;
  // `finished`: over R's rows, b being a final panel.
  virtual void measure_block(index b, bool finished, double* residual) = 0;

  // Rebuilds from the checksums the elements that the residuals locate: one column, or single elements in different rows. Returns the
  // column within the block, −1 if the fault could not be located. Several changed columns can look like another single column, and the
  // checksums agree with the wrong repair: measure_independent() must confirm it.
  virtual index correct_block(index b, bool finished, double threshold, const inject::position& where) = 0;

  // Computes ‖residual‖ of block b, as measure_block(), against a checksum with the certificate's weights, which is computed now from the
  // input and transformed by the panels that the block has passed.
  virtual void measure_independent(index b, bool finished, double* residual) = 0;

  // Restores block b and its own checksums from the input, scaled.
  virtual void reload(index b) = 0;

  // --- The end.

  // Returns true if a panel's checks read V, T, tau and R as they are stored. Then a matrix of one block needs no measure_all(), since
  // nothing changes it after those checks. Faults that are injected at the end of a pass then come before these checks.
  virtual bool verifies_once() const { return false; }

  // Computes the sums of every block.
  virtual void measure_all(block_sums* seen) = 0;

  // Locates and rebuilds up to two struck elements in each column of V of panel k, so that V agrees with its checkpoint again. Returns
  // false if that is not possible. `column`: the last struck one. A checkpoint that was computed from a number read wrong agrees with a V
  // that never existed: measure_reflectors() must show before the repair that V is wrong, and after it that V is right.
  virtual bool repair_v(index k, index* column) = 0;

  // Computes ‖Qᴴ(A r) − R r‖.
  virtual void measure_certificate(double* residual) = 0;

  // --- A single group of checksums.

  virtual void measure_matrix(matrix_sums* seen) = 0;

  // Corrects the factors by Givens rotations if only column j of QR differs from A. All panels must be verified again.
  virtual void recover_column(index j) = 0;
};

// The operand of an application of Q: a matrix with at most m rows, zero rows below, or its conjugate; or the first columns of the
// identity.
template <class S>
struct operand {
  matrix_view<const S> view;
  bool identity = false;
  bool conjugated = false;
};

// The sums that the check of a block of columns compares: (op(Q) x)ᴴa with xᴴ(op(Q)ᴴa) for some random real a.
struct applied_sums {
  double residual = 0;  // the residual that is largest relative to the norm of its column
  double norm = 0;      // the norm of that column
  index column = 0;     // its number within the block
  bool odd = false;     // there are columns with Inf or NaN, which are not checked
};

// op(Q) X for one block of columns.
template <class S>
class applied_block : public core::pooled {
 public:
  applied_block() = default;
  applied_block(const applied_block&) = delete;
  applied_block& operator=(const applied_block&) = delete;
  virtual ~applied_block() = default;

  virtual void wait() {}

  // Loads the columns into their position in the result; encodes them from another reading, applies all panels, and verifies if `seen` is
  // not null. `again`: with its own T and op(Q)ᴴa, since those of form() and encode() may have been struck.
  virtual void compute(bool again, applied_sums* seen) = 0;

  // Returns a hash of the block, as abft::finding::bits.
  virtual std::uint64_t hash() = 0;

  // Reverses the scaling of columns of extreme size.
  virtual void unscale() = 0;
};

// Reflectors as geqrf leaves them, applied in panels.
template <class S>
class applier : public core::pooled {
 public:
  applier() = default;
  applier(const applier&) = delete;
  applier& operator=(const applier&) = delete;
  virtual ~applier() = default;

  virtual void wait() {}

  // Set at construction. Without panels Q is the identity.
  index panel_width = 1;
  index panels = 0;
  // The most columns of one block, and the number of columns below which two blocks would take longer than one.
  index most_columns = 1, least_columns = 1;

  // Sets *finite to false if V or tau hold Inf or NaN.
  virtual void scan(bool* finite) = 0;

  // Computes T of all panels.
  virtual void form() = 0;

  // Computes op(Q)ᴴa, which checks the blocks, from V and tau. The check and the products must not share T, nor anything else that is
  // computed from V and tau. `few`: it takes longer than the products with the columns to which Q will be applied.
  virtual void encode(bool transposed, bool few) = 0;

  // Constructs block `task` of `tasks` of the product: columns first … first + width − 1 of `X`, stored in the same columns of `result`.
  virtual std::unique_ptr<applied_block<S>> open(bool transposed, const operand<S>& X, index task, index tasks, index first, index width,
                                                 matrix_view<S> result) = 0;

  // Calls body(t) for t = 0 … count − 1: at the same time if the backend has threads, else in this order.
  virtual void each(index count, core::function_ref<void(index)> body) = 0;
};

// The sums that the check of a triangular solve compares, for one block of columns.
struct solve_sums {
  // The element of op(U) X − B that is largest relative to its threshold; and that threshold.
  double residual = 0;
  double threshold = 1;
  index column = 0;        // the column of that element, within the block
  bool odd = false;        // there are columns with Inf or NaN, in the input or in the result, which are not checked
  std::uint64_t bits = 0;  // if `odd`: a hash of X, as abft::finding::bits
};

// The largest excess of a column's norm below row k over |R_kk|, relative to its threshold (thresholds::pivot).
struct pivot_sums {
  double residual = 0;
  double threshold = 1;
  index column = 0;  // the column that should have come before
};

// One backend, for one call.
template <class S>
class engine : public core::pooled {
 public:
  engine() = default;
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  virtual ~engine() = default;

  virtual void wait() {}

  // Return an operand of the caller in memory that this backend can access: the operand itself, or a copy from another memory. `write`: for
  // operands that the call also writes; commit() copies them back to the caller. A result that is not to be committed needs no call.
  virtual matrix_view<const S> read(const matrix_view<const S>& operand) = 0;
  virtual std::span<const S> read(std::span<const S> operand) = 0;
  virtual matrix_view<S> write(const matrix_view<S>& operand) = 0;
  virtual std::span<S> write(std::span<S> operand) = 0;
  virtual void commit() = 0;

  // Returns true if the backend can compute on this matrix in place.
  virtual bool works_on(const matrix_view<const S>& v) const = 0;

  // Allocates memory for matrices that it computes on, uninitialised.
  virtual std::shared_ptr<S> allocate(index elements) = 0;

  // Copies element by element. Either side may be the caller's memory, with any strides.
  virtual void copy(const matrix_view<const S>& from, const matrix_view<S>& to) = 0;

  // As copy(), times 2^(rows_i + columns_j).
  virtual void copy_scaled(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns) = 0;

  // As copy_scaled(); null: no shifts. Then compares the copy, read back, with another reading of its source, bit by bit. Returns the first
  // column that differs; −1 if none does, or `checked` is false. Waits.
  virtual index copy_checked(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns,
                             bool checked) = 0;

  // to ← the conjugate of `from`, as copy_checked(). `upper`: elements below the diagonal become 0.
  virtual index conjugate_checked(const matrix_view<const S>& from, const matrix_view<S>& to, bool upper, bool checked) = 0;

  // Computes the exponent of the largest number in each column of X, where row i counts as 2^rows_i · x (null: as x); abft::k_zero_column
  // if all are zero, k_odd_column if one is Inf or NaN. `upper`: on and above the diagonal only.
  virtual void exponents(const matrix_view<const S>& X, bool upper, const int* rows, int* columns) = 0;

  // Computes the norm of each column of R (n × n) on and above the diagonal: n sizes, valid after wait().
  virtual void column_sizes(const matrix_view<const S>& R, column_size* sizes) = 0;

  // Returns how many of `columns` columns of a matrix with so many rows its memory holds at a time: all, or the width of a piece
  // (driver/out_of_core.hpp). `operand`: the address of the matrix.
  virtual index resident_columns(const void*, index, index columns) const { return columns; }

  // Returns a hash of X, which it works on, as abft::finding::bits: the same for the same numbers, wherever they lie.
  virtual std::uint64_t hash(const matrix_view<const S>& X) = 0;

  // Shows X's first column to the injector of the call.
  virtual void strike(inject::site where, const inject::position& here, const matrix_view<S>& X) = 0;

  // --- The checksum of a block of columns that is divided from the others (docs/design/distributed.md, "QR of columns"). It works on A and
  // c.

  // Draws the weights of a block, whose first column has number `first`, and computes its checksum c = A d (A.rows numbers). Returns
  // ‖A diag(d)‖ + ‖c‖, from which the threshold follows; Inf if A has Inf or NaN, and NaN if no checksum can judge the block because a
  // column is so small that R's rounding is absolute. Waits.
  virtual double encode_columns(const matrix_view<const S>& A, index first, double* weights, S* c) = 0;

  // Returns ‖A d − c‖ over all rows. `panel` ≥ 0: the block is a factored panel whose diagonal begins in this row: of the rows from there
  // on only the upper triangle counts, and zeros below it. Waits.
  virtual double residual_of_columns(const matrix_view<const S>& A, index panel, const double* weights, const S* c) = 0;

  // --- Column pivoting (docs/design/qr-pivoting.md).

  // Chooses the order of the columns of A (finite), which it can access, as host::choose_pivots() describes it. The result is not verified.
  // Waits.
  virtual void choose_pivots(const matrix_view<const S>& A, std::span<index> order, bool plainly) = 0;

  // P(:, j) ← A(:, order[j]).
  virtual void permute_columns(const matrix_view<const S>& A, std::span<const index> order, const matrix_view<S>& P) = 0;

  // Returns the first column j in which P differs in any bit from column order[j] of A; −1 if there is none. Waits.
  virtual index first_moved(const matrix_view<const S>& A, std::span<const index> order, const matrix_view<const S>& P) = 0;

  // Verifies the choice on R, which it works on (min(m, n) × n on and above the diagonal). m: the rows of A. Waits.
  virtual pivot_sums measure_pivots(const matrix_view<const S>& R, index m) = 0;

  // Returns the width of panels of a matrix with so many rows and min(m, n) = `steps`. At least two panels if there are two columns, so
  // that the smallest problem is computed, and struck, like large ones.
  virtual index panel_width(index rows, index steps) const = 0;

  // The factorizer overwrites A, which the engine works on, and writes tau (steps elements). `source`: A's values, readable until the end,
  // for a restart; if its data is null, the factorizer makes a copy when it needs one.
  virtual std::unique_ptr<factorizer<S>> make_factorizer(const layout& shape, const matrix_view<S>& A, S* tau,
                                                         const matrix_view<const S>& source) = 0;

  // V: m × count, which the engine works on.
  virtual std::unique_ptr<applier<S>> make_applier(const matrix_view<const S>& V, const S* tau) = 0;

  // X ← U⁻¹ B or U⁻ᴴ B. U is n × n, upper triangular; X is n × k (the engine works on both); B is n × k with any strides, apart from X.
  // Computes blocks of `width` columns, each by itself; the last one may be narrower. Computes the sums of each block from another reading
  // of B if `seen` is not null.
  virtual void solve(bool transposed, const matrix_view<const S>& U, const matrix_view<const S>& B, const matrix_view<S>& X, index width,
                     solve_sums* seen) = 0;

  // Returns the first column with a zero on the diagonal of R (n × n), −1 if there is none.
  virtual index zero_on_diagonal(const matrix_view<const S>& R) = 0;
};

// The dispatch. reference and cpu are kernels under the same host backend.
namespace host {
template <class S>
std::unique_ptr<engine<S>> make_engine(const context& run);
}
namespace cuda {
template <class S>
std::unique_ptr<engine<S>> make_engine(const context& run);
std::unique_ptr<device_state> make_device_state();
}  // namespace cuda

template <class S>
std::unique_ptr<engine<S>> make_engine(const context& run) {
  return run.which == backend::cuda ? cuda::make_engine<S>(run) : host::make_engine<S>(run);
}

}  // namespace ballast::qr
