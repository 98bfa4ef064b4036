{{ config(materialized='table') }}
-- depends_on: {{ ref('stay_factors') }}
SELECT term, coefficient, std_error, verdict
FROM dp_linear_regression('{{ ref("adults") }}', target := 'days', features := release('stay factors'), epsilon := 1.0,
                          delta := 1e-7, release := 'stay model')
