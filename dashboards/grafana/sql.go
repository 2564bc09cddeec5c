package grafana

import "strings"

// Queries are written with these short names. In a view's name suffix is its resolution,
// as in cells_1s; resolution_ns is only looked at where the table has several.
var short = strings.NewReplacer(
	"{suffix}", "${resolution:text}",
	"{span}", "from = $__fromTime_ms, to = $__toTime_ms, resolution_ns = ${resolution:raw}",
	"{range}", "from = $__fromTime_ms, to = $__toTime_ms",
	"{signal}", "signal = ${signal:raw}",
	"{judged}", "onset = ${onset:raw}, clear = ${clear:raw}",
	"{mean}", `"mean ${signal:text}"`, // which has the unit of that signal
	"{level}", "level = ${level:raw}",
	"{step}", step,
	"{slots}", slots,
	"{locations}", "(SELECT id, name FROM locations FINAL)",
	"{groups}", "(SELECT id, name, ord FROM groups FINAL)",
	"{location}", "if(l.name = '', 'location ' || toString(c.location), l.name)",
	"{src}", "${src:sqlstring}",
	"{dst}", "${dst:sqlstring}",
	"{group}", "${group:sqlstring}",
	"{where}", "${location:sqlstring}",
)

// step is the length of a window on the screen in ns: what Grafana thinks fits, rounded
// down to whole windows of the store. It is a constant expression, as parameters of views
// must be.
const step = "greatest(intDiv($__interval_ms * 1000000, ${resolution:raw}), 1) * ${resolution:raw}"

// slots are the numbers of all windows of the range, whether there is a row or not:
// panels would draw a line, or the last state, across a window that is not there.
const slots = "range(toUInt64(intDiv(toUnixTimestamp64Milli($__fromTime_ms) * 1000000, " + step + ")), " +
	"toUInt64(intDiv(toUnixTimestamp64Milli($__toTime_ms) * 1000000 - 1, " + step + ") + 1))"

// Counts of views are UInt128; panels take them as the Float64 that they draw. Sums of them
// are made before.
func ask(sql string) string { return strings.TrimSpace(short.Replace(sql)) }

// A heatmap's time is the end of the window; windows in which a location was not heavily
// loaded hold 0, which the panel hides.
var heatSQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64((c.slot + 1) * {step}), 'UTC') AS time, {location} AS location, c.shares[c.slot] AS Value
FROM
(
    SELECT location, shares, arrayJoin({slots}) AS slot
    FROM
    (
        SELECT location, sum(heavy) AS total,
            mapFromArrays(groupArray(toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step}))), groupArray(share)) AS shares
        FROM location_windows_{suffix}({signal}, {span}, {level}, step_ns = {step})
        WHERE heavy > 0 AND location != 0
        GROUP BY location ORDER BY total DESC, location LIMIT 40
    )
) AS c
LEFT JOIN {locations} AS l ON l.id = c.location
ORDER BY time, location`)

var topSQL = ask(`
SELECT {location} AS location, toFloat64(c.heavy) AS heavy, c.share AS share, c.cells AS cells, toFloat64(c.observations) AS observations
FROM top_locations_{suffix}({signal}, {span}, {level}) AS c
LEFT JOIN {locations} AS l ON l.id = c.location
WHERE c.heavy > 0 AND c.location != 0
ORDER BY c.heavy DESC, location LIMIT 20`)

// stateOf names the state of a cell, or its mode where it was heavily loaded. A port that others may outdo is not
// named alone.
const stateOf = `multiIf(c.mode_count = 0 OR c.state NOT IN ('congested', 'brief'), replaceOne(c.state, '_', ' '), l.name = '', 'location ' || toString(c.mode_location), has(c.mode_ports, l.name) AND length(c.mode_ports) > 1, l.name || ' or ' || toString(length(c.mode_ports) - 1) || ' other', l.name)`

var statesSQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(slot * {step}), 'UTC') AS time, src, dst, if(mapContains(states, slot), states[slot], 'no data') AS mode
FROM
(
    SELECT src, dst, place, states, arrayJoin({slots}) AS slot
    FROM
    (
        SELECT s.name AS src, d.name AS dst, any((s.ord, d.ord)) AS place, sum(c.heavy) AS total,
            mapFromArrays(groupArray(toUInt64(intDiv(toUnixTimestamp64Nano(c.window_start), {step}))), groupArray(` + stateOf + `)) AS states
        FROM cell_windows_{suffix}({signal}, {span}, {level}, {judged}, step_ns = {step}) AS c
        LEFT JOIN {groups} AS s ON s.id = c.src_group
        LEFT JOIN {groups} AS d ON d.id = c.dst_group
        LEFT JOIN {locations} AS l ON l.id = c.mode_location
        GROUP BY src, dst ORDER BY total DESC, src, dst LIMIT 30
    )
)
ORDER BY time, place, src, dst`)

var coverageSQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(w.slot * {step}), 'UTC') AS time,
    toFloat64(c.tags) AS tags, toFloat64(c.reflections) AS reflections, toFloat64(c.untouched) AS untouched, toFloat64(c.trimmed) AS trimmed, toFloat64(c.lost) AS lost, c.gap_share AS missing
