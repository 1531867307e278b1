#!/bin/bash
# Builds the three images that Overbook runs in Docker out of this machine's
# own binaries, for machines that reach no image registry:
#
#   postgres:17   wiremock/wiremock:3.13.2   redis:7
#
# They answer to the same entry points, arguments and variables as the
# published images, as far as Overbook uses them. An image that is there is
# left alone; --force builds it anew. Needs PostgreSQL, Redis, Java and the
# WireMock jar here (overbook doctor --fix), and a Docker daemon.
set -euo pipefail

die() { echo "docker-local-images: $*" >&2; exit 1; }

force=${1:-}
[ -z "$force" ] || [ "$force" = --force ] || die "the only option is --force"
docker version >/dev/null 2>&1 || die "no Docker daemon answers; scripts/dockerd-local.sh start"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wanted() { [ -n "$force" ] || ! docker image inspect "$1" >/dev/null 2>&1; }

# put ROOT FILE...: copies files and directories to the same places below ROOT,
# links as what they lead to.
put() {
	local root=$1 file
	shift
	for file in "$@"; do
		[ -e "$file" ] || die "no $file here"
		(cd / && cp -a -L --parents ".$file" "$root/")
	done
}

# libraries ROOT: copies what the programs and libraries in ROOT are linked to.
libraries() {
	local root=$1 lib
	{ find "$root" -type f \( -perm -u+x -o -name '*.so*' \) -exec ldd {} + 2>/dev/null || true; } |
		grep -oE '(=> )?/[^ ]+ \(0x' | grep -oE '/[^ ]+' | sort -u |
		while read -r lib; do
			if [ -e "$lib" ] && [ ! -e "$root$lib" ]; then put "$root" "$lib"; fi
		done
}

# base ROOT: a shell, the tools of the entry points, users.
base() {
	local root=$1 tool
	mkdir -p "$root/etc" "$root/tmp" "$root/root"
	chmod 1777 "$root/tmp"
	put "$root" /bin/sh
	for tool in cat chown chmod id ls mkdir sed sleep awk setpriv; do
		put "$root" "$(command -v "$tool")"
	done
	printf 'root:x:0:0:root:/root:/bin/sh\npostgres:x:999:999:postgres:/var/lib/postgresql:/bin/sh\n' >"$root/etc/passwd"
	printf 'root:x:0:\npostgres:x:999:\n' >"$root/etc/group"
}

# entry ROOT: reads the entry point from standard input.
entry() {
	mkdir -p "$1/usr/local/bin"
	cat >"$1/usr/local/bin/docker-entrypoint.sh"
	chmod 755 "$1/usr/local/bin/docker-entrypoint.sh"
}

# import ROOT NAME CHANGE...
import() {
	local root=$1 name=$2 changes=() change
	shift 2
	for change in "$@"; do changes+=(-c "$change"); done
	libraries "$root"
	tar -C "$root" -c . | docker import "${changes[@]}" -c 'ENTRYPOINT ["docker-entrypoint.sh"]' - "$name" >/dev/null
	echo "built $name ($(du -sm "$root" | cut -f1) MB)"
}

postgres() {
	local root=$work/postgres bin share
	bin=${OVERBOOK_PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)}
	[ -x "$bin/initdb" ] || die "no PostgreSQL server binaries here; overbook doctor --fix"
	share=$("$bin/pg_config" --sharedir)
	base "$root"
	put "$root" "$(dirname "$bin")" "$share" /usr/share/zoneinfo
	entry "$root" <<-'END'
		#!/bin/sh
		set -eu
		[ "${1:-}" = postgres ] || exec "$@"
		if [ "$(id -u)" = 0 ]; then
			mkdir -p "$PGDATA" /var/run/postgresql
			chown postgres:postgres "$PGDATA" /var/run/postgresql
			chmod 700 "$PGDATA"
			exec setpriv --reuid=postgres --regid=postgres --clear-groups "$0" "$@"
		fi
		if [ ! -s "$PGDATA/PG_VERSION" ]; then
			# shellcheck disable=SC2086
			initdb -D "$PGDATA" -U postgres -A trust ${POSTGRES_INITDB_ARGS:-}
			echo "host all all all ${POSTGRES_HOST_AUTH_METHOD:-trust}" >>"$PGDATA/pg_hba.conf"
		fi
		exec "$@" -c listen_addresses='*'
	END
	import "$root" "$1" "ENV PATH=$bin:/usr/local/bin:/usr/bin:/bin" 'ENV PGDATA=/var/lib/postgresql/data' \
		'CMD ["postgres"]' 'EXPOSE 5432' 'VOLUME /var/lib/postgresql/data'
}

wiremock() {
	local root=$work/wiremock java home cache jar
	java=$(command -v "${OVERBOOK_JAVA:-java}") || die "no Java here; overbook doctor --fix"
	home=$(dirname "$(dirname "$(readlink -f "$java")")")
	cache=${OVERBOOK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/overbook}
	jar=${OVERBOOK_WIREMOCK_JAR:-$cache/wiremock-standalone-3.13.2.jar}
	[ -f "$jar" ] || die "no WireMock jar at $jar; overbook doctor --fix"
	base "$root"
	mkdir -p "$root/opt/java" "$root/var/wiremock/lib" "$root/home/wiremock"
	tar -C "$home" -c --exclude=./jmods --exclude=src.zip --exclude=./man -h . | tar -x -C "$root/opt/java"
	cp "$jar" "$root/var/wiremock/lib/wiremock-standalone.jar"
	# What Java opens by itself at run time, beside what it is linked to.
	ldconfig -p | awk '/lib(z|stdc\+\+|gcc_s|nss_files|nss_dns)\.so/ {print $NF}' | while read -r lib; do put "$root" "$lib"; done
	entry "$root" <<-'END'
		#!/bin/sh
		set -eu
		if [ -z "${1:-}" ] || [ "${1#-}" != "$1" ]; then
			[ -n "${1:-}" ] || set --
			cd /home/wiremock
			# shellcheck disable=SC2086
			exec java ${JAVA_OPTS:-} -cp '/var/wiremock/lib/*' wiremock.Run "$@"
		fi
		exec "$@"
	END
	import "$root" "$1" 'ENV PATH=/opt/java/bin:/usr/local/bin:/usr/bin:/bin' 'EXPOSE 8080' 'WORKDIR /home/wiremock'
}

redis() {
	local root=$work/redis server
	server=$(command -v "${OVERBOOK_REDIS_BIN:-redis-server}") || die "no redis-server here; overbook doctor --fix"
	base "$root"
	mkdir -p "$root/usr/local/bin" "$root/data"
	cp -L "$server" "$root/usr/local/bin/redis-server"
	entry "$root" <<-'END'
		#!/bin/sh
		set -eu
		cd /data
		exec "$@" --protected-mode no
	END
	import "$root" "$1" 'ENV PATH=/usr/local/bin:/usr/bin:/bin' 'CMD ["redis-server"]' 'EXPOSE 6379'
}

for pair in "postgres ${OVERBOOK_PG_IMAGE:-postgres:17}" "wiremock ${OVERBOOK_WIREMOCK_IMAGE:-wiremock/wiremock:3.13.2}" "redis ${OVERBOOK_REDIS_IMAGE:-redis:7}"; do
	read -r build name <<<"$pair"
	if wanted "$name"; then "$build" "$name"; else echo "there already: $name"; fi
done
