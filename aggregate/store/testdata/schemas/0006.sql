-- A database of schema version 6. Never changed: migrations start from it.
CREATE DATABASE csigscope;

CREATE TABLE csigscope.epochs
(
    `epoch` UInt64 COMMENT 'hash of text',
    `text` String COMMENT 'configuration in canonical form' CODEC(ZSTD(1)),
    `at` DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY epoch
SETTINGS index_granularity = 8192;

CREATE TABLE csigscope.findings
(
    `kind` LowCardinality(String),
    `id` UInt64 COMMENT 'what it is about',
    `time_from` DateTime64(9, 'UTC') COMMENT 'of the first one' CODEC(Delta(8), LZ4),
    `time_to` DateTime64(9, 'UTC') COMMENT 'of the last one' CODEC(Delta(8), LZ4),
    `severity` Enum8('info' = 1, 'warning' = 2, 'error' = 3),
    `epoch` UInt64,
    `producer` UInt64,
    `incarnation` UInt64,
    `seq` UInt64,
    `device` String,
    `port` String,
    `location` UInt64 COMMENT '0 for none',
    `count` UInt64 CODEC(T64, LZ4),
    `evidence` String COMMENT 'for people, at most 4 KiB' CODEC(ZSTD(1)),
    `packets` Array(UInt64) COMMENT 'numbers in the capture, the first 64',
    `stored_at` DateTime('UTC') DEFAULT now('UTC') CODEC(Delta(4), LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(time_from)
PRIMARY KEY (kind, id, time_from)
ORDER BY (kind, id, time_from, epoch, producer, incarnation, seq)
TTL stored_at + toIntervalDay(400)
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600, index_granularity = 8192
COMMENT 'what breaks the protocol or the configuration';

CREATE TABLE csigscope.flows
(
    `resolution_ns` UInt64 COMMENT 'length of the window',
    `window_start` DateTime64(9, 'UTC') COMMENT 'start of the window' CODEC(Delta(8), LZ4),
    `signal` UInt8 COMMENT 'as in partials',
    `source_kind` UInt8 COMMENT '1 tag, 2 reflection',
    `src_group` UInt64,
    `dst_group` UInt64,
    `src` IPv6 COMMENT 'measured source, :: for all other flows' CODEC(ZSTD(1)),
    `dst` IPv6 CODEC(ZSTD(1)),
    `src_port` UInt16 CODEC(ZSTD(1)),
    `dst_port` UInt16,
    `proto` UInt8,
    `config_epoch` UInt64,
    `producer` UInt64,
    `incarnation` UInt64,
    `seq` UInt64 COMMENT 'block of the producer',
    `observations` UInt64 CODEC(T64, LZ4),
    `bytes` UInt64 CODEC(T64, LZ4),
    `measured` UInt64 COMMENT 'observations with a value' CODEC(T64, LZ4),
    `sum` UInt64 COMMENT 'of values: kbit/s, ppm, ns or counts' CODEC(T64, LZ4),
    `min` UInt64 COMMENT '0 when nothing has a value' CODEC(T64, LZ4),
    `max` UInt64 CODEC(T64, LZ4),
    `heavy` UInt64 CODEC(T64, LZ4),
    `heavy_sum` UInt64 CODEC(T64, LZ4),
    `location` UInt64 COMMENT 'that most of the heavy observations name, 0 without any' CODEC(ZSTD(1)),
    `location_heavy` UInt64 COMMENT 'heavy observations that name it' CODEC(T64, LZ4),
    `sampled` UInt64 COMMENT 'heavy observations from which the row is estimated, 0 if each was counted' CODEC(T64, LZ4),
    `stored_at` DateTime('UTC') DEFAULT now('UTC') CODEC(Delta(4), LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY (resolution_ns, if(resolution_ns < 60000000000, toYYYYMMDD(window_start), toYYYYMM(window_start)))
PRIMARY KEY (resolution_ns, toStartOfHour(window_start), signal, source_kind, src_group, dst_group, window_start)
ORDER BY (resolution_ns, toStartOfHour(window_start), signal, source_kind, src_group, dst_group, window_start, src, dst, src_port, dst_port, proto, config_epoch, producer, incarnation, seq)
TTL stored_at + toIntervalDay(if(resolution_ns < 60000000000, 14, 400))
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600, index_granularity = 8192
COMMENT 'the flows with the most heavy observations';

CREATE TABLE csigscope.forgotten
(
    `producer` UInt64,
    `at` DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY producer
TTL toDateTime(at) + toIntervalDay(400)
SETTINGS index_granularity = 8192
COMMENT 'producers that are no longer expected to write';

CREATE TABLE csigscope.gaps
(
    `producer` UInt64,
    `incarnation` UInt64,
    `epoch` UInt64,
    `resolution_ns` UInt64,
    `window_from` DateTime64(9, 'UTC') COMMENT 'start of the first window',
    `window_to` DateTime64(9, 'UTC') COMMENT 'end of the last window',
    `rows` UInt64,
    `observations` UInt64,
    `reason` LowCardinality(String) COMMENT 'restart: packets between two processes, never taken in; drops: packets that the kernel dropped; mirror: packets that a mirror session lost; open: windows that were open when a process was killed; full: made room in the outbox; refused: the server will never take the rows; disk: the outbox could not be written; newer: too many rows of a newer version wait in the outbox; damaged: records of the outbox fail their checksum; missing: records of the outbox are gone; uncertain: the outbox lost its position, and may have lost records; trimmed: windows deleted to make room; trimmed_flows: likewise; trimmed_taps: likewise; trimmed_findings: likewise; exporter_*: lost on the way from an exporter',
    `id` UInt64 COMMENT 'what was lost',
    `at` DateTime64(3, 'UTC') COMMENT 'when it was given up',
    `log_class` LowCardinality(String) COMMENT 'class of the records that held the rows; empty where no record did',
    `first_seq` UInt64 COMMENT 'sequence number of the first of them, 0 where none can be read',
    `last_seq` UInt64 COMMENT 'sequence number of the last of them'
)
ENGINE = ReplacingMergeTree(at)
ORDER BY (producer, incarnation, epoch, resolution_ns, window_from, window_to, reason, id)
TTL toDateTime(at) + toIntervalDay(400)
SETTINGS index_granularity = 8192
COMMENT 'rows that were taken and never stored';

CREATE TABLE csigscope.groups
(
    `id` UInt64,
    `name` String,
    `level` LowCardinality(String) COMMENT 'host, rack, pod, cluster, or a prefix length',
    `parent` String,
    `ord` UInt32 COMMENT 'position on the axes of a matrix',
    `exporter` String DEFAULT '' COMMENT 'the exporter that described it; empty: a fabric file',
    `pinned` Bool DEFAULT true COMMENT 'collectors take no other description from exporters',
    `at` DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC'),
    `used` DateTime('UTC') DEFAULT toDateTime(at, 'UTC') COMMENT 'last use, to about a day'
)
ENGINE = ReplacingMergeTree(at)
ORDER BY id
TTL used + toIntervalDay(430)
SETTINGS index_granularity = 8192;

CREATE TABLE csigscope.locations
(
    `id` UInt64,
    `name` String,
    `kind` LowCardinality(String) COMMENT 'port, set, raw, unknown, overflow',
    `device` String,
    `stage` LowCardinality(String),
    `orientation` LowCardinality(String),
    `capacity` UInt64 COMMENT 'kbit/s, 0 when unknown or mixed',
    `candidates` Array(String) COMMENT 'ports the location may be, the first of candidate_count',
    `candidate_count` UInt32,
    `set_id` UInt64,
    `device_id` UInt64,
    `stage_id` UInt64,
    `peer` String COMMENT 'device or host that all candidates face',
    `far_end_id` UInt64,
    `exporter` String DEFAULT '' COMMENT 'the exporter that described it; empty: a fabric file',
    `pinned` Bool DEFAULT true COMMENT 'collectors take no other description from exporters',
    `at` DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC'),
    `used` DateTime('UTC') DEFAULT toDateTime(at, 'UTC') COMMENT 'last use, to about a day'
)
ENGINE = ReplacingMergeTree(at)
ORDER BY id
TTL used + toIntervalDay(430)
SETTINGS index_granularity = 8192;

CREATE TABLE csigscope.partials_1m
(
    `window_start` DateTime64(9, 'UTC') COMMENT 'start of the window' CODEC(Delta(8), LZ4),
    `signal` UInt8 COMMENT '0 min_abw, 1 min_abw_ratio, 2 max_delay, 3 max_nqd, 16+T unknown type T, from 32 a type that a table defines: 32 + 64 * aggregation (min, max, sum, count) + 16 * unit (count, bit/s, ratio, ns) + T',
    `source_kind` UInt8 COMMENT '1 tag, 2 reflection: two measurements of one thing, never added up',
    `encoding` UInt8 COMMENT 'tag layout that the codes of dist belong to',
    `src_group` UInt64,
    `dst_group` UInt64,
    `location` UInt64 COMMENT '0 untouched or a sum over hops, 1 overflow',
    `config_epoch` UInt64 COMMENT 'configuration the row was made under',
    `producer` UInt64 COMMENT 'tap, or content of a capture file',
    `incarnation` UInt64 COMMENT 'one life of the producer',
    `seq` UInt64 COMMENT 'block of the producer',
    `observations` UInt64 CODEC(T64, LZ4),
    `bytes` UInt64 CODEC(T64, LZ4),
    `measured` UInt64 COMMENT 'observations with a value: not trimmed, and of a type that has a table' CODEC(T64, LZ4),
    `sum` UInt64 COMMENT 'of values: kbit/s, ppm, ns or counts' CODEC(T64, LZ4),
    `min` UInt64 COMMENT '0 when nothing has a value' CODEC(T64, LZ4),
    `max` UInt64 CODEC(T64, LZ4),
    `untouched` UInt64 CODEC(T64, LZ4),
    `trimmed` UInt64 COMMENT 'in observations and bytes, in nothing else' CODEC(T64, LZ4),
    `heavy` UInt64 CODEC(T64, LZ4),
    `heavy_sum` UInt64 CODEC(T64, LZ4),
    `samples` UInt64 DEFAULT observations - least(trimmed, observations) COMMENT 'observations that are not trimmed, without the weight' CODEC(T64, LZ4),
    `unjudged` UInt64 COMMENT 'observations that no threshold judges' CODEC(T64, LZ4),
    `evidence` UInt8 COMMENT 'what located observations more closely than locators: 1 path table, 2 hashes, 4 taps',
    `dist_codes` String EPHEMERAL,
    `dist_counts` String EPHEMERAL,
    `dist` Map(UInt16, UInt64) DEFAULT mapFromArrays(reinterpret(dist_codes, 'Array(UInt16)'), reinterpret(dist_counts, 'Array(UInt64)')) CODEC(ZSTD(1)),
    `stored_at` DateTime('UTC') DEFAULT now('UTC') CODEC(Delta(4), LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(window_start)
PRIMARY KEY (toStartOfHour(window_start), signal, source_kind, src_group, dst_group, window_start)
ORDER BY (toStartOfHour(window_start), signal, source_kind, src_group, dst_group, window_start, location, encoding, config_epoch, producer, incarnation, seq)
TTL stored_at + toIntervalDay(400)
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600, non_replicated_deduplication_window = 10000, index_granularity = 8192
COMMENT 'partial aggregates of 1 min windows';

CREATE TABLE csigscope.partials_1s
(
    `window_start` DateTime64(9, 'UTC') COMMENT 'start of the window' CODEC(Delta(8), LZ4),
    `signal` UInt8 COMMENT '0 min_abw, 1 min_abw_ratio, 2 max_delay, 3 max_nqd, 16+T unknown type T, from 32 a type that a table defines: 32 + 64 * aggregation (min, max, sum, count) + 16 * unit (count, bit/s, ratio, ns) + T',
    `source_kind` UInt8 COMMENT '1 tag, 2 reflection: two measurements of one thing, never added up',
    `encoding` UInt8 COMMENT 'tag layout that the codes of dist belong to',
    `src_group` UInt64,
    `dst_group` UInt64,
    `location` UInt64 COMMENT '0 untouched or a sum over hops, 1 overflow',
    `config_epoch` UInt64 COMMENT 'configuration the row was made under',
    `producer` UInt64 COMMENT 'tap, or content of a capture file',
    `incarnation` UInt64 COMMENT 'one life of the producer',
    `seq` UInt64 COMMENT 'block of the producer',
    `observations` UInt64 CODEC(T64, LZ4),
    `bytes` UInt64 CODEC(T64, LZ4),
    `measured` UInt64 COMMENT 'observations with a value: not trimmed, and of a type that has a table' CODEC(T64, LZ4),
    `sum` UInt64 COMMENT 'of values: kbit/s, ppm, ns or counts' CODEC(T64, LZ4),
    `min` UInt64 COMMENT '0 when nothing has a value' CODEC(T64, LZ4),
    `max` UInt64 CODEC(T64, LZ4),
    `untouched` UInt64 CODEC(T64, LZ4),
    `trimmed` UInt64 COMMENT 'in observations and bytes, in nothing else' CODEC(T64, LZ4),
    `heavy` UInt64 CODEC(T64, LZ4),
    `heavy_sum` UInt64 CODEC(T64, LZ4),
    `samples` UInt64 DEFAULT observations - least(trimmed, observations) COMMENT 'observations that are not trimmed, without the weight' CODEC(T64, LZ4),
    `unjudged` UInt64 COMMENT 'observations that no threshold judges' CODEC(T64, LZ4),
    `evidence` UInt8 COMMENT 'what located observations more closely than locators: 1 path table, 2 hashes, 4 taps',
    `dist_codes` String EPHEMERAL,
    `dist_counts` String EPHEMERAL,
    `dist` Map(UInt16, UInt64) DEFAULT mapFromArrays(reinterpret(dist_codes, 'Array(UInt16)'), reinterpret(dist_counts, 'Array(UInt64)')) CODEC(ZSTD(1)),
    `stored_at` DateTime('UTC') DEFAULT now('UTC') CODEC(Delta(4), LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMMDD(window_start)
PRIMARY KEY (toStartOfMinute(window_start), signal, source_kind, src_group, dst_group, window_start)
ORDER BY (toStartOfMinute(window_start), signal, source_kind, src_group, dst_group, window_start, location, encoding, config_epoch, producer, incarnation, seq)
TTL stored_at + toIntervalDay(14)
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600, non_replicated_deduplication_window = 10000, index_granularity = 8192
COMMENT 'partial aggregates of 1 s windows';

CREATE TABLE csigscope.partials_fine
(
    `window_start` DateTime64(9, 'UTC') COMMENT 'start of the window' CODEC(Delta(8), LZ4),
    `resolution_ns` UInt64 COMMENT 'length of the window',
    `signal` UInt8 COMMENT '0 min_abw, 1 min_abw_ratio, 2 max_delay, 3 max_nqd, 16+T unknown type T, from 32 a type that a table defines: 32 + 64 * aggregation (min, max, sum, count) + 16 * unit (count, bit/s, ratio, ns) + T',
    `source_kind` UInt8 COMMENT '1 tag, 2 reflection: two measurements of one thing, never added up',
    `encoding` UInt8 COMMENT 'tag layout that the codes of dist belong to',
    `src_group` UInt64,
    `dst_group` UInt64,
    `location` UInt64 COMMENT '0 untouched or a sum over hops, 1 overflow',
    `config_epoch` UInt64 COMMENT 'configuration the row was made under',
    `producer` UInt64 COMMENT 'tap, or content of a capture file',
    `incarnation` UInt64 COMMENT 'one life of the producer',
    `seq` UInt64 COMMENT 'block of the producer',
    `observations` UInt64 CODEC(T64, LZ4),
    `bytes` UInt64 CODEC(T64, LZ4),
    `measured` UInt64 COMMENT 'observations with a value: not trimmed, and of a type that has a table' CODEC(T64, LZ4),
    `sum` UInt64 COMMENT 'of values: kbit/s, ppm, ns or counts' CODEC(T64, LZ4),
    `min` UInt64 COMMENT '0 when nothing has a value' CODEC(T64, LZ4),
    `max` UInt64 CODEC(T64, LZ4),
    `untouched` UInt64 CODEC(T64, LZ4),
    `trimmed` UInt64 COMMENT 'in observations and bytes, in nothing else' CODEC(T64, LZ4),
    `heavy` UInt64 CODEC(T64, LZ4),
    `heavy_sum` UInt64 CODEC(T64, LZ4),
    `samples` UInt64 DEFAULT observations - least(trimmed, observations) COMMENT 'observations that are not trimmed, without the weight' CODEC(T64, LZ4),
    `unjudged` UInt64 COMMENT 'observations that no threshold judges' CODEC(T64, LZ4),
    `evidence` UInt8 COMMENT 'what located observations more closely than locators: 1 path table, 2 hashes, 4 taps',
    `dist_codes` String EPHEMERAL,
    `dist_counts` String EPHEMERAL,
    `dist` Map(UInt16, UInt64) DEFAULT mapFromArrays(reinterpret(dist_codes, 'Array(UInt16)'), reinterpret(dist_counts, 'Array(UInt64)')) CODEC(ZSTD(1)),
    `stored_at` DateTime('UTC') DEFAULT now('UTC') CODEC(Delta(4), LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY toStartOfHour(window_start)
PRIMARY KEY (toStartOfMinute(window_start), signal, source_kind, src_group, dst_group, window_start)
ORDER BY (toStartOfMinute(window_start), signal, source_kind, src_group, dst_group, window_start, location, encoding, config_epoch, producer, incarnation, seq)
TTL stored_at + toIntervalHour(6)
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600, non_replicated_deduplication_window = 10000, index_granularity = 8192
COMMENT 'partial aggregates of windows below 1 s';

CREATE TABLE csigscope.runs
(
    `producer` UInt64,
    `incarnation` UInt64,
    `epoch` UInt64,
    `mode` Enum8('replay' = 1, 'live' = 2),
    `state` Enum8('started' = 1, 'done' = 2),
    `name` String COMMENT 'file or tap',
    `at` DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY (producer, incarnation, epoch, mode, state)
SETTINGS index_granularity = 8192;

CREATE TABLE csigscope.schema_versions
(
    `version` UInt32 COMMENT '0: the views',
    `name` String,
    `checksum` UInt64 COMMENT 'of the statements',
    `at` DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY version
SETTINGS index_granularity = 8192;

CREATE TABLE csigscope.taps
(
    `name` String COMMENT 'of the tap',
    `time_from` DateTime64(9, 'UTC') COMMENT 'of the earliest packet' CODEC(Delta(8), LZ4),
    `time_to` DateTime64(9, 'UTC') COMMENT 'of the latest packet' CODEC(Delta(8), LZ4),
    `place` LowCardinality(String) COMMENT 'receiver, sender or mid',
    `interface` String COMMENT 'as the capture names it',
    `link` LowCardinality(String) COMMENT 'link type',
    `timestamps` LowCardinality(String) COMMENT 'who wrote the times: file, software, hardware',
    `tick_ns` Float64 COMMENT 'resolution of the times',
    `epoch` UInt64,
    `producer` UInt64,
    `incarnation` UInt64,
    `seq` UInt64,
    `packets` UInt64 CODEC(T64, LZ4),
    `bytes` UInt64 COMMENT 'on the wire' CODEC(T64, LZ4),
    `frames` Map(String, UInt64) COMMENT 'packets by what decoding them came to' CODEC(ZSTD(1)),
    `tags` UInt64 CODEC(T64, LZ4),
    `reflections` UInt64 CODEC(T64, LZ4),
    `observations` UInt64 COMMENT 'tags and reflections = stored + overflow + late + rejected' CODEC(T64, LZ4),
    `stored` UInt64 CODEC(T64, LZ4),
    `overflow` UInt64 COMMENT 'past the key budget' CODEC(T64, LZ4),
    `late` UInt64 CODEC(T64, LZ4),
    `rejected` Map(String, UInt64) COMMENT 'by reason' CODEC(ZSTD(1)),
    `untouched` UInt64 COMMENT 'of stored and overflow' CODEC(T64, LZ4),
    `trimmed` UInt64 COMMENT 'of stored and overflow' CODEC(T64, LZ4),
    `kernel_drops` UInt64 COMMENT 'packets that the kernel had no room for' CODEC(T64, LZ4),
    `freezes` UInt64 COMMENT 'times that its ring was full' CODEC(T64, LZ4),
    `super_frames` UInt64 COMMENT 'packets that receive offload made of several' CODEC(T64, LZ4),
    `lost` UInt64 COMMENT 'packets missing in the numbers of a mirror session' CODEC(T64, LZ4),
    `skew_ns` Int64 COMMENT 'of the clock, as far as it is known' CODEC(T64, LZ4),
    `stored_at` DateTime('UTC') DEFAULT now('UTC') CODEC(Delta(4), LZ4)
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(time_from)
PRIMARY KEY (name, time_from)
ORDER BY (name, time_from, epoch, producer, incarnation, seq)
TTL stored_at + toIntervalDay(400)
SETTINGS ttl_only_drop_parts = 1, merge_with_ttl_timeout = 3600, index_granularity = 8192
COMMENT 'what taps took in, and what became of it';

CREATE VIEW csigscope.cell_locations_1m
AS SELECT
    src_group,
    dst_group,
    source_kind,
    location,
    sum(w.observations) AS observations,
    sum(w.samples) AS samples,
    sum(w.bytes) AS bytes,
    sum(w.measured) AS measured,
    sum(w.sum) AS sum,
    minIf(w.min, w.measured > 0) AS min,
    max(w.max) AS max,
    sum(w.untouched) AS untouched,
    sum(w.trimmed) AS trimmed,
    sum(w.unjudged) AS unjudged,
    sum(w.heavy) AS heavy,
    sum(w.heavy_sum) AS heavy_sum,
    groupBitOr(w.evidence) AS evidence,
    maxIf(w.bucket, w.measured > 0) AS last,
    argMaxIf(w.measured, w.bucket, w.measured > 0) AS last_measured,
    argMaxIf(w.sum, w.bucket, w.measured > 0) AS last_sum,
    sumIf(w.measured, w.bucket >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_measured,
    sumIf(w.sum, w.bucket >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_sum
FROM
(
    SELECT
        p.src_group AS src_group,
        p.dst_group AS dst_group,
        p.source_kind AS source_kind,
        p.location AS location,
        p.window_start AS bucket,
        sum(toUInt128(p.observations)) AS observations,
        sum(toUInt128(p.samples)) AS samples,
        sum(toUInt128(p.bytes)) AS bytes,
        sum(toUInt128(p.measured)) AS measured,
        sum(toUInt128(p.sum)) AS sum,
        minIf(p.min, p.measured > 0) AS min,
        max(p.max) AS max,
        sum(toUInt128(p.untouched)) AS untouched,
        sum(toUInt128(p.trimmed)) AS trimmed,
        sum(toUInt128(p.unjudged)) AS unjudged,
        sum(toUInt128(p.heavy)) AS heavy,
        sum(toUInt128(p.heavy_sum)) AS heavy_sum,
        groupBitOr(p.evidence) AS evidence
    FROM csigscope.partials_1m AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_1m
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        src_group,
        dst_group,
        source_kind,
        location,
        bucket
) AS w
GROUP BY
    src_group,
    dst_group,
    source_kind,
    location
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.cell_locations_1s
AS SELECT
    src_group,
    dst_group,
    source_kind,
    location,
    sum(w.observations) AS observations,
    sum(w.samples) AS samples,
    sum(w.bytes) AS bytes,
    sum(w.measured) AS measured,
    sum(w.sum) AS sum,
    minIf(w.min, w.measured > 0) AS min,
    max(w.max) AS max,
    sum(w.untouched) AS untouched,
    sum(w.trimmed) AS trimmed,
    sum(w.unjudged) AS unjudged,
    sum(w.heavy) AS heavy,
    sum(w.heavy_sum) AS heavy_sum,
    groupBitOr(w.evidence) AS evidence,
    maxIf(w.bucket, w.measured > 0) AS last,
    argMaxIf(w.measured, w.bucket, w.measured > 0) AS last_measured,
    argMaxIf(w.sum, w.bucket, w.measured > 0) AS last_sum,
    sumIf(w.measured, w.bucket >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_measured,
    sumIf(w.sum, w.bucket >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_sum
FROM
(
    SELECT
        p.src_group AS src_group,
        p.dst_group AS dst_group,
        p.source_kind AS source_kind,
        p.location AS location,
        p.window_start AS bucket,
        sum(toUInt128(p.observations)) AS observations,
        sum(toUInt128(p.samples)) AS samples,
        sum(toUInt128(p.bytes)) AS bytes,
        sum(toUInt128(p.measured)) AS measured,
        sum(toUInt128(p.sum)) AS sum,
        minIf(p.min, p.measured > 0) AS min,
        max(p.max) AS max,
        sum(toUInt128(p.untouched)) AS untouched,
        sum(toUInt128(p.trimmed)) AS trimmed,
        sum(toUInt128(p.unjudged)) AS unjudged,
        sum(toUInt128(p.heavy)) AS heavy,
        sum(toUInt128(p.heavy_sum)) AS heavy_sum,
        groupBitOr(p.evidence) AS evidence
    FROM csigscope.partials_1s AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_1s
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        src_group,
        dst_group,
        source_kind,
        location,
        bucket
) AS w
GROUP BY
    src_group,
    dst_group,
    source_kind,
    location
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.cell_locations_fine
AS SELECT
    src_group,
    dst_group,
    source_kind,
    location,
    sum(w.observations) AS observations,
    sum(w.samples) AS samples,
    sum(w.bytes) AS bytes,
    sum(w.measured) AS measured,
    sum(w.sum) AS sum,
    minIf(w.min, w.measured > 0) AS min,
    max(w.max) AS max,
    sum(w.untouched) AS untouched,
    sum(w.trimmed) AS trimmed,
    sum(w.unjudged) AS unjudged,
    sum(w.heavy) AS heavy,
    sum(w.heavy_sum) AS heavy_sum,
    groupBitOr(w.evidence) AS evidence,
    maxIf(w.bucket, w.measured > 0) AS last,
    argMaxIf(w.measured, w.bucket, w.measured > 0) AS last_measured,
    argMaxIf(w.sum, w.bucket, w.measured > 0) AS last_sum,
    sumIf(w.measured, w.bucket >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_measured,
    sumIf(w.sum, w.bucket >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_sum
FROM
(
    SELECT
        p.src_group AS src_group,
        p.dst_group AS dst_group,
        p.source_kind AS source_kind,
        p.location AS location,
        p.window_start AS bucket,
        sum(toUInt128(p.observations)) AS observations,
        sum(toUInt128(p.samples)) AS samples,
        sum(toUInt128(p.bytes)) AS bytes,
        sum(toUInt128(p.measured)) AS measured,
        sum(toUInt128(p.sum)) AS sum,
        minIf(p.min, p.measured > 0) AS min,
        max(p.max) AS max,
        sum(toUInt128(p.untouched)) AS untouched,
        sum(toUInt128(p.trimmed)) AS trimmed,
        sum(toUInt128(p.unjudged)) AS unjudged,
        sum(toUInt128(p.heavy)) AS heavy,
        sum(toUInt128(p.heavy_sum)) AS heavy_sum,
        groupBitOr(p.evidence) AS evidence
    FROM csigscope.partials_fine AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_fine
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        src_group,
        dst_group,
        source_kind,
        location,
        bucket
) AS w
GROUP BY
    src_group,
    dst_group,
    source_kind,
    location
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.cell_windows_1m
AS SELECT * EXCEPT best
FROM
(
    SELECT
        *,
        min(source_kind) OVER (PARTITION BY src_group, dst_group) AS best
    FROM
    (
        SELECT
            c.bucket AS window_start,
            c.src_group AS src_group,
            c.dst_group AS dst_group,
            c.kind AS source_kind,
            c.observations AS observations,
            c.samples AS samples,
            c.bytes AS bytes,
            c.measured AS measured,
            c.sum AS sum,
            ((toFloat64(c.sum) * if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 1, 1000, 1)) / if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 2, 1000000, 1)) / toFloat64(c.measured) AS mean,
            c.min AS min,
            c.max AS max,
            c.untouched AS untouched,
            c.trimmed AS trimmed,
            c.unjudged AS unjudged,
            c.heavy AS heavy,
            c.heavy_sum AS heavy_sum,
            (top[1]).3 AS mode_location,
            arrayMap(leasts -> arraySort(arrayFilter(p -> if((arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) = arrayMax(leasts)) AND (arrayCount(t -> has(t.4, p), ranked) = 1), arrayFirstIndex(t -> has(t.4, p), ranked) <= indexOf(leasts, arrayMax(leasts)), arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) >= arrayMax(leasts)), arrayDistinct(arrayFlatten(arrayMap(t -> (t.4), ranked))))), [arrayMap(t -> intDiv((bitNot(t.1) + (t.5)) - 1, t.5), ranked)])[1] AS mode_ports,
            arrayMap(t -> (t.3, toUInt64(least(bitNot(t.1), toUInt128(18446744073709551615)))), if({level:UInt8} = 0, top, [])) AS votes,
            if(empty(top), toUInt128(0), bitNot((top[1]).1)) AS mode_count,
            if(empty(top), toUInt128(0), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), (top[1]).2, bitNot((top[1]).2))) AS mode_sum,
            (top[1]).4 AS mode_evidence,
            (top[2]).3 AS runner_up,
            if(length(top) < 2, toUInt128(0), bitNot((top[2]).1)) AS runner_up_count,
            (top[2]).4 AS runner_up_evidence,
            multiIf(v.sustained, 'congested', v.any_judged, if(v.any_loaded, 'brief', 'clear'), c.samples < 10, 'too_few', (toFloat64(c.heavy) / toFloat64(c.observations)) >= {onset:Float64}, 'congested', ((toFloat64(c.heavy) + toFloat64(c.unjudged)) / toFloat64(c.observations)) < {clear:Float64}, if(c.heavy > 0, 'brief', 'clear'), (toFloat64(c.unjudged) / toFloat64(c.observations)) >= {clear:Float64}, 'not_judged', if(c.heavy > 0, 'brief', 'clear')) AS state,
            v.sustained AS sustained,
            v.any_judged AS any_judged,
            v.any_loaded AS any_loaded,
            toFloat64(c.heavy) / toFloat64(c.observations) AS heavy_share,
            toFloat64(c.trimmed) / toFloat64(c.observations) AS trimmed_share
        FROM
        (
            SELECT
                bucket,
                src_group,
                dst_group,
                kind,
                sum(a.observations) AS observations,
                sum(a.samples) AS samples,
                sum(a.bytes) AS bytes,
                sum(a.measured) AS measured,
                sum(a.sum) AS sum,
                minIf(a.min, a.measured > 0) AS min,
                max(a.max) AS max,
                sum(a.untouched) AS untouched,
                sum(a.trimmed) AS trimmed,
                sum(a.unjudged) AS unjudged,
                sum(a.heavy) AS heavy,
                sum(a.heavy_sum) AS heavy_sum,
                groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.evidence), (a.heavy > 0) AND (a.place != 0)) AS top,
                groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.ports, a.port_count), (a.heavy > 0) AND (a.place != 0)) AS ranked
            FROM
            (
                SELECT
                    bucket,
                    src_group,
                    dst_group,
                    kind,
                    if(l.id <= 1, b.location, l.ancestor) AS place,
                    any(l.ports) AS ports,
                    any(greatest(l.port_count, 1)) AS port_count,
                    sum(b.observations) AS observations,
                    sum(b.samples) AS samples,
                    sum(b.bytes) AS bytes,
                    sum(b.measured) AS measured,
                    sum(b.sum) AS sum,
                    minIf(b.min, b.measured > 0) AS min,
                    max(b.max) AS max,
                    sum(b.untouched) AS untouched,
                    sum(b.trimmed) AS trimmed,
                    sum(b.unjudged) AS unjudged,
                    sum(b.heavy) AS heavy,
                    sum(b.heavy_sum) AS heavy_sum,
                    groupBitOr(b.evidence) AS evidence
                FROM
                (
                    SELECT
                        fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
                        p.src_group AS src_group,
                        p.dst_group AS dst_group,
                        p.source_kind AS kind,
                        p.location AS location,
                        sum(toUInt128(p.observations)) AS observations,
                        sum(toUInt128(p.samples)) AS samples,
                        sum(toUInt128(p.bytes)) AS bytes,
                        sum(toUInt128(p.measured)) AS measured,
                        sum(toUInt128(p.sum)) AS sum,
                        minIf(p.min, p.measured > 0) AS min,
                        max(p.max) AS max,
                        sum(toUInt128(p.untouched)) AS untouched,
                        sum(toUInt128(p.trimmed)) AS trimmed,
                        sum(toUInt128(p.unjudged)) AS unjudged,
                        sum(toUInt128(p.heavy)) AS heavy,
                        sum(toUInt128(p.heavy_sum)) AS heavy_sum,
                        groupBitOr(p.evidence) AS evidence
                    FROM csigscope.partials_1m AS p
                    FINAL
                    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                        SELECT
                            producer,
                            incarnation,
                            epoch
                        FROM csigscope.superseded
                    ))
                    GROUP BY
                        bucket,
                        src_group,
                        dst_group,
                        kind,
                        location
                ) AS b
                LEFT JOIN
                (
                    SELECT
                        id,
                        if({level:UInt8} = 0, candidates, []) AS ports,
                        greatest(candidate_count, 1) AS port_count,
                        multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
                    FROM csigscope.locations
                    FINAL
                ) AS l ON b.location = l.id
                GROUP BY
                    bucket,
                    src_group,
                    dst_group,
                    kind,
                    place
            ) AS a
            GROUP BY
                bucket,
                src_group,
                dst_group,
                kind
        ) AS c
        LEFT JOIN
        (
            SELECT
                fromUnixTimestamp64Nano(number * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
                src_group,
                dst_group,
                kind,
                (bitAnd(mark.2, 6) = 6) AND (intDiv(mark.2, 8) >= since_when) AS sustained,
                (bitAnd(mark.3, 6) > 0) AND (intDiv(mark.3, 8) >= since_when) AS any_judged,
                (bitAnd(mark.4, 1) = 1) AND (intDiv(mark.4, 8) >= since_when) AS any_loaded
            FROM
            (
                SELECT
                    src_group,
                    dst_group,
                    kind,
                    mark,
                    intDiv(intDiv(mark.1, 8) * toInt64(60000000000), toInt64({step_ns:UInt64})) AS number,
                    least(intDiv((number + 1) * toInt64({step_ns:UInt64}), toInt64(60000000000)), intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64(60000000000)) - 1, toInt64(60000000000))) - 300 AS since_when
                FROM
                (
                    SELECT
                        src_group,
                        dst_group,
                        kind,
                        arraySort(groupArray(((slot * 8) + (2 * multiIf(w.samples < 10, 0, (w.heavy / w.observations) >= {onset:Float64}, 3, ((w.heavy + w.unjudged) / w.observations) < {clear:Float64}, 2, (w.unjudged / w.observations) < {clear:Float64}, 1, 0))) + (w.heavy > 0))) AS marks
                    FROM
                    (
                        SELECT
                            intDiv(toUnixTimestamp64Nano(p.window_start), toInt64(60000000000)) AS slot,
                            p.src_group AS src_group,
                            p.dst_group AS dst_group,
                            p.source_kind AS kind,
                            sum(toFloat64(p.observations)) AS observations,
                            sum(toFloat64(p.samples)) AS samples,
                            sum(toFloat64(p.unjudged)) AS unjudged,
                            sum(toFloat64(p.heavy)) AS heavy
                        FROM csigscope.partials_1m AS p
                        FINAL
                        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour(fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64(60000000000)) - 1, toInt64(60000000000)) - 300) * toInt64(60000000000), toInt64(0)), 'UTC')), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64(60000000000)) - 1, toInt64(60000000000)) - 300) * toInt64(60000000000), toInt64(0)), 'UTC')) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                            SELECT
                                producer,
                                incarnation,
                                epoch
                            FROM csigscope.superseded
                        ))
                        GROUP BY
                            slot,
                            src_group,
                            dst_group,
                            kind
                    ) AS w
                    GROUP BY
                        src_group,
                        dst_group,
                        kind
                )
                ARRAY JOIN arrayFilter((last, m, next) -> ((intDiv(m, 8) >= intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64(60000000000)) - 1, toInt64(60000000000))) AND ((next = 0) OR (intDiv(intDiv(m, 8) * toInt64(60000000000), toInt64({step_ns:UInt64})) != intDiv(intDiv(next, 8) * toInt64(60000000000), toInt64({step_ns:UInt64}))))), arrayZip(marks, arrayFill(m -> (bitAnd(m, 6) >= 4), marks), arrayFill(m -> (bitAnd(m, 6) > 0), marks), arrayFill(m -> (bitAnd(m, 1) = 1), marks)), marks, arrayShiftLeft(marks, 1)) AS mark
            )
        ) AS v ON (c.bucket = v.bucket) AND (c.src_group = v.src_group) AND (c.dst_group = v.dst_group) AND (c.kind = v.kind)
    )
)
WHERE source_kind = best
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.cell_windows_1s
AS SELECT * EXCEPT best
FROM
(
    SELECT
        *,
        min(source_kind) OVER (PARTITION BY src_group, dst_group) AS best
    FROM
    (
        SELECT
            c.bucket AS window_start,
            c.src_group AS src_group,
            c.dst_group AS dst_group,
            c.kind AS source_kind,
            c.observations AS observations,
            c.samples AS samples,
            c.bytes AS bytes,
            c.measured AS measured,
            c.sum AS sum,
            ((toFloat64(c.sum) * if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 1, 1000, 1)) / if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 2, 1000000, 1)) / toFloat64(c.measured) AS mean,
            c.min AS min,
            c.max AS max,
            c.untouched AS untouched,
            c.trimmed AS trimmed,
            c.unjudged AS unjudged,
            c.heavy AS heavy,
            c.heavy_sum AS heavy_sum,
            (top[1]).3 AS mode_location,
            arrayMap(leasts -> arraySort(arrayFilter(p -> if((arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) = arrayMax(leasts)) AND (arrayCount(t -> has(t.4, p), ranked) = 1), arrayFirstIndex(t -> has(t.4, p), ranked) <= indexOf(leasts, arrayMax(leasts)), arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) >= arrayMax(leasts)), arrayDistinct(arrayFlatten(arrayMap(t -> (t.4), ranked))))), [arrayMap(t -> intDiv((bitNot(t.1) + (t.5)) - 1, t.5), ranked)])[1] AS mode_ports,
            arrayMap(t -> (t.3, toUInt64(least(bitNot(t.1), toUInt128(18446744073709551615)))), if({level:UInt8} = 0, top, [])) AS votes,
            if(empty(top), toUInt128(0), bitNot((top[1]).1)) AS mode_count,
            if(empty(top), toUInt128(0), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), (top[1]).2, bitNot((top[1]).2))) AS mode_sum,
            (top[1]).4 AS mode_evidence,
            (top[2]).3 AS runner_up,
            if(length(top) < 2, toUInt128(0), bitNot((top[2]).1)) AS runner_up_count,
            (top[2]).4 AS runner_up_evidence,
            multiIf(v.sustained, 'congested', v.any_judged, if(v.any_loaded, 'brief', 'clear'), c.samples < 10, 'too_few', (toFloat64(c.heavy) / toFloat64(c.observations)) >= {onset:Float64}, 'congested', ((toFloat64(c.heavy) + toFloat64(c.unjudged)) / toFloat64(c.observations)) < {clear:Float64}, if(c.heavy > 0, 'brief', 'clear'), (toFloat64(c.unjudged) / toFloat64(c.observations)) >= {clear:Float64}, 'not_judged', if(c.heavy > 0, 'brief', 'clear')) AS state,
            v.sustained AS sustained,
            v.any_judged AS any_judged,
            v.any_loaded AS any_loaded,
            toFloat64(c.heavy) / toFloat64(c.observations) AS heavy_share,
            toFloat64(c.trimmed) / toFloat64(c.observations) AS trimmed_share
        FROM
        (
            SELECT
                bucket,
                src_group,
                dst_group,
                kind,
                sum(a.observations) AS observations,
                sum(a.samples) AS samples,
                sum(a.bytes) AS bytes,
                sum(a.measured) AS measured,
                sum(a.sum) AS sum,
                minIf(a.min, a.measured > 0) AS min,
                max(a.max) AS max,
                sum(a.untouched) AS untouched,
                sum(a.trimmed) AS trimmed,
                sum(a.unjudged) AS unjudged,
                sum(a.heavy) AS heavy,
                sum(a.heavy_sum) AS heavy_sum,
                groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.evidence), (a.heavy > 0) AND (a.place != 0)) AS top,
                groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.ports, a.port_count), (a.heavy > 0) AND (a.place != 0)) AS ranked
            FROM
            (
                SELECT
                    bucket,
                    src_group,
                    dst_group,
                    kind,
                    if(l.id <= 1, b.location, l.ancestor) AS place,
                    any(l.ports) AS ports,
                    any(greatest(l.port_count, 1)) AS port_count,
                    sum(b.observations) AS observations,
                    sum(b.samples) AS samples,
                    sum(b.bytes) AS bytes,
                    sum(b.measured) AS measured,
                    sum(b.sum) AS sum,
                    minIf(b.min, b.measured > 0) AS min,
                    max(b.max) AS max,
                    sum(b.untouched) AS untouched,
                    sum(b.trimmed) AS trimmed,
                    sum(b.unjudged) AS unjudged,
                    sum(b.heavy) AS heavy,
                    sum(b.heavy_sum) AS heavy_sum,
                    groupBitOr(b.evidence) AS evidence
                FROM
                (
                    SELECT
                        fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
                        p.src_group AS src_group,
                        p.dst_group AS dst_group,
                        p.source_kind AS kind,
                        p.location AS location,
                        sum(toUInt128(p.observations)) AS observations,
                        sum(toUInt128(p.samples)) AS samples,
                        sum(toUInt128(p.bytes)) AS bytes,
                        sum(toUInt128(p.measured)) AS measured,
                        sum(toUInt128(p.sum)) AS sum,
                        minIf(p.min, p.measured > 0) AS min,
                        max(p.max) AS max,
                        sum(toUInt128(p.untouched)) AS untouched,
                        sum(toUInt128(p.trimmed)) AS trimmed,
                        sum(toUInt128(p.unjudged)) AS unjudged,
                        sum(toUInt128(p.heavy)) AS heavy,
                        sum(toUInt128(p.heavy_sum)) AS heavy_sum,
                        groupBitOr(p.evidence) AS evidence
                    FROM csigscope.partials_1s AS p
                    FINAL
                    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                        SELECT
                            producer,
                            incarnation,
                            epoch
                        FROM csigscope.superseded
                    ))
                    GROUP BY
                        bucket,
                        src_group,
                        dst_group,
                        kind,
                        location
                ) AS b
                LEFT JOIN
                (
                    SELECT
                        id,
                        if({level:UInt8} = 0, candidates, []) AS ports,
                        greatest(candidate_count, 1) AS port_count,
                        multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
                    FROM csigscope.locations
                    FINAL
                ) AS l ON b.location = l.id
                GROUP BY
                    bucket,
                    src_group,
                    dst_group,
                    kind,
                    place
            ) AS a
            GROUP BY
                bucket,
                src_group,
                dst_group,
                kind
        ) AS c
        LEFT JOIN
        (
            SELECT
                fromUnixTimestamp64Nano(number * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
                src_group,
                dst_group,
                kind,
                (bitAnd(mark.2, 6) = 6) AND (intDiv(mark.2, 8) >= since_when) AS sustained,
                (bitAnd(mark.3, 6) > 0) AND (intDiv(mark.3, 8) >= since_when) AS any_judged,
                (bitAnd(mark.4, 1) = 1) AND (intDiv(mark.4, 8) >= since_when) AS any_loaded
            FROM
            (
                SELECT
                    src_group,
                    dst_group,
                    kind,
                    mark,
                    intDiv(intDiv(mark.1, 8) * toInt64(1000000000), toInt64({step_ns:UInt64})) AS number,
                    least(intDiv((number + 1) * toInt64({step_ns:UInt64}), toInt64(1000000000)), intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64(1000000000)) - 1, toInt64(1000000000))) - 300 AS since_when
                FROM
                (
                    SELECT
                        src_group,
                        dst_group,
                        kind,
                        arraySort(groupArray(((slot * 8) + (2 * multiIf(w.samples < 10, 0, (w.heavy / w.observations) >= {onset:Float64}, 3, ((w.heavy + w.unjudged) / w.observations) < {clear:Float64}, 2, (w.unjudged / w.observations) < {clear:Float64}, 1, 0))) + (w.heavy > 0))) AS marks
                    FROM
                    (
                        SELECT
                            intDiv(toUnixTimestamp64Nano(p.window_start), toInt64(1000000000)) AS slot,
                            p.src_group AS src_group,
                            p.dst_group AS dst_group,
                            p.source_kind AS kind,
                            sum(toFloat64(p.observations)) AS observations,
                            sum(toFloat64(p.samples)) AS samples,
                            sum(toFloat64(p.unjudged)) AS unjudged,
                            sum(toFloat64(p.heavy)) AS heavy
                        FROM csigscope.partials_1s AS p
                        FINAL
                        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute(fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64(1000000000)) - 1, toInt64(1000000000)) - 300) * toInt64(1000000000), toInt64(0)), 'UTC')), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64(1000000000)) - 1, toInt64(1000000000)) - 300) * toInt64(1000000000), toInt64(0)), 'UTC')) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                            SELECT
                                producer,
                                incarnation,
                                epoch
                            FROM csigscope.superseded
                        ))
                        GROUP BY
                            slot,
                            src_group,
                            dst_group,
                            kind
                    ) AS w
                    GROUP BY
                        src_group,
                        dst_group,
                        kind
                )
                ARRAY JOIN arrayFilter((last, m, next) -> ((intDiv(m, 8) >= intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64(1000000000)) - 1, toInt64(1000000000))) AND ((next = 0) OR (intDiv(intDiv(m, 8) * toInt64(1000000000), toInt64({step_ns:UInt64})) != intDiv(intDiv(next, 8) * toInt64(1000000000), toInt64({step_ns:UInt64}))))), arrayZip(marks, arrayFill(m -> (bitAnd(m, 6) >= 4), marks), arrayFill(m -> (bitAnd(m, 6) > 0), marks), arrayFill(m -> (bitAnd(m, 1) = 1), marks)), marks, arrayShiftLeft(marks, 1)) AS mark
            )
        ) AS v ON (c.bucket = v.bucket) AND (c.src_group = v.src_group) AND (c.dst_group = v.dst_group) AND (c.kind = v.kind)
    )
)
WHERE source_kind = best
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.cell_windows_fine
AS SELECT * EXCEPT best
FROM
(
    SELECT
        *,
        min(source_kind) OVER (PARTITION BY src_group, dst_group) AS best
    FROM
    (
        SELECT
            c.bucket AS window_start,
            c.src_group AS src_group,
            c.dst_group AS dst_group,
            c.kind AS source_kind,
            c.observations AS observations,
            c.samples AS samples,
            c.bytes AS bytes,
            c.measured AS measured,
            c.sum AS sum,
            ((toFloat64(c.sum) * if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 1, 1000, 1)) / if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 2, 1000000, 1)) / toFloat64(c.measured) AS mean,
            c.min AS min,
            c.max AS max,
            c.untouched AS untouched,
            c.trimmed AS trimmed,
            c.unjudged AS unjudged,
            c.heavy AS heavy,
            c.heavy_sum AS heavy_sum,
            (top[1]).3 AS mode_location,
            arrayMap(leasts -> arraySort(arrayFilter(p -> if((arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) = arrayMax(leasts)) AND (arrayCount(t -> has(t.4, p), ranked) = 1), arrayFirstIndex(t -> has(t.4, p), ranked) <= indexOf(leasts, arrayMax(leasts)), arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) >= arrayMax(leasts)), arrayDistinct(arrayFlatten(arrayMap(t -> (t.4), ranked))))), [arrayMap(t -> intDiv((bitNot(t.1) + (t.5)) - 1, t.5), ranked)])[1] AS mode_ports,
            arrayMap(t -> (t.3, toUInt64(least(bitNot(t.1), toUInt128(18446744073709551615)))), if({level:UInt8} = 0, top, [])) AS votes,
            if(empty(top), toUInt128(0), bitNot((top[1]).1)) AS mode_count,
            if(empty(top), toUInt128(0), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), (top[1]).2, bitNot((top[1]).2))) AS mode_sum,
            (top[1]).4 AS mode_evidence,
            (top[2]).3 AS runner_up,
            if(length(top) < 2, toUInt128(0), bitNot((top[2]).1)) AS runner_up_count,
            (top[2]).4 AS runner_up_evidence,
            multiIf(v.sustained, 'congested', v.any_judged, if(v.any_loaded, 'brief', 'clear'), c.samples < 10, 'too_few', (toFloat64(c.heavy) / toFloat64(c.observations)) >= {onset:Float64}, 'congested', ((toFloat64(c.heavy) + toFloat64(c.unjudged)) / toFloat64(c.observations)) < {clear:Float64}, if(c.heavy > 0, 'brief', 'clear'), (toFloat64(c.unjudged) / toFloat64(c.observations)) >= {clear:Float64}, 'not_judged', if(c.heavy > 0, 'brief', 'clear')) AS state,
            v.sustained AS sustained,
            v.any_judged AS any_judged,
            v.any_loaded AS any_loaded,
            toFloat64(c.heavy) / toFloat64(c.observations) AS heavy_share,
            toFloat64(c.trimmed) / toFloat64(c.observations) AS trimmed_share
        FROM
        (
            SELECT
                bucket,
                src_group,
                dst_group,
                kind,
                sum(a.observations) AS observations,
                sum(a.samples) AS samples,
                sum(a.bytes) AS bytes,
                sum(a.measured) AS measured,
                sum(a.sum) AS sum,
                minIf(a.min, a.measured > 0) AS min,
                max(a.max) AS max,
                sum(a.untouched) AS untouched,
                sum(a.trimmed) AS trimmed,
                sum(a.unjudged) AS unjudged,
                sum(a.heavy) AS heavy,
                sum(a.heavy_sum) AS heavy_sum,
                groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.evidence), (a.heavy > 0) AND (a.place != 0)) AS top,
                groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.ports, a.port_count), (a.heavy > 0) AND (a.place != 0)) AS ranked
            FROM
            (
                SELECT
                    bucket,
                    src_group,
                    dst_group,
                    kind,
                    if(l.id <= 1, b.location, l.ancestor) AS place,
                    any(l.ports) AS ports,
                    any(greatest(l.port_count, 1)) AS port_count,
                    sum(b.observations) AS observations,
                    sum(b.samples) AS samples,
                    sum(b.bytes) AS bytes,
                    sum(b.measured) AS measured,
                    sum(b.sum) AS sum,
                    minIf(b.min, b.measured > 0) AS min,
                    max(b.max) AS max,
                    sum(b.untouched) AS untouched,
                    sum(b.trimmed) AS trimmed,
                    sum(b.unjudged) AS unjudged,
                    sum(b.heavy) AS heavy,
                    sum(b.heavy_sum) AS heavy_sum,
                    groupBitOr(b.evidence) AS evidence
                FROM
                (
                    SELECT
                        fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
                        p.src_group AS src_group,
                        p.dst_group AS dst_group,
                        p.source_kind AS kind,
                        p.location AS location,
                        sum(toUInt128(p.observations)) AS observations,
                        sum(toUInt128(p.samples)) AS samples,
                        sum(toUInt128(p.bytes)) AS bytes,
                        sum(toUInt128(p.measured)) AS measured,
                        sum(toUInt128(p.sum)) AS sum,
                        minIf(p.min, p.measured > 0) AS min,
                        max(p.max) AS max,
                        sum(toUInt128(p.untouched)) AS untouched,
                        sum(toUInt128(p.trimmed)) AS trimmed,
                        sum(toUInt128(p.unjudged)) AS unjudged,
                        sum(toUInt128(p.heavy)) AS heavy,
                        sum(toUInt128(p.heavy_sum)) AS heavy_sum,
                        groupBitOr(p.evidence) AS evidence
                    FROM csigscope.partials_fine AS p
                    FINAL
                    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
                        SELECT
                            producer,
                            incarnation,
                            epoch
                        FROM csigscope.superseded
                    ))
                    GROUP BY
                        bucket,
                        src_group,
                        dst_group,
                        kind,
                        location
                ) AS b
                LEFT JOIN
                (
                    SELECT
                        id,
                        if({level:UInt8} = 0, candidates, []) AS ports,
                        greatest(candidate_count, 1) AS port_count,
                        multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
                    FROM csigscope.locations
                    FINAL
                ) AS l ON b.location = l.id
                GROUP BY
                    bucket,
                    src_group,
                    dst_group,
                    kind,
                    place
            ) AS a
            GROUP BY
                bucket,
                src_group,
                dst_group,
                kind
        ) AS c
        LEFT JOIN
        (
            SELECT
                fromUnixTimestamp64Nano(number * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
                src_group,
                dst_group,
                kind,
                (bitAnd(mark.2, 6) = 6) AND (intDiv(mark.2, 8) >= since_when) AS sustained,
                (bitAnd(mark.3, 6) > 0) AND (intDiv(mark.3, 8) >= since_when) AS any_judged,
                (bitAnd(mark.4, 1) = 1) AND (intDiv(mark.4, 8) >= since_when) AS any_loaded
            FROM
            (
                SELECT
                    src_group,
                    dst_group,
                    kind,
                    mark,
                    intDiv(intDiv(mark.1, 8) * toInt64({resolution_ns:UInt64}), toInt64({step_ns:UInt64})) AS number,
                    least(intDiv((number + 1) * toInt64({step_ns:UInt64}), toInt64({resolution_ns:UInt64})), intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64({resolution_ns:UInt64})) - 1, toInt64({resolution_ns:UInt64}))) - 300 AS since_when
                FROM
                (
                    SELECT
                        src_group,
                        dst_group,
                        kind,
                        arraySort(groupArray(((slot * 8) + (2 * multiIf(w.samples < 10, 0, (w.heavy / w.observations) >= {onset:Float64}, 3, ((w.heavy + w.unjudged) / w.observations) < {clear:Float64}, 2, (w.unjudged / w.observations) < {clear:Float64}, 1, 0))) + (w.heavy > 0))) AS marks
                    FROM
                    (
                        SELECT
                            intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({resolution_ns:UInt64})) AS slot,
                            p.src_group AS src_group,
                            p.dst_group AS dst_group,
                            p.source_kind AS kind,
                            sum(toFloat64(p.observations)) AS observations,
                            sum(toFloat64(p.samples)) AS samples,
                            sum(toFloat64(p.unjudged)) AS unjudged,
                            sum(toFloat64(p.heavy)) AS heavy
                        FROM csigscope.partials_fine AS p
                        FINAL
                        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute(fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64({resolution_ns:UInt64})) - 1, toInt64({resolution_ns:UInt64})) - 300) * toInt64({resolution_ns:UInt64}), toInt64(0)), 'UTC')), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64({resolution_ns:UInt64})) - 1, toInt64({resolution_ns:UInt64})) - 300) * toInt64({resolution_ns:UInt64}), toInt64(0)), 'UTC')) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
                            SELECT
                                producer,
                                incarnation,
                                epoch
                            FROM csigscope.superseded
                        ))
                        GROUP BY
                            slot,
                            src_group,
                            dst_group,
                            kind
                    ) AS w
                    GROUP BY
                        src_group,
                        dst_group,
                        kind
                )
                ARRAY JOIN arrayFilter((last, m, next) -> ((intDiv(m, 8) >= intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64({resolution_ns:UInt64})) - 1, toInt64({resolution_ns:UInt64}))) AND ((next = 0) OR (intDiv(intDiv(m, 8) * toInt64({resolution_ns:UInt64}), toInt64({step_ns:UInt64})) != intDiv(intDiv(next, 8) * toInt64({resolution_ns:UInt64}), toInt64({step_ns:UInt64}))))), arrayZip(marks, arrayFill(m -> (bitAnd(m, 6) >= 4), marks), arrayFill(m -> (bitAnd(m, 6) > 0), marks), arrayFill(m -> (bitAnd(m, 1) = 1), marks)), marks, arrayShiftLeft(marks, 1)) AS mark
            )
        ) AS v ON (c.bucket = v.bucket) AND (c.src_group = v.src_group) AND (c.dst_group = v.dst_group) AND (c.kind = v.kind)
    )
)
WHERE source_kind = best
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.cells_1m
AS SELECT
    c.src_group AS src_group,
    c.dst_group AS dst_group,
    c.kind AS source_kind,
    c.observations AS observations,
    c.samples AS samples,
    c.bytes AS bytes,
    c.measured AS measured,
    c.sum AS sum,
    ((toFloat64(c.sum) * if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 1, 1000, 1)) / if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 2, 1000000, 1)) / toFloat64(c.measured) AS mean,
    c.min AS min,
    c.max AS max,
    c.later_measured AS later_measured,
    c.later_sum AS later_sum,
    c.untouched AS untouched,
    c.trimmed AS trimmed,
    c.unjudged AS unjudged,
    c.heavy AS heavy,
    c.heavy_sum AS heavy_sum,
    (top[1]).3 AS mode_location,
    arrayMap(leasts -> arraySort(arrayFilter(p -> if((arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) = arrayMax(leasts)) AND (arrayCount(t -> has(t.4, p), ranked) = 1), arrayFirstIndex(t -> has(t.4, p), ranked) <= indexOf(leasts, arrayMax(leasts)), arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) >= arrayMax(leasts)), arrayDistinct(arrayFlatten(arrayMap(t -> (t.4), ranked))))), [arrayMap(t -> intDiv((bitNot(t.1) + (t.5)) - 1, t.5), ranked)])[1] AS mode_ports,
    arrayMap(t -> (t.3, toUInt64(least(bitNot(t.1), toUInt128(18446744073709551615)))), if({level:UInt8} = 0, top, [])) AS votes,
    if(empty(top), toUInt128(0), bitNot((top[1]).1)) AS mode_count,
    if(empty(top), toUInt128(0), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), (top[1]).2, bitNot((top[1]).2))) AS mode_sum,
    (top[1]).4 AS mode_evidence,
    (top[2]).3 AS runner_up,
    if(length(top) < 2, toUInt128(0), bitNot((top[2]).1)) AS runner_up_count,
    (top[2]).4 AS runner_up_evidence,
    multiIf(v.sustained, 'congested', v.any_judged, if(v.any_loaded, 'brief', 'clear'), c.samples < 10, 'too_few', (toFloat64(c.heavy) / toFloat64(c.observations)) >= {onset:Float64}, 'congested', ((toFloat64(c.heavy) + toFloat64(c.unjudged)) / toFloat64(c.observations)) < {clear:Float64}, if(c.heavy > 0, 'brief', 'clear'), (toFloat64(c.unjudged) / toFloat64(c.observations)) >= {clear:Float64}, 'not_judged', if(c.heavy > 0, 'brief', 'clear')) AS state,
    fromUnixTimestamp64Nano(v.since * toInt64(60000000000), 'UTC') AS since,
    v.judged_windows AS judged_windows,
    v.congested_windows AS congested_windows,
    v.sustained AS sustained,
    v.any_judged AS any_judged,
    v.any_loaded AS any_loaded,
    toFloat64(c.heavy) / toFloat64(c.observations) AS heavy_share,
    toFloat64(c.trimmed) / toFloat64(c.observations) AS trimmed_share
