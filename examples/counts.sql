-- Run with: dpsql run examples/counts.sql
-- A table of 20,000 visits by 6,000 patients to five hospitals.
CREATE TABLE visits AS
  SELECT
    (hash(i) % 6000)::INTEGER AS patient,
    ['North', 'South', 'East', 'West', 'Hill'][1 + (hash(i, 'h') % 100)::INTEGER // 20] AS hospital,
    (hash(i, 's') % 2 = 0) AS urgent,
    1 + (hash(i, 'd') % 1000 / 60.0)::INTEGER AS days,
    'D' || (100 * random() * random())::INTEGER AS diagnosis
  FROM range(20000) AS r(i);

-- The owner protects patients, and states which hospitals there are: that is public.
SELECT dp_protect('visits', epsilon := 4.0, delta := 1e-5, privacy_unit := 'patient', max_rows_per_unit := 4,
                  keys := {'hospital': ['North', 'South', 'East', 'West', 'Hill']}, lower := {'days': 0}, upper := {'days': 30});

-- How noisy would it be, with patients in at most two hospitals?
SELECT * FROM dp_estimate('dp_avg', epsilon := 0.5, lower := 0, upper := 30, n_rows := 4000,
                          max_groups_per_unit := 2, max_rows_per_unit_group := 1);

-- Visits and days by hospital and urgency: ten groups, three aggregates, one charge. BOOLEAN columns need no keys.
SELECT * FROM dp_aggregate('visits', aggregates := ['count', 'avg', 'stddev'], target := 'days', by := ['hospital', 'urgent'],
                           epsilon := 1.0, max_groups_per_unit := 2, max_rows_per_unit_group := 1, release := 'stays');

-- Patients, not visits.
SELECT * FROM dp_count('visits', distinct_of := 'patient', by := 'hospital', epsilon := 0.5, max_groups_per_unit := 3);

-- Which diagnoses occur is private: those that many patients have are released, with their counts.
SELECT * FROM dp_count('visits', by := 'diagnosis', keys := 'private', epsilon := 1.0, delta := 1e-6,
                       max_groups_per_unit := 3, max_rows_per_unit_group := 1);

-- Total days per patient, as one number per patient: bounds are those of the total.
SELECT * FROM dp_avg('visits', target := 'days', unit_value := 'sum', lower := 0, upper := 60, epsilon := 0.5);

SELECT * FROM dp_budget();
SELECT * FROM dp_ledger();
