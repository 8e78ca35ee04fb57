# Toolchain file: cross-compiles for 64-bit Arm Linux with GCC, and runs what it built under QEMU. The libraries lie in the root that
# scripts/arm64-root makes: BALLAST_ARM64_ROOT, by default build/arm64-root.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(BALLAST_ARM64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root CACHE PATH "Libraries of Debian's architecture arm64 (scripts/arm64-root)")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES BALLAST_ARM64_ROOT)
get_filename_component(CMAKE_SYSROOT ${BALLAST_ARM64_ROOT} ABSOLUTE)
if(NOT EXISTS ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu)
  message(FATAL_ERROR "${CMAKE_SYSROOT} has no libraries for arm64: expected those that scripts/arm64-root ${CMAKE_SYSROOT} installs")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;${CMAKE_SYSROOT})
