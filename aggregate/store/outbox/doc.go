// Package outbox keeps records on disk until their receiver has them: a checksummed, fsynced log
// in segments, bounded in size, with one sender.
//
// It knows files, checksums and the order of records. It must never know the contents of a
// record, its sender or its receiver.
//
// Records belong to classes. All classes share the segments; each has numbers and a cursor of its
// own, so that a class that cannot be sent holds up no other. Append writes a group of records
// with one sync, and returns when they are on disk; after a crash a group is complete or absent.
// Next returns the oldest unacknowledged record of a class, verified again; for damaged or
// missing records it returns their range of numbers instead, with the weight and the time of the
// records as far as the neighbors show them. It accounts for every record between the first
// and the last.
//
// Acknowledged records stay on disk, for Acked and Read, until the caller releases all records of
// their segment or room is short. A segment then loses them, as it loses records that are given up;
// an empty one is deleted.
//
// Records of classes that Options do not name belong to a newer program: they are held until that
// program runs or Discard gives them up.
//
// On disk a segment is a series of records, little-endian:
//
//	offset  size
//	     0     4  magic "obx1"
//	     4     1  version, 3
//	     5     1  class
//	     6     1  1 if the next record is of the same group, else 0
//	     7     1  0
//	     8     4  length of the label, at most 64 KiB
//	    12     4  length of the payload, at most 64 MiB
//	    16     8  id of the log, part of the record's token
//	    24     8  sequence number in the class, from 1
//	    32     8  sequence number of the confirmed record of the class before it, 0 for none
//	    40     8  time of appending, Unix ns
//	    48     8  weight: how many things the payload holds
//	    56     8  weight of all confirmed records of the class before it
//	    64    16  time of the things in the payload: from and to, Unix ns; 0 for none
//	    80     4  CRC32C of the label
//	    84     4  CRC32C of the payload
//	    88     4  CRC32C of the 88 bytes before and of the header's offset in the file
//	    92        label, payload
//
// The offset in the checksum prevents a copy of a record, inside a payload or anywhere else, from
// being taken for a record; the id does the same for records of another log.
//
// The file "position" records the progress of the log, which reveals records that are cut off at
// its end. It has two slots, at 0 and 4096, of which the later one with a valid checksum counts:
//
//	offset  size
//	     0     4  magic "obp2"
//	     4     4  length of the slot
//	     8     8  generation: the later slot has the higher one
//	    16     8  id of the log
//	    24     8  time of writing, Unix ns
//	    32     1  number of classes
//	    33        for each class: its number on disk (1), and 8 bytes each of the sequence
//	              number up to which all is acknowledged, the number of the last confirmed
//	              record, the weight of all records up to either, the time of all
//	              records since the class was last empty (from, to), and the last
//	              sequence number of an Uncertain loss (see below), 0 for none
//	   end     4  CRC32C of all before
//
// Each append overwrites the slot that is not synced, without a sync; it survives a kill of the
// process. A sync, at each new segment and from time to time while records are acknowledged, makes it
// the synced one, so that one slot survives a power cut too. Without either slot records are sent
// again, and a loss after the last one cannot be excluded (Uncertain).
package outbox
