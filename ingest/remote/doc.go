// Package remote carries partial aggregates from host exporters to collectors: the client with
// its spool, and the collector's side with identities and limits, which also aggregates tags that
// transports decoded. ingest/wire/ingest.proto describes the protocol.
//
// It knows which exporter sends which blocks, and that each block counts once. It must never know
// how tags are decoded (it uses only the observation type of package decode), SQL, or how blocks are
// used behind Sink.
package remote
