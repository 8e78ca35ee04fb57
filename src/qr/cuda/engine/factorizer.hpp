// One protected factorization in device memory: the matrix, checksum columns, T, checkpoints, seals and the kept input.
// Layer: backend "cuda" of QR. Implements factorizer<S>, whose header says what each operation does; the host sees scalars, and the numbers
// of a block that is repaired.
// Source: docs/design/qr-cuda.md.
#pragma once

#include <vector>

#include "qr/contract.hpp"
#include "qr/cuda/engine/session.hpp"

namespace ballast::qr::cuda {

template <class S>
class device_factorizer : public factorizer<S> {
 public:
  device_factorizer(session<S>& on, const layout& shape, const matrix_view<S>& A, S* tau, const matrix_view<const S>& source);

  ~device_factorizer() override { on_.settle(); }

  void wait() override { on_.wait(); }

  // input.cpp
  void scan(column_size* sizes) override;
  void scan_r(column_size* sizes) override;
  void scale(const int* shifts) override;
  void unscale() override;
  void prepare(bool keep) override;
  void encode(const double* weights, bool keep, double* squares) override;
  void await_encoded() override;
  void restart() override;
  void give_back() override;
  void reload(index b) override;

  // factorizer.cpp
  void begin_pass() override;
  void begin_panel(index k) override;
  void factor_panel(index k, bool finite) override;
  void end_panel(index k) override;
  std::uint64_t hash_block(index b) override;
  void update(index k, index b) override;
  void advance(index k, index first, core::function_ref<void()> ahead) override;
  void end_pass() override;
  bool goes_ahead(index k) const override;
  void begin_ahead(index k, core::function_ref<panel_limits()> limits) override;
  panel_seen await_panel(index k) override;
  void resume() override;

  // checks.cpp
  bool verifies_once() const override { return true; }
  void measure_panel(index k, panel_sums* seen) override;
  void measure_reflectors(index k, panel_sums* seen) override;
  void accept_panel(index k) override;
  void measure_block(index b, bool finished, double* residual) override;
  index correct_block(index b, bool finished, double threshold, const inject::place& where) override;
  void measure_independent(index b, bool finished, double* residual) override;
  void measure_all(block_sums* seen) override;
  bool repair_v(index k, index* column) override;
  void measure_certificate(double* residual) override;

  // recovery.cpp
  void measure_matrix(matrix_sums* seen) override;
  void recover_column(index j) override;

 protected:
  using buffer = ballast::cuda::device_buffer;
  using stream = ballast::cuda::stream;

  // The columns that one product updates: of whole sections of the matrix, but for the block that is looked ahead at. A block that is
  // computed again gets products of the same shapes at the same places, so that it gets the same bits.
  struct span {
    index first = 0, width = 0;
  };

