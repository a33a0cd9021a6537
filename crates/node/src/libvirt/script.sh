t=PLACE
: > "$t/run" || exit 1
trap "for f in \"\$t\"/out/*; do : > \"\$f\"; done; rm -rf \"\$t\"" EXIT
a=$t/vmio-agent
[ "$(wc -c < "$a")" -eq SIZE ] || exit 1
chmod 700 "$a"
export PATH="$t:$PATH"
"$a" --stdio --spool "$t/out" --state "$t/state" --silence SILENCE < "$t/in" > /dev/null 2>&1
"$a" --stdio --state "$t/state" < /dev/null > /dev/null 2>&1
