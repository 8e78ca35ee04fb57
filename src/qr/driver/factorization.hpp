// The protected blocked QR factorization: panels with lookahead, the order of the checks, and recovery.
// Layer: algorithm (driver), backend-free: the factorizer owns the matrix.
// Source: docs/design/qr.md; P. Du et al., 2011 (checksum columns, checkpointed V, QR update); docs/protection.md.
#pragma once

#include <memory>
#include <string_view>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "core/memory.hpp"
#include "qr/contract.hpp"

namespace ballast::qr {

inline constexpr const char* k_block_checksum = "block_checksum";
inline constexpr const char* k_qr_update = "qr_update";
inline constexpr const char* k_hybrid = "hybrid";  // qr_update on cuda with the panels on the host: context::hybrid

template <class S>
class factorization {
 public:
  // A, tau and source: as in engine::make_factorizer.
  factorization(const context& run, engine<S>& on, std::string_view scheme, const matrix_view<S>& A, S* tau,
                const matrix_view<const S>& source);

  // After an uncorrectable fault (run.seen.uncorrectable()) with protection::correct, A holds the input again. `keep_r`: worked_r() will be
  // called.
  void run(bool keep_r = false);

  // A's columns were computed as 2^shift · a: n numbers, zeros for columns of a moderate size.
  const core::vector<int>& shifts() const { return columns_.shifts; }

  // R (n × n, m ≥ n) of the columns as they were computed: in A, or in other memory if columns were scaled.
  const matrix_view<const S>& worked_r() const { return worked_r_; }

 private:
  // A check at the end. Its event waits until all of these checks agree.
  struct settled_check {
    abft::outcome how = abft::outcome::clean;
    abft::attempts state{0};
  };

  // factorization.cpp
  bool prepare_input();
  void keep(bool scaled);
  void draw_weights();
  void encode();
  void await_thresholds();
  abft::finding pass();
  void tell_progress(index done);
  bool bring_panel(index k);
  void begin_ahead(index k);
  bool judge_panels(index upto);
  bool prepare_panel(index k, const panel_seen* ahead);
  settled_check enter_panel(index k, const panel_seen* ahead);
  bool verified_once() const { return shape_.one_block() && work_->verifies_once(); }
  bool has_entry(index k) const { return protected_ && !shape_.single_group && k > 0; }
  void rebuild_block(index b, index upto);

  // verification.cpp
  double limit_of(const abft::tiers& limits) const { return repairs_ ? limits.clean : limits.wrong; }
  abft::finding compare_tiers(const inject::position& where, double residual, const abft::tiers& limits, const char* name, index b) const;
  abft::finding verify_panel(index k);
  abft::finding verify_sums(index k, const panel_sums& sums);
  panel_limits limits_of(index k) const;
  bool judge_ahead(index k, const panel_seen& seen);
  abft::finding verify_ahead(index k, const panel_seen& seen);
  abft::finding verify_block(index b, bool finished, const inject::position& where, const char* name, double residual);
  void measure_end();
  abft::finding finish();
  abft::finding verify_reflectors(index k, const panel_sums& sums) const;
  settled_check finish_v(index k, double change);
  settled_check finish_t(index k, double change);
  settled_check finish_block(index b, double residual);
  abft::finding verify_matrix();
  abft::finding verify_norms();
  settled_check finish_certificate(const double* measured);  // null: measures it now
  void scan_r();
  template <class Look>
  settled_check look_twice(Look&& look) const;
  inject::position panel_position(index k, index step) const;

  const context& run_;
  engine<S>& on_;
  const matrix_view<S> A_;
  layout shape_;
  std::unique_ptr<factorizer<S>> work_;
  bool finite_ = true;
  bool protected_ = false;  // the checks run
  bool repairs_ = false;    // and failures are repaired
  struct {
    core::vector<int> shifts;           // as in shifts()
    core::vector<column_size> sizes;    // the input's columns
    core::vector<double> norms;         // the same columns as they are computed, scaled
    core::vector<column_size> r_sizes;  // R's columns
    bool r_scanned = false;             // r_sizes belongs to the current R
  } columns_;
  struct {
    core::vector<double> weights;  // n × 3, as in factorizer::encode
    core::vector<double> ratio;    // the second checksum's weights over the first's
    // For each group, then for all columns: ‖weighted columns‖, and the squared norms that encode() measured.
    core::vector<double> weighted, squares;
    bool waits = false;                    // await_thresholds() must still wait for encode() and compute the thresholds
    core::vector<abft::tiers> thresholds;  // one for each group
    double certificate_threshold = 0;
  } encoded_;
  // The results of measure_end().
  struct {
    bool measured = false;  // they belong to the current factors
    core::vector<block_sums> sums;
    double certificate = 0;
  } end_;
  std::shared_ptr<S> kept_r_;
  matrix_view<const S> worked_r_;
  abft::finding restart_;  // the reason why the pass must be repeated from the input
  // Panels are begun, judged and advanced in order. These are the numbers of such panels in the current pass.
  struct {
    index begun = 0, judged = 0, advanced = 0;
    bool goes_ahead = true;  // panels may be begun before others are judged
  } panels_;
};

}  // namespace ballast::qr
