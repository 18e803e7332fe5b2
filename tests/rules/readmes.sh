#!/bin/bash
# Every folder with sources says in a README.md what it is for.
set -u
cd "$1" || exit 2
bad=0
for dir in core/* plugins/* tests/* tests/unit/* plugin-api plugin-api/* docs/examples docs/examples/*; do
  [ -d "$dir" ] || continue
  case $dir in core/include | plugin-api/include | plugin-api/include/*) continue ;; esac
  find "$dir" -maxdepth 1 -type f \( -name '*.cc' -o -name '*.c' -o -name '*.h' -o -name '*.hpp' -o -name '*.py' -o -name '*.sh' \) | grep -q . || continue
  [ -s "$dir/README.md" ] || { echo "$dir has no README.md"; bad=1; }
done
exit $bad