FROM
(
    SELECT
        src_group,
        dst_group,
        kind,
        sum(a.observations) AS observations,
        sum(a.samples) AS samples,
        sum(a.bytes) AS bytes,
        sum(a.measured) AS measured,
        sum(a.sum) AS sum,
        minIf(a.min, a.measured > 0) AS min,
        max(a.max) AS max,
        sum(a.later_measured) AS later_measured,
        sum(a.later_sum) AS later_sum,
        sum(a.untouched) AS untouched,
        sum(a.trimmed) AS trimmed,
        sum(a.unjudged) AS unjudged,
        sum(a.heavy) AS heavy,
        sum(a.heavy_sum) AS heavy_sum,
        groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.evidence), (a.heavy > 0) AND (a.place != 0)) AS top,
        groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.ports, a.port_count), (a.heavy > 0) AND (a.place != 0)) AS ranked
    FROM
    (
        SELECT
            src_group,
            dst_group,
            kind,
            if(l.id <= 1, b.location, l.ancestor) AS place,
            any(l.ports) AS ports,
            any(greatest(l.port_count, 1)) AS port_count,
            sum(b.observations) AS observations,
            sum(b.samples) AS samples,
            sum(b.bytes) AS bytes,
            sum(b.measured) AS measured,
            sum(b.sum) AS sum,
            minIf(b.min, b.measured > 0) AS min,
            max(b.max) AS max,
            sum(b.later_measured) AS later_measured,
            sum(b.later_sum) AS later_sum,
            sum(b.untouched) AS untouched,
            sum(b.trimmed) AS trimmed,
            sum(b.unjudged) AS unjudged,
            sum(b.heavy) AS heavy,
            sum(b.heavy_sum) AS heavy_sum,
            groupBitOr(b.evidence) AS evidence
        FROM
        (
            SELECT
                p.src_group AS src_group,
                p.dst_group AS dst_group,
                p.source_kind AS kind,
                p.location AS location,
                sum(toUInt128(p.observations)) AS observations,
                sum(toUInt128(p.samples)) AS samples,
                sum(toUInt128(p.bytes)) AS bytes,
                sum(toUInt128(p.measured)) AS measured,
                sum(toUInt128(p.sum)) AS sum,
                minIf(p.min, p.measured > 0) AS min,
                max(p.max) AS max,
                sumIf(toUInt128(p.measured), p.window_start >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_measured,
                sumIf(toUInt128(p.sum), p.window_start >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_sum,
                sum(toUInt128(p.untouched)) AS untouched,
                sum(toUInt128(p.trimmed)) AS trimmed,
                sum(toUInt128(p.unjudged)) AS unjudged,
                sum(toUInt128(p.heavy)) AS heavy,
                sum(toUInt128(p.heavy_sum)) AS heavy_sum,
                groupBitOr(p.evidence) AS evidence
            FROM csigscope.partials_1m AS p
            FINAL
            WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                SELECT
                    producer,
                    incarnation,
                    epoch
                FROM csigscope.superseded
            ))
            GROUP BY
                src_group,
                dst_group,
                kind,
                location
        ) AS b
        LEFT JOIN
        (
            SELECT
                id,
                if({level:UInt8} = 0, candidates, []) AS ports,
                greatest(candidate_count, 1) AS port_count,
                multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
            FROM csigscope.locations
            FINAL
        ) AS l ON b.location = l.id
        GROUP BY
            src_group,
            dst_group,
            kind,
            place
    ) AS a
    GROUP BY
        src_group,
        dst_group,
        kind
) AS c
LEFT JOIN
(
    SELECT
        src_group,
        dst_group,
        kind,
        arrayMax(arrayMap(m -> if(bitAnd(m, 6) = 4, m, 0), marks)) AS last_below,
        intDiv(arrayFirst(m -> ((bitAnd(m, 6) = 6) AND (m > last_below)), marks), 8) AS since,
        since > 0 AS sustained,
        arrayExists(m -> (bitAnd(m, 6) > 0), marks) AS any_judged,
        arrayExists(m -> (bitAnd(m, 1) = 1), marks) AS any_loaded,
        arrayCount(m -> ((bitAnd(m, 6) > 0) AND (intDiv(m, 8) >= greatest(intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64(60000000000)) - 1, toInt64(60000000000)), intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64(60000000000)) - 1, toInt64(60000000000)) - 300))), marks) AS judged_windows,
        arrayCount((m, d) -> ((bitAnd(m, 6) > 0) AND (intDiv(m, 8) >= greatest(intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64(60000000000)) - 1, toInt64(60000000000)), intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64(60000000000)) - 1, toInt64(60000000000)) - 300)) AND (bitAnd(d, 6) = 6)), marks, arrayFill(m -> (bitAnd(m, 6) >= 4), marks)) AS congested_windows
    FROM
    (
        SELECT
            src_group,
            dst_group,
            kind,
            arraySort(groupArray(((slot * 8) + (2 * multiIf(w.samples < 10, 0, (w.heavy / w.observations) >= {onset:Float64}, 3, ((w.heavy + w.unjudged) / w.observations) < {clear:Float64}, 2, (w.unjudged / w.observations) < {clear:Float64}, 1, 0))) + (w.heavy > 0))) AS marks
        FROM
        (
            SELECT
                intDiv(toUnixTimestamp64Nano(p.window_start), toInt64(60000000000)) AS slot,
                p.src_group AS src_group,
                p.dst_group AS dst_group,
                p.source_kind AS kind,
                sum(toFloat64(p.observations)) AS observations,
                sum(toFloat64(p.samples)) AS samples,
                sum(toFloat64(p.unjudged)) AS unjudged,
                sum(toFloat64(p.heavy)) AS heavy
            FROM csigscope.partials_1m AS p
            FINAL
            WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour(fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64(60000000000)) - 1, toInt64(60000000000)) - 300) * toInt64(60000000000), toInt64(0)), 'UTC')), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64(60000000000)) - 1, toInt64(60000000000)) - 300) * toInt64(60000000000), toInt64(0)), 'UTC')) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                SELECT
                    producer,
                    incarnation,
                    epoch
                FROM csigscope.superseded
            ))
            GROUP BY
                slot,
                src_group,
                dst_group,
                kind
        ) AS w
        GROUP BY
            src_group,
            dst_group,
            kind
    )
) AS v ON (c.src_group = v.src_group) AND (c.dst_group = v.dst_group) AND (c.kind = v.kind)
ORDER BY source_kind ASC
LIMIT 1 BY
    src_group,
    dst_group
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.cells_1s
AS SELECT
    c.src_group AS src_group,
    c.dst_group AS dst_group,
    c.kind AS source_kind,
    c.observations AS observations,
    c.samples AS samples,
    c.bytes AS bytes,
    c.measured AS measured,
    c.sum AS sum,
    ((toFloat64(c.sum) * if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 1, 1000, 1)) / if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 2, 1000000, 1)) / toFloat64(c.measured) AS mean,
    c.min AS min,
    c.max AS max,
    c.later_measured AS later_measured,
    c.later_sum AS later_sum,
    c.untouched AS untouched,
    c.trimmed AS trimmed,
    c.unjudged AS unjudged,
    c.heavy AS heavy,
    c.heavy_sum AS heavy_sum,
    (top[1]).3 AS mode_location,
    arrayMap(leasts -> arraySort(arrayFilter(p -> if((arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) = arrayMax(leasts)) AND (arrayCount(t -> has(t.4, p), ranked) = 1), arrayFirstIndex(t -> has(t.4, p), ranked) <= indexOf(leasts, arrayMax(leasts)), arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) >= arrayMax(leasts)), arrayDistinct(arrayFlatten(arrayMap(t -> (t.4), ranked))))), [arrayMap(t -> intDiv((bitNot(t.1) + (t.5)) - 1, t.5), ranked)])[1] AS mode_ports,
    arrayMap(t -> (t.3, toUInt64(least(bitNot(t.1), toUInt128(18446744073709551615)))), if({level:UInt8} = 0, top, [])) AS votes,
    if(empty(top), toUInt128(0), bitNot((top[1]).1)) AS mode_count,
    if(empty(top), toUInt128(0), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), (top[1]).2, bitNot((top[1]).2))) AS mode_sum,
    (top[1]).4 AS mode_evidence,
    (top[2]).3 AS runner_up,
    if(length(top) < 2, toUInt128(0), bitNot((top[2]).1)) AS runner_up_count,
    (top[2]).4 AS runner_up_evidence,
    multiIf(v.sustained, 'congested', v.any_judged, if(v.any_loaded, 'brief', 'clear'), c.samples < 10, 'too_few', (toFloat64(c.heavy) / toFloat64(c.observations)) >= {onset:Float64}, 'congested', ((toFloat64(c.heavy) + toFloat64(c.unjudged)) / toFloat64(c.observations)) < {clear:Float64}, if(c.heavy > 0, 'brief', 'clear'), (toFloat64(c.unjudged) / toFloat64(c.observations)) >= {clear:Float64}, 'not_judged', if(c.heavy > 0, 'brief', 'clear')) AS state,
    fromUnixTimestamp64Nano(v.since * toInt64(1000000000), 'UTC') AS since,
    v.judged_windows AS judged_windows,
    v.congested_windows AS congested_windows,
    v.sustained AS sustained,
    v.any_judged AS any_judged,
    v.any_loaded AS any_loaded,
    toFloat64(c.heavy) / toFloat64(c.observations) AS heavy_share,
    toFloat64(c.trimmed) / toFloat64(c.observations) AS trimmed_share
