-- How often locations were named, and how often when heavily loaded, per window of
-- step_ns and over a range. Reflections count for the cells that have no tag in the
-- range, as they do in cells. share is of everything heavily loaded, in the window or the
-- range, with what names no location: 0 where nothing was.
{{range .Grains}}
CREATE OR REPLACE VIEW {{.Database}}.location_windows_{{.Suffix}} AS
SELECT
    bucket AS window_start,
    if(l.id <= 1, b.location, l.ancestor) AS location,
    sum(b.observations) AS observations,
    sum(b.heavy) AS heavy,
    sum(b.heavy_sum) AS heavy_sum,
    if(sum(b.heavy) = 0, 0, sum(b.heavy) / sum(sum(b.heavy)) OVER (PARTITION BY bucket)) AS share
FROM
(
            SELECT
                {{template "bucket" .}} AS bucket,
                p.location AS location,
                sum(p.observations) AS observations,
                sum(p.heavy) AS heavy,
                sum(toUInt128(p.heavy_sum)) AS heavy_sum
            {{template "visible" .}}
              AND {{template "chosen" .}}
            GROUP BY bucket, location
) AS b
LEFT JOIN
(
            {{template "ancestors" .}}
) AS l ON b.location = l.id
GROUP BY bucket, location
SETTINGS do_not_merge_across_partitions_select_final = 1;

-- cells is the number of cells in which the location was heavily loaded.
CREATE OR REPLACE VIEW {{.Database}}.top_locations_{{.Suffix}} AS
SELECT
    if(l.id <= 1, b.location, l.ancestor) AS location,
    sum(b.observations) AS observations,
    sum(b.heavy) AS heavy,
    sum(b.heavy_sum) AS heavy_sum,
    uniqExactIf((src_group, dst_group), b.heavy > 0) AS cells,
    if(sum(b.heavy) = 0, 0, sum(b.heavy) / sum(sum(b.heavy)) OVER ()) AS share
FROM
(
            SELECT
                p.src_group AS src_group,
                p.dst_group AS dst_group,
                p.location AS location,
                sum(p.observations) AS observations,
                sum(p.heavy) AS heavy,
                sum(toUInt128(p.heavy_sum)) AS heavy_sum
            {{template "visible" .}}
              AND {{template "chosen" .}}
            GROUP BY src_group, dst_group, location
) AS b
LEFT JOIN
(
            {{template "ancestors" .}}
) AS l ON b.location = l.id
GROUP BY location
ORDER BY heavy DESC, location
SETTINGS do_not_merge_across_partitions_select_final = 1;
{{end}}
