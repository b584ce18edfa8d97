# The wheels' compiler: clang of the PyPI package ziglang (wheels/requirements.txt pins it), with the target's C library.
# -DFLEXNN_ZIG=.../ziglang/zig, or zig on the PATH; -DFLEXNN_ZIG_TARGET=aarch64-linux-gnu.2.17, x86_64-linux-musl, ...
set(CMAKE_SYSTEM_NAME Linux)
string(REGEX MATCH "^[a-z0-9_]+" CMAKE_SYSTEM_PROCESSOR "${FLEXNN_ZIG_TARGET}")
find_program(FLEXNN_ZIG zig REQUIRED)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FLEXNN_ZIG FLEXNN_ZIG_TARGET)
set(CMAKE_C_COMPILER "${FLEXNN_ZIG}" cc -target "${FLEXNN_ZIG_TARGET}")
set(CMAKE_C_ARCHIVE_CREATE "\"${FLEXNN_ZIG}\" ar qc <TARGET> <OBJECTS>")
set(CMAKE_C_ARCHIVE_APPEND "\"${FLEXNN_ZIG}\" ar q <TARGET> <OBJECTS>")
set(CMAKE_C_ARCHIVE_FINISH "\"${FLEXNN_ZIG}\" ranlib <TARGET>")

if(FLEXNN_ZIG_TARGET MATCHES "musl")
  # patchelf leaves the old section headers in the file; those of debug sections tell the length of the source's path.
  set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s")
  # Zig's stub of musl is called libc.so; distributions with musl, and auditwheel, know it by this name.
  find_program(FLEXNN_PATCHELF patchelf REQUIRED)
  list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FLEXNN_PATCHELF)
  set(CMAKE_C_CREATE_SHARED_MODULE
      "<CMAKE_C_COMPILER> <CMAKE_SHARED_LIBRARY_C_FLAGS> <LANGUAGE_COMPILE_FLAGS> <LINK_FLAGS> <CMAKE_SHARED_LIBRARY_CREATE_C_FLAGS> -o <TARGET> <OBJECTS> <LINK_LIBRARIES>"
      "\"${FLEXNN_PATCHELF}\" --replace-needed libc.so libc.musl-${CMAKE_SYSTEM_PROCESSOR}.so.1 <TARGET>")
endif()
