# Debian packages: sourced by ./start, ./check and bench/against-ceph.
# shellcheck shell=bash

# Says which packages are missing and installs them. need_packages WHY PACKAGE...
need_packages() {
  local why=$1 missing=() package
  shift
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    as_root=(sudo)
    if ! sudo -n true 2>/dev/null && ! { [ -t 0 ] && command -v sudo >/dev/null; }; then
      echo "Debian packages are missing $why, and only root can install them. Please run:" >&2
      echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
      return 4
    fi
  fi
  echo "Installing Debian packages $why: ${missing[*]}" >&2
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install --yes --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "Installing them failed; the whole log is $log." >&2
    return 4
  fi
  rm -f "$log"
}

# Unpacks the newest version of a package into a folder without installing it; of its files those
# that match the patterns. unpack_package FOLDER PACKAGE PATTERN...
unpack_package() {
  local folder=$1 package=$2 work
  shift 2
  work=$(mktemp -d)
  if ! { (cd "$work" && apt-get download "$package") &&
    dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$folder" --wildcards "$@"; } >"$work/log" 2>&1
  then
    tail -n 20 "$work/log" >&2
    echo "Debian's package $package could not be had or unpacked." >&2
    rm -rf "$work"
    return 4
  fi
  rm -rf "$work"
}

# Whether there is a Rust toolchain, and where it is if it is not in the PATH.
need_cargo() {
  command -v cargo >/dev/null || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
  command -v cargo >/dev/null && return 0
  echo "There is no Rust toolchain (no \`cargo\`). Install one as https://rustup.rs says." >&2
  return 4
}
