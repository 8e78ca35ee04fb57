// Measures the cost of one repair: geqrf in device memory without protection, with it, and with one fault that it repairs, alternating
// within one run. A factorizer derived from the library's writes the fault to device memory: with an injector, every place that could be
// struck would need a launch.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "each_case.hpp"
#include "engine_with.hpp"
#include "qr/cuda/engine/factorizer.hpp"
#include "qr_stages.hpp"
#include "run/settings.hpp"
#include "samples.hpp"

namespace ballast::gpu_check::factors {
namespace {

enum class struck { nothing, a, v };

template <class S>
class struck_factorizer final : public qr::cuda::device_factorizer<S> {
 public:
  struck_factorizer(struck what, qr::cuda::session<S>& on, const qr::layout& shape, const matrix_view<S>& A, S* tau,
                    const matrix_view<const S>& source)
      : base(on, shape, A, tau, source), what_(what) {
    const S value = 100;
    value_ = on.upload(&value, 1);
  }

  // Strikes an element of A' before its panel, in the middle of the factorization.
  void begin_panel(index k) override {
    base::begin_panel(k);
    const index first = this->shape_[k].first;
    if (what_ == struck::a && k == this->shape_.panels / 2) put(first + 1, first);
  }
  // Strikes an element of V after the last panel.
  void end_pass() override {
    base::end_pass();
    const index column = this->shape_.steps / 3;
    if (what_ == struck::v) put(column + (this->shape_.m - column) / 2, column);
  }

 private:
  using base = qr::cuda::device_factorizer<S>;

  void put(index i, index j) {
    what_ = struck::nothing;
    this->on_.copy(this->A_ + i + j * this->lda_, value_.data(), sizeof(S));
  }

  struck what_;
  ballast::cuda::device_buffer value_;
};

template <class T>
int time_repairs(const std::string& token, const time_limit& limit) {
  constexpr int rounds = 3;
  struct variant {
    const char* name;
    protection level;
    struck what;
  };
  static constexpr std::array variants = {
      variant{"off", protection::off, struck::nothing}, variant{"correct", protection::correct, struck::nothing},
      variant{"repair in A'", protection::correct, struck::a}, variant{"repair in V", protection::correct, struck::v}};
  const qr::problem what = qr::parse_token(token);
  const auto device = ballast::cuda::current_device();
  const ballast::cuda::device_stream stream(device);
  const index bytes = what.rows * what.columns * static_cast<index>(sizeof(T));
  const ballast::cuda::device_buffer source(device, bytes, stream.get()), A(device, bytes, stream.get()),
      tau(device, std::min(what.rows, what.columns) * static_cast<index>(sizeof(T)), stream.get());
  const std::vector<T> values = matrix_of<T>(what, 11);
  device->copy(source.data(), values.data(), bytes, stream.get());
  device->synchronize(stream.get());
  std::array<report, variants.size()> seen;
  const auto times = in_turn(
      variants.size(), rounds, limit,
      [&](std::size_t) {
        device->copy(A.data(), source.data(), bytes, stream.get());
        device->synchronize(stream.get());
        return true;
      },
      [&](std::size_t v) {
        const run::settings how{
            .backend = backend::cuda, .protection = variants[v].level, .throw_on_uncorrectable = false, .stream = stream.get()};
        seen[v] = factor_with<T>(token, qr::k_block_checksum, how, false, column_major(static_cast<T*>(A.data()), what.rows, what.columns),
                                 static_cast<T*>(tau.data()), matrix_view<const T>{},
                                 [v](qr::cuda::session<T>& session, const auto& shape, const auto& matrix, T* scalars, const auto& input) {
                                   return std::make_unique<struck_factorizer<T>>(variants[v].what, session, shape, matrix, scalars, input);
                                 });
      },
      [](std::size_t) {});
  int failed = 0;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const bool good = seen[v].uncorrectable == 0 && (seen[v].detected > 0) == (variants[v].what != struck::nothing);
    failed += good ? 0 : 1;
    row line("repair");
    line.add("token", token).add("variant", variants[v].name).add("corrected", seen[v].corrected);
    line.add("recomputed", seen[v].recomputed).add("pass", good);
    add_milliseconds(line, times[v]).print();
  }
  return failed;
}

}  // namespace

int repairs(const settings& wanted, const time_limit& limit) {
  return time_each(wanted.tokens.empty() ? repaired_set(wanted.quick) : wanted.tokens, qr::parse_token, limit, "repair",
                   [&](auto zero, const std::string& token) { return time_repairs<decltype(zero)>(token, limit); });
}

}  // namespace ballast::gpu_check::factors
