-- What taps did, flows and findings: records that are no partials. Their keys end in the
-- producer's (producer, incarnation, seq) as well, so a record that is written again
-- replaces itself, and later records of the same thing add up.
--
-- Codecs, measured by BenchmarkRecordCodecs, bytes a row:
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
--
-- As with partials, ZSTD is for what few questions read.

-- What one tap took in over a period, and what became of it: with partials and gaps the
-- proof that nothing is lost. A period is a piece of a capture file or some seconds of a
-- live tap. seq tells the periods and interfaces of a producer apart.
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

-- The flows with the most heavy observations of each window, and what all others come to
-- in a row without addresses: together they are exactly the window.
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

-- What breaks the protocol or the configuration. Rows with the same kind and id are one
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
