// The cuda backend's FFT on the emulator, through the public plan: accuracy of every case of fft_cuda_cases.hpp for several orders of
// threads, layouts, memory, reports; then faults at every site, and clean data of every kind without a false alarm.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "backend/fft_cuda_cases.hpp"
#include "backend/fft_reference.hpp"
#include "cuda/shared_state.hpp"
#include "fft/contract.hpp"
#include "fft/cuda/kernels.hpp"
#include "fft/cuda/pairs.hpp"
#include "fft/cuda/schedule.hpp"
#include "fft/cuda/transform.hpp"
#include "fft/problem.hpp"
#include "support/devices.hpp"

namespace ballast::fft {
namespace {

[[maybe_unused]] const bool ready = [] {
  use_own_tuning();
  return true;
}();

const std::uint64_t k_orders = test::sampled() ? 1 : 3;  // seeds of the emulator's order of threads

// The emulated device is current while it lives.
class emulator {
 public:
  explicit emulator(machine which, std::uint64_t seed = 1)
      : device_(std::make_shared<simt::emulated_device>(capabilities_of(which), seed << 32)) {
    choose_pairing(which);
    if (which == machine::paired) device_->run_together(static_cast<std::int64_t>(2 + seed % 4));
    ballast::cuda::override_device(device_);
  }
  ~emulator() {
    ballast::cuda::override_device(nullptr);
    cuda::override_pairing(cuda::pairing::where_it_pays);
  }
  emulator(const emulator&) = delete;
  emulator& operator=(const emulator&) = delete;
  const std::shared_ptr<simt::emulated_device>& operator*() const { return device_; }
  simt::emulated_device* operator->() const { return device_.get(); }

 private:
  std::shared_ptr<simt::emulated_device> device_;
};

execution on_cuda(protection guard = protection::correct, const inject::plan* faults = nullptr) {
  execution how;
  how.backend = backend::cuda;
  how.protection = guard;
  how.faults = faults;
  how.throw_on_uncorrectable = false;
  return how;
}

// Memory on the current device, with a copy of `values`.
template <class T>
class on_device {
 public:
  explicit on_device(const std::vector<T>& values)
      : device_(ballast::cuda::current_device()), size_(values.size()), memory_(device_, static_cast<std::int64_t>(size_ * sizeof(T))) {
    device_->copy(memory_.data(), values.data(), memory_.bytes(), nullptr);
  }
  T* data() const { return static_cast<T*>(memory_.data()); }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    device_->copy(values.data(), memory_.data(), memory_.bytes(), nullptr);
    return values;
  }

 private:
  std::shared_ptr<ballast::cuda::device> device_;
  std::size_t size_;
  ballast::cuda::device_buffer memory_;
};

constexpr double k_untouched = 77;  // what outputs hold before they are written

// A case with its data: arrays are scalars, two a complex number, strided as the case says.
template <class T>
struct subject {
  fft::problem problem;
  fft::direction way;
  geometry shape;
  double scale = 1;
  std::vector<T> in;

  subject(const cuda_case& which, std::uint64_t seed) : problem(which.problem()), way(which.direction()), shape(resolve(problem)) {
    const auto points = static_cast<double>(shape.points());
    if (problem.norm == norm::ortho) {
      scale = 1 / std::sqrt(points);
    } else if (way == direction::forward ? problem.norm == norm::forward : problem.norm == norm::backward) {
      scale = 1 / points;
    }
    set(noise<T>(count(shape.input) * shape.batch, seed));
  }

  static std::int64_t count(const side& s) { return s.length[0] * s.length[1] * s.length[2]; }
  static std::size_t at(const side& s, std::int64_t batch, std::int64_t i) {
    return static_cast<std::size_t>(batch * s.distance + i / (s.length[1] * s.length[2]) * s.stride[0] +
                                    i / s.length[2] % s.length[1] * s.stride[1] + i % s.length[2] * s.stride[2]);
  }
  static std::size_t scalars(const side& s) { return static_cast<std::size_t>(s.extent) * (s.real ? 1 : 2); }
  static std::complex<T> read(const std::vector<T>& from, const side& s, std::int64_t batch, std::int64_t i) {
    const std::size_t place = at(s, batch, i);
    return s.real ? std::complex<T>(from[place]) : std::complex<T>(from[2 * place], from[2 * place + 1]);
  }

