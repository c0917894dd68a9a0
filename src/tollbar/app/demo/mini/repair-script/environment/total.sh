#!/bin/sh
# usage: total.sh FILE
file=$1
[ -r $file ] || echo "cannot read $file"
while read line; do
    case $line in
        "#") continue ;;
    esac
    total=$((total + line)
done < $file
echo "total: $total"
