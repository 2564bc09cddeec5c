-- Frames that receive offload made of several: the packets of a tap are more then than it
-- counted, and their sizes are not those of the wire.
ALTER TABLE {{.Database}}.taps ADD COLUMN IF NOT EXISTS super_frames UInt64 COMMENT 'packets that receive offload made of several' CODEC(T64, LZ4) AFTER freezes;
