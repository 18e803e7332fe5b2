#!/bin/bash
# A copy of PROGRAM that takes root's rights when another user starts it reads nothing of that user's environment.
# Exit 77: not possible here.
set -u
program=$1
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
command -v setpriv >/dev/null || { echo "skipped: no setpriv"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cp "$program" "$folder/probe" && chmod 4755 "$folder/probe" || exit 1
user=65534
as() { # mode of the file
  chmod $1 "$folder/probe"
  (cd "$folder" && env -i TUTTI_TIMEOUT=7s TUTTI_PLUGIN_PATH=/tmp/x TUTTI_RANK=0 TUTTI_NRANKS=1 TUTTI_COMM_ID=127.0.0.1:1 TUTTI_DEBUG=info \
    timeout 20 setpriv --reuid=$user --regid=$user --clear-groups ./probe 2>log.$1)
}
plain=$(as 0755)
[ "$plain" = "0 7s /tmp/x TUTTI_RANK" ] || [[ $plain == "0 7s /tmp/x "* && $plain != *none ]] ||
  { echo "without rights it should see all of the environment: $plain"; cat "$folder/log.0755"; exit 1; }
raised=$(as 4755)
[[ $raised == 0* ]] && { echo "skipped: rights are not raised here (no setuid in $folder)"; exit 77; }
[ "$raised" = "1 10min  none" ] || { echo "with raised rights it sees: $raised"; exit 1; }
# Its log level is the default: the line is a warning where something was set.
grep -q "is ignored: the environment is not read: the process has more rights than who started it" "$folder/log.4755" ||
  { echo "no line says so:"; cat "$folder/log.4755"; exit 1; }
exit 0
