-- dp_predict: Predict for each row from a released model: a number, or the probability of a classifier's positive
-- class.
-- Guarantee: Costs nothing: it computes from what was already released, so it reveals nothing more.
-- More: docs/functions/dp_predict.md
CREATE OR REPLACE TEMP MACRO dp_predict(model, x) AS
  system.main.dpsql_predict(system.main.dpsql_model(model, NULL::VARCHAR), x),
(model, x, dataset) AS
  system.main.dpsql_predict(system.main.dpsql_model(model, dataset::VARCHAR), x);

-- dp_predict_class: Predict the likelier class of each row from a released classifier.
-- Guarantee: Costs nothing: it computes from what was already released, so it reveals nothing more.
-- More: docs/functions/dp_predict_class.md
CREATE OR REPLACE TEMP MACRO dp_predict_class(model, x) AS
  system.main.dpsql_predict_class(system.main.dpsql_model(model, NULL::VARCHAR), x),
(model, x, dataset) AS
  system.main.dpsql_predict_class(system.main.dpsql_model(model, dataset::VARCHAR), x);

-- dp_predictions: Return the rows of a source with their predictions, by a formula that DuckDB runs: the fastest way to
-- predict.
-- Guarantee: Costs nothing: it computes from what was already released, so it reveals nothing more.
-- More: docs/functions/dp_predictions.md
CREATE OR REPLACE TEMP MACRO dp_predictions(model, source) AS TABLE (
  SELECT * FROM system.main.query(system.main.dpsql_predictions(model, NULL::VARCHAR, source))),
(model, source, dataset) AS TABLE (
  SELECT * FROM system.main.query(system.main.dpsql_predictions(model, dataset::VARCHAR, source)));

-- dp_precision_recall: Read precision and recall off a released ROC curve, at no cost.
-- Guarantee: Costs nothing: it computes from what was already released, so it reveals nothing more.
-- More: docs/functions/dp_precision_recall.md
CREATE OR REPLACE TEMP MACRO dp_precision_recall(release, dataset := NULL) AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_precision_recall(release, dataset::VARCHAR)) AS entry);

-- dp_calibration: Read off a released ROC curve how many rows of each range of scores are positive, at no cost.
-- Guarantee: Costs nothing: it computes from what was already released, so it reveals nothing more.
-- More: docs/functions/dp_calibration.md
CREATE OR REPLACE TEMP MACRO dp_calibration(release, dataset := NULL) AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_calibration(release, dataset::VARCHAR)) AS entry);

-- dp_histogram_quantile: Read quantiles off a released histogram, at no cost.
-- Guarantee: Costs nothing: it computes from what was already released, so it reveals nothing more.
-- More: docs/functions/dp_histogram_quantile.md
CREATE OR REPLACE TEMP MACRO dp_histogram_quantile(release, quantiles := 0.5, dataset := NULL) AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_histogram_quantile(release, quantiles, dataset::VARCHAR)) AS entry);

-- dp_synthetic_rows: Return rows of a released synthetic table, with the source's names and types, at no cost.
-- Guarantee: Costs nothing: it computes from what was already released, so it reveals nothing more.
-- More: docs/functions/dp_synthetic_rows.md
CREATE OR REPLACE TEMP MACRO dp_synthetic_rows(release, n := NULL, seed := NULL, dataset := NULL) AS TABLE
  SELECT * FROM system.main.query(dpsql_said(system.main.dpsql_synthetic(release, n, seed, dataset::VARCHAR)));

-- dp_models: List the released models, with JSON to export.
-- Guarantee: Costs nothing: it computes from what was already released, so it reveals nothing more.
-- More: docs/functions/dp_models.md
CREATE OR REPLACE TEMP MACRO dp_models() AS TABLE (
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_models()) AS entry)
),
(model) AS TABLE (
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_models()) AS entry)
  WHERE system.main.lower(entry.model) = system.main.lower(model)
);

-- release: Stand for the features that an earlier release selected: features := release('name').
-- Guarantee: The features were released, so naming them costs nothing; the call that uses them has its own guarantee.
-- More: docs/functions/release.md
CREATE OR REPLACE TEMP MACRO release(name) AS system.main.struct_pack(release := name);
