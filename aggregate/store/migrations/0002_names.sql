-- What the numbers in partials stand for. The latest row of an id holds; rows stay for
-- good, since ids keep their meaning across configurations.
CREATE TABLE IF NOT EXISTS {{.Database}}.groups
(
    id UInt64,
    name String,
    level LowCardinality(String) COMMENT 'host, rack, pod, cluster, or a prefix length',
    parent String,
    ord UInt32 COMMENT 'position on the axes of a matrix',
    at DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY id;

-- set_id, device_id and stage_id are the locations that a location belongs to at the
-- levels 1, 2 and 3; itself where it does not fit into one.
CREATE TABLE IF NOT EXISTS {{.Database}}.locations
(
    id UInt64,
    name String,
    kind LowCardinality(String) COMMENT 'port, set, raw, unknown, overflow',
    device String,
    stage LowCardinality(String),
    orientation LowCardinality(String),
    capacity UInt64 COMMENT 'kbit/s, 0 when unknown or mixed',
    candidates Array(String) COMMENT 'ports the location may be, the first of candidate_count',
    candidate_count UInt32,
    set_id UInt64,
    device_id UInt64,
    stage_id UInt64,
    at DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY id;

CREATE TABLE IF NOT EXISTS {{.Database}}.epochs
(
    epoch UInt64 COMMENT 'hash of text',
    text String COMMENT 'configuration in canonical form' CODEC(ZSTD),
    at DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY epoch;

-- A run is one pass of a producer under one configuration. Each of its states is a row
-- of its own with the time when it was last reached: a run that was done once holds
-- all its rows, and stays done while it is repeated.
CREATE TABLE IF NOT EXISTS {{.Database}}.runs
(
    producer UInt64,
    incarnation UInt64,
    epoch UInt64,
    mode Enum8('replay' = 1, 'live' = 2),
    state Enum8('started' = 1, 'done' = 2),
    name String COMMENT 'file or tap',
    at DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY (producer, incarnation, epoch, mode, state);