FROM
(
    SELECT
        src_group,
        dst_group,
        kind,
        sum(a.observations) AS observations,
        sum(a.samples) AS samples,
        sum(a.bytes) AS bytes,
        sum(a.measured) AS measured,
        sum(a.sum) AS sum,
        minIf(a.min, a.measured > 0) AS min,
        max(a.max) AS max,
        sum(a.later_measured) AS later_measured,
        sum(a.later_sum) AS later_sum,
        sum(a.untouched) AS untouched,
        sum(a.trimmed) AS trimmed,
        sum(a.unjudged) AS unjudged,
        sum(a.heavy) AS heavy,
        sum(a.heavy_sum) AS heavy_sum,
        groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.evidence), (a.heavy > 0) AND (a.place != 0)) AS top,
        groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.ports, a.port_count), (a.heavy > 0) AND (a.place != 0)) AS ranked
    FROM
    (
        SELECT
            src_group,
            dst_group,
            kind,
            if(l.id <= 1, b.location, l.ancestor) AS place,
            any(l.ports) AS ports,
            any(greatest(l.port_count, 1)) AS port_count,
            sum(b.observations) AS observations,
            sum(b.samples) AS samples,
            sum(b.bytes) AS bytes,
            sum(b.measured) AS measured,
            sum(b.sum) AS sum,
            minIf(b.min, b.measured > 0) AS min,
            max(b.max) AS max,
            sum(b.later_measured) AS later_measured,
            sum(b.later_sum) AS later_sum,
            sum(b.untouched) AS untouched,
            sum(b.trimmed) AS trimmed,
            sum(b.unjudged) AS unjudged,
            sum(b.heavy) AS heavy,
            sum(b.heavy_sum) AS heavy_sum,
            groupBitOr(b.evidence) AS evidence
        FROM
        (
            SELECT
                p.src_group AS src_group,
                p.dst_group AS dst_group,
                p.source_kind AS kind,
                p.location AS location,
                sum(toUInt128(p.observations)) AS observations,
                sum(toUInt128(p.samples)) AS samples,
                sum(toUInt128(p.bytes)) AS bytes,
                sum(toUInt128(p.measured)) AS measured,
                sum(toUInt128(p.sum)) AS sum,
                minIf(p.min, p.measured > 0) AS min,
                max(p.max) AS max,
                sumIf(toUInt128(p.measured), p.window_start >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_measured,
                sumIf(toUInt128(p.sum), p.window_start >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_sum,
                sum(toUInt128(p.untouched)) AS untouched,
                sum(toUInt128(p.trimmed)) AS trimmed,
                sum(toUInt128(p.unjudged)) AS unjudged,
                sum(toUInt128(p.heavy)) AS heavy,
                sum(toUInt128(p.heavy_sum)) AS heavy_sum,
                groupBitOr(p.evidence) AS evidence
            FROM csigscope.partials_1s AS p
            FINAL
            WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                SELECT
                    producer,
                    incarnation,
                    epoch
                FROM csigscope.superseded
            ))
            GROUP BY
                src_group,
                dst_group,
                kind,
                location
        ) AS b
        LEFT JOIN
        (
            SELECT
                id,
                if({level:UInt8} = 0, candidates, []) AS ports,
                greatest(candidate_count, 1) AS port_count,
                multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
            FROM csigscope.locations
            FINAL
        ) AS l ON b.location = l.id
        GROUP BY
            src_group,
            dst_group,
            kind,
            place
    ) AS a
    GROUP BY
        src_group,
        dst_group,
        kind
) AS c
LEFT JOIN
(
    SELECT
        src_group,
        dst_group,
        kind,
        arrayMax(arrayMap(m -> if(bitAnd(m, 6) = 4, m, 0), marks)) AS last_below,
        intDiv(arrayFirst(m -> ((bitAnd(m, 6) = 6) AND (m > last_below)), marks), 8) AS since,
        since > 0 AS sustained,
        arrayExists(m -> (bitAnd(m, 6) > 0), marks) AS any_judged,
        arrayExists(m -> (bitAnd(m, 1) = 1), marks) AS any_loaded,
        arrayCount(m -> ((bitAnd(m, 6) > 0) AND (intDiv(m, 8) >= greatest(intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64(1000000000)) - 1, toInt64(1000000000)), intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64(1000000000)) - 1, toInt64(1000000000)) - 300))), marks) AS judged_windows,
        arrayCount((m, d) -> ((bitAnd(m, 6) > 0) AND (intDiv(m, 8) >= greatest(intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64(1000000000)) - 1, toInt64(1000000000)), intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64(1000000000)) - 1, toInt64(1000000000)) - 300)) AND (bitAnd(d, 6) = 6)), marks, arrayFill(m -> (bitAnd(m, 6) >= 4), marks)) AS congested_windows
    FROM
    (
        SELECT
            src_group,
            dst_group,
            kind,
            arraySort(groupArray(((slot * 8) + (2 * multiIf(w.samples < 10, 0, (w.heavy / w.observations) >= {onset:Float64}, 3, ((w.heavy + w.unjudged) / w.observations) < {clear:Float64}, 2, (w.unjudged / w.observations) < {clear:Float64}, 1, 0))) + (w.heavy > 0))) AS marks
        FROM
        (
            SELECT
                intDiv(toUnixTimestamp64Nano(p.window_start), toInt64(1000000000)) AS slot,
                p.src_group AS src_group,
                p.dst_group AS dst_group,
                p.source_kind AS kind,
                sum(toFloat64(p.observations)) AS observations,
                sum(toFloat64(p.samples)) AS samples,
                sum(toFloat64(p.unjudged)) AS unjudged,
                sum(toFloat64(p.heavy)) AS heavy
            FROM csigscope.partials_1s AS p
            FINAL
            WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute(fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64(1000000000)) - 1, toInt64(1000000000)) - 300) * toInt64(1000000000), toInt64(0)), 'UTC')), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64(1000000000)) - 1, toInt64(1000000000)) - 300) * toInt64(1000000000), toInt64(0)), 'UTC')) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                SELECT
                    producer,
                    incarnation,
                    epoch
                FROM csigscope.superseded
            ))
            GROUP BY
                slot,
                src_group,
                dst_group,
                kind
        ) AS w
        GROUP BY
            src_group,
            dst_group,
            kind
    )
) AS v ON (c.src_group = v.src_group) AND (c.dst_group = v.dst_group) AND (c.kind = v.kind)
ORDER BY source_kind ASC
LIMIT 1 BY
    src_group,
    dst_group
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.cells_fine
AS SELECT
    c.src_group AS src_group,
    c.dst_group AS dst_group,
    c.kind AS source_kind,
    c.observations AS observations,
    c.samples AS samples,
    c.bytes AS bytes,
    c.measured AS measured,
    c.sum AS sum,
    ((toFloat64(c.sum) * if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 1, 1000, 1)) / if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 2, 1000000, 1)) / toFloat64(c.measured) AS mean,
    c.min AS min,
    c.max AS max,
    c.later_measured AS later_measured,
    c.later_sum AS later_sum,
    c.untouched AS untouched,
    c.trimmed AS trimmed,
    c.unjudged AS unjudged,
    c.heavy AS heavy,
    c.heavy_sum AS heavy_sum,
    (top[1]).3 AS mode_location,
    arrayMap(leasts -> arraySort(arrayFilter(p -> if((arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) = arrayMax(leasts)) AND (arrayCount(t -> has(t.4, p), ranked) = 1), arrayFirstIndex(t -> has(t.4, p), ranked) <= indexOf(leasts, arrayMax(leasts)), arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) >= arrayMax(leasts)), arrayDistinct(arrayFlatten(arrayMap(t -> (t.4), ranked))))), [arrayMap(t -> intDiv((bitNot(t.1) + (t.5)) - 1, t.5), ranked)])[1] AS mode_ports,
    arrayMap(t -> (t.3, toUInt64(least(bitNot(t.1), toUInt128(18446744073709551615)))), if({level:UInt8} = 0, top, [])) AS votes,
    if(empty(top), toUInt128(0), bitNot((top[1]).1)) AS mode_count,
    if(empty(top), toUInt128(0), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), (top[1]).2, bitNot((top[1]).2))) AS mode_sum,
    (top[1]).4 AS mode_evidence,
    (top[2]).3 AS runner_up,
    if(length(top) < 2, toUInt128(0), bitNot((top[2]).1)) AS runner_up_count,
    (top[2]).4 AS runner_up_evidence,
    multiIf(v.sustained, 'congested', v.any_judged, if(v.any_loaded, 'brief', 'clear'), c.samples < 10, 'too_few', (toFloat64(c.heavy) / toFloat64(c.observations)) >= {onset:Float64}, 'congested', ((toFloat64(c.heavy) + toFloat64(c.unjudged)) / toFloat64(c.observations)) < {clear:Float64}, if(c.heavy > 0, 'brief', 'clear'), (toFloat64(c.unjudged) / toFloat64(c.observations)) >= {clear:Float64}, 'not_judged', if(c.heavy > 0, 'brief', 'clear')) AS state,
    fromUnixTimestamp64Nano(v.since * toInt64({resolution_ns:UInt64}), 'UTC') AS since,
    v.judged_windows AS judged_windows,
    v.congested_windows AS congested_windows,
    v.sustained AS sustained,
    v.any_judged AS any_judged,
    v.any_loaded AS any_loaded,
    toFloat64(c.heavy) / toFloat64(c.observations) AS heavy_share,
    toFloat64(c.trimmed) / toFloat64(c.observations) AS trimmed_share
