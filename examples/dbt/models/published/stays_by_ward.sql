{{ config(materialized='private', meta={'dpsql': {'epsilon': 0.4, 'upper': {'days': 60}}}) }}
SELECT ward, count(*) AS patients, avg(days) AS mean_days FROM {{ ref('adults') }} WHERE pulse < 100 GROUP BY ward
