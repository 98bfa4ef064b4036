-- dp_split(id, key, test := 0.25) → BOOLEAN: whether a privacy unit is in the test part of a keyed split; NULL for no id.
-- All rows of a unit are on one side, and no other unit moves them, so a view of one side keeps the guarantee:
--   CREATE VIEW train AS FROM patients WHERE NOT dp_split(patient, 'a key');
--   CREATE VIEW test AS FROM patients WHERE dp_split(patient, 'a key');
-- id       the column of the privacy unit
-- key      any text; another key gives another split
-- test     share of the units in the test part, between 0 and 1
CREATE OR REPLACE TEMP MACRO dp_split(id, key, test := 0.25) AS
  CASE WHEN id IS NOT NULL THEN
    system.main.md5_number(system.main.concat(key::VARCHAR, '/', id::VARCHAR))::DOUBLE
      < system.main."*"(test::DOUBLE, 3.402823669209384634633746e38::DOUBLE)
  END;
