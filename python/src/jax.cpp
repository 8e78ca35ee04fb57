// Handlers that XLA calls for ballast.jax (typed FFI). This file is compiled where jaxlib's headers are found.
//
// All handlers take their operands and results by position, in C order or, the matrices of QR, by columns; and as attributes `protection`,
// `backend`, `threads` and `sampled`. XLA calls them on its own threads, so that their reports are kept here until Python asks.
#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core.hpp"

namespace ballast_python {

namespace {

namespace ffi = xla::ffi;
namespace fft = ballast::fft;
namespace qr = ballast::qr;
namespace kmeans = ballast::kmeans;

// The findings of all handlers since Python last asked.
class ledger {
 public:
  void add(const ballast::report& seen) {
    const std::lock_guard lock(mutex_);
    merge(seen);
  }

  // The next call of `plan` inherits the memory of the last one, with its findings. Calls of a plan make the same checks, of which the
  // library counts those of the last call: the others are counted here.
  void forget(const std::shared_ptr<const void>& plan) {
    std::optional<ballast::pending_report> last;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    if (const auto found = outstanding_.find(plan); found != outstanding_.end()) last.swap(found->second.last);
  }

  void add(const std::shared_ptr<const void>& plan, ballast::pending_report work) {
    bool many = false;
    {
      const std::lock_guard lock(mutex_);
      calls& of = outstanding_.try_emplace(plan, calls{.order = outstanding_.size()}).first->second;
      of.last = std::move(work);
      ++of.count;
      many = outstanding_.size() > k_most_outstanding;
    }
    if (many) settle();
  }

  // Waits for the streams. The report, if there is one, and whether a fault was not repaired that no handler has returned as an error.
  std::pair<std::optional<ballast::report>, bool> take() {
    settle();
    const std::lock_guard lock(mutex_);
    return {std::exchange(seen_, std::nullopt), std::exchange(untold_, false)};
  }

 private:
  static constexpr std::size_t k_most_outstanding = 512;

  // The calls of one plan since findings were last asked for.
  struct calls {
    std::size_t order = 0;    // the place of this plan, by its first call
    std::uint64_t count = 0;  // without those that have failed
    std::optional<ballast::pending_report> last = std::nullopt;
  };

  void settle() {
    std::map<std::shared_ptr<const void>, calls> asked;
    {
      const std::lock_guard lock(mutex_);
      asked.swap(outstanding_);
    }
    std::vector<calls*> waiting;
    for (auto& [plan, of] : asked)
      if (of.last) waiting.push_back(&of);
    std::sort(waiting.begin(), waiting.end(), [](const calls* one, const calls* other) { return one->order < other->order; });
    for (calls* const of : waiting) {
      try {
        ballast::report seen = of->last->get();
        seen.checks *= of->count;
        add(seen);
      } catch (const ballast::uncorrectable_error& fault) {
        ballast::report seen = fault.report();
        seen.checks *= of->count;
        const std::lock_guard lock(mutex_);
        merge(seen);
        untold_ = true;
      }
    }
  }

  void merge(const ballast::report& later) {
    if (seen_) {
      seen_->merge(later);
    } else {
      seen_ = later;
    }
  }

  std::mutex mutex_;
  std::optional<ballast::report> seen_;
  bool untold_ = false;
  std::map<std::shared_ptr<const void>, calls> outstanding_;  // by plan
};

// XLA's threads may call handlers while the program ends, so that nothing here is destroyed.
ledger& findings() {
  static ledger& made = *new ledger;
  return made;
}

// The plans of the last calls: at most 256, of at most 2²⁶ elements in all.
template <class Plan>
class plan_cache {
 public:
  std::shared_ptr<const Plan> get(const std::string& key, std::int64_t elements, const std::function<Plan()>& make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = places_.find(key); found != places_.end()) {
        plans_.splice(plans_.begin(), plans_, found->second);
        return plans_.front().plan;
      }
    }
    auto made = std::make_shared<const Plan>(make());
    const std::lock_guard lock(mutex_);
    if (places_.contains(key)) return made;
    plans_.push_front({key, elements, made});
    places_[key] = plans_.begin();
    held_ += elements;
    while (plans_.size() > 1 && (plans_.size() > k_most_plans || held_ > k_most_elements)) {
      held_ -= plans_.back().elements;
      places_.erase(plans_.back().key);
      plans_.pop_back();
    }
    return made;
  }

  static plan_cache& shared() {
    static plan_cache& made = *new plan_cache;
    return made;
  }

 private:
  static constexpr std::size_t k_most_plans = 256;
  static constexpr std::int64_t k_most_elements = std::int64_t{1} << 26;
  struct entry {
    std::string key;
    std::int64_t elements;
    std::shared_ptr<const Plan> plan;
  };
  std::mutex mutex_;
  std::list<entry> plans_;  // the last used first
  std::unordered_map<std::string, typename std::list<entry>::iterator> places_;
  std::int64_t held_ = 0;
};

