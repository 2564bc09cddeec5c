package grafana

import "strings"

// Queries use these short names. The suffix of a view's name is its resolution, as in cells_1s;
// resolution_ns matters only if the table has several. {rowspan} is for views of {rows}, and flows.
var short = strings.NewReplacer(
	"{suffix}", "${resolution:text}",
	"{span}", span("${resolution:raw}"),
	"{rowspan}", span(rowLength),
	"{range}", "from = $__fromTime_ms, to = $__toTime_ms",
	"{signal}", "signal = ${signal:raw}",
	"{judged}", "onset = ${onset:raw}, clear = ${clear:raw}",
	"{mean}", `"mean ${signal:text}"`, // has the unit of that signal
	"{level}", "level = ${level:raw}",
	"{step}", step,
	"{first}", firstSlot,
	"{count}", slotCount,
	"{rows}", "${rows:text}",
	"{locations}", "(SELECT id, name FROM locations FINAL)",
	"{groups}", "(SELECT id, name, ord FROM groups FINAL)",
	"{location}", "if(l.name = '', 'location ' || toString(c.location), l.name)",
	"{src}", chosenName("src"),
	"{dst}", chosenName("dst"),
	"{group}", chosenName("group"),
	"{where}", chosenName("location"),
	"{others}", "(c.src, c.dst, c.src_port, c.dst_port, c.proto) = (toIPv6('::'), toIPv6('::'), 0, 0, 0)",
)

// span is the range with windows of the given length in ns. It begins with its first window, since views leave out
// a window that begins before the range, and few ranges begin on one.
func span(length string) string {
	return "from = fromUnixTimestamp64Nano(toInt64(intDiv(toUnixTimestamp64Milli($__fromTime_ms) * 1000000, " + length + ") * " + length + ")), to = $__toTime_ms, resolution_ns = " + length
}

// chosenName is the value of a variable as a constant text. Grafana's sqlstring doubles quotes only, but ClickHouse
// reads backslashes too.
func chosenName(variable string) string {
	return "decodeURLComponent('${" + variable + ":percentencode}')"
}

// step is the length of a displayed window in ns: Grafana's suggestion, rounded down to whole
// windows of the store. It is a constant expression, as views' parameters must be.
const step = "greatest(intDiv($__interval_ms * 1000000, ${resolution:raw}), 1) * ${resolution:raw}"

// firstSlot is the number of the range's first window, slotCount the number of its windows. Queries
// lay windows out in arrays of that length, with and without rows, since panels would draw a line,
// or the last state, across a missing window. Arrays are joined only with the numbers of their
// elements, since any other column would be copied for every window.
const (
	firstSlot = "toUInt64(intDiv(toUnixTimestamp64Milli($__fromTime_ms) * 1000000, " + step + "))"
	slotCount = "toUInt64(intDiv(toUnixTimestamp64Milli($__toTime_ms) * 1000000 - 1, " + step + ") + 1 - " + firstSlot + ")"
)

// ask returns a query with its short names expanded. Queries convert counts, which are UInt128 in views, to Float64 for
// panels.
func ask(sql string) string { return strings.TrimSpace(short.Replace(sql)) }

// silence is the state of a window without a row. Fine rows exist only for cells with heavy observations
// unless all were requested: a window without one may have been healthy.
const silence = "if(${resolution:raw} < 1000000000, 'no fine row', 'no data')"

