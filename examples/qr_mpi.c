/* QR of a square matrix on the processes of an MPI job, in C: factors A and solves A x = b, first with the columns of A on the ranks block
   by block in turn, then on a grid of 2 x P/2 or P x 1 ranks, in ScaLAPACK's layout. The engine of the group is a table of four functions
   over MPI. Exit status 0 if x is right on every rank.

   mpicc qr_mpi.c -lballast_c -o qr_mpi && mpirun -n 4 ./qr_mpi 500 */
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
static DLTensor matrix(double* data, int64_t rows, int64_t count, int64_t* shape, int64_t* steps) {
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

/* The objects of this rank's calls. */
struct rank_calls {
  int rank, size;
  ballast_options* options;
  ballast_report* report;
  ballast_error* error;
};

/* The largest error of solutions of which all elements are 1. */
static double error_of(const double* x, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; ++i) most = fmax(most, fabs(x[i] - 1));
  return most;
}

static void tell(const struct rank_calls* with, const char* how, double most) {
  ballast_summary seen;
  memset(&seen, 0, sizeof seen);
  seen.size = sizeof seen;
  check(ballast_report_summary(with->report, &seen, with->error), with->error);
  if (with->rank == 0)
    printf("%s %s on %d ranks: |x - 1| <= %.1e, %llu checks\n", seen.problem, how, with->size, most, (unsigned long long)seen.checks);
}

/* Every rank has all of b, and gets all of x. */
static double by_columns(int64_t n, const struct rank_calls* with) {
  ballast_column_factors* factors = NULL;
  int64_t mine = 0, shapes[6], steps[6];
  check(ballast_block_columns(n, BLOCK, with->size, with->rank, &mine, with->error), with->error);
  double* a = malloc(sizeof(double) * (size_t)(n * mine + 1));
  double* b = calloc((size_t)n, sizeof(double));
  double* x = calloc((size_t)n, sizeof(double));
  for (int64_t l = 0; l < mine; ++l) {
    const int64_t j = (l / BLOCK * with->size + with->rank) * BLOCK + l % BLOCK; /* the column's number in the whole matrix */
    for (int64_t i = 0; i < n; ++i) a[i + l * n] = element(i, j);
  }
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < n; ++i) b[i] += element(i, j); /* so x is all ones */

  DLTensor A = matrix(a, n, mine, shapes, steps), B = matrix(b, n, 1, shapes + 2, steps + 2), X = matrix(x, n, 1, shapes + 4, steps + 4);
  check(ballast_qr_factor_columns(&A, BLOCK, with->options, NULL, &factors, with->report, with->error), with->error);
  check(ballast_column_factors_solve(factors, &B, &X, NULL, with->report, with->error), with->error);
  const double most = error_of(x, n);
  tell(with, "by block columns", most);
  ballast_column_factors_destroy(factors);
  free(a);
  free(b);
  free(x);
  return most;
}

/* The first process column has b, and gets x; each of its ranks has its rows. */
static double on_grid(int64_t n, const struct rank_calls* with) {
  ballast_grid_factors* factors = NULL;
  ballast_process_grid grid = {sizeof grid, 1, 1, 0};
  grid.rows = with->size % 2 == 0 ? 2 : with->size;
  grid.columns = with->size / grid.rows;
  const int row = with->rank / grid.columns, column = with->rank % grid.columns;
  int64_t rows = 0, columns = 0, shapes[4], steps[4];
  check(ballast_block_columns(n, BLOCK, grid.rows, row, &rows, with->error), with->error); /* as ScaLAPACK's numroc */
  check(ballast_block_columns(n, BLOCK, grid.columns, column, &columns, with->error), with->error);
  const int64_t leading = rows > 0 ? rows : 1, sides = column == 0 ? 1 : 0;
  const int32_t desc[9] = {1, 0, (int32_t)n, (int32_t)n, BLOCK, BLOCK, 0, 0, (int32_t)leading};
  double* a = calloc((size_t)(leading * columns + 1), sizeof(double));
  double* b = calloc((size_t)leading, sizeof(double));
  double* x = calloc((size_t)leading, sizeof(double));
  for (int64_t l = 0; l < rows; ++l) {
    const int64_t i = (l / BLOCK * grid.rows + row) * BLOCK + l % BLOCK;
    for (int64_t k = 0; k < columns; ++k) a[l + k * leading] = element(i, (k / BLOCK * grid.columns + column) * BLOCK + k % BLOCK);
    for (int64_t j = 0; j < n; ++j) b[l] += element(i, j);
  }

  DLTensor local = matrix(a, leading * columns, 1, shapes, steps), B = matrix(b, rows, sides, shapes, steps),
           X = matrix(x, rows, sides, shapes + 2, steps + 2);
  int64_t length = leading * columns;
  local.ndim = 1;
  local.shape = &length;
  local.strides = NULL;
  check(ballast_qr_factor_grid(&local, desc, &grid, with->options, NULL, &factors, with->report, with->error), with->error);
  check(ballast_grid_factors_solve(factors, &B, &X, NULL, with->report, with->error), with->error);
  const double most = error_of(x, rows * sides);
  tell(with, "on a grid", most);
  ballast_grid_factors_destroy(factors);
  free(a);
  free(b);
  free(x);
  return most;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int64_t n = argc > 1 ? atoll(argv[1]) : 500;
  struct engine own = {MPI_COMM_NULL, NULL};
  struct rank_calls with = {0, 1, NULL, NULL, NULL};
  MPI_Comm_dup(MPI_COMM_WORLD, &own.over);
  MPI_Comm_rank(own.over, &with.rank);
  MPI_Comm_size(own.over, &with.size);

  ballast_group* group = NULL;
  const ballast_transport table = {sizeof table, &own, with.rank, with.size, engine_send, engine_receive, NULL, engine_destroy};
  check(ballast_error_create(&with.error), with.error);
  check(ballast_group_create(&table, NULL, &group, with.error), with.error);
  check(ballast_report_create(&with.report, with.error), with.error);
  check(ballast_options_create("qr", &with.options, with.error), with.error);
  check(ballast_options_set_integer(with.options, "threads", 1, with.error), with.error);
  check(ballast_options_set_group(with.options, group, with.error), with.error);

  double most = by_columns(n, &with);
  most = fmax(most, on_grid(n, &with));

  ballast_options_destroy(with.options);
  ballast_group_destroy(group);
  ballast_report_destroy(with.report);
  ballast_error_destroy(with.error);
  MPI_Comm_free(&own.over);
  MPI_Finalize();
  return most < 1e-10 ? 0 : 1;
}
