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

-- How often each code was seen, per window of step_ns and cell: what means and shares
-- cannot tell apart. Codes of different tag layouts (encoding) are different things. A
-- cell is made of its tags where it has any in the range, as in cells.
{{range .Grains}}
CREATE OR REPLACE VIEW {{.Database}}.code_windows_{{.Suffix}} AS
SELECT
    bucket AS window_start,
    src_group,
    dst_group,
    encoding,
    code,
    seen AS observations
FROM
(
            SELECT
                {{template "bucket" .}} AS bucket,
                p.src_group AS src_group,
                p.dst_group AS dst_group,
                p.encoding AS encoding,
                sumMap(p.dist) AS codes
            {{template "visible" .}}
              AND {{template "chosen" .}}
            GROUP BY bucket, src_group, dst_group, encoding
)
ARRAY JOIN mapKeys(codes) AS code, mapValues(codes) AS seen
SETTINGS do_not_merge_across_partitions_select_final = 1;
{{end}}
