package grafana

// ofGroup chooses the cells that a group sends or receives in.
const ofGroup = `(src_group = (SELECT max(id) FROM groups FINAL WHERE name = {group}) OR dst_group = (SELECT max(id) FROM groups FINAL WHERE name = {group}))`

// loadSQL is what a group sends and receives in each window with a row.
const loadSQL = `
    SELECT toUInt64(intDiv(toUnixTimestamp64Nano(window_start), {step})) AS slot, sum(bytes) AS load, sum(observations) AS observations, sum(heavy) AS heavy
    FROM cell_windows_{suffix}({signal}, {span}, {level}, step_ns = {step})
    WHERE ` + ofGroup + `
    GROUP BY slot`

var activitySQL = ask(`
SELECT fromUnixTimestamp64Nano(toInt64(w.slot * {step}), 'UTC') AS time, c.load * 8000000000 / ({step}) AS bits, if(c.observations = 0, NULL, c.heavy / c.observations) AS heavy
FROM (SELECT arrayJoin({slots}) AS slot) AS w
LEFT JOIN
(` + loadSQL + `
) AS c ON c.slot = w.slot
ORDER BY time`)

// stepsSQL has a row for each step of a job: one begins where a window is busy after
// one that was not. Busy is more than halfway from what the quietest tenth of the windows
// does not exceed to what the busiest tenth reaches, windows without a row, between the
// first and the last that has one, among them. before is how
// long it was quiet until then, since how long ago the step before began, in s.
const stepsSQL = `
    SELECT slot, gap * {step} / 1e9 AS before, if(row_number() OVER (ORDER BY slot) = 1, NULL, (slot - lagInFrame(slot, 1, slot) OVER (ORDER BY slot)) * {step} / 1e9) AS since
    FROM
    (
        SELECT slot, toInt64(slot) - toInt64(lagInFrame(slot, 1, slot) OVER (ORDER BY slot)) - 1 AS gap
        FROM
        (
            SELECT slot, load, (quantileExact(0.1)(load) OVER () + quantileExact(0.9)(load) OVER ()) / 2 AS half
            FROM
            (
                SELECT w.slot AS slot, c.load AS load, minIf(w.slot, c.observations > 0) OVER () AS first, maxIf(w.slot, c.observations > 0) OVER () AS last
                FROM (SELECT arrayJoin({slots}) AS slot) AS w
                LEFT JOIN (` + loadSQL + `) AS c ON c.slot = w.slot
            )
            WHERE slot BETWEEN first AND last
        )
        WHERE load > half
    )
    WHERE gap > 0`

var (
	periodSQL = ask("SELECT fromUnixTimestamp64Nano(toInt64(slot * {step}), 'UTC') AS time, since AS period, before AS idle FROM (" + stepsSQL + ") ORDER BY time")
	stepSQL   = ask("SELECT count() AS steps, if(count(since) = 0, NULL, median(since)) AS period, if(count() = 0, NULL, median(before)) AS idle, sum(before) AS quiet FROM (" + stepsSQL + ")")
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