  // `values`: [batch][element]. Between strided elements is NaN, which nobody must read.
  void set(const signal<T>& values) {
    in.assign(scalars(shape.input), std::numeric_limits<T>::quiet_NaN());
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t i = 0; i < count(shape.input); ++i) {
        const std::size_t place = at(shape.input, b, i);
        const auto z = values[static_cast<std::size_t>(b * count(shape.input) + i)];
        if (shape.input.real) {
          in[place] = z.real();
        } else {
          in[2 * place] = z.real();
          in[2 * place + 1] = z.imag();
        }
      }
    }
  }

  std::vector<T> fresh() const { return std::vector<T>(scalars(shape.output), static_cast<T>(k_untouched)); }

  // The transform of signal b in more precision.
  exact<T> wanted(std::int64_t b) const {
    exact<T> x;
    for (std::int64_t i = 0; i < count(shape.input); ++i) x.push_back(std::complex<wide<T>>(read(in, shape.input, b, i)));
    const std::vector<std::int64_t> lengths(shape.n.begin(), shape.n.end());
    exact<T> y;
    if (shape.kind != kind::c2r) {
      const auto full = dft_of_volume<T>(std::move(x), lengths, way == direction::inverse);
      for (std::int64_t i = 0; i < count(shape.output); ++i) {
        const std::int64_t row = i / shape.output.length[2];
        y.push_back(full[static_cast<std::size_t>(row * shape.n[2] + i % shape.output.length[2])]);
      }
    } else {
      // The other axes first; then each row is the half of a Hermitian line.
      const std::int64_t half = shape.input.length[2];
      x = dft_of_volume<T>(std::move(x), {shape.n[0], shape.n[1], half}, true, 2);
      for (std::int64_t row = 0; row < shape.n[0] * shape.n[1]; ++row) {
        exact<T> line(static_cast<std::size_t>(shape.n[2]));
        for (std::int64_t k = 0; k < half; ++k) {
          auto z = x[static_cast<std::size_t>(row * half + k)];
          if (k == 0 || 2 * k == shape.n[2]) z.imag(0);
          line[static_cast<std::size_t>(k)] = z;
          if (k > 0) line[static_cast<std::size_t>(shape.n[2] - k)] = std::conj(z);
        }
        line = inverse_dft<T>(std::move(line));
        for (const auto& z : line) y.push_back(z.real());
      }
    }
    for (auto& z : y) z *= static_cast<wide<T>>(scale);
    return y;
  }

  signal<T> got(const std::vector<T>& out, std::int64_t b) const {
    signal<T> y;
    for (std::int64_t i = 0; i < count(shape.output); ++i) y.push_back(read(out, shape.output, b, i));
    return y;
  }

  // What is not an element of `out` is as it was.
  void expect_gaps_kept(const std::vector<T>& out) const {
    std::vector<bool> written(static_cast<std::size_t>(shape.output.extent));
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t i = 0; i < count(shape.output); ++i) written[at(shape.output, b, i)] = true;
    }
    const std::size_t width = shape.output.real ? 1 : 2;
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(written[i / width] || out[i] == static_cast<T>(k_untouched)) << i;
  }

  report run(const plan& by, const T* from, T* to) const {
    const std::span<const std::complex<T>> complex_in(reinterpret_cast<const std::complex<T>*>(from),
                                                      static_cast<std::size_t>(shape.input.extent));
    const std::span<std::complex<T>> complex_out(reinterpret_cast<std::complex<T>*>(to), static_cast<std::size_t>(shape.output.extent));
    if (shape.kind == kind::r2c) return by.forward(std::span(from, scalars(shape.input)), complex_out);
    if (shape.kind == kind::c2r) return by.inverse(complex_in, std::span(to, scalars(shape.output)));
    return way == direction::forward ? by.forward(complex_in, complex_out) : by.inverse(complex_in, complex_out);
  }
  report run(const plan& by, std::vector<T>& out) const { return run(by, in.data(), out.data()); }
};

// body(subject<float or double>) of a case.
template <class Body>
void with_data(const cuda_case& which, const Body& body, std::uint64_t seed = 11) {
  if (which.problem().precision == precision::f32) {
    body(subject<float>(which, seed));
  } else {
    body(subject<double>(which, seed));
  }
}

