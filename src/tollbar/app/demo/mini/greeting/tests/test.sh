#!/bin/sh
reward=0
expected="Welcome, Ada Lindgren! Your table is ready on Tuesday."
if [ -f /app/greeting.txt ] && [ "$(cat /app/greeting.txt)" = "$expected" ]; then
    reward=1
fi
echo "$reward" > /logs/verifier/reward.txt
