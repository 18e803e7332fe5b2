#!/bin/bash
# Every header of the C ABI compiles alone, without a warning, as C11, C++11, C++17 and C++20 with each compiler there is.
set -u
cd "$1/plugin-api/include" || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
bad=0 tried=0
check() { # compiler, language, standard, header
  printf '#include "%s"\n' "$4" >"$dir/t.$2"
  "$1" -x "$([ "$2" = c ] && echo c || echo c++)" -std="$3" -fsyntax-only -Wall -Wextra -Wpedantic -Wpadded -Werror -I. "$dir/t.$2" 2>"$dir/err" && return
  echo "$4 with $1 -std=$3:"; head -5 "$dir/err"; bad=1
}
shopt -s nullglob
for header in tutti/plugin/*.h ; do
  for cc in gcc clang-14; do
    command -v "$cc" >/dev/null || continue
    tried=$((tried + 1))
    check "$cc" c c11 "$header"
    for std in c++11 c++17 c++20; do check "$cc" cc "$std" "$header"; done
  done
done
[ "$tried" -gt 0 ] || { echo "no compiler was tried"; exit 1; }
exit $bad