// A heatmap's time is the end of the window. Windows in which no heavy observation names a location
// have 0, which the panel hides. If no heavy observation of the range names one, one row says whether anything was
// observed: without rows the data source returns a frame without fields, which the panel cannot
// draw, and silence is not health.
var heatSQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(({first} + n) * {step}), 'UTC') AS time, location, if(isNaN(share), NULL, share) AS Value
FROM
(
    SELECT arrayJoin(if(empty(heaviest), [(0., if(seen > 0, 'nothing heavy', ` + silence + `), none)], heaviest)) AS line, line.2 AS location, line.3 AS shares
    FROM
    (
        SELECT count() AS seen, groupArrayInsertAt(nan, {count})(nan, 0) AS none,
            arraySlice(arraySort(groupArrayIf((-toFloat64(c.total), {location}, c.shares), c.total > 0 AND c.location != 0)), 1, 40) AS heaviest
        FROM
        (
            SELECT location, sum(heavy) AS total,
                groupArrayInsertAt(0., {count})(share, toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step}) - {first})) AS shares
            FROM location_windows_{suffix}({signal}, {span}, {level}, step_ns = {step})
            GROUP BY location
        ) AS c
        LEFT JOIN {locations} AS l ON l.id = c.location
    )
)
ARRAY JOIN shares AS share, arrayEnumerate(shares) AS n
ORDER BY time, location`)

var topSQL = ask(`
SELECT {location} AS location, toFloat64(c.heavy) AS heavy, c.share AS share, c.cells AS cells, toFloat64(c.observations) AS observations
FROM top_locations_{suffix}({signal}, {span}, {level}) AS c
LEFT JOIN {locations} AS l ON l.id = c.location
WHERE c.heavy > 0 AND c.location != 0
ORDER BY c.heavy DESC, location LIMIT 20`)

// stateOf returns the state of a cell, or its mode if it was heavy. A port is not named
// alone if other ports may be the mode.
const stateOf = `multiIf(c.mode_count = 0 OR c.state NOT IN ('congested', 'brief'), replaceOne(c.state, '_', ' '), l.name = '', 'location ' || toString(c.mode_location), has(c.mode_ports, l.name) AND length(c.mode_ports) > 1, l.name || ' or ' || toString(length(c.mode_ports) - 1) || ' other', l.name)`

// A single row of an empty cell keeps the panel from reporting that the data has no time.
var statesSQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(({first} + n - 1) * {step}), 'UTC') AS time, src, dst, mode
FROM
(
    SELECT arrayJoin(if(empty(heaviest), [(0., (0, 0), 'any', 'any', none)], heaviest)) AS line, line.2 AS place, line.3 AS src, line.4 AS dst, line.5 AS states
    FROM
    (
        SELECT groupArrayInsertAt(` + silence + `, {count})(` + silence + `, 0) AS none,
            arraySlice(arraySort(groupArray((-toFloat64(total), place, src, dst, states))), 1, 30) AS heaviest
        FROM
        (
            SELECT s.name AS src, d.name AS dst, any((toInt64(s.ord), toInt64(d.ord))) AS place, sum(c.heavy) AS total,
                groupArrayInsertAt(` + silence + `, {count})(` + stateOf + `, toUInt64(intDiv(toUnixTimestamp64Nano(c.window_start), {step}) - {first})) AS states
            FROM cell_windows_{suffix}({signal}, {span}, {level}, {judged}, step_ns = {step}) AS c
            LEFT JOIN {groups} AS s ON s.id = c.src_group
            LEFT JOIN {groups} AS d ON d.id = c.dst_group
            LEFT JOIN {locations} AS l ON l.id = c.mode_location
            GROUP BY src, dst
        )
    )
)
ARRAY JOIN states AS mode, arrayEnumerate(states) AS n
ORDER BY time, place, src, dst`)

var coverageSQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(w.slot * {step}), 'UTC') AS time,
    toFloat64(c.tags) AS tags, toFloat64(c.reflections) AS reflections, toFloat64(c.untouched) AS untouched, toFloat64(c.trimmed) AS trimmed, toFloat64(c.lost) AS lost, c.gap_share AS missing
FROM (SELECT arrayJoin(range({first}, {first} + {count})) AS slot) AS w
LEFT JOIN
(
    SELECT toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step})) AS slot, tags, reflections, untouched, trimmed, lost, gap_share
    FROM coverage_windows_{suffix}({span}, step_ns = {step})
) AS c ON c.slot = w.slot
ORDER BY time`)

// cellsSQL returns a row for each cell of a signal for the matrix panel, with its mean in a column
// of the given name.
func cellsSQL(signal, mean string) string {
	return ask(`
SELECT if(s.name = '', 'group ' || toString(c.src_group), s.name) AS src, if(d.name = '', 'group ' || toString(c.dst_group), d.name) AS dst,
    if(isNaN(c.mean), NULL, c.mean) AS ` + mean + `, c.state AS state, if(c.state = 'congested' AND c.sustained, toUnixTimestamp64Milli(c.since), NULL) AS since,
    toFloat64(c.observations) AS observations, toFloat64(c.measured) AS measured, c.heavy_share AS heavy, c.trimmed_share AS trimmed,
    if(c.mode_count = 0, '', if(l.name = '', 'location ' || toString(c.mode_location), l.name)) AS mode, toFloat64(c.mode_count) AS named,
    if(has(c.mode_ports, l.name), length(c.mode_ports) - 1, 0) AS others,
    if(c.runner_up_count = 0, '', if(r.name = '', 'location ' || toString(c.runner_up), r.name)) AS second, toFloat64(c.runner_up_count) AS second_named
