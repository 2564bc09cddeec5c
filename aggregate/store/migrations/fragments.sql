{{- /* Parts of several views. Partials are read once, by the narrowest range of the key;
everything after the first GROUP BY works on few rows. */ -}}

{{- /* Without the last two, outer joins and aggregates of nothing give NULL for some users. */ -}}
{{define "settings" -}}
SETTINGS do_not_merge_across_partitions_select_final = 1, join_use_nulls = 0, aggregate_functions_null_for_empty = 0
{{- end}}

{{- /* The key starts with a function of window_start; conditions on window_start alone
would not use it. As a hint it is left to the index, and not worked out for every row. */ -}}
{{define "range" -}}
{{if not .AllSignals}}signal = {signal:UInt8}
              AND {{end -}}
indexHint({{.KeyStart}}(window_start) >= {{.KeyStart}}({{template "from" .}}),
                  {{.KeyStart}}(window_start) <= {{.KeyStart}}({to:DateTime64(9, 'UTC')}))
              AND window_start >= {{template "from" .}}
              AND window_start < {to:DateTime64(9, 'UTC')}
{{- if .Fine}}
              AND resolution_ns = {resolution_ns:UInt64}
{{- end}}
              AND (producer, incarnation, config_epoch) NOT IN (SELECT producer, incarnation, epoch FROM {{.Database}}.superseded)
{{- end}}

{{- /* Where the rows begin: at the range or, of those that decide states, at the first such window. */ -}}
{{define "from" -}}
{{if .Judging}}{{template "earliest" .}}{{else}}{from:DateTime64(9, 'UTC')}{{end}}
{{- end}}

{{- /* The rows of the range, or those that decide states. With rows of 1 min and of 1 s, those of 1 s are of the
minutes in apart, or all if by_second is not 0; and windows of 1 s decide by themselves alone. */ -}}
{{define "rows" -}}
{{if .Both -}}
FROM
            (
                SELECT *
                {{template "rows" .Minutes}}
                  AND NOT {by_second:UInt8} AND toStartOfMinute(window_start) NOT IN {apart:Array(DateTime('UTC'))}
                {{- if .Judging}} AND {resolution_ns:UInt64} > 1000000000{{end}}
                UNION ALL
                SELECT *
                {{template "rows" .Seconds}}
                  AND ({by_second:UInt8} OR toStartOfMinute(window_start) IN {apart:Array(DateTime('UTC'))}
                {{- if .Judging}} OR {resolution_ns:UInt64} = 1000000000{{end}})
            ) AS p
            WHERE 1
{{- else -}}
FROM {{.Database}}.partials_{{.Suffix}} AS p FINAL
            WHERE {{template "range" .}}
{{- end}}
{{- end}}

{{define "bucket" -}}
fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({step_ns:UInt64})) * toInt64({step_ns:UInt64}), 'UTC')
{{- end}}

{{define "ancestors" -}}
SELECT
                id,
                if({level:UInt8} = 0, candidates, []) AS ports,
                greatest(candidate_count, 1) AS port_count,
                multiIf({level:UInt8} = 0, id, {level:UInt8} = 1, set_id, {level:UInt8} = 2, device_id, {level:UInt8} = 3, stage_id, far_end_id = 0, id, far_end_id) AS ancestor
            FROM {{.Database}}.locations FINAL
{{- end}}

{{- /* Signals from 32 on are types that a table defines: 32 + 64 * aggregation (0 min, 1 max,
2 sum, 3 count) + 16 * unit (0 count, 1 bit/s, 2 ratio, 3 ns) + type. */ -}}
{{define "lower is worse" -}}
({signal:UInt8} < 2 OR {signal:UInt8} BETWEEN 32 AND 95)
{{- end}}

{{- /* Where the later half of the range begins, as in aggregate.LaterHalf. */ -}}
{{define "later" -}}
fromUnixTimestamp64Nano(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) - toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}), 2), 'UTC')
{{- end}}

{{define "unit" -}}
multiIf({signal:UInt8} >= 32, bitAnd(intDiv({signal:UInt8}, 16) - 2, 3), {signal:UInt8} = 0, 1, {signal:UInt8} = 2, 3, {signal:UInt8} < 4, 2, 0)
{{- end}}

{{- /* An observation without a location is none of a bottleneck: no hop replaced the tag,
or its value is a sum over hops. */ -}}
{{define "bottleneck" -}}
a.heavy > 0 AND a.place != 0
{{- end}}

