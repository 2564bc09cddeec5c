-- The views. They define the analytics, so that Grafana, the API and the commands share one
-- definition. They are created after the newest tables, and may be edited: a database whose views
-- have another text gets all of them again. All parameters of a view are required. Each view ends in
-- the settings that it relies on, whatever the profile of the user has.
--
-- The name of a view ends in its table or, for rows of 1 min and of 1 s together, in either.
--
-- Rows hold UInt64, which a few rows may fill. Views add them as UInt128, and the results keep
-- that type: 2^64 rows fit. Means and shares divide them as Float64.

-- A capture that is replayed under another configuration or with other pipeline settings leaves
-- other rows about the same packets: only one of its runs may count. That is the one that ended
-- last or, if none has ended, the one that started last; superseded holds the others. Live
-- producers have none: each of their runs saw other packets.
CREATE OR REPLACE VIEW {{.Database}}.superseded AS
SELECT
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
        FROM {{.Database}}.runs
        WHERE mode = 'replay'
        GROUP BY producer, incarnation, epoch
    )
    GROUP BY producer
    HAVING count() > 1
)
ARRAY JOIN passes AS pass
{{template "settings"}};

-- Gaps, without those of captures that have since been replayed to the end.
CREATE OR REPLACE VIEW {{.Database}}.current_gaps AS
SELECT g.*
FROM {{.Database}}.gaps AS g FINAL
LEFT JOIN
(
    SELECT producer, incarnation, epoch, maxIf(at, state = 'started') AS started, maxIf(at, state = 'done') AS done
    FROM {{.Database}}.runs
    WHERE mode = 'replay'
    GROUP BY producer, incarnation, epoch
) AS r ON g.producer = r.producer AND g.incarnation = r.incarnation AND g.epoch = r.epoch
WHERE NOT (r.started > g.at AND r.done > r.started)
{{template "settings"}};

-- The cells of a signal over a range, as a matrix shows them. source_kind is the tag if the cell
-- has one in the range, else the reflection.
--
-- The mode of the bottleneck is the location with the most heavy observations; ties go to the
-- more severe mean, then to the lower id. Locations that tie have equal counts, so the order of
-- their sums is that of their means, and no division is needed: top holds the two first of
-- (count, severity, id), both inverted where more comes first. Sums over hops have no location:
-- they are heavy without a mode. mode_evidence and runner_up_evidence are the evidence that
-- located observations there more closely than their locators: 1 the path table, 2 the hashes of
-- the switches, 4 taps in the fabric, or a sum of them. votes are the first 32 resolved
-- locations, with their counts, at level 0 only. mode_ports are the ports that may have the most
-- heavy observations if each port of a set is counted separately: a single one is certain.
--
-- sum, min, max, heavy_sum and mode_sum are in stored units (kbit/s, ppm, ns, counts), mean is in
-- bit/s, as a ratio, in ns or a count, and nan if nothing was measured. later_measured and
-- later_sum are the values of the later half of the range. heavy_share and trimmed_share are of
-- all observations. samples are those that are not trimmed, without the weight, and unjudged
-- those to which no threshold applies.
--
-- state is the state at the end of the range. Of the last 300 windows before it, those with at
-- least 10 samples are judged: the latest whose heavy share is at or above onset, or below clear,
-- decides whether the cell is congested, since the first such onset. Otherwise the state is brief
-- if any of them had a heavy observation, and clear if none had. If no window was judged, the
-- sums of the range are judged as one window: too_few, not_judged or one of the others. If all
-- windows with observations are earlier, the cell is silent, and the state no_data; windows below
-- 1 s may lack cells that are clear, so those are never silent.
-- judged_windows counts the judged ones of the last 300 windows of the range, congested_windows
-- those of them at whose end the cell was congested.
--
-- level: 0 the resolved location, 1 its set, 2 its device, 3 its stage, 4 its far end. Locations
-- without a row, and the reserved 0 and 1, are their own location at every level.
{{range .Sources}}
CREATE OR REPLACE VIEW {{.Database}}.cells_{{.Suffix}} AS
{{template "cells" .}}
ORDER BY source_kind
LIMIT 1 BY src_group, dst_group
{{template "settings"}};

