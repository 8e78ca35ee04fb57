// Ballast for C, and for every language that can call C: FFT, K-Means and QR that detect and repair silent data corruption.
// Layer: interface; implemented in src/c, over the C++ headers beside this file. C99, also valid C++. docs/c.md explains it by examples.
//
// Conventions of all functions:
// - A function that can fail returns a status (BALLAST_OK is 0). No exception leaves the library, and no argument ends the process, as long
//   as every address is valid: a handle comes from its _create function and was not destroyed, and operands have the memory that they say.
// - The last parameter of such a function is an error object of the caller, or null. The call clears it, and after a failure it holds
//   status, message (what was expected, what was got) and the problem's token.
// - Outputs are written only if the status says that they are. A handle that a function creates is null after a failure.
// - A null handle where one is needed is BALLAST_INVALID_ARGUMENT. Every _destroy function accepts null.
// - A text that is `const char*` belongs to the object that it came from, or to the library. A text that comes by `char**` belongs to the
//   caller, who gives it to ballast_free.
// - A struct whose first member is `size` grows in later versions. The caller sets `size` to sizeof of the struct and all else to 0 first.
// - Options are set by name; what belongs to one call has functions of its own, since it consists of addresses.
//
// Threads: plans and factors are immutable, and any number of threads may use one at the same time. Options and calls may be read by any
// number of threads while no thread changes them. Errors, reports and pending handles belong to one thread at a time. No object may be
// destroyed while a function uses it. Loading the library starts no CUDA driver and no thread of Ballast, and allocates nothing; the BLAS
// beside it may start threads.
#ifndef BALLAST_BALLAST_H
#define BALLAST_BALLAST_H

#include <stddef.h>
#include <stdint.h>

// Marks the functions that libballast_c exports.
#if defined(__GNUC__)
#define BALLAST_C_API __attribute__((visibility("default")))
#else
#define BALLAST_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- Operands: DLPack's tensors (https://github.com/dmlc/dlpack, version 1). A file that uses dlpack.h includes it before this header.

#ifndef DLPACK_DLPACK_H_

// The place of memory.
typedef struct {
  int32_t device_type;  // BALLAST_DLPACK_CPU, ...
  int32_t device_id;    // the number of the device in the driver's order; 0 for host memory
} DLDevice;

// The type of an element.
typedef struct {
  uint8_t code;    // BALLAST_DLPACK_FLOAT, ...
  uint8_t bits;    // size of one element: 32 for float, 64 for double and for complex numbers of two floats
  uint16_t lanes;  // 1
} DLDataType;

// Element (i_0, i_1, ...) lies byte_offset bytes and i_0 * strides[0] + i_1 * strides[1] + ... elements after `data`. Owns nothing.
typedef struct {
  void* data;  // on the host or the device
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;    // ndim lengths
  int64_t* strides;  // ndim strides in elements; null: row-major without gaps
  uint64_t byte_offset;
} DLTensor;

#endif

// Values of DLDevice.device_type that Ballast takes: pageable host memory, device memory, page-locked host memory, managed memory.
#define BALLAST_DLPACK_CPU 1
#define BALLAST_DLPACK_CUDA 2
#define BALLAST_DLPACK_CUDA_HOST 3
#define BALLAST_DLPACK_CUDA_MANAGED 13

// Values of DLDataType.code that Ballast takes: signed integers of 32 bits (labels; of 64 too for compressed rows), float and double (of
// K-Means also float16), bfloat16 (of K-Means), complex numbers of two floats or doubles.
#define BALLAST_DLPACK_INT 0
#define BALLAST_DLPACK_FLOAT 2
#define BALLAST_DLPACK_BFLOAT 4
#define BALLAST_DLPACK_COMPLEX 5

// ---- Status

#define BALLAST_OK 0
#define BALLAST_INVALID_ARGUMENT 1  // an argument has no meaning: a null, a name, a shape, a stride, a type. Nothing was computed
#define BALLAST_RANK_DEFICIENT 2    // least squares with a matrix that does not have full rank
#define BALLAST_UNSUPPORTED 3       // the call has a meaning, but this build or this machine cannot run it
#define BALLAST_DEVICE_ERROR 4      // a device or its driver failed; the message holds the driver's words
#define BALLAST_OUT_OF_MEMORY 5     // of the host or the device
#define BALLAST_UNCORRECTABLE 6     // a detected fault could not be repaired: the output is not to be used. The report is filled
#define BALLAST_CANCELLED 7         // the progress callback asked to stop
#define BALLAST_INTERNAL_ERROR 8    // none of these: an error in Ballast, or an exception that left a callback
#define BALLAST_RANK_LOST 9         // a rank of the group has ended or does not answer; the message names it

// The name of a status, "invalid_argument" say; "unknown" for other numbers. Never null.
BALLAST_C_API const char* ballast_status_name(int32_t status);

// ---- The library

// The version of this header: 10000 times the number of the library's SONAME, plus the number of the last addition.
#define BALLAST_ABI_VERSION 10000

// That of the library that runs. It can serve a program whose BALLAST_ABI_VERSION is not greater and has the same first part.
BALLAST_C_API int32_t ballast_abi_version(void);

// The version of Ballast, "0.2.0".
BALLAST_C_API const char* ballast_version(void);

// Gives a memory block or text back that the library has given to the caller by `char**`. Null is allowed.
BALLAST_C_API void ballast_free(void* memory);

