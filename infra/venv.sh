#!/usr/bin/env bash
# Make the virtual environment of the Makefile, with uv in it: infra/venv.sh FOLDER [PYTHON]
#
# PYTHON is an interpreter, or a version such as 3.12. Without it, the newest Python is taken whose
# version pyproject.toml allows and that can make environments (Debian keeps that part in a package of
# its own, python3-venv): on the PATH, or among pyenv's. Where there is none, uv finds one elsewhere or
# fetches it: the uv on the PATH, or one that another Python installs into build/uv. An environment
# that is good already stays as it is.
set -euo pipefail
shopt -s inherit_errexit

folder=$1 wanted=${2:-}
uv_release=$(grep '^uv==' requirements.lock)
requires=$(sed -n 's/^requires-python = "\(.*\)"$/\1/p' pyproject.toml)
IFS=. read -r _ lowest _ end <<< "${requires/,</.}" # >=3.12,<3.14 gives 12 and 14
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

# The first argument is a version such as 3.12, or empty for the newest that is supported.
find_python() {
  local minor name
  for minor in $(seq "$((end - 1))" -1 "$lowest"); do
    [[ -z $1 || $1 == "3.$minor" ]] || continue
    for name in "python3.$minor" python3 python $(pyenv_pythons "3.$minor"); do
      if [[ $(version "$name") == "3.$minor" ]] && makes_environments "$name"; then
        command -v "$name"
        return
      fi
    done
  done
}

pyenv_pythons() { # those of this version, the newest first
  local folder=${PYENV_ROOT:-${HOME:-}/.pyenv}/versions
  compgen -G "$folder/$1.*/bin/python$1" | sort -rV || true
}

check_wanted() {
  version "$wanted" > /dev/null || stop "PYTHON=$wanted does not run; $needed is needed"
  is_supported "$wanted" || stop "PYTHON=$wanted is Python $(version "$wanted"); $needed is needed"
  makes_environments "$wanted" || stop "PYTHON=$wanted has no ensurepip and so makes no virtual" \
    "environments; on Debian and Ubuntu: apt install python$(version "$wanted")-venv"
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
  "$uv" venv --quiet --clear --python "${1:-$requires}" "$folder" || stop "uv found none. $advice"
  "$uv" pip install --quiet --python "$folder/bin/python" "$uv_release"
}

if ! is_good; then
  only=
  if [[ $wanted =~ ^3\.[0-9]+$ ]]; then
    only=$wanted wanted=
    ((${only#3.} >= lowest && ${only#3.} < end)) || stop "PYTHON=$only; $needed is needed"
    needed="Python $only"
  fi
  if [[ -n $wanted ]]; then check_wanted; else wanted=$(find_python "$only"); fi
  if [[ -n $wanted ]]; then
    echo "== Python $(version "$wanted"): $wanted"
    "$wanted" -m venv --clear "$folder"
  else
    make_with_uv "$only"
  fi
fi
[[ -x $folder/bin/uv ]] || install_uv "$folder"