{{- /* The state at the end of a range or window, as Thresholds.State has it. */ -}}
{{define "state" -}}
multiIf(
        silent, 'no_data',
        v.sustained, 'congested',
        v.any_judged, if(v.any_loaded, 'brief', 'clear'),
        c.samples < 10, 'too_few',
        toFloat64(c.heavy) / toFloat64(c.observations) >= {onset:Float64}, 'congested',
        (toFloat64(c.heavy) + toFloat64(c.unjudged)) / toFloat64(c.observations) < {clear:Float64}, if(c.heavy > 0, 'brief', 'clear'),
        toFloat64(c.unjudged) / toFloat64(c.observations) >= {clear:Float64}, 'not_judged',
        if(c.heavy > 0, 'brief', 'clear'))
{{- end}}

{{- /* Numbers of windows: the first of the range that is judged, which is one of its last 300 unless
the answer has windows, the one after its last, and the first that decides. */ -}}
{{define "first" -}}
{{if .Windowed -}}
intDiv(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64({{template "length" .}}) - 1, toInt64({{template "length" .}}))
{{- else -}}
greatest(intDiv(toUnixTimestamp64Nano({from:DateTime64(9, 'UTC')}) + toInt64({{template "length" .}}) - 1, toInt64({{template "length" .}})), {{template "end" .}} - 300)
{{- end}}
{{- end}}

{{define "end" -}}
intDiv(toUnixTimestamp64Nano({to:DateTime64(9, 'UTC')}) + toInt64({{template "length" .}}) - 1, toInt64({{template "length" .}}))
{{- end}}

{{define "earliest" -}}
fromUnixTimestamp64Nano(greatest(({{if .Windowed}}{{template "first" .}} - 300{{else}}{{template "end" .}} - 300{{end}}) * toInt64({{template "length" .}}), toInt64(0)), 'UTC')
{{- end}}

{{- /* The windows of each cell, ascending, as numbers: bit 0 is whether something was heavy, bits 1 and 2
the judgement, those from 3 on the number of the window. Judgements are those of Thresholds.Judge: 0
unjudged, 1 undecided, 2 below, 3 onset. Arrays of tuples would take three times as long. */ -}}
{{define "marks" -}}
SELECT
                src_group,
                dst_group,
                kind,
                arraySort(groupArray(slot * 8 + 2 * multiIf(
                    w.samples < 10, 0,
                    w.heavy / w.observations >= {onset:Float64}, 3,
                    (w.heavy + w.unjudged) / w.observations < {clear:Float64}, 2,
                    w.unjudged / w.observations < {clear:Float64}, 1,
                    0) + (w.heavy > 0))) AS marks
            FROM
            (
                SELECT
                    intDiv(toUnixTimestamp64Nano(p.window_start), toInt64({{template "length" .}})) AS slot,
                    p.src_group AS src_group,
                    p.dst_group AS dst_group,
                    p.source_kind AS kind,
                    sum(toFloat64(p.observations)) AS observations,
                    sum(toFloat64(p.samples)) AS samples,
                    sum(toFloat64(p.unjudged)) AS unjudged,
                    sum(toFloat64(p.heavy)) AS heavy
                {{template "rows" .ThatJudge}}
                GROUP BY slot, src_group, dst_group, kind
            ) AS w
            GROUP BY src_group, dst_group, kind
{{- end}}