  // factorizer.cpp
  void factor_by_reflectors(index k);
  void strike_kept(index k);
  void strike_stored();
  bool checked() const { return weights_.data() != nullptr; }
  reflectors<S> reflector(index k) const;
  S* T(index k) const { return static_cast<S*>(T_.data()) + k * nb() * nb(); }
  S* checksums(index group) const { return static_cast<S*>(C_.data()) + 2 * group * shape_.m; }
  const double* weights() const { return static_cast<const double*>(weights_.data()); }
  const int* shifts() const { return static_cast<const int*>(shifts_.data()); }
  index nb() const { return shape_.panel_width; }
  block_list blocks() const { return {shape_.steps, shape_.n, static_cast<int>(nb())}; }
  // input.cpp
  void weigh_matrix(const matrix_view<const S>& X, const int* shifts, bool r, index weight, double* to);
  column_result* column_results(index columns);
  void scan_columns(bool r, const double* gram, column_size* sizes);
  void copy_columns(const matrix_view<const S>& from, index first, index width, S* to, index ld, bool scaled);
  S* copy_memory();  // room for it
  // A copy of the input, where the caller has none: on the device.
  virtual void keep_source();
  // factorizer.cpp
  void form_v(index k, S* to, stream on) { on_.form_v(reflector(k), to, on, ahead_ == k ? tall_of(k) : nullptr); }
  // Of a panel that is being begun ahead of the host; null: none is.
  panel_gate* gate() const { return begins_ahead_ ? &control()->gate : nullptr; }
  panel_gate* gate_of_checks() const { return limits_.holds ? gate() : nullptr; }
  // What its kernels and the host share.
  struct panel_control {
    panel_gate gate;
    panel_record records[k_places];  // of panels in turn
  };
  panel_control* control() const { return static_cast<panel_control*>(control_.data()); }
  panel_record* record(index k) const { return control()->records + k % k_places; }
  tall_state* tall_of(index k) const { return &record(k)->tall; }
  // Panel k as products take it; V is its V, formed.
  formed_reflector<S> formed(index k, const S* V) const { return {V, shape_.m - shape_[k].first, shape_[k].width, T(k)}; }
  span section_of(index k, index b) const;
  // Of a matrix that is one panel it is made where a pass needs it.
  void make_room_for_v(index k);
  S* V(index k) const { return static_cast<S*>(V_[k % turns_].data()); }
  // What V is in the place that panel k takes now.
  void forget_v(index k) {
    if (formed_ >= 0 && formed_ % turns_ == k % turns_) formed_ = -1;
  }
  // Whether far blocks are updated with panel k and the other one of its pair, the next if k is even, at once.
  bool joins_pairs(index k) const;
  bool updates_long(index rows, index columns) const;
  // Blocks from here on are updated by panel k behind those that the next panels wait for.
  index first_far(index k) const { return joins_pairs(k) ? k / 2 * 2 + 4 : k + 3; }
  formed_reflector<S> join_pair(index k, const S* first, const S* second, buffer& memory, stream on);
  S* pair_memory(buffer& memory, stream on);
  void apply(index k, formed_reflector<S> H, span columns, S* C, index ldc, S* W, stream on, span struck);
  void project(index k, const formed_reflector<S>& H, span columns, const S* C, index ldc, const some_columns<S>& more, S* W, stream on,
               span struck);
  void look_ahead(index k, index b);
  // Behind what the main stream has now and behind the panel's checks, the gate is looked at for panel k: from here on it may change all
  // blocks, beside and aside.
  void decide(index k);
  inject::place pair_place(index k, index b) const;
  void strike_updated(index k, index b, stream on);
  void update_checksums(index k, const S* V, index first_group, index last_group, S* W, stream on);
  void join_all();
  S* scratch(buffer& of, index elements);

  // tall.cpp. Where qr.panel is struck, for column j of A: 0 the panel, 1 its Gram matrix, 2 the factor of that, 3 the Gram matrix of Q, 4
  // the factor of that, 5 U R, by which Q becomes V.
  inject::place tall_place(index j, index which) const { return {j + which * shape_.steps, 6 * shape_.steps, 0, 1}; }
  void strike_triangle(index k, index which, double* triangle);
  void begin_tall(index k);
  // Whether panel k, that is begun ahead of the host, is taken for direct: what others take is not launched then.
  bool expects_direct(index k) const;
  double* make_gram(index k, int pass);
  void tall_pass(index k, int pass);
  void reflect(index k, int pass);
  void factor_gram(index k, int pass);
  // Until the device has said whether the panel that was begun is made: makes it, one way or the other. Whether it was not, so that what
  // was enqueued behind it is worthless. The host waits here, and nowhere else for a panel.
  bool settle();

