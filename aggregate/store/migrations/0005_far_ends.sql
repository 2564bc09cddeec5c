-- far_end_id is the location that a location belongs to at the level 4: all ports that face the
-- same device or host. It is 0 in rows that were written before, which stand for themselves.
ALTER TABLE {{.Database}}.locations ADD COLUMN IF NOT EXISTS peer String COMMENT 'device or host that all candidates face' AFTER stage_id;
ALTER TABLE {{.Database}}.locations ADD COLUMN IF NOT EXISTS far_end_id UInt64 AFTER peer;
