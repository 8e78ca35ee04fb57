// Prints the kernels that the cases of fft_cuda_cases.hpp need: runs their plans on a device that loads every kernel and launches none.
// Layer: backend tests; what it prints is compiled into backend_fft_cuda.
#include <complex>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/fft_cuda_cases.hpp"

namespace {

using namespace ballast;

class recording_device final : public cuda::device {
 public:
  explicit recording_device(cuda::capabilities about) : about_(std::move(about)) {}
  const cuda::capabilities& about() const noexcept override { return about_; }
  void* allocate(std::int64_t bytes, cuda::stream) override { return ::operator new(static_cast<std::size_t>(bytes)); }
  void release(void* memory, cuda::stream) noexcept override { ::operator delete(memory); }
  bool accessible(const void*) const noexcept override { return true; }
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void zero(void* memory, std::int64_t bytes, cuda::stream) override { std::memset(memory, 0, static_cast<std::size_t>(bytes)); }
  const cuda::kernel& load(const cuda::kernel_request& wanted) override {
    if (seen.insert(wanted.expression).second) std::printf("%s\t%s\n", wanted.header.c_str(), wanted.expression.c_str());
    return kernel_;
  }
  void launch(const cuda::kernel&, std::int64_t, const void*, std::size_t, cuda::stream) override {}
  std::int64_t resident_blocks(const cuda::kernel&) override { return 1; }
  void synchronize(cuda::stream) override {}

 private:
  struct nothing : cuda::kernel {};
  static inline std::set<std::string> seen;
  cuda::capabilities about_;
  nothing kernel_;
};

void record(const fft::problem& problem, fft::direction way, protection guard, const inject::plan* faults, std::size_t shift = 0) {
  execution how;
  how.backend = backend::cuda;
  how.protection = guard;
  how.faults = faults;
  const fft::plan made(problem, how);
  const fft::geometry shape = fft::resolve(made.problem());
  std::vector<std::complex<double>> in(static_cast<std::size_t>(shape.input.extent) + 1),
      out(static_cast<std::size_t>(shape.output.extent) + 1);
  const std::size_t out_shift = shape.output.real ? shift : 0;
  (void)made
      .enqueue(way, reinterpret_cast<std::byte*>(in.data()) + (shift - out_shift), reinterpret_cast<std::byte*>(out.data()) + out_shift)
      .get();
}

}  // namespace

int main() {
  fft::use_own_tuning();
  const inject::plan faults({inject::request{}});
  for (const fft::cuda_case& each : fft::cuda_cases()) {
    fft::choose_pairing(each.where);
    cuda::override_device(std::make_shared<recording_device>(fft::capabilities_of(each.where)));
    const fft::problem problem = each.problem();
    const bool real = problem.kind != fft::kind::c2c;
    record(problem, each.direction(), protection::correct, nullptr);
    if (real && problem.input.strides.empty()) record(fft::padded_rows(problem), each.direction(), protection::correct, nullptr);
    if ((each.uses & fft::k_unaligned) != 0) record(problem, each.direction(), protection::correct, nullptr, real ? 4 : 8);
    if ((each.uses & fft::k_bare) != 0) record(problem, each.direction(), protection::off, nullptr);
    if ((each.uses & fft::k_faults) == 0) continue;
    record(problem, each.direction(), protection::correct, &faults);
    record(problem, each.direction(), protection::off, &faults);
  }
  cuda::override_device(nullptr);
}
