package grafana

// ofGroup chooses the cells that a group sends or receives in.
const ofGroup = `(src_group = (SELECT max(id) FROM groups FINAL WHERE name = {group}) OR dst_group = (SELECT max(id) FROM groups FINAL WHERE name = {group}))`

// groupView is a view of what one group does.
func groupView(name string) string {
	return name + "_{suffix}({signal}, {span}, step_ns = {step}, group = {group})"
}

var activitySQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(w.slot * {step}), 'UTC') AS time, c.rate AS bits, c.heavy_share AS heavy
FROM (SELECT arrayJoin({slots}) AS slot) AS w
LEFT JOIN
(
    SELECT toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step})) AS slot, rate, toNullable(heavy_share) AS heavy_share
    FROM ` + groupView("group_windows") + `
) AS c ON c.slot = w.slot
ORDER BY time`)

var (
	periodSQL = ask("SELECT start AS time, period, idle FROM " + groupView("group_steps") + " ORDER BY time")
	stepSQL   = ask("SELECT steps, period, idle, quiet FROM " + groupView("group_rhythm"))
)

// codesSQL is a heatmap of codes: those of a wide tag in at most 32 rows.
var codesSQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64((slot + 1) * {step}), 'UTC') AS time, label AS codes, seen[slot] AS Value
FROM
(
    SELECT label, first, encoding, seen, arrayJoin({slots}) AS slot
    FROM
    (
        SELECT encoding, intDiv(code, width) * width AS first,
            if(layouts > 1, 'layout ' || toString(encoding) || ': ', '') || toString(first) || if(width > 1, ' to ' || toString(first + width - 1), '') AS label,
            mapFromArrays(groupArray(slot), groupArray(toFloat64(observations))) AS seen
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
ORDER BY time, encoding, first`)

var jobFlowsSQL = ask(flowColumns + `
WHERE ` + ofGroup + `
ORDER BY heavy DESC, observations DESC, source, destination, source_port, destination_port LIMIT 50`)
