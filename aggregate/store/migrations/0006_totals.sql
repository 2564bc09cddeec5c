-- What there is of each signal and kind in a range.
{{range .Grains}}
CREATE OR REPLACE VIEW {{.Database}}.totals_{{.Suffix}} AS
SELECT
    signal,
    source_kind,
    min(p.window_start) AS first,
    max(p.window_start) AS last,
    sum(p.observations) AS observations,
    sum(p.heavy) AS heavy,
    sum(p.trimmed) AS trimmed
FROM {{.Database}}.partials_{{.Suffix}} AS p FINAL
            WHERE {{template "span" .}}
GROUP BY signal, source_kind
SETTINGS do_not_merge_across_partitions_select_final = 1;
{{end}}