FROM
(
    SELECT
        src_group,
        dst_group,
        kind,
        sum(a.observations) AS observations,
        sum(a.samples) AS samples,
        sum(a.bytes) AS bytes,
        sum(a.measured) AS measured,
        sum(a.sum) AS sum,
        minIf(a.min, a.measured > 0) AS min,
        max(a.max) AS max,
        sum(a.later_measured) AS later_measured,
        sum(a.later_sum) AS later_sum,
        sum(a.untouched) AS untouched,
        sum(a.trimmed) AS trimmed,
        sum(a.unjudged) AS unjudged,
        sum(a.heavy) AS heavy,
        sum(a.heavy_sum) AS heavy_sum,
        groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.evidence), (a.heavy > 0) AND (a.place != 0)) AS top,
        groupArraySortedIf(32)((bitNot(a.heavy), if((({signal:UInt8} < 2) OR (({signal:UInt8} >= 32) AND ({signal:UInt8} <= 95))), a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.ports, a.port_count), (a.heavy > 0) AND (a.place != 0)) AS ranked
    FROM
    (
        SELECT
            src_group,
            dst_group,
            kind,
            if(l.id <= 1, b.location, l.ancestor) AS place,
            any(l.ports) AS ports,
            any(greatest(l.port_count, 1)) AS port_count,
            sum(b.observations) AS observations,
            sum(b.samples) AS samples,
            sum(b.bytes) AS bytes,
            sum(b.measured) AS measured,
            sum(b.sum) AS sum,
            minIf(b.min, b.measured > 0) AS min,
            max(b.max) AS max,
            sum(b.later_measured) AS later_measured,
            sum(b.later_sum) AS later_sum,
            sum(b.untouched) AS untouched,
            sum(b.trimmed) AS trimmed,
            sum(b.unjudged) AS unjudged,
            sum(b.heavy) AS heavy,
            sum(b.heavy_sum) AS heavy_sum,
            groupBitOr(b.evidence) AS evidence
        FROM
        (
            SELECT
                p.src_group AS src_group,
                p.dst_group AS dst_group,
                p.source_kind AS kind,
                p.location AS location,
                sum(toUInt128(p.observations)) AS observations,
                sum(toUInt128(p.samples)) AS samples,
                sum(toUInt128(p.bytes)) AS bytes,
                sum(toUInt128(p.measured)) AS measured,
                sum(toUInt128(p.sum)) AS sum,
                minIf(p.min, p.measured > 0) AS min,
                max(p.max) AS max,
                sumIf(toUInt128(p.measured), p.window_start >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_measured,
                sumIf(toUInt128(p.sum), p.window_start >= fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')) AS later_sum,
                sum(toUInt128(p.untouched)) AS untouched,
                sum(toUInt128(p.trimmed)) AS trimmed,
                sum(toUInt128(p.unjudged)) AS unjudged,
                sum(toUInt128(p.heavy)) AS heavy,
                sum(toUInt128(p.heavy_sum)) AS heavy_sum,
                groupBitOr(p.evidence) AS evidence
            FROM csigscope.partials_fine AS p
            FINAL
            WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
                SELECT
                    producer,
                    incarnation,
                    epoch
                FROM csigscope.superseded
            ))
            GROUP BY
                src_group,
                dst_group,
                kind,
                location
        ) AS b
        LEFT JOIN
        (
            SELECT
                id,
                if({level:UInt8} = 0, candidates, []) AS ports,
                greatest(candidate_count, 1) AS port_count,
                multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
            FROM csigscope.locations
            FINAL
        ) AS l ON b.location = l.id
        GROUP BY
            src_group,
            dst_group,
            kind,
            place
    ) AS a
    GROUP BY
        src_group,
        dst_group,
        kind
) AS c
LEFT JOIN
(
    SELECT
        src_group,
        dst_group,
        kind,
        arrayMax(arrayMap(m -> if(bitAnd(m, 6) = 4, m, 0), marks)) AS last_below,
        intDiv(arrayFirst(m -> ((bitAnd(m, 6) = 6) AND (m > last_below)), marks), 8) AS since,
        since > 0 AS sustained,
        arrayExists(m -> (bitAnd(m, 6) > 0), marks) AS any_judged,
        arrayExists(m -> (bitAnd(m, 1) = 1), marks) AS any_loaded,
        arrayCount(m -> ((bitAnd(m, 6) > 0) AND (intDiv(m, 8) >= greatest(intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64({resolution_ns:UInt64})) - 1, toInt64({resolution_ns:UInt64})), intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64({resolution_ns:UInt64})) - 1, toInt64({resolution_ns:UInt64})) - 300))), marks) AS judged_windows,
        arrayCount((m, d) -> ((bitAnd(m, 6) > 0) AND (intDiv(m, 8) >= greatest(intDiv((toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64({resolution_ns:UInt64})) - 1, toInt64({resolution_ns:UInt64})), intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64({resolution_ns:UInt64})) - 1, toInt64({resolution_ns:UInt64})) - 300)) AND (bitAnd(d, 6) = 6)), marks, arrayFill(m -> (bitAnd(m, 6) >= 4), marks)) AS congested_windows
    FROM
    (
        SELECT
            src_group,
            dst_group,
            kind,
            arraySort(groupArray(((slot * 8) + (2 * multiIf(w.samples < 10, 0, (w.heavy / w.observations) >= {onset:Float64}, 3, ((w.heavy + w.unjudged) / w.observations) < {clear:Float64}, 2, (w.unjudged / w.observations) < {clear:Float64}, 1, 0))) + (w.heavy > 0))) AS marks
        FROM
        (
            SELECT
                intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({resolution_ns:UInt64})) AS slot,
                p.src_group AS src_group,
                p.dst_group AS dst_group,
                p.source_kind AS kind,
                sum(toFloat64(p.observations)) AS observations,
                sum(toFloat64(p.samples)) AS samples,
                sum(toFloat64(p.unjudged)) AS unjudged,
                sum(toFloat64(p.heavy)) AS heavy
            FROM csigscope.partials_fine AS p
            FINAL
            WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute(fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64({resolution_ns:UInt64})) - 1, toInt64({resolution_ns:UInt64})) - 300) * toInt64({resolution_ns:UInt64}), toInt64(0)), 'UTC')), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= fromUnixTimestamp64Nano(greatest((intDiv((toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64({resolution_ns:UInt64})) - 1, toInt64({resolution_ns:UInt64})) - 300) * toInt64({resolution_ns:UInt64}), toInt64(0)), 'UTC')) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
                SELECT
                    producer,
                    incarnation,
                    epoch
                FROM csigscope.superseded
            ))
            GROUP BY
                slot,
                src_group,
                dst_group,
                kind
        ) AS w
        GROUP BY
            src_group,
            dst_group,
            kind
    )
) AS v ON (c.src_group = v.src_group) AND (c.dst_group = v.dst_group) AND (c.kind = v.kind)
ORDER BY source_kind ASC
LIMIT 1 BY
    src_group,
    dst_group
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.code_windows_1m
AS SELECT
    bucket AS window_start,
    src_group,
    dst_group,
    encoding,
    code,
    seen AS observations
