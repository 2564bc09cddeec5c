// Package decode tells what one frame says: it walks the headers from L2 to L4 and
// yields an Observation for each CSIG tag and each reflection.
//
// It knows frame formats. It must never know time windows or the topology, and it
// believes no more than the bytes say.
package decode