-- The same per window of step_ns. The kind is chosen for the whole range, so that the windows of
-- a cell add up to the cell.
CREATE OR REPLACE VIEW {{.Database}}.cell_windows_{{.Suffix}} AS
SELECT * EXCEPT best
FROM
(
    SELECT *, min(source_kind) OVER (PARTITION BY src_group, dst_group) AS best
    FROM
    (
{{template "cells" .InWindows}}
    )
)
WHERE source_kind = best
{{template "settings"}};
{{end}}
-- The number of observations, and of heavy ones, that name each location, per window of step_ns
-- and over a range. Reflections count for the cells that have no tag in the range, as they do in
-- cells. share is of all heavy observations in the window or the range, including those without a
-- location: 0 if there are none.
{{range .Sources}}
CREATE OR REPLACE VIEW {{.Database}}.location_windows_{{.Suffix}} AS
SELECT
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
                {{template "bucket" .}} AS bucket,
                p.location AS location,
                sum(toUInt128(p.observations)) AS observations,
                sum(toUInt128(p.samples)) AS samples,
                sum(toUInt128(p.unjudged)) AS unjudged,
                sum(toUInt128(p.heavy)) AS heavy,
                sum(toUInt128(p.heavy_sum)) AS heavy_sum
            {{template "rows" .}}
              AND {{template "chosen" .}}
            GROUP BY bucket, location
) AS b
LEFT JOIN
(
            {{template "ancestors" .}}
) AS l ON b.location = l.id
GROUP BY bucket, location
{{template "settings"}};

-- cells is the number of cells whose heavy observations name the location.
CREATE OR REPLACE VIEW {{.Database}}.top_locations_{{.Suffix}} AS
SELECT
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
            {{template "rows" .}}
              AND {{template "chosen" .}}
            GROUP BY src_group, dst_group, location
) AS b
LEFT JOIN
(
            {{template "ancestors" .}}
) AS l ON b.location = l.id
GROUP BY location
ORDER BY heavy DESC, location
{{template "settings"}};

-- The cells of a signal by the locations that their observations name: the basis of links.
-- Locations are at level 0. last_* are the values of the last window that has any, later_*
-- those of the later half of the range. A cell is made of its tags if it has any in the range, as
-- in cells.
CREATE OR REPLACE VIEW {{.Database}}.cell_locations_{{.Suffix}} AS
SELECT
    p.src_group AS src_group,
    p.dst_group AS dst_group,
    p.source_kind AS source_kind,
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
    groupBitOr(p.evidence) AS evidence,
    maxIf(p.window_start, p.measured > 0) AS last,
    sumArgMaxIf(toUInt128(p.measured), p.window_start, p.measured > 0) AS last_measured,
    sumArgMaxIf(toUInt128(p.sum), p.window_start, p.measured > 0) AS last_sum,
    sumIf(toUInt128(p.measured), p.window_start >= {{template "later" .}}) AS later_measured,
    sumIf(toUInt128(p.sum), p.window_start >= {{template "later" .}}) AS later_sum
            {{template "rows" .}}
              AND {{template "chosen" .}}
GROUP BY src_group, dst_group, source_kind, location
{{template "settings"}};
{{end}}
-- Totals of each signal and kind in a range.
{{range .Sources}}
CREATE OR REPLACE VIEW {{.Database}}.totals_{{.Suffix}} AS
SELECT
    signal,
    source_kind,
    min(p.window_start) AS first,
    max(p.window_start) AS last,
    sum(toUInt128(p.observations)) AS observations,
    sum(toUInt128(p.heavy)) AS heavy,
    sum(toUInt128(p.trimmed)) AS trimmed
{{template "rows" .OfAllSignals}}
GROUP BY signal, source_kind
{{template "settings"}};
{{end}}
-- How often each code was seen, per window of step_ns and cell: the distribution behind means and
-- shares. The same code means different values in different tag layouts (encoding). A cell is
-- made of its tags if it has any in the range, as in cells.
{{range .Sources}}
CREATE OR REPLACE VIEW {{.Database}}.code_windows_{{.Suffix}} AS
SELECT
    bucket AS window_start,
    src_group,
    dst_group,
    encoding,
    code,
    seen AS observations
