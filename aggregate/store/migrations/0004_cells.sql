-- The cells of a signal over a range: what is shown in a matrix. source_kind is the
-- tag where the cell has one in the range, else the reflection.
--
-- The mode of the bottleneck is the location with the most heavy observations; ties go
-- to the more severe mean, then to the lower id. Locations that tie have equal counts,
-- so the order of their sums is that of their means, and no division is needed: top
-- holds the two first of (count, severity, id), both inverted where more comes first.
-- Sums over hops have no location: they are heavy without a mode.
--
-- sum, min, max, heavy_sum and mode_sum are in stored units (kbit/s, ppm, ns, counts), mean
-- is in bit/s, as a ratio, in ns or a count, and nan where nothing was measured. A cell with fewer than 10
-- observations that are not trimmed is in the state too_few: nothing is said of it.
-- heavy_share and trimmed_share are of all observations.
--
-- level: 0 the location as resolved, 1 its set, 2 its device, 3 its stage. Locations without
-- a row, and the reserved 0 and 1, stand for themselves at every level.
{{range .Grains}}
CREATE OR REPLACE VIEW {{.Database}}.cells_{{.Suffix}} AS
{{template "cells" .}}
ORDER BY source_kind
LIMIT 1 BY src_group, dst_group
SETTINGS do_not_merge_across_partitions_select_final = 1;

-- The same per window of step_ns. The kind is chosen for the whole range, so that the
-- windows of a cell add up to the cell.
CREATE OR REPLACE VIEW {{.Database}}.cell_windows_{{.Suffix}} AS
SELECT * EXCEPT best
FROM
(
    SELECT *, min(source_kind) OVER (PARTITION BY src_group, dst_group) AS best
    FROM
    (
{{template "cells" .InWindows}}
    )
)
WHERE source_kind = best
SETTINGS do_not_merge_across_partitions_select_final = 1;
{{end}}