FROM cells_{rows}(` + signal + `, {rowspan}, {level}, {judged}) AS c
LEFT JOIN {groups} AS s ON s.id = c.src_group
LEFT JOIN {groups} AS d ON d.id = c.dst_group
LEFT JOIN {locations} AS l ON l.id = c.mode_location
LEFT JOIN {locations} AS r ON r.id = c.runner_up
ORDER BY s.ord, src, d.ord, dst LIMIT 300000`)
}

// groupsSQL returns the axes of matrices, with the parent of each group.
var groupsSQL = ask("SELECT name, parent, level FROM groups FINAL WHERE name NOT IN ('unknown', 'overflow') ORDER BY ord, name LIMIT 5000")

// matrixSQL returns a row for each pair of groups with observations, at most 100 groups, in the
// order of the fabric: a table takes the order of its rows and columns from it. A group that only
// receives is among the sources too.
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
                FROM cells_{rows}(` + signal + `, {rowspan}, {level}, {judged}) AS c
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

func meanTableSQL(signal string) string {
	return matrixSQL(signal, "if(c.state = 'too_few', nan, c.mean)", "if(mapContains(cells, b.2) AND NOT isNaN(cells[b.2]), cells[b.2], NULL)")
}

var modeTableSQL = matrixSQL("{signal}", stateOf, "if(mapContains(cells, b.2), cells[b.2], 'no data')")

// sufferersSQL returns the cells whose heavy observations name a location first or second.
// Without a location it returns cells that are congested or brief.
var sufferersSQL = ask(`
SELECT src, dst, state, if(state = 'congested' AND sustained, toUnixTimestamp64Milli(since), NULL) AS since, heavy_share AS heavy, mode, mode_share AS share, second
FROM
(
    SELECT s.name AS src, d.name AS dst, replaceOne(c.state, '_', ' ') AS state, c.sustained AS sustained, c.since AS since, c.heavy_share AS heavy_share, toFloat64(c.heavy) AS weight,
        if(c.mode_count = 0, '', if(l.name = '', 'location ' || toString(c.mode_location), l.name)) AS mode, toFloat64(c.mode_count) / toFloat64(c.heavy) AS mode_share,
        if(c.runner_up_count = 0, '', if(r.name = '', 'location ' || toString(c.runner_up), r.name)) AS second
    FROM cells_{rows}({signal}, {rowspan}, {level}, {judged}) AS c
    LEFT JOIN {groups} AS s ON s.id = c.src_group
    LEFT JOIN {groups} AS d ON d.id = c.dst_group
    LEFT JOIN {locations} AS l ON l.id = c.mode_location
    LEFT JOIN {locations} AS r ON r.id = c.runner_up
    WHERE c.heavy > 0
)
WHERE if({where} = '', state IN ('congested', 'brief'), mode = {where} OR second = {where})
ORDER BY weight DESC, src, dst LIMIT 200`)

// linksSQL is how many links are congested at the end of the range, as the API's links are: by the last 300
// windows before it. A mark judges a location in a window: 1 an onset, -1 below the clear share, 0 neither. A location
// that no tag of a window names is below the clear share there, since tags name the tightest hop.
const linksSQL = `SELECT if(count() = 0, 'not known', toString(countIf(sustained AND location != 0)))
FROM
(
    SELECT location, any(onset) > 0 AND countIf(place > onset AND mark >= 0) = any(last - onset) AS sustained
    FROM
    (
        SELECT location, place, mark, max(place) OVER () AS last, maxIf(place, mark = 1) OVER (PARTITION BY location) AS onset
        FROM
        (
            SELECT location, dense_rank() OVER (ORDER BY window_start) AS place,
                multiIf(samples >= 10 AND toFloat64(heavy) / toFloat64(observations) >= ${onset:raw}, 1,
                    heavy = 0 AND unjudged = 0 OR samples >= 10 AND (toFloat64(heavy) + toFloat64(unjudged)) / toFloat64(observations) < ${clear:raw}, -1, 0) AS mark
            FROM location_windows_{rows}({signal}, from = $__toTime_ms - ` + recent + `, to = $__toTime_ms, resolution_ns = ${resolution:raw}, level = 0, step_ns = ` + rowLength + `)
        )
    )
    GROUP BY location
)`

// wholeStep is step in whole rows of {rows}.
const wholeStep = "greatest(" + step + ", 1000000000)"

// partOf is how many ms of the range lie in a window, by its number and length in ns.
func partOf(number, length string) string {
	return "(least(toUnixTimestamp64Milli($__toTime_ms), intDiv((" + number + " + 1) * " + length + ", 1000000)) - greatest(toUnixTimestamp64Milli($__fromTime_ms), intDiv(" + number + " * " + length + ", 1000000)))"
}

// recent is the time span of the windows that decide states. Each lasts rowLength ns, as the windows of {rows} do.
const (
	rowLength = "greatest(${resolution:raw}, 1000000000)"
	recent    = "toIntervalNanosecond(300 * " + rowLength + ")"
)

// verdictSQL is the first row of numbers: one row, whatever the range holds. A cell was congested if
// any of its last 300 windows was.
var verdictSQL = ask(`
SELECT if(known = 0, 'no data', toString(congested) || ' of ' || toString(known)) AS "congested at the end",
    if(known = 0, 'no data', toString(ever) || ' of ' || toString(known)) AS "congested in last 300 windows",
    if(known = 0, 'no data', (` + linksSQL + `)) AS "congested links",
    if(known = 0, 'no data', if(worst = '', 'none', worst)) AS "worst location", began AS "since"