  // checks.cpp
  fold_arguments partial_products(const products_arguments<S>& given, double* sums, stream on);
  void products(const products_arguments<S>& given, double* sums);
  double* judge(index k, bool whole, panel_result* to, stream on);
  void sum_panel(index k, panel_result* to, stream on);
  void take_over(index k, stream on);
  void measure_panel_once(index k, panel_sums* seen);
  // A counter of blocks, which is 0 between the launches of a stream: the main one.
  std::uint32_t* arrived() const { return static_cast<std::uint32_t*>(arrived_.data()); }
  panel_result* panel_results();
  void hash(const S* X, index ld, index rows, index columns, bool upper, unsigned long long* to);
  void weigh_block(index b, bool finished, const S* init, const double* from, int count, index first_weight, double* y, double* norm,
                   unsigned long long* seal, stream on);
  static constexpr index k_weigh_sums = 3;  // for each block of rows: two squares and a hash
  index judge_sums() const { return 13 * nb() + 8; }
  void make_room_for_checks();
  double* numbers(buffer& of, index count);
  void measure_entry(index k, double* norm, stream on);
  std::vector<S> read_block(index b);
  void write_block(index b, const std::vector<S>& values);

  // recovery.cpp
  struct turned;
  turned split_column(index j);
  void rotate_back(index j, turned& work);
  void reflectors_of(turned& work);

  session<S>& on_;
  const layout& shape_;
  S* const A_;
  const index lda_;
  S* const tau_;
  matrix_view<const S> source_;

  buffer copy_;      // of the input
  buffer tau_copy_;  // of what the caller had in tau, where repair may fail
  buffer T_;         // panels × nb²
  static constexpr index k_turns = 4;
  index turns_ = 1;
  buffer V_[k_turns];            // of so many panels in turn
  buffer V_again_, pair_again_;  // of a panel, or a pair, whose updates are repeated
  buffer pair_;                  // V and T of a pair, beside
  index formed_ = -1;            // the panel whose V is in its turn's place
  index unpaired_ = -1;          // the even panel that far blocks have not been updated with yet; −1: none
  bool marked_ = false;          // `beside` has a mark behind the near blocks of the last panel
  bool t_marked_ = false;        // `aside` has one behind T of the panel that was begun
  buffer W_[2];                  // VᵀC, and times T: on the main stream, and beside it
  buffer images_[2];             // of V, for products on the main stream, and beside it
  const S* imaged_ = nullptr;    // the V whose image is beside it
  buffer inner_;                 // V and T of a part of a panel, and what they make
  buffer pivots_;
  bool gram_made_ = false;  // scan() has made the first panel's Gram matrix
  index unsettled_ = -1;    // a tall panel that was begun
  buffer control_;
  index ahead_ = -1;      // the last panel that was begun ahead of the host
  index undecided_ = -1;  // a panel for which the gate is still to be looked at
  bool begins_ahead_ = false;
  bool expects_direct_ = true;  // all so far were
  panel_limits limits_;         // what it must pass
  buffer gram_, tall_;          // of a tall panel: partial sums of Gram matrices; factors and what the device finds
  buffer shifts_;               // columns are worked on as 2^shift · a; empty if no column needs it
  buffer section_;              // where a block is computed again: a section of the matrix
  // Empty without protection:
  buffer weights_;               // n × 3: as encode() has them
  buffer W_of_checksums_;        // as W_, aside
  buffer C_;                     // m × 2 groups: the checksum columns
  buffer product_;               // A times the certificate's weights
  buffer carried_, next_;        // product_ under the panels' transformations so far, and while one is verified
  buffer row_weights_, random_;  // of the checkpoint, and x of the check of orthogonality
  buffer checkpoints_, again_;   // of V by panel: c1, c2, c3, ‖v‖² of each column
  buffer seals_;                 // by panel: T, R's rows above it, those within it; and the same again
  buffer head_;                  // checksums of R's rows of the panel that is being verified, w × 2
  buffer arrived_;
  const column_result* brought_ = nullptr;  // what encode() measured, on its way to the host, and where it is to go
  double* encoded_ = nullptr;
  buffer partial_, sums_, parts_, results_, vectors_;
};

}  // namespace ballast::qr::cuda
