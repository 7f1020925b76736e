#!/usr/bin/env bash
# Build the images that the tests in a real cluster run, on this machine, without an image registry.
#
#   hack/testimages.sh [NAME...]        build what is not there yet (default: all), print the archives
#   hack/testimages.sh --where NAME...  print where the archives go and build nothing
#
#   pause          the first process of every pod                                  1 MB
#   busybox        a shell and small commands                                      2 MB
#   python-torch   Python, torch without CUDA, numpy, a shell                    1.4 GB
#   openmpi        Open MPI 4, sshd and ssh, Python, mpi4py, numpy, a shell      200 MB
#
# openmpi is what MPIJob v2beta1 expects: root's sshd listens on port 22, and that of the user mpiuser (1000), started
# with `sshd -De -f /home/mpiuser/.sshd_config`, on 2222. For v1 it needs nothing but mpirun and orted.
#
# They are called gangline-test/NAME:1 and are made for the architecture of this machine. `ctr --namespace k8s.io images
# import FILE` gives one to a node. They are kept in $GANGLINE_CACHE (default: ~/.cache/gangline), with a hash of what
# they are made from in their names.
#
# Needs gcc (pause, python-torch), openssl (openmpi), apt-get, dpkg-deb and Python 3.11 with venv. No root.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
. "$here/go.sh"
. "$here/debian.sh"
all="pause busybox python-torch openmpi"
architecture=$(dpkg --print-architecture 2> /dev/null || echo amd64)

# folder_of NAME: where its archive goes.
folder_of() {
  printf '%s/testimages/%s-%s\n' "$cache" "$1" \
    "$(hash_of "${BASH_SOURCE[0]}" "$here"/images/*.py "$here/images/pause.c" "$here/torch_stubs.py" \
      "$root/requirements/debian.in" "$root/requirements/runtime.txt" "$root/requirements/frameworks/torch.txt")"
}

python_debs() { xargs < "$root/requirements/debian.in"; }

static_busybox() {
  download_exactly "$architecture" "$1/busybox-deb" busybox-static
  unpack "$1/busybox-deb" "$1/busybox-tree"
  cp "$1/busybox-tree/bin/busybox" "$1/busybox"
}

# inputs_of NAME FOLDER: bring what it is made from.
inputs_of() {
  case $1 in
    pause) gcc -Os -static -s -o "$2/pause" "$here/images/pause.c" ;;
    busybox) static_busybox "$2" ;;
    python-torch)
      static_busybox "$2"
      # shellcheck disable=SC2046
      download_exactly "$architecture" "$2/debs" $(python_debs)
      environment=$("$here/frameworks.sh" torch | sed -n 's/^torch //p')
      ln -s "$environment/lib/python3.11/site-packages" "$2/site"
      ;;
    openmpi)
      static_busybox "$2"
      # shellcheck disable=SC2046
      download_with_dependencies "$2/debs" $(python_debs) openmpi-bin openssh-server openssh-client python3-mpi4py
      # The tests' own: whoever has the image has the key. Real images are not made so.
      openssl genrsa -traditional -out "$2/host_key" 3072 2> /dev/null
      # Only numpy, of the pinned packages.
      sed -n "/^numpy==[0-9.]* ; python_full_version < '3.12'/,/# via/p" "$root/requirements/runtime.txt" > "$2/numpy.txt"
      "$python" -m venv "$2/venv"
      "$2/venv/bin/python" -m pip download --quiet --disable-pip-version-check --require-hashes --only-binary :all: --no-deps \
        --python-version 3.11 --dest "$2/wheels" -r "$2/numpy.txt" >&2
      ;;
    *) die "no test image $1; there are: $all" ;;
  esac
}

build() {
  local started=$SECONDS inputs
  needs_debian
  say "building $1 ..."
  mkdir -p "$cache/testimages"
  inputs=$(mktemp -d "$cache/testimages/$1.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$inputs'" EXIT
  inputs_of "$1" "$inputs"
  mkdir "$inputs/out"
  (cd "$root" && "$python" -m hack.images.testing "$1" "$inputs" "$inputs/out" >&2)
  rm -rf "$2"
  mv "$inputs/out" "$2"    # a rename: others see the whole archive or none
  rm -rf "$inputs"
  say "built $1 in $((SECONDS - started)) s"
}

where=
[ "${1:-}" != --where ] || { where=yes; shift; }
for name in ${*:-$all}; do
  case " $all " in *" $name "*) ;; *) die "no test image $name; there are: $all" ;; esac
  target=$(folder_of "$name")
  [ -n "$where" ] || [ -d "$target" ] || build "$name" "$target"
  printf '%s\n' "$target/gangline-test-$name-1-$architecture.tar"
done
