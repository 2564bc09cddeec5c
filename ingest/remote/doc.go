// Package remote is how host exporters hand in partial aggregates: the client with its spool,
// and the collector's side with identity and limits, which also takes decoded tags. The
// protocol is described in wire/ingest.proto.
//
// It knows who hands in what, and that each counts once. It must never know how tags are
// decoded (of package decode it uses what an observation is, and no more), SQL, or what
// becomes of the blocks behind Sink.
package remote