// An error object: the outcome of the last function that it was passed to.
typedef struct ballast_error ballast_error;

BALLAST_C_API int32_t ballast_error_create(ballast_error** error);
BALLAST_C_API void ballast_error_destroy(ballast_error* error);

// A null has BALLAST_OK and empty texts. The texts live until the object is passed to another function or destroyed.
BALLAST_C_API int32_t ballast_error_status(const ballast_error* error);
BALLAST_C_API const char* ballast_error_message(const ballast_error* error);
BALLAST_C_API const char* ballast_error_problem(const ballast_error* error);  // "fft_c2c_f32_n1024_b1_fwd"; empty if no problem is known

// One JSON object on version, backends, devices, CUDA, SIMD, BLAS, threads, sites and models of faults: what `ballast info --json` prints,
// without line breaks. Looks at the machine: the first call starts the CUDA driver if there is one.
BALLAST_C_API int32_t ballast_info_json(char** text, ballast_error* error);

// The value of the environment variable OPENBLAS_CORETYPE that gives better BLAS kernels on this processor, empty if there is none. It must
// be set before the program starts.
BALLAST_C_API int32_t ballast_better_blas_kernels(char** text, ballast_error* error);

// ---- Options: the problem, how it is computed and where, by name

// For one algorithm. Enumerations are texts.
//
// All algorithms:
//   precision         text      "f32" (default of fft and kmeans) or "f64" (default of qr)
//   batch             integer   problems of one size, >= 1, default 1
//   backend           text      "auto" (default), "reference", "cpu", "cuda"
//   device            integer   the CUDA device in the driver's order; -1 (default): the current one of the calling thread, else the first
//   devices           integers  numbers of CUDA devices that share a call: fft: one array without gaps, transformed along all of one to
//                     three axes; kmeans: one data set; qr: ballast_qr_factor of a real matrix, rows >= columns. Empty (default):
//                     `device` alone
//   threads           integer   the most threads of a host backend; 0 (default): every core that the process may use
//   protection        text      "off", "detect", "correct" (default); kmeans: "final_only" (docs/protection.md)
//   sampled           integer   s >= 1: of s calls of one operation of a plan one has this protection, the others none; 1 (default)
//   scheme            text      how checksums are laid and faults repaired; empty (default): the algorithm's own choice
// "fft": a transform over the axes of `shape`
//   kind              text      "c2c" (default), "r2c", "c2r", "r2r"
//   real_kinds        integers  r2r: one of BALLAST_R2HC to BALLAST_DST4 for each length, or one for all
//   shape             integers  any number of lengths, slowest axis first, of the real side for r2c and c2r
//   axes              integers  the axes of the operands that `shape` belongs to, negative ones from the end; empty (default): the last
//   split             integer   1: complex sides are two tensors, of real and of imaginary parts; 0 (default): one
//   norm              text      "backward" (default), "ortho", "forward"
//   input_strides     integers  one for each axis of the input, in elements; empty (default): row-major without gaps
//   input_distance    integer   elements from one signal of the batch to the next; 0 (default): without gaps
//   output_strides, output_distance: of the output. Strides and distances may be negative, those of the input also 0
//   loop_counts, loop_inputs, loop_outputs   integers, as many of each: loops around the batch, the outermost first, with how many steps
//                     each has and the distances of its steps on both sides; default: none
//   kernels           text      "own" (default): on cuda, the first call waits for its kernels. "fallback_at_first": slower ones serve it
// "kmeans": m points of n features in k clusters
//   points, features, clusters   integers, m >= 1, n >= 1, k >= 1 (default 8)
//   storage           text      "dense" (default); "csr": the points are compressed rows; "f16", "bf16": half precision (precision "f32")
//   init              text      "k-means++" (default), "random", "given" (the centroids of ballast_kmeans_data), "k-means||"
//   n_init            integer   runs from different first centroids, >= 1, default 1; that of the least inertia wins
//   max_iter          integer   iterations of a run, >= 1, default 300
//   tol               number    stop when the squared shift of all centroids is at most tol times the mean variance of a feature; 1e-4
//   seed              integer   64 bits (a seed of 2^63 or more as the negative number with the same bits), default 0
//   oversampling      number    k-means||: candidates that a round draws, in multiples of k, > 0, default 2
//   rounds            integer   k-means||: >= 1, default 5
// "qr": matrices of m rows and n columns
//   rows, columns     integers  >= 1
//   complex           integer   1: complex numbers of two components of that precision (backends cpu and reference); 0 (default): real ones
//   full_rank         integer   1 (default): gels refuses columns that depend on each other to rounding; 0: only a zero on R's diagonal
//   tf32x3            integer   1 (default): FP32 products on tensor cores as three of TF32, where the device can; 0: in FP32
typedef struct ballast_options ballast_options;

// `algorithm`: "fft", "kmeans" or "qr". All options have their defaults.
BALLAST_C_API int32_t ballast_options_create(const char* algorithm, ballast_options** options, ballast_error* error);
BALLAST_C_API int32_t ballast_options_copy(const ballast_options* from, ballast_options** options, ballast_error* error);
BALLAST_C_API void ballast_options_destroy(ballast_options* options);

