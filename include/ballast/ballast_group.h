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
// matrix whose rows are at least its columns; R and solutions are the same on all ranks, Q has this rank's rows. Other calls refuse a group
// of ranks with BALLAST_UNSUPPORTED. An uncorrectable fault and a lost rank end a call on all ranks.
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
// The group of calls with these options; null: none. A group and the option `devices` exclude each other: plans refuse both together.
BALLAST_C_API int32_t ballast_options_set_group(ballast_options* options, const ballast_group* group, ballast_error* error);

#ifdef __cplusplus
}
#endif

#endif