FROM
(
    SELECT
        fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
        p.src_group AS src_group,
        p.dst_group AS dst_group,
        p.encoding AS encoding,
        sumMap(CAST(p.dist, 'Map(UInt16, UInt128)')) AS codes
    FROM csigscope.partials_1m AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_1m
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        bucket,
        src_group,
        dst_group,
        encoding
)
ARRAY JOIN
    mapKeys(codes) AS code,
    mapValues(codes) AS seen
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.code_windows_1s
AS SELECT
    bucket AS window_start,
    src_group,
    dst_group,
    encoding,
    code,
    seen AS observations
FROM
(
    SELECT
        fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
        p.src_group AS src_group,
        p.dst_group AS dst_group,
        p.encoding AS encoding,
        sumMap(CAST(p.dist, 'Map(UInt16, UInt128)')) AS codes
    FROM csigscope.partials_1s AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_1s
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        bucket,
        src_group,
        dst_group,
        encoding
)
ARRAY JOIN
    mapKeys(codes) AS code,
    mapValues(codes) AS seen
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.code_windows_fine
AS SELECT
    bucket AS window_start,
    src_group,
    dst_group,
    encoding,
    code,
    seen AS observations
FROM
(
    SELECT
        fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
        p.src_group AS src_group,
        p.dst_group AS dst_group,
        p.encoding AS encoding,
        sumMap(CAST(p.dist, 'Map(UInt16, UInt128)')) AS codes
    FROM csigscope.partials_fine AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_fine
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        bucket,
        src_group,
        dst_group,
        encoding
)
ARRAY JOIN
    mapKeys(codes) AS code,
    mapValues(codes) AS seen
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.coverage_cells_1m
AS SELECT
    src_group,
    dst_group,
    sum(toUInt128(p.observations)) AS observations,
    sumIf(toUInt128(p.observations), p.source_kind = 1) AS tags,
    sumIf(toUInt128(p.observations), p.source_kind = 2) AS reflections,
    sum(toUInt128(p.untouched)) AS untouched,
    sum(toUInt128(p.trimmed)) AS trimmed,
    sumIf(toUInt128(p.observations), p.location = 1) AS overflow,
    uniqExact(p.producer) AS producers,
    (uniqExact(p.window_start) * 60000000000) / (toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')})) AS covered
FROM csigscope.partials_1m AS p
FINAL
WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
    SELECT
        producer,
        incarnation,
        epoch
    FROM csigscope.superseded
))
GROUP BY
    src_group,
    dst_group
ORDER BY
    covered ASC,
    src_group ASC,
    dst_group ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.coverage_cells_1s
AS SELECT
    src_group,
    dst_group,
    sum(toUInt128(p.observations)) AS observations,
    sumIf(toUInt128(p.observations), p.source_kind = 1) AS tags,
    sumIf(toUInt128(p.observations), p.source_kind = 2) AS reflections,
    sum(toUInt128(p.untouched)) AS untouched,
    sum(toUInt128(p.trimmed)) AS trimmed,
    sumIf(toUInt128(p.observations), p.location = 1) AS overflow,
    uniqExact(p.producer) AS producers,
    (uniqExact(p.window_start) * 1000000000) / (toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')})) AS covered
FROM csigscope.partials_1s AS p
FINAL
WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
    SELECT
        producer,
        incarnation,
        epoch
    FROM csigscope.superseded
))
GROUP BY
    src_group,
    dst_group
ORDER BY
    covered ASC,
    src_group ASC,
    dst_group ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.coverage_cells_fine
AS SELECT
    src_group,
    dst_group,
    sum(toUInt128(p.observations)) AS observations,
    sumIf(toUInt128(p.observations), p.source_kind = 1) AS tags,
    sumIf(toUInt128(p.observations), p.source_kind = 2) AS reflections,
    sum(toUInt128(p.untouched)) AS untouched,
    sum(toUInt128(p.trimmed)) AS trimmed,
    sumIf(toUInt128(p.observations), p.location = 1) AS overflow,
    uniqExact(p.producer) AS producers,
    (uniqExact(p.window_start) * {resolution_ns:UInt64}) / (toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')})) AS covered
FROM csigscope.partials_fine AS p
FINAL
WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
    SELECT
        producer,
        incarnation,
        epoch
    FROM csigscope.superseded
))
GROUP BY
    src_group,
    dst_group
ORDER BY
    covered ASC,
    src_group ASC,
    dst_group ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.coverage_windows_1m
AS SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS window_start,
    sum(c.tags) + sum(c.reflections) AS observations,
    sum(c.tags) AS tags,
    sum(c.reflections) AS reflections,
    sum(c.untouched) AS untouched,
    sum(c.trimmed) AS trimmed,
    sum(c.overflow) AS overflow,
    sum(c.producers) AS producers,
    sum(c.lost) AS lost,
    sum(c.gap_ns) AS gap_ns,
    gap_ns / (least((slot + 1) * toInt64({step_ns:UInt64}), toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')})) - greatest(slot * toInt64({step_ns:UInt64}), toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}))) AS gap_share
FROM
(
    SELECT
        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
        sumIf(toUInt128(p.observations), p.source_kind = 1) AS tags,
        sumIf(toUInt128(p.observations), p.source_kind = 2) AS reflections,
        sum(toUInt128(p.untouched)) AS untouched,
        sum(toUInt128(p.trimmed)) AS trimmed,
        sumIf(toUInt128(p.observations), p.location = 1) AS overflow,
        uniqExact(p.producer) AS producers,
        toUInt128(0) AS lost,
        toInt64(0) AS gap_ns
    FROM csigscope.partials_1m AS p
    FINAL
    WHERE indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    ))
    GROUP BY slot
    UNION ALL
    SELECT
        slot,
        0,
        0,
        0,
        0,
        0,
        0,
        sum(g.lost),
        sum(greatest(g.end - greatest(g.begin, g.known), 0))
    FROM
    (
        SELECT
            slot,
            begin,
            end,
            lost,
            max(end) OVER (PARTITION BY slot ORDER BY begin ASC, end ASC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS known
        FROM
        (
            SELECT
                arrayJoin(range(toUInt64(intDiv(first, toInt64({step_ns:UInt64}))), toUInt64(intDiv(last - 1, toInt64({step_ns:UInt64})) + 1))) AS slot_,
                toInt64(slot_) AS slot,
                greatest(slot * toInt64({step_ns:UInt64}), first) AS begin,
                least((slot + 1) * toInt64({step_ns:UInt64}), last) AS stop,
                if((g.reason IN ('drops', 'mirror')), begin, stop) AS end,
                intDiv(toUInt128(g.observations) * toUInt128(stop - begin), toUInt128(toUnixTimestamp64Nano(g.window_to) - toUnixTimestamp64Nano(g.window_from))) AS lost,
                greatest(toUnixTimestamp64Nano(g.window_from), toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')})) AS first,
                least(toUnixTimestamp64Nano(g.window_to), toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')})) AS last
            FROM csigscope.current_gaps AS g
            WHERE ((g.resolution_ns = 60000000000) OR ((g.resolution_ns = 0) AND ((g.producer = 0) OR (g.reason IN ('restart', 'drops', 'mirror'))))) AND (g.window_from < g.window_to) AND (g.window_from < {to:DateTime64(9, 'UTC')}) AND (g.window_to > {from:DateTime64(9, 'UTC')}) AND ((g.producer, g.incarnation, g.epoch) NOT IN (
                SELECT
                    producer,
                    incarnation,
                    epoch
                FROM csigscope.superseded
            ))
        )
    ) AS g
    GROUP BY slot
) AS c
GROUP BY slot
ORDER BY slot ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.coverage_windows_1s
AS SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS window_start,
    sum(c.tags) + sum(c.reflections) AS observations,
    sum(c.tags) AS tags,
    sum(c.reflections) AS reflections,
    sum(c.untouched) AS untouched,
    sum(c.trimmed) AS trimmed,
    sum(c.overflow) AS overflow,
    sum(c.producers) AS producers,
    sum(c.lost) AS lost,
    sum(c.gap_ns) AS gap_ns,
    gap_ns / (least((slot + 1) * toInt64({step_ns:UInt64}), toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')})) - greatest(slot * toInt64({step_ns:UInt64}), toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}))) AS gap_share
FROM
(
    SELECT
        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
        sumIf(toUInt128(p.observations), p.source_kind = 1) AS tags,
        sumIf(toUInt128(p.observations), p.source_kind = 2) AS reflections,
        sum(toUInt128(p.untouched)) AS untouched,
        sum(toUInt128(p.trimmed)) AS trimmed,
        sumIf(toUInt128(p.observations), p.location = 1) AS overflow,
        uniqExact(p.producer) AS producers,
        toUInt128(0) AS lost,
        toInt64(0) AS gap_ns
    FROM csigscope.partials_1s AS p
    FINAL
    WHERE indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    ))
    GROUP BY slot
    UNION ALL
    SELECT
        slot,
        0,
        0,
        0,
        0,
        0,
        0,
        sum(g.lost),
        sum(greatest(g.end - greatest(g.begin, g.known), 0))
    FROM
    (
        SELECT
            slot,
            begin,
            end,
            lost,
            max(end) OVER (PARTITION BY slot ORDER BY begin ASC, end ASC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS known
        FROM
        (
            SELECT
                arrayJoin(range(toUInt64(intDiv(first, toInt64({step_ns:UInt64}))), toUInt64(intDiv(last - 1, toInt64({step_ns:UInt64})) + 1))) AS slot_,
                toInt64(slot_) AS slot,
                greatest(slot * toInt64({step_ns:UInt64}), first) AS begin,
                least((slot + 1) * toInt64({step_ns:UInt64}), last) AS stop,
                if((g.reason IN ('drops', 'mirror')), begin, stop) AS end,
                intDiv(toUInt128(g.observations) * toUInt128(stop - begin), toUInt128(toUnixTimestamp64Nano(g.window_to) - toUnixTimestamp64Nano(g.window_from))) AS lost,
                greatest(toUnixTimestamp64Nano(g.window_from), toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')})) AS first,
                least(toUnixTimestamp64Nano(g.window_to), toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')})) AS last
            FROM csigscope.current_gaps AS g
            WHERE ((g.resolution_ns = 1000000000) OR ((g.resolution_ns = 0) AND ((g.producer = 0) OR (g.reason IN ('restart', 'drops', 'mirror'))))) AND (g.window_from < g.window_to) AND (g.window_from < {to:DateTime64(9, 'UTC')}) AND (g.window_to > {from:DateTime64(9, 'UTC')}) AND ((g.producer, g.incarnation, g.epoch) NOT IN (
                SELECT
                    producer,
                    incarnation,
                    epoch
                FROM csigscope.superseded
            ))
        )
    ) AS g
    GROUP BY slot
) AS c
GROUP BY slot
ORDER BY slot ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.coverage_windows_fine
AS SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS window_start,
    sum(c.tags) + sum(c.reflections) AS observations,
    sum(c.tags) AS tags,
    sum(c.reflections) AS reflections,
    sum(c.untouched) AS untouched,
    sum(c.trimmed) AS trimmed,
    sum(c.overflow) AS overflow,
    sum(c.producers) AS producers,
    sum(c.lost) AS lost,
    sum(c.gap_ns) AS gap_ns,
    gap_ns / (least((slot + 1) * toInt64({step_ns:UInt64}), toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')})) - greatest(slot * toInt64({step_ns:UInt64}), toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}))) AS gap_share
FROM
(
    SELECT
        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
        sumIf(toUInt128(p.observations), p.source_kind = 1) AS tags,
        sumIf(toUInt128(p.observations), p.source_kind = 2) AS reflections,
        sum(toUInt128(p.untouched)) AS untouched,
        sum(toUInt128(p.trimmed)) AS trimmed,
        sumIf(toUInt128(p.observations), p.location = 1) AS overflow,
        uniqExact(p.producer) AS producers,
        toUInt128(0) AS lost,
        toInt64(0) AS gap_ns
    FROM csigscope.partials_fine AS p
    FINAL
    WHERE indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    ))
    GROUP BY slot
    UNION ALL
    SELECT
        slot,
        0,
        0,
        0,
        0,
        0,
        0,
        sum(g.lost),
        sum(greatest(g.end - greatest(g.begin, g.known), 0))
    FROM
    (
        SELECT
            slot,
            begin,
            end,
            lost,
            max(end) OVER (PARTITION BY slot ORDER BY begin ASC, end ASC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS known
        FROM
        (
            SELECT
                arrayJoin(range(toUInt64(intDiv(first, toInt64({step_ns:UInt64}))), toUInt64(intDiv(last - 1, toInt64({step_ns:UInt64})) + 1))) AS slot_,
                toInt64(slot_) AS slot,
                greatest(slot * toInt64({step_ns:UInt64}), first) AS begin,
                least((slot + 1) * toInt64({step_ns:UInt64}), last) AS stop,
                if((g.reason IN ('drops', 'mirror')), begin, stop) AS end,
                intDiv(toUInt128(g.observations) * toUInt128(stop - begin), toUInt128(toUnixTimestamp64Nano(g.window_to) - toUnixTimestamp64Nano(g.window_from))) AS lost,
                greatest(toUnixTimestamp64Nano(g.window_from), toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')})) AS first,
                least(toUnixTimestamp64Nano(g.window_to), toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')})) AS last
            FROM csigscope.current_gaps AS g
            WHERE ((g.resolution_ns = {resolution_ns:UInt64}) OR ((g.resolution_ns = 0) AND ((g.producer = 0) OR (g.reason IN ('restart', 'drops', 'mirror'))))) AND (g.window_from < g.window_to) AND (g.window_from < {to:DateTime64(9, 'UTC')}) AND (g.window_to > {from:DateTime64(9, 'UTC')}) AND ((g.producer, g.incarnation, g.epoch) NOT IN (
                SELECT
                    producer,
                    incarnation,
                    epoch
                FROM csigscope.superseded
            ))
        )
    ) AS g
    GROUP BY slot
) AS c
GROUP BY slot
ORDER BY slot ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.current_gaps
(
    `producer` UInt64,
    `incarnation` UInt64,
    `epoch` UInt64,
    `resolution_ns` UInt64,
    `window_from` DateTime64(9, 'UTC'),
    `window_to` DateTime64(9, 'UTC'),
    `rows` UInt64,
    `observations` UInt64,
    `reason` LowCardinality(String),
    `id` UInt64,
    `at` DateTime64(3, 'UTC'),
    `log_class` LowCardinality(String),
    `first_seq` UInt64,
    `last_seq` UInt64
)
AS SELECT g.*
FROM csigscope.gaps AS g
FINAL
LEFT JOIN
(
    SELECT
        producer,
        incarnation,
        epoch,
        maxIf(at, state = 'started') AS started,
        maxIf(at, state = 'done') AS done
    FROM csigscope.runs
    WHERE mode = 'replay'
    GROUP BY
        producer,
        incarnation,
        epoch
) AS r ON (g.producer = r.producer) AND (g.incarnation = r.incarnation) AND (g.epoch = r.epoch)
WHERE NOT ((r.started > g.at) AND (r.done > r.started))
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.finding_totals
AS SELECT
    kind,
    id,
    max(f.severity) AS severity,
    min(f.time_from) AS first,
    max(f.time_to) AS last,
    sum(toUInt128(f.count)) AS count,
    argMin(f.device, (f.time_from, f.seq)) AS device,
    argMin(f.port, (f.time_from, f.seq)) AS port,
    argMin(f.location, (f.time_from, f.seq)) AS location,
    argMin(f.evidence, (f.time_from, f.seq)) AS evidence,
    argMin(f.packets, (f.time_from, f.seq)) AS packets
FROM csigscope.findings AS f
FINAL
WHERE (f.time_from < {to:DateTime64(9, 'UTC')}) AND (f.time_to >= {from:DateTime64(9, 'UTC')}) AND ((f.producer, f.incarnation, f.epoch) NOT IN (
    SELECT
        producer,
        incarnation,
        epoch
    FROM csigscope.superseded
))
GROUP BY
    kind,
    id
ORDER BY
    severity DESC,
    last DESC,
    kind ASC,
    id ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.group_rhythm_1m
AS SELECT
    count() AS steps,
    if(count(s.period) = 0, NULL, medianExact(s.period)) AS period,
    if(count() = 0, NULL, medianExact(s.idle)) AS idle,
    sum(s.idle) AS quiet
FROM
(
    SELECT
        slot,
        (gap * toInt64({step_ns:UInt64})) / 1000000000. AS idle,
        if(row_number() OVER (ORDER BY slot ASC) = 1, NULL, ((slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) * toInt64({step_ns:UInt64})) / 1000000000.) AS period
    FROM
    (
        SELECT
            slot,
            (slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) - 1 AS gap
        FROM
        (
            SELECT
                slot,
                load,
                (quantileExact(0.1)(load) OVER () + quantileExact(0.9)(load) OVER ()) / 2 AS half
            FROM
            (
                SELECT
                    slot,
                    toFloat64(g.load) AS load
                FROM
                (
                    SELECT
                        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
                        sum(toUInt128(p.bytes)) AS load,
                        sum(toUInt128(p.observations)) AS seen,
                        sum(toUInt128(p.heavy)) AS loaded
                    FROM csigscope.partials_1m AS p
                    FINAL
                    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                        SELECT
                            producer,
                            incarnation,
                            epoch
                        FROM csigscope.superseded
                    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
                        SELECT
                            src_group,
                            dst_group
                        FROM csigscope.partials_1m
                        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                            SELECT
                                producer,
                                incarnation,
                                epoch
                            FROM csigscope.superseded
                        )) AND (source_kind = 1)
                    ))) AND ((src_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )) OR (dst_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )))
                    GROUP BY slot
                ) AS g
                ORDER BY slot ASC WITH FILL
            )
        )
        WHERE load > half
    )
    WHERE gap > 0
) AS s
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.group_rhythm_1s
AS SELECT
    count() AS steps,
    if(count(s.period) = 0, NULL, medianExact(s.period)) AS period,
    if(count() = 0, NULL, medianExact(s.idle)) AS idle,
    sum(s.idle) AS quiet
FROM
(
    SELECT
        slot,
        (gap * toInt64({step_ns:UInt64})) / 1000000000. AS idle,
        if(row_number() OVER (ORDER BY slot ASC) = 1, NULL, ((slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) * toInt64({step_ns:UInt64})) / 1000000000.) AS period
    FROM
    (
        SELECT
            slot,
            (slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) - 1 AS gap
        FROM
        (
            SELECT
                slot,
                load,
                (quantileExact(0.1)(load) OVER () + quantileExact(0.9)(load) OVER ()) / 2 AS half
            FROM
            (
                SELECT
                    slot,
                    toFloat64(g.load) AS load
                FROM
                (
                    SELECT
                        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
                        sum(toUInt128(p.bytes)) AS load,
                        sum(toUInt128(p.observations)) AS seen,
                        sum(toUInt128(p.heavy)) AS loaded
                    FROM csigscope.partials_1s AS p
                    FINAL
                    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                        SELECT
                            producer,
                            incarnation,
                            epoch
                        FROM csigscope.superseded
                    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
                        SELECT
                            src_group,
                            dst_group
                        FROM csigscope.partials_1s
                        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                            SELECT
                                producer,
                                incarnation,
                                epoch
                            FROM csigscope.superseded
                        )) AND (source_kind = 1)
                    ))) AND ((src_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )) OR (dst_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )))
                    GROUP BY slot
                ) AS g
                ORDER BY slot ASC WITH FILL
            )
        )
        WHERE load > half
    )
    WHERE gap > 0
) AS s
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.group_rhythm_fine
AS SELECT
    count() AS steps,
    if(count(s.period) = 0, NULL, medianExact(s.period)) AS period,
    if(count() = 0, NULL, medianExact(s.idle)) AS idle,
    sum(s.idle) AS quiet
FROM
(
    SELECT
        slot,
        (gap * toInt64({step_ns:UInt64})) / 1000000000. AS idle,
        if(row_number() OVER (ORDER BY slot ASC) = 1, NULL, ((slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) * toInt64({step_ns:UInt64})) / 1000000000.) AS period
    FROM
    (
        SELECT
            slot,
            (slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) - 1 AS gap
        FROM
        (
            SELECT
                slot,
                load,
                (quantileExact(0.1)(load) OVER () + quantileExact(0.9)(load) OVER ()) / 2 AS half
            FROM
            (
                SELECT
                    slot,
                    toFloat64(g.load) AS load
                FROM
                (
                    SELECT
                        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
                        sum(toUInt128(p.bytes)) AS load,
                        sum(toUInt128(p.observations)) AS seen,
                        sum(toUInt128(p.heavy)) AS loaded
                    FROM csigscope.partials_fine AS p
                    FINAL
                    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
                        SELECT
                            producer,
                            incarnation,
                            epoch
                        FROM csigscope.superseded
                    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
                        SELECT
                            src_group,
                            dst_group
                        FROM csigscope.partials_fine
                        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
                            SELECT
                                producer,
                                incarnation,
                                epoch
                            FROM csigscope.superseded
                        )) AND (source_kind = 1)
                    ))) AND ((src_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )) OR (dst_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )))
                    GROUP BY slot
                ) AS g
                ORDER BY slot ASC WITH FILL
            )
        )
        WHERE load > half
    )
    WHERE gap > 0
) AS s
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.group_steps_1m
AS SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS start,
    idle,
    period
FROM
(
    SELECT
        slot,
        (gap * toInt64({step_ns:UInt64})) / 1000000000. AS idle,
        if(row_number() OVER (ORDER BY slot ASC) = 1, NULL, ((slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) * toInt64({step_ns:UInt64})) / 1000000000.) AS period
    FROM
    (
        SELECT
            slot,
            (slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) - 1 AS gap
        FROM
        (
            SELECT
                slot,
                load,
                (quantileExact(0.1)(load) OVER () + quantileExact(0.9)(load) OVER ()) / 2 AS half
            FROM
            (
                SELECT
                    slot,
                    toFloat64(g.load) AS load
                FROM
                (
                    SELECT
                        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
                        sum(toUInt128(p.bytes)) AS load,
                        sum(toUInt128(p.observations)) AS seen,
                        sum(toUInt128(p.heavy)) AS loaded
                    FROM csigscope.partials_1m AS p
                    FINAL
                    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                        SELECT
                            producer,
                            incarnation,
                            epoch
                        FROM csigscope.superseded
                    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
                        SELECT
                            src_group,
                            dst_group
                        FROM csigscope.partials_1m
                        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                            SELECT
                                producer,
                                incarnation,
                                epoch
                            FROM csigscope.superseded
                        )) AND (source_kind = 1)
                    ))) AND ((src_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )) OR (dst_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )))
                    GROUP BY slot
                ) AS g
                ORDER BY slot ASC WITH FILL
            )
        )
        WHERE load > half
    )
    WHERE gap > 0
)
ORDER BY start ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.group_steps_1s
AS SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS start,
    idle,
    period
FROM
(
    SELECT
        slot,
        (gap * toInt64({step_ns:UInt64})) / 1000000000. AS idle,
        if(row_number() OVER (ORDER BY slot ASC) = 1, NULL, ((slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) * toInt64({step_ns:UInt64})) / 1000000000.) AS period
    FROM
    (
        SELECT
            slot,
            (slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) - 1 AS gap
        FROM
        (
            SELECT
                slot,
                load,
                (quantileExact(0.1)(load) OVER () + quantileExact(0.9)(load) OVER ()) / 2 AS half
            FROM
            (
                SELECT
                    slot,
                    toFloat64(g.load) AS load
                FROM
                (
                    SELECT
                        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
                        sum(toUInt128(p.bytes)) AS load,
                        sum(toUInt128(p.observations)) AS seen,
                        sum(toUInt128(p.heavy)) AS loaded
                    FROM csigscope.partials_1s AS p
                    FINAL
                    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                        SELECT
                            producer,
                            incarnation,
                            epoch
                        FROM csigscope.superseded
                    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
                        SELECT
                            src_group,
                            dst_group
                        FROM csigscope.partials_1s
                        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
                            SELECT
                                producer,
                                incarnation,
                                epoch
                            FROM csigscope.superseded
                        )) AND (source_kind = 1)
                    ))) AND ((src_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )) OR (dst_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )))
                    GROUP BY slot
                ) AS g
                ORDER BY slot ASC WITH FILL
            )
        )
        WHERE load > half
    )
    WHERE gap > 0
)
ORDER BY start ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.group_steps_fine
AS SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS start,
    idle,
    period
FROM
(
    SELECT
        slot,
        (gap * toInt64({step_ns:UInt64})) / 1000000000. AS idle,
        if(row_number() OVER (ORDER BY slot ASC) = 1, NULL, ((slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) * toInt64({step_ns:UInt64})) / 1000000000.) AS period
    FROM
    (
        SELECT
            slot,
            (slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot ASC)) - 1 AS gap
        FROM
        (
            SELECT
                slot,
                load,
                (quantileExact(0.1)(load) OVER () + quantileExact(0.9)(load) OVER ()) / 2 AS half
            FROM
            (
                SELECT
                    slot,
                    toFloat64(g.load) AS load
                FROM
                (
                    SELECT
                        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
                        sum(toUInt128(p.bytes)) AS load,
                        sum(toUInt128(p.observations)) AS seen,
                        sum(toUInt128(p.heavy)) AS loaded
                    FROM csigscope.partials_fine AS p
                    FINAL
                    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
                        SELECT
                            producer,
                            incarnation,
                            epoch
                        FROM csigscope.superseded
                    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
                        SELECT
                            src_group,
                            dst_group
                        FROM csigscope.partials_fine
                        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
                            SELECT
                                producer,
                                incarnation,
                                epoch
                            FROM csigscope.superseded
                        )) AND (source_kind = 1)
                    ))) AND ((src_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )) OR (dst_group = (
                        SELECT max(id)
                        FROM csigscope.groups
                        FINAL
                        WHERE name = {group:String}
                    )))
                    GROUP BY slot
                ) AS g
                ORDER BY slot ASC WITH FILL
            )
        )
        WHERE load > half
    )
    WHERE gap > 0
)
ORDER BY start ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.group_windows_1m
AS SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS window_start,
    load AS bytes,
    seen AS observations,
    loaded AS heavy,
    (toFloat64(load) * 8000000000.) / {step_ns:UInt64} AS rate,
    toFloat64(loaded) / toFloat64(seen) AS heavy_share
FROM
(
    SELECT
        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
        sum(toUInt128(p.bytes)) AS load,
        sum(toUInt128(p.observations)) AS seen,
        sum(toUInt128(p.heavy)) AS loaded
    FROM csigscope.partials_1m AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_1m
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    ))) AND ((src_group = (
        SELECT max(id)
        FROM csigscope.groups
        FINAL
        WHERE name = {group:String}
    )) OR (dst_group = (
        SELECT max(id)
        FROM csigscope.groups
        FINAL
        WHERE name = {group:String}
    )))
    GROUP BY slot
)
ORDER BY window_start ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.group_windows_1s
AS SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS window_start,
    load AS bytes,
    seen AS observations,
    loaded AS heavy,
    (toFloat64(load) * 8000000000.) / {step_ns:UInt64} AS rate,
    toFloat64(loaded) / toFloat64(seen) AS heavy_share
FROM
(
    SELECT
        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
        sum(toUInt128(p.bytes)) AS load,
        sum(toUInt128(p.observations)) AS seen,
        sum(toUInt128(p.heavy)) AS loaded
    FROM csigscope.partials_1s AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_1s
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    ))) AND ((src_group = (
        SELECT max(id)
        FROM csigscope.groups
        FINAL
        WHERE name = {group:String}
    )) OR (dst_group = (
        SELECT max(id)
        FROM csigscope.groups
        FINAL
        WHERE name = {group:String}
    )))
    GROUP BY slot
)
ORDER BY window_start ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.group_windows_fine
AS SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS window_start,
    load AS bytes,
    seen AS observations,
    loaded AS heavy,
    (toFloat64(load) * 8000000000.) / {step_ns:UInt64} AS rate,
    toFloat64(loaded) / toFloat64(seen) AS heavy_share
FROM
(
    SELECT
        intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
        sum(toUInt128(p.bytes)) AS load,
        sum(toUInt128(p.observations)) AS seen,
        sum(toUInt128(p.heavy)) AS loaded
    FROM csigscope.partials_fine AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_fine
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    ))) AND ((src_group = (
        SELECT max(id)
        FROM csigscope.groups
        FINAL
        WHERE name = {group:String}
    )) OR (dst_group = (
        SELECT max(id)
        FROM csigscope.groups
        FINAL
        WHERE name = {group:String}
    )))
    GROUP BY slot
)
ORDER BY window_start ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.location_windows_1m
AS SELECT
    bucket AS window_start,
    if(l.id <= 1, b.location, l.ancestor) AS location,
    sum(b.observations) AS observations,
    sum(b.samples) AS samples,
    sum(b.unjudged) AS unjudged,
    sum(b.heavy) AS heavy,
    sum(b.heavy_sum) AS heavy_sum,
    if(sum(b.heavy) = 0, 0, toFloat64(sum(b.heavy)) / toFloat64(sum(sum(b.heavy)) OVER (PARTITION BY bucket))) AS share
FROM
(
    SELECT
        fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
        p.location AS location,
        sum(toUInt128(p.observations)) AS observations,
        sum(toUInt128(p.samples)) AS samples,
        sum(toUInt128(p.unjudged)) AS unjudged,
        sum(toUInt128(p.heavy)) AS heavy,
        sum(toUInt128(p.heavy_sum)) AS heavy_sum
    FROM csigscope.partials_1m AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_1m
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        bucket,
        location
) AS b
LEFT JOIN
(
    SELECT
        id,
        if({level:UInt8} = 0, candidates, []) AS ports,
        greatest(candidate_count, 1) AS port_count,
        multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
    FROM csigscope.locations
    FINAL
) AS l ON b.location = l.id
GROUP BY
    bucket,
    location
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.location_windows_1s
AS SELECT
    bucket AS window_start,
    if(l.id <= 1, b.location, l.ancestor) AS location,
    sum(b.observations) AS observations,
    sum(b.samples) AS samples,
    sum(b.unjudged) AS unjudged,
    sum(b.heavy) AS heavy,
    sum(b.heavy_sum) AS heavy_sum,
    if(sum(b.heavy) = 0, 0, toFloat64(sum(b.heavy)) / toFloat64(sum(sum(b.heavy)) OVER (PARTITION BY bucket))) AS share
FROM
(
    SELECT
        fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
        p.location AS location,
        sum(toUInt128(p.observations)) AS observations,
        sum(toUInt128(p.samples)) AS samples,
        sum(toUInt128(p.unjudged)) AS unjudged,
        sum(toUInt128(p.heavy)) AS heavy,
        sum(toUInt128(p.heavy_sum)) AS heavy_sum
    FROM csigscope.partials_1s AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_1s
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        bucket,
        location
) AS b
LEFT JOIN
(
    SELECT
        id,
        if({level:UInt8} = 0, candidates, []) AS ports,
        greatest(candidate_count, 1) AS port_count,
        multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
    FROM csigscope.locations
    FINAL
) AS l ON b.location = l.id
GROUP BY
    bucket,
    location
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.location_windows_fine
AS SELECT
    bucket AS window_start,
    if(l.id <= 1, b.location, l.ancestor) AS location,
    sum(b.observations) AS observations,
    sum(b.samples) AS samples,
    sum(b.unjudged) AS unjudged,
    sum(b.heavy) AS heavy,
    sum(b.heavy_sum) AS heavy_sum,
    if(sum(b.heavy) = 0, 0, toFloat64(sum(b.heavy)) / toFloat64(sum(sum(b.heavy)) OVER (PARTITION BY bucket))) AS share
FROM
(
    SELECT
        fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
        p.location AS location,
        sum(toUInt128(p.observations)) AS observations,
        sum(toUInt128(p.samples)) AS samples,
        sum(toUInt128(p.unjudged)) AS unjudged,
        sum(toUInt128(p.heavy)) AS heavy,
        sum(toUInt128(p.heavy_sum)) AS heavy_sum
    FROM csigscope.partials_fine AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_fine
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        bucket,
        location
) AS b
LEFT JOIN
(
    SELECT
        id,
        if({level:UInt8} = 0, candidates, []) AS ports,
        greatest(candidate_count, 1) AS port_count,
        multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
    FROM csigscope.locations
    FINAL
) AS l ON b.location = l.id
GROUP BY
    bucket,
    location
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.superseded
(
    `producer` UInt64,
    `incarnation` UInt64,
    `epoch` UInt64
)
AS SELECT
    producer,
    pass.3 AS incarnation,
    pass.4 AS epoch
FROM
(
    SELECT
        producer,
        arrayPopBack(arraySort(groupArray((done, started, incarnation, epoch)))) AS passes
    FROM
    (
        SELECT
            producer,
            incarnation,
            epoch,
            maxIf(at, state = 'done') AS done,
            maxIf(at, state = 'started') AS started
        FROM csigscope.runs
        WHERE mode = 'replay'
        GROUP BY
            producer,
            incarnation,
            epoch
    )
    GROUP BY producer
    HAVING count() > 1
)
ARRAY JOIN passes AS pass;