// Set one option. An unknown name, another type than the table says, or a text or number that names no choice is BALLAST_INVALID_ARGUMENT,
// and the option stays as it was. Sizes are checked when a plan is made.
BALLAST_C_API int32_t ballast_options_set_integer(ballast_options* options, const char* name, int64_t value, ballast_error* error);
BALLAST_C_API int32_t ballast_options_set_integers(ballast_options* options, const char* name, const int64_t* values, size_t count,
                                                   ballast_error* error);
BALLAST_C_API int32_t ballast_options_set_number(ballast_options* options, const char* name, double value, ballast_error* error);
BALLAST_C_API int32_t ballast_options_set_text(ballast_options* options, const char* name, const char* value, ballast_error* error);

// Set the problem from its token: kind, precision, shape and batch, or precision, points, features, clusters and batch, or precision, rows,
// columns and batch. `direction` may be null; it gets the token's BALLAST_FORWARD or BALLAST_INVERSE (0 for kmeans and qr).
BALLAST_C_API int32_t ballast_options_set_problem(ballast_options* options, const char* token, int32_t* direction, ballast_error* error);

// Read one option. `count` gets the number of integers; `values` may be null, else it has room for `room` of them and gets as many.
BALLAST_C_API int32_t ballast_options_get_integer(const ballast_options* options, const char* name, int64_t* value, ballast_error* error);
BALLAST_C_API int32_t ballast_options_get_integers(const ballast_options* options, const char* name, int64_t* values, size_t room,
                                                   size_t* count, ballast_error* error);
BALLAST_C_API int32_t ballast_options_get_number(const ballast_options* options, const char* name, double* value, ballast_error* error);
// The text lives until the option is set or the options are destroyed.
BALLAST_C_API int32_t ballast_options_get_text(const ballast_options* options, const char* name, const char** value, ballast_error* error);

// ---- Reports: verdict, counts and events of a call

// clean: no check fired. corrected: every fault was repaired in place. recomputed: at least one was repaired by computing its tile again.
// uncorrectable: at least one was not repaired, and the result is not to be used.
#define BALLAST_CLEAN 0
#define BALLAST_CORRECTED 1
#define BALLAST_RECOMPUTED 2
#define BALLAST_VERDICT_UNCORRECTABLE 3

// The treatment of one detected fault.
#define BALLAST_ACTION_CORRECTED 0
#define BALLAST_ACTION_RECOMPUTED 1
#define BALLAST_ACTION_UNCORRECTABLE 2

// The code that computes.
#define BALLAST_BACKEND_AUTO 0
#define BALLAST_BACKEND_REFERENCE 1
#define BALLAST_BACKEND_CPU 2
#define BALLAST_BACKEND_CUDA 3

// off: compute only. detect: verify, and report what fails. correct: verify, and repair what fails. final_only: kmeans; the last step and
// the results of a fit as by correct.
#define BALLAST_PROTECTION_OFF 0
#define BALLAST_PROTECTION_DETECT 1
#define BALLAST_PROTECTION_CORRECT 2
#define BALLAST_PROTECTION_FINAL_ONLY 3

// The names of these numbers, "clean" or "cuda" say; "unknown" for other numbers. Never null.
BALLAST_C_API const char* ballast_verdict_name(int32_t verdict);
BALLAST_C_API const char* ballast_action_name(int32_t action);
BALLAST_C_API const char* ballast_backend_name(int32_t backend);
BALLAST_C_API const char* ballast_protection_name(int32_t protection);

// One detected fault.
typedef struct {
  size_t size;
  const char* site;        // which check fired, for instance "fft.signal"
  int64_t index;           // its location: signal, row of points, column, ...; -1 if the check cannot place it
  double residual;         // encoded minus recomputed checksum, absolute value; NaN or Inf if the data held one
  double threshold;        // the bound that it exceeded
  double time;             // seconds since the Unix epoch
  const char* device;      // "cpu", or the name of the CUDA device
  int32_t action;          // BALLAST_ACTION_...
  int32_t thread;          // slot of the worker thread in this call, 0 ... threads - 1; 0 on a CUDA device
  int32_t multiprocessor;  // the one that ran the check; -1 on a processor
  int32_t damaged;         // 1 if the event itself was hit while it waited in the log: believe only its existence
} ballast_event;

// The account of a call without its events.
typedef struct {
  size_t size;
  int32_t verdict;               // BALLAST_CLEAN, ...
  int32_t backend;               // the one that computed
  int32_t protection;            // BALLAST_PROTECTION_...
  int32_t events;                // how many events the report keeps, at most 4096; the counts below are complete
  uint64_t checks;               // comparisons of a residual with its threshold
  uint64_t detected;             // comparisons that failed, one for each fault or damaged interval
  uint64_t corrected;            // repaired in place
  uint64_t recomputed;           // repaired by computing again
  uint64_t uncorrectable;        // not repaired
  uint64_t false_alarms;         // among `recomputed`: the second result had the same bits, so the check was hit and not the data
  double seconds;                // wall time of the call
  double condition;              // qr: gels, solve, gelsy: the condition number, estimated from below; NaN: not known
  const char* problem;           // the problem's token
  const char* scheme;            // how the algorithm encoded and repaired
  const char* fallback_kernels;  // why fallback kernels computed the call (fft on cuda); empty if its own did
  int64_t sampled;               // one call of so many is protected; `protection` is that of this call
} ballast_summary;

// A report object of the caller. Each call that it is passed to fills it anew; after another failure than BALLAST_UNCORRECTABLE it is
// empty. Reuse it: a clean call then allocates nothing for it.
typedef struct ballast_report ballast_report;

