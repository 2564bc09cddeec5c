-- far_end_id is the location above a location at level 4: all ports that face the same device or
-- host. It is 0 in older rows, which are their own far end.
ALTER TABLE {{.Database}}.locations ADD COLUMN IF NOT EXISTS peer String COMMENT 'device or host that all candidates face' AFTER stage_id;
ALTER TABLE {{.Database}}.locations ADD COLUMN IF NOT EXISTS far_end_id UInt64 AFTER peer;
-- samples is the number of observations in a row that are not trimmed, without the weight of the
-- tap. Older rows count as unweighted.
--
-- unjudged is the number of observations without a threshold for heavy ones, such as those of min
-- ABW if the capacity of the port is unknown. Older rows have none.
--
-- evidence is the evidence that located observations more closely than their locators: 1 the path
-- table, 2 the hashes of the switches, 4 taps in the middle of the fabric, or a sum of them. 0:
-- none.
{{range .Tables}}
ALTER TABLE {{$.Database}}.partials_{{.Suffix}} ADD COLUMN IF NOT EXISTS samples UInt64 DEFAULT observations - least(trimmed, observations) COMMENT 'observations that are not trimmed, without the weight' CODEC(T64, LZ4) AFTER heavy_sum;
ALTER TABLE {{$.Database}}.partials_{{.Suffix}} ADD COLUMN IF NOT EXISTS unjudged UInt64 COMMENT 'observations that no threshold judges' CODEC(T64, LZ4) AFTER samples;
ALTER TABLE {{$.Database}}.partials_{{.Suffix}} ADD COLUMN IF NOT EXISTS evidence UInt8 COMMENT 'what located observations more closely than locators: 1 path table, 2 hashes, 4 taps' AFTER unjudged;
{{end}}
