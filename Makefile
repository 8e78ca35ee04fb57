# The two commands of the README are `make demo` and `make test`; both set everything up themselves.
.PHONY: demo test bench format lint build clean

# What the demonstration needs, without tests and rivals.
demo:
	scripts/install-dependencies build
	cmake -S . -B build/demo -G Ninja -DCMAKE_BUILD_TYPE=Release -DBALLAST_BUILD_TESTS=OFF -DBALLAST_BUILD_BENCHMARKS=OFF
	cmake --build build/demo
	python3 examples/demo.py build/demo/bin/ballast

# Everything in release; then the unit and backend tests once more under AddressSanitizer and UndefinedBehaviorSanitizer.
test:
	scripts/install-dependencies test
	cmake --preset release -DBALLAST_BUILD_BENCHMARKS=OFF
	cmake --build --preset release
	ctest --test-dir build/release --output-on-failure -j 2
	cmake --preset asan
	cmake --build --preset asan
	ctest --test-dir build/asan --output-on-failure -j 2 -L 'unit|backend'

# Writes docs/benchmarks/cpu.md on this machine: some minutes. Let nothing else run.
bench:
	scripts/install-dependencies bench
	cmake -S . -B build/bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DBALLAST_BUILD_TESTS=OFF
	cmake --build build/bench
	scripts/benchmark-cpu build/bench/bin docs/benchmarks/cpu.md

format:
	scripts/install-dependencies lint
	git ls-files '*.cpp' '*.hpp' '*.cuh' | xargs clang-format -i

lint:
	scripts/install-dependencies build lint
	git ls-files '*.cpp' '*.hpp' '*.cuh' | xargs clang-format --dry-run --Werror
	cmake --preset release -DBALLAST_BUILD_BENCHMARKS=OFF >/dev/null
	git ls-files 'src/*.cpp' 'tools/*.cpp' | xargs clang-tidy --quiet -p build/release

build:
	scripts/install-dependencies build
	cmake --preset release -DBALLAST_BUILD_TESTS=OFF -DBALLAST_BUILD_BENCHMARKS=OFF
	cmake --build --preset release

clean:
	rm -rf build
