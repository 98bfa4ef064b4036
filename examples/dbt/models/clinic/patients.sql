-- 6,000 patients, made up; the same in every run. As soon as the table is there it has a budget.
{{ config(
    materialized='table',
    post_hook="SELECT dp_protect('{{ this }}', epsilon := 3.0, delta := 1e-6,
                                 lower := 0, upper := {age: 120, dose: 50, pulse: 250}, target_lower := 0, target_upper := 60,
                                 keys := {'ward': ['A', 'B', 'C']})"
) }}
SELECT patient, ward, age, dose, pulse, round(2 + 0.1 * age + 0.4 * dose + chance, 1) AS days
FROM (
  SELECT
    i AS patient,
    ['A', 'B', 'C'][1 + (hash(i, 'ward') % 5 // 2)::INT] AS ward,
    18 + (hash(i, 'age') % 70)::INT AS age,
    (hash(i, 'dose') % 50)::INT AS dose,
    60 + (hash(i, 'pulse') % 60)::INT AS pulse,
    (hash(i, 'chance') % 10)::INT AS chance
  FROM range(6000) AS r(i)
)
