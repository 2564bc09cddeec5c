-- How much of a range is known. A window without a row has neither observations nor
-- gaps: it was silent.

-- Gaps but for those of captures that were replayed again since, to the end.
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
SETTINGS do_not_merge_across_partitions_select_final = 1;
{{range .Grains}}
-- Per window of step_ns, over all signals. gap_ns is how much of the window is missing of
-- at least one producer, and lost how many observations that is; those of a gap
-- that goes beyond the window count by its part of the time.
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
        sumIf(p.observations, p.source_kind = 1) AS tags,
        sumIf(p.observations, p.source_kind = 2) AS reflections,
        sum(p.untouched) AS untouched,
        sum(p.trimmed) AS trimmed,
        sumIf(p.observations, p.location = 1) AS overflow,
        uniqExact(p.producer) AS producers,
        toUInt64(0) AS lost,
        toInt64(0) AS gap_ns
    FROM {{.Database}}.partials_{{.Suffix}} AS p FINAL
            WHERE {{template "span" .}}
    GROUP BY slot
    UNION ALL
    SELECT slot, 0, 0, 0, 0, 0, 0, toUInt64(sum(g.lost)), sum(greatest(g.end - greatest(g.begin, g.known), 0))
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
SETTINGS do_not_merge_across_partitions_select_final = 1;

-- Per cell of a signal over the range. covered is the share of the range's windows in
-- which the cell was observed at all.
CREATE OR REPLACE VIEW {{.Database}}.coverage_cells_{{.Suffix}} AS
SELECT
    src_group,
    dst_group,
    sum(p.observations) AS observations,
    sumIf(p.observations, p.source_kind = 1) AS tags,
    sumIf(p.observations, p.source_kind = 2) AS reflections,
    sum(p.untouched) AS untouched,
    sum(p.trimmed) AS trimmed,
    sumIf(p.observations, p.location = 1) AS overflow,
    uniqExact(p.producer) AS producers,
    uniqExact(p.window_start) * {{template "length" .}} / (toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')})) AS covered
            {{template "visible" .}}
GROUP BY src_group, dst_group
ORDER BY covered, src_group, dst_group
SETTINGS do_not_merge_across_partitions_select_final = 1;
{{end}}
