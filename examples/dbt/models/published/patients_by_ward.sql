{{ config(materialized='table') }}
SELECT ward, value AS patients, lower, upper, verdict
FROM dp_count('{{ ref("patients") }}', by := 'ward', epsilon := 0.5, release := 'patients by ward')
