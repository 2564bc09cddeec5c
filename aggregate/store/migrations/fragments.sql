{{- /* Parts of several views. Partials are read once, by the narrowest range of the key;
everything after the first GROUP BY works on few rows. */ -}}

{{- /* The key starts with a function of window_start; conditions on window_start alone
would not use it. As a hint it is left to the index, and not worked out for every row. */ -}}
{{define "span" -}}
indexHint({{.KeyStart}}(window_start) >= {{.KeyStart}}({from:DateTime64(9, 'UTC')}),
                  {{.KeyStart}}(window_start) <= {{.KeyStart}}({to:DateTime64(9, 'UTC')}))
              AND window_start >= {from:DateTime64(9, 'UTC')}
              AND window_start < {to:DateTime64(9, 'UTC')}
{{- if .Fine}}
              AND resolution_ns = {resolution_ns:UInt64}
{{- end}}
              AND (producer, incarnation, config_epoch) NOT IN (SELECT producer, incarnation, epoch FROM {{.Database}}.superseded)
{{- end}}

{{define "range" -}}
signal = {signal:UInt8}
              AND {{template "span" .}}
{{- end}}

{{define "visible" -}}
FROM {{.Database}}.partials_{{.Suffix}} AS p FINAL
            WHERE {{template "range" .}}
{{- end}}

{{define "bucket" -}}
fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC')
{{- end}}

{{define "ancestors" -}}
SELECT
                id,
                multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, stage_id) AS ancestor
            FROM {{.Database}}.locations FINAL
{{- end}}

{{- /* Signals from 32 on are types that a table defines: 32 + 64 * aggregation (0 min, 1 max,
2 sum, 3 count) + 16 * unit (0 count, 1 bit/s, 2 ratio, 3 ns) + type. */ -}}
{{define "lower is worse" -}}
({signal:UInt8} < 2 OR {signal:UInt8} BETWEEN 32 AND 95)
{{- end}}

{{define "unit" -}}
multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0)
{{- end}}

{{- /* An observation without a location is none of a bottleneck: no hop replaced the tag,
or its value is a sum over hops. */ -}}
{{define "bottleneck" -}}
a.heavy > 0 AND a.place != 0
{{- end}}

{{define "cells" -}}
SELECT
    {{if .Windowed}}bucket AS window_start,
    {{end}}src_group,
    dst_group,
    kind AS source_kind,
    c.observations AS observations,
    c.bytes AS bytes,
    c.measured AS measured,
    c.sum AS sum,
    toFloat64(c.sum) * if({{template "unit" .}} = 1, 1000, 1) / if({{template "unit" .}} = 2, 1000000, 1) / toFloat64(c.measured) AS mean,
    c.min AS min,
    c.max AS max,
    c.untouched AS untouched,
    c.trimmed AS trimmed,
    c.heavy AS heavy,
    c.heavy_sum AS heavy_sum,
    top[1].3 AS mode_location,
    if(empty(top), toUInt128(0), bitNot(top[1].1)) AS mode_count,
    if(empty(top), toUInt128(0), if({{template "lower is worse" .}}, top[1].2, bitNot(top[1].2))) AS mode_sum,
    top[2].3 AS runner_up,
    if(length(top) < 2, toUInt128(0), bitNot(top[2].1)) AS runner_up_count,
    multiIf(c.observations < c.trimmed + 10, 'too_few', c.heavy > 0, 'congested', 'clear') AS state,
    toFloat64(c.heavy) / toFloat64(c.observations) AS heavy_share,
    toFloat64(c.trimmed) / toFloat64(c.observations) AS trimmed_share
