// What a backend of QR implements. A driver decides and sees scalars, small arrays and verdicts; the backend owns the matrix with its
// checksums, and all loops over elements.
// Layer: algorithm, backend-free. host/ and cuda/ implement it.
//
// Order and waiting: operations of one object take effect in the order of the calls. They may return before they are done. What an
// operation writes through a pointer is there after wait(); what it reads through one is read before it returns. Operations that return a
// value wait themselves; they belong to repair, which is rare. An object is called by one thread at a time, but for what advance() and
// each() say.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/view.hpp>

#include "core/function_ref.hpp"
#include "inject/active.hpp"
#include "run/recorder.hpp"

namespace ballast::qr {

using index = std::int64_t;

// What a call runs with.
struct context {
  run::recorder& seen;
  inject::active_injector& injector;
  const run::settings& how;
  backend which = backend::cpu;
  int threads = 1;
  bool hybrid = false;  // on cuda: panels are factored by the host
  bool plain_recovery =
      false;  // on cuda: recover_column() makes and applies one rotation after the other, to be measured beside the other way
};

// The columns of a matrix, cut into blocks. The first `panels` blocks become panels; blocks behind them (m < n) never do.
struct layout {
  struct block {
    index first = 0, width = 0;
    bool panel = false;
    index group = 0;  // whose checksum columns it belongs to
  };
  struct group {
    index first = 0, width = 0;
  };
  index m = 0, n = 0, steps = 0;  // steps = min(m, n)
  index panel_width = 0;          // the largest
  index panels = 0;
  std::vector<block> blocks;
  std::vector<group> groups;  // one for each block, or with the schemes qr_update and hybrid one for all columns
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

// What the checks of a factored panel H_1 … H_w = I − V T Vᵀ compare. Each is NaN where an element is.
struct panel_sums {
  double orthogonality = 0;  // of the elements of Tᵀ(VᵀV)T x − (T + Tᵀ)x, x random, the one largest for its threshold, and that threshold
  double orthogonality_threshold = 1;
  double reflectors = 0;  // max |τ‖v‖² − 2|; NaN if a tau is not T's diagonal to the bit
  double data = 0;        // ‖Qᵀc − [Rd; 0]‖, the larger of the two checksum columns c; 0 with a single group
  double sent = 0;        // NaN if V, R, T or tau are not, to the bit, what was sent from another memory
};

// What passes of a panel that is begun ahead of the driver.
struct panel_limits {
  bool measured = false;  // its entry and its sums are
  bool holds = false;     // and what is above these, or NaN, holds everything back
  double entry = 0;       // ‖residual‖ of its entry
  double data = 0;        // panel_sums::data
  double reflectors = 0;  // panel_sums::reflectors
};

// What a panel that was begun ahead of the driver has come to. Neither passed nor held: a fault has struck the word.
struct panel_seen {
  double entry = 0;  // as measure_block's, before the panel was factored; 0 where panels have none
  panel_sums sums;
  bool factored = false;  // R, V, tau and T were made
  bool passed = false;    // what followed was done
  bool again = false;     // held, and not factored, as the backend had expected other data: it is to be begun ahead once more
  // It did not pass, or was not made, and nothing that followed has changed anything; if it was factored, but for the next block.
  bool held = false;
};

// What the checks at the end compare, for one block. v and t are of panels alone.
struct block_sums {
  double v = 0;  // the largest change of a checkpoint of V
  double t = 0;  // NaN if T or tau changed since the panel was verified
  double rows =
      0;  // of a block without a panel: ‖residual‖, as measure_block's. Of a panel: NaN if R's rows changed since they were verified
};

// The residuals r, s (m values each) of all columns against the single group's two checksums.
struct matrix_sums {
  double norm = 0;                // the larger of both
  double rr = 0, rs = 0, ss = 0;  // rᵀr, rᵀs, sᵀs over norm²
};

// One factorization A = Q R, in LAPACK's storage.
template <class S>
class factorizer {
 public:
  factorizer() = default;
  factorizer(const factorizer&) = delete;
  factorizer& operator=(const factorizer&) = delete;
  virtual ~factorizer() = default;

  virtual void wait() {}

  // --- The input.

