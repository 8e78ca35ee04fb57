// One protected factorization in device memory: the matrix, checksum columns, T, checkpoints, seals and the kept input.
// Layer: backend "cuda" of QR. Implements factorizer<S>; contract.hpp describes each operation. The host sees scalars, and the numbers of a
// block that is repaired.
// Source: docs/design/qr-cuda.md.
#pragma once

#include "core/memory.hpp"
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
  index correct_block(index b, bool finished, double threshold, const inject::position& where) override;
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
  using real = real_of<S>;
  using wide = wide_of<S>;

  // The columns that one product updates: whole sections of the matrix, except for the lookahead block. A block that is recomputed gets
  // products of the same shapes at the same positions, so that it gets the same bits.
  struct span {
    index first = 0, width = 0;
  };

  // factorizer.cpp
  void factor_by_reflectors(index k);
  void strike_kept(index k);
  void strike_stored();
  bool checked() const { return checks_.weights.data() != nullptr; }
  reflectors<S> reflector(index k) const;
  S* T(index k) const { return static_cast<S*>(panels_.T.data()) + k * nb() * nb(); }
  S* checksums(index group) const { return static_cast<S*>(checks_.C.data()) + 2 * group * shape_.m; }
  const double* weights() const { return static_cast<const double*>(checks_.weights.data()); }
  const int* shifts() const { return static_cast<const int*>(shifts_.data()); }
  index nb() const { return shape_.panel_width; }
  block_list blocks() const { return {shape_.steps, shape_.n, static_cast<int>(nb())}; }
  // input.cpp
  void weigh_matrix(const matrix_view<const S>& X, const int* shifts, bool r, index weight, wide* to);
  void combine(const wide* parts, index chunks, const wide* from, wide* to, double* squares, index there, stream on);
  column_result* column_results(index columns);
  void draw(stream on);
  void scan_columns(bool r, const double* gram, column_size* sizes);
  void copy_columns(const matrix_view<const S>& from, index first, index width, S* to, index ld, bool scaled);
  S* copy_memory();  // allocated on first use
  // Makes a copy of the input on the device, unless the caller has one.
  virtual void keep_source();
  // factorizer.cpp
  void form_v(index k, S* to, stream on) { on_.form_v(reflector(k), to, on, checked(), ahead_.last == k ? cholesky_qr_of(k) : nullptr); }
  // The gate of a panel that is being begun ahead of the host; null: no such panel.
  panel_gate* gate() const { return ahead_.begins ? &control()->gate : nullptr; }
  panel_gate* gate_of_checks() const { return ahead_.limits.holds ? gate() : nullptr; }
  // Memory that the kernels share with the host.
  struct panel_control {
    panel_gate gate;
    panel_record records[k_send_slots];  // records of the last k_send_slots panels, in turn
  };
  panel_control* control() const { return static_cast<panel_control*>(ahead_.control.data()); }
  panel_record* record(index k) const { return control()->records + k % k_send_slots; }
  cholesky_qr_state* cholesky_qr_of(index k) const { return &record(k)->cholesky_qr; }
  // Panel k as an operand of products; V is its formed V.
  formed_reflector<S> formed(index k, const S* V) const { return {V, shape_.m - shape_[k].first, shape_[k].width, T(k)}; }
  span section_of(index k, index b) const;
  // Allocates the memory of V. A matrix that is a single panel gets it only if a pass needs it.
  void allocate_v(index k);
  S* V(index k) const { return static_cast<S*>(panels_.V[k % panels_.copies].data()); }
  // Marks the V of panel k's slot as out of date.
  void forget_v(index k) {
    if (panels_.formed >= 0 && panels_.formed % panels_.copies == k % panels_.copies) panels_.formed = -1;
  }
  // Returns whether far blocks are updated with both panels of k's pair at once: panels 2 i and 2 i + 1 are a pair.
  bool joins_pairs(index k) const;
  bool updates_long(index rows, index columns) const;
  // The first block that panel k updates after the blocks that the next panels wait for.
  index first_far(index k) const { return joins_pairs(k) ? k / 2 * 2 + 4 : k + 3; }
  formed_reflector<S> join_pair(index k, const S* first, const S* second, buffer& memory, stream on);
  S* pair_memory(buffer& memory, stream on);
  void apply(index k, formed_reflector<S> H, span columns, S* C, index ldc, S* W, stream on, span struck);
  void project(index k, const formed_reflector<S>& H, span columns, const S* C, index ldc, const some_columns<S>& more, S* W, stream on,
               span struck);
  void look_ahead(index k, index b);
  // Enqueues the reading of the gate for panel k after all work on the main stream and after the panel's checks. Work that the update and
  // check streams get later may change all blocks.
  void decide(index k);
  inject::position pair_place(index k, index b) const;
  void strike_updated(index k, index b, stream on);
  void update_checksums(index k, const S* V, index first_group, index last_group, S* W, stream on);
  void join_all();
  S* scratch(buffer& of, index elements);

  // cholesky_qr.cpp. Strikes of qr.panel for column j of A: 0 in the panel, 1 in its Gram matrix, 2 in the factor of that, 3 in the Gram
  // matrix of Q, 4 in the factor of that, 5 in U R, which turns Q into V.
  inject::position cholesky_qr_position(index j, index which) const { return {j + which * shape_.steps, 6 * shape_.steps, 0, 1}; }
  void strike_triangle(index k, index which, double* triangle);
  void begin_cholesky_qr(index k);
  // Returns whether panel k, which is begun ahead of the host, is expected to be direct: the kernels that other panels need are then not
  // launched.
  bool expects_direct(index k) const;
  double* make_gram(index k, int pass);
  void cholesky_qr_pass(index k, int pass);
  void reflect(index k, int pass);
  void factor_gram(index k, int pass);
  // Waits until the device has decided whether the panel that was begun is complete, and completes it if it is not. Returns true if the
  // panel was not complete: the results of work enqueued after it are then void. This is the only place where the host waits for a panel.
  bool settle();

  // checks.cpp
  fold_arguments partial_products(const products_arguments<S>& given, double* sums, stream on);
  void products(const products_arguments<S>& given, double* sums);
  wide* judge(index k, bool whole, panel_result* to, stream on);
  void sum_panel(index k, panel_result* to, stream on);
  void take_over(index k, stream on);
  void measure_panel_once(index k, panel_sums* seen);
  // A counter of thread blocks. It is 0 between launches; the launches that share it run one after the other.
  std::uint32_t* arrived() const { return static_cast<std::uint32_t*>(checks_.arrived.data()); }
  panel_result* panel_results();
  void hash(const S* X, index ld, index rows, index columns, bool upper, unsigned long long* to);
  void weigh_block(index b, bool finished, const S* init, const wide* from, int count, index first_weight, wide* y, double* norm,
                   unsigned long long* seal, stream on);
  static constexpr index k_weigh_sums = 3;  // for each block of rows: two squares and a hash
  // The doubles of judge(): T x and Tᴴ times three sums, the sums over V, and |T| |x|.
  index judge_sums() const { return (4 * k_reals<S> + k_panel_sums<S> + 1) * nb() + 1; }
  void allocate_checks();
  double* numbers(buffer& of, index count);
  wide* sums_in(buffer& of, index count) { return reinterpret_cast<wide*>(numbers(of, k_reals<S> * count)); }
  static wide* wides(const buffer& of) { return static_cast<wide*>(of.data()); }
  void measure_entry(index k, double* norm, stream on);
  core::vector<S> read_block(index b);
  void write_block(index b, const core::vector<S>& values);

  // recovery.cpp
  struct rotated;
  rotated split_column(index j);
  void rotate_back(index j, rotated& work);
  core::vector<S> turns_of_r();
  void reflectors_of(rotated& work);

  session<S>& on_;
  const layout& shape_;
  S* const A_;
  const index lda_;
  S* const tau_;
  matrix_view<const S> source_;

  static constexpr index k_copies = 4;
  buffer shifts_;  // column j is computed as 2^shift_j · a_j; empty if no column needs scaling
  // The input, where repair may fail.
  struct {
    buffer input;  // a copy of A, unless the caller has one
    buffer tau;    // the caller's initial tau
  } kept_;
  // The factored panels.
  struct {
    buffer T;  // panels × nb²
    index copies = 1;
    buffer V[k_copies];  // V of the last `copies` panels, in turn
    index formed = -1;   // the panel whose V is in its slot
    buffer inner;        // V and T of a part of a panel, and the memory of its products
    buffer pivots;
    buffer gram, triangles;  // Cholesky QR: partial sums of Gram matrices; factors and other triangles
    bool gram_made = false;  // scan() has computed the first panel's Gram matrix
    index unsettled = -1;    // a Cholesky QR panel that was begun and may not be complete; −1: no such panel
    bool t_marked = false;   // the check stream has a mark after T of the panel that was begun
  } panels_;
  // The updates of the other blocks.
  struct {
    buffer W[2];                // VᵀC, followed by T times it: for the main stream, and for the update stream
    buffer W_of_checksums;      // the same for the check stream; empty without protection
    buffer images[2];           // images of V, for products on the main stream and on the update stream
    const S* imaged = nullptr;  // the V whose image is in images[1]
    buffer pair;                // V and T of a pair, for the update stream
    index unpaired = -1;        // the even panel with which far blocks have not been updated yet; −1: no such panel
    bool marked = false;        // the update stream has a mark after the near blocks of the last panel
  } updates_;
  // Updates of a block that is recomputed: V of a panel and of a pair, and a section of the matrix.
  struct {
    buffer V, pair, section;
  } repeated_;
  // Panels ahead of the host.
  struct {
    buffer control;
    index last = -1;       // the last panel that was begun ahead of the host
    index undecided = -1;  // a panel for which the gate has not been read yet
    bool begins = false;
    bool expects_direct = true;  // all panels so far were direct
    panel_limits limits;         // the limits that a panel must meet
  } ahead_;
  // Checksums, checkpoints and seals; empty without protection.
  struct {
    buffer weights;              // n × 3: the weights that encode() was given
    buffer C;                    // m × 2 groups: the checksum columns
    buffer product;              // A times the certificate's weights
    buffer carried, next;        // product after the transformations of the panels so far, and its next value while a panel is verified
    buffer row_weights, random;  // weights of the checkpoint, and x of the orthogonality check
    buffer checkpoints, again;   // checkpoints of V by panel: c1, c2, c3, ‖v‖² of each column; and the same recomputed
    buffer seals;                // by panel: T, R's rows above it, those within it; and the same recomputed
    buffer head;                 // checksums of R's rows of the panel under verification, w × 2
    buffer arrived;
    // The results of encode()'s measurement on their way to the host, and where await_encoded() stores them.
    const column_result* brought = nullptr;
    double* encoded = nullptr;
  } checks_;
  // Memory of single measurements.
  struct {
    buffer partial, sums, parts, results, vectors;
  } scratch_;
};

}  // namespace ballast::qr::cuda