// One operand or result.
struct buffer {
  void* data;
  ffi::DataType type;
  std::vector<std::int64_t> shape;

  explicit buffer(const ffi::AnyBuffer& from)
      : data(from.untyped_data()), type(from.element_type()), shape(from.dimensions().begin(), from.dimensions().end()) {}
  std::int64_t length(std::size_t from_end) const { return shape[shape.size() - from_end]; }
  std::int64_t product(std::size_t first, std::size_t last) const {
    return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.begin() + static_cast<std::ptrdiff_t>(last),
                           std::int64_t{1}, std::multiplies<>());
  }
  template <class T>
  std::span<T> all() const {
    return {static_cast<T*>(data), static_cast<std::size_t>(product(0, shape.size()))};
  }
  // The last two axes by columns; those before them are a stack.
  template <class T>
  ballast::matrix_batch_view<T> columns() const {
    const std::int64_t m = length(2);
    return {static_cast<T*>(data), product(0, shape.size() - 2), m, length(1), 1, m, m * length(1)};
  }
};

// A call, as XLA hands it over.
struct frame {
  ffi::Dictionary attributes;
  ffi::RemainingArgs arguments;
  ffi::RemainingRets results;
  void* stream = nullptr;
  int device = -1;  // -1: the host's memory

  template <class T>
  T attribute(const char* name) const {
    auto found = attributes.get<T>(name);
    if (!found.has_value()) throw ballast::invalid_argument_error(std::string(name) + ": " + found.error().message());
    return *found;
  }
  buffer in(std::size_t i) const { return buffer(value(arguments.get<ffi::AnyBuffer>(i))); }
  buffer out(std::size_t i) const { return buffer(*value(results.get<ffi::AnyBuffer>(i))); }

  ballast::execution where() const {
    const auto protection = ballast::parse_protection(attribute<std::string_view>("protection"));
    const auto backend = ballast::parse_backend(attribute<std::string_view>("backend"));
    if (!protection || !backend) throw ballast::invalid_argument_error("protection or backend: not one of the library's names");
    const auto sampled = static_cast<int>(attribute<std::int64_t>("sampled"));
    if (device < 0) {
      const auto threads = static_cast<int>(attribute<std::int64_t>("threads"));
      return {.backend = *backend, .threads = threads, .protection = *protection, .sampled = sampled};
    }
    if (*backend != ballast::backend::automatic && *backend != ballast::backend::cuda)
      throw ballast::unsupported_error("backend \"" + std::string(to_string(*backend)) +
                                       "\": expected auto or cuda for arrays of a device");
    return {.backend = ballast::backend::cuda, .device = device, .protection = *protection, .sampled = sampled};
  }
  ballast::call now() const { return {.stream = stream}; }
  // Plans of a device belong to a stream: the calls of one plan share memory, so that they must follow each other.
  std::string place() const {
    const ballast::execution at = where();
    return ' ' + std::string(to_string(at.backend)) + std::to_string(at.device) + ' ' + std::string(to_string(at.protection)) + ' ' +
           std::to_string(at.threads) + ' ' + std::to_string(at.sampled) + ' ' + std::to_string(std::bit_cast<std::uintptr_t>(stream));
  }

 private:
  template <class T>
  static T value(ffi::ErrorOr<T> found) {
    if (!found.has_value()) throw ballast::invalid_argument_error(found.error().message());
    return std::move(*found);
  }
};

void record(const ballast::report& seen) { findings().add(seen); }

// Attributes: kind, axes (the last ones, which are transformed), inverse, norm. In C order.
void compute_fft(const frame& now) {
  const buffer x = now.in(0), y = now.out(0);
  fft::problem of{.kind = kind_of(now.attribute<std::string_view>("kind")), .norm = norm_of(now.attribute<std::string_view>("norm"))};
  const buffer& real = of.kind == fft::kind::c2r ? y : x;
  const auto axes = static_cast<std::size_t>(now.attribute<std::int64_t>("axes"));
  const bool twice = x.type == ffi::DataType::F64 || x.type == ffi::DataType::C128;
  of.precision = twice ? ballast::precision::f64 : ballast::precision::f32;
  of.shape.assign(real.shape.end() - static_cast<std::ptrdiff_t>(axes), real.shape.end());
  of.batch = real.product(0, real.shape.size() - axes);
  const bool inverse = now.attribute<bool>("inverse");
  const std::int64_t points = real.product(real.shape.size() - axes, real.shape.size());
  const std::string key = to_token(of, inverse ? fft::direction::inverse : fft::direction::forward) + std::string(to_string(of.norm));
  const auto plan = plan_cache<fft::plan>::shared().get(key + now.place(), points, [&] { return fft::plan(of, now.where()); });
  const auto transform = [&]<class In, class Out>(In, Out) {
    const std::span<const In> from = x.all<const In>();
    const std::span<Out> to = y.all<Out>();
    if (now.device >= 0) findings().forget(plan);
    if constexpr (!std::is_floating_point_v<In>) {
      if (inverse) {
        if (now.device >= 0) return findings().add(plan, plan->enqueue_inverse(from, to, now.now()));
        return record(plan->inverse(from, to, now.now()));
      }
    }
    if constexpr (!std::is_floating_point_v<Out>) {
      if (now.device >= 0) return findings().add(plan, plan->enqueue_forward(from, to, now.now()));
      return record(plan->forward(from, to, now.now()));
    }
    throw ballast::invalid_argument_error("inverse: expected the direction of the kind of transform");
  };
  with_types(of, transform);
}