FROM (SELECT arrayJoin({slots}) AS slot) AS w
LEFT JOIN
(
    SELECT toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step})) AS slot, tags, reflections, untouched, trimmed, lost, gap_share
    FROM coverage_windows_{suffix}({span}, step_ns = {step})
) AS c ON c.slot = w.slot
ORDER BY time`)

// matrixSQL has a row for each pair of groups that were met, at most 100 of them, in the
// order of the fabric: a table takes the order of its rows and columns from it. A group
// that only receives is among the sources too.
func matrixSQL(signal, value, shown string) string {
	return ask(`
SELECT a.2 AS src, b.2 AS dst, ` + shown + ` AS value
FROM
(
    SELECT a, cells, arrayJoin(arraySlice(axis, 1, 100)) AS b
    FROM
    (
        SELECT a, cells, arraySort(groupArray(a) OVER ()) AS axis
        FROM
        (
            SELECT if(real, x, y) AS a, mapFromArrays(groupArrayIf(y.2, real), groupArrayIf(value, real)) AS cells
            FROM
            (
                SELECT (s.ord, if(s.name = '', 'group ' || toString(c.src_group), s.name)) AS x,
                    (d.ord, if(d.name = '', 'group ' || toString(c.dst_group), d.name)) AS y, ` + value + ` AS value, arrayJoin([true, false]) AS real
                FROM cells_{suffix}(` + signal + `, {span}, {level}, {judged}) AS c
                LEFT JOIN {groups} AS s ON s.id = c.src_group
                LEFT JOIN {groups} AS d ON d.id = c.dst_group
                LEFT JOIN {locations} AS l ON l.id = c.mode_location
            )
            GROUP BY a
        )
    )
    WHERE has(arraySlice(axis, 1, 100), a)
)
ORDER BY a, b`)
}

func meanSQL(signal string) string {
	return matrixSQL(signal, "if(c.state = 'too_few', nan, c.mean)", "if(mapContains(cells, b.2) AND NOT isNaN(cells[b.2]), cells[b.2], NULL)")
}

var modeSQL = matrixSQL("{signal}", stateOf, "if(mapContains(cells, b.2), cells[b.2], 'no data')")

// cellSQL is one cell over time.
var cellSQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(w.slot * {step}), 'UTC') AS time, c.mean AS {mean}, c.heavy_share AS heavy, c.trimmed_share AS trimmed
FROM (SELECT arrayJoin({slots}) AS slot) AS w
LEFT JOIN
(
    SELECT toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step})) AS slot,
        if(isNaN(mean), NULL, toNullable(mean)) AS mean, toNullable(heavy_share) AS heavy_share, toNullable(trimmed_share) AS trimmed_share
    FROM cell_windows_{suffix}({signal}, {span}, {level}, {judged}, step_ns = {step})
    WHERE src_group = (SELECT max(id) FROM groups FINAL WHERE name = {src}) AND dst_group = (SELECT max(id) FROM groups FINAL WHERE name = {dst})
) AS c ON c.slot = w.slot
ORDER BY time`)

// pathSQL lists where a cell's path choked, window by window, and how often.
var pathSQL = ask(`
SELECT {location} AS location, c.windows AS windows, toFloat64(c.heavy) AS heavy, l.kind AS kind, l.stage AS stage, arrayStringConcat(arraySlice(l.candidates, 1, 8), ', ') AS candidates
FROM
(
    SELECT mode_location AS location, count() AS windows, sum(mode_count) AS heavy
    FROM cell_windows_{suffix}({signal}, {span}, {level}, {judged}, step_ns = {step})
    WHERE mode_count > 0
      AND src_group = (SELECT max(id) FROM groups FINAL WHERE name = {src}) AND dst_group = (SELECT max(id) FROM groups FINAL WHERE name = {dst})
    GROUP BY location
) AS c
LEFT JOIN (SELECT id, name, kind, stage, candidates FROM locations FINAL) AS l ON l.id = c.location
ORDER BY c.heavy DESC, location LIMIT 50`)

const flowColumns = `
SELECT if(c.src = toIPv6('::'), 'all others', replaceRegexpOne(toString(c.src), '^::ffff:', '')) AS source, nullIf(c.src_port, 0) AS source_port,
    if(c.dst = toIPv6('::'), '', replaceRegexpOne(toString(c.dst), '^::ffff:', '')) AS destination, nullIf(c.dst_port, 0) AS destination_port,
    if(c.location_heavy = 0, '', {location}) AS location, toFloat64(c.heavy) AS heavy, toFloat64(c.observations) AS observations, toFloat64(c.bytes) AS bytes, if(isNaN(c.mean), NULL, c.mean) AS {mean}, c.windows AS windows
FROM top_flows({signal}, {range}, resolution_ns = greatest(${resolution:raw}, 1000000000)) AS c
LEFT JOIN {locations} AS l ON l.id = c.location
`

var flowsSQL = ask(flowColumns + `
WHERE src_group = (SELECT max(id) FROM groups FINAL WHERE name = {src}) AND dst_group = (SELECT max(id) FROM groups FINAL WHERE name = {dst})
  AND ({where} = '' OR location = {where})
ORDER BY heavy DESC, observations DESC, source, destination, source_port, destination_port LIMIT 50`)

var findingsSQL = ask(`
SELECT c.last AS time, toString(c.severity) AS severity, c.kind AS kind, toFloat64(c.count) AS count, c.device AS device, c.port AS port, if(c.location = 0, '', {location}) AS location, c.evidence AS evidence
FROM finding_totals({range}) AS c
LEFT JOIN {locations} AS l ON l.id = c.location
WHERE {where} = '' OR location = {where}
ORDER BY c.severity DESC, time DESC, kind LIMIT 200`)
