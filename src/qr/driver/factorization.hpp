// The protected blocked QR factorization: panels with lookahead, what is verified when, and recovery.
// Layer: algorithm (driver). Backend-free: the matrix is the factorizer's.
// Source: docs/design/qr.md; P. Du et al., 2011 (checksum columns, checkpointed V, QR update); docs/protection.md.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "qr/contract.hpp"

namespace ballast::qr {

inline constexpr const char* k_block_checksum = "block_checksum";
inline constexpr const char* k_qr_update = "qr_update";
inline constexpr const char* k_hybrid = "hybrid";  // qr_update on cuda with its panels on the host: context::hybrid

template <class S>
class factorization {
 public:
  // A, tau and source: as in engine::make_factorizer.
  factorization(const context& run, engine<S>& on, std::string_view scheme, const matrix_view<S>& A, S* tau,
                const matrix_view<const S>& source);

  // After an uncorrectable fault (run.seen.uncorrectable()) with protection::correct, A holds the input again. `keep_r`: worked_r() is
  // wanted.
  void run(bool keep_r = false);

  // A's columns were worked on as 2^shift · a: n numbers, zeros for columns of a moderate size.
  const std::vector<int>& shifts() const { return shifts_; }

  // R (n × n, m ≥ n) of the columns as they were worked on: in A, or beside it where columns were scaled.
  const matrix_view<const S>& worked_r() const { return worked_r_; }

 private:
  // A check at the end whose event waits until all of them agree.
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
  abft::finding compare_tiers(const inject::place& where, double residual, const abft::tiers& limits, const char* name, index b) const;
  abft::finding verify_panel(index k);
  abft::finding verify_sums(index k, const panel_sums& sums);
  panel_limits limits_of(index k) const;
  bool judge_ahead(index k, const panel_seen& seen);
  abft::finding verify_ahead(index k, const panel_seen& seen);
  abft::finding verify_block(index b, bool finished, const inject::place& where, const char* name, double residual);
  void measure_end();
  abft::finding finish();
  abft::finding verify_reflectors(index k, const panel_sums& sums) const;
  settled_check finish_v(index k, double change);
  settled_check finish_t(index k, double change);
  settled_check finish_block(index b, double residual);
  abft::finding verify_matrix();
  abft::finding verify_norms();
  settled_check finish_certificate(const double* measured);  // null: it is measured now
  void scan_r();
  template <class Look>
  settled_check look_twice(Look&& look) const;
  inject::place panel_place(index k, index step) const;

  const context& run_;
  engine<S>& on_;
  const matrix_view<S> A_;
  layout shape_;
  std::unique_ptr<factorizer<S>> work_;
  bool finite_ = true;
  bool protected_ = false;            // checks are made
  bool repairs_ = false;              // and what fails is repaired
  bool encoded_waits_ = false;        // what encode() measures is to be waited for, and the thresholds made of it
  bool end_measured_ = false;         // measure_end() was of the factors that are there
  std::vector<column_size> sizes_;    // of the columns of the input
  std::vector<double> norms_;         // the same, as they are worked on
  std::vector<column_size> r_sizes_;  // of R's columns
  bool r_scanned_ = false;            // and they are those of the R that is there
  std::vector<double> weights_;       // n × 3, as factorizer::encode has them
  std::vector<double> ratio_;         // of the second checksum's weights to the first's
  // Of each group, and behind them of all columns: ‖columns times their weights‖; the squares of the norms of what encode() made.
  std::vector<double> weighted_, encoded_;
  std::vector<abft::tiers> threshold_;  // of each group
  double certificate_threshold_ = 0;
  std::vector<block_sums> end_sums_;
  double certificate_ = 0;
  std::vector<int> shifts_;
  std::shared_ptr<S> kept_r_;
  matrix_view<const S> worked_r_;
  abft::finding restart_;  // why the pass must be repeated from the input
  // Of one pass. Panels are begun, judged and advanced in their order; those in front of these are.
  index begun_ = 0, judged_ = 0, advanced_ = 0;
  bool goes_ahead_ = true;  // panels may be begun before others are judged
};

}  // namespace ballast::qr
