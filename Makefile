# The two commands of the README are `make demo` and `make test`; both set everything up themselves.
.PHONY: demo test test-full test-python test-mpi test-arm64 quick strike campaign bench format lint build clean

# The demonstration needs the command, without and with injection. It needs no tests, no rivals and no kernels for a GPU.
demo:
	scripts/install-dependencies build
	cmake -S . -B build/demo -G Ninja -DCMAKE_BUILD_TYPE=Release -DBALLAST_BUILD_TESTS=OFF -DBALLAST_BUILD_BENCHMARKS=OFF
	cmake --build build/demo --target ballast-command ballast-instrumented
	python3 examples/demo.py build/demo/bin/ballast

# Continuous integration runs this target (CONTRIBUTING.md, "Tests"). It must stay under 25 minutes of two processors without a compiler
# cache; docs/notebook/tests.md says what its parts take. An optimized build runs the command, an installed library, the stages of gpu-check,
# properties and strikes, as a user would. A build under AddressSanitizer and UndefinedBehaviorSanitizer runs the unit tests and
# the tests of every backend. The algorithms that the change touches run more cases (scripts/touched).
launcher := $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
test:
	scripts/install-dependencies test
	cmake --preset release -DBALLAST_BUILD_BENCHMARKS=OFF -DBALLAST_BUNDLE=small -DBALLAST_INJECTED_OPTIONS=-O1 $(call efforts,sample) $(launcher)
	cmake --build --preset release --target tests_release
	ctest --test-dir build/release --output-on-failure -j 2 -L release
	cmake --preset asan $$(scripts/touched --cmake) $(launcher)
	cmake --build --preset asan --target tests_unit tests_backend
	ctest --test-dir build/asan --output-on-failure -j 2 -L 'unit|backend'

# The ranks of MPI: 1, 2, 3, 4 and 7 under Open MPI and MPICH, which it installs, and killed ranks. `make test` runs three ranks where an MPI
# is found.
test-mpi:
	scripts/install-dependencies test mpi
	scripts/ulfm-environment
	cmake --preset release -DBALLAST_BUILD_BENCHMARKS=OFF -DBALLAST_BUNDLE=small $(call efforts,sample) $(launcher)
	cmake --build --preset release --target tests_mpi
	ctest --test-dir build/release --output-on-failure -L mpi

# The tests of all algorithms on the processor, cross-compiled for 64-bit Arm with NEON and run under QEMU, which takes ten times as long:
# so with the effort smoke, unless EFFORT says otherwise.
space := $() $()
arm64_tests := unit_foundation unit_cpu_fft backend_fft backend_kmeans backend_qr
test-arm64:
	scripts/install-dependencies arm64
	scripts/arm64-root
	cmake --preset arm64 $(call efforts,$(or $(EFFORT),smoke)) $(launcher)
	cmake --build --preset arm64 --target $(arm64_tests)
	ctest --test-dir build/arm64 --output-on-failure --no-tests=error -j 2 -R '^($(subst $(space),|,$(arm64_tests)))$$'

# Every case of every list, in both builds, and the whole bundle of kernels: for a release, and before a change of the foundation is merged.
efforts = $(foreach algorithm,FFT FFT_CUDA KMEANS KMEANS_CUDA QR QR_CUDA,-DBALLAST_TEST_EFFORT_$(algorithm)=$(1))
test-full:
	scripts/install-dependencies test
	cmake --preset release -DBALLAST_BUILD_BENCHMARKS=OFF -DBALLAST_BUNDLE=full -DBALLAST_INJECTED_OPTIONS= $(call efforts,full) $(launcher)
	cmake --build --preset release
	ctest --test-dir build/release --output-on-failure -j 2
	cmake --preset asan -DBALLAST_SANITIZE_ALIGNMENT=ON $(call efforts,wide) $(launcher)
	cmake --build --preset asan --target tests_unit tests_backend
	ctest --test-dir build/asan --output-on-failure -j 2 -L 'unit|backend'

# The Python package as a wheel, and other libraries' tests over it: CONTRIBUTING.md.
test-python:
	scripts/install-dependencies test
	cmake --preset release -DBALLAST_BUILD_BENCHMARKS=OFF -DBALLAST_BUNDLE=small $(launcher)
	cmake --build --preset release --target ballast
	CMAKE_CXX_COMPILER_LAUNCHER=$(if $(launcher),ccache) scripts/test-python build/release

# After a change, in less than a minute: unit tests and a sample of one backend's. `make quick BACKEND=kmeans`; or fft, qr; or fft_cuda, which
# compiles hundreds of kernels for the emulator the first time.
BACKEND ?= fft
quick:
	test -f build/release/build.ninja || { scripts/install-dependencies test && \
	  cmake --preset release -DBALLAST_BUILD_BENCHMARKS=OFF -DBALLAST_BUNDLE=small $(call efforts,sample) $(launcher); }
	cmake --build --preset release --target tests_unit backend_$(BACKEND)
	ctest --test-dir build/release --output-on-failure -j 2 -R '^(unit_.*|layers)$$' & units=$$!; \
	  BALLAST_TEST_EFFORT=sample build/release/bin/backend_$(BACKEND) --gtest_brief=1 && wait $$units

# Strikes registers of the running library from outside, STRIKES times each of 100 problems; 50 took ten minutes with 1000. Fails if a strike
# was silent above the floor where a check covers. docs/design/strike.md.
STRIKES ?= 1000
strike:
	scripts/install-dependencies test
	cmake -S . -B build/strike -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-g1 -DBALLAST_BUILD_TOOLS=OFF -DBALLAST_BUILD_BENCHMARKS=OFF
	cmake --build build/strike --target ballast-strike
	build/strike/bin/ballast-strike --strikes $(STRIKES) --json build/strike/strikes.json

# Strikes messages between ranks, which are threads: FAULTS random faults, one for each call. Fails if one was silent.
# docs/design/distributed.md.
FAULTS ?= 100000
campaign:
	scripts/install-dependencies test
	cmake --preset release -DBALLAST_BUILD_BENCHMARKS=OFF -DBALLAST_BUNDLE=small $(call efforts,sample) $(launcher)
	cmake --build --preset release --target group_campaign
	build/release/bin/group_campaign --faults $(FAULTS) --jobs 2

# Writes docs/benchmarks/cpu.md and cpu-fft.md on this machine: 40 minutes or so, of which transforms take 30. Let nothing else run.
# `make bench PAGE=fft` writes the page of transforms alone.
bench:
	scripts/install-dependencies bench
	scripts/rivals-environment
	cmake -S . -B build/bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DBALLAST_BUILD_TESTS=OFF -DBALLAST_BUNDLE=small
	cmake --build build/bench
	scripts/benchmark-cpu $(if $(PAGE),--only $(PAGE)) build/bench/bin docs/benchmarks

format:
	scripts/install-dependencies lint
	git ls-files '*.c' '*.h' '*.cpp' '*.hpp' '*.cuh' | xargs clang-format -i

# The format of every file, and clang-tidy on every source: many minutes. `scripts/lint changed` takes what changed since the main branch.
lint:
	scripts/lint all

build:
	scripts/install-dependencies build
	cmake --preset release -DBALLAST_BUILD_TESTS=OFF -DBALLAST_BUILD_BENCHMARKS=OFF -DBALLAST_BUNDLE=full -DBALLAST_INJECTED_OPTIONS= $(launcher)
	cmake --build --preset release

clean:
	rm -rf build
