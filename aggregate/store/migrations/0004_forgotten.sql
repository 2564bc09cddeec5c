-- Producers dismissed by csigscope query forget: collectors do not expect their rows until they
-- write again, after at.
CREATE TABLE IF NOT EXISTS {{.Database}}.forgotten
(
    producer UInt64,
    at DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY producer
TTL toDateTime(at) + INTERVAL 400 DAY
COMMENT 'producers that are no longer expected to write';
