// See allocations.hpp.
#include "support/allocations.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace ballast::test {
namespace {

std::atomic<std::int64_t> count{0};
thread_local int paused = 0;
thread_local std::int64_t until_failure = -1;  // −1: none fails; −2: one has failed

void* counted(std::size_t bytes, std::size_t alignment) noexcept {
  if (paused == 0) count.fetch_add(1, std::memory_order_relaxed);
  if (until_failure == 0) {
    until_failure = -2;
    return nullptr;
  }
  if (until_failure > 0) --until_failure;
  const std::size_t least = std::max<std::size_t>(bytes, 1);
  if (alignment <= alignof(std::max_align_t)) return std::malloc(least);
  return std::aligned_alloc(alignment, (least + alignment - 1) / alignment * alignment);
}

void* counted_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const made = counted(bytes, alignment);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

}  // namespace

std::int64_t allocations() noexcept { return count.load(std::memory_order_relaxed); }

uncounted::uncounted() noexcept { ++paused; }
uncounted::~uncounted() { --paused; }

failing_allocation::failing_allocation(std::int64_t number) noexcept { until_failure = number; }
failing_allocation::~failing_allocation() { until_failure = -1; }
bool failing_allocation::failed() const noexcept { return until_failure == -2; }

}  // namespace ballast::test

using ballast::test::counted;
using ballast::test::counted_or_throw;

void* operator new(std::size_t bytes) { return counted_or_throw(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t at) { return counted_or_throw(bytes, static_cast<std::size_t>(at)); }
void* operator new[](std::size_t bytes, std::align_val_t at) { return counted_or_throw(bytes, static_cast<std::size_t>(at)); }
void* operator new(std::size_t bytes, std::align_val_t at, const std::nothrow_t&) noexcept {
  return counted(bytes, static_cast<std::size_t>(at));
}
void* operator new[](std::size_t bytes, std::align_val_t at, const std::nothrow_t&) noexcept {
  return counted(bytes, static_cast<std::size_t>(at));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { std::free(memory); }
