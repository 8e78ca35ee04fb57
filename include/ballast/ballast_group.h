// Groups of processes for C: several ranks that compute one problem (docs/distributed.md). ballast.h includes this header.
// Layer: interface; implemented in src/c/group.cpp. C99, also valid C++.
#ifndef BALLAST_BALLAST_GROUP_H
#define BALLAST_BALLAST_GROUP_H

#include <ballast/ballast.h>

#ifdef __cplusplus
extern "C" {
#endif

// One rank of a group. Options with a group make calls of it: every rank makes the same calls in the same order, from one thread at a time,
// each with its own rows of the problem. K-Means: `points` are the rows of this rank, 0 or more (dense, backends auto, cpu and reference,
// or a device over NCCL); centroids, inertia, iterations and report are those of all. ballast_qr_factor: A has this rank's rows of a real
// matrix whose rows are at least its columns; R and solutions are the same on all ranks, Q has this rank's rows.
// ballast_qr_factor_columns: A has this rank's columns of any matrix; ballast_qr_factor_grid: its part on a grid of ranks. Other calls
// refuse a group of ranks with BALLAST_UNSUPPORTED. An uncorrectable fault and a lost rank end a call on all ranks.
typedef struct ballast_group ballast_group;

// A communication engine as a table of functions. It only carries bytes: each message has a seal, and one that is damaged, lost, late,
// repeated or delivered to another rank is sent again. Only the thread that makes calls on the group calls them.
typedef struct {
  size_t size;
  void* user;     // passed to the functions
  int32_t rank;   // 0 ... ranks - 1
  int32_t ranks;  // >= 1
  // Begins to send a message and returns before it has arrived; the bytes are copied, or were sent. Returns 0, other numbers for an error
  // that ends the call (BALLAST_DEVICE_ERROR).
  int32_t (*send)(void* user, int32_t to, const void* bytes, size_t count);
  // Takes the next message of any rank, waiting `seconds` at most. If one came, calls take(to, its bytes, their number) once and returns
  // the sender's rank; else returns -1; -2 for an error.
  int32_t (*receive)(void* user, double seconds, void (*take)(void* to, const void* bytes, size_t count), void* to);
  // Returns 1 if the engine knows that a rank has ended or cannot be reached any more, else 0. Null: it never knows.
  int32_t (*lost)(void* user, int32_t rank);
  // Called when the last user of the group is destroyed, and by no function that fails. Null: nothing is to be done.
  void (*destroy)(void* user);
} ballast_transport;

// How a group repairs and gives up. Members that are 0 have their defaults.
typedef struct {
  size_t size;
  int32_t tries;        // a message is sent at most so often, default 5
  double resend_after;  // seconds after which a message that has not come is asked for, default 0.02
  double patience;      // seconds of silence after which an awaited rank counts as lost, default 300
} ballast_group_settings;

// `settings`: null for defaults. Errors: invalid_argument.
BALLAST_C_API int32_t ballast_group_create(const ballast_transport* transport, const ballast_group_settings* settings,
                                           ballast_group** group, ballast_error* error);
// Joins the ranks of a communicator of NCCL 2.18 or later, an ncclComm_t, with a GPU each. Every rank calls it. Two communicators are split
// off, so the given one may be used or released afterwards. The library links no NCCL: it takes the one that the process has loaded, or the
// file that $BALLAST_NCCL names, which must be the one that made the communicator. Errors: invalid_argument (null), unsupported (no NCCL,
// or an older one), device_error.
BALLAST_C_API int32_t ballast_group_nccl(void* communicator, const ballast_group_settings* settings, ballast_group** group,
                                         ballast_error* error);
// Options that have the group keep it alive.
BALLAST_C_API void ballast_group_destroy(ballast_group* group);

// This rank, and the number of ranks that are left.
BALLAST_C_API int32_t ballast_group_place(const ballast_group* group, int32_t* rank, int32_t* ranks, ballast_error* error);
// Returns when every rank has called it. Errors: rank_lost.
BALLAST_C_API int32_t ballast_group_barrier(const ballast_group* group, ballast_error* error);
// This rank does not make the call that comes next: the other ranks leave that call at once with BALLAST_INTERNAL_ERROR and a message
// that names this rank, instead of waiting for `patience`. For a caller who refuses arguments himself, or whose handle of a plan or of
// factors is null: a call that fails otherwise has told the others. Errors: device_error.
BALLAST_C_API int32_t ballast_group_leave_call(const ballast_group* group, ballast_error* error);
// The group of calls with these options; null: none. A group and the option `devices` exclude each other: plans refuse both together.
BALLAST_C_API int32_t ballast_options_set_group(ballast_options* options, const ballast_group* group, ballast_error* error);

// QR of a matrix of any shape (m x n) by block columns, on the group of `options`: rank p of P has the blocks p, p + P, p + 2P ... of
// `block` columns, one beside the other, as ScaLAPACK on a grid of 1 x P processes. Float, double or complex numbers; backends auto, cpu
// and reference. With the option `devices` one call passes all columns, of float or double: results are whole then. The object is
// immutable. All ranks make the same calls in the same order. A wrong argument ends the call of its rank, and those of the others at
// once, with a message that names the rank; a handle of factors that is null or of another kind tells them nothing. Errors: as
// ballast_qr_factor, and rank_lost. docs/distributed.md.
typedef struct ballast_column_factors ballast_column_factors;

// *count <- the number of columns that a rank has of `columns` columns. Errors: invalid_argument.
BALLAST_C_API int32_t ballast_block_columns(int64_t columns, int64_t block, int32_t ranks, int32_t rank, int64_t* count,
                                            ballast_error* error);
// A: this rank's columns, m x count; it is copied. n is the sum of all. `block`: 1 to 96, with `devices` 1 to 1024.
BALLAST_C_API int32_t ballast_qr_factor_columns(const DLTensor* A, int64_t block, const ballast_options* options, const ballast_call* call,
                                                ballast_column_factors** factors, ballast_report* report, ballast_error* error);
BALLAST_C_API void ballast_column_factors_destroy(ballast_column_factors* factors);
// m, n, and the numbers of columns of R and Q that this rank gets; each may be null.
BALLAST_C_API int32_t ballast_column_factors_shape(const ballast_column_factors* factors, int64_t* rows, int64_t* columns,
                                                   int64_t* r_columns, int64_t* q_columns, ballast_error* error);
// Copy to tensors in host memory: this rank's columns of R (min(m, n) x r_columns, upper trapezoidal in the whole matrix); those of
// geqrf's A (m x count; not with `devices`), and tau (min(m, n), all), either of which may be null.
BALLAST_C_API int32_t ballast_column_factors_r(const ballast_column_factors* factors, const DLTensor* R, ballast_error* error);
BALLAST_C_API int32_t ballast_column_factors_storage(const ballast_column_factors* factors, const DLTensor* A, const DLTensor* tau,
                                                     ballast_error* error);
// This rank's columns of Q, m x q_columns, to host memory.
BALLAST_C_API int32_t ballast_column_factors_q(const ballast_column_factors* factors, const DLTensor* Q, const ballast_call* call,
                                               ballast_report* report, ballast_error* error);
// product <- Q C (BALLAST_NO_TRANSPOSE), Q^T C or for complex numbers Q^H C (BALLAST_TRANSPOSE), both m x p; C is this rank's own, of any
// p. X (n x p) <- the least-squares solution for this rank's own B (m x p), m >= n; rank_deficient on all ranks. One axis: one column.
BALLAST_C_API int32_t ballast_column_factors_apply(const ballast_column_factors* factors, int32_t transpose, const DLTensor* C,
                                                   const DLTensor* product, const ballast_call* call, ballast_report* report,
                                                   ballast_error* error);
BALLAST_C_API int32_t ballast_column_factors_solve(const ballast_column_factors* factors, const DLTensor* B, const DLTensor* X,
                                                   const ballast_call* call, ballast_report* report, ballast_error* error);

// A grid of processes as BLACS makes it: rank p has row p / columns and column p mod columns ("Row"); with by_columns = 1 row p mod rows
// and column p / rows ("Col"). rows * columns is the number of ranks.
typedef struct {
  size_t size;
  int32_t rows, columns;
  int32_t by_columns;
} ballast_process_grid;

// Between ScaLAPACK's layout and block columns; calls of all ranks. desc: the nine numbers DTYPE_ = 1, CTXT_ (not read), M_, N_, MB_, NB_,
// RSRC_, CSRC_, LLD_, of which ranks may differ in LLD_. `local`: host memory, one axis without gaps, the rank's part column by column,
// LLD_ apart. `columns`: M_ x count, host memory, as ballast_qr_factor_columns takes it, or as ballast_column_factors_storage gives it.
// Errors: invalid_argument, rank_lost, uncorrectable.
BALLAST_C_API int32_t ballast_qr_to_block_columns(const DLTensor* local, const int32_t* desc, const ballast_process_grid* grid,
                                                  int64_t block, const ballast_options* options, const DLTensor* columns,
                                                  const ballast_call* call, ballast_report* report, ballast_error* error);
BALLAST_C_API int32_t ballast_qr_from_block_columns(const DLTensor* columns, int64_t block, const DLTensor* local, const int32_t* desc,
                                                    const ballast_process_grid* grid, const ballast_options* options,
                                                    const ballast_call* call, ballast_report* report, ballast_error* error);

// QR of a matrix of any shape (m x n = M_ x N_) where ScaLAPACK's layout has it, on the group of `options`; no element moves to another
// layout. Float, double or complex numbers; backends auto, cpu and reference; not with the option `devices`. The object is immutable. All
// ranks make the same calls in the same order. desc, grid and a wrong tensor: as above and for block columns. Errors: as
// ballast_qr_factor_columns. qr_grid.hpp says which faults are covered. docs/distributed.md.
typedef struct ballast_grid_factors ballast_grid_factors;

// local: this rank's part in host memory, one axis without gaps, column by column, LLD_ apart; it is copied. Best MB_ = NB_, 32 to 96 or a
// multiple.
BALLAST_C_API int32_t ballast_qr_factor_grid(const DLTensor* local, const int32_t* desc, const ballast_process_grid* grid,
                                             const ballast_options* options, const ballast_call* call, ballast_grid_factors** factors,
                                             ballast_report* report, ballast_error* error);
BALLAST_C_API void ballast_grid_factors_destroy(ballast_grid_factors* factors);
// m, n; the rows and columns of A that this rank has; of its rows those below min(m, n), of its columns those below min(m, n), by their
// numbers in the whole matrix. Each may be null.
BALLAST_C_API int32_t ballast_grid_factors_shape(const ballast_grid_factors* factors, int64_t* rows, int64_t* columns, int64_t* own_rows,
                                                 int64_t* own_columns, int64_t* r_rows, int64_t* q_columns, ballast_error* error);
// Copy to tensors in host memory: this rank's part of R (r_rows x own_columns); that of pdgeqrf's A (own_rows x own_columns, two axes), and
// tau (min(m, n): of all columns, on every rank), either of which may be null.
BALLAST_C_API int32_t ballast_grid_factors_r(const ballast_grid_factors* factors, const DLTensor* R, ballast_error* error);
BALLAST_C_API int32_t ballast_grid_factors_storage(const ballast_grid_factors* factors, const DLTensor* A, const DLTensor* tau,
                                                   ballast_error* error);
// This rank's part of Q, own_rows x q_columns, to host memory.
BALLAST_C_API int32_t ballast_grid_factors_q(const ballast_grid_factors* factors, const DLTensor* Q, const ballast_call* call,
                                             ballast_report* report, ballast_error* error);
// product <- Q C (BALLAST_NO_TRANSPOSE), Q^T C or for complex numbers Q^H C (BALLAST_TRANSPOSE), both own_rows x p: this rank's rows of the
// p columns of its process column, 0 or more, as many on all ranks of it. X (r_rows x p) <- the same of the least-squares solution for B
// (own_rows x p), m >= n; rank_deficient on all ranks. One axis: one column.
BALLAST_C_API int32_t ballast_grid_factors_apply(const ballast_grid_factors* factors, int32_t transpose, const DLTensor* C,
                                                 const DLTensor* product, const ballast_call* call, ballast_report* report,
                                                 ballast_error* error);
BALLAST_C_API int32_t ballast_grid_factors_solve(const ballast_grid_factors* factors, const DLTensor* B, const DLTensor* X,
                                                 const ballast_call* call, ballast_report* report, ballast_error* error);

#ifdef __cplusplus
}
#endif

#endif
