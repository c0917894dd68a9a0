#!/bin/sh
# Runs the script on files of its own; one point for all, none for less.
work=$(mktemp -d)
script=/app/total.sh

prints() {
    [ "$("$script" "$1" 2> /dev/null)" = "$2" ]
}

check() {
    [ -x "$script" ] || return 1
    head -n 1 "$script" | grep -q '^#! */bin/sh' || return 1

    printf '12\n-5\n\n30\n# x\n5\n' > "$work/plain.txt"
    prints "$work/plain.txt" 42 || return 1

    printf '1\n2\n3\n' > "$work/with some spaces.txt"
    prints "$work/with some spaces.txt" 6 || return 1

    : > "$work/empty.txt"
    prints "$work/empty.txt" 0 || return 1

    printf '#\n#1000\n-7\n' > "$work/negative.txt"
    prints "$work/negative.txt" -7 || return 1

    output=$("$script" "$work/none.txt" 2> /dev/null)
    [ $? -eq 1 ] && [ -z "$output" ]
}

if check; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
rm -rf "$work"
