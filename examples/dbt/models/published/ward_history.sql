-- A release a day: the name holds the date, so a run that is repeated on the same day costs nothing.
{{ config(materialized='incremental', unique_key=['day', 'ward']) }}
{% set day = var('day', run_started_at.strftime('%Y-%m-%d')) %}
SELECT DATE '{{ day }}' AS day, ward, value AS patients, lower, upper
FROM dp_count('{{ ref("patients") }}', by := 'ward', epsilon := 0.1, release := 'wards on {{ day }}')