// Bitwise, so that NaN equals itself.
template <class T>
bool same(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

std::string name_of(const cuda_case& each) {
  const char* const where = each.where == machine::small       ? " small"
                            : each.where == machine::single    ? " single"
                            : each.where == machine::clustered ? " clustered"
                            : each.where == machine::paired    ? " paired"
                                                               : "";
  return fmt::format("{}{}{}", each.token, where, each.input.strides.empty() ? "" : " strided");
}

// ---- Accuracy, layouts, memory ----

TEST(fft_cuda, every_case_is_accurate_whatever_the_order_of_threads) {
  double worst = 0;
  for (const cuda_case& each : cuda_cases()) {
    SCOPED_TRACE(name_of(each));
    with_data(each, [&]<class T>(const subject<T>& given) {
      std::vector<T> first;
      for (std::uint64_t seed = 1; seed <= k_orders; ++seed) {
        const emulator device(each.where, seed);
        std::vector<T> out = given.fresh();
        {
          const plan made(given.problem, on_cuda());
          const report seen = given.run(made, out);
          ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
          EXPECT_EQ(seen.backend, backend::cuda);
          EXPECT_GE(seen.checks, static_cast<std::uint64_t>(given.shape.batch));
        }
        ballast::cuda::forget_idle_states();  // the tables that the next plan would find
        EXPECT_EQ(device->allocated(), 0);
        if (seed == 1) {
          first = out;
          given.expect_gaps_kept(out);
          for (std::int64_t b = 0; b < given.shape.batch; ++b) {
            const double allowed =
                bound<T>(given.shape.points()) * (given.shape.kind == kind::c2c ? 1 : 1.5) + (given.scale == 1 ? 0 : u<T>);
            const double e = error<T>(given.got(out, b).data(), given.wanted(b));
            worst = std::max(worst, e / allowed);
            ASSERT_LE(e, allowed) << "signal " << b;
          }
        }
        EXPECT_TRUE(same(out, first)) << "seed " << seed;
      }
    });
  }
  RecordProperty("worst_over_bound", fmt::format("{:.3f}", worst));
}

// Whether the transform makes the same sums with and without protection; and whether a fault then finds the same element: in the same
// tiles.
bool same_arithmetic(const fft::problem& problem, direction way, bool scaled, const ballast::cuda::capabilities& about,
                     bool tiles = false) {
  cuda::schedule_request wanted;
  wanted.shape = resolve(problem);
  wanted.precision = problem.precision;
  wanted.direction = way;
  wanted.scaled = scaled;
  wanted.pairs = cuda::chosen_pairing();
  const auto bare = cuda::make_schedule(wanted, about).passes;
  wanted.check = cuda::check_form::verify_before_store;
  const auto checked = cuda::make_schedule(wanted, about).passes;
  return std::ranges::equal(bare, checked, [&](const cuda::pass& x, const cuda::pass& y) {
    return std::ranges::equal(x.policy.radix, y.policy.radix) &&
           (!tiles || (x.policy.lines == y.policy.lines && x.policy.threads == y.policy.threads));
  });
}

TEST(fft_cuda, results_are_the_same_on_device_memory_and_in_place) {
  for (const cuda_case& each : cuda_cases()) {
    SCOPED_TRACE(name_of(each));
    const emulator device(each.where, 5);
    with_data(each, [&]<class T>(const subject<T>& given) {
      const plan made(given.problem, on_cuda());
      std::vector<T> staged = given.fresh();
      ASSERT_EQ(given.run(made, staged).verdict, verdict::clean);
      {
        const on_device<T> in(given.in), out(given.fresh());
        const report seen = given.run(made, in.data(), out.data());
        EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
        EXPECT_TRUE(same(out.read(), staged));
        EXPECT_TRUE(same(in.read(), given.in)) << "the input is not written";
      }
      if ((each.uses & k_unaligned) != 0) {
        // By one complex number, or one real.
        const std::ptrdiff_t before = given.shape.output.real ? 0 : given.shape.input.real ? 1 : 2;
        const std::ptrdiff_t behind = given.shape.output.real ? 1 : 0;
        std::vector<T> shifted(static_cast<std::size_t>(before), static_cast<T>(k_untouched));
        shifted.insert(shifted.end(), given.in.begin(), given.in.end());
        std::vector<T> room(given.fresh().size() + static_cast<std::size_t>(behind), static_cast<T>(k_untouched));
        const on_device<T> in(shifted), out(room);
        EXPECT_EQ(given.run(made, in.data() + before, out.data() + behind).verdict, verdict::clean);
        std::vector<T> moved = out.read();
        moved.erase(moved.begin(), moved.begin() + behind);
        for (std::int64_t b = 0; b < given.shape.batch; ++b) {
          if (given.shape.kind == kind::c2c) {
            EXPECT_EQ(given.got(moved, b), given.got(staged, b)) << "signal " << b;
          } else {  // not in pairs then
            EXPECT_LE(error<T>(given.got(moved, b).data(), given.wanted(b)), 1.5 * bound<T>(given.shape.points()) + u<T>) << "signal " << b;
          }
        }
      }
      if (given.shape.kind == kind::c2c && given.shape.input == given.shape.output) {
        const on_device<T> memory(given.in);
        EXPECT_EQ(given.run(made, memory.data(), memory.data()).verdict, verdict::clean);
        std::vector<T> host = given.in;
        EXPECT_EQ(given.run(made, host.data(), host.data()).verdict, verdict::clean);
        for (std::int64_t b = 0; b < given.shape.batch; ++b) {
          EXPECT_EQ(given.got(memory.read(), b), given.got(staged, b)) << "in place, signal " << b;
          EXPECT_EQ(given.got(host, b), given.got(staged, b)) << "in place on the host, signal " << b;
        }
      }
      if (given.shape.kind != kind::c2c && each.input.strides.empty()) {
        subject<T> padded = given;
        padded.problem = padded_rows(given.problem);
        padded.shape = resolve(padded.problem);
        signal<T> values;
        for (std::int64_t b = 0; b < given.shape.batch; ++b) {
          for (std::int64_t i = 0; i < subject<T>::count(given.shape.input); ++i)
            values.push_back(given.read(given.in, given.shape.input, b, i));
        }
        padded.set(values);
        const plan here(padded.problem, on_cuda());
        std::vector<T> memory = padded.in;
        memory.resize(std::max(memory.size(), subject<T>::scalars(padded.shape.output)));
        const on_device<T> on(memory);
        EXPECT_EQ(padded.run(here, on.data(), on.data()).verdict, verdict::clean);
        const auto got = on.read();
        for (std::int64_t b = 0; b < given.shape.batch; ++b)
          EXPECT_EQ(padded.got(got, b), given.got(staged, b)) << "in place, signal " << b;
      }
      if ((each.uses & k_bare) != 0) {
        const plan bare(given.problem, on_cuda(protection::off));
        std::vector<T> out = given.fresh();
        const report seen = given.run(bare, out);
        EXPECT_EQ(seen.checks, 0u);
        EXPECT_TRUE(same(out, staged) || !same_arithmetic(given.problem, given.way, given.scale != 1, device->about()))
            << "protection changes no bit";
      }
    });
  }
}

const cuda_case& case_of(const char* token, machine where) {
  for (const cuda_case& each : cuda_cases()) {
    if (std::string_view(each.token) == token && each.where == where && each.input.strides.empty()) return each;
  }
  throw std::logic_error(token);
}

// Can repeat what was launched, as a captured graph does.
class replaying_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const auto* const bytes = static_cast<const unsigned char*>(arguments.front().data);
    launches_.push_back({&which, blocks, {bytes, bytes + arguments.front().bytes}});
    inner_->launch(which, blocks, arguments, on);
  }

  void replay() {
    for (const recorded& each : launches_) inner_->launch(*each.which, each.blocks, each.argument.data(), each.argument.size(), nullptr);
  }

 private:
  struct recorded {
    const ballast::cuda::kernel* which;
    std::int64_t blocks;
    std::vector<unsigned char> argument;
  };
  std::vector<recorded> launches_;
};

