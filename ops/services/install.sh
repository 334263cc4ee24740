#!/usr/bin/env bash
# Installs what the tests need to start real services (`make services`). Safe to repeat.
#
# With a Docker daemon Kafka and Redis run in containers, so only the rest is installed, and a
# package that cannot be installed is a warning. Without one, everything runs as local processes.
set -euo pipefail
cd "$(dirname "$0")/../.."

pom=ops/services/kafka/pom.xml
libs=.services/kafka/libs

say() { printf 'services: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

docker_answers() { has docker && timeout 10 docker info </dev/null >/dev/null 2>&1; }

# Prints the Debian packages whose commands are missing.
missing_packages() {
    has redis-server || has valkey-server || echo redis-server
    has kcat || echo kcat
    has prometheus && has promtool || echo prometheus
    if [ "$1" = local ]; then
        has java || echo default-jre-headless
        has mvn || echo maven
    fi
}

# Runs a command as root; without a terminal sudo may not ask for a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif [ -t 0 ]; then sudo "$@"
    else sudo -n "$@"
    fi
}

apt_install() {
    has apt-get || { say "this is not a Debian-like system; install by hand what these packages hold: $*"; return 1; }
    [ "$(id -u)" = 0 ] || has sudo || { say "neither root nor sudo; have an administrator run: apt-get install $*"; return 1; }
    say "installing $*"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
    as_root "${apt[@]}" update >/dev/null \
        && as_root "${apt[@]}" install --no-install-recommends "$@" </dev/null >/dev/null \
        || { say "apt-get could not install $*; its message stands above"; return 1; }
    # The tests start servers of their own on free ports; these packages start one each at boot.
    for unit in redis-server prometheus; do
        case " $* " in *" $unit "*)
            if has systemctl && systemctl is-active --quiet "$unit"; then
                as_root systemctl disable --now --quiet "$unit"
            fi ;;
        esac
    done
}

install_kafka() {
    local major stamp
    major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ] || die "Kafka needs Java 17 or later; \`java -version\` says ${major:-nothing}."
    stamp=$(sha256sum "$pom" | cut -d' ' -f1)
    [ "$(cat "$libs/.stamp" 2>/dev/null)" = "$stamp" ] && return
    say "fetching the Kafka broker into $libs"
    rm -rf "$libs"
    mkdir -p "$libs"
    mvn --quiet --batch-mode -Dstyle.color=never --file "$pom" dependency:copy-dependencies \
        -DoutputDirectory="$PWD/$libs" </dev/null >&2 || die "Maven could not fetch Kafka; its message stands above"
    echo "$stamp" >"$libs/.stamp"
}

mode=local
if docker_answers; then
    mode=docker
    say "a Docker daemon answers; Kafka and Redis will run in containers"
fi
mapfile -t packages < <(missing_packages "$mode")
if [ ${#packages[@]} -gt 0 ] && ! apt_install "${packages[@]}"; then
    [ "$mode" = docker ] || exit 1
    say "going on; tests of the Redis Cluster and of Prometheus need ${packages[*]}"
fi
[ "$mode" = docker ] || install_kafka
say "ready"
