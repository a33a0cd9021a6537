trap "rm -rf \"\$t\"" EXIT
a=$t/vmio-agent
head -c SIZE > "$a"
[ "$(wc -c < "$a")" -eq SIZE ] || exit 1
chmod 700 "$a"
export PATH="$t:$PATH"
"$a" --stdio --state "$t/state" --silence SILENCE
"$a" --stdio --state "$t/state" < /dev/null > /dev/null
