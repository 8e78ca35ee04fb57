// Fits a parabola to five points by least squares: a factorization that the library keeps, and its solution.
// Prints the coefficients. Exit status 0 if they are those of the parabola, 1 otherwise.
#include <ballast/ballast.h>
#include <math.h>
#include <stdio.h>

enum { m = 5, n = 3 };

int main(void) {
  double A[m][n], b[m], x[n] = {0};
  int64_t of_A[] = {m, n}, of_b[] = {m}, of_x[] = {n};
  const DLDevice host = {BALLAST_DLPACK_CPU, 0};
  const DLDataType real = {BALLAST_DLPACK_FLOAT, 64, 1};
  const DLTensor matrix = {A, host, 2, real, of_A, NULL, 0}, right = {b, host, 1, real, of_b, NULL, 0},
                 solution = {x, host, 1, real, of_x, NULL, 0};
  ballast_error* error = NULL;
  ballast_factors* factors = NULL;

  // The points lie on y = 2 - t + 0.5 t^2.
  for (int i = 0; i < m; ++i) {
    const double t = i;
    A[i][0] = 1;
    A[i][1] = t;
    A[i][2] = t * t;
    b[i] = 2 - t + 0.5 * t * t;
  }

  int failed = ballast_error_create(&error) || ballast_qr_factor(&matrix, NULL, NULL, &factors, NULL, error) ||
               ballast_factors_solve(factors, &right, &solution, NULL, NULL, error);
  if (failed) {
    fprintf(stderr, "%s: %s\n", ballast_status_name(ballast_error_status(error)), ballast_error_message(error));
  } else {
    printf("y = %g + %g t + %g t^2\n", x[0], x[1], x[2]);
    failed = fabs(x[0] - 2) > 1e-12 || fabs(x[1] + 1) > 1e-12 || fabs(x[2] - 0.5) > 1e-12;
  }
  ballast_factors_destroy(factors);
  ballast_error_destroy(error);
  return failed;
}
