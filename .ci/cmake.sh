# Sourced by CI's scripts that build the C programs, in $root. find_cmake sets cmake and generator; CMake 3.26 or later is
# needed: where the system's is older, PyPI's goes into a virtual environment.

find_cmake() {
    cmake=${CMAKE:-cmake}
    if ! "$cmake" -E capabilities >/dev/null 2>&1 ||
        [ "$(printf '3.26\n%s\n' "$("$cmake" --version | sed -n 's/^cmake version //p')" | sort -V | head -n 1)" != 3.26 ]; then
        local venv=$root/.cache/cmake
        if [ ! -x "$venv/bin/ninja" ]; then
            python3 -m venv "$venv"
            "$venv/bin/pip" install --quiet --disable-pip-version-check 'cmake>=3.26' ninja
        fi
        cmake=$venv/bin/cmake
        PATH=$venv/bin:$PATH
    fi
    generator=
    ! command -v ninja >/dev/null || generator='-G Ninja'
}

# compile FOLDER TARGETS SOURCE [OPTION...]: configures SOURCE and builds TARGETS of it, a list in one word, in FOLDER. Says
# how long that took; what the compiler said, only where it fails.
compile() {
    local folder=$1 targets=$2 from=$3 began=$SECONDS
    shift 3
    mkdir -p "$folder"
    # shellcheck disable=SC2086 # lists
    if ! { "$cmake" -S "$from" -B "$folder" $generator "$@" && "$cmake" --build "$folder" --parallel --target $targets; } \
        >"$folder/build.log" 2>&1; then
        cat "$folder/build.log"
        return 1
    fi
    printf '%6d s  %s compiled\n' $((SECONDS - began)) "$(basename "$folder")"
}
