# Sourced by CI's scripts: what they need of Debian's packages, installed at once (needs apt-get, and root or sudo).
#   wants NAME PACKAGE...   the packages are wanted where there is neither a command nor a file NAME; PACKAGE?: where the
#                           system has such a package
#   packages                installs what is wanted; silent, unless it fails

wanted=

wants() {
    local name=$1
    shift
    [ -e "$name" ] || command -v "$name" >/dev/null || wanted="$wanted $*"
}

wants_of_aarch64() {
    wants aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    wants qemu-aarch64-static qemu-user-static
    wants /usr/include/simde/arm/neon.h libsimde-dev
}

wants_of_tests() {
    wants aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    wants llvm-mca-19 llvm-19 # for tests/kernels/test_mca.py
    wants spin spin           # for tests/engine/test_protocol.py
    wants chromium chromium   # shows reports of plans
}

wants_of_fuzz() {
    wants clang clang 'libclang-rt-dev?' # newer releases have clang's libraries in a package of their own
}

packages() {
    local log sudo= package list=
    [ -n "$wanted" ] || return 0
    [ "$(id -u)" = 0 ] || sudo=sudo
    log=$(mktemp)
    $sudo apt-get update -q >"$log" 2>&1 || cat "$log"
    for package in $wanted; do
        case $package in
        *\?) ! apt-cache show "${package%?}" >/dev/null 2>&1 || list="$list ${package%?}" ;;
        *) list="$list $package" ;;
        esac
    done
    # shellcheck disable=SC2086 # a list of packages
    if ! $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $list >"$log" 2>&1; then
        cat "$log"
        return 1
    fi
    rm "$log"
    wanted=
}
