// Package checkpoint keeps the last state of a process in a file, so that the next one
// goes on where a killed one was: named, checksummed, replaced as a whole or not at
// all, and one process at a time.
//
// It knows files, names and checksums. It must never know what is in a section, who
// takes checkpoints, or what of.
//
// A folder holds up to 32 places, folders of their own named 1, 2, 3 and so on, each
// with a lock and at most one checkpoint. Open finds the place of a name, or a free one;
// what nobody has come back to is removed there. A checkpoint is written beside the one
// before it, made durable, and then takes its name: a crash leaves one or the other.
//
// A checkpoint is, little-endian:
//
//	offset  size
//	     0     4  magic "ckp1"
//	     4     1  version, 1
//	     5     1  length N of the name, 1 to 255
//	     6     2  number of sections S, at most 64
//	     8     8  number of the checkpoint under this name, from 1;
//	              0 only says whose place it is
//	    16     8  time, Unix ns
//	    24     8  size of the file
//	    32     N  name
//	              S times:
//	           1    length of the section's name
//	                the section's name
//	           8    length of its contents
//	           4    CRC32C of its contents
//	           4  CRC32C of all bytes before
//	              the contents of the sections, one after another
package checkpoint