// Calls `use` with a value of the buffer's type, float or double.
void with_real(const buffer& of, auto&& use) {
  if (of.type == ffi::DataType::F64) return use(double());
  if (of.type == ffi::DataType::F32) return use(float());
  throw ballast::invalid_argument_error("expected float32 or float64");
}

void expect_in_place(const buffer& operand, const buffer& result) {
  if (operand.data != result.data) throw ballast::invalid_argument_error("expected the result in the memory of the operand");
}

template <class T>
std::shared_ptr<const qr::plan<T>> qr_plan(const frame& now, const ballast::matrix_batch_view<T>& A) {
  const qr::problem size{.precision = ballast::precision_of<T>, .rows = A.rows, .columns = A.columns, .batch = A.count};
  return plan_cache<qr::plan<T>>::shared().get(to_token(size) + now.place(), A.count * A.rows * A.columns,
                                               [&] { return qr::plan<T>(size, now.where()); });
}

// A (…, m, n) in place; result 1: tau (…, min(m, n)).
void compute_geqrf(const frame& now) {
  const buffer a = now.out(0), tau = now.out(1);
  expect_in_place(now.in(0), a);
  with_real(a, [&]<class T>(T) {
    const auto A = a.columns<T>();
    const auto plan = qr_plan<T>(now, A);
    record(A.count == 1 ? plan->geqrf(A[0], tau.all<T>(), now.now()) : plan->geqrf(A, tau.all<T>(), now.now()));
  });
}

// The reflectors (…, m, k) in place become Q; operand 1: tau (…, k).
void compute_orgqr(const frame& now) {
  const buffer a = now.out(0), tau = now.in(1);
  expect_in_place(now.in(0), a);
  with_real(a, [&]<class T>(T) {
    const auto A = a.columns<T>();
    const auto plan = qr_plan<T>(now, A);
    record(A.count == 1 ? plan->orgqr(A[0], tau.all<const T>(), now.now()) : plan->orgqr(A, tau.all<const T>(), now.now()));
  });
}

// A (…, m, n) and B (…, max(m, n), k), both in place.
void compute_gels(const frame& now) {
  const buffer a = now.out(0), b = now.out(1);
  expect_in_place(now.in(0), a);
  expect_in_place(now.in(1), b);
  with_real(a, [&]<class T>(T) {
    const auto A = a.columns<T>();
    const auto B = b.columns<T>();
    const auto plan = qr_plan<T>(now, A);
    record(A.count == 1 ? plan->gels(A[0], B[0], now.now()) : plan->gels(A, B, now.now()));
  });
}

template <class T>
kmeans::data<T> points_and_centroids(const frame& now) {
  const buffer points = now.in(0), centroids = now.in(1);
  return {.points = ballast::row_major(static_cast<const T*>(points.data), points.shape[0], points.shape[1]),
          .centroids = ballast::row_major(static_cast<const T*>(centroids.data), centroids.shape[0], centroids.shape[1])};
}

template <class T>
std::shared_ptr<const kmeans::plan<T>> kmeans_plan(const frame& now, const kmeans::data<T>& from, const kmeans::options& how) {
  const kmeans::problem size{
      .precision = ballast::precision_of<T>, .points = from.points.rows, .features = from.points.columns, .clusters = from.centroids.rows};
  const std::string key =
      to_token(size) + ' ' + std::to_string(how.max_iter) + ' ' + std::to_string(std::bit_cast<std::uint64_t>(how.tol)) + now.place();
  return plan_cache<kmeans::plan<T>>::shared().get(key, size.points * size.features,
                                                   [&] { return kmeans::plan<T>(size, how, now.where()); });
}

