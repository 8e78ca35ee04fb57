// The protected blocked QR factorization: panels with lookahead, checksum columns, checks and recovery.
// Layer: algorithm (driver). Backend-free; the arithmetic is behind kernels<S>.
// Source: docs/design/qr.md; P. Du et al., 2011 (checksum columns, checkpointed V, QR update); docs/protection.md.
#pragma once

#include <string_view>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/view.hpp>

#include "core/aligned_buffer.hpp"
#include "qr/checks.hpp"
#include "qr/contract.hpp"
#include "run/recorder.hpp"

namespace ballast::qr {

// The width of panels and column blocks for a matrix with `steps` = min(m, n) reflectors. Two panels at least, where there are two columns:
// so that the smallest problem is computed, and struck, the way large ones are. Measured: docs/design/qr.md.
index panel_width(index steps, bool reference);

inline constexpr const char* k_block_checksum = "block_checksum";
inline constexpr const char* k_qr_update = "qr_update";

// Where the magnitude of column norms makes no trouble for squares and products; columns outside are scaled by powers of two first.
template <class S>
inline constexpr int k_comfortable_exponent = sizeof(S) == 4 ? 40 : 300;

// What a call runs with.
struct context {
  run::recorder& seen;
  inject::active_injector& injector;
  const execution& how;
  backend which = backend::cpu;
  int threads = 1;
};

template <class S>
class factorization {
 public:
  // A: m × n, column-major, overwritten by LAPACK's storage; tau: min(m, n). `source`: A's values, readable until the end, to go back to;
  // if its data is null, a copy is made when repair may need it.
  factorization(const context& run, std::string_view scheme, index m, index n, S* A, index lda, S* tau, matrix_view<const S> source);

  // After an uncorrectable fault (run.seen.uncorrectable()) with protection::correct, A holds the input again.
  void run();

 private:
  struct block {
    index first = 0, width = 0;
    bool panel = false;
    index group = 0;  // whose checksum columns it belongs to
  };
  struct group {
    index first = 0, width = 0;
    double norm = 0;  // of its equilibrated columns (Frobenius) plus that of its checksum column
  };

  // Setting up.
  bool scan();
  void encode();
  void encode_rows(index top, index count, matrix_view<const S> X, bool keep);
  S from_source(index i, index j) const;
  void restore(bool scaled);
  void unscale();

  // The factorization.
  bool pass();
  bool prepare_panel(index k);
  void update_block(index k, index b);
  void update_checksums(index k, index first_group, index last_group);
  void update_narrow(index k, index columns, S* C) const;
  void apply(index k, index columns, S* C, index ldc, S* W, const inject::place* at);
  void rebuild_block(index b, index upto);
  block_reflector<S> reflector(index k) const;
  void copy_v1(index k);

  // Checks.
  bool block_passes(index b, index full_rows, bool triangle, const inject::place& where, const char* site, failure& seen, bool& corrected,
                    index& place);
  double residuals(index b, index full_rows, bool triangle, core::aligned_buffer<double>& y) const;
  bool panel_passes(index k, failure& seen);
  void checkpoint(index k, const S* V1, std::vector<double>& sums) const;
  void subtract_r(int count, index first_weight, double* y, index ldy) const;
  double reflector_residual(index k, const std::vector<double>& sums) const;
  bool finish();
  struct outcome {
    bool good = true;
    bool repaired = false;
    failure seen;
    action done = action::corrected;
  };
  outcome finish_v(index k);
  outcome finish_block(index b);
  bool repair_v(index k, const std::vector<double>& sums, index& place);
  bool certificate(failure& seen);
  index slabs(const block_reflector<S>& H) const;
  void checkpoint_slab(const block_reflector<S>& H, index first, index slab, double* sums) const;

  // The paper's recovery.
  outcome update_passes();
  bool givens_recovery(index j);

  const kernels<S>& kernels_;
  const context& run_;
  const bool by_update_;
  const index m_, n_, steps_;
  S* const A_;
  const index lda_;
  S* const tau_;
  matrix_view<const S> source_;
  bool protected_ = false;  // checks are made
  bool repairs_ = false;    // and what fails is repaired
  bool finite_ = true;
  failure restart_;  // why a pass must be repeated from the input

  index nb_ = 0, panels_ = 0, pairs_ = 0;
  std::vector<block> blocks_;
  std::vector<group> groups_;
  std::vector<double> norms_;       // of the columns
  std::vector<int> shift_;          // columns are worked on as 2^shift · a; empty if no column needs it
  std::vector<double> weights_;     // n × 3: d_j, d_j w_j, and the certificate's random ones
  core::aligned_buffer<S> copy_;    // of the input
  core::aligned_buffer<S> V1_, T_;  // panels × nb²
  std::vector<std::uint64_t> T_seal_;
  core::aligned_buffer<S> C_;    // m × 2 groups: the checksum columns
  std::vector<double> product_;  // A times the random weights
  double product_norm_ = 0;
  core::aligned_buffer<double> carried_, next_;   // product_ under the panels' transformations so far, and while one is verified
  core::aligned_buffer<double> row_weights_;      // of the checkpoint: random
  std::vector<std::vector<double>> checkpoints_;  // of V by panel: c1, c2, c3, ‖v‖² of each column
};

}  // namespace ballast::qr