{{- /* The verdict on each cell at the end of the range or, of windows of step_ns, at the end of each. */ -}}
{{define "verdicts" -}}
{{if .Windowed -}}
SELECT
        fromUnixTimestamp64Nano(number * toInt64({step_ns:UInt64}), 'UTC') AS bucket,
        src_group,
        dst_group,
        kind,
        bitAnd(mark.2, 6) = 6 AND intDiv(mark.2, 8) >= since_when AS sustained,
        bitAnd(mark.3, 6) > 0 AND intDiv(mark.3, 8) >= since_when AS any_judged,
        bitAnd(mark.4, 1) = 1 AND intDiv(mark.4, 8) >= since_when AS any_loaded,
        intDiv(mark.1, 8) >= since_when AS seen
    FROM
    (
        SELECT
            src_group,
            dst_group,
            kind,
            mark,
            intDiv(intDiv(mark.1, 8) * toInt64({{template "length" .}}), toInt64({step_ns:UInt64})) AS number,
            least(intDiv((number + 1) * toInt64({step_ns:UInt64}), toInt64({{template "length" .}})), {{template "end" .}}) - 300 AS since_when
        FROM
        (
            {{template "marks" .}}
        )
        ARRAY JOIN arrayFilter(
            (last, m, next) -> intDiv(m, 8) >= {{template "first" .}} AND (next = 0
                OR intDiv(intDiv(m, 8) * toInt64({{template "length" .}}), toInt64({step_ns:UInt64})) != intDiv(intDiv(next, 8) * toInt64({{template "length" .}}), toInt64({step_ns:UInt64}))),
            arrayZip(marks, arrayFill(m -> bitAnd(m, 6) >= 4, marks), arrayFill(m -> bitAnd(m, 6) > 0, marks), arrayFill(m -> bitAnd(m, 1) = 1, marks)),
            marks, arrayShiftLeft(marks, 1)) AS mark
    )
{{- else -}}
SELECT
        src_group,
        dst_group,
        kind,
        arrayMax(arrayMap(m -> if(bitAnd(m, 6) = 4, m, 0), marks)) AS last_below,
        intDiv(arrayFirst(m -> bitAnd(m, 6) = 6 AND m > last_below, marks), 8) AS since,
        arrayExists(m -> bitAnd(m, 6) = 6 AND m > last_below, marks) AS sustained,
        arrayExists(m -> bitAnd(m, 6) > 0, marks) AS any_judged,
        arrayExists(m -> bitAnd(m, 1) = 1, marks) AS any_loaded,
        length(marks) > 0 AS seen,
        arrayCount(m -> bitAnd(m, 6) > 0 AND intDiv(m, 8) >= {{template "first" .}}, marks) AS judged_windows,
        arrayCount((m, d) -> bitAnd(m, 6) > 0 AND intDiv(m, 8) >= {{template "first" .}} AND bitAnd(d, 6) = 6, marks, arrayFill(m -> bitAnd(m, 6) >= 4, marks)) AS congested_windows
    FROM
    (
            {{template "marks" .}}
    )
{{- end}}
{{- end}}

