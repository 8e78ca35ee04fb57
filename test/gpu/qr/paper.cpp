// The measurements of the paper for the scheme hybrid. Figure 5: rows of type "rotations" (R made triangular again, by one rotation after
// the other and in blocks). Figures 7 to 9: rows of type "curve" (time over n without protection, with R protected, with R and Q, and with
// one repair). §7.1: rows of type "overhead" (its eight sources, each isolated). docs/notebook/qr-cuda.md describes how each is isolated.
// Source: P. Du et al., 2011, §5.3.3 and §7. Matrices are square, as there.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/parallel.hpp"
#include "each_case.hpp"
#include "engine_with.hpp"
#include "qr/cuda/engine/recovery.hpp"
#include "qr_stages.hpp"
#include "samples.hpp"
#include "studied.hpp"

#if defined(BALLAST_HAS_CPU)
#include "core/blas.hpp"
#include "qr/sites.hpp"
#include "run/settings.hpp"
#endif

namespace ballast::gpu_check::factors {

namespace {

// Number of columns from which a call takes seconds: fewer rounds, and no isolated overheads.
constexpr index k_long = 12000;

struct variant {
  const char* name;
  study wanted;
  bool input_kept = false;  // the caller keeps the input, so that nothing is copied to the host
  bool curve = true;        // false: used for the overheads only
};

constexpr study studied(bool q, study::fault struck = study::fault::none, bool plain = false) {
  return {.q = q, .plain = plain, .struck = struck};
}

constexpr std::size_t k_off = 0, k_r = 1, k_both = 2, k_in_q = 3, k_in_a = 4, k_kept = 6, k_unchecked = 7;
constexpr std::array<variant, 8> k_variants = {{{"off", {.level = protection::off}},
                                                {"R", studied(false)},
                                                {"R and Q", studied(true)},
                                                {"repair in Q", studied(true, study::fault::in_q)},
                                                {"repair in R or A'", studied(true, study::fault::in_a)},
                                                {"repair in R or A', plain", studied(true, study::fault::in_a, true)},
                                                {"R and Q, input kept", studied(true), true, false},
                                                {"R and Q, no checkpoint", {.checkpoints = false}, false, false}}};

template <class T>
class subject {
 public:
  explicit subject(const std::string& token)
      : token_(token), what_(qr::parse_token(token)), device_(ballast::cuda::current_device()), stream_(device_) {
    if (what_.rows != what_.columns || what_.batch > 1)
      throw invalid_argument_error(token + ": expected a square matrix, got another problem");
    const index bytes = what_.columns * what_.columns * static_cast<index>(sizeof(T));
    source_ = ballast::cuda::device_buffer(device_, bytes, stream_.get());
    A_ = ballast::cuda::device_buffer(device_, bytes, stream_.get());
    tau_ = ballast::cuda::device_buffer(device_, what_.columns * static_cast<index>(sizeof(T)), stream_.get());
    const std::vector<T> values = matrix_of<T>(what_, 11);
    device_->copy(source_.data(), values.data(), bytes, stream_.get());
    device_->synchronize(stream_.get());
  }

  index n() const { return what_.columns; }
  index bytes() const { return A_.bytes(); }

  void restore() const {
    device_->copy(A_.data(), source_.data(), A_.bytes(), stream_.get());
    device_->synchronize(stream_.get());
  }

  // Runs one call of hybrid on the matrix that restore() left.
  report call(const study& wanted, bool input_kept) const {
    const run::settings how{.backend = backend::cuda, .protection = wanted.level, .throw_on_uncorrectable = false, .stream = stream_.get()};
    const matrix_view<const T> source = input_kept ? column_major<const T>(pointer(source_), n(), n()) : matrix_view<const T>{};
    return factor_with<T>(token_, qr::k_hybrid, how, wanted.plain, column_major(pointer(A_), n(), n()), pointer(tau_), source,
                          [&wanted](qr::cuda::session<T>& session, const auto& shape, const auto& A, T* tau, const auto& input) {
                            return std::make_unique<studied_factorizer<T>>(wanted, session, shape, A, tau, input);
                          });
  }

