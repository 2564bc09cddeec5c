-- Names age by their last use: a description, or a row that names them (renewNames, in names.go).
-- They outlive the rows: the TTL is 30 days longer than the longest retention of a table, and
-- keepNames in retention.go extends it if rows are kept longer. Existing names count as used now,
-- since their use was not recorded so far.
ALTER TABLE {{.Database}}.groups ADD COLUMN IF NOT EXISTS used DateTime('UTC') DEFAULT toDateTime(at, 'UTC') COMMENT 'last use, to about a day';
ALTER TABLE {{.Database}}.locations ADD COLUMN IF NOT EXISTS used DateTime('UTC') DEFAULT toDateTime(at, 'UTC') COMMENT 'last use, to about a day';
ALTER TABLE {{.Database}}.groups UPDATE used = now('UTC') WHERE used < now('UTC') SETTINGS mutations_sync = 1, allow_nondeterministic_mutations = 1;
ALTER TABLE {{.Database}}.locations UPDATE used = now('UTC') WHERE used < now('UTC') SETTINGS mutations_sync = 1, allow_nondeterministic_mutations = 1;
ALTER TABLE {{.Database}}.groups MODIFY TTL used + INTERVAL 430 DAY;
ALTER TABLE {{.Database}}.locations MODIFY TTL used + INTERVAL 430 DAY;