BALLAST_C_API int32_t ballast_report_create(ballast_report** report, ballast_error* error);
BALLAST_C_API void ballast_report_destroy(ballast_report* report);

// The texts live until the report is filled again, merged or destroyed. An empty report, and an index that is not below
// ballast_summary.events, are BALLAST_INVALID_ARGUMENT.
BALLAST_C_API int32_t ballast_report_summary(const ballast_report* report, ballast_summary* summary, ballast_error* error);
BALLAST_C_API int32_t ballast_report_event(const ballast_report* report, size_t index, ballast_event* event, ballast_error* error);

// One JSON object with verdict, counts and events; one JSON object of an event, without a line break: the format of the event log.
BALLAST_C_API int32_t ballast_report_json(const ballast_report* report, char** text, ballast_error* error);
BALLAST_C_API int32_t ballast_event_json(const ballast_event* event, char** text, ballast_error* error);

// Adds the counts and events of a later part of the same work; the verdict becomes the worse of the two. An empty `report` becomes a copy.
BALLAST_C_API int32_t ballast_report_merge(ballast_report* report, const ballast_report* later, ballast_error* error);

// ---- Calls: stream, memory and callbacks of one run of a plan

// The progress of a long call.
typedef struct {
  size_t size;
  int64_t done;
  int64_t total;     // 0 if unknown
  int64_t run;       // the number of the current run (kmeans: of n_init)
  double value;      // the objective so far (kmeans: inertia); NaN if there is none
  const char* unit;  // the unit of done and total: "iteration", "block column"
} ballast_progress;

// Called for each detected fault, from the thread of the call (of ballast_pending_wait for enqueued work), at its end. `event` and its
// texts live until the callback returns. A callback may use other objects of Ballast, but not those that its own call uses.
typedef void (*ballast_on_event)(void* user, const ballast_event* event);

// Called after each iteration (kmeans: fit of one data set) or block column (qr: geqrf and gels), from the thread of the call. Fits by the
// scheme "dmr", and all of fft, do not call it. Return 0 to go on. Any other value ends the call with BALLAST_CANCELLED: kmeans and gels
// have then stored no result. Neither has geqrf with protection "correct" of finite numbers: A and tau hold what they held before.
// Else A and tau of geqrf are not to be used; and matrices of a batch that had been finished are stored.
typedef int32_t (*ballast_on_progress)(void* user, const ballast_progress* progress);

// Every function that takes a call takes null for one with all defaults. An enqueued call copies it; only what it points to must live.
typedef struct ballast_call ballast_call;

BALLAST_C_API int32_t ballast_call_create(ballast_call** call, ballast_error* error);
BALLAST_C_API void ballast_call_destroy(ballast_call* call);

// A cudaStream_t or CUstream that orders copies and kernels of the cuda backend; null (default): the default stream.
BALLAST_C_API int32_t ballast_call_set_stream(ballast_call* call, void* stream, ballast_error* error);
// Device memory to use instead of the plan's own, at a multiple of 256 bytes, of as many bytes as the plan's workspace_bytes or more. The
// call owns it until it has passed on the stream. Null and 0 (default): the plan's own.
BALLAST_C_API int32_t ballast_call_set_workspace(ballast_call* call, void* memory, size_t bytes, ballast_error* error);
// Null (default): none. `user` is passed to the callback.
BALLAST_C_API int32_t ballast_call_set_on_event(ballast_call* call, ballast_on_event callback, void* user, ballast_error* error);
BALLAST_C_API int32_t ballast_call_set_on_progress(ballast_call* call, ballast_on_progress callback, void* user, ballast_error* error);
// 1 (default): an uncorrectable fault is the status BALLAST_UNCORRECTABLE. 0: the status is BALLAST_OK and only the report's verdict says
// so; such a call needs a report.
BALLAST_C_API int32_t ballast_call_set_uncorrectable_is_error(ballast_call* call, int32_t value, ballast_error* error);

// ---- Work that runs on a stream

// Work that was enqueued. It keeps the plan alive. If it is destroyed before the stream has passed the work, the findings of its checks are
// lost. The plan's memory serves its next call, which must then be ordered after this one (the same stream, or graph).
typedef struct ballast_pending ballast_pending;

// `ready` gets 1 if the stream has passed the work, so that ballast_pending_wait would not wait, else 0. The first call marks the stream:
// work that was enqueued until then counts too. A stream that is captured is invalid_argument.
BALLAST_C_API int32_t ballast_pending_ready(ballast_pending* pending, int32_t* ready, ballast_error* error);

// Waits for the stream, and fills the report (may be null) with the findings since the work was enqueued or this was last called: a
// captured graph may have run many times. Status as of the call itself.
BALLAST_C_API int32_t ballast_pending_wait(ballast_pending* pending, ballast_report* report, ballast_error* error);
BALLAST_C_API void ballast_pending_destroy(ballast_pending* pending);

// ---- FFT

#define BALLAST_FORWARD 0
#define BALLAST_INVERSE 1