  // Returns the last column of A, which depends on all columns.
  std::vector<T> last_column() const {
    std::vector<T> made(static_cast<std::size_t>(n()));
    device_->copy(made.data(), pointer(A_) + n() * (n() - 1), n() * static_cast<index>(sizeof(T)), stream_.get());
    device_->synchronize(stream_.get());
    return made;
  }

  // Times the copy of the input to pinned memory, with no concurrent work.
  double milliseconds_of_copy() const {
    const ballast::cuda::pinned_buffer there(device_, A_.bytes());
    const bench::stopwatch clock;
    device_->copy(there.data(), source_.data(), A_.bytes(), stream_.get());
    device_->synchronize(stream_.get());
    return 1e3 * clock.seconds();
  }

  // Runs reduce_hessenberg on the matrix that restore() left.
  void reduce(qr::cuda::session<T>& on, const ballast::cuda::device_buffer& subdiagonal, const ballast::cuda::device_buffer& rotations,
              bool plain) const {
    T* const c = pointer(rotations);
    qr::cuda::reduce_hessenberg<T>(on, pointer(A_), n(), n() - 1, n(), pointer(subdiagonal), c, c + n(), plain);
    device_->synchronize(on.main());
  }

 private:
  static T* pointer(const ballast::cuda::device_buffer& memory) { return static_cast<T*>(memory.data()); }

