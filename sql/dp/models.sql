-- dp_predict(model, row) → DOUBLE: one prediction per row. Costs nothing: it reads a released model.
-- model    the release's name, or its number in the ledger
-- row      a row (dp_predict('m', t) FROM t), a struct with a field per feature, or a vector
-- nulls    NULL in a feature gives NULL
CREATE OR REPLACE TEMP MACRO dp_predict(model, x, dataset := NULL) AS
  system.main.dpsql_predict(system.main.dpsql_model(model, dataset::VARCHAR), x);

-- dp_models() → TABLE: one row per model in the ledger; json reads like scikit-learn's attributes.
CREATE OR REPLACE TEMP MACRO dp_models() AS TABLE
  SELECT entry.* FROM (SELECT unnest(system.main.dpsql_models()) AS entry);

-- release(name): stands for the features that an earlier release chose, features := release('name').
CREATE OR REPLACE TEMP MACRO release(name) AS {'release': name};
