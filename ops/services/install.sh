#!/usr/bin/env bash
# Installs what the tests need to start real services (`make services`). Safe to repeat.
#
# With a Docker daemon most tests run Kafka and Redis in containers, so what cannot be installed is
# a warning. Without one, everything runs as local processes. The campaign of faults always does.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=services
. ops/services/common.sh

pom=ops/services/kafka/pom.xml
libs=.services/kafka/libs
toxiproxy=.services/toxiproxy
# Builds with the Go of Debian 12.
toxiproxy_module=github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0

docker_answers() { has docker && timeout 10 docker info </dev/null >/dev/null 2>&1; }

# Prints the Debian packages whose commands are missing.
missing_packages() {
    has redis-server || has valkey-server || echo redis-server
    has kcat || echo kcat
    has prometheus && has promtool || echo prometheus
    has java || echo default-jre-headless
    has mvn || echo maven
    # A disk that fails and a clock that can be set are small libraries that the tests compile
    # (tests/services/faulty_disk.c, tests/campaign/preloaded/clock.c).
    has cc || echo gcc libc6-dev
    [ -x "$toxiproxy/server" ] || has go || echo golang-go
    # The review page is tested in a browser, with texts in many scripts.
    has chromium || has google-chrome || echo chromium fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji
}

# The tests start servers of their own on free ports; these packages start one each at boot.
stop_new_servers() {
    [ -d /run/systemd/system ] || return 0
    for unit in redis-server prometheus; do
        case " $* " in *" $unit "*) as_root systemctl disable --now --quiet "$unit" ;; esac
    done
}

install_kafka() {
    local major stamp output
    major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ] || die "Kafka needs Java 17 or later, and java is ${major:-another}."
    stamp=$(cksum <"$pom")
    [ "$(cat "$libs/.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    say "fetching the Kafka broker into $libs"
    rm -rf "$libs"
    output=$(mvn --quiet --batch-mode --file "$pom" dependency:copy-dependencies \
        -DoutputDirectory="$PWD/$libs" </dev/null 2>&1) || die "Maven could not fetch Kafka: $output"
    echo "$stamp" >"$libs/.stamp"
}

install_toxiproxy() {
    local output
    [ ! -x "$toxiproxy/server" ] || return 0
    say "building Toxiproxy into $toxiproxy"
    mkdir -p "$toxiproxy"
    output=$(GOBIN=$PWD/$toxiproxy go install "$toxiproxy_module" </dev/null 2>&1) \
        || die "Toxiproxy could not be built with $(go version): $output"
}

mode=local
if docker_answers; then
    mode=docker
    say "a Docker daemon answers; Kafka and Redis will run in containers"
fi
packages=($(missing_packages))
if [ ${#packages[@]} -gt 0 ]; then
    if apt_install "${packages[@]}" </dev/null; then
        stop_new_servers "${packages[@]}"
    elif [ "$mode" = docker ]; then
        say "going on; tests that need ${packages[*]} will fail"
    else
        exit 1
    fi
fi
if [ "$mode" = local ]; then
    install_kafka
    install_toxiproxy
elif ! (install_kafka && install_toxiproxy); then
    say "going on; the campaign of faults will fail"
fi
say "ready"
