#!/bin/sh
# Every check must hold; the lines that were right must have survived.
file=/app/server.conf

setting_is() {
    [ "$(grep -c "^$1 *=" "$file")" -eq 1 ] && grep -q "^$1 *= *$2 *\$" "$file"
}

check() {
    [ -f "$file" ] || return 1
    setting_is port 8080 || return 1
    setting_is debug off || return 1
    setting_is log_level info || return 1
    while IFS= read -r line; do
        grep -qxF -- "$line" "$file" || return 1
    done < /tests/kept.txt
}

if check; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