TEST(fft_cuda, one_report_covers_every_run_of_what_was_enqueued) {
  for (const machine where : {machine::whole, machine::small, machine::paired}) {
    const cuda_case& each = case_of(where == machine::whole   ? "fft_c2c_f32_n64_b43_fwd"
                                    : where == machine::small ? "fft_c2c_f32_n1024_b3_fwd"
                                                              : "fft_c2c_f32_n1024_b19_inv",
                                    where);
    const emulator emulated(where, 2);
    const auto device = std::make_shared<replaying_device>(*emulated);
    ballast::cuda::override_device(device);
    const subject<float> given(each, 3);
    inject::request persistent;
    persistent.site = inject::site::fft_stage;
    persistent.model = inject::model::stuck_at;
    const inject::plan faults({persistent});
    const on_device<float> in(given.in), out(given.fresh());
    std::vector<float> wanted = given.fresh();
    ASSERT_EQ(given.run(plan(given.problem, on_cuda()), wanted).verdict, verdict::clean);
    {
      const plan made(given.problem, on_cuda());
      pending_report first = made.enqueue(given.way, in.data(), out.data());
      pending_report second = made.enqueue(given.way, in.data(), out.data());
      EXPECT_EQ(second.get().verdict, verdict::clean);
      EXPECT_EQ(first.get().verdict, verdict::clean);
      EXPECT_TRUE(same(out.read(), wanted));
    }
    const auto again = std::make_shared<replaying_device>(*emulated);
    ballast::cuda::override_device(again);
    const plan struck(given.problem, on_cuda(protection::correct, &faults));
    pending_report pending = struck.enqueue(given.way, in.data(), out.data());
    const report once = pending.get();
    EXPECT_EQ(once.verdict, verdict::uncorrectable) << to_json(once);
    ASSERT_GT(once.detected, 0u);
    EXPECT_EQ(once.events.size(), once.detected);
    EXPECT_EQ(pending.get().verdict, verdict::clean) << "nothing ran since";
    for (int run = 0; run < 3; ++run) again->replay();
    const report thrice = pending.get();
    EXPECT_EQ(thrice.uncorrectable, 3 * once.uncorrectable) << to_json(thrice);
    EXPECT_EQ(thrice.events.size(), thrice.detected);
  }
}

TEST(fft_cuda, enqueue_and_workspace_refuse_what_does_not_fit) {
  const cuda_case& each = case_of("fft_c2c_f32_n1024_b3_fwd", machine::small);
  const emulator device(each.where);
  const subject<float> given(each, 3);
  execution how = on_cuda();
  const std::int64_t bytes = plan(given.problem, how).workspace_bytes();
  EXPECT_GE(bytes, static_cast<std::int64_t>(given.in.size() * sizeof(float))) << "the whole batch waits between the passes";
  const on_device<std::byte> memory(std::vector<std::byte>(static_cast<std::size_t>(bytes)));
  const on_device<float> in(given.in), out(given.fresh());
  std::vector<float> wanted = given.fresh();
  ASSERT_EQ(given.run(plan(given.problem, how), wanted).verdict, verdict::clean);
  {
    how.workspace = {memory.data(), static_cast<std::size_t>(bytes)};
    const plan made(given.problem, how);
    EXPECT_EQ(given.run(made, in.data(), out.data()).verdict, verdict::clean);
    const std::int64_t before = device->allocated();
    for (int run = 0; run < 2; ++run) {
      pending_report pending = made.enqueue(given.way, in.data(), out.data());
      EXPECT_EQ(device->allocated(), before) << "with a workspace nothing is allocated";
      EXPECT_EQ(pending.get().verdict, verdict::clean);
    }
    EXPECT_TRUE(same(out.read(), wanted));
    EXPECT_THROW((void)made.enqueue(given.way, given.in.data(), out.data()), invalid_argument_error);
    EXPECT_THROW((void)made.enqueue(given.way, in.data(), wanted.data()), invalid_argument_error);
  }
  how.workspace = {memory.data(), static_cast<std::size_t>(bytes - 1)};
  EXPECT_THROW((void)given.run(plan(given.problem, how), in.data(), out.data()), invalid_argument_error);
  std::vector<std::byte> host(static_cast<std::size_t>(bytes));
  how.workspace = host;
  EXPECT_THROW((void)given.run(plan(given.problem, how), in.data(), out.data()), invalid_argument_error);
}

// Hands the argument of a pair to `change` before each launch, of so many blocks at most.
class meddling_device final : public test::forwarding_device {
 public:
  meddling_device(std::shared_ptr<ballast::cuda::device> inner, std::function<void(cuda::pair_arguments&)> change,
                  std::int64_t most_blocks = 1000)
      : forwarding_device(std::move(inner)), change_(std::move(change)), most_blocks_(most_blocks) {}
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const auto [argument, size] = arguments.front();
    std::vector<unsigned char> given(static_cast<const unsigned char*>(argument), static_cast<const unsigned char*>(argument) + size);
    ASSERT_EQ(size, 2 * sizeof(cuda::line_arguments) + sizeof(cuda::pair_arguments));
    cuda::pair_arguments pair;
    std::memcpy(&pair, given.data() + size - sizeof(pair), sizeof(pair));
    change_(pair);
    std::memcpy(given.data() + size - sizeof(pair), &pair, sizeof(pair));
    launches_ += 1;
    inner_->launch(which, std::min(blocks, most_blocks_), given.data(), size, on);
  }
  int launches() const { return launches_; }

 private:
  std::function<void(cuda::pair_arguments&)> change_;
  std::int64_t most_blocks_;
  int launches_ = 0;
};