  // Norms of the columns: n sizes. scan_r: of R's columns as they are stored.
  virtual void scan(column_size* sizes) = 0;
  virtual void scan_r(column_size* sizes) = 0;

  // Column j is worked on as 2^shifts_j · a from here on, until unscale() or restart(). The unscaled input is kept.
  virtual void scale(const int* shifts) = 0;

  // The way back, for R.
  virtual void unscale() = 0;

  // The part of encode() that does not depend on the input, while scan() is under way. Called before each encode(), and for nothing where
  // the input turns out to have Inf or NaN. `keep`: as encode()'s.
  virtual void prepare([[maybe_unused]] bool keep) {}

  // Makes the two checksum columns of every group and the certificate's product with weights d_j ε_j, d_j ε_j ρ_j and d_j r_j (n × 3), from
  // one reading of the input each, and not from the numbers that are worked on where the input lies elsewhere. `squares`: for each group
  // the larger squared norm of its checksum columns, and behind them that of the product; they are there after await_encoded(). `keep`:
  // restart() must be possible. Not called without protection, and then the operations leave checksums alone.
  virtual void encode(const double* weights, bool keep, double* squares) = 0;

  // Waits for what encode() measures, and for nothing that was enqueued behind it.
  virtual void await_encoded() { wait(); }

  // The input again, as it was given, not scaled and not encoded.
  virtual void restart() = 0;

  // A and tau again as they were given, where repair has failed.
  virtual void give_back() = 0;

  // --- One pass over the panels: begin_pass, then for each panel begin, factor, measure, accept, end and advance; end_pass.

  // The certificate's product starts anew.
  virtual void begin_pass() = 0;

  // Block k has had all its updates and becomes a panel.
  virtual void begin_panel(index k) = 0;

  // Householder QR of panel k: R, V, tau and T. `finite`: A has no Inf and no NaN; without it a column must not depend on those behind it.
  virtual void factor_panel(index k, bool finite) = 0;

  // Makes the sums of the panel's checks, checkpoints V, and seals T and R's last rows.
  virtual void measure_panel(index k, panel_sums* seen) = 0;

  // `orthogonality` and `reflectors` alone, from V, T and tau as they are now.
  virtual void measure_reflectors(index k, panel_sums* seen) = 0;

  // The panel passed: its checksums become those of R, and the certificate's product goes one panel further.
  virtual void accept_panel(index k) = 0;

  // Panel k is final: it passed its checks, or there is no repair.
  virtual void end_panel(index k) = 0;

  // Hash of all rows of block b, as abft::finding::bits.
  virtual std::uint64_t hash_block(index b) = 0;

  // Applies panel k to block b and to its own checksums.
  virtual void update(index k, index b) = 0;

  // Applies panel k to blocks `first` … and to their checksums (a single group's belong to them), while `ahead` runs: the lookahead, which
  // calls this object for block first − 1. `ahead` may run on another thread. Both are done, or enqueued, on return. A backend that
  // enqueues may put off the update of the others until `ahead` first waits.
  virtual void advance(index k, index first, core::function_ref<void()> ahead) = 0;

  // All panels are final.
  virtual void end_pass() = 0;

  // --- Panels ahead of the driver, for a backend that works behind it: panels are judged when those behind them are enqueued already.

  // Whether panel k may be begun before those in front of it were judged. A has no Inf and no NaN.
  virtual bool goes_ahead(index) const { return false; }

  // begin_panel, the entry's measure_block (not of the first panel, and not with a single group), factor_panel, measure_panel, accept_panel
  // and end_panel at once. The backend compares what it measures with `limits` and with panel_sums::orthogonality_threshold. From the first
  // panel on that does not pass, or cannot be made without a decision of the host, nothing is changed, until resume() or begin_pass(): a
  // panel whose entry does not pass is not factored; checksums and blocks stay as they are, but for the next block behind a panel that was
  // factored: its columns may be anything. What is enqueued then has no effect.
  // `limits` is called once. It may wait for encode(): so it is called behind all that makes the first panel.
  virtual void begin_ahead(index, [[maybe_unused]] core::function_ref<panel_limits()> limits) {}

  // What panel k has come to. Waits, but for nothing behind advance(k), which comes first.
  virtual panel_seen await_panel(index) { return {}; }