// The real-to-real transforms, with the definitions of FFTW: y = L x, sums over the index j of x, k that of y.
#define BALLAST_R2HC 0   // the half complex spectrum r_0, r_1, ..., r_{n/2}, i_{(n+1)/2-1}, ..., i_1 of reals
#define BALLAST_HC2R 1   // the reals of a half complex spectrum, n times the inverse of r2hc
#define BALLAST_DHT 2    // y_k = sum x_j (cos 2 pi jk/n + sin 2 pi jk/n)
#define BALLAST_DCT1 3   // y_k = x_0 + (-1)^k x_{n-1} + 2 sum_{0<j<n-1} x_j cos pi jk/(n-1), n >= 2
#define BALLAST_DCT2 4   // y_k = 2 sum x_j cos pi (j+1/2)k/n
#define BALLAST_DCT3 5   // y_k = x_0 + 2 sum_{j>0} x_j cos pi j(k+1/2)/n
#define BALLAST_DCT4 6   // y_k = 2 sum x_j cos pi (j+1/2)(k+1/2)/n
#define BALLAST_DST1 7   // y_k = 2 sum x_j sin pi (j+1)(k+1)/(n+1)
#define BALLAST_DST2 8   // y_k = 2 sum x_j sin pi (j+1/2)(k+1)/n
#define BALLAST_DST3 9   // y_k = (-1)^k x_{n-1} + 2 sum_{j<n-1} x_j sin pi (j+1)(k+1/2)/n
#define BALLAST_DST4 10  // y_k = 2 sum x_j sin pi (j+1/2)(k+1/2)/n

// A prepared transform. After the first call in each direction a call allocates nothing.
typedef struct ballast_fft_plan ballast_fft_plan;

// `options`: of "fft"; shape must be set. Errors: invalid_argument (shape, batch, strides, sizes that overflow), unsupported (backend,
// scheme), out_of_memory.
BALLAST_C_API int32_t ballast_fft_plan_create(const ballast_options* options, ballast_fft_plan** plan, ballast_error* error);
// The plan for operands like these: kind, precision, shape, batch, loops, strides and distances are taken from the tensors, whose memory is
// not read; all else from `options` (null: defaults). The option axes says which axes are transformed, by default the last one; the other
// axes are loops and batch. For c2r the lengths are those of `out`. Two tensors of real numbers: r2r, with the option real_kinds.
BALLAST_C_API int32_t ballast_fft_plan_create_like(const DLTensor* in, const DLTensor* out, const ballast_options* options,
                                                   ballast_fft_plan** plan, ballast_error* error);
BALLAST_C_API void ballast_fft_plan_destroy(ballast_fft_plan* plan);

// Transforms `in` into `out`. With w = exp(-2 pi i / n), for each axis: forward y[k] = s sum_j x[j] w^(jk); inverse
// x[j] = s' sum_k y[k] w^(-jk). N being the product of the shape: norm "backward" s = 1, s' = 1/N; "ortho" s = s' = 1/sqrt(N); "forward"
// s = 1/N, s' = 1. c2c: both directions. r2c: forward, real to the half of the spectrum that is not redundant (last axis n/2 + 1). c2r:
// inverse, that half to real. r2r: both directions; the inverse is x = s' L' y, where L' L is N times the identity, and N the product of
// the lengths n for r2hc, hc2r and dht, 2(n - 1) for dct1, 2(n + 1) for dst1, and 2n for the others.
// Operands have the plan's type (float or double, or complex numbers of them), the lengths of `shape` along `axes`, and other axes that
// step through loops and batch; strides must be the plan's. In place: the same address; any other overlap is invalid_argument. Layouts that
// give a signal other bytes on both sides (r2c and c2r need rows padded to n/2 + 1 complex elements) cost a copy of the input, and are
// invalid_argument in device memory. Elements of `out` between strided elements are not touched. Inf and NaN give what the mathematics
// gives, and are no fault. Device memory needs the backend cuda. Covered: everything from the reading of a signal to the store of its
// result (docs/protection.md). O(batch N log N) for any N. Errors: invalid_argument, unsupported, device_error, out_of_memory,
// uncorrectable; then `out` is not to be used.
BALLAST_C_API int32_t ballast_fft_run(const ballast_fft_plan* plan, int32_t direction, const DLTensor* in, const DLTensor* out,
                                      const ballast_call* call, ballast_report* report, ballast_error* error);
// The same on the call's stream without waiting: backend cuda, both operands in device or managed memory. A CUDA graph can capture it once
// the plan has run outside of one.
BALLAST_C_API int32_t ballast_fft_enqueue(const ballast_fft_plan* plan, int32_t direction, const DLTensor* in, const DLTensor* out,
                                          const ballast_call* call, ballast_pending** pending, ballast_error* error);

// The same for plans with the option split: the real and the imaginary parts of each complex side, of the type float or double, both with
// the strides of that side. The imaginary parts of a real side are null. In place without a copy: c2c, with the same addresses for both
// parts.
BALLAST_C_API int32_t ballast_fft_run_split(const ballast_fft_plan* plan, int32_t direction, const DLTensor* in_real,
                                            const DLTensor* in_imaginary, const DLTensor* out_real, const DLTensor* out_imaginary,
                                            const ballast_call* call, ballast_report* report, ballast_error* error);
BALLAST_C_API int32_t ballast_fft_enqueue_split(const ballast_fft_plan* plan, int32_t direction, const DLTensor* in_real,
                                                const DLTensor* in_imaginary, const DLTensor* out_real, const DLTensor* out_imaginary,
                                                const ballast_call* call, ballast_pending** pending, ballast_error* error);

