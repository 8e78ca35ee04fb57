"""Makes a folder by which a wheel is linked for older distributions than the one that it is built on: manylinux_2_28.

Usage: older_runtime.py FOLDER      (the ziglang package, g++, ar and nm must be there)
FOLDER/lib     what the linker sees of the C library: the symbols that glibc 2.28 has, which the ziglang package knows, and an empty body for each;
               and of the C++ library: those of this machine's libstdc++.so.6 that GCC 8 had. Nothing of it comes into the wheel.
FOLDER/libolder.a            what is newer and is linked into the wheel: shims.c and text.cpp beside this file.
FOLDER/fmt-config.cmake      fmt, whose compiled part is in libolder.a
FOLDER/toolchain.cmake       a toolchain file of CMake. Symbols that neither library had then come from libstdc++.a, as with Red Hat's toolsets: so
                             one C++ runtime serves the process, and exceptions pass between it and other extensions.
"""

import os
import pathlib
import re
import subprocess
import sys

GLIBC = "2.28"
NEWEST = {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}  # of the policy manylinux_2_28
HERE = pathlib.Path(__file__).parent


def run(*command, **more):
    return subprocess.run([str(each) for each in command], check=True, **more)


def told(*command):
    return run(*command, stdout=subprocess.PIPE, text=True).stdout


def c_library(folder):
    """The C library's stubs, which zig makes when it links, and the first object of a program that old ones can start."""
    cache = folder / "zig"
    source = folder / "program.c"
    source.write_text("#include <math.h>\n#include <stdio.h>\nint main(int n, char** a) { return printf(a[0], hypot(n, n)); }\n")
    around = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
    run(sys.executable, "-m", "ziglang", "cc", "-target", f"x86_64-linux-gnu.{GLIBC}", "-fPIE", "-pie", source, "-o", folder / "program", "-lm", "-ldl",
        "-lpthread", env=around)
    for name in ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "libld.so.2", "Scrt1.o", "libc_nonshared.a"):
        found = sorted(cache.rglob(name))
        if not found:
            sys.exit(f"older_runtime.py: expected that zig makes {name} in {cache}, got none")
        (folder / "lib" / name).write_bytes(found[-1].read_bytes())


def cpp_library(folder):
    """A library that has the symbols of libstdc++.so.6 up to NEWEST, with sizes, and no code."""
    of = told("g++", "-print-file-name=libstdc++.so.6").strip()
    kinds = {}
    for line in told("readelf", "-W", "--dyn-syms", of).splitlines():
        seen = re.match(r"\s*\d+: [0-9a-f]+\s+(\w+)\s+(FUNC|OBJECT|TLS|NOTYPE)\s+(GLOBAL|WEAK|UNIQUE)\s+DEFAULT\s+(\w+) (\S+?)(@@?)(\w+)_([\d.]+)$", line)
        if seen is None or seen[4] == "UND" or seen[7] not in NEWEST:
            continue
        version = tuple(map(int, seen[8].split(".")))
        if version <= NEWEST[seen[7]]:
            kinds.setdefault(f"{seen[7]}_{seen[8]}", []).append((seen[5], seen[2], int(seen[1], 0), seen[6]))
    text, script = [], []
    sections = {"FUNC": ".text", "OBJECT": ".data", "NOTYPE": ".data", "TLS": '.section .tdata,"awT",@progbits'}
    types = {"FUNC": "function", "OBJECT": "object", "NOTYPE": "notype", "TLS": "tls_object"}
    number = 0
    for node, symbols in kinds.items():
        script.append(f"{node} {{ }};")
        for name, kind, size, default in symbols:
            number += 1
            text += [sections[kind], ".balign 16", f".globl stub{number}", f".type stub{number},@{types[kind]}", f"stub{number}:",
                     f".zero {max(size, 1) if kind != 'FUNC' else 1}", f".size stub{number},{size}", f".symver stub{number},{name}{default}{node}"]
    if number < 3000:
        sys.exit(f"older_runtime.py: expected thousands of symbols in {of}, got {number}")
    (folder / "stdcpp.s").write_text("\n".join(text) + '\n.section .note.GNU-stack,"",@progbits\n')
    (folder / "stdcpp.map").write_text("\n".join(script) + "\nLOCAL { local: *; };\n")
    run("g++", "-shared", "-nostdlib", "-Wl,-soname,libstdc++.so.6", f"-Wl,--version-script={folder / 'stdcpp.map'}", folder / "stdcpp.s", "-o",
        folder / "lib" / "libstdc++.so.6")


def shims(folder):
    objects = []
    for source in ("shims.c", "text.cpp"):
        objects.append(folder / f"{source}.o")
        options = ["-std=c++20", "-O3", "-DNDEBUG"] if source.endswith("cpp") else ["-O2"]
        run("g++" if source.endswith("cpp") else "gcc", *options, "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-c", HERE / source, "-o", objects[-1])
    (folder / "libolder.a").unlink(missing_ok=True)
    run("ar", "rcs", folder / "libolder.a", *objects)


def toolchain(folder):
    lib, gcc = folder / "lib", lambda name: told("g++", f"-print-file-name={name}").strip()
    cpp = lib / "libstdc++.so.6"
    after = [lib / name for name in ("libm.so.6", "libpthread.so.0", "libdl.so.2", "libc.so.6", "libld.so.2")]
    libraries = [folder / "libolder.a", cpp, gcc("libstdc++.a"), folder / "libolder.a", cpp, gcc("libgcc_s.so.1"), "-lgcc", *after,
                 lib / "libc_nonshared.a"]
    libraries = " ".join(map(str, libraries))
    start = " ".join([str(lib / "Scrt1.o"), gcc("crti.o"), gcc("crtbeginS.o")])
    end = " ".join([gcc("crtendS.o"), gcc("crtn.o")])
    hidden = "-Wl,--exclude-libs,ALL -Wl,--as-needed"
    (folder / "toolchain.cmake").write_text(f"""# Written by python/wheel/older_runtime.py.
set(CMAKE_C_COMPILER gcc)
set(CMAKE_CXX_COMPILER g++)
set(fmt_DIR {folder})
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-nodefaultlibs -Wl,-z,defs {hidden}")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-nodefaultlibs {hidden}")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-nostdlib -pie -Wl,--allow-shlib-undefined {hidden}")
foreach(language C CXX)
  set(CMAKE_${{language}}_STANDARD_LIBRARIES_INIT "{libraries}")
  set(CMAKE_${{language}}_LINK_EXECUTABLE "<CMAKE_${{language}}_COMPILER> <FLAGS> <CMAKE_${{language}}_LINK_FLAGS> <LINK_FLAGS> {start} <OBJECTS> \
-o <TARGET> <LINK_LIBRARIES> {libraries} {end}")
endforeach()
""")


def fmt(folder):
    (folder / "fmt-config.cmake").write_text("""# Written by python/wheel/older_runtime.py.
if(NOT TARGET fmt::fmt)
  add_library(fmt::fmt INTERFACE IMPORTED)
  set_target_properties(fmt::fmt PROPERTIES INTERFACE_COMPILE_DEFINITIONS FMT_SHARED)
endif()
""")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]).resolve()
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    c_library(folder)
    cpp_library(folder)
    shims(folder)
    fmt(folder)
    toolchain(folder)
    print(folder / "toolchain.cmake")


if __name__ == "__main__":
    main()
