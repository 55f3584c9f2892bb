#!/bin/sh
# Debian packages with which the tests of the team's stack run (docs/production.md): the engine and
# the base image of the containers, a Slurm of one node, PostgreSQL, and Prometheus. Without them these tests are
# skipped. Nothing is started by this script. Run it as root: sh infra/stack-packages.sh
set -eu
# The engine of the distribution also needs iptables and a runtime, which it only recommends.
packages="docker.io docker-compose debootstrap slurmctld slurmd slurm-client munge postgresql iptables prometheus"
apt-get update
# Packages start their services where nothing forbids it; the tests start their own.
policy=/usr/sbin/policy-rc.d
made=""
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  made=yes
fi
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages || failed=$?
[ -z "$made" ] || rm -f "$policy"
exit "${failed:-0}"
