# Sourced by ./demo and ./test: venv FOLDER makes a virtual environment there, or says what the machine lacks.

lacks() {
    echo "error: $1" >&2
    echo "  on Debian, Ubuntu and Raspberry Pi OS: sudo apt install $2" >&2
    exit 2
}

venv() {
    command -v python3 >/dev/null || lacks "python3 is missing" python3
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        lacks "Python 3.11 or newer is needed, this is $(python3 -V)" "python3.11 (or a newer release of the system)"
    case "$(uname -m)" in
    x86_64 | aarch64) ;;
    *) echo "error: $(uname -m) is not supported: a 64-bit Arm or x86 system is needed" >&2 && exit 2 ;;
    esac
    python3 -c 'import ensurepip, venv' 2>/dev/null || lacks "Python's venv module is missing" python3-venv
    command -v cc >/dev/null || lacks "there is no C compiler" "gcc libc6-dev"
    echo '#include <pthread.h>' | cc -x c -E -o /dev/null - 2>/dev/null || lacks "the C headers are missing" libc6-dev
    python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
        lacks "Python.h is missing" python3-dev
    [ -x "$1/bin/pip" ] || python3 -m venv "$1"
}
