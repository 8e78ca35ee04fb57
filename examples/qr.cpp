// Fits the parabola y = 2 + 3 t − t² to 100 points by least squares.
// Prints the coefficients. Exit status 0 if they are those of the parabola, 1 otherwise.
#include <cmath>
#include <iostream>

#include <ballast/ballast.hpp>

int main() {
  constexpr int rows = 100;
  ballast::matrix<double> A(rows, 3, ballast::order::column_major), b(rows, 1);
  for (int i = 0; i < rows; ++i) {
    const double t = 1.0 * i / rows;
    A(i, 0) = 1;
    A(i, 1) = t;
    A(i, 2) = t * t;
    b(i, 0) = 2 + 3 * t - t * t;
  }

  try {
    const auto factors = ballast::qr::factor(A.view());  // A = Q R; A stays as it is
    const auto solution = factors.solve(b.view());       // min ‖b − A x‖₂
    const auto& x = solution.values;
    std::cout << "y = " << x(0, 0) << " + " << x(1, 0) << " t + " << x(2, 0) << " t²\n"
              << "factored: " << to_string(factors.report.verdict) << ", solved: " << to_string(solution.report.verdict) << '\n';
    const double error = std::hypot(x(0, 0) - 2, x(1, 0) - 3, x(2, 0) + 1);
    return error < 1e-12 && factors.report.checks > 0 && solution.report.checks > 0 ? 0 : 1;
  } catch (const ballast::uncorrectable_error& fault) {  // each attempt failed its check: do not use the output
    std::cerr << to_json(fault.report()) << '\n';
  } catch (const ballast::error& problem) {
    std::cerr << problem.what() << '\n';
  }
  return 1;
}