#define BALLAST_CONVOLVE_FULL 0
#define BALLAST_CONVOLVE_SAME 1
#define BALLAST_CONVOLVE_VALID 2
// y_k = sum_j x_j h_(k-j) along each axis, x being `first` and h `second`, both continued by zeros; with `correlate` not 0
// y_k = sum_j x_j conj(h_(j-k+m-1)). For lengths n and m along an axis: full has all n + m - 1 sums, same the n from (m-1)/2 on, valid the
// |n - m| + 1 from min(n, m) - 1 on. Tensors of one type (float, double, or complex numbers of them) and rank, in C order without gaps, in
// host memory; `out` has the lengths of the mode and overlaps neither of the others. `options` (null: defaults): of "fft", of which
// backend, device, threads, protection and scheme have an effect. Covered: everything from the reading of the operands to the store of the
// result (ballast/convolve.hpp). O(n log m) in one dimension. Errors: invalid_argument, unsupported, device_error, out_of_memory,
// uncorrectable.
BALLAST_C_API int32_t ballast_convolve(const DLTensor* first, const DLTensor* second, const DLTensor* out, int32_t mode, int32_t correlate,
                                       const ballast_options* options, const ballast_call* call, ballast_report* report,
                                       ballast_error* error);

// Bytes of device memory for ballast_call_set_workspace; 0 for other backends than cuda.
BALLAST_C_API int32_t ballast_fft_plan_workspace_bytes(const ballast_fft_plan* plan, int64_t* bytes, ballast_error* error);
// The backend that was chosen for operands in its own memory.
BALLAST_C_API int32_t ballast_fft_plan_backend(const ballast_fft_plan* plan, int32_t* backend, ballast_error* error);
// The token of the problem in a direction, which lives as long as the plan.
BALLAST_C_API int32_t ballast_fft_plan_token(const ballast_fft_plan* plan, int32_t direction, const char** token, ballast_error* error);
// New options of the caller: those that the plan was made with, and the problem.
BALLAST_C_API int32_t ballast_fft_plan_options(const ballast_fft_plan* plan, ballast_options** options, ballast_error* error);

// ---- K-Means

// The operands of a call; those of a batch have one axis more, which comes first.
typedef struct {
  size_t size;
  const DLTensor* points;     // m x n (batch: b x m x n; a stride of 0 between data sets is allowed), any strides: float or double; of
                              // storage "f16" and "bf16" these types; of "csr" the values of the stored elements, one axis
  const DLTensor* weights;    // m weights >= 0 without gaps, not all zero (batch: b x m); null: all 1
  const DLTensor* centroids;  // k x n (batch: b x k x n): of predict and transform, and of fit with init "given"; else null
  // The rows of storage "csr", without gaps, both int32 or both int64: row i has the elements row_offsets[i] to
  // row_offsets[i + 1] - 1 of `points`, in the columns row_columns, which ascend; m + 1 offsets. Else null.
  const DLTensor* row_offsets;
  const DLTensor* row_columns;
} ballast_kmeans_data;

// The caller's memory for the results of a fit. Null members are not stored.
typedef struct {
  size_t size;
  const DLTensor* centroids;  // k x n (batch: b x k x n, one distance between rows), strides that keep the elements apart
  const DLTensor* labels;     // m int32 without gaps (batch: b x m): the nearest centroid, the lowest index among equals
  double* inertia;            // host, one for each data set: sum_i weight_i |x_i - centroid(label_i)|^2
  int32_t* iterations;        // host, one for each data set: of the winning run
  int32_t* stopped;           // host, one for each data set: BALLAST_STOP_...
} ballast_kmeans_results;

// The reason why a run stopped: no label changed in its last iteration; the shift of the centroids came within the tolerance; max_iter.
#define BALLAST_STOP_LABELS_UNCHANGED 0
#define BALLAST_STOP_TOLERANCE 1
#define BALLAST_STOP_MAX_ITER 2

// "labels unchanged", "tolerance", "max_iter"; "unknown" for other numbers. Never null.
BALLAST_C_API const char* ballast_stop_name(int32_t stopped);

// A prepared K-Means problem. After the first call a call of the same kind allocates nothing on the host.
typedef struct ballast_kmeans_plan ballast_kmeans_plan;

// `options`: of "kmeans"; points, features and clusters are the problem. Errors: invalid_argument, unsupported (backend, scheme).
BALLAST_C_API int32_t ballast_kmeans_plan_create(const ballast_options* options, ballast_kmeans_plan** plan, ballast_error* error);
BALLAST_C_API void ballast_kmeans_plan_destroy(ballast_kmeans_plan* plan);

// Lloyd's algorithm: minimises the inertia. A cluster that loses all its points gets the point farthest from its centroid. Points with
// three axes are a batch: the fit b of `batch` is that of data set b with the seed `seed` + b. The same seed gives the same bits for any
// number of threads. Tensors may lie in host memory, in memory of the plan's device or in managed memory. One iteration: 2mnk + 4mn
// operations. Covered: distances, choice of the minimum, label, sums, centroids, the decision to stop (docs/protection.md). Errors:
// invalid_argument (shapes, k > m, NaN or Inf), unsupported, device_error, out_of_memory, uncorrectable, cancelled. A failed call has
// stored no result, except for fits of a batch that passed their checks.
BALLAST_C_API int32_t ballast_kmeans_fit(const ballast_kmeans_plan* plan, const ballast_kmeans_data* data,
                                         const ballast_kmeans_results* results, const ballast_call* call, ballast_report* report,
                                         ballast_error* error);
