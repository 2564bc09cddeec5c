package grafana

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/grafana-tools/sdk"

	"github.com/csigscope/csigscope/decode/csig"
)

// jobBoard is for the owner of a job, which is a group: whether its steps congest the fabric, how
// much bandwidth is left between them, and which locations slowed its packets.
func jobBoard(o *Options) board {
	colors := mappings(o.Locations)
	seconds := object{"unit": "s", "color": color("thresholds"), "thresholds": thresholds("text"), "noValue": "none"}
	return board{
		uid: JobUID, title: "csigscope / Job", name: "job", refresh: "30s", from: "now-5m",
		variables: []sdk.TemplateVar{
			sourceVariable("datasource", "Store", storePlugin), signalVariable(signals), resolutionVariable(o.Fine), levelVariable(), groupVariable("group", "Group"),
		},
		panels: []panel{
			{
				title: "Steps of $group", kind: "stat", width: 24, height: 4, points: stepPoints,
				about:   "A step begins where a busy window follows a quiet one: the limit is half of the way from the quietest tenth of the windows to the busiest tenth. Period: from start to start, median. Idle: quiet time before a step, median and total. Steps shorter than two windows do not show: choose a short range for short steps.",
				targets: []object{sqlTarget(stepSQL, formatTable)}, defaults: seconds,
				overrides: []object{override("steps", object{"unit": "short"})},
				options:   statOptions(""),
			},
			{
				title: "Traffic seen and heavy share", kind: "timeseries", width: 12, height: 9, points: stepPoints, options: lineOptions(),
				about:     "Bit rate of the observed packets that the group sends or receives, of one signal, and the share of heavy observations.",
				targets:   []object{sqlTarget(activitySQL, formatSeries)},
				defaults:  object{"custom": lines(20), "color": color("palette-classic"), "unit": "bps", "min": 0},
				overrides: []object{override("heavy", object{"displayName": "heavy share", "unit": "percentunit", "custom.axisPlacement": "right", "min": 0, "max": 1}), named("bits", "traffic")},
			},
			{
				title: "Period and idle gap of each step", kind: "timeseries", width: 12, height: 9, points: stepPoints, options: lineOptions(),
				targets: []object{sqlTarget(periodSQL, formatTable)},
				defaults: object{
					"custom": object{"drawStyle": "points", "pointSize": 6, "showPoints": "always", "spanNulls": false, "hideFrom": hidden()},
					"color":  color("palette-classic"), "unit": "s", "min": 0,
				},
			},
			{
				title: "Cells of $group by ${signal:text}", kind: "heatmap", width: 24, height: 10, points: 200,
				about:    "Per window: the number of observations in cells with this mean, over all cells from or to the group. Two bands mean two kinds of cells, or work and rest.",
				targets:  []object{sqlTarget(valuesSQL(signals), formatSeries)},
				defaults: object{"custom": object{"hideFrom": hidden(), "scaleDistribution": object{"type": "linear"}}},
				options:  heatOptions("Viridis", "short", "observations", false),
			},
			{
				title: "Worst flows of $group", kind: "table", width: 24, height: 10, defaults: plain(), options: tableOptions(),
				about:   aboutFlows,
				targets: []object{sqlTarget(jobFlowsSQL, formatTable)},
				overrides: append(flowColumnTitles(),
					locationColumn(colors, toCellsByDefault("findings there", "&var-location=${__data.fields.location:percentencode}&viewPanel=22"))),
			},
		},
	}
}

// stepPoints are enough for windows much shorter than a step.
const stepPoints = 2000

// ofGroup selects the cells in which a group sends or receives.
var ofGroup = "(src_group = " + idOf("{group}") + " OR dst_group = " + idOf("{group}") + ")"

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

