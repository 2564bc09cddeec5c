-- The work of one group, such as a training job: what it sends and receives, and the
-- steps in that. An unknown name is that of no group: nothing is found.
{{define "group load"}}
        SELECT
            intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
            sum(p.bytes) AS load,
            sum(p.observations) AS seen,
            sum(p.heavy) AS loaded
            {{template "visible" .}}
              AND {{template "chosen" .}}
              AND (src_group = (SELECT max(id) FROM {{.Database}}.groups FINAL WHERE name = {group:String})
                OR dst_group = (SELECT max(id) FROM {{.Database}}.groups FINAL WHERE name = {group:String}))
        GROUP BY slot
{{- end}}

{{- /* A step begins where a busy window follows a quiet one. Busy is more than halfway
from what the quietest tenth of the windows does not exceed to what the busiest tenth
reaches; windows without a row, between the first and the last that has one, are among
them. */ -}}
{{define "group steps"}}
    SELECT
        slot,
        gap * toInt64({step_ns:UInt64}) / 1e9 AS idle,
        if(row_number() OVER (ORDER BY slot) = 1, NULL, (slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot)) * toInt64({step_ns:UInt64}) / 1e9) AS period
    FROM
    (
        SELECT slot, slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot) - 1 AS gap
        FROM
        (
            SELECT slot, load, (quantileExact(0.1)(load) OVER () + quantileExact(0.9)(load) OVER ()) / 2 AS half
            FROM (SELECT slot, load FROM ({{template "group load" .}}) ORDER BY slot WITH FILL)
        )
        WHERE load > half
    )
    WHERE gap > 0
{{- end}}

{{- range .Grains}}
-- Per window of step_ns: bytes of the observed packets, of one signal, and how many bit/s
-- that is; heavy_share is of the observations. A cell is made of
-- its tags where it has any in the range, as in cells.
CREATE OR REPLACE VIEW {{.Database}}.group_windows_{{.Suffix}} AS
SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS window_start,
    load AS bytes,
    seen AS observations,
    loaded AS heavy,
    load * 8e9 / {step_ns:UInt64} AS rate,
    loaded / seen AS heavy_share
FROM
({{template "group load" .}}
)
ORDER BY window_start
SETTINGS do_not_merge_across_partitions_select_final = 1;

-- Per step: idle is how long it was quiet before, period how long ago the step before
-- began, in s, NULL for the first. Nothing shorter than two windows is told apart.
CREATE OR REPLACE VIEW {{.Database}}.group_steps_{{.Suffix}} AS
SELECT
    fromUnixTimestamp64Nano(slot * toInt64({step_ns:UInt64}), 'UTC') AS start,
    idle,
    period
FROM
({{template "group steps" .}}
)
ORDER BY start
SETTINGS do_not_merge_across_partitions_select_final = 1;

-- All steps of the range in one row: medians, and how long it was quiet in all.
CREATE OR REPLACE VIEW {{.Database}}.group_rhythm_{{.Suffix}} AS
SELECT
    count() AS steps,
    if(count(s.period) = 0, NULL, medianExact(s.period)) AS period,
    if(count() = 0, NULL, medianExact(s.idle)) AS idle,
    sum(s.idle) AS quiet
FROM
({{template "group steps" .}}
) AS s
SETTINGS do_not_merge_across_partitions_select_final = 1;
{{end}}