// The nearest of the given centroids for each point: `labels` are m int32 without gaps, or null; `inertia` one double of the host, or null.
// Weights count in the inertia only. Not for batches.
BALLAST_C_API int32_t ballast_kmeans_predict(const ballast_kmeans_plan* plan, const ballast_kmeans_data* data, const DLTensor* labels,
                                             double* inertia, const ballast_call* call, ballast_report* report, ballast_error* error);
// `values`: m x k Euclidean distances (not squared) of each point to each given centroid, any strides that keep them apart. Not for
// batches.
BALLAST_C_API int32_t ballast_kmeans_transform(const ballast_kmeans_plan* plan, const ballast_kmeans_data* data, const DLTensor* values,
                                               const ballast_call* call, ballast_report* report, ballast_error* error);
// The fits of a batch on the call's stream without waiting, by the scheme "dmr": backend cuda, all tensors in device memory.
// ballast_pending_wait stores what `results` has in host memory, which must live until then. A fit that is uncorrectable is not stored.
BALLAST_C_API int32_t ballast_kmeans_enqueue_fit(const ballast_kmeans_plan* plan, const ballast_kmeans_data* data,
                                                 const ballast_kmeans_results* results, const ballast_call* call, ballast_pending** pending,
                                                 ballast_error* error);

// As the functions of the same names for FFT plans.
BALLAST_C_API int32_t ballast_kmeans_plan_workspace_bytes(const ballast_kmeans_plan* plan, int64_t* bytes, ballast_error* error);
BALLAST_C_API int32_t ballast_kmeans_plan_backend(const ballast_kmeans_plan* plan, int32_t* backend, ballast_error* error);
BALLAST_C_API int32_t ballast_kmeans_plan_token(const ballast_kmeans_plan* plan, const char** token, ballast_error* error);
BALLAST_C_API int32_t ballast_kmeans_plan_options(const ballast_kmeans_plan* plan, ballast_options** options, ballast_error* error);

// ---- QR and least squares

#define BALLAST_LEFT 0
#define BALLAST_RIGHT 1
#define BALLAST_NO_TRANSPOSE 0
#define BALLAST_TRANSPOSE 1

// The operations of ballast_qr_plan_workspace_bytes.
#define BALLAST_GEQRF 0
#define BALLAST_ORMQR 1
#define BALLAST_ORGQR 2
#define BALLAST_GELS 3

// A prepared problem. Matrices are tensors of two axes, rows first, of float or double, with the option complex of complex numbers of two
// floats or doubles, with any strides that keep their elements apart: column-major ones (stride 1 along the rows) are used in place,
// others are copied. A tensor of three axes is a batch, whose first axis
// counts the matrices; then all operands of the call have an axis more. `tau` has no gaps. Tensors may lie in host memory or in memory of
// the plan's device. For complex matrices ^T below is the conjugate transpose, as in LAPACK's complex routines (BALLAST_TRANSPOSE,
// too), R has a real diagonal, and tau is complex. The matrix A has the plan's shape; ormqr and orgqr also
// take the first columns of such a matrix. After the first call of an operation, a call of it allocates nothing on the host. Inf and NaN
// pass through as the mathematics says; such data are not verified. Covered: panels, tau, updates, R and Q (docs/protection.md). Errors:
// invalid_argument (shapes, overlap, memory of another device), rank_deficient (gels, solve), unsupported, device_error, out_of_memory,
// uncorrectable, cancelled. After an uncorrectable fault with protection "correct" operands hold what they held before.
typedef struct ballast_qr_plan ballast_qr_plan;

// `options`: of "qr"; rows and columns must be set.
BALLAST_C_API int32_t ballast_qr_plan_create(const ballast_options* options, ballast_qr_plan** plan, ballast_error* error);
BALLAST_C_API void ballast_qr_plan_destroy(ballast_qr_plan* plan);

// A = Q R in LAPACK's storage. On exit R is on and above the diagonal of A (m x n), below it the vectors v of the reflectors
// H_j = I - tau_j v_j v_j^T (v_j(j) = 1 is not stored), Q = H_1 ... H_min(m,n). tau: min(m, n) elements (batch: b x min(m, n)).
// 2 n^2 (m - n/3) operations for m >= n. On cuda one matrix of up to 256 rows and columns has the protection of a batch, unless a scheme is
// set.
BALLAST_C_API int32_t ballast_qr_geqrf(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* tau, const ballast_call* call,
                                       ballast_report* report, ballast_error* error);
// C <- op(Q) C (side BALLAST_LEFT) or C op(Q) (BALLAST_RIGHT), Q from geqrf's A and tau, as many reflectors as tau has elements (of each
// matrix).
BALLAST_C_API int32_t ballast_qr_ormqr(const ballast_qr_plan* plan, int32_t side, int32_t transpose, const DLTensor* A, const DLTensor* tau,
                                       const DLTensor* C, const ballast_call* call, ballast_report* report, ballast_error* error);
// Overwrites A (m x n, n <= m, at most n reflectors from geqrf) with the first n columns of Q.
BALLAST_C_API int32_t ballast_qr_orgqr(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* tau, const ballast_call* call,
                                       ballast_report* report, ballast_error* error);
