/* What glibc got after 2.28 and what the library, libstdc++.a or fmt calls, by what 2.28 had. Linked into the wheel (older_runtime.py). */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

/* glibc 2.32. 0: counters of references are always atomic. */
char __libc_single_threaded = 0;

/* glibc 2.30. The deadline is moved to the clock that pthread_cond_timedwait has; callers read their own clock after they have woken. */
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* deadline) {
  struct timespec now, there;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &there) != 0) return EINVAL;
  there.tv_sec += deadline->tv_sec - now.tv_sec;
  there.tv_nsec += deadline->tv_nsec - now.tv_nsec;
  if (there.tv_nsec >= 1000000000) {
    ++there.tv_sec;
    there.tv_nsec -= 1000000000;
  } else if (there.tv_nsec < 0) {
    --there.tv_sec;
    there.tv_nsec += 1000000000;
  }
  return pthread_cond_timedwait(condition, mutex, &there);
}

/* glibc 2.33: functions; before, the headers' inline functions called these with the version of the struct. */
int __fxstat(int version, int file, struct stat* to);
int __xstat(int version, const char* path, struct stat* to);
int __lxstat(int version, const char* path, struct stat* to);
int __fxstatat(int version, int folder, const char* path, struct stat* to, int flags);
enum { k_stat_version = 1 }; /* on x86-64 */
int fstat(int file, struct stat* to) { return __fxstat(k_stat_version, file, to); }
int stat(const char* path, struct stat* to) { return __xstat(k_stat_version, path, to); }
int lstat(const char* path, struct stat* to) { return __lxstat(k_stat_version, path, to); }
int fstatat(int folder, const char* path, struct stat* to, int flags) { return __fxstatat(k_stat_version, folder, path, to, flags); }
