// Package outbox keeps records on disk until somebody has taken them over: a
// checksummed, fsynced log in segments, bounded in size, with one appender and one
// sender.
//
// It knows files, checksums and the order of records. It must never know what is in a
// record, who sends it, or where to.
//
// Records belong to classes, each a series of segments of its own under one budget, so
// that the records of one class can make room for those of another. Append returns when
// a record is on disk. Next gives the oldest one that is not acknowledged, verified
// again; where records are damaged or missing it gives a Loss in their place, so that
// between the first record and the last none goes unaccounted.
//
// On disk a segment is a series of records, little-endian:
//
//	offset  size
//	     0     4  magic "obx1"
//	     4     1  version, 1
//	     5     1  class
//	     6     2  0
//	     8     4  length of the label, at most 64 KiB
//	    12     4  length of the payload, at most 64 MiB
//	    16     8  id of the log, part of the record's token
//	    24     8  sequence number in the class, from 1
//	    32     8  sequence number of the confirmed record before it, 0 for none
//	    40     8  time of appending, Unix ns
//	    48     8  weight: how many things the payload holds
//	    56     4  CRC32C of the label
//	    60     4  CRC32C of the payload
//	    64     4  CRC32C of the 64 bytes before and of the header's offset in the file
//	    68        label, payload
//
// The offset in the checksum keeps a copy of a record, inside of a payload or anywhere
// else, from passing for one.
package outbox
