#!/bin/sh
# Two dimensions: which values are right, and whether the form is exactly the one that was asked for.
report=/app/report.txt
right=0
wrong=""

check() {
    if [ -f "$report" ] && grep -qxF "$1=$2" "$report"; then
        right=$((right + 1))
    else
        wrong="${wrong:+$wrong, }$1"
    fi
}

check orders 5
check units 71
check largest K-105

case $right in
    3) correctness=1 ;;
    2) correctness=0.67 ;;
    1) correctness=0.33 ;;
    *) correctness=0 ;;
esac

format=0
if [ -f "$report" ] && [ "$(sed 's/=.*//' "$report" | tr '\n' ' ')" = "orders units largest " ]; then
    format=1
fi

reward=0
if [ "$right" -eq 3 ] && [ "$format" -eq 1 ]; then
    reward=1
fi

echo "{\"reward\": $reward, \"correctness\": $correctness, \"format\": $format}" > /logs/verifier/reward.json
details="\"values_right\": \"$right of 3\", \"wrong\": \"$wrong\""
if [ "$reward" -eq 0 ]; then
    code=NO_REPORT
    [ -f "$report" ] && code=WRONG_REPORT
    details="\"failure_code\": \"$code\", $details"
fi
echo "{$details}" > /logs/verifier/reward-details.json