FROM
(
            SELECT
                {{template "bucket" .}} AS bucket,
                p.src_group AS src_group,
                p.dst_group AS dst_group,
                p.encoding AS encoding,
                sumMap(CAST(p.dist, 'Map(UInt16, UInt128)')) AS codes
            {{template "rows" .}}
              AND {{template "chosen" .}}
            GROUP BY bucket, src_group, dst_group, encoding
)
ARRAY JOIN mapKeys(codes) AS code, mapValues(codes) AS seen
{{template "settings"}};
{{end}}
-- Coverage of a range. A window without a row has neither observations nor gaps: it was silent.
{{range .Sources}}
-- Per window of step_ns, over all signals. gap_ns is the time of the window in which rows of at
-- least one producer are missing, and lost the number of missing observations; a gap that extends
-- beyond the window counts by its part of the time.
CREATE OR REPLACE VIEW {{.Database}}.coverage_windows_{{.Suffix}} AS
SELECT
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
    {{template "rows" .OfAllSignals}}
    GROUP BY slot
    UNION ALL
    SELECT slot, 0, 0, 0, 0, 0, 0, sum(g.lost), sum(greatest(g.end - greatest(g.begin, g.known), 0))
    FROM
    (
        SELECT
            slot,
            begin,
            end,
            lost,
            max(end) OVER (PARTITION BY slot ORDER BY begin, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS known
        FROM
        (
{{template "gap slots" .}}
        )
    ) AS g
    GROUP BY slot
) AS c
GROUP BY slot
ORDER BY slot
{{template "settings"}};

-- Per cell of a signal over the range. covered is the share of the range's windows in which the
-- cell was observed at all.
CREATE OR REPLACE VIEW {{.Database}}.coverage_cells_{{.Suffix}} AS
SELECT
    src_group,
    dst_group,
    sum(toUInt128(p.observations)) AS observations,
    sumIf(toUInt128(p.observations), p.source_kind = 1) AS tags,
    sumIf(toUInt128(p.observations), p.source_kind = 2) AS reflections,
    sum(toUInt128(p.untouched)) AS untouched,
    sum(toUInt128(p.trimmed)) AS trimmed,
    sumIf(toUInt128(p.observations), p.location = 1) AS overflow,
    uniqExact(p.producer) AS producers,
    uniqExact(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({{template "length" .}}))) / ({{template "end" .}} - intDiv(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), toInt64({{template "length" .}}))) AS covered
            {{template "rows" .}}
GROUP BY src_group, dst_group
ORDER BY covered, src_group, dst_group
{{template "settings"}};
{{end}}
-- The work of one group, such as a training job: its load, sent and received, and the steps in
-- it. An unknown name gives no rows.
{{range .Tables}}
-- Per window of step_ns: bytes of the observed packets, of one signal, and their rate in bit/s;
-- heavy_share is of the observations. A cell is made of its tags if it has any in the range, as
-- in cells.
CREATE OR REPLACE VIEW {{.Database}}.group_windows_{{.Suffix}} AS
SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS window_start,
    load AS bytes,
    seen AS observations,
    loaded AS heavy,
    toFloat64(load) * 8e9 / {step_ns:UInt64} AS rate,
    toFloat64(loaded) / toFloat64(seen) AS heavy_share
FROM
({{template "group load" .}}
)
ORDER BY window_start
{{template "settings"}};

-- Per step: idle is the quiet time before it, period the time since the start of the previous
-- step, in s, NULL for the first. Steps and pauses shorter than two windows are not separated.
CREATE OR REPLACE VIEW {{.Database}}.group_steps_{{.Suffix}} AS
SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS start,
    idle,
    period
FROM
({{template "group steps" .}}
)
ORDER BY start
{{template "settings"}};

-- All steps of the range in one row: medians, and the total quiet time.
CREATE OR REPLACE VIEW {{.Database}}.group_rhythm_{{.Suffix}} AS
SELECT
    count() AS steps,
    if(count(s.period) = 0, NULL, medianExact(s.period)) AS period,
    if(count() = 0, NULL, medianExact(s.idle)) AS idle,
    sum(s.idle) AS quiet