  const std::string token_;
  const qr::problem what_;
  const std::shared_ptr<ballast::cuda::device> device_;
  const ballast::cuda::device_stream stream_;
  ballast::cuda::device_buffer source_, A_, tau_;
};

// Returns whether two columns agree up to rounding.
template <class T>
bool agree(const std::vector<T>& a, const std::vector<T>& b) {
  double off = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    off += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  constexpr double u = std::numeric_limits<T>::epsilon() / 2;
  return std::sqrt(off) <= 100 * u * static_cast<double>(a.size()) * std::sqrt(size);
}

// Figure 5.
template <class T>
int rotations(const std::string& token, const subject<T>& of, int rounds, const time_limit& limit) {
  static constexpr std::array names = {"plain", "blocked"};
  const run::settings how{.backend = backend::cuda};
  inject::active_injector injector(nullptr, qr::site::table());
  run::recorder seen(token, backend::cuda, qr::k_hybrid, how, injector);
  const qr::context run{seen, injector, how, backend::cuda, 1};
  qr::cuda::session<T> on(run);
  const std::vector<T> below = matrix_of<T>({precision_of<T>, of.n(), 1}, 12);
  const auto subdiagonal = on.template allocate_of<T>(of.n()), cs = on.template allocate_of<T>(2 * of.n());
  std::vector<T> made[2];
  const auto times = in_turn(
      names.size(), rounds, limit,
      [&](std::size_t) {
        of.restore();
        on.copy(subdiagonal.data(), below.data(), subdiagonal.bytes());
        on.device()->synchronize(on.main());
        return true;
      },
      [&](std::size_t which) { of.reduce(on, subdiagonal, cs, which == 0); }, [&](std::size_t which) { made[which] = of.last_column(); });
  const bool right = agree(made[0], made[1]);
  for (std::size_t which = 0; which < names.size(); ++which) {
    row line("rotations");
    line.add("token", token).add("variant", names[which]).add("pass", right);
    add_milliseconds(line, times[which]).print();
  }
  return right ? 0 : 1;
}

// §7.1: times each source in isolation, and the loss of the whole call where the difference of two variants shows it.
template <class T>
int overheads(const std::string& token, const subject<T>& of, int rounds, const std::vector<std::vector<double>>& times) {
  std::array<std::vector<double>, source_count> alone;
  for (int round = 0; round < rounds; ++round) {
    std::array<double, source_count> seen{};
    for (const std::size_t v : {k_both, k_in_q, k_in_a}) {
      std::array<double, source_count> now{};
      study wanted = k_variants[v].wanted;
      wanted.milliseconds = now.data();
      of.restore();
      (void)of.call(wanted, false);
      if (v == k_both) seen = now;
      if (v == k_in_q) seen[source::recover_q] = now[source::recover_q];
      if (v == k_in_a) seen[source::recover_r] = now[source::recover_r];
    }
    seen[source::duplicate] = of.milliseconds_of_copy();
    for (std::size_t s = 0; s < source_count; ++s) alone[s].push_back(seen[s]);
  }
  const auto more = [&](std::size_t with, std::size_t without) { return median(times[with]) - median(times[without]); };
  std::array<double, source_count> within;
  within.fill(std::numeric_limits<double>::quiet_NaN());
  within[source::duplicate] = more(k_both, k_kept);
  within[source::checkpoint] = more(k_both, k_unchecked);
  within[source::check_q] = more(k_unchecked, k_r);
  within[source::recover_q] = more(k_in_q, k_both);
  within[source::recover_r] = more(k_in_a, k_both);
  int failed = 0;
  for (std::size_t s = 0; s < source_count; ++s) {
    const bool pass = median(alone[s]) > 0;
    row line("overhead");
    line.add("token", token).add("source", s + 1).add("name", k_source_names[s]);
    add_milliseconds(line, alone[s]).add("within", within[s]).add("off", median(times[k_off])).add("pass", pass).print();
    failed += pass ? 0 : 1;
  }
  return failed;
}

template <class T>
int measure(const std::string& token, const settings& wanted, const time_limit& limit) {
  const subject<T> of(token);
  const bool takes_long = of.n() >= k_long;
  const int rounds = takes_long ? 2 : wanted.quick ? 1 : 3;
  int failed = rotations(token, of, rounds, limit);
  // Allocates pinned memory and everything else that a first call allocates; the small matrices do so for the other variants.
  of.restore();
  (void)of.call(k_variants[k_both].wanted, false);
  std::array<int, k_variants.size()> corrected{}, recomputed{};
  std::array<std::string, k_variants.size()> wrong;
  std::vector<T> expected;
  const auto times = in_turn(
      k_variants.size(), rounds, limit,
      [&](std::size_t v) {
        if (takes_long && !k_variants[v].curve) return false;
        of.restore();
        return true;
      },
      [&](std::size_t v) {
        const report seen = of.call(k_variants[v].wanted, k_variants[v].input_kept);
        corrected[v] += seen.verdict == verdict::corrected;
        recomputed[v] += seen.verdict == verdict::recomputed;
        const bool struck = k_variants[v].wanted.struck != study::fault::none;
        if (seen.verdict == verdict::uncorrectable || (seen.detected > 0) != struck) wrong[v] = describe(seen);
      },
      [&](std::size_t v) {
        const std::vector<T> made = of.last_column();
        if (expected.empty()) expected = made;
        if (!agree(made, expected)) wrong[v] += "another result";
      },
      of.n() < 4096);
  const double flops = flops_of(qr::parse_token(token));
  for (std::size_t v = 0; v < k_variants.size(); ++v) {
    if (times[v].empty()) continue;
    row line("curve");
    line.add("token", token).add("variant", k_variants[v].name);
    add_milliseconds(line, times[v]).add("tflops", flops / median(times[v]) * 1e-9);
    line.add("corrected", corrected[v]).add("recomputed", recomputed[v]).add("pass", wrong[v].empty());
    if (!wrong[v].empty()) line.add("wrong", wrong[v]);
    line.print();
    failed += wrong[v].empty() ? 0 : 1;
  }
  return takes_long ? failed : failed + overheads(token, of, rounds, times);
}

}  // namespace

int paper(const settings& wanted, const time_limit& limit) {
  const std::vector<std::string> tokens = wanted.tokens.empty() ? paper_set(wanted.quick) : wanted.tokens;
#if defined(BALLAST_HAS_CPU)
  row("panels").add("blas", core::blas_name()).add("threads", core::thread_count(0)).print();
  return time_each(tokens, qr::parse_token, limit, "curve",
                   [&](auto zero, const std::string& token) { return measure<decltype(zero)>(token, wanted, limit); });
#else
  for (const std::string& token : tokens) {
    row("curve")
        .add("token", token)
        .add("variant", "all")
        .add("refused", "panels would be the serial reference's: this program was built without the cpu backend")
        .print();
  }
  (void)limit;
  return static_cast<int>(tokens.size());
#endif
}

}  // namespace ballast::gpu_check::factors
