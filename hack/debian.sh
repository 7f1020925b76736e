# Sourced by the scripts beside it, after go.sh, that take programs or parts of images from the packages of Debian or
# Ubuntu. Packages are downloaded and unpacked, never installed: nothing of the system changes, and no right is needed.
# apt-get checks the archive's signature and the hashes, with the sources and keys of this machine.

# needs_debian: end with one line where there are no such packages.
needs_debian() {
  command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || die "apt-get and dpkg-deb are needed; this is no Debian"
}

# private_apt ARCHITECTURE STATUS ARGUMENT...: apt-get with lists and caches of our own, of another architecture, too.
# STATUS is the list of packages that count as installed: the system's, or an empty file.
private_apt() {
  local architecture=$1 status=$2 state=$cache/apt/$1
  shift 2
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
  apt-get -o "Dir::State::Lists=$state/lists" -o "Dir::State::status=$status" -o "Dir::Cache=$state/cache" \
    -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o APT::Sandbox::User=root \
    -o Acquire::Languages=none "$@"
}

# fresh_lists ARCHITECTURE: what the archive has, asked at most once in six hours.
fresh_lists() {
  local stamp=$cache/apt/$1/stamp
  if [ -z "$(find "$stamp" -mmin -360 2> /dev/null)" ]; then
    mkdir -p "$cache/apt/$1"
    private_apt "$1" /dev/null -qq update >&2 || die "apt-get cannot read the package lists for $1"
    touch "$stamp"
  fi
}

# download FOLDER PACKAGE...: the packages and those that they depend on and the system lacks.
download() {
  _install_into "$1" /var/lib/dpkg/status "${@:2}"
}

# download_with_dependencies FOLDER PACKAGE...: the packages and all that they depend on, as for an empty system.
download_with_dependencies() {
  _install_into "$1" /dev/null "${@:2}"
}

_install_into() {
  local folder=$1 status=$2 architecture
  shift 2
  architecture=$(dpkg --print-architecture)
  fresh_lists "$architecture"
  mkdir -p "$folder/partial"
  private_apt "$architecture" "$status" install --yes --no-install-recommends --download-only \
    -o "Dir::Cache::archives=$folder" -o Debug::NoLocking=1 "$@" > "$folder/log" 2>&1 ||
    { tail -n 5 "$folder/log" >&2; die "apt-get cannot download $*"; }
}

# download_exactly ARCHITECTURE FOLDER PACKAGE[=VERSION]...: these packages alone, also if the system has them.
download_exactly() {
  local architecture=$1 folder=$2
  shift 2
  fresh_lists "$architecture"
  mkdir -p "$folder"
  (cd "$folder" && private_apt "$architecture" /dev/null download "$@" > log 2>&1) ||
    { tail -n 5 "$folder/log" >&2; die "apt-get cannot download $*"; }
}

# unpack FOLDER TREE: all packages of a folder into a tree.
unpack() {
  local file
  mkdir -p "$2"
  for file in "$1"/*.deb; do dpkg-deb -x "$file" "$2"; done
}
