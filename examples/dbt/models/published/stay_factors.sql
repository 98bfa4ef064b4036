{{ config(materialized='table') }}
SELECT rank, feature
FROM dp_kendall('{{ ref("adults") }}', target := 'days', features := ['age', 'dose', 'pulse'], k := 2, epsilon := 0.5,
                release := 'stay factors')
