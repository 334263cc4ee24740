# Functions that the scripts beside this file share; they set `program` to what messages begin with.

say() { printf '%s: %s\n' "$program" "$*" >&2; }
die() { say "$*"; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root; without a terminal sudo may not ask for a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif [ -t 0 ]; then sudo "$@"
    else sudo -n "$@"
    fi
}

# Installs Debian packages; where it cannot, it says what to do.
apt_install() {
    has apt-get || { say "this is not a Debian-like system; install by hand what these packages hold: $*"; return 1; }
    [ "$(id -u)" = 0 ] || has sudo || { say "neither root nor sudo; have an administrator run: apt-get install $*"; return 1; }
    say "installing $*"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
    as_root "${apt[@]}" update >/dev/null \
        && as_root "${apt[@]}" install --no-install-recommends "$@" >/dev/null \
        || { say "apt-get could not install $*; its message stands above"; return 1; }
}
