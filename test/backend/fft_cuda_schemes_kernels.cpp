// Prints the kernels that fft_cuda_schemes_test.cpp needs: its cases run on a device that only writes down what it is asked to load.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>

#include "backend/fft_cuda_schemes.hpp"

namespace {

using namespace ballast;

class listing final : public cuda::device {
 public:
  explicit listing(cuda::capabilities about) : about_(std::move(about)) {}
  const cuda::capabilities& about() const noexcept override { return about_; }
  void* allocate(std::int64_t bytes, cuda::stream) override {
    return ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{256});
  }
  void release(void* memory, cuda::stream) noexcept override { ::operator delete (memory, std::align_val_t{256}); }
  bool accessible(const void*) const noexcept override { return true; }
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream) override {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
  }
  void zero(void* memory, std::int64_t bytes, cuda::stream) override { std::memset(memory, 0, static_cast<std::size_t>(bytes)); }
  const cuda::kernel& load(const cuda::kernel_request& wanted) override {
    if (seen_.insert(wanted.expression).second)
      std::printf("%s\t%s\t%d\t%lld\n", wanted.header.c_str(), wanted.expression.c_str(), wanted.threads,
                  static_cast<long long>(wanted.shared));
    return one_;
  }
  void launch(const cuda::kernel&, std::int64_t, const void*, std::size_t, cuda::stream) override {}
  std::int64_t resident_blocks(const cuda::kernel&) override { return 1; }
  void synchronize(cuda::stream) override {}

 private:
  class nothing final : public cuda::kernel {};
  cuda::capabilities about_;
  nothing one_;
  std::set<std::string> seen_;
};

template <class T>
void list(const scheme_test::scheme_case& what) {
  const std::vector<T> in(scheme_test::input_scalars<T>(what));
  execution how;
  how.protection = what.protection();
  (void)scheme_test::execute<T>(what, how, in, false);
  if (!what.protect) return;
  inject::plan faults;
  faults.add({inject::site::fft_output});
  how.faults = &faults;
  (void)scheme_test::execute<T>(what, how, in, false);
}

}  // namespace

int main() {
  try {
    scheme_test::replace_cufft();
    for (const auto& each : scheme_test::cases()) {
      cuda::override_device(std::make_shared<listing>(scheme_test::device_for(each)));
      if (fft::parse_token(each.token).problem.precision == precision::f32) {
        list<float>(each);
      } else {
        list<double>(each);
      }
    }
    cuda::override_device(nullptr);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