{{- /* ranked is top with the ports of locations. It is read for mode_ports alone, which hold to the rules
of aggregate.CellStats.Candidates: leasts are the observations that some port of a location must have. */ -}}
{{define "cells" -}}
SELECT
    {{if .Windowed}}c.bucket AS window_start,
    {{end}}c.src_group AS src_group,
    c.dst_group AS dst_group,
    c.kind AS source_kind,
    c.observations AS observations,
    c.samples AS samples,
    c.bytes AS bytes,
    c.measured AS measured,
    c.sum AS sum,
    toFloat64(c.sum) * if({{template "unit" .}} = 1, 1000, 1) / if({{template "unit" .}} = 2, 1000000, 1) / toFloat64(c.measured) AS mean,
    c.min AS min,
    c.max AS max,
{{- if not .Windowed}}
    c.later_measured AS later_measured,
    c.later_sum AS later_sum,
{{- end}}
    c.untouched AS untouched,
    c.trimmed AS trimmed,
    c.unjudged AS unjudged,
    c.heavy AS heavy,
    c.heavy_sum AS heavy_sum,
    top[1].3 AS mode_location,
    arrayMap(leasts -> arraySort(arrayFilter(p -> if(
        arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) = arrayMax(leasts) AND arrayCount(t -> has(t.4, p), ranked) = 1,
        arrayFirstIndex(t -> has(t.4, p), ranked) <= indexOf(leasts, arrayMax(leasts)),
        arraySum(t -> if(has(t.4, p), bitNot(t.1), toUInt128(0)), ranked) >= arrayMax(leasts)),
        arrayDistinct(arrayFlatten(arrayMap(t -> t.4, ranked))))), [arrayMap(t -> intDiv(bitNot(t.1) + t.5 - 1, t.5), ranked)])[1] AS mode_ports,
    arrayMap(t -> (t.3, toUInt64(least(bitNot(t.1), toUInt128(18446744073709551615)))), if({level:UInt8} = 0, top, [])) AS votes,
    if(empty(top), toUInt128(0), bitNot(top[1].1)) AS mode_count,
    if(empty(top), toUInt128(0), if({{template "lower is worse" .}}, top[1].2, bitNot(top[1].2))) AS mode_sum,
    top[1].4 AS mode_evidence,
    top[2].3 AS runner_up,
    if(length(top) < 2, toUInt128(0), bitNot(top[2].1)) AS runner_up_count,
    top[2].4 AS runner_up_evidence,
    {{if .Fine}}0{{else}}NOT v.seen{{end}} AS silent,
    {{template "state" .}} AS state,
{{- if not .Windowed}}
    fromUnixTimestamp64Nano(v.since * toInt64({{template "length" .}}), 'UTC') AS since,
    v.judged_windows AS judged_windows,
    v.congested_windows AS congested_windows,
{{- end}}
    v.sustained AS sustained,
    v.any_judged AS any_judged,
    v.any_loaded AS any_loaded,
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
        sum(a.samples) AS samples,
        sum(a.bytes) AS bytes,
        sum(a.measured) AS measured,
        sum(a.sum) AS sum,
        minIf(a.min, a.measured > 0) AS min,
        max(a.max) AS max,
{{- if not .Windowed}}
        sum(a.later_measured) AS later_measured,
        sum(a.later_sum) AS later_sum,
{{- end}}
        sum(a.untouched) AS untouched,
        sum(a.trimmed) AS trimmed,
        sum(a.unjudged) AS unjudged,
        sum(a.heavy) AS heavy,
        sum(a.heavy_sum) AS heavy_sum,
        groupArraySortedIf(32)((bitNot(a.heavy), if({{template "lower is worse" .}}, a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.evidence), {{template "bottleneck" .}}) AS top,
        groupArraySortedIf(32)((bitNot(a.heavy), if({{template "lower is worse" .}}, a.heavy_sum, bitNot(a.heavy_sum)), a.place, a.ports, a.port_count), {{template "bottleneck" .}}) AS ranked
    FROM
    (
        SELECT
            {{if .Windowed}}bucket,
            {{end}}src_group,
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
{{- if not .Windowed}}
            sum(b.later_measured) AS later_measured,
            sum(b.later_sum) AS later_sum,
{{- end}}
            sum(b.untouched) AS untouched,
            sum(b.trimmed) AS trimmed,
            sum(b.unjudged) AS unjudged,
            sum(b.heavy) AS heavy,
            sum(b.heavy_sum) AS heavy_sum,
            groupBitOr(b.evidence) AS evidence
        FROM
        (
            SELECT
                {{if .Windowed}}{{template "bucket" .}} AS bucket,
                {{end}}p.src_group AS src_group,
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
{{- if not .Windowed}}
                sumIf(toUInt128(p.measured), p.window_start >= {{template "later" .}}) AS later_measured,
                sumIf(toUInt128(p.sum), p.window_start >= {{template "later" .}}) AS later_sum,
{{- end}}
                sum(toUInt128(p.untouched)) AS untouched,
                sum(toUInt128(p.trimmed)) AS trimmed,
                sum(toUInt128(p.unjudged)) AS unjudged,
                sum(toUInt128(p.heavy)) AS heavy,
                sum(toUInt128(p.heavy_sum)) AS heavy_sum,
                groupBitOr(p.evidence) AS evidence
            {{template "rows" .}}
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
LEFT JOIN
(
    {{template "verdicts" .}}
) AS v ON {{if .Windowed}}c.bucket = v.bucket AND {{end}}c.src_group = v.src_group AND c.dst_group = v.dst_group AND c.kind = v.kind
{{- end}}

{{define "chosen" -}}
(source_kind = 1 OR (p.src_group, p.dst_group) NOT IN (
                SELECT src_group, dst_group
                {{template "rows" .}}
                  AND source_kind = 1
              ))
{{- end}}

{{- /* The length of the windows that decide states. */ -}}
{{define "length" -}}
{{if or .Fine .Either}}{resolution_ns:UInt64}{{else}}{{.Length.Nanoseconds}}{{end}}
{{- end}}

{{- /* The gaps of a resolution, those of an unknown one, and those of packets that were not
captured, which concern all windows; all are cut at windows of step_ns. Other gaps without a
resolution concern records. While packets were dropped, others arrived: such a gap has
observations and no length. */ -}}
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
            {{template "rows" .}}
              AND {{template "chosen" .}}
              AND (src_group = (SELECT maxOrNull(id) FROM {{.Database}}.groups FINAL WHERE name = {group:String})
                OR dst_group = (SELECT maxOrNull(id) FROM {{.Database}}.groups FINAL WHERE name = {group:String}))
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