  // What was enqueued behind the panel that was held back is forgotten. That panel is as panel_seen says but for T, which is lost.
  virtual void resume() {}

  // --- A block.

  // ‖residual‖ of block b against its checksums, the larger of the two, over all rows, after R's rows above
  // a panel were sealed; `finished`: over R's rows, b being a final panel.
  virtual void measure_block(index b, bool finished, double* residual) = 0;

  // Rebuilds from the checksums what the residuals place: one column, or single elements in different rows. Returns the column within the
  // block, −1 if the fault could not be placed. Several changed columns can look like another one, and the checksums agree with the wrong
  // repair: measure_independent() must confirm it.
  virtual index correct_block(index b, bool finished, double threshold, const inject::place& where) = 0;

  // ‖residual‖ of block b, as measure_block's, against a checksum with the certificate's weights that is made now from the input and taken
  // through the panels that the block has passed.
  virtual void measure_independent(index b, bool finished, double* residual) = 0;

  // Block b with its own checksums as the input has it, scaled.
  virtual void reload(index b) = 0;

  // --- The end.

  // Whether a panel's checks read V, T, tau and R as they are stored. Then a matrix of one block needs no measure_all(): nothing changes it
  // behind those checks. Faults that are injected at the end of a pass then come in front of them.
  virtual bool verifies_once() const { return false; }

  // For every block.
  virtual void measure_all(block_sums* seen) = 0;

  // Places and rebuilds up to two struck elements in each column of V of panel k, to agree with the checkpoint again. False: not possible.
  // `column` is the last struck one. A checkpoint that was made of a number read wrong agrees with a V that never was:
  // measure_reflectors() must confirm that V is wrong before, and right behind it.
  virtual bool repair_v(index k, index* column) = 0;

  // ‖Qᵀ(A r) − R r‖.
  virtual void measure_certificate(double* residual) = 0;

  // --- A single group of checksums.

  virtual void measure_matrix(matrix_sums* seen) = 0;

  // Makes the factors right again where only column j of QR differs from A, by Givens rotations. All panels are to be verified again.
  virtual void recover_column(index j) = 0;
};

// The operand of an application of Q: a matrix with m rows or less, zero rows below; or the identity's first columns.
template <class S>
struct operand {
  matrix_view<const S> view;
  bool identity = false;
};

// What the check of a block of columns compares: aᵀ(op(Q) x) with (op(Q)ᵀa)ᵀx for some random a.
struct applied_sums {
  double residual = 0;  // of the column whose residual is the largest for its norm, and that norm
  double norm = 0;
  index column = 0;  // within the block
  bool odd = false;  // there are columns with Inf or NaN, which have no check
};

// op(Q) X for one block of columns.
template <class S>
class applied_block {
 public:
  applied_block() = default;
  applied_block(const applied_block&) = delete;
  applied_block& operator=(const applied_block&) = delete;
  virtual ~applied_block() = default;

  virtual void wait() {}

  // Loads the columns into their place in the result, and encodes them from another reading if `seen` is not null; applies all panels, and
  // verifies. `again`: with T and op(Q)ᵀa of its own, since those of form() and encode() may have been struck.
  virtual void compute(bool again, applied_sums* seen) = 0;

  // As abft::finding::bits.
  virtual std::uint64_t hash() = 0;

  // The way back, where columns of extreme size were scaled.
  virtual void unscale() = 0;
};

// Reflectors as geqrf leaves them, to be applied in panels.
template <class S>
class applier {
 public:
  applier() = default;
  applier(const applier&) = delete;
  applier& operator=(const applier&) = delete;
  virtual ~applier() = default;

  virtual void wait() {}

  // Of the reflectors, set when it is made. No panels: Q is the identity.
  index panel_width = 1;
  index panels = 0;
  // Columns that one block takes at most, and so few that two blocks would take longer than one.
  index most_columns = 1, least_columns = 1;

  // Whether V and tau are free of Inf and NaN.
  virtual void scan(bool* finite) = 0;

  // T of all panels.
  virtual void form() = 0;

  // Makes op(Q)ᵀa, with which the blocks are checked, from V and tau: T, and what else the products are made of, must not serve both.
  virtual void encode(bool transposed) = 0;