FROM
({{template "group steps" .}}
) AS s
{{template "settings"}};
{{end}}
-- The flows of a signal over a range, from windows of one resolution, the worst first. A flow
-- that was not among the first of a window is part of the others there, whose sum has the address
-- ::. A flow is made of its tags if it has any, else of its reflections. location is the one that
-- most heavy observations name, window by window. If sampled is not 0, the counts are estimates from
-- as many heavy observations.
CREATE OR REPLACE VIEW {{.Database}}.top_flows AS
SELECT *
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
        toFloat64(sum(a.sum)) * if({{template "unit" .}} = 1, 1000, 1) / if({{template "unit" .}} = 2, 1000000, 1) / toFloat64(measured) AS mean,
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
        FROM {{.Database}}.flows AS f FINAL
        WHERE f.resolution_ns = {resolution_ns:UInt64}
          AND f.signal = {signal:UInt8}
          AND indexHint(toStartOfHour(f.window_start) >= toStartOfHour({from:DateTime64(9, 'UTC')}),
                        toStartOfHour(f.window_start) <= toStartOfHour({to:DateTime64(9, 'UTC')}))
          AND f.window_start >= {from:DateTime64(9, 'UTC')}
          AND f.window_start < {to:DateTime64(9, 'UTC')}
          AND (f.producer, f.incarnation, f.config_epoch) NOT IN (SELECT producer, incarnation, epoch FROM {{.Database}}.superseded)
        GROUP BY src_group, dst_group, src, dst, src_port, dst_port, proto, source_kind, location
    ) AS a
    GROUP BY src_group, dst_group, src, dst, src_port, dst_port, proto, source_kind
    ORDER BY source_kind
    LIMIT 1 BY src_group, dst_group, src, dst, src_port, dst_port, proto
)
ORDER BY heavy DESC, src, dst, src_port, dst_port, proto, src_group, dst_group
{{template "settings"}};

-- Findings of a range, and those without a time, each once. first and last are 0 without a time.
CREATE OR REPLACE VIEW {{.Database}}.finding_totals AS
SELECT
    kind,
    id,
    max(f.severity) AS severity,
    minIf(f.time_from, f.time_to > toDateTime64(0, 9, 'UTC')) AS first,
    max(f.time_to) AS last,
    sum(toUInt128(f.count)) AS count,
    argMin(f.device, (f.time_from, f.seq)) AS device,
    argMin(f.port, (f.time_from, f.seq)) AS port,
    argMin(f.location, (f.time_from, f.seq)) AS location,
    argMin(f.evidence, (f.time_from, f.seq)) AS evidence,
    argMin(f.packets, (f.time_from, f.seq)) AS packets
FROM {{.Database}}.findings AS f FINAL
WHERE f.time_from < {to:DateTime64(9, 'UTC')} AND (f.time_to >= {from:DateTime64(9, 'UTC')} OR f.time_to = toDateTime64(0, 9, 'UTC'))
  AND (f.producer, f.incarnation, f.epoch) NOT IN (SELECT producer, incarnation, epoch FROM {{.Database}}.superseded)
GROUP BY kind, id
ORDER BY severity DESC, last DESC, kind, id
{{template "settings"}};

-- Packets of each tap over a range, and their fate. A period counts as a whole if any of it lies
-- in the range. first and last are 0 if no packet has a time.
CREATE OR REPLACE VIEW {{.Database}}.tap_totals AS
SELECT
    name,
    place,
    interface,
    any(t.link) AS link,
    any(t.timestamps) AS timestamps,
    max(t.tick_ns) AS tick_ns,
    minIf(t.time_from, t.time_to > toDateTime64(0, 9, 'UTC')) AS first,
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
FROM {{.Database}}.taps AS t FINAL
WHERE t.time_from < {to:DateTime64(9, 'UTC')} AND t.time_to >= {from:DateTime64(9, 'UTC')}
  AND (t.producer, t.incarnation, t.epoch) NOT IN (SELECT producer, incarnation, epoch FROM {{.Database}}.superseded)
GROUP BY name, place, interface
ORDER BY name, place, interface
{{template "settings"}};
