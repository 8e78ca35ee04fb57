// The sum on the host, written plainly: row by row, once from the left and once from the right.
// Layer: algorithm, backend reference.
#include <cmath>

#include "inject/injector.hpp"
#include "run/attempt.hpp"
#include "skeleton/check.hpp"
#include "skeleton/contract.hpp"
#include "skeleton/sites.hpp"

namespace ballast::skeleton {

void sum_on_host(const work& given) {
  const std::int64_t m = given.size.m, n = given.size.n;
  const bool check = given.how.protection != protection::off;
  for (std::int64_t row = 0; row < m; ++row) {
    const double* const x = given.x + row * n;
    const inject::position here = {row, m, 0, 1};
    double sum = 0;
    const abft::outcome how = run::attempt(given.seen, given.how.protection, "skeleton.row", 0, [&](int) {
      sum = 0;
      double again[2] = {};  // the sum from the other loads, Σ|x|
      for (std::int64_t i = 0; i < n; ++i) {
        sum += x[i];
        again[0] += x[n - 1 - i];
        again[1] += std::abs(x[n - 1 - i]);
      }
      given.injector.strike(site::partial, here, &sum, 1);
      given.injector.strike(site::checksum, here, again, 2);
      abft::finding now = compare(sum, again[0], again[1], n, row, check);
      if (check) given.injector.strike(site::comparison, here, &now.word, 1);
      return now;
    });
    if (abft::stands(how)) given.y[row] = sum;
  }
  if (check) given.seen.checked(static_cast<std::uint64_t>(m));
}

}  // namespace ballast::skeleton