// Solves min |B - A X| by columns (m >= n), or finds the X of least norm with A X = B (m < n). B has max(m, n) rows (one axis: one column):
// on entry its first m are B, on exit its first n are X; for m >= n the rows below hold the residual in Q's basis, as in LAPACK's xGELS. A
// is overwritten by its factors (m < n: its transpose by those of A^T). rank_deficient if columns (rows for m < n) depend on each other to
// rounding (option full_rank).
BALLAST_C_API int32_t ballast_qr_gels(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* B, const ballast_call* call,
                                      ballast_report* report, ballast_error* error);

// Column pivoting: A(:, pivots) = Q R, with Q and R stored as by geqrf, pivots (n numbers in host memory, output only) a permutation of
// 0 ... n - 1, and |R_kk| >= |R(k ..., j)| for all j > k, as LAPACK's xGEQP3 chooses. A with Inf or NaN keeps its order. On cuda
// the device chooses the columns where its memory suffices, else the host. One matrix.
BALLAST_C_API int32_t ballast_qr_geqp3(const ballast_qr_plan* plan, const DLTensor* A, int64_t* pivots, const DLTensor* tau,
                                       const ballast_call* call, ballast_report* report, ballast_error* error);
// Solves min |B - A X| by columns for A of any rank; of all solutions the X of least norm. The leading part of R with a condition number
// below 1 / rcond counts (0 <= rcond < 1; negative: 2 u max(m, n), u the unit roundoff), *rank is its size. B has max(m, n) rows (one axis:
// one column): on entry its first m are B, on exit its first n are X. On exit A and pivots are those of geqp3. One matrix.
BALLAST_C_API int32_t ballast_qr_gelsy(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* B, int64_t* pivots, double rcond,
                                       int64_t* rank, const ballast_call* call, ballast_report* report, ballast_error* error);

// The same for batches on the call's stream without waiting: backend cuda, matrices of up to 256 columns, operands in device
// memory. ballast_pending_wait gives rank_deficient.
BALLAST_C_API int32_t ballast_qr_enqueue_geqrf(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* tau,
                                               const ballast_call* call, ballast_pending** pending, ballast_error* error);
BALLAST_C_API int32_t ballast_qr_enqueue_ormqr(const ballast_qr_plan* plan, int32_t side, int32_t transpose, const DLTensor* A,
                                               const DLTensor* tau, const DLTensor* C, const ballast_call* call, ballast_pending** pending,
                                               ballast_error* error);
BALLAST_C_API int32_t ballast_qr_enqueue_orgqr(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* tau,
                                               const ballast_call* call, ballast_pending** pending, ballast_error* error);
BALLAST_C_API int32_t ballast_qr_enqueue_gels(const ballast_qr_plan* plan, const DLTensor* A, const DLTensor* B, const ballast_call* call,
                                              ballast_pending** pending, ballast_error* error);

// As the functions of the same names for FFT plans. `operation`: BALLAST_GEQRF, ... on a batch of the plan.
BALLAST_C_API int32_t ballast_qr_plan_workspace_bytes(const ballast_qr_plan* plan, int32_t operation, int64_t* bytes, ballast_error* error);
BALLAST_C_API int32_t ballast_qr_plan_backend(const ballast_qr_plan* plan, int32_t* backend, ballast_error* error);
BALLAST_C_API int32_t ballast_qr_plan_token(const ballast_qr_plan* plan, const char** token, ballast_error* error);
BALLAST_C_API int32_t ballast_qr_plan_options(const ballast_qr_plan* plan, ballast_options** options, ballast_error* error);

// A factorization in host memory of the library. It is immutable.
typedef struct ballast_factors ballast_factors;

// Factors a copy of A (m x n, host or device), of float, double or complex numbers. `options`: of "qr", null for defaults; its problem and
// tf32x3 are not read. The functions below run where it says.
BALLAST_C_API int32_t ballast_qr_factor(const DLTensor* A, const ballast_options* options, const ballast_call* call,
                                        ballast_factors** factors, ballast_report* report, ballast_error* error);
BALLAST_C_API void ballast_factors_destroy(ballast_factors* factors);

// Copy to tensors in host memory of the type of A, any strides: R (min(m, n) x n, upper trapezoidal); geqrf's A (m x n) and tau (min(m, n)
// elements), either of which may be null. Factors of a group of devices have no such A and tau: BALLAST_UNSUPPORTED.
BALLAST_C_API int32_t ballast_factors_r(const ballast_factors* factors, const DLTensor* R, ballast_error* error);
BALLAST_C_API int32_t ballast_factors_storage(const ballast_factors* factors, const DLTensor* A, const DLTensor* tau, ballast_error* error);
// Q: m x min(m, n), orthonormal columns, to host memory.
BALLAST_C_API int32_t ballast_factors_q(const ballast_factors* factors, const DLTensor* Q, const ballast_call* call, ballast_report* report,
                                        ballast_error* error);
// X (n x r, host memory) <- the least-squares solution for B (m x r, host or device), m >= n. Tensors of one axis are one column.
// rank_deficient as gels.
BALLAST_C_API int32_t ballast_factors_solve(const ballast_factors* factors, const DLTensor* B, const DLTensor* X, const ballast_call* call,
                                            ballast_report* report, ballast_error* error);

#ifdef __cplusplus
}
#endif

#include <ballast/ballast_group.h>

#endif
