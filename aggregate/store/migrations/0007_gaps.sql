-- Rows that were taken and never stored: which windows of which producer they were of,
-- how many, and why. rows and observations are 0, and the producer too, where the
-- record that held them was beyond reading. A gap that is written again replaces
-- itself.
CREATE TABLE IF NOT EXISTS {{.Database}}.gaps
(
    producer UInt64,
    incarnation UInt64,
    epoch UInt64,
    resolution_ns UInt64,
    window_from DateTime64(9, 'UTC') COMMENT 'start of the first window',
    window_to DateTime64(9, 'UTC') COMMENT 'end of the last window',
    rows UInt64,
    observations UInt64,
    reason LowCardinality(String) COMMENT 'full: made room in the outbox; refused: by the server; disk: the outbox could not be written; damaged, missing: found so in the outbox',
    id UInt64 COMMENT 'what was lost',
    at DateTime64(3, 'UTC') COMMENT 'when it was given up'
)
ENGINE = ReplacingMergeTree(at)
ORDER BY (producer, incarnation, epoch, resolution_ns, window_from, window_to, reason, id)
TTL toDateTime(at) + INTERVAL 400 DAY
COMMENT 'rows that were taken and never stored';
{{range .Grains}}
-- A batch that is sent again with its token, since the answer to it was lost, costs
-- the server nothing within this many inserts. Rows are identities without it.
ALTER TABLE {{.Database}}.partials_{{.Suffix}} MODIFY SETTING non_replicated_deduplication_window = 10000;
{{end}}
