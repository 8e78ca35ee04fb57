// Counts what a program allocates by operator new, in all its forms. allocations.cpp replaces these operators for the program it is linked
// into.
// Layer: test harness.
#pragma once

#include <cstdint>

namespace ballast::test {

// Returns the number of allocations of all threads so far. Allocations in an uncounted scope do not count.
std::int64_t allocations() noexcept;

// Stops the count for this thread during its lifetime: for emulated devices, which allocate the memory of a GPU.
class uncounted {
 public:
  uncounted() noexcept;
  ~uncounted();
  uncounted(const uncounted&) = delete;
  uncounted& operator=(const uncounted&) = delete;
};

// Lets one allocation of this thread fail with std::bad_alloc: number `number` from here on, counted from 0.
class failing_allocation {
 public:
  explicit failing_allocation(std::int64_t number) noexcept;
  ~failing_allocation();
  failing_allocation(const failing_allocation&) = delete;
  failing_allocation& operator=(const failing_allocation&) = delete;
  bool failed() const noexcept;  // true after that allocation
};

// Returns the number of allocations of work().
template <class Work>
std::int64_t allocations_of(const Work& work) {
  const std::int64_t before = allocations();
  work();
  return allocations() - before;
}

}  // namespace ballast::test
