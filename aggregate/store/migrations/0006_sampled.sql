-- sampled is the number of heavy observations that an eBPF program sampled, from which the counts of
-- a flow are estimated. 0: each was counted, as in all older rows.
ALTER TABLE {{.Database}}.flows ADD COLUMN IF NOT EXISTS sampled UInt64 COMMENT 'heavy observations from which the row is estimated, 0 if each was counted' CODEC(T64, LZ4) AFTER location_heavy;
