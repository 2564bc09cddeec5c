-- Partial aggregates, one table per resolution. A row is what one producer saw in one
-- window of one cell, signal and location. Rows are identities: the key ends in
-- (producer, incarnation, seq), so a row that is written again replaces itself, and
-- late data is a further row with a later seq, which adds up.
--
-- The key starts with the minute (the hour for 1 min rows), so that one signal of a
-- short range is read in one piece and rows of equal cells still lie side by side.
--
-- dist is filled from two columns that are not stored: codes as packed little-endian
-- UInt16, counts as packed little-endian UInt64. Packing spares the client one
-- allocation for every bucket.
--
-- Rows expire by stored_at, when they were written, and not by their window: a
-- capture from last year that is replayed today is wanted today. stored_at is not in
-- the key; writing a row again renews it.
--
-- Codecs, measured by BenchmarkCodecs on an hour of noisy traffic, bytes a row:
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
-- T64 is what makes counts small, with LZ4 as with ZSTD. ZSTD would make ids smaller, and
-- every read slower, by up to two thirds; dist, which few questions read, has it since
-- migration 0008.
CREATE DATABASE IF NOT EXISTS {{.Database}};

{{range .Grains}}
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
    dist Map(UInt16, UInt64) DEFAULT mapFromArrays({{$.UnpackCodes}}, {{$.UnpackCounts}}),
    stored_at DateTime('UTC') DEFAULT now('UTC') CODEC(Delta, LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY {{.Partition}}
PRIMARY KEY ({{.KeyStart}}(window_start), signal, source_kind, src_group, dst_group, window_start)
ORDER BY ({{.KeyStart}}(window_start), signal, source_kind, src_group, dst_group, window_start, location, encoding, config_epoch, producer, incarnation, seq)
TTL stored_at + INTERVAL {{.Retention}}
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600
COMMENT 'partial aggregates of {{.Windows}}';
{{end}}
