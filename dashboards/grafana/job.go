package grafana

import (
	"github.com/grafana-tools/sdk"
)

// jobBoard is for the owner of a job, which is a group: whether its steps congest the fabric, how
// much bandwidth is left between them, and which locations slowed its packets.
func jobBoard(o *Options) board {
	colors := mappings(o.Locations)
	seconds := object{"unit": "s", "color": color("thresholds"), "thresholds": thresholds("text"), "noValue": "none"}
	return board{
		uid: JobUID, title: "csigscope / Job", name: "job", refresh: "30s", from: "now-5m",
		variables: []sdk.TemplateVar{
			sourceVariable("datasource", "Store", storePlugin), signalVariable(o.signals()), resolutionVariable(o.Fine), levelVariable(), groupVariable("group", "Group"),
		},
		panels: []panel{
			{
				title: "Steps of $group", kind: "stat", width: 24, height: 4, points: stepPoints,
				about:   "A step begins where a busy window follows a quiet one: half of the way from the quietest tenth of the windows to the busiest tenth tells them apart. Period: from start to start, median. Idle: quiet before a step, median and all together. Nothing shorter than two windows is seen: choose a short range for short steps.",
				targets: []object{sqlTarget(stepSQL, formatTable)}, defaults: seconds,
				overrides: []object{override("steps", object{"unit": "short"})},
				options:   statOptions(""),
			},
			{
				title: "Traffic seen and heavily loaded share", kind: "timeseries", width: 12, height: 9, points: stepPoints, options: lineOptions(),
				about:     "Bytes of the observed packets that the group sends or receives, of one signal, and which share met heavy load.",
				targets:   []object{sqlTarget(activitySQL, formatSeries)},
				defaults:  object{"custom": lines(20), "color": color("palette-classic"), "unit": "bps", "min": 0},
				overrides: []object{override("heavy", object{"displayName": "heavily loaded", "unit": "percentunit", "custom.axisPlacement": "right", "min": 0, "max": 1}), named("bits", "traffic")},
			},
			{
				title: "Period and idle gap of each step", kind: "timeseries", width: 12, height: 9, points: stepPoints, options: lineOptions(),
				targets:  []object{sqlTarget(periodSQL, formatTable)},
				defaults: object{"custom": stepMarks(), "color": color("palette-classic"), "unit": "s", "min": 0},
			},
			{
				title: "Codes of ${signal:text}", kind: "heatmap", width: 24, height: 10, points: 200,
				about:    "How often each code of the signal was seen in a window: two humps are two paths, or work and rest. What a code stands for is in the tables of the configuration.",
				targets:  []object{sqlTarget(codesSQL, formatSeries)},
				defaults: object{"custom": object{"hideFrom": hidden(), "scaleDistribution": object{"type": "linear"}}},
				options:  heatOptions("Viridis", "short", "observations", false),
			},
			{
				title: "Worst flows of $group", kind: "table", width: 24, height: 10, defaults: plain(), options: tableOptions(),
				about:   "The flows with the most heavily loaded observations. Stored where replay and collect keep flows.",
				targets: []object{sqlTarget(jobFlowsSQL, formatTable)},
				overrides: append(flowColumnTitles(o),
					locationColumn(colors, toCells("findings there", "&var-location=${__data.fields.location:percentencode}&viewPanel=22"))),
			},
		},
	}
}

// stepPoints are enough for windows much shorter than a step.
const stepPoints = 2000

func stepMarks() object {
	return object{"drawStyle": "points", "pointSize": 6, "showPoints": "always", "spanNulls": false, "hideFrom": hidden()}
}

// ofGroup selects the cells in which a group sends or receives.
const ofGroup = `(src_group = (SELECT max(id) FROM groups FINAL WHERE name = {group}) OR dst_group = (SELECT max(id) FROM groups FINAL WHERE name = {group}))`

// groupView calls a view for one group.
func groupView(name string) string {
	return name + "_{suffix}({signal}, {span}, step_ns = {step}, group = {group})"
}

var activitySQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(w.slot * {step}), 'UTC') AS time, c.rate AS bits, c.heavy_share AS heavy
FROM (SELECT arrayJoin(range({first}, {first} + {count})) AS slot) AS w
LEFT JOIN
(
    SELECT toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step})) AS slot, toNullable(rate) AS rate, toNullable(heavy_share) AS heavy_share
    FROM ` + groupView("group_windows") + `
) AS c ON c.slot = w.slot
ORDER BY time`)

var (
	periodSQL = ask("SELECT start AS time, period, idle FROM " + groupView("group_steps") + " ORDER BY time")
	stepSQL   = ask("SELECT nullIf(steps, 0) AS steps, period, idle, if(steps IS NULL, NULL, quiet) AS quiet FROM " + groupView("group_rhythm"))
)

// codesSQL is a heatmap of codes: those of a wide tag in at most 32 rows. Without any, one row says so.
var codesSQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(({first} + n) * {step}), 'UTC') AS time, label AS codes, if(isNaN(count), NULL, count) AS Value
FROM
(
    SELECT arrayJoin(if(empty(all), [(0, 0, 'no data', none)], all)) AS line, line.1 AS encoding, line.2 AS first, line.3 AS label, line.4 AS counts
    FROM
    (
        SELECT groupArrayInsertAt(nan, {count})(nan, 0) AS none, groupArray((encoding, first, label, counts)) AS all
        FROM
        (
            SELECT toInt64(encoding) AS encoding, toInt64(intDiv(code, width) * width) AS first,
                if(layouts > 1, 'layout ' || toString(encoding) || ': ', '') || toString(first) || if(width > 1, ' to ' || toString(first + width - 1), '') AS label,
                groupArrayInsertAt(0., {count})(toFloat64(observations), toUInt64(slot - {first})) AS counts
            FROM
            (
                SELECT encoding, intDiv(c, w) * w AS code, any(w) AS width, any(e) AS layouts, slot, sum(n) AS observations
                FROM
                (
                    SELECT encoding, code AS c, toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step})) AS slot, n,
                        toUInt32(intDiv(max(code) OVER (), 32) + 1) AS w, max(encoding) OVER () - min(encoding) OVER () + 1 AS e
                    FROM
                    (
                        SELECT window_start, encoding, code, sum(observations) AS n
                        FROM code_windows_{suffix}({signal}, {span}, step_ns = {step})
                        WHERE ` + ofGroup + `
                        GROUP BY window_start, encoding, code
                    )
                )
                GROUP BY encoding, code, slot
            )
            GROUP BY encoding, first, label
        )
    )
)
ARRAY JOIN counts AS count, arrayEnumerate(counts) AS n
ORDER BY time, encoding, first`)

var jobFlowsSQL = ask(flowColumns + `
WHERE ` + ofGroup + `
ORDER BY heavy DESC, observations DESC, source, destination, source_port, destination_port LIMIT 50`)
