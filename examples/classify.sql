-- Run with: dpsql run examples/classify.sql
-- 6,000 messages, made up: 40 words of a public list, of which every tenth is more frequent in spam.
CREATE TABLE messages AS
  SELECT i AS message, CASE WHEN i % 4 = 0 THEN 'spam' ELSE 'ham' END AS kind, 'word' || w AS token
  FROM range(6000) AS m(i), range(40) AS v(w)
  WHERE random() < CASE WHEN i % 4 = 0 AND w % 10 = 0 THEN 0.5 ELSE 0.1 END;
CREATE TABLE training AS FROM messages WHERE message % 5 > 0;
CREATE TABLE held_out AS FROM messages WHERE message % 5 = 0;
SET VARIABLE lexicon = list_transform(range(40), lambda w: 'word' || w);

-- The owner grants budgets.
SELECT dp_protect('training', epsilon := 3.0, delta := 1e-5);
SELECT dp_protect('held_out', epsilon := 2.0, delta := 1e-5, privacy_unit := 'message', max_rows_per_unit := 1);

-- 1. Select the six words that tell most about the label. A message counts with eight words at most.
SELECT * FROM dp_score_filter('training', target := 'kind', target_levels := ['ham', 'spam'],
                              features := 'token', row_id := 'message', names := getvariable('lexicon'),
                              score := 'information_gain', k := 6, max_features_per_row := 8,
                              epsilon := 0.5, delta := 1e-6, release := 'words');

-- 2. Fit two classifiers to them.
SELECT * FROM dp_naive_bayes('training', target := 'kind', target_levels := ['ham', 'spam'],
                             features := release('words'), epsilon := 0.5, delta := 1e-6, release := 'bayes');
SELECT * FROM dp_logistic_regression('training', target := 'kind', target_levels := ['ham', 'spam'], row_norm := 2,
                                     features := release('words'), epsilon := 1, delta := 1e-6, lower := 0, upper := 1,
                                     release := 'logistic');

-- 3. Predict messages that the models have not seen, for nothing.
CREATE VIEW judged AS
  SELECT
    message, min(kind) AS kind, dp_predict('bayes', list(token)) AS bayes,
    dp_predict('logistic', list(token)) AS logistic, dp_predict_class('logistic', list(token)) AS class
  FROM held_out GROUP BY message;

-- 4. Evaluate: a ROC curve and what else its counts show, the areas, and a confusion matrix.
SELECT * FROM dp_roc('judged', label := 'kind', target_levels := ['ham', 'spam'], score := 'bayes', epsilon := 0.5,
                     release := 'roc');
SELECT * FROM dp_precision_recall('roc');
SELECT * FROM dp_calibration('roc');
SELECT * FROM dp_auc('judged', label := 'kind', target_levels := ['ham', 'spam'], score := 'logistic', epsilon := 0.5);
SELECT * FROM dp_confusion('judged', label := 'kind', target_levels := ['ham', 'spam'], score := 'logistic',
                           thresholds := [0.3, 0.5], epsilon := 0.5);
FROM dp_budget();
