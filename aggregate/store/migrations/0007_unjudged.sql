-- unjudged is the number of observations of which no threshold says whether they are heavy, such
-- as those of min ABW where the capacity of the port is not known. Of rows that were written before
-- none are known.
--
-- evidence is what located observations more closely than their locators: 1 the path table, 2 the
-- hashes of the switches, 4 taps in the middle of the fabric, or a sum of them. 0: nothing.
{{range .Grains}}
ALTER TABLE {{$.Database}}.partials_{{.Suffix}} ADD COLUMN IF NOT EXISTS unjudged UInt64 COMMENT 'observations that no threshold judges' CODEC(T64, LZ4) AFTER samples;
ALTER TABLE {{$.Database}}.partials_{{.Suffix}} ADD COLUMN IF NOT EXISTS evidence UInt8 COMMENT 'what located observations more closely than locators: 1 path table, 2 hashes, 4 taps' AFTER unjudged;
{{end}}