# Sourced by .ci/aarch64 and .ci/sanitize, which build the C programs: find_cmake FOLDER sets cmake and generator. CMake
# 3.26 or later is needed; where the system's is older, PyPI's goes into a virtual environment in FOLDER.

find_cmake() {
    cmake=${CMAKE:-cmake}
    if ! "$cmake" -E capabilities >/dev/null 2>&1 ||
        [ "$(printf '3.26\n%s\n' "$("$cmake" --version | sed -n 's/^cmake version //p')" | sort -V | head -n 1)" != 3.26 ]; then
        python3 -m venv "$1"
        "$1/bin/pip" install -q 'cmake>=3.26' ninja
        cmake=$1/bin/cmake
        PATH=$1/bin:$PATH
    fi
    generator=
    ! command -v ninja >/dev/null || generator='-G Ninja'
}