// multiples lists, by unit, the multiples in which rows of valuesSQL may be labelled, ascending: the size in the views'
// unit, and the suffix.
var multiples = map[csig.Unit]string{
	csig.BitPerSecond: "[(1., ' bit/s'), (1e3, ' kbit/s'), (1e6, ' Mbit/s'), (1e9, ' Gbit/s'), (1e12, ' Tbit/s')]",
	csig.Ratio:        "[(0.01, ' %')]",
	csig.Nanosecond:   "[(1., ' ns'), (1e3, ' µs'), (1e6, ' ms'), (1e9, ' s')]",
	csig.Count:        "[(1., '')]",
}

// multiplesOf is the expression of the multiples of the chosen signal's unit.
func multiplesOf(signals []csig.Signal) string {
	ids := map[csig.Unit][]string{}
	for _, s := range signals {
		ids[s.Unit()] = append(ids[s.Unit()], strconv.Itoa(int(s)))
	}
	var cases strings.Builder
	for _, unit := range []csig.Unit{csig.BitPerSecond, csig.Ratio, csig.Nanosecond} {
		if len(ids[unit]) > 0 {
			fmt.Fprintf(&cases, "${signal:raw} IN (%s), %s, ", strings.Join(ids[unit], ", "), multiples[unit])
		}
	}
	return "multiIf(" + cases.String() + multiples[csig.Count] + ")"
}

// valuesSQL is a heatmap of the means of a group's cells, in about 20 rows of equal width from 0 up to the greatest
// mean, or to 100 %. Series are sorted by their labels as texts, so that numbers are padded. Without any cell one row
// says so.
func valuesSQL(signals []csig.Signal) string {
	return ask(`
SELECT fromUnixTimestamp64Nano(toInt64(({first} + n) * {step}), 'UTC') AS time, label AS values, if(isNaN(count), NULL, count) AS Value
FROM
(
    SELECT arrayJoin(if(empty(rows), [(` + silence + `, arrayWithConstant({count}, nan))],
        arrayMap(r -> (leftPad(edges[r + 1], length(edges[last + 1]), ' ') || ' to ' || edges[r + 2] || axis.2, if(has(rows, r), columns[indexOf(rows, r)], arrayWithConstant({count}, 0.))), range(last + 1)))) AS line,
        line.1 AS label, line.2 AS counts
    FROM
    (
        SELECT groupArray(row) AS rows, groupArray(counts) AS columns, any(scale) AS axis, if(axis.2 = ' %', 19, max(row)) AS last,
            arrayMap(i -> multiIf(axis.1 < 0.1, toDecimalString(i * axis.1, 2), axis.1 < 1, toDecimalString(i * axis.1, 1), toDecimalString(i * axis.1, 0)), range(last + 2)) AS edges
        FROM
        (
            SELECT row, scale, groupArrayInsertAt(0., {count})(observations, toUInt64(slot - {first})) AS counts
            FROM
            (
                SELECT slot, row, scale, sum(observations) AS observations
                FROM
                (
                    SELECT slot, observations, (width, unit) AS scale, multiple.2 AS unit,
                        arrayLast(m -> m.1 <= greatest(most, multiples[1].1), ` + multiplesOf(signals) + ` AS multiples) AS multiple,
                        if(unit = ' %', 100, greatest(most / multiple.1, 1)) / 20 AS least, exp10(floor(log10(least))) AS digit,
                        digit * arrayFirst(m -> m * digit >= least * 0.999, [1, 2, 5, 10]) AS width,
                        toUInt64(least(floor(mean / multiple.1 / width), if(unit = ' %', 19, 20))) AS row
                    FROM
                    (
                        SELECT toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step})) AS slot, mean, toFloat64(measured) AS observations, max(mean) OVER () AS most
                        FROM cell_windows_{suffix}({signal}, {span}, {level}, onset = 1, clear = 1, step_ns = {step})
                        WHERE measured > 0 AND ` + ofGroup + `
                    )
                )
                GROUP BY slot, row, scale
            )
            GROUP BY row, scale
        )
    )
)
ARRAY JOIN counts AS count, arrayEnumerate(counts) AS n
ORDER BY time, label`)
}

var jobFlowsSQL = ask(flowColumns + `
WHERE ` + ofGroup + `
ORDER BY heavy DESC, observations DESC, source, destination, source_port, destination_port LIMIT 50`)
