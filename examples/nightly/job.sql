-- What is released of the patients every night. The name of each release holds the day, so that the job can be run
-- again for the same day: what is in the ledger by then is returned from there, and costs nothing.
FROM dp_avg('patients', target := 'days', lower := 0, upper := 365, epsilon := $epsilon, release := 'days-' || $day);

FROM dp_count('patients', by := ['ward'], keys := ['A', 'B', 'C', 'D'], epsilon := $epsilon,
  release := 'wards-' || $day);