// Points (m, n) and centroids (k, n) in C order; result: labels (m) of 32 bits.
void compute_predict(const frame& now) {
  with_real(now.in(0), [&]<class T>(T) {
    const kmeans::data<T> from = points_and_centroids<T>(now);
    record(kmeans_plan<T>(now, from, {})->predict(from, {.labels = now.out(0).all<std::int32_t>()}, now.now()));
  });
}

// The same operands, the centroids being the first; attributes max_iter and tol. Results: centroids (k, n), labels (m).
void compute_fit(const frame& now) {
  const kmeans::options how{.init = kmeans::init::given,
                            .max_iter = static_cast<int>(now.attribute<std::int64_t>("max_iter")),
                            .tol = now.attribute<double>("tol")};
  const buffer centroids = now.out(0);
  with_real(centroids, [&]<class T>(T) {
    const kmeans::data<T> from = points_and_centroids<T>(now);
    const kmeans::fit_results<T> to{
        .centroids = ballast::row_major(static_cast<T*>(centroids.data), centroids.shape[0], centroids.shape[1]),
        .labels = now.out(1).all<std::int32_t>()};
    record(kmeans_plan<T>(now, from, how)->fit(from, to, now.now()));
  });
}

// Exceptions become XLA's errors.
ffi::Error guarded(void (*compute)(const frame&), const frame& now) {
  try {
    if (around_program_call) {
      around_program_call([&] { compute(now); });
    } else {
      compute(now);
    }
    return ffi::Error::Success();
  } catch (const ballast::uncorrectable_error& fault) {
    findings().add(fault.report());
    return {ffi::ErrorCode::kDataLoss, fault.what()};
  } catch (const ballast::invalid_argument_error& wrong) {
    return {ffi::ErrorCode::kInvalidArgument, wrong.what()};
  } catch (const ballast::rank_deficient_error& wrong) {
    return {ffi::ErrorCode::kFailedPrecondition, wrong.what()};
  } catch (const ballast::unsupported_error& wrong) {
    return {ffi::ErrorCode::kUnimplemented, wrong.what()};
  } catch (const ballast::out_of_memory_error& wrong) {
    return {ffi::ErrorCode::kResourceExhausted, wrong.what()};
  } catch (const std::exception& wrong) {
    return {ffi::ErrorCode::kInternal, wrong.what()};
  }
}

template <void (*compute)(const frame&)>
XLA_FFI_Error* on_host(XLA_FFI_CallFrame* from) {
  static auto* handler = ffi::Ffi::Bind()
                             .RemainingArgs()
                             .RemainingRets()
                             .Attrs()
                             .To([](ffi::RemainingArgs arguments, ffi::RemainingRets results, ffi::Dictionary attributes) {
                               return guarded(compute, {.attributes = attributes, .arguments = arguments, .results = results});
                             })
                             .release();
  return handler->Call(from);
}

template <void (*compute)(const frame&)>
XLA_FFI_Error* on_device(XLA_FFI_CallFrame* from) {
  static auto* handler =
      ffi::Ffi::Bind()
          .Ctx<ffi::PlatformStream<void*>>()
          .Ctx<ffi::DeviceOrdinal>()
          .RemainingArgs()
          .RemainingRets()
          .Attrs()
          .To([](void* stream, std::int32_t device, ffi::RemainingArgs arguments, ffi::RemainingRets results, ffi::Dictionary attributes) {
            return guarded(compute, {attributes, arguments, results, stream, device});
          })
          .release();
  return handler->Call(from);
}

// The handlers by name, as jax.ffi.register_ffi_target takes them.
nb::dict handlers(bool device) {
  nb::dict made;
  const auto add = [&]<void (*compute)(const frame&)>(const char* name, std::integral_constant<void (*)(const frame&), compute>) {
    made[name] = nb::capsule(std::bit_cast<const void*>(device ? on_device<compute> : on_host<compute>));
  };
  add("ballast_fft", std::integral_constant<void (*)(const frame&), compute_fft>());
  add("ballast_geqrf", std::integral_constant<void (*)(const frame&), compute_geqrf>());
  add("ballast_orgqr", std::integral_constant<void (*)(const frame&), compute_orgqr>());
  add("ballast_gels", std::integral_constant<void (*)(const frame&), compute_gels>());
  add("ballast_kmeans_predict", std::integral_constant<void (*)(const frame&), compute_predict>());
  add("ballast_kmeans_fit", std::integral_constant<void (*)(const frame&), compute_fit>());
  return made;
}

}  // namespace

void add_jax(nb::module_& m) {
  m.def("jax_handlers", handlers);
  // (The report of the handlers' calls since the last request or None, whether it has a fault that no error has told.)
  m.def("jax_report", [] {
    auto [seen, untold] = unlocked([] { return findings().take(); });
    return nb::make_tuple(seen ? nb::cast(std::move(*seen)) : nb::none(), untold);
  });
}

}  // namespace ballast_python
