// One protected factorization in host memory. Holds the matrix or its working copy, checksum columns, V1, T, checkpoints, seals and the
// kept input, and has all loops over them.
// Layer: backend (host), over kernels<S> of reference/ or cpu/. Implements factorizer<S>; contract.hpp describes each operation.
// Source: docs/design/qr.md; P. Du et al., 2011 (checksum columns, checkpointed V, QR update).
#pragma once

#include "core/aligned_buffer.hpp"
#include "core/memory.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/contract.hpp"
#include "qr/host/slabs.hpp"

namespace ballast::qr::host {

// Returns the norm of a column.
template <class S>
column_size size_of(const kernels<S>& arithmetic, index rows, const S* a);

template <class S>
class blocked_factorizer final : public factorizer<S> {
 public:
  blocked_factorizer(const context& run, const kernels<S>& arithmetic, const layout& shape, const matrix_view<S>& A, S* tau,
                     const matrix_view<const S>& source);

  // factorizer.cpp
  void scan(column_size* sizes) override;
  void scan_r(column_size* sizes) override;
  void scale(const int* shifts) override;
  void unscale() override;
  void encode(const double* weights, bool keep, double* squares) override;
  void restart() override;
  void give_back() override;
  void begin_pass() override;
  void begin_panel(index k) override;
  void factor_panel(index k, bool finite) override;
  void end_panel(index k) override;
  std::uint64_t hash_block(index b) override;
  void update(index k, index b) override;
  void advance(index k, index first, core::function_ref<void()> ahead) override;
  void end_pass() override;
  void reload(index b) override;

  // checks.cpp
  void measure_panel(index k, panel_sums* seen) override;
  void measure_reflectors(index k, panel_sums* seen) override;
  void accept_panel(index k) override;
  void measure_block(index b, bool finished, double* residual) override;
  index correct_block(index b, bool finished, double threshold, const inject::position& where) override;
  void measure_independent(index b, bool finished, double* residual) override;
  void measure_all(block_sums* seen) override;
  void measure_certificate(double* residual) override;
  void measure_matrix(matrix_sums* seen) override;

  // checkpoint.cpp
  bool repair_v(index k, index* column) override;

  // givens.cpp
  void recover_column(index j) override;

 private:
  using real = real_of<S>;
  using wide = wide_of<S>;

  // The rows of a block that a check covers: `full` complete ones, then, with `triangle`, as many rows as the block is wide, of which only
  // the upper triangle.
  struct extent {
    index full = 0;
    bool triangle = false;
  };

  // The input and its checksums.
  S from_source(index i, index j) const;
  void restore(bool scaled);
  void encode_rows(index top, index count, bool keep);
  void subtract_input(index top, index rows, index first, index width, int count, index first_weight, wide* y, index ldy) const;

  // Panels and updates.
  block_reflector<S> reflector(index k) const;
  void copy_v1(index k);
  void apply(index k, index columns, S* C, index ldc, S* W, const inject::position* at);
  void update_block(index k, index b);
  void update_checksums(index k, index first_group, index last_group);
  S* checksums(index group) { return C_.data() + 2 * group * shape_.m; }
  const S* checksums(index group) const { return C_.data() + 2 * group * shape_.m; }
  S* v1(index k) { return V1_.data() + k * shape_.panel_width * shape_.panel_width; }
  const S* v1(index k) const { return V1_.data() + k * shape_.panel_width * shape_.panel_width; }
  S* t(index k) { return T_.data() + k * shape_.panel_width * shape_.panel_width; }
  const S* t(index k) const { return T_.data() + k * shape_.panel_width * shape_.panel_width; }

  // The checkpoint of V, and the seals.
  double change_of_v(index k, core::vector<double>& sums);
  double change_of_t(index k) const;
  std::uint64_t seal_of_r(index k, index top, index rows) const;

  // Residuals.
  extent extent_of(index b, bool finished) const;
  double residuals(index b, const extent& rows, core::aligned_buffer<wide>& y) const;
  double subtract_block(index b, const extent& rows, int count, index first_weight, wide* y) const;
  void subtract_r(int count, index first_weight, wide* y, index ldy) const;
  // The sums of the first pass over V.
  struct products {
    core::vector<wide> z;             // Vᴴ times the vectors, width × 4
    core::vector<double> checkpoint;  // the checkpoint of V, width × 4
    double p_squares = 0;             // ‖p‖²
  };
  products panel_products(index k, const core::vector<double>& x) const;
  void judge_orthogonality(index k, const core::vector<double>& x, const products& sums, panel_sums* seen) const;
  products judge_reflectors(index k, panel_sums* seen) const;
  double reflector_residual(index k, const double* squares) const;
  double taus_differ(index k) const;
  double panel_residual(index k, const core::vector<wide>& z);

  // Steps of recover_column.
  struct rotated;
  rotated split_column(index j);
  void rotate_back(index j, rotated& work) const;
  void make_diagonal_real(rotated& work) const;
  void reflectors_of(rotated& work, core::vector<S>& sign);

  const context& run_;
  const kernels<S>& kernels_;
  const layout& shape_;
  S* const A_;
  const index lda_;
  S* const tau_;
  matrix_view<const S> source_;

  core::vector<int> shift_;         // column j is computed as 2^shift_j · a_j; empty if no column needs scaling
  core::aligned_buffer<S> copy_;    // a copy of the input
  core::vector<S> tau_copy_;        // the caller's initial tau, kept where repair may fail
  core::aligned_buffer<S> V1_, T_;  // panels × panel_width²
  // These are empty without protection:
  core::vector<double> weights_;  // n × 3: the weights that encode() was given
  core::aligned_buffer<S> C_;     // m × 2 groups: the checksum columns
  // A times the certificate's weights; the same after the transformations of the panels so far, and its next value while a panel is
  // verified.
  struct {
    core::vector<wide> product;
    core::aligned_buffer<wide> carried, next;
  } certificate_;
  core::aligned_buffer<double> row_weights_;        // random weights of the checkpoint, one for each component of a column
  core::vector<core::vector<double>> checkpoints_;  // checkpoints of V by panel: c1, c2, c3, ‖v‖² of each column
  struct {
    core::vector<std::uint64_t> T;  // by panel
    core::vector<std::uint64_t> R;  // two for each panel: of R's rows above it, and of those within it
  } seals_;
  core::vector<wide> head_;  // checksums of R's rows of the panel under verification, w × 2
};

}  // namespace ballast::qr::host
