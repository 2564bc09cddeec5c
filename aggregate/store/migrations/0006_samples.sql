-- samples is the number of observations behind a row that are not trimmed, without the weight
-- of the tap. Rows that were written before are taken as unweighted.
{{range .Grains}}
ALTER TABLE {{$.Database}}.partials_{{.Suffix}} ADD COLUMN IF NOT EXISTS samples UInt64 DEFAULT observations - least(trimmed, observations) COMMENT 'observations that are not trimmed, without the weight' CODEC(T64, LZ4) AFTER heavy_sum;
{{end}}