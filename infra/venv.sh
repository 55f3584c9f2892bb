#!/usr/bin/env bash
# Make the virtual environment of the Makefile, with uv in it: infra/venv.sh FOLDER [PYTHON]
#
# It takes PYTHON, or else the first Python on the PATH, lowest version first, whose version
# pyproject.toml allows and that can make environments (Debian keeps that part in a package of its own,
# python3-venv). Where there is none, uv finds one elsewhere or fetches it: the uv on the PATH, or one
# that another Python installs into build/uv. An environment that is good already stays as it is.
set -euo pipefail
shopt -s inherit_errexit

folder=$1 wanted=${2:-}
uv_release=$(grep '^uv==' requirements.lock)
requires=$(sed -n 's/^requires-python = "\(.*\)"$/\1/p' pyproject.toml)
IFS=. read -r _ lowest _ end <<< "${requires/,</.}" # >=3.11,<3.14 gives 11 and 14
needed="Python 3.$lowest to 3.$((end - 1))"
PATH=${PATH#"$PWD/$folder/bin:"} # the Makefile puts it there, but this looks for what the machine has

stop() {
  echo "error: $*" >&2
  exit 2
}

version() { # of this Python; fails if it does not run, as a shim of pyenv may
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null
}

is_supported() {
  local found
  found=$(version "$1") && [[ $found == 3.* ]] && ((${found#3.} >= lowest && ${found#3.} < end))
}

makes_environments() {
  "$1" -c 'import ensurepip, venv' 2> /dev/null
}

is_good() { # also an environment whose making stopped half-way is not
  is_supported "$folder/bin/python" \
    && { [[ -x $folder/bin/uv ]] || "$folder/bin/python" -m pip --version > /dev/null 2>&1; }
}

check_wanted() {
  version "$wanted" > /dev/null || stop "PYTHON=$wanted does not run; $needed is needed"
  is_supported "$wanted" || stop "PYTHON=$wanted is Python $(version "$wanted"); $needed is needed"
  makes_environments "$wanted" || stop "PYTHON=$wanted has no ensurepip and so makes no virtual" \
    "environments; on Debian and Ubuntu: apt install python$(version "$wanted")-venv"
}

find_python() {
  local name
  for name in $(seq -f 'python3.%g' "$lowest" "$((end - 1))") python3 python; do
    if is_supported "$name" && makes_environments "$name"; then
      command -v "$name"
      return
    fi
  done
}

find_uv() {
  local name
  command -v uv && return
  for name in python3 python; do
    if makes_environments "$name"; then
      "$name" -m venv --clear build/uv
      install_uv build/uv
      echo build/uv/bin/uv
      return
    fi
  done
}

install_uv() {
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check "$uv_release"
}

make_with_uv() {
  local uv here=none advice="Install $needed"
  version python3 > /dev/null && here="$(command -v python3) is Python $(version python3)"
  if is_supported python3; then
    here+=" without ensurepip"
    advice="Install ensurepip (on Debian and Ubuntu: apt install python3-venv)"
  fi
  advice+=", or name yours: make PYTHON=/path/to/python3.$lowest"
  uv=$(find_uv)
  [[ -n $uv ]] || stop "$needed is needed; found: $here. $advice. Or install uv, which fetches one"
  echo "== $needed is needed; found: $here; uv provides one"
  "$uv" venv --quiet --clear --python "$requires" "$folder" || stop "uv found none. $advice"
  "$uv" pip install --quiet --python "$folder/bin/python" "$uv_release"
}

if ! is_good; then
  if [[ -n $wanted ]]; then check_wanted; else wanted=$(find_python); fi
  if [[ -n $wanted ]]; then
    echo "== Python $(version "$wanted"): $wanted"
    "$wanted" -m venv --clear "$folder"
  else
    make_with_uv
  fi
fi
[[ -x $folder/bin/uv ]] || install_uv "$folder"
