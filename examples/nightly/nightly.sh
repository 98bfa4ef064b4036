#!/bin/sh
# Release last night's numbers into FOLDER; the second run of a day costs nothing.
# usage: nightly.sh DATABASE FOLDER [DAY]
set -eu
database=$1 folder=$2 day=${3:-$(date -u +%F)}
exec dpsql run "$(dirname "$0")/job.sql" --db "$database" --strict -p "day=$day" -p epsilon=0.1 \
  -o "$folder/wards-$day.parquet" --receipt "$folder/receipt-$day.json" --log-format json >/dev/null
