#!/usr/bin/env bash
# Build the gangline image on this machine, without a container engine and without an image registry.
#
#   hack/image.sh [--platforms amd64,arm64] [--name NAME:TAG] [--output FOLDER]
#
#   --platforms LIST   architectures in the image          (default: the one of this machine)
#   --name NAME:TAG    what it is called                   (default: gangline:VERSION)
#   --output FOLDER    where it goes                       (default: dist/image)
#   --tree FOLDER      write the root file system of one platform there instead, for the Containerfile
#   --locked           fail if Debian no longer has the pinned packages; without it today's are taken, with a warning
#   --lock             pin today's packages of Debian in requirements/debian-ARCH.txt, and build nothing
#   --help             print this
#
# It is made from the packages of Debian and the wheels that requirements/ pins by hash, and from agent/. The same commit
# gives the same digests. In the output folder are
#
#   oci/                              an OCI layout, with an index over all platforms
#   gangline-VERSION-ARCH.tar         an archive for each platform, as `docker save` writes it
#   gangline-VERSION-ARCH.cdx.json    its bill of materials (CycloneDX)
#   digests.txt                       references by digest, of the index and of each platform: what to sign and to deploy
#
# The paths of the archives are the last lines that are printed. To use one:
#
#   ctr --namespace k8s.io images import gangline-VERSION-ARCH.tar     a node with containerd
#   docker load --input gangline-VERSION-ARCH.tar                      also podman, nerdctl
#   skopeo copy --all oci:oci docker://REGISTRY/gangline:VERSION       into a registry
#
# A pod then says `image: gangline:VERSION`, with `imagePullPolicy: IfNotPresent` or `Never`.
#
#   GANGLINE_CACHE      where downloads are kept            (default: ~/.cache/gangline)
#   SOURCE_DATE_EPOCH   the time of all files               (default: that of the commit)
#   REVISION            the commit, in the labels           (default: that of this folder)
#
# Needs bash, git, Python 3.11 or newer with venv, apt-get and dpkg-deb; no root. Go comes from PyPI.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
. "$here/go.sh"
. "$here/debian.sh"

platforms=$(dpkg --print-architecture 2> /dev/null || echo amd64)
name=
output=$root/dist/image
tree=
locked=
lock=
while [ $# -gt 0 ]; do
  case $1 in
    --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"; exit ;;
    --locked | --lock) declare "${1#--}=yes"; shift ;;
    --platforms | --name | --output | --tree) [ $# -ge 2 ] || die "$1 needs a value"; declare "${1#--}=$2"; shift 2 ;;
    *) die "unknown argument $1; hack/image.sh --help lists them" ;;
  esac
done
case ,$platforms, in *[!amdr64,]*) die "--platforms $platforms: write amd64, arm64 or both, with a comma between" ;; esac
needs_debian

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/pyproject.toml")
name=${name:-gangline:$version}
# A folder without its history, as in a Containerfile's build, is told both.
revision=${REVISION:-}
epoch=${SOURCE_DATE_EPOCH:-}
if [ -z "$revision" ]; then
  revision=$(git -C "$root" rev-parse HEAD) || die "no commit here; set REVISION and SOURCE_DATE_EPOCH"
  [ -z "$(git -C "$root" status --porcelain -- src examples pyproject.toml requirements hack agent)" ] || revision=$revision-modified
fi
[ -n "$epoch" ] || epoch=$(git -C "$root" log -1 --format=%ct)

# tools: a Python with pip and the pinned build backend, kept.
tools() {
  local target=$cache/image-tools-$(hash_of "$root/requirements/build.txt")
  if [ ! -f "$target/complete" ]; then
    rm -rf "$target"
    "$python" -m venv "$target"
    "$target/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$root/requirements/build.txt" >&2
    touch "$target/complete"
  fi
  printf '%s\n' "$target/bin/python"
}

# wheels ARCHITECTURE FOLDER: the pinned packages for it.
wheels() {
  local machine=x86_64 platform tags=()
  [ "$1" = amd64 ] || machine=aarch64
  for platform in manylinux_2_28 manylinux_2_17 manylinux2014; do tags+=(--platform "${platform}_$machine"); done
  "$tools" -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: "${tags[@]}" \
    --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none --dest "$2" -r "$root/requirements/runtime.txt" >&2
}

# described FOLDER: its packages as they are pinned.
described() {
  local file
  for file in "$1"/*.deb; do
    printf '%s %s\n' "$(dpkg-deb --show --showformat '${Package}=${Version}' "$file")" "$(sha256sum < "$file" | cut -d ' ' -f 1)"
  done | LC_ALL=C sort
}

# debs ARCHITECTURE FOLDER: the root file system. Names only: what these depend on and Python does not need is left out.
debs() {
  local names pins=$root/requirements/debian-$1.txt
  mapfile -t names < "$root/requirements/debian.in"
  if [ -z "$lock" ]; then
    # shellcheck disable=SC2046
    if (download_exactly "$1" "$2" $(cut -d ' ' -f 1 "$pins")) 2> "$inputs/problem"; then
      [ "$(described "$2")" = "$(cat "$pins")" ] || die "packages for $1 do not have the hashes in requirements/debian-$1.txt"
      return
    fi
    [ -z "$locked" ] || { cat "$inputs/problem" >&2; die "Debian no longer has all packages of requirements/debian-$1.txt"; }
    say "Debian no longer has all packages of requirements/debian-$1.txt: taking today's, so the digest is another one"
    rm -rf "$2"
  fi
  download_exactly "$1" "$2" "${names[@]}"
}

# agent ARCHITECTURE FOLDER: the program that MPI launchers take from the image.
agent() {
  GANGLINE_GO=pinned "$here/agent.sh" "$2" "$1" >&2
  mv "$2/gangline-agent-$1" "$2/gangline-agent"
}

started=$SECONDS
tools=$(tools)
mkdir -p "$output"
output=$(cd "$output" && pwd)
inputs=$(mktemp -d "$cache/image.XXXXXX")
trap 'rm -rf "$inputs"' EXIT
if [ -n "$lock" ]; then
  for architecture in amd64 arm64; do
    rm -f "$cache/apt/$architecture/stamp"
    debs "$architecture" "$inputs/$architecture"
    described "$inputs/$architecture" > "$root/requirements/debian-$architecture.txt"
    say "requirements/debian-$architecture.txt"
  done
  exit
fi
for architecture in $(printf '%s\n' "${platforms//,/ }" "$(dpkg --print-architecture)" | tr ' ' '\n' | sort -u); do
  say "downloading packages for $architecture ..."
  debs "$architecture" "$inputs/$architecture/debs"
  wheels "$architecture" "$inputs/$architecture/wheels"
  agent "$architecture" "$inputs/$architecture/bin"
done
download_exactly "$(dpkg --print-architecture)" "$inputs/binutils-debs" binutils-x86-64-linux-gnu binutils-aarch64-linux-gnu \
  libbinutils libctf0 libctf-nobfd0 libjansson4 zlib1g
unpack "$inputs/binutils-debs" "$inputs/binutils"
say "building the wheel ..."
"$tools" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$inputs/own" "$root" >&2
say "writing the image ..."
cd "$root"
"$tools" -m hack.images.gangline "$inputs" "$output" --name "$name" --revision "$revision" --epoch "$epoch" \
  --platforms "$platforms" --agent-module agent/go.mod ${tree:+--tree "$tree"}
say "built $name in $((SECONDS - started)) s"
