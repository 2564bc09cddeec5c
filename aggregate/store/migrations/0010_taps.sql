-- What each tap took in over a range, and what became of it. A period counts whole if
-- any of it lies in the range.
CREATE OR REPLACE VIEW {{.Database}}.tap_totals AS
SELECT
    name,
    place,
    interface,
    any(t.link) AS link,
    any(t.timestamps) AS timestamps,
    max(t.tick_ns) AS tick_ns,
    min(t.time_from) AS first,
    max(t.time_to) AS last,
    uniqExact((t.producer, t.incarnation)) AS runs,
    sum(t.packets) AS packets,
    sum(t.bytes) AS bytes,
    sumMap(t.frames) AS frames,
    sum(t.tags) AS tags,
    sum(t.reflections) AS reflections,
    sum(t.observations) AS observations,
    sum(t.stored) AS stored,
    sum(t.overflow) AS overflow,
    sum(t.late) AS late,
    sumMap(t.rejected) AS rejected,
    sum(t.untouched) AS untouched,
    sum(t.trimmed) AS trimmed,
    sum(t.kernel_drops) AS kernel_drops,
    sum(t.freezes) AS freezes,
    sum(t.super_frames) AS super_frames,
    sum(t.lost) AS lost,
    argMax(t.skew_ns, abs(t.skew_ns)) AS skew_ns
FROM {{.Database}}.taps AS t FINAL
WHERE t.time_from < {to:DateTime64(9, 'UTC')} AND t.time_to >= {from:DateTime64(9, 'UTC')}
  AND (t.producer, t.incarnation, t.epoch) NOT IN (SELECT producer, incarnation, epoch FROM {{.Database}}.superseded)
GROUP BY name, place, interface
ORDER BY name, place, interface
SETTINGS do_not_merge_across_partitions_select_final = 1;