TEST(fft_cuda, two_passes_in_one_launch_keep_a_part_of_what_waits) {
  const cuda_case& each = case_of("fft_c2c_f32_n128_b300_fwd", machine::paired);
  const subject<float> given(each, 3);
  const emulator emulated(each.where);
  const plan made(given.problem, on_cuda());
  cuda::override_pairing(cuda::pairing::never);
  EXPECT_LT(made.workspace_bytes(), plan(given.problem, on_cuda()).workspace_bytes());
  std::vector<float> out = given.fresh();
  const std::int64_t before = emulated->launches();
  EXPECT_EQ(given.run(made, out).verdict, verdict::clean);
  EXPECT_EQ(emulated->launches() - before, 1);
}

// The waiting is needed, and the emulator sees it: without it results are wrong, and with too few slots nobody can go on.
TEST(fft_cuda, two_passes_in_one_launch_wait_for_each_other) {
  const cuda_case& each = case_of("fft_c2c_f32_n128_b300_fwd", machine::paired);
  const subject<float> given(each, 3);
  std::vector<float> wanted = given.fresh();
  {
    const emulator emulated(each.where);
    ASSERT_EQ(given.run(plan(given.problem, on_cuda()), wanted).verdict, verdict::clean);
  }
  // Which counters count as full from the start: 0 those of the first pass, 1 those of the second, −1 none.
  for (const int full : {-1, 0, 1}) {
    int wrong = 0;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const emulator emulated(each.where, seed);
      emulated->run_together(24);
      const auto device = std::make_shared<meddling_device>(*emulated, [&](cuda::pair_arguments& p) {
        if (full < 0) return;
        // Units follow at once, so that only the counters keep them apart.
        p.ahead = 1;
        p.slots = 2;
        for (std::uint32_t slot = 0; slot < p.slots; ++slot) p.counters[2 + 2 * slot + static_cast<std::uint32_t>(full)] = 1u << 30;
      });
      ballast::cuda::override_device(device);
      std::vector<float> out = given.fresh();
      (void)given.run(plan(given.problem, on_cuda()), out);
      EXPECT_EQ(device->launches(), 1);
      wrong += same(out, wanted) ? 0 : 1;
    }
    EXPECT_EQ(wrong > 0, full >= 0) << full;
  }
  // Blocks that all wait for tickets which nobody is left to draw; with a slot more than the first pass is ahead, one block suffices.
  for (const bool enough : {true, false}) {
    const emulator emulated(each.where);
    const auto squeeze = [&](cuda::pair_arguments& p) {
      p.ahead = 3;
      p.slots = enough ? 4 : 1;
    };
    ballast::cuda::override_device(std::make_shared<meddling_device>(*emulated, squeeze, enough ? 1 : 2));
    std::vector<float> out = given.fresh();
    const plan made(given.problem, on_cuda());
    if (enough) {
      EXPECT_EQ(given.run(made, out).verdict, verdict::clean);
      EXPECT_TRUE(same(out, wanted));
    } else {
      EXPECT_THROW((void)given.run(made, out), simt::error);
    }
  }
}

TEST(fft_cuda, long_batches_run_in_chunks) {
  const cuda_case& each = case_of("fft_c2c_f32_n4096_b70_fwd", machine::small);
  const emulator device(each.where);
  const subject<float> given(each, 3);
  const plan made(given.problem, on_cuda());
  EXPECT_LT(made.workspace_bytes(), static_cast<std::int64_t>(given.in.size() * sizeof(float)));
  std::vector<float> out = given.fresh();
  const std::int64_t before = device->launches();
  EXPECT_EQ(given.run(made, out).verdict, verdict::clean);
  EXPECT_EQ(device->launches() - before, 6) << "three chunks of two passes";
}

// ---- Faults ----

template <class T>
double norm_of(const signal<T>& x) {
  double squares = 0;
  for (const auto& z : x) squares += std::norm(std::complex<double>(z));
  return std::sqrt(squares);
}

// Plans of one case, all looking at the same list of faults.
template <class T>
struct struck_case {
  const subject<T>& given;
  inject::plan faults;
  std::vector<T> clean;
  double size = 0;  // the norm of the largest signal
  plan bare, guarded;

  explicit struck_case(const subject<T>& data)
      : given(data),
        clean(data.fresh()),
        bare(data.problem, on_cuda(protection::off, &faults)),
        guarded(data.problem, on_cuda(protection::correct, &faults)) {
    EXPECT_EQ(given.run(guarded, clean).verdict, verdict::clean);
    for (std::int64_t b = 0; b < given.shape.batch; ++b) size = std::max(size, norm_of<T>(given.got(clean, b)));
  }
  struck_case(const struck_case&) = delete;
  struck_case& operator=(const struck_case&) = delete;

  // ‖out − clean‖ in units of the clean rounding error's scale; infinite if out is not finite.
  double effect(const std::vector<T>& out) const {
    double squares = 0;
    for (std::size_t i = 0; i < out.size(); ++i) squares += std::pow(static_cast<double>(out[i]) - static_cast<double>(clean[i]), 2);
    const double units = std::sqrt(squares) / (size * u<T> * std::sqrt(std::log2(static_cast<double>(given.shape.points())) + 1));
    return std::isfinite(units) ? units : std::numeric_limits<double>::infinity();
  }
};

