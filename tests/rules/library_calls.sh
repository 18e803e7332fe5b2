#!/bin/bash
# libtutti's own objects neither end the process nor write to the program's streams, nor read the environment with raised rights.
set -u
cd "$1" || exit 2
bad=0
hits=$(grep -rnwE '(abort|exit|_exit|quick_exit|printf|vprintf|puts|putchar|perror|cout|cerr|clog|fprintf)' core --include='*.cc' --include='*.h' |
       grep -v '^core/tools/' | grep -vE '^[^:]+:[0-9]+:\s*(//|\*)' | sed -E 's,//.*,,' | sed -E 's/"([^"\\]|\\.)*"/""/g' |
       grep -E '(std::(cout|cerr|clog|abort|exit|terminate|quick_exit)|(:[0-9]+:|[;{})]|else|return)\s*(::)?(abort|exit|_exit|quick_exit|printf|vprintf|puts|putchar|perror|fprintf)\s*\()')
[ -n "$hits" ] && { echo "calls that a library must not make:"; echo "$hits"; bad=1; }
# A process with raised rights must not follow its user's variables: secure_getenv gives nothing there.
hits=$(grep -rnE '(^|[^_A-Za-z])getenv[[:space:]]*\(' core --include='*.cc' --include='*.h' | grep -v '^core/tools/')
[ -n "$hits" ] && { echo "getenv, where secure_getenv is meant:"; echo "$hits"; bad=1; }
for lib in "$2"/lib/libtutti_*.a; do
  [ -e "$lib" ] || continue
  case $(basename "$lib") in libtutti_tools.a | libtutti_doctor.a | *conformance* | *check* | *test*) continue ;; esac
  undefined=$("${NM:-nm}" -u "$lib" 2>/dev/null | awk '{print $NF}' | grep -xE 'abort|exit|_exit|quick_exit|printf|vprintf|puts|putchar|perror|__printf_chk|__fprintf_chk|_ZSt4cout|_ZSt4cerr|_ZSt4clog' | sort -u | tr '\n' ' ')
  [ -n "$undefined" ] && { echo "$(basename "$lib") calls $undefined"; bad=1; }
done
exit $bad