FROM
(
    SELECT
        {{if .Windowed}}bucket,
        {{end}}src_group,
        dst_group,
        kind,
        sum(a.observations) AS observations,
        sum(a.bytes) AS bytes,
        sum(a.measured) AS measured,
        sum(a.sum) AS sum,
        minIf(a.min, a.measured > 0) AS min,
        max(a.max) AS max,
        sum(a.untouched) AS untouched,
        sum(a.trimmed) AS trimmed,
        sum(a.heavy) AS heavy,
        sum(a.heavy_sum) AS heavy_sum,
        groupArraySortedIf(2)((bitNot(a.heavy), if({{template "lower is worse" .}}, a.heavy_sum, bitNot(a.heavy_sum)), a.place), {{template "bottleneck" .}}) AS top
    FROM
    (
        SELECT
            {{if .Windowed}}bucket,
            {{end}}src_group,
            dst_group,
            kind,
            if(l.id <= 1, b.location, l.ancestor) AS place,
            sum(b.observations) AS observations,
            sum(b.bytes) AS bytes,
            sum(b.measured) AS measured,
            sum(b.sum) AS sum,
            minIf(b.min, b.measured > 0) AS min,
            max(b.max) AS max,
            sum(b.untouched) AS untouched,
            sum(b.trimmed) AS trimmed,
            sum(b.heavy) AS heavy,
            sum(b.heavy_sum) AS heavy_sum
        FROM
        (
            SELECT
                {{if .Windowed}}{{template "bucket" .}} AS bucket,
                {{end}}p.src_group AS src_group,
                p.dst_group AS dst_group,
                p.source_kind AS kind,
                p.location AS location,
                sum(toUInt128(p.observations)) AS observations,
                sum(toUInt128(p.bytes)) AS bytes,
                sum(toUInt128(p.measured)) AS measured,
                sum(toUInt128(p.sum)) AS sum,
                minIf(p.min, p.measured > 0) AS min,
                max(p.max) AS max,
                sum(toUInt128(p.untouched)) AS untouched,
                sum(toUInt128(p.trimmed)) AS trimmed,
                sum(toUInt128(p.heavy)) AS heavy,
                sum(toUInt128(p.heavy_sum)) AS heavy_sum
            {{template "visible" .}}
            GROUP BY {{if .Windowed}}bucket, {{end}}src_group, dst_group, kind, location
        ) AS b
        LEFT JOIN
        (
            {{template "ancestors" .}}
        ) AS l ON b.location = l.id
        GROUP BY {{if .Windowed}}bucket, {{end}}src_group, dst_group, kind, place
    ) AS a
    GROUP BY {{if .Windowed}}bucket, {{end}}src_group, dst_group, kind
) AS c
{{- end}}

{{define "chosen" -}}
(source_kind = 1 OR (p.src_group, p.dst_group) NOT IN (
                SELECT src_group, dst_group
                FROM {{.Database}}.partials_{{.Suffix}}
                WHERE {{template "range" .}}
                  AND source_kind = 1
              ))
{{- end}}

{{define "length" -}}
{{if .Fine}}{resolution_ns:UInt64}{{else}}{{.Length.Nanoseconds}}{{end}}
{{- end}}

{{- /* The gaps of a resolution, those of nobody knows which, and those of what nobody took in,
which are of all windows, cut at windows of step_ns. The rest without a resolution is of
records. While packets were dropped all others were there: such a gap has observations and
no length. */ -}}
{{define "gap slots" -}}
            SELECT
                arrayJoin(range(toUInt64(intDiv(first, toInt64({step_ns:UInt64}))), toUInt64(intDiv(last - 1, toInt64({step_ns:UInt64})) + 1))) AS slot_,
                toInt64(slot_) AS slot,
                greatest(slot * toInt64({step_ns:UInt64}), first) AS begin,
                least((slot + 1) * toInt64({step_ns:UInt64}), last) AS stop,
                if(g.reason IN ('drops', 'mirror'), begin, stop) AS end,
                intDiv(toUInt128(g.observations) * toUInt128(stop - begin), toUInt128(toUnixTimestamp64Nano(g.window_to) - toUnixTimestamp64Nano(g.window_from))) AS lost,
                greatest(toUnixTimestamp64Nano(g.window_from), toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')})) AS first,
                least(toUnixTimestamp64Nano(g.window_to), toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')})) AS last
            FROM {{.Database}}.current_gaps AS g
            WHERE (g.resolution_ns = {{template "length" .}} OR g.resolution_ns = 0 AND (g.producer = 0 OR g.reason IN ('restart', 'drops', 'mirror')))
              AND g.window_from < g.window_to
              AND g.window_from < {to:DateTime64(9, 'UTC')}
              AND g.window_to > {from:DateTime64(9, 'UTC')}
              AND (g.producer, g.incarnation, g.epoch) NOT IN (SELECT producer, incarnation, epoch FROM {{.Database}}.superseded)
{{- end}}

{{- /* Bytes, observations and heavy ones of a group per window of step_ns. */ -}}
{{define "group load"}}
        SELECT
            intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) AS slot,
            sum(toUInt128(p.bytes)) AS load,
            sum(toUInt128(p.observations)) AS seen,
            sum(toUInt128(p.heavy)) AS loaded
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
            FROM (SELECT slot, toFloat64(g.load) AS load FROM ({{template "group load" .}}) AS g ORDER BY slot WITH FILL)
        )
        WHERE load > half
    )
    WHERE gap > 0
{{- end}}