// Calls body(request, row) for every site of the FFT, every model and so many seeds. A sample tries a third of the models at each site;
// which third depends on the case, so that the cases together try every model at every site.
template <class Body>
void for_every_fault(const cuda_case& each, int seeds, const Body& body) {
  const auto number = static_cast<std::size_t>(&each - cuda_cases().data());
  for (const inject::site_row& row : inject::k_sites) {
    if (row.operation != "fft" && !row.operation.empty()) continue;
    for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
      if (test::sampled() && (m + static_cast<std::size_t>(row.site) + number) % 3 != 0) continue;
      for (int seed = 0; seed < seeds; ++seed) {
        inject::request wanted;
        wanted.site = row.site;
        wanted.model = static_cast<inject::model>(m);
        wanted.seed = static_cast<std::uint64_t>(seed) * 1000 + m;
        wanted.bit = 62;
        SCOPED_TRACE(fmt::format("{} {} seed {}", row.name, inject::k_model_names[m], wanted.seed));
        body(wanted, row);
      }
    }
  }
}

TEST(fft_cuda, every_site_and_model_is_survived) {
  int compared = 0, compared_passes = 0;
  std::map<inject::site, int> found_anywhere, damaged_anywhere;
  for (const cuda_case& each : cuda_cases()) {
    if ((each.uses & k_faults) == 0) continue;
    SCOPED_TRACE(name_of(each));
    const emulator device(each.where, 9);
    with_data(each, [&]<class T>(const subject<T>& given) {
      if (given.shape.points() * given.shape.batch > (test::sampled() ? 5000 : 20000)) return;
      struck_case<T> under(given);
      const bool in_place = given.shape.kind == kind::c2c && given.shape.input == given.shape.output;
      const bool comparable = same_arithmetic(given.problem, given.way, given.scale != 1, device->about(), true);
      compared += comparable ? 1 : 0;
      compared_passes += comparable && divides(each.where) ? 1 : 0;
      std::map<inject::site, int> changed, found, damaged;
      // A sample tries a third of the models: as many seeds more, for one strike may find only lanes that have no element.
      for_every_fault(each,
                      test::sampled()                                   ? 6
                      : given.shape.points() * given.shape.batch > 1000 ? 2
                                                                        : 4,
                      [&](const inject::request& wanted, const inject::site_row& row) {
                        under.faults = inject::plan({wanted});
                        double off_effect = 0;
                        std::vector<T> out = given.fresh();
                        if (row.role == inject::site_role::data) {
                          (void)given.run(under.bare, out);
                          off_effect = under.effect(out);
                          changed[row.site] += off_effect > 0 ? 1 : 0;
                          out = given.fresh();
                        }
                        report seen;
                        if (in_place && wanted.seed / 1000 % 2 == 1) {
                          const on_device<T> memory(given.in);
                          seen = given.run(under.guarded, memory.data(), memory.data());
                          out = memory.read();
                          for (std::size_t i = 0; i < out.size(); ++i) {
                            if (std::isnan(given.in[i])) out[i] = static_cast<T>(k_untouched);
                          }
                        } else {
                          seen = given.run(under.guarded, out);
                        }
                        found[row.site] += seen.verdict != verdict::clean ? 1 : 0;
                        ASSERT_EQ(seen.detected, seen.corrected + seen.recomputed + seen.uncorrectable);
                        ASSERT_EQ(seen.events.size(), seen.detected);
                        for (const event& one : seen.events) {
                          damaged[row.site] += one.damaged ? 1 : 0;
                          ASSERT_TRUE(one.damaged || (one.index >= 0 && one.index < given.shape.batch)) << to_json(one);
                        }
                        if (seen.verdict == verdict::uncorrectable) {
                          ASSERT_EQ(wanted.model, inject::model::stuck_at) << to_json(seen);
                          return;
                        }
                        ASSERT_LE(under.effect(out), seen.verdict == verdict::clean ? k_floor : 0) << to_json(seen);
                        // A struck check must not spoil data.
                        ASSERT_TRUE(row.role == inject::site_role::data || under.effect(out) == 0);
                        ASSERT_TRUE(!comparable || off_effect <= k_floor || seen.verdict != verdict::clean) << "effect " << off_effect;
                        ASSERT_TRUE(row.role != inject::site_role::checker || seen.false_alarms == seen.recomputed) << to_json(seen);
                      });
      for (const inject::site_row& row : inject::k_sites) {
        if (row.operation != "fft" && !row.operation.empty()) continue;
        EXPECT_EQ(changed[row.site] > 0, row.role == inject::site_role::data) << row.name;
        found_anywhere[row.site] += found[row.site];
        damaged_anywhere[row.site] += damaged[row.site];
        if (test::sampled()) continue;  // not every model is tried in every case
        EXPECT_GT(found[row.site], 0) << row.name;
        EXPECT_EQ(damaged[row.site] > 0, row.role == inject::site_role::repair) << row.name;
      }
    });
  }
  for (const inject::site_row& row : inject::k_sites) {
    if (row.operation != "fft" && !row.operation.empty()) continue;
    EXPECT_GT(found_anywhere[row.site], 0) << row.name;
    EXPECT_EQ(damaged_anywhere[row.site] > 0, row.role == inject::site_role::repair) << row.name;
  }
  EXPECT_GE(compared, 5);
  EXPECT_GE(compared_passes, 1);
}

