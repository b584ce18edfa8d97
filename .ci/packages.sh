# Sourced by CI's scripts: packages NAME... installs Debian's packages of these names (needs apt-get, and root or sudo).

packages() {
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -q
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}
