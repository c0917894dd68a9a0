#!/bin/sh
set -eu
orders=0
units=0
most=0
largest=""
while IFS=, read -r id item count status; do
    [ "$status" = "paid" ] || continue
    orders=$((orders + 1))
    units=$((units + count))
    if [ "$count" -gt "$most" ]; then
        most=$count
        largest=$id
    fi
done < /app/orders.csv
printf 'orders=%s\nunits=%s\nlargest=%s\n' "$orders" "$units" "$largest" > /app/report.txt
