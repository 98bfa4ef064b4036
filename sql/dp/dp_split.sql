-- dp_split: Tell whether a privacy unit is in the test part of a keyed split, for views to fit on and to evaluate on.
-- Guarantee: None needed: it reads one row at a time. A release of a view of one part is charged to its table.
-- More: docs/functions/dp_split.md
CREATE OR REPLACE TEMP MACRO dp_split(id, key) AS
  CASE WHEN id IS NOT NULL THEN
    system.main.md5_number(system.main.concat(key::VARCHAR, '/', id::VARCHAR))::DOUBLE
      < system.main."*"(0.25::DOUBLE, 3.402823669209384634633746e38::DOUBLE)
  END,
-- A form for each number of arguments, because the catalog does not show defaults, and views that call this are read.
(id, key, test) AS
  CASE WHEN id IS NOT NULL THEN
    system.main.md5_number(system.main.concat(key::VARCHAR, '/', id::VARCHAR))::DOUBLE
      < system.main."*"(test::DOUBLE, 3.402823669209384634633746e38::DOUBLE)
  END;
