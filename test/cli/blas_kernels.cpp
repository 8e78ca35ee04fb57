// An application that calls the library: prints the BLAS that it has, and what better_blas_kernels() says. With the argument "restart" it
// asks for better kernels first.
#include <cstdio>
#include <string_view>

#include <ballast/info.hpp>
#include "run/restart.hpp"

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "restart") ballast::run::restart_with_better_blas_kernels(argv);
  std::printf("%s\n%s\n", ballast::information().blas.c_str(), ballast::better_blas_kernels().c_str());
}
