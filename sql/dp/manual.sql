-- dp_functions: List every function with its topic, signature, guarantee and an example.
-- Guarantee: None needed: it reads no table and charges nothing.
-- More: docs/functions/dp_functions.md
CREATE OR REPLACE TEMP MACRO dp_functions() AS TABLE
  SELECT system.main.unnest(entry) FROM (SELECT system.main.unnest(system.main.dpsql_functions()) AS entry);

-- dp_help: Explain a function, or list those that a word leads to: by name, synonym, topic, summary or argument.
-- Guarantee: None needed: it reads no table and charges nothing.
-- More: docs/functions/dp_help.md
CREATE OR REPLACE TEMP MACRO dp_help(word := NULL) AS TABLE
  SELECT system.main.unnest(system.main.dpsql_help(word)) AS help;
