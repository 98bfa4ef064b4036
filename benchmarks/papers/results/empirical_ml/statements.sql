-- sms_spam
SELECT count(*) FROM dp_score_filter('rows', target := 'label', features := 'token', row_id := 'doc_id', names := getvariable('words'), score := 'information_gain', k := 100, epsilon := 0.5, delta := 5e-7, method := 'gaussian', release := 'words');  -- 100
SELECT count(*) FROM dp_naive_bayes('rows', target := 'label', features := release('words'), epsilon := 0.5, delta := 5e-7, release := 'model');  -- 101
CREATE TABLE predicted AS SELECT doc_id, any_value(label) AS label, dp_predict('model', list(token)) AS p, dp_predict_class('model', list(token)) AS class FROM test GROUP BY doc_id;  -- 558
SELECT round(avg((class = label::VARCHAR)::INT), 3) FROM predicted;  -- 0.923
SELECT count(*) FROM dp_roc('predicted', label := 'label', score := 'p', epsilon := 1);  -- 10
SELECT round(auc, 3) FROM dp_auc('predicted', label := 'label', score := 'p', epsilon := 1, method := 'smooth');  -- 0.847
-- tweets_sentiment140_7304
SELECT count(*) FROM dp_score_filter('rows', target := 'label', features := 'token', row_id := 'doc_id', names := getvariable('words'), score := 'information_gain', k := 100, epsilon := 0.5, delta := 5e-7, method := 'gaussian', release := 'words');  -- 100
SELECT count(*) FROM dp_naive_bayes('rows', target := 'label', features := release('words'), epsilon := 0.5, delta := 5e-7, release := 'model');  -- 101
CREATE TABLE predicted AS SELECT doc_id, any_value(label) AS label, dp_predict('model', list(token)) AS p, dp_predict_class('model', list(token)) AS class FROM test GROUP BY doc_id;  -- 731
SELECT round(avg((class = label::VARCHAR)::INT), 3) FROM predicted;  -- 0.532
SELECT count(*) FROM dp_roc('predicted', label := 'label', score := 'p', epsilon := 1);  -- 10
SELECT round(auc, 3) FROM dp_auc('predicted', label := 'label', score := 'p', epsilon := 1, method := 'smooth');  -- 0.52