CREATE VIEW csigscope.tap_totals
AS SELECT
    name,
    place,
    interface,
    any(t.link) AS link,
    any(t.timestamps) AS timestamps,
    max(t.tick_ns) AS tick_ns,
    min(t.time_from) AS first,
    max(t.time_to) AS last,
    uniqExact((t.producer, t.incarnation)) AS runs,
    sum(toUInt128(t.packets)) AS packets,
    sum(toUInt128(t.bytes)) AS bytes,
    sumMap(CAST(t.frames, 'Map(String, UInt128)')) AS frames,
    sum(toUInt128(t.tags)) AS tags,
    sum(toUInt128(t.reflections)) AS reflections,
    sum(toUInt128(t.observations)) AS observations,
    sum(toUInt128(t.stored)) AS stored,
    sum(toUInt128(t.overflow)) AS overflow,
    sum(toUInt128(t.late)) AS late,
    sumMap(CAST(t.rejected, 'Map(String, UInt128)')) AS rejected,
    sum(toUInt128(t.untouched)) AS untouched,
    sum(toUInt128(t.trimmed)) AS trimmed,
    sum(toUInt128(t.kernel_drops)) AS kernel_drops,
    sum(toUInt128(t.freezes)) AS freezes,
    sum(toUInt128(t.super_frames)) AS super_frames,
    sum(toUInt128(t.lost)) AS lost,
    argMax(t.skew_ns, abs(t.skew_ns)) AS skew_ns
FROM csigscope.taps AS t
FINAL
WHERE (t.time_from < {to:DateTime64(9, 'UTC')}) AND (t.time_to >= {from:DateTime64(9, 'UTC')}) AND ((t.producer, t.incarnation, t.epoch) NOT IN (
    SELECT
        producer,
        incarnation,
        epoch
    FROM csigscope.superseded
))
GROUP BY
    name,
    place,
    interface
ORDER BY
    name ASC,
    place ASC,
    interface ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.top_flows
AS SELECT *
FROM
(
    SELECT
        src_group,
        dst_group,
        src,
        dst,
        src_port,
        dst_port,
        proto,
        source_kind,
        sum(a.observations) AS observations,
        sum(a.bytes) AS bytes,
        sum(a.measured) AS measured,
        ((toFloat64(sum(a.sum)) * if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 1, 1000, 1)) / if(multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0) = 2, 1000000, 1)) / toFloat64(measured) AS mean,
        minIf(a.min, a.measured > 0) AS min,
        max(a.max) AS max,
        sum(a.heavy) AS heavy,
        uniqExactMerge(a.windows) AS windows,
        argMaxIf(a.location, (a.location_heavy, bitNot(a.location)), a.location_heavy > 0) AS location,
        max(a.location_heavy) AS location_heavy,
        sum(a.sampled) AS sampled
    FROM
    (
        SELECT
            f.src_group AS src_group,
            f.dst_group AS dst_group,
            f.src AS src,
            f.dst AS dst,
            f.src_port AS src_port,
            f.dst_port AS dst_port,
            f.proto AS proto,
            f.source_kind AS source_kind,
            f.location AS location,
            sum(toUInt128(f.observations)) AS observations,
            sum(toUInt128(f.bytes)) AS bytes,
            sum(toUInt128(f.measured)) AS measured,
            sum(toUInt128(f.sum)) AS sum,
            minIf(f.min, f.measured > 0) AS min,
            max(f.max) AS max,
            sum(toUInt128(f.heavy)) AS heavy,
            uniqExactState(f.window_start) AS windows,
            sum(toUInt128(f.location_heavy)) AS location_heavy,
            sum(toUInt128(f.sampled)) AS sampled
        FROM csigscope.flows AS f
        FINAL
        WHERE (f.resolution_ns = {resolution_ns:UInt64}) AND (f.signal = {signal:UInt8}) AND indexHint(toStartOfHour(f.window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(f.window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (f.window_start >= {from:DateTime64(9, 'UTC')}) AND (f.window_start < {to:DateTime64(9, 'UTC')}) AND ((f.producer, f.incarnation, f.config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        ))
        GROUP BY
            src_group,
            dst_group,
            src,
            dst,
            src_port,
            dst_port,
            proto,
            source_kind,
            location
    ) AS a
    GROUP BY
        src_group,
        dst_group,
        src,
        dst,
        src_port,
        dst_port,
        proto,
        source_kind
    ORDER BY source_kind ASC
    LIMIT 1 BY
        src_group,
        dst_group,
        src,
        dst,
        src_port,
        dst_port,
        proto
)
ORDER BY
    heavy DESC,
    src ASC,
    dst ASC,
    src_port ASC,
    dst_port ASC,
    proto ASC,
    src_group ASC,
    dst_group ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.top_locations_1m
AS SELECT
    if(l.id <= 1, b.location, l.ancestor) AS location,
    sum(b.observations) AS observations,
    sum(b.heavy) AS heavy,
    sum(b.heavy_sum) AS heavy_sum,
    uniqExactIf((src_group, dst_group), b.heavy > 0) AS cells,
    if(sum(b.heavy) = 0, 0, toFloat64(sum(b.heavy)) / toFloat64(sum(sum(b.heavy)) OVER ())) AS share
FROM
(
    SELECT
        p.src_group AS src_group,
        p.dst_group AS dst_group,
        p.location AS location,
        sum(toUInt128(p.observations)) AS observations,
        sum(toUInt128(p.heavy)) AS heavy,
        sum(toUInt128(p.heavy_sum)) AS heavy_sum
    FROM csigscope.partials_1m AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_1m
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        src_group,
        dst_group,
        location
) AS b
LEFT JOIN
(
    SELECT
        id,
        if({level:UInt8} = 0, candidates, []) AS ports,
        greatest(candidate_count, 1) AS port_count,
        multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
    FROM csigscope.locations
    FINAL
) AS l ON b.location = l.id
GROUP BY location
ORDER BY
    heavy DESC,
    location ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.top_locations_1s
AS SELECT
    if(l.id <= 1, b.location, l.ancestor) AS location,
    sum(b.observations) AS observations,
    sum(b.heavy) AS heavy,
    sum(b.heavy_sum) AS heavy_sum,
    uniqExactIf((src_group, dst_group), b.heavy > 0) AS cells,
    if(sum(b.heavy) = 0, 0, toFloat64(sum(b.heavy)) / toFloat64(sum(sum(b.heavy)) OVER ())) AS share
FROM
(
    SELECT
        p.src_group AS src_group,
        p.dst_group AS dst_group,
        p.location AS location,
        sum(toUInt128(p.observations)) AS observations,
        sum(toUInt128(p.heavy)) AS heavy,
        sum(toUInt128(p.heavy_sum)) AS heavy_sum
    FROM csigscope.partials_1s AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_1s
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        src_group,
        dst_group,
        location
) AS b
LEFT JOIN
(
    SELECT
        id,
        if({level:UInt8} = 0, candidates, []) AS ports,
        greatest(candidate_count, 1) AS port_count,
        multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
    FROM csigscope.locations
    FINAL
) AS l ON b.location = l.id
GROUP BY location
ORDER BY
    heavy DESC,
    location ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.top_locations_fine
AS SELECT
    if(l.id <= 1, b.location, l.ancestor) AS location,
    sum(b.observations) AS observations,
    sum(b.heavy) AS heavy,
    sum(b.heavy_sum) AS heavy_sum,
    uniqExactIf((src_group, dst_group), b.heavy > 0) AS cells,
    if(sum(b.heavy) = 0, 0, toFloat64(sum(b.heavy)) / toFloat64(sum(sum(b.heavy)) OVER ())) AS share
FROM
(
    SELECT
        p.src_group AS src_group,
        p.dst_group AS dst_group,
        p.location AS location,
        sum(toUInt128(p.observations)) AS observations,
        sum(toUInt128(p.heavy)) AS heavy,
        sum(toUInt128(p.heavy_sum)) AS heavy_sum
    FROM csigscope.partials_fine AS p
    FINAL
    WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
        SELECT
            producer,
            incarnation,
            epoch
        FROM csigscope.superseded
    )) AND ((source_kind = 1) OR ((p.src_group, p.dst_group) NOT IN (
        SELECT
            src_group,
            dst_group
        FROM csigscope.partials_fine
        WHERE (signal = {signal:UInt8}) AND indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
            SELECT
                producer,
                incarnation,
                epoch
            FROM csigscope.superseded
        )) AND (source_kind = 1)
    )))
    GROUP BY
        src_group,
        dst_group,
        location
) AS b
LEFT JOIN
(
    SELECT
        id,
        if({level:UInt8} = 0, candidates, []) AS ports,
        greatest(candidate_count, 1) AS port_count,
        multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
    FROM csigscope.locations
    FINAL
) AS l ON b.location = l.id
GROUP BY location
ORDER BY
    heavy DESC,
    location ASC
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.totals_1m
AS SELECT
    signal,
    source_kind,
    min(p.window_start) AS first,
    max(p.window_start) AS last,
    sum(toUInt128(p.observations)) AS observations,
    sum(toUInt128(p.heavy)) AS heavy,
    sum(toUInt128(p.trimmed)) AS trimmed
FROM csigscope.partials_1m AS p
FINAL
WHERE indexHint(toStartOfHour(window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}), toStartOfHour(window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
    SELECT
        producer,
        incarnation,
        epoch
    FROM csigscope.superseded
))
GROUP BY
    signal,
    source_kind
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.totals_1s
AS SELECT
    signal,
    source_kind,
    min(p.window_start) AS first,
    max(p.window_start) AS last,
    sum(toUInt128(p.observations)) AS observations,
    sum(toUInt128(p.heavy)) AS heavy,
    sum(toUInt128(p.trimmed)) AS trimmed
FROM csigscope.partials_1s AS p
FINAL
WHERE indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND ((producer, incarnation, config_epoch) NOT IN (
    SELECT
        producer,
        incarnation,
        epoch
    FROM csigscope.superseded
))
GROUP BY
    signal,
    source_kind
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW csigscope.totals_fine
AS SELECT
    signal,
    source_kind,
    min(p.window_start) AS first,
    max(p.window_start) AS last,
    sum(toUInt128(p.observations)) AS observations,
    sum(toUInt128(p.heavy)) AS heavy,
    sum(toUInt128(p.trimmed)) AS trimmed
FROM csigscope.partials_fine AS p
FINAL
WHERE indexHint(toStartOfMinute(window_start) >= toStartOfMinute({from:DateTime64(9, 'UTC')}), toStartOfMinute(window_start) <= toStartOfMinute({to:DateTime64(9, 'UTC')})) AND (window_start >= {from:DateTime64(9, 'UTC')}) AND (window_start < {to:DateTime64(9, 'UTC')}) AND (resolution_ns = {resolution_ns:UInt64}) AND ((producer, incarnation, config_epoch) NOT IN (
    SELECT
        producer,
        incarnation,
        epoch
    FROM csigscope.superseded
))
GROUP BY
    signal,
    source_kind
SETTINGS do_not_merge_across_partitions_select_final = 1;

INSERT INTO csigscope.epochs (epoch, text, at) VALUES
(3,'text:\n- of a configuration;\n','2026-11-26 11:58:47.996017240');

INSERT INTO csigscope.findings (kind, id, time_from, time_to, severity, epoch, producer, incarnation, seq, device, port, location, count, evidence, packets, stored_at) VALUES
('rogue-insertion',77,'2024-02-29 23:58:00.000000000','2024-02-29 23:58:00.000000005','error',3,9223372036854775808,1,1,'leaf1','up1',5,3,'S=31 \'then\' 4\n',[9,9223372036854775808],'2100-01-01 00:00:00');

INSERT INTO csigscope.flows (resolution_ns, window_start, signal, source_kind, src_group, dst_group, src, dst, src_port, dst_port, proto, config_epoch, producer, incarnation, seq, observations, bytes, measured, sum, min, max, heavy, heavy_sum, location, location_heavy, sampled, stored_at) VALUES
(1000000000,'2024-02-29 23:58:00.000000000',2,1,10,11,'::ffff:10.0.0.1','2001:db8::2',1,4791,17,3,9223372036854775808,1,1,20,3000,10,500,20,80,4,300,5,3,0,'2100-01-01 00:00:00');

INSERT INTO csigscope.forgotten (producer, at) VALUES
(9223372036854775808,'2026-11-26 11:58:47.991201101');

INSERT INTO csigscope.gaps (producer, incarnation, epoch, resolution_ns, window_from, window_to, rows, observations, reason, id, at, log_class, first_seq, last_seq) VALUES
(9223372036854775808,1,3,1000000000,'2024-02-29 23:58:00.000000000','2024-02-29 23:58:01.000000000',4,50,'full',7,'2026-11-26 11:58:47.950','',0,0);

INSERT INTO csigscope.groups (id, name, level, parent, ord, exporter, pinned, at, used) VALUES
(10,'it\'s','rack','',1,'',true,'2026-11-26 11:58:47.945674023','2026-11-26 11:58:47'),
(11,'rack\t2','rack','pod1',2,'',true,'2026-11-26 11:58:47.945674023','2026-11-26 11:58:47');

INSERT INTO csigscope.locations (id, name, kind, device, stage, orientation, capacity, candidates, candidate_count, set_id, device_id, stage_id, peer, far_end_id, exporter, pinned, at, used) VALUES
(2,'port2','port','','','',0,['leaf1:up2','leaf1:up3'],2,100,200,300,'',400,'',true,'2026-11-26 11:58:47.938003203','2026-11-26 11:58:47'),
(3,'port3','port','','','',0,['leaf1:up0','leaf1:up3','leaf1:up4'],3,101,200,300,'',400,'',true,'2026-11-26 11:58:47.938003203','2026-11-26 11:58:47'),
(4,'port4','port','','','',0,[],0,101,200,300,'',401,'',true,'2026-11-26 11:58:47.938003203','2026-11-26 11:58:47'),
(5,'port5','port','','','',0,['leaf1:up0'],1,101,201,300,'',401,'',true,'2026-11-26 11:58:47.938003203','2026-11-26 11:58:47'),
(6,'port6','port','','','',0,['leaf1:up1','leaf1:up2'],2,102,201,300,'',401,'',true,'2026-11-26 11:58:47.938003203','2026-11-26 11:58:47'),
(7,'port7','port','','','',0,['leaf1:up2','leaf1:up3','leaf1:up4'],100,102,201,300,'',401,'',true,'2026-11-26 11:58:47.938003203','2026-11-26 11:58:47'),
(8,'port8','port','','','',0,[],0,102,201,300,'',402,'',true,'2026-11-26 11:58:47.938003203','2026-11-26 11:58:47'),
(9,'port9','port','','','',0,[],0,103,201,300,'',402,'',true,'2026-11-26 11:58:47.938003203','2026-11-26 11:58:47');

