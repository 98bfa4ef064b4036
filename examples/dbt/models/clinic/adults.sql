-- A view is traced to the tables that it reads, so calls on it are charged to patients.
{{ config(materialized='view') }}
SELECT ward, age, dose, pulse, days FROM {{ ref('patients') }} WHERE age >= 18
