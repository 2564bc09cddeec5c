-- The records of the outbox that held the rows of a gap: records have consecutive numbers in
-- their class.
ALTER TABLE {{.Database}}.gaps ADD COLUMN IF NOT EXISTS log_class LowCardinality(String) COMMENT 'class of the records that held the rows; empty where no record did';
ALTER TABLE {{.Database}}.gaps ADD COLUMN IF NOT EXISTS first_seq UInt64 COMMENT 'sequence number of the first of them, 0 where none can be read';
ALTER TABLE {{.Database}}.gaps ADD COLUMN IF NOT EXISTS last_seq UInt64 COMMENT 'sequence number of the last of them';
-- TestGapReasons compares the reasons with those of gaps.go.
ALTER TABLE {{.Database}}.gaps MODIFY COLUMN reason COMMENT 'restart: packets between two processes, never taken in; drops: packets that the kernel dropped; mirror: packets that a mirror session lost; open: windows that were open when a process was killed; full: made room in the outbox; refused: the server will never take the rows; disk: the outbox could not be written; newer: too many rows of a newer version wait in the outbox; damaged: records of the outbox fail their checksum; missing: records of the outbox are gone; uncertain: the outbox lost its position, and may have lost records; trimmed: windows deleted to make room; trimmed_flows: likewise; trimmed_taps: likewise; trimmed_findings: likewise; exporter_*: lost on the way from an exporter';