  // Block `task` of `tasks` of the product, columns first … first + width − 1 of `X`; its result goes to the same columns of `result`.
  virtual std::unique_ptr<applied_block<S>> open(bool transposed, const operand<S>& X, index task, index tasks, index first, index width,
                                                 matrix_view<S> result) = 0;

  // Calls body(t) for t = 0 … count − 1, at once where the backend has threads, else in this order.
  virtual void each(index count, core::function_ref<void(index)> body) = 0;
};

// What the check of a triangular solve compares, for one block of columns.
struct solve_sums {
  double residual = 0;  // of the elements of op(U) X − B, the one largest for its threshold, and that threshold
  double threshold = 1;
  index column = 0;        // within the block, of that element
  bool odd = false;        // there are columns with Inf or NaN, in what went in or what came out, which have no check
  std::uint64_t bits = 0;  // where odd: hash of X, as abft::finding::bits
};

// One backend, for one call.
template <class S>
class engine {
 public:
  engine() = default;
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  virtual ~engine() = default;

  virtual void wait() {}

  // An operand of the caller where this backend can reach it: itself, or a copy from another memory. `write`: for operands that the call
  // also writes; commit() takes them back to the caller. A result that is not to be committed needs no call.
  virtual matrix_view<const S> read(const matrix_view<const S>& operand) = 0;
  virtual std::span<const S> read(std::span<const S> operand) = 0;
  virtual matrix_view<S> write(const matrix_view<S>& operand) = 0;
  virtual std::span<S> write(std::span<S> operand) = 0;
  virtual void commit() = 0;

  // Whether it can work on these elements where they lie.
  virtual bool works_on(const matrix_view<const S>& v) const = 0;

  // Memory for matrices that it works on, uninitialised.
  virtual std::shared_ptr<S> allocate(index elements) = 0;

  // Element by element. Either side may be the caller's memory, with any strides.
  virtual void copy(const matrix_view<const S>& from, const matrix_view<S>& to) = 0;

  // As copy(), times 2^(rows_i + columns_j).
  virtual void copy_scaled(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns) = 0;

  // The exponent of the largest number in each column of X, where row i counts as 2^rows_i · x; 0 if all are zero, or one is Inf or NaN.
  // `upper`: on and above the diagonal only.
  virtual void exponents(const matrix_view<const S>& X, bool upper, const int* rows, int* columns) = 0;

  // How many columns of a matrix with so many rows, out of `columns`, lie in its memory at a time: all, or the width of a piece
  // (pieces.hpp). `operand`: where the matrix lies.
  virtual index resident_columns(const void*, index, index columns) const { return columns; }

  // Hash of X (works_on it), as abft::finding::bits. For backends with pieces.
  virtual std::uint64_t hash(const matrix_view<const S>&) { return 0; }

  // The width of panels of a matrix with so many rows and min(m, n) = `steps`: two panels at least where there are two columns, so that the
  // smallest problem is computed, and struck, the way large ones are.
  virtual index panel_width(index rows, index steps) const = 0;

  // A (works_on it) is overwritten, tau (steps elements) written. `source`: A's values, readable until the end, to go back to; if its data
  // is null, the factorizer makes a copy where one is needed.
  virtual std::unique_ptr<factorizer<S>> make_factorizer(const layout& shape, const matrix_view<S>& A, S* tau,
                                                         const matrix_view<const S>& source) = 0;

  // V: m × count, works_on it.
  virtual std::unique_ptr<applier<S>> make_applier(const matrix_view<const S>& V, const S* tau) = 0;

  // X ← U⁻¹ B or U⁻ᵀ B; U n × n upper triangular, X n × k (works_on both), B n × k with any strides, not X. In blocks of `width` columns,
  // each by itself: the last one may be narrower. Sums for each block if `seen` is not null, from another reading of B.
  virtual void solve(bool transposed, const matrix_view<const S>& U, const matrix_view<const S>& B, const matrix_view<S>& X, index width,
                     solve_sums* seen) = 0;

  // The first column with a zero on the diagonal of R (n × n), −1 if there is none.
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
}

template <class S>
std::unique_ptr<engine<S>> make_engine(const context& run) {
  return run.which == backend::cuda ? cuda::make_engine<S>(run) : host::make_engine<S>(run);
}

}  // namespace ballast::qr