INSERT INTO csigscope.partials_1m (window_start, signal, source_kind, encoding, src_group, dst_group, location, config_epoch, producer, incarnation, seq, observations, bytes, measured, sum, min, max, untouched, trimmed, heavy, heavy_sum, samples, unjudged, evidence, dist, stored_at) VALUES
('2024-02-29 23:58:00.000000000',0,1,2,11,11,3,3,1,2,0,1,702013,1,500,100,1000,0,0,1,1,1,0,0,{4:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,0,10,10,2,3,1,2,13,3,71936,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,0,10,10,3,3,9223372036854775808,1,0,7,217441,5,2500,200,1000,0,2,4,8,2,1,0,{31:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,0,10,11,2,3,9223372036854775808,1,0,3,911014,1,500,200,1000,0,2,0,0,1,0,0,{11:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,0,11,11,2,3,9223372036854775808,1,0,1,442776,0,0,0,0,0,1,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,1,10,10,2,3,9223372036854775808,1,0,3,728076,2,1000,300,1000,0,1,2,4,1,0,0,{1:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,1,10,11,2,3,1,2,0,3,355398,2,1000,0,1000,0,1,1,2,1,0,0,{9:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,2,10,10,0,3,1,2,0,2,594876,2,1000,100,1000,2,0,0,0,1,0,0,{5:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,2,10,10,1,3,1,2,0,1,909745,1,500,300,1000,0,0,1,1,1,0,0,{29:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,2,11,11,3,3,1,2,13,4,939410,4,2000,200,1000,0,0,0,0,3,4,0,{6:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,3,10,10,3,3,1,2,13,5,837929,5,2500,300,1000,0,0,0,0,5,5,0,{20:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,3,10,11,0,3,1,2,0,1,408185,0,0,0,0,0,1,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,3,11,11,0,3,1,2,0,3,930954,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,3,11,11,1,3,1,2,13,2,201933,0,0,0,0,0,2,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,3,11,11,1,3,9223372036854775808,1,0,2,31437,1,500,200,1000,0,1,1,2,1,0,0,{8:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,1,10,10,1,3,9223372036854775808,1,0,3,478974,2,1000,200,1000,0,1,1,2,1,0,0,{3:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,1,10,10,2,3,1,2,13,1,183582,0,0,0,0,0,1,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,1,11,11,3,3,1,2,0,6,546897,4,2000,200,1000,0,2,3,6,2,1,0,{16:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,2,10,10,2,3,1,2,0,4,242689,4,2000,200,1000,0,0,0,0,2,0,0,{9:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,2,10,10,3,3,1,2,13,2,848307,0,0,0,0,0,2,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,2,11,10,1,3,1,2,0,4,338946,3,1500,200,1000,0,1,0,0,1,0,0,{0:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,3,10,10,2,3,9223372036854775808,1,0,6,78014,5,2500,200,1000,0,1,0,0,5,0,0,{19:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,3,10,10,3,3,1,2,0,6,188884,4,2000,100,1000,0,2,4,8,1,0,0,{15:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,3,11,10,0,3,9223372036854775808,1,0,2,810276,0,0,0,0,0,2,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,0,10,11,3,3,1,2,13,3,253083,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,1,10,10,1,3,1,2,13,1,409706,1,500,100,1000,0,0,0,0,1,0,0,{19:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,1,10,10,2,3,1,2,13,3,918036,2,1000,300,1000,0,1,0,0,1,0,0,{10:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,1,11,10,0,3,9223372036854775808,1,0,2,173334,2,1000,0,1000,1,0,0,0,1,0,0,{9:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,1,11,11,0,3,1,2,0,3,340421,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,1,11,11,0,3,1,2,13,5,630057,4,2000,200,1000,2,1,0,0,2,0,0,{23:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,1,11,11,1,3,1,2,0,4,921848,4,2000,0,1000,0,0,2,2,1,0,0,{19:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,1,11,11,1,3,9223372036854775808,1,0,5,503920,3,1500,100,1000,0,2,2,2,2,0,0,{0:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,2,10,10,2,3,9223372036854775808,1,0,4,625046,3,1500,200,1000,0,1,0,0,3,0,0,{14:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,2,11,10,3,3,1,2,13,4,395446,2,1000,200,1000,0,2,2,2,1,0,0,{21:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,3,10,11,1,3,1,2,13,3,536040,2,1000,200,1000,0,1,0,0,1,0,0,{2:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,3,11,10,1,3,1,2,0,3,425513,2,1000,200,1000,0,1,0,0,2,0,0,{5:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,3,11,10,1,3,1,2,13,6,63462,5,2500,0,1000,0,1,0,0,3,0,0,{7:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,0,10,10,0,3,1,2,26,5,421632,5,2500,300,1000,5,0,0,0,3,0,0,{25:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,0,11,10,0,3,9223372036854775808,1,11,6,824200,5,2500,0,1000,0,1,0,0,1,0,0,{6:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,0,11,11,0,3,9223372036854775808,1,11,4,612194,3,1500,300,1000,2,1,0,0,3,0,0,{12:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,0,11,11,3,3,9223372036854775808,1,22,4,971469,4,2000,200,1000,0,0,3,3,2,1,0,{2:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,1,10,10,0,3,9223372036854775808,1,22,6,430051,4,2000,0,1000,0,2,0,0,4,0,0,{13:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,1,11,11,1,3,9223372036854775808,1,11,6,344009,5,2500,100,1000,0,1,0,0,5,0,0,{8:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,2,10,10,0,3,9223372036854775808,1,11,4,697579,4,2000,0,1000,2,0,0,0,4,0,0,{15:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,2,11,10,2,3,1,2,26,5,496147,3,1500,200,1000,0,2,0,0,2,0,0,{5:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,2,11,10,3,3,1,2,26,4,669558,2,1000,300,1000,0,2,0,0,1,2,0,{25:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,2,11,10,3,3,9223372036854775808,1,11,6,84838,5,2500,0,1000,0,1,4,4,4,1,0,{30:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,3,10,10,1,3,9223372036854775808,1,22,2,762047,0,0,0,0,0,2,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,1,3,11,11,0,3,9223372036854775808,1,22,7,697650,5,2500,200,1000,2,2,0,0,1,0,0,{14:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,2,0,10,10,0,3,1,2,26,3,613598,3,1500,300,1000,3,0,0,0,3,0,0,{24:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,2,0,10,11,2,3,9223372036854775808,1,22,2,977976,0,0,0,0,0,2,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,2,1,11,11,0,3,1,2,26,5,133906,5,2500,300,1000,2,0,0,0,2,0,0,{11:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,2,2,10,11,1,3,9223372036854775808,1,11,3,512654,2,1000,100,1000,0,1,1,1,1,0,0,{10:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,2,2,10,11,3,3,9223372036854775808,1,11,5,547477,5,2500,200,1000,0,0,0,0,3,5,0,{28:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',0,2,3,11,11,1,3,9223372036854775808,1,22,5,163236,5,2500,0,1000,0,0,2,2,2,0,0,{25:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,1,0,11,10,3,3,9223372036854775808,1,22,7,860992,5,2500,300,1000,0,2,2,6,3,3,0,{31:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,1,1,11,10,2,3,9223372036854775808,1,22,4,281434,4,2000,300,1000,0,0,4,12,3,0,0,{13:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,1,1,11,10,3,3,1,2,26,4,346234,4,2000,300,1000,0,0,3,6,3,1,0,{29:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,2,0,10,10,2,3,9223372036854775808,1,11,1,48814,0,0,0,0,0,1,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,2,0,10,11,1,3,9223372036854775808,1,11,5,929630,3,1500,0,1000,0,2,0,0,3,0,0,{6:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,2,1,11,10,3,3,1,2,26,3,134498,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,2,1,11,11,2,3,9223372036854775808,1,11,5,138146,4,2000,100,1000,0,1,4,4,3,0,0,{29:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,2,1,11,11,2,3,9223372036854775808,1,22,5,290053,4,2000,300,1000,0,1,0,0,2,0,0,{10:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,2,2,11,10,2,3,1,2,26,1,64963,0,0,0,0,0,1,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,2,2,11,11,3,3,9223372036854775808,1,11,2,24066,1,500,200,1000,0,1,1,1,1,0,0,{18:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,2,3,10,11,3,3,9223372036854775808,1,22,1,979161,1,500,100,1000,0,0,1,3,1,0,0,{30:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:59:00.000000000',1,2,3,11,10,0,3,9223372036854775808,1,22,6,212690,4,2000,100,1000,3,2,0,0,3,0,0,{18:1,40:3},'2100-01-01 00:00:00');

INSERT INTO csigscope.partials_1s (window_start, signal, source_kind, encoding, src_group, dst_group, location, config_epoch, producer, incarnation, seq, observations, bytes, measured, sum, min, max, untouched, trimmed, heavy, heavy_sum, samples, unjudged, evidence, dist, stored_at) VALUES
('2024-02-29 23:58:00.000000000',0,1,0,10,10,3,3,9223372036854775808,1,10,4,135660,3,1500,200,1000,0,1,0,0,1,3,0,{11:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,1,0,11,11,0,3,9223372036854775808,1,0,3,105923,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,1,0,11,11,1,3,9223372036854775808,1,0,5,326085,5,2500,200,1000,0,0,0,0,1,0,0,{24:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,1,1,10,10,2,3,1,2,5,5,473822,3,1500,0,1000,0,2,0,0,3,0,0,{14:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,1,1,10,10,2,3,9223372036854775808,1,10,2,62370,2,1000,100,1000,0,0,0,0,1,0,0,{30:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,1,1,10,10,3,3,1,2,5,3,740069,2,1000,300,1000,0,1,0,0,2,2,0,{21:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,1,3,11,11,1,3,1,2,5,6,911767,5,2500,100,1000,0,1,0,0,3,0,0,{12:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,0,10,10,1,3,9223372036854775808,1,0,7,830624,5,2500,100,1000,0,2,0,0,5,0,0,{3:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,0,10,10,3,3,9223372036854775808,1,10,2,222308,1,500,200,1000,0,1,1,2,1,0,0,{23:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,0,10,11,1,3,1,2,5,1,882634,0,0,0,0,0,1,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,1,10,10,0,3,9223372036854775808,1,0,6,127057,5,2500,200,1000,5,1,0,0,3,0,0,{23:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,1,10,11,2,3,9223372036854775808,1,10,5,945873,3,1500,300,1000,0,2,0,0,1,0,0,{31:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,1,11,10,3,3,9223372036854775808,1,10,4,921235,3,1500,100,1000,0,1,0,0,2,3,0,{16:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,1,11,11,1,3,1,2,5,3,989786,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,3,10,11,2,3,1,2,5,4,153393,3,1500,300,1000,0,1,0,0,1,0,0,{9:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',0,2,3,10,11,3,3,9223372036854775808,1,10,5,30013,3,1500,0,1000,0,2,1,3,2,2,0,{20:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,0,10,10,1,3,9223372036854775808,1,0,3,407773,3,1500,200,1000,0,0,0,0,2,0,0,{25:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,1,11,10,0,3,9223372036854775808,1,0,1,607287,1,500,100,1000,0,0,0,0,1,0,0,{14:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,1,11,10,3,3,1,2,0,1,482026,1,500,100,1000,0,0,1,2,1,0,0,{7:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,1,11,11,0,3,1,2,5,7,719319,5,2500,100,1000,0,2,0,0,5,0,0,{8:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,2,10,10,0,3,9223372036854775808,1,10,6,158036,5,2500,200,1000,0,1,0,0,2,0,0,{22:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,2,10,10,3,3,9223372036854775808,1,0,6,574518,5,2500,100,1000,0,1,0,0,4,5,0,{24:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,3,11,11,1,3,9223372036854775808,1,0,2,909510,2,1000,200,1000,0,0,0,0,1,0,0,{31:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,1,3,11,11,1,3,9223372036854775808,1,10,2,12426,1,500,0,1000,0,1,1,3,1,0,0,{2:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,0,11,10,3,3,9223372036854775808,1,10,5,196248,4,2000,300,1000,0,1,2,4,1,2,0,{13:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,0,11,11,1,3,9223372036854775808,1,10,6,599458,4,2000,300,1000,0,2,4,4,3,0,0,{11:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,1,10,10,1,3,9223372036854775808,1,0,2,968850,1,500,200,1000,0,1,0,0,1,0,0,{26:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,1,10,10,3,3,1,2,0,2,568926,0,0,0,0,0,2,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,2,11,10,0,3,9223372036854775808,1,10,2,473951,0,0,0,0,0,2,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,3,10,10,0,3,1,2,0,1,143490,1,500,100,1000,0,0,0,0,1,0,0,{25:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,3,10,11,3,3,1,2,5,4,790776,2,1000,0,1000,0,2,0,0,1,2,0,{15:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,3,11,10,3,3,1,2,0,3,671866,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,3,11,10,3,3,9223372036854775808,1,0,4,737598,4,2000,200,1000,0,0,0,0,3,4,0,{4:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,3,11,11,0,3,1,2,0,4,168536,4,2000,0,1000,1,0,0,0,1,0,0,{31:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',1,2,3,11,11,3,3,9223372036854775808,1,10,7,267891,5,2500,100,1000,0,2,1,1,2,4,0,{24:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,1,1,11,11,0,3,9223372036854775808,1,22,4,143370,2,1000,100,1000,1,2,0,0,1,0,0,{16:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,1,2,10,10,2,3,9223372036854775808,1,22,2,15438,2,1000,100,1000,0,0,0,0,1,0,0,{5:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,1,2,11,10,2,3,9223372036854775808,1,22,5,196395,5,2500,100,1000,0,0,0,0,1,0,0,{19:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,1,2,11,11,1,3,1,2,13,4,752617,3,1500,200,1000,0,1,2,6,2,0,0,{26:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,1,2,11,11,1,3,9223372036854775808,1,22,6,311351,4,2000,100,1000,0,2,0,0,4,0,0,{17:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,1,3,10,10,2,3,1,2,13,1,498158,1,500,100,1000,0,0,0,0,1,0,0,{23:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,2,0,10,11,2,3,9223372036854775808,1,22,3,11354,2,1000,100,1000,0,1,0,0,1,0,0,{0:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,2,1,10,10,1,3,1,2,13,5,284900,5,2500,0,1000,0,0,0,0,1,0,0,{9:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,2,1,10,10,2,3,1,2,13,4,531731,3,1500,0,1000,0,1,2,4,3,0,0,{31:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,2,1,11,10,1,3,1,2,13,2,262926,0,0,0,0,0,2,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,2,3,10,10,1,3,9223372036854775808,1,22,2,209172,2,1000,300,1000,0,0,0,0,1,0,0,{1:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',0,2,3,10,11,2,3,1,2,13,4,396924,4,2000,0,1000,0,0,0,0,1,0,0,{0:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,1,0,11,10,2,3,1,2,13,2,678161,2,1000,200,1000,0,0,0,0,2,0,0,{25:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,1,2,10,10,2,3,1,2,13,3,486554,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,1,2,11,11,3,3,1,2,13,5,81918,3,1500,100,1000,0,2,2,2,1,1,0,{10:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,1,3,10,10,0,3,1,2,13,3,705581,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,1,3,11,11,1,3,1,2,13,6,632525,5,2500,0,1000,0,1,0,0,1,0,0,{20:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,2,0,10,10,2,3,9223372036854775808,1,22,5,488426,5,2500,200,1000,0,0,2,6,2,0,0,{30:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,2,0,11,10,0,3,9223372036854775808,1,22,6,210594,5,2500,200,1000,2,1,0,0,5,0,0,{6:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,2,0,11,11,3,3,1,2,13,5,911483,3,1500,200,1000,0,2,0,0,3,3,0,{8:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,2,1,10,10,3,3,9223372036854775808,1,22,2,171555,1,500,0,1000,0,1,1,2,1,0,0,{24:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,2,1,10,11,3,3,1,2,13,5,170939,5,2500,200,1000,0,0,5,15,5,0,0,{14:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,2,1,11,10,1,3,1,2,13,2,185384,0,0,0,0,0,2,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,2,1,11,10,3,3,1,2,13,6,454670,5,2500,300,1000,0,1,0,0,1,5,0,{6:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,2,2,10,10,2,3,1,2,13,4,406803,4,2000,100,1000,0,0,0,0,4,0,0,{19:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,2,2,11,10,3,3,9223372036854775808,1,22,5,496699,5,2500,200,1000,0,0,0,0,5,5,0,{21:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:01.000000000',1,2,3,10,11,0,3,9223372036854775808,1,22,2,105841,1,500,100,1000,0,1,0,0,1,0,0,{16:1,40:0},'2100-01-01 00:00:00');

INSERT INTO csigscope.partials_fine (window_start, resolution_ns, signal, source_kind, encoding, src_group, dst_group, location, config_epoch, producer, incarnation, seq, observations, bytes, measured, sum, min, max, untouched, trimmed, heavy, heavy_sum, samples, unjudged, evidence, dist, stored_at) VALUES
('2024-02-29 23:58:00.000000000',10000000,0,1,0,11,11,2,3,1,2,0,2,699096,2,1000,0,1000,0,0,0,0,1,0,0,{20:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,0,1,1,11,11,1,3,9223372036854775808,1,0,3,172715,3,1500,300,1000,0,0,3,9,3,0,0,{23:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,0,1,3,11,11,3,3,1,2,0,4,823001,2,1000,300,1000,0,2,1,1,2,1,0,{14:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,0,2,0,10,10,3,3,9223372036854775808,1,0,5,69504,4,2000,0,1000,0,1,2,4,1,2,0,{26:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,0,2,1,10,10,2,3,9223372036854775808,1,0,4,172252,4,2000,100,1000,0,0,0,0,1,0,0,{16:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,0,2,1,11,11,3,3,1,2,0,7,588798,5,2500,300,1000,0,2,0,0,4,5,0,{30:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,0,2,2,10,10,1,3,1,2,0,2,940997,2,1000,300,1000,0,0,0,0,2,0,0,{2:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,0,2,2,10,11,3,3,9223372036854775808,1,0,3,344237,3,1500,100,1000,0,0,3,6,3,0,0,{26:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,0,2,3,11,11,2,3,1,2,0,6,891769,4,2000,100,1000,0,2,0,0,2,0,0,{17:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,1,1,2,11,11,1,3,9223372036854775808,1,0,3,375470,1,500,300,1000,0,2,1,1,1,0,0,{2:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,1,1,2,11,11,2,3,9223372036854775808,1,0,5,889798,3,1500,300,1000,0,2,2,6,2,0,0,{11:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,1,2,0,10,10,0,3,1,2,0,1,343649,1,500,200,1000,1,0,0,0,1,0,0,{13:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,1,2,1,10,11,2,3,9223372036854775808,1,0,3,3033,3,1500,300,1000,0,0,0,0,1,0,0,{17:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.000000000',10000000,1,2,3,10,10,1,3,1,2,0,3,343072,0,0,0,0,0,3,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,1,0,11,11,0,3,1,2,17,7,715407,5,2500,0,1000,1,2,0,0,3,0,0,{18:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,1,1,10,10,3,3,9223372036854775808,1,7,2,158071,2,1000,0,1000,0,0,2,4,2,0,0,{20:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,1,2,11,11,2,3,1,2,17,5,799119,5,2500,300,1000,0,0,3,6,5,0,0,{19:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,1,2,11,11,2,3,1,2,7,6,751644,4,2000,300,1000,0,2,0,0,1,0,0,{7:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,1,3,10,10,0,3,9223372036854775808,1,7,5,475961,5,2500,300,1000,3,0,0,0,2,0,0,{12:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,1,3,10,10,3,3,1,2,7,4,12903,4,2000,0,1000,0,0,4,12,4,0,0,{5:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,2,0,10,11,0,3,1,2,7,6,626991,5,2500,0,1000,4,1,0,0,2,0,0,{3:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,2,0,11,11,0,3,1,2,7,1,740622,0,0,0,0,0,1,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,2,1,11,10,1,3,1,2,17,1,308723,0,0,0,0,0,1,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,2,1,11,10,1,3,9223372036854775808,1,16,2,990671,1,500,0,1000,0,1,0,0,1,0,0,{9:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,2,2,10,10,1,3,1,2,7,1,94078,1,500,100,1000,0,0,1,3,1,0,0,{15:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,2,2,10,11,0,3,9223372036854775808,1,7,3,783266,2,1000,100,1000,0,1,0,0,1,0,0,{22:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,2,2,10,11,3,3,1,2,7,4,850031,3,1500,100,1000,0,1,3,6,3,0,0,{19:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,2,3,11,10,0,3,1,2,7,1,164313,1,500,300,1000,1,0,0,0,1,0,0,{15:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,2,3,11,10,0,3,9223372036854775808,1,16,4,313249,3,1500,100,1000,0,1,0,0,2,0,0,{24:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,0,2,3,11,10,2,3,1,2,7,5,441661,5,2500,300,1000,0,0,0,0,2,0,0,{17:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,1,0,10,10,1,3,9223372036854775808,1,16,2,268655,1,500,0,1000,0,1,1,3,1,0,0,{17:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,1,1,10,10,0,3,9223372036854775808,1,16,4,381216,3,1500,300,1000,0,1,0,0,1,0,0,{5:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,1,1,10,10,1,3,9223372036854775808,1,7,6,616126,5,2500,0,1000,0,1,2,6,2,0,0,{17:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,1,2,11,11,1,3,1,2,17,2,792542,1,500,300,1000,0,1,0,0,1,0,0,{8:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,1,3,11,11,0,3,1,2,17,3,732085,2,1000,200,1000,1,1,0,0,2,0,0,{9:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,0,11,10,2,3,9223372036854775808,1,7,4,683874,2,1000,300,1000,0,2,1,1,1,0,0,{28:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,0,11,11,1,3,9223372036854775808,1,16,2,495711,0,0,0,0,0,2,0,0,0,0,0,{},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,0,11,11,2,3,9223372036854775808,1,16,3,246698,2,1000,100,1000,0,1,2,2,1,0,0,{28:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,1,10,10,3,3,9223372036854775808,1,16,5,465325,4,2000,200,1000,0,1,0,0,2,4,0,{8:1,40:3},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,1,10,11,1,3,9223372036854775808,1,7,5,91318,3,1500,100,1000,0,2,3,9,2,0,0,{24:1,40:2},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,1,11,10,3,3,9223372036854775808,1,7,4,716081,2,1000,100,1000,0,2,0,0,2,2,0,{4:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,2,10,10,0,3,9223372036854775808,1,7,7,594890,5,2500,200,1000,3,2,0,0,1,0,0,{24:1,40:4},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,2,10,10,3,3,9223372036854775808,1,7,1,300180,1,500,100,1000,0,0,1,1,1,0,0,{22:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,2,11,10,0,3,9223372036854775808,1,16,2,936856,1,500,200,1000,0,1,0,0,1,0,0,{1:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,2,11,10,1,3,1,2,7,3,254106,1,500,300,1000,0,2,0,0,1,0,0,{4:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,3,10,10,0,3,1,2,17,2,823339,1,500,300,1000,0,1,0,0,1,0,0,{14:1,40:0},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,3,10,10,2,3,1,2,17,2,469008,2,1000,0,1000,0,0,0,0,1,0,0,{15:1,40:1},'2100-01-01 00:00:00'),
('2024-02-29 23:58:00.010000000',10000000,1,2,3,10,11,2,3,1,2,7,7,987587,5,2500,300,1000,0,2,1,1,3,0,0,{19:1,40:4},'2100-01-01 00:00:00');

INSERT INTO csigscope.runs (producer, incarnation, epoch, mode, state, name, at) VALUES
(1,2,3,'replay','done','old "name";\n.pcap','2026-11-26 11:58:47.932025452'),
(1,2,3,'replay','started','old "name";\n.pcap','2026-11-26 11:58:47.875547152'),
(9223372036854775808,1,3,'live','started','tap','2026-11-26 11:58:47.903441034');

INSERT INTO csigscope.schema_versions (version, name, checksum, at) VALUES
(0,'views',354592607160149611,'2026-11-26 11:58:47.498'),
(1,'tables',12973692795169195568,'2026-11-26 11:58:46.705'),
(2,'gaps',6737036469022633678,'2026-11-26 11:58:46.742'),
(3,'names',36271336939528339,'2026-11-26 11:58:46.790'),
(4,'forgotten',1925757334644301940,'2026-11-26 11:58:46.802'),
(5,'evidence',3679140840217109102,'2026-11-26 11:58:47.022'),
(6,'sampled',14630989818291878050,'2026-11-26 11:58:47.053');

INSERT INTO csigscope.taps (name, time_from, time_to, place, interface, link, timestamps, tick_ns, epoch, producer, incarnation, seq, packets, bytes, frames, tags, reflections, observations, stored, overflow, late, rejected, untouched, trimmed, kernel_drops, freezes, super_frames, lost, skew_ns, stored_at) VALUES
('rack it\'s','2024-02-29 23:58:00.000000001','2024-02-29 23:58:00.000000999','receiver','eth\t0','Ethernet','file',0.5,3,9223372036854775808,1,1,10,1500,{'ok':7,'cut-ip':3},5,4,9,4,1,1,{'orphan':2,'place':1},2,1,6,2,4,3,-5,'2100-01-01 00:00:00');
