-- The flows of a signal over a range, from windows of one resolution, the worst first. A
-- flow that was not among the first of a window is part of the others there. A flow is
-- made of its tags where it has any, else of its reflections. What all others come to
-- has the address ::. location is the one that most heavy observations name, window by
-- window.
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
        toFloat64(sum(a.sum)) * if({{template "unit" .}} = 1, 1000, 1) / if({{template "unit" .}} = 2, 1000000, 1) / measured AS mean,
        minIf(a.min, a.measured > 0) AS min,
        max(a.max) AS max,
        sum(a.heavy) AS heavy,
        sum(a.windows) AS windows,
        argMaxIf(a.location, (a.location_heavy, bitNot(a.location)), a.location_heavy > 0) AS location,
        max(a.location_heavy) AS location_heavy
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
            sum(f.observations) AS observations,
            sum(f.bytes) AS bytes,
            sum(f.measured) AS measured,
            sum(toUInt128(f.sum)) AS sum,
            minIf(f.min, f.measured > 0) AS min,
            max(f.max) AS max,
            sum(f.heavy) AS heavy,
            uniqExact(f.window_start) AS windows,
            sum(f.location_heavy) AS location_heavy
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
SETTINGS do_not_merge_across_partitions_select_final = 1;

-- Findings of a range, each once.
CREATE OR REPLACE VIEW {{.Database}}.finding_totals AS
SELECT
    kind,
    id,
    max(f.severity) AS severity,
    min(f.time_from) AS first,
    max(f.time_to) AS last,
    sum(f.count) AS count,
    argMin(f.device, (f.time_from, f.seq)) AS device,
    argMin(f.port, (f.time_from, f.seq)) AS port,
    argMin(f.location, (f.time_from, f.seq)) AS location,
    argMin(f.evidence, (f.time_from, f.seq)) AS evidence,
    argMin(f.packets, (f.time_from, f.seq)) AS packets
FROM {{.Database}}.findings AS f FINAL
WHERE f.time_from < {to:DateTime64(9, 'UTC')} AND f.time_to >= {from:DateTime64(9, 'UTC')}
  AND (f.producer, f.incarnation, f.epoch) NOT IN (SELECT producer, incarnation, epoch FROM {{.Database}}.superseded)
GROUP BY kind, id
ORDER BY severity DESC, last DESC, kind, id
SETTINGS do_not_merge_across_partitions_select_final = 1;
