-- The tables. A later change is a further file with the next number: databases keep their
-- existing tables, and this file is not applied to them again.
--
-- Rows of partials, flows, taps and findings are identities. Their keys end in the producer's
-- (producer, incarnation, seq): a row that is written again replaces itself, and late data is a
-- further row with a later seq, which adds up. Readers use FINAL.
--
-- These rows expire by stored_at, the time of writing, and not by their window: a capture from
-- last year that is replayed today must not expire today. stored_at is not in the key; writing a
-- row again renews it.

-- Partial aggregates, one table per resolution: the observations of one producer in one
-- window of one cell, signal and location.
--
-- The key starts with the minute (the hour for 1 min rows), so that one signal of a short range
-- is read in one piece and rows of equal cells still lie side by side.
--
-- The server fills dist from two columns that are not stored: codes as packed
-- little-endian UInt16, counts as packed little-endian UInt64. Packing spares the client
-- one allocation for every bucket.
--
-- Codecs, measured by BenchmarkCodecs on an hour of noisy traffic, bytes per row:
--
--                     as below   T64, ZSTD(1)   ZSTD(1)   Delta, LZ4    LZ4   none
--   window_start           2.8            1.4       1.2          3.5    3.0      8
--   group, location ids    3.4            1.1       1.1          3.5    3.4     24
--   producer to seq        4.3            1.3       1.3          4.0    4.3     32
--   observations to max   11.8           11.6      13.9         22.4   21.2     48
--   untouched to heavy_sum 3.0            2.0       2.0          5.4    3.7     16
--   dist                   5.5            5.5       5.5         17.1   17.1     50
--   all                   32.2           24.0      26.5         59.2   56.1    182
--
-- T64 makes counts small, with LZ4 as with ZSTD. ZSTD would make ids smaller, and every read
-- slower, by up to two thirds; dist has it because few queries read it.
--
-- A batch that is sent again with its deduplication token, after its acknowledgement was lost,
-- costs the server nothing within 10,000 inserts. Rows are identities even without the token.
{{range .Tables}}
CREATE TABLE IF NOT EXISTS {{$.Database}}.partials_{{.Suffix}}
(
    window_start DateTime64(9, 'UTC') COMMENT 'start of the window' CODEC(Delta, LZ4),
{{- if .Fine}}
    resolution_ns UInt64 COMMENT 'length of the window',
{{- end}}
    signal UInt8 COMMENT '0 min_abw, 1 min_abw_ratio, 2 max_delay, 3 max_nqd, 16+T unknown type T, from 32 a type that a table defines: 32 + 64 * aggregation (min, max, sum, count) + 16 * unit (count, bit/s, ratio, ns) + T',
    source_kind UInt8 COMMENT '1 tag, 2 reflection: two measurements of one thing, never added up',
    encoding UInt8 COMMENT 'tag layout that the codes of dist belong to',
    src_group UInt64,
    dst_group UInt64,
    location UInt64 COMMENT '0 untouched or a sum over hops, 1 overflow',
    config_epoch UInt64 COMMENT 'configuration the row was made under',
    producer UInt64 COMMENT 'tap, or content of a capture file',
    incarnation UInt64 COMMENT 'one life of the producer',
    seq UInt64 COMMENT 'block of the producer',
    observations UInt64 CODEC(T64, LZ4),
    bytes UInt64 CODEC(T64, LZ4),
    measured UInt64 COMMENT 'observations with a value: not trimmed, and of a type that has a table' CODEC(T64, LZ4),
    sum UInt64 COMMENT 'of values: kbit/s, ppm, ns or counts' CODEC(T64, LZ4),
    min UInt64 COMMENT '0 when nothing has a value' CODEC(T64, LZ4),
    max UInt64 CODEC(T64, LZ4),
    untouched UInt64 CODEC(T64, LZ4),
    trimmed UInt64 COMMENT 'in observations and bytes, in nothing else' CODEC(T64, LZ4),
    heavy UInt64 CODEC(T64, LZ4),
    heavy_sum UInt64 CODEC(T64, LZ4),
    dist_codes String EPHEMERAL,
    dist_counts String EPHEMERAL,
    dist Map(UInt16, UInt64) DEFAULT mapFromArrays({{$.UnpackCodes}}, {{$.UnpackCounts}}) CODEC(ZSTD(1)),
    stored_at DateTime('UTC') DEFAULT now('UTC') CODEC(Delta, LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY {{.Partition}}
PRIMARY KEY ({{.KeyStart}}(window_start), signal, source_kind, src_group, dst_group, window_start)
ORDER BY ({{.KeyStart}}(window_start), signal, source_kind, src_group, dst_group, window_start, location, encoding, config_epoch, producer, incarnation, seq)
TTL stored_at + INTERVAL {{.Retention}}
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600, non_replicated_deduplication_window = 10000
COMMENT 'partial aggregates of {{.Windows}}';
{{end}}
-- The flows with the most heavy observations of each window, and the sum of all others in a row
-- without addresses: together they are exactly the window.
--
-- Codecs of this table and the next, measured by BenchmarkRecordCodecs, bytes per row; as with
-- partials, ZSTD is for columns that few queries read:
--
--                      as below   T64, ZSTD(1)   ZSTD(1)    LZ4   none
--   flows: times            2.8            1.1       3.4    4.4     12
--          addresses        1.6            1.6       1.6    4.6     37
--          location         0.4            2.0       0.4    1.2      8
--          other ids        3.5            1.2       1.2    3.5     40
--          counts          15.8           15.3      19.3   33.9     88
--          all             24.0           21.4      25.9   47.7    185
--   taps:  times           11.0            7.6      11.1   13.3     20
--          maps             6.5            6.5       6.5   10.3     79
--          ids              0.5            1.2       1.2    0.5     62
--          counts          18.0           20.0      23.4   38.1     88
--          all             36.1           35.4      42.3   62.3    249
CREATE TABLE IF NOT EXISTS {{.Database}}.flows
(
    resolution_ns UInt64 COMMENT 'length of the window',
    window_start DateTime64(9, 'UTC') COMMENT 'start of the window' CODEC(Delta, LZ4),
    signal UInt8 COMMENT 'as in partials',
    source_kind UInt8 COMMENT '1 tag, 2 reflection',
    src_group UInt64,
    dst_group UInt64,
    src IPv6 COMMENT 'measured source, :: for all other flows' CODEC(ZSTD(1)),
    dst IPv6 CODEC(ZSTD(1)),
    src_port UInt16 CODEC(ZSTD(1)),
    dst_port UInt16,
    proto UInt8,
    config_epoch UInt64,
    producer UInt64,
    incarnation UInt64,
    seq UInt64 COMMENT 'block of the producer',
    observations UInt64 CODEC(T64, LZ4),
    bytes UInt64 CODEC(T64, LZ4),
    measured UInt64 COMMENT 'observations with a value' CODEC(T64, LZ4),
    sum UInt64 COMMENT 'of values: kbit/s, ppm, ns or counts' CODEC(T64, LZ4),
    min UInt64 COMMENT '0 when nothing has a value' CODEC(T64, LZ4),
    max UInt64 CODEC(T64, LZ4),
    heavy UInt64 CODEC(T64, LZ4),
    heavy_sum UInt64 CODEC(T64, LZ4),
    location UInt64 COMMENT 'that most of the heavy observations name, 0 without any' CODEC(ZSTD(1)),
    location_heavy UInt64 COMMENT 'heavy observations that name it' CODEC(T64, LZ4),
    stored_at DateTime('UTC') DEFAULT now('UTC') CODEC(Delta, LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY (resolution_ns, if(resolution_ns < 60000000000, toYYYYMMDD(window_start), toYYYYMM(window_start)))
PRIMARY KEY (resolution_ns, toStartOfHour(window_start), signal, source_kind, src_group, dst_group, window_start)
ORDER BY (resolution_ns, toStartOfHour(window_start), signal, source_kind, src_group, dst_group, window_start, src, dst, src_port, dst_port, proto, config_epoch, producer, incarnation, seq)
TTL stored_at + toIntervalDay(if(resolution_ns < 60000000000, 14, 400))
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600
COMMENT 'the flows with the most heavy observations';

-- Packets of a tap over a period, and their fate: together with partials and gaps the proof that
-- nothing is lost. A period is a piece of a capture file or some seconds of a live tap. seq
-- distinguishes the periods and interfaces of a producer.
CREATE TABLE IF NOT EXISTS {{.Database}}.taps
(
    name String COMMENT 'of the tap',
    time_from DateTime64(9, 'UTC') COMMENT 'of the earliest packet' CODEC(Delta, LZ4),
    time_to DateTime64(9, 'UTC') COMMENT 'of the latest packet' CODEC(Delta, LZ4),
    place LowCardinality(String) COMMENT 'receiver, sender or mid',
    interface String COMMENT 'as the capture names it',
    link LowCardinality(String) COMMENT 'link type',
    timestamps LowCardinality(String) COMMENT 'who wrote the times: file, software, hardware',
    tick_ns Float64 COMMENT 'resolution of the times',
    epoch UInt64,
    producer UInt64,
    incarnation UInt64,
    seq UInt64,
    packets UInt64 CODEC(T64, LZ4),
    bytes UInt64 COMMENT 'on the wire' CODEC(T64, LZ4),
    frames Map(String, UInt64) COMMENT 'packets by what decoding them came to' CODEC(ZSTD(1)),
    tags UInt64 CODEC(T64, LZ4),
    reflections UInt64 CODEC(T64, LZ4),
    observations UInt64 COMMENT 'tags and reflections = stored + overflow + late + rejected' CODEC(T64, LZ4),
    stored UInt64 CODEC(T64, LZ4),
    overflow UInt64 COMMENT 'past the key budget' CODEC(T64, LZ4),
    late UInt64 CODEC(T64, LZ4),
    rejected Map(String, UInt64) COMMENT 'by reason' CODEC(ZSTD(1)),
    untouched UInt64 COMMENT 'of stored and overflow' CODEC(T64, LZ4),
    trimmed UInt64 COMMENT 'of stored and overflow' CODEC(T64, LZ4),
    kernel_drops UInt64 COMMENT 'packets that the kernel had no room for' CODEC(T64, LZ4),
    freezes UInt64 COMMENT 'times that its ring was full' CODEC(T64, LZ4),
    super_frames UInt64 COMMENT 'packets that receive offload made of several' CODEC(T64, LZ4),
    lost UInt64 COMMENT 'packets missing in the numbers of a mirror session' CODEC(T64, LZ4),
    skew_ns Int64 COMMENT 'of the clock, as far as it is known' CODEC(T64, LZ4),
    stored_at DateTime('UTC') DEFAULT now('UTC') CODEC(Delta, LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(time_from)
PRIMARY KEY (name, time_from)
ORDER BY (name, time_from, epoch, producer, incarnation, seq)
TTL stored_at + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600
COMMENT 'what taps took in, and what became of it';

-- Violations of the protocol or of the configuration. Rows with the same kind and id are one
-- finding: their counts add up.
CREATE TABLE IF NOT EXISTS {{.Database}}.findings
(
    kind LowCardinality(String),
    id UInt64 COMMENT 'what it is about',
    time_from DateTime64(9, 'UTC') COMMENT 'of the first one' CODEC(Delta, LZ4),
    time_to DateTime64(9, 'UTC') COMMENT 'of the last one' CODEC(Delta, LZ4),
    severity Enum8('info' = 1, 'warning' = 2, 'error' = 3),
    epoch UInt64,
    producer UInt64,
    incarnation UInt64,
    seq UInt64,
    device String,
    port String,
    location UInt64 COMMENT '0 for none',
    count UInt64 CODEC(T64, LZ4),
    evidence String COMMENT 'for people, at most 4 KiB' CODEC(ZSTD(1)),
    packets Array(UInt64) COMMENT 'numbers in the capture, the first 64',
    stored_at DateTime('UTC') DEFAULT now('UTC') CODEC(Delta, LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(time_from)
PRIMARY KEY (kind, id, time_from)
ORDER BY (kind, id, time_from, epoch, producer, incarnation, seq)
TTL stored_at + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600
COMMENT 'what breaks the protocol or the configuration';

-- Rows that were accepted and never stored: their producer and windows, how many, and why. rows
-- and observations are 0, and the producer too, if the record that held them was unreadable. A
-- gap that is written again replaces itself.
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

-- A run is one pass of a producer under one configuration. Each of its states is a row of its own
-- with the time when it was last reached: a run that ended once has all its rows, and stays ended
-- while it is repeated.
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

-- The meaning of the ids in the tables above, which is the same under all configurations. The
-- latest row of an id is valid; 0003_names.sql sets how long it is kept. Collectors do not let
-- exporters replace a pinned row; when two write at once, the later row is valid.
CREATE TABLE IF NOT EXISTS {{.Database}}.groups
(
    id UInt64,
    name String,
    level LowCardinality(String) COMMENT 'host, rack, pod, cluster, or a prefix length',
    parent String,
    ord UInt32 COMMENT 'position on the axes of a matrix',
    exporter String DEFAULT '' COMMENT 'the exporter that described it; empty: a fabric file',
    pinned Bool DEFAULT true COMMENT 'collectors take no other description from exporters',
    at DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY id;

-- set_id, device_id and stage_id are the locations above a location at the levels 1, 2 and 3; its
-- own id if it does not fit into one.
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
    exporter String DEFAULT '' COMMENT 'the exporter that described it; empty: a fabric file',
    pinned Bool DEFAULT true COMMENT 'collectors take no other description from exporters',
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
