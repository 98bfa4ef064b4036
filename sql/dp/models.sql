-- dp_predict(model, row) → DOUBLE: one prediction per row, of a classifier the probability of its second class.
-- Costs nothing: it reads a released model.
-- model    the release's name, or its number in the ledger
-- row      a row (dp_predict('m', t) FROM t), a struct with a field per feature, a vector, or a list of the names of
--          the features that are present: SELECT doc, dp_predict('m', list(token)) FROM words GROUP BY doc
-- nulls    NULL in a feature gives NULL; where presence counts, it is absence
CREATE OR REPLACE TEMP MACRO dp_predict(model, x, dataset := NULL) AS
  system.main.dpsql_predict(system.main.dpsql_model(model, dataset::VARCHAR), x);

-- dp_predict_class(model, row) → VARCHAR: the likelier class of each row, of a classifier.
CREATE OR REPLACE TEMP MACRO dp_predict_class(model, x, dataset := NULL) AS
  system.main.dpsql_predict_class(system.main.dpsql_model(model, dataset::VARCHAR), x);

-- dp_predictions(model, source) → TABLE: the columns of the source, and prediction; of a classifier probability, too.
-- Costs nothing: it reads a released model. A model of columns becomes a formula in SQL: the fastest way to predict.
-- model    the release's name, or its number in the ledger
-- source   a table, view, file or registered frame with the columns that the model was fitted to; of a model of long
--          rows there is one row per row id
-- nulls    NULL in a feature gives NULL; where presence counts, it is absence
CREATE OR REPLACE TEMP MACRO dp_predictions(model, source, dataset := NULL) AS TABLE
  SELECT * FROM system.main.query(system.main.dpsql_predictions(model, dataset::VARCHAR, source));

-- dp_precision_recall(release) → TABLE(threshold DOUBLE, precision DOUBLE, recall DOUBLE)
-- Another view of a released ROC curve, named by its release or its number in the ledger. Costs nothing.
CREATE OR REPLACE TEMP MACRO dp_precision_recall(release, dataset := NULL) AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_precision_recall(release, dataset::VARCHAR)) AS entry);

-- dp_calibration(release) → TABLE(lower DOUBLE, upper DOUBLE, mean_score DOUBLE, positive_rate DOUBLE, rows DOUBLE)
-- Another view of a released ROC curve: how many rows of each bin of scores are positive. Costs nothing.
CREATE OR REPLACE TEMP MACRO dp_calibration(release, dataset := NULL) AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_calibration(release, dataset::VARCHAR)) AS entry);

-- dp_histogram_quantile(release, quantiles) → TABLE(keys VARCHAR[], quantile DOUBLE, value DOUBLE)
-- Quantiles that a released histogram tells, of each of its groups. Costs nothing.
CREATE OR REPLACE TEMP MACRO dp_histogram_quantile(release, quantiles := 0.5, dataset := NULL) AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_histogram_quantile(release, quantiles, dataset::VARCHAR)) AS entry);

-- dp_models() → TABLE: one row per model in the ledger; json reads like scikit-learn's attributes.
CREATE OR REPLACE TEMP MACRO dp_models() AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_models()) AS entry);

-- release(name): stands for the features that an earlier release chose, features := release('name').
CREATE OR REPLACE TEMP MACRO release(name) AS system.main.struct_pack(release := name);
