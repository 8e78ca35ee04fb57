/* QR of a square matrix by block columns on the processes of an MPI job, in C: factors A, whose columns lie on the ranks block by block in
   turn, and solves A x = b. The engine of the group is a table of four functions over MPI.

   mpicc qr_columns_mpi.c -lballast_c -o qr_columns && mpirun -n 4 ./qr_columns 500 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ballast/ballast.h>

enum { TAG = 77, BLOCK = 32 };

/* A message on its way: the library's bytes are copied, and freed when MPI has sent them. */
struct sent {
  MPI_Request request;
  void* bytes;
  struct sent* next;
};

struct engine {
  MPI_Comm over;
  struct sent* going;
};

static void forget_sent(struct engine* of) {
  struct sent** at = &of->going;
  while (*at != NULL) {
    int done = 0;
    MPI_Test(&(*at)->request, &done, MPI_STATUS_IGNORE);
    if (!done) {
      at = &(*at)->next;
      continue;
    }
    struct sent* ended = *at;
    *at = ended->next;
    free(ended->bytes);
    free(ended);
  }
}

static int32_t engine_send(void* user, int32_t to, const void* bytes, size_t count) {
  struct engine* of = user;
  forget_sent(of);
  struct sent* made = malloc(sizeof *made);
  if (made == NULL || count > 0x7fffffff || (made->bytes = malloc(count)) == NULL) return 1;
  memcpy(made->bytes, bytes, count);
  if (MPI_Isend(made->bytes, (int)count, MPI_BYTE, to, TAG, of->over, &made->request) != MPI_SUCCESS) return 1;
  made->next = of->going;
  of->going = made;
  return 0;
}

static int32_t engine_receive(void* user, double seconds, void (*take)(void* to, const void* bytes, size_t count), void* to) {
  struct engine* of = user;
  const double end = MPI_Wtime() + seconds;
  do {
    int come = 0, count = 0;
    MPI_Message message;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, TAG, of->over, &come, &message, &status);
    if (come) {
      MPI_Get_count(&status, MPI_BYTE, &count);
      void* bytes = malloc((size_t)count + 1);
      if (bytes == NULL) return -2;
      MPI_Mrecv(bytes, count, MPI_BYTE, &message, MPI_STATUS_IGNORE);
      take(to, bytes, (size_t)count);
      free(bytes);
      return status.MPI_SOURCE;
    }
    forget_sent(of);
  } while (MPI_Wtime() < end);
  return -1;
}

/* Waits until what it has sent is sent. */
static void engine_destroy(void* user) {
  struct engine* of = user;
  while (of->going != NULL) forget_sent(of);
}

static void check(int32_t status, ballast_error* error) {
  if (status == BALLAST_OK) return;
  fprintf(stderr, "%s\n", ballast_error_message(error));
  MPI_Abort(MPI_COMM_WORLD, status);
}

/* Columns that are contiguous. `shape` and `steps` have two numbers each, for as long as the tensor is used. */
static DLTensor columns(double* data, int64_t rows, int64_t count, int64_t* shape, int64_t* steps) {
  DLTensor made;
  memset(&made, 0, sizeof made);
  made.data = data;
  made.device.device_type = BALLAST_DLPACK_CPU;
  made.ndim = 2;
  made.dtype.code = BALLAST_DLPACK_FLOAT;
  made.dtype.bits = 64;
  made.dtype.lanes = 1;
  shape[0] = rows;
  shape[1] = count;
  steps[0] = 1;
  steps[1] = rows;
  made.shape = shape;
  made.strides = steps;
  return made;
}

/* A[i, j], the same on every rank. */
static double element(int64_t i, int64_t j) { return sin((double)(7 * i + 3 * j + i * j % 101)) + (i == j ? 4 : 0); }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int64_t n = argc > 1 ? atoll(argv[1]) : 500;
  struct engine own = {MPI_COMM_NULL, NULL};
  int rank = 0, size = 1;
  MPI_Comm_dup(MPI_COMM_WORLD, &own.over);
  MPI_Comm_rank(own.over, &rank);
  MPI_Comm_size(own.over, &size);

  ballast_error* error = NULL;
  ballast_group* group = NULL;
  ballast_options* options = NULL;
  ballast_report* report = NULL;
  ballast_column_factors* factors = NULL;
  const ballast_transport table = {sizeof table, &own, rank, size, engine_send, engine_receive, NULL, engine_destroy};
  check(ballast_error_create(&error), error);
  check(ballast_group_create(&table, NULL, &group, error), error);
  check(ballast_report_create(&report, error), error);
  check(ballast_options_create("qr", &options, error), error);
  check(ballast_options_set_integer(options, "threads", 1, error), error);
  check(ballast_options_set_group(options, group, error), error);

  int64_t mine = 0, shapes[6], steps[6];
  check(ballast_block_columns(n, BLOCK, size, rank, &mine, error), error);
  double* a = malloc(sizeof(double) * (size_t)(n * mine + 1));
  double* b = calloc((size_t)n, sizeof(double));
  double* x = calloc((size_t)n, sizeof(double));
  for (int64_t l = 0; l < mine; ++l) {
    const int64_t j = (l / BLOCK * size + rank) * BLOCK + l % BLOCK; /* the column's number in the whole matrix */
    for (int64_t i = 0; i < n; ++i) a[i + l * n] = element(i, j);
  }
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < n; ++i) b[i] += element(i, j); /* so x is all ones */

  DLTensor A = columns(a, n, mine, shapes, steps), B = columns(b, n, 1, shapes + 2, steps + 2), X = columns(x, n, 1, shapes + 4, steps + 4);
  check(ballast_qr_factor_columns(&A, BLOCK, options, NULL, &factors, report, error), error);
  check(ballast_column_factors_solve(factors, &B, &X, NULL, report, error), error);
  double most = 0;
  for (int64_t i = 0; i < n; ++i) most = fmax(most, fabs(x[i] - 1));
  ballast_summary seen;
  memset(&seen, 0, sizeof seen);
  seen.size = sizeof seen;
  check(ballast_report_summary(report, &seen, error), error);
  if (rank == 0) printf("%s on %d ranks: |x - 1| <= %.1e, %llu checks\n", seen.problem, size, most, (unsigned long long)seen.checks);

  ballast_column_factors_destroy(factors);
  ballast_options_destroy(options);
  ballast_group_destroy(group);
  ballast_report_destroy(report);
  ballast_error_destroy(error);
  free(a);
  free(b);
  free(x);
  MPI_Comm_free(&own.over);
  MPI_Finalize();
  return most < 1e-10 ? 0 : 1;
}
