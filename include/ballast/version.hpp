// The version of Ballast and of its binary interface.
// Layer: interface. No dependency.
#pragma once

// Versions follow semantic versioning. CMake reads them here.
#define BALLAST_VERSION_MAJOR 0
#define BALLAST_VERSION_MINOR 2
#define BALLAST_VERSION_PATCH 0
#define BALLAST_VERSION (BALLAST_VERSION_MAJOR * 10000 + BALLAST_VERSION_MINOR * 100 + BALLAST_VERSION_PATCH)

// Marks the symbols that the shared library exports; all others are hidden.
#if defined(BALLAST_STATIC)
#define BALLAST_API
#elif defined(_WIN32)
#error "Ballast is built for ELF and Mach-O platforms"
#else
#define BALLAST_API __attribute__((visibility("default")))
#endif

// Every public declaration lies in an inline namespace `abi_1` of the namespace that a reader names: ballast::fft::plan is
// ballast::fft::abi_1::plan to the linker. The number grows when a release breaks binary compatibility, so that a program cannot be linked
// with the library of another interface.