FROM
(
    SELECT countIf(state != 'no_data') AS known, countIf(state = 'congested') AS congested, countIf(congested_windows > 0 OR state = 'congested') AS ever,
        any(top) AS worst,
        if(countIf(sustained AND top = mode) = 0, NULL, toUnixTimestamp64Milli(minIf(since, sustained AND top = mode))) AS began
    FROM
    (
        SELECT *, argMaxIf(mode, total, mode != '' AND chokes) OVER () AS top
        FROM
        (
            SELECT c.state AS state, c.congested_windows AS congested_windows, c.since AS since, c.sustained AS sustained, c.state = 'congested' OR c.congested_windows > 0 AS chokes,
                if(c.mode_count = 0, '', if(l.name = '', 'location ' || toString(c.mode_location), l.name)) AS mode, sumIf(toFloat64(c.mode_count), chokes) OVER (PARTITION BY mode) AS total
            FROM cells_{rows}({signal}, {rowspan}, {level}, {judged}) AS c
            LEFT JOIN {locations} AS l ON l.id = c.mode_location
        )
    )
)`)

// knownSQL returns how much of the range is covered, and when the newest rows end: those of 1 s if any is as new as the
// newest minute, since minutes are stored later, and a capture ends within its last one. Coverage is the share of the range in windows with
// rows, without the known gaps of each displayed window. Taps are those of the day before the range's end; a tap is
// silent if it received no packet in the range.
var knownSQL = ask(`
SELECT (SELECT sum(least(toFloat64(c.covered), (1 - least(g.gap_share, 1)) * ` + partOf("g.slot", wholeStep) + `)) / (toUnixTimestamp64Milli($__toTime_ms) - toUnixTimestamp64Milli($__fromTime_ms))
        FROM
        (
            SELECT intDiv(row * ` + rowLength + `, ` + wholeStep + `) AS slot, sum(` + partOf("row", rowLength) + `) AS covered
            FROM (SELECT DISTINCT intDiv(toUnixTimestamp64Nano(window_start), ` + rowLength + `) AS row FROM partials_{rows} WHERE window_start > $__fromTime_ms - toIntervalNanosecond(` + rowLength + `) AND window_start < $__toTime_ms)
            GROUP BY slot
        ) AS c
        INNER JOIN (SELECT intDiv(toUnixTimestamp64Nano(window_start), ` + wholeStep + `) AS slot, gap_share FROM coverage_windows_{rows}({rowspan}, step_ns = ` + wholeStep + `)) AS g USING slot) AS "coverage",
    if(empty(taps), 'none known', toString(length(silent)) || ' of ' || toString(length(taps)) || if(empty(silent), '', ': ' || arrayStringConcat(arraySlice(silent, 1, 3), ', '))) AS "silent taps",
    if(newest = 0, NULL, newest) AS "newest rows", toString(greatest(first, newest - 900000)) AS from_ms, toString(newest) AS to_ms
