umask 077
echo "vmio-there is $(uname -s) $(uname -m)"
t=
for d in /dev/shm "${XDG_RUNTIME_DIR:-}" /run "${TMPDIR:-/tmp}" "${HOME:-}"; do
  case "$d" in /*) ;; *) continue ;; esac
  t=$(mktemp -d "$d/vmio.XXXXXXXXXX" 2>/dev/null) || { t=; continue; }
  printf "#!/bin/sh\n" > "$t/x" && chmod 700 "$t/x" && "$t/x" 2>/dev/null && rm "$t/x" && break
  rm -rf "$t"
  t=
done
echo "vmio-there at $t"
[ -n "$t" ] || exit 1