TEST(fft_cuda, what_is_not_believed_is_not_stored) {
  for (const cuda_case& each : cuda_cases()) {
    if ((each.uses & k_faults) == 0) continue;
    SCOPED_TRACE(name_of(each));
    const emulator device(each.where, 21);
    with_data(each, [&]<class T>(const subject<T>& given) {
      struck_case<T> under(given);
      const bool large = given.shape.points() * given.shape.batch > 20000;
      // Every signal is one line of the only pass.
      const bool one_pass = !divides(each.where) && given.shape.points() != 67;
      const on_device<T> in(given.in);
      // What was not stored between two passes must not happen to be there from an earlier run.
      execution how = on_cuda(protection::detect, &under.faults);
      const std::vector<float> nothing(static_cast<std::size_t>(under.guarded.workspace_bytes()) / sizeof(float), std::nanf(""));
      const on_device<float> workspace(nothing);
      how.workspace = {reinterpret_cast<std::byte*>(workspace.data()), nothing.size() * sizeof(float)};
      const plan watched(given.problem, how);
      int found = 0;
      const int seeds = large || test::sampled() || divides(each.where) ? 1 : 2;
      for_every_fault(each, seeds, [&](const inject::request& wanted, const inject::site_row& row) {
        if (row.role == inject::site_role::repair || (large && wanted.model != inject::model::nan)) return;
        under.faults = inject::plan({wanted});
        const on_device<T> memory(given.fresh());
        device->copy(workspace.data(), nothing.data(), static_cast<std::int64_t>(nothing.size() * sizeof(float)), nullptr);
        const report seen = given.run(watched, in.data(), memory.data());
        const auto out = memory.read();
        ASSERT_TRUE(seen.verdict == verdict::clean || seen.verdict == verdict::uncorrectable);
        std::set<std::int64_t> reported, unstored;
        for (const event& one : seen.events) {
          reported.insert(one.index);
          if (one.site == "fft.line") unstored.insert(one.index);
          EXPECT_EQ(one.action, action::uncorrectable);
          EXPECT_EQ(one.device, device->about().name);
          EXPECT_GE(one.multiprocessor, 0);
          EXPECT_FALSE(one.damaged);
        }
        found += reported.empty() ? 0 : 1;
        for (std::int64_t b = 0; b < given.shape.batch; ++b) {
          const auto y = given.got(out, b);
          const auto wanted_y = given.got(under.clean, b);
          signal<T> difference;
          for (std::size_t i = 0; i < y.size(); ++i) difference.push_back(y[i] - wanted_y[i]);
          const double missed =
              norm_of(difference) / (u<T> * std::sqrt(std::log2(static_cast<double>(given.shape.points())) + 1) * under.size);
          // Of a product that is not believed the third evaluation is stored.
          ASSERT_TRUE(missed <= k_floor || reported.contains(b)) << "signal " << b << " differs by " << missed << " " << to_json(seen);
          ASSERT_TRUE(!(missed <= k_floor) || !unstored.contains(b)) << "signal " << b << " " << to_json(seen);
          if (!one_pass || !reported.contains(b)) continue;
          for (const auto& z : y) ASSERT_EQ(z.real(), static_cast<T>(k_untouched)) << "signal " << b;
        }
      });
      EXPECT_GT(found, 0);
    });
  }
}

// A line comes out twice before it is stored. If the second time is struck, that is one event, whether or not a check had failed before.
TEST(fft_cuda, a_fault_in_the_confirming_computation_is_one_event) {
  const std::pair<const char*, machine> cases[] = {{"fft_c2c_f32_n64_b43_fwd", machine::whole},
                                                   {"fft_c2c_f32_n256_b77_fwd", machine::single},
                                                   {"fft_c2c_f64_n100_b9_fwd", machine::whole},
                                                   {"fft_c2c_f32_n512_b5_fwd", machine::clustered},
                                                   {"fft_c2c_f64_n512_b3_inv", machine::clustered}};
  for (const auto& [token, where] : cases) {
    const cuda_case& each = case_of(token, where);
    SCOPED_TRACE(name_of(each));
    const emulator device(where);
    with_data(each, [&]<class T>(subject<T> given) {
      for (const bool judged : {true, false}) {
        SCOPED_TRACE(judged ? "after a fault" : "after a norm that the first check cannot judge");
        // Squares leave the range, the transform does not.
        if (!judged) std::ranges::transform(given.in, given.in.begin(), [](T x) { return x * T(sizeof(T) == 4 ? 1e20 : 1e160); });
        struck_case<T> under(given);
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
          inject::request wanted;
          wanted.site = inject::site::fft_output;
          wanted.seed = seed;
          wanted.bit = sizeof(T) == 4 ? 24 : 54;
          inject::request first = wanted;
          wanted.visit = 2;
          under.faults = judged ? inject::plan({first, wanted}) : inject::plan({wanted});
          std::vector<T> out = given.fresh();
          const report seen = given.run(under.guarded, out);
          EXPECT_EQ(seen.detected, 1u) << to_json(seen);
          EXPECT_EQ(seen.recomputed, 1u);
          EXPECT_EQ(seen.false_alarms, 0u);
          EXPECT_TRUE(same(out, under.clean));
        }
      }
    });
  }
}

TEST(fft_cuda, persistent_faults_throw_and_leave_host_memory_alone) {
  const cuda_case& each = case_of("fft_c2c_f32_n64_b43_fwd", machine::whole);
  const emulator device(each.where);
  const subject<float> given(each, 3);
  inject::request wanted;
  wanted.site = inject::site::fft_stage;
  wanted.model = inject::model::stuck_at;
  wanted.interval = 0;
  const inject::plan faults({wanted});
  execution how = on_cuda(protection::correct, &faults);
  how.throw_on_uncorrectable = true;
  int events = 0;
  how.on_event = [&](const event& one) {
    ++events;
    EXPECT_EQ(one.site, "fft.line");
    EXPECT_GT(one.residual, one.threshold);
  };
  const plan thrower(given.problem, how);
  std::vector<float> out = given.fresh();
  try {
    (void)given.run(thrower, out);
    ADD_FAILURE() << "expected an uncorrectable fault";
  } catch (const uncorrectable_error& e) {
    EXPECT_EQ(e.report().uncorrectable, 1u);
    EXPECT_EQ(events, 1);
    EXPECT_TRUE(same(out, given.fresh()));
  }
}