FROM
(
    SELECT (SELECT groupUniqArray(name) FROM tap_totals(from = $__toTime_ms - INTERVAL 1 DAY, to = $__toTime_ms)) AS taps,
        arraySort(arrayFilter(t -> NOT has((SELECT groupUniqArrayIf(name, packets > 0) FROM tap_totals({range})), t), taps)) AS silent
) AS t
CROSS JOIN
(
    SELECT toUnixTimestamp64Milli(min(window_start)) AS first,
        (SELECT if(count() = 0, 0, toUnixTimestamp64Milli(max(window_start)) + 1000) FROM partials_1s WHERE window_start >= (SELECT max(window_start) FROM partials_1m)) AS seconds,
        multiIf(seconds > 0, seconds, count() = 0, 0, toUnixTimestamp64Milli(max(window_start)) + 60000) AS newest
    FROM partials_1m
) AS stored`)

// cellSQL returns one cell over time.
var cellSQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(w.slot * {step}), 'UTC') AS time, c.mean AS {mean}, c.heavy_share AS heavy, c.trimmed_share AS trimmed
FROM (SELECT arrayJoin(range({first}, {first} + {count})) AS slot) AS w
LEFT JOIN
(
    SELECT toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step})) AS slot,
        if(isNaN(mean), NULL, toNullable(mean)) AS mean, toNullable(heavy_share) AS heavy_share, toNullable(trimmed_share) AS trimmed_share
    FROM cell_windows_{suffix}({signal}, {span}, {level}, {judged}, step_ns = {step})
    WHERE ` + ofCell + `
) AS c ON c.slot = w.slot
ORDER BY time`)

// pathSQL lists the congested locations of a cell's path, window by window, with their counts.
var pathSQL = ask(`
SELECT {location} AS location, c.windows AS windows, toFloat64(c.heavy) AS heavy, l.kind AS kind, l.stage AS stage, arrayStringConcat(arraySlice(l.candidates, 1, 8), ', ') AS candidates
FROM
(
    SELECT mode_location AS location, count() AS windows, sum(mode_count) AS heavy
    FROM cell_windows_{suffix}({signal}, {span}, {level}, {judged}, step_ns = {step})
    WHERE mode_count > 0
      AND ` + ofCell + `
    GROUP BY location
) AS c
LEFT JOIN (SELECT id, name, kind, stage, candidates FROM locations FINAL) AS l ON l.id = c.location
ORDER BY c.heavy DESC, location LIMIT 50`)

// idOf is the ID of a named group, and NULL, which equals none, if no group has the name.
func idOf(name string) string {
	return "(SELECT maxOrNull(id) FROM groups FINAL WHERE name = " + name + ")"
}

// fromSource and ofCell select cells by the names of their groups.
var (
	fromSource = "src_group = " + idOf("{src}")
	ofCell     = fromSource + " AND dst_group = " + idOf("{dst}")
)

// Only the row for all others has no addresses: in others, :: is one.
const flowColumns = `
SELECT if({others}, 'all others', replaceRegexpOne(toString(c.src), '^::ffff:', '')) AS source, nullIf(c.src_port, 0) AS source_port,
    if({others}, '', replaceRegexpOne(toString(c.dst), '^::ffff:', '')) AS destination, nullIf(c.dst_port, 0) AS destination_port,
    if(c.location_heavy = 0, '', {location}) AS location, toFloat64(c.heavy) AS heavy, toFloat64(c.observations) AS observations, toFloat64(c.bytes) AS bytes, if(isNaN(c.mean), NULL, c.mean) AS {mean}, c.windows AS windows, toFloat64(c.sampled) AS samples
FROM top_flows({signal}, {rowspan}) AS c
LEFT JOIN {locations} AS l ON l.id = c.location
`

const aboutFlows = "The flows with the most heavy observations. They are stored unless flows.top of the configuration is 0. Where the column samples is not 0, counts are estimated from that many heavy observations."

var flowsSQL = ask(flowColumns + `
WHERE ` + ofCell + `
  AND ({where} = '' OR location = {where})
ORDER BY heavy DESC, observations DESC, source, destination, source_port, destination_port LIMIT 50`)

var findingsSQL = ask(`
SELECT nullIf(c.last, toDateTime64(0, 9, 'UTC')) AS time, toString(c.severity) AS severity, c.kind AS kind, toFloat64(c.count) AS count, c.device AS device, c.port AS port, if(c.location = 0, '', {location}) AS location, c.evidence AS evidence
FROM finding_totals({range}) AS c
LEFT JOIN {locations} AS l ON l.id = c.location
WHERE {where} = '' OR location = {where}
ORDER BY c.severity DESC, time DESC, kind LIMIT 200`)