TEST(fft_cuda, random_flips_above_the_floor_are_all_found) {
  const int trials = test::sampled() ? 60 : 1200;
  for (const char* token : {"fft_c2c_f32_n64_b43_fwd", "fft_c2c_f64_n100_b9_fwd"}) {
    const cuda_case& each = case_of(token, machine::whole);
    SCOPED_TRACE(token);
    const emulator device(each.where);
    with_data(each, [&]<class T>(const subject<T>& given) {
      ASSERT_TRUE(same_arithmetic(given.problem, given.way, false, device->about(), true)) << "the tuning table sees to it";
      struck_case<T> under(given);
      int above = 0;
      for (int trial = 0; trial < trials; ++trial) {
        inject::request wanted;
        wanted.site = trial % 4 == 0 ? inject::site::fft_input : trial % 4 == 1 ? inject::site::fft_output : inject::site::fft_stage;
        wanted.seed = static_cast<std::uint64_t>(trial);
        under.faults = inject::plan({wanted});
        std::vector<T> bare = given.fresh(), out = given.fresh();
        (void)given.run(under.bare, bare);
        const report seen = given.run(under.guarded, out);
        ASSERT_LE(under.effect(out), k_floor) << trial;
        if (under.effect(bare) > k_floor) {
          ++above;
          ASSERT_EQ(seen.verdict, verdict::recomputed) << trial << " effect " << under.effect(bare);
        }
      }
      EXPECT_GT(above, trials / 8);
    });
  }
}

// ---- Clean data of every kind ----

TEST(fft_cuda, no_false_alarm_on_clean_data_of_every_kind) {
  std::mt19937_64 random(5);
  for (const cuda_case& each : cuda_cases()) {
    SCOPED_TRACE(name_of(each));
    const emulator device(each.where, 31);
    with_data(each, [&]<class T>(subject<T> given) {
      const std::int64_t count = subject<T>::count(given.shape.input);
      const std::int64_t points = given.shape.points();
      if (test::sampled() && count * given.shape.batch > 3000) return;
      const plan made(given.problem, on_cuda());
      for (int which = 0; which < k_fillings; ++which) {
        SCOPED_TRACE(fmt::format("data {}", which));
        signal<T> values(static_cast<std::size_t>(count * given.shape.batch));
        fill(values, which, count, random);
        given.set(values);
        std::vector<T> out = given.fresh();
        const report seen = given.run(made, out);
        ASSERT_EQ(seen.verdict, verdict::clean) << to_json(seen);
        if (points > 128 && which != 2 && which != 4 && which != 12) continue;
        // What gradual underflow adds to a relative error.
        const double tiny = 8 * static_cast<double>(std::numeric_limits<T>::denorm_min()) * static_cast<double>(points);
        for (std::int64_t b = 0; b < std::min<std::int64_t>(given.shape.batch, 3); ++b) {
          const auto wanted = given.wanted(b);
          wide<T> squares = 0;  // of f32 in double, of f64 in long double: neither leaves its range
          for (const auto& z : wanted) squares += std::norm(z);
          double size = static_cast<double>(std::sqrt(squares));
          // Relative to the data where that is more: sums of equal numbers cancel.
          double data = 0;
          for (std::int64_t i = 0; i < count; ++i)
            data = std::max(data, static_cast<double>(std::abs(std::complex<double>(given.read(given.in, given.shape.input, b, i)))));
          size = std::max(size, data * std::sqrt(static_cast<double>(points)) * given.scale);
          const double allowed = 3 * bound<T>(points) * size + tiny;
          const auto y = given.got(out, b);
          for (std::size_t i = 0; i < y.size(); ++i)
            ASSERT_LE(static_cast<double>(std::abs(std::complex<wide<T>>(y[i]) - wanted[i])), allowed)
                << "signal " << b << " element " << i;
        }
      }
    });
  }
}

TEST(fft_cuda, infinity_and_nan_are_data) {
  for (const cuda_case& each : cuda_cases()) {
    SCOPED_TRACE(name_of(each));
    const emulator device(each.where, 41);
    with_data(each, [&]<class T>(subject<T> given) {
      using limits = std::numeric_limits<T>;
      if (given.shape.batch < 2 || (test::sampled() && given.shape.points() * given.shape.batch > 3000)) return;
      const plan made(given.problem, on_cuda());
      std::vector<T> clean = given.fresh();
      ASSERT_EQ(given.run(made, clean).verdict, verdict::clean);
      const auto data = given.in;
      for (const T value : {limits::infinity(), -limits::infinity(), limits::quiet_NaN()}) {
        given.in = data;
        // An element whose imaginary part counts, or a real one.
        const std::int64_t count = subject<T>::count(given.shape.input);
        given.in[subject<T>::at(given.shape.input, 1, count / 2) * (given.shape.input.real ? 1 : 2)] = value;
        std::vector<T> out = given.fresh();
        const report seen = given.run(made, out);
        ASSERT_EQ(seen.verdict, verdict::clean) << value << " " << to_json(seen);
        for (std::int64_t b = 0; b < given.shape.batch; ++b) {
          const auto y = given.got(out, b);
          if (b != 1) {
            ASSERT_EQ(y, given.got(clean, b)) << "a neighbour's Inf or NaN must stay there";
          } else {
            for (const auto& z : y) ASSERT_FALSE(std::isfinite(z.real()) && std::isfinite(z.imag())) << value;
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace ballast::fft
