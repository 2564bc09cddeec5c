package remote

import (
	"cmp"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/edge"
)

// Limits bounds one exporter at one collector; MaxMessage, MaxAhead, MaxAge and the last group
// apply to all exporters together. A zero field means its default.
//
// Collectors of one exporter need the same MaxWindowRows and MaxWindowFlows: they
// determine which rows of a block are folded, and a block may reach two collectors.
type Limits struct {
	RequestRate float64 // per second; 50
	ByteRate    float64 // network bytes per second; 8 MiB
	RowRate     float64 // rows of blocks and flows, and observations, per second; 50,000
	// Burst is the number of seconds of its rates that an exporter may use at once; 10.
	Burst float64

	// MaxWindowRows is the maximum number of rows of a stream's window that are stored under
	// their own keys; further ones are folded into one overflow row per signal, kind and
	// encoding. The collector counts the rows it keeps, and refuses blocks that claim fewer.
	// 20,000.
	MaxWindowRows int
	// MaxWindowFlows is the same for flow rows, which are folded into the rest of their signal
	// and kind. 10,000.
	MaxWindowFlows int
	// MaxStreams is the maximum number of streams. Beyond it a new stream takes the place of one that
	// has ended or was silent for 5 minutes. 64.
	MaxStreams int
	// MaxInFlight is the maximum number of requests that are decoded and passed to the store at a
	// time; further ones wait for their turn. All requests of the exporter, with those that wait for
	// their turn or for the disk, hold at most as many bytes as MaxInFlight messages of MaxMessage.
	// A change applies to exporters that are not remembered. 4.
	MaxInFlight int

	MaxMessage int // bytes, uncompressed; 2 MiB, at most 64 MiB
	// MaxNames is the maximum number of groups and locations that an exporter may describe per
	// hour; 200,000.
	MaxNames int

	// MaxAhead and MaxAge limit the times of windows, by the collector's clock: by default at
	// most aggregate.MaxAhead ahead, at most 7 days old.
	MaxAhead, MaxAge time.Duration

	MaxExporters int // remembered exporters; 4096
	MaxConns     int // network connections; twice MaxExporters
	MaxDecoding  int // requests decoded at a time; 8
	MaxBuffered  int // bytes of all running requests; 256 MiB
}

// defaultMaxMessage is the default of MaxMessage, in bytes.
const defaultMaxMessage = 2 << 20

// Limits of the protocol. A message beyond them is refused before it is decoded.
const (
	maxStreamBytes    = 128     // of a stream's name
	maxTextBytes      = 1 << 20 // of a configuration
	maxItems          = 1024    // blocks, batches, records, descriptions and provisional rows in a message
	maxRows           = 1 << 16 // in a message, observations included
	maxMessageNames   = 1 << 14 // groups and locations in a message
	maxCandidates     = 64
	maxMessageBytes   = 64 << 20
	maxRecordBytes    = 8 << 10
	maxEntries        = 64   // of a map in a record
	maxKnown          = 64   // descriptions that a collector remembers
	maxInFlightBlocks = 1024 // of a stream
)

// Bytes that a request, each of its items, and each countedRows of an item hold.
const (
	requestBytes = 8 << 10
	itemBytes    = 320
	keptBytes    = 40
)

func (l Limits) withDefaults() (Limits, error) {
	setDefault(&l.RequestRate, 50)
	setDefault(&l.ByteRate, 8<<20)
	setDefault(&l.RowRate, 50_000)
	setDefault(&l.Burst, 10)
	setDefault(&l.MaxWindowRows, 20_000)
	setDefault(&l.MaxWindowFlows, 10_000)
	setDefault(&l.MaxStreams, 64)
	setDefault(&l.MaxInFlight, 4)
	setDefault(&l.MaxMessage, defaultMaxMessage)
	setDefault(&l.MaxNames, 200_000)
	setDefault(&l.MaxAhead, aggregate.MaxAhead)
	setDefault(&l.MaxAge, 7*24*time.Hour)
	setDefault(&l.MaxExporters, 4096)
	setDefault(&l.MaxConns, 2*l.MaxExporters)
	setDefault(&l.MaxDecoding, 8)
	setDefault(&l.MaxBuffered, 256<<20)
	if l.MaxBuffered < 2*l.MaxMessage {
		return l, fmt.Errorf("limits: %d bytes under way: expected room for two messages of %d", l.MaxBuffered, l.MaxMessage)
	}
	if l.MaxMessage > maxMessageBytes {
		return l, fmt.Errorf("limits: message of %d bytes: expected at most %d", l.MaxMessage, maxMessageBytes)
	}
	for _, n := range []int{l.MaxWindowRows, l.MaxWindowFlows, l.MaxStreams, l.MaxInFlight, l.MaxMessage, l.MaxNames, l.MaxExporters, l.MaxConns, l.MaxDecoding, l.MaxBuffered} {
		if n < 1 {
			return l, fmt.Errorf("limits: %d: expected a positive number", n)
		}
	}
	if min(l.RequestRate, l.ByteRate, l.RowRate, l.Burst) <= 0 || min(l.MaxAhead, l.MaxAge) < 0 {
		return l, fmt.Errorf("limits: expected positive rates and durations")
	}
	// A request larger than the burst could never pass.
	if l.ByteRate*l.Burst < float64(l.MaxMessage) || l.RowRate*l.Burst < maxRows {
		return l, fmt.Errorf("limits: %g s of %g bytes and %g rows a second: expected room for a message of %d bytes and %d rows",
			l.Burst, l.ByteRate, l.RowRate, l.MaxMessage, maxRows)
	}
	return l, nil
}

// over returns l with the fields that own sets.
func (l Limits) over(own *Limits) Limits {
	for _, f := range []struct{ to, from *float64 }{
		{&l.RequestRate, &own.RequestRate}, {&l.ByteRate, &own.ByteRate}, {&l.RowRate, &own.RowRate}, {&l.Burst, &own.Burst},
	} {
		*f.to = cmp.Or(*f.from, *f.to)
	}
	for _, f := range []struct{ to, from *int }{
		{&l.MaxWindowRows, &own.MaxWindowRows},
		{&l.MaxWindowFlows, &own.MaxWindowFlows},
		{&l.MaxStreams, &own.MaxStreams},
		{&l.MaxInFlight, &own.MaxInFlight},
		{&l.MaxNames, &own.MaxNames},
	} {
		*f.to = cmp.Or(*f.from, *f.to)
	}
	return l
}

// peerExporters is the factor between an exporter's rates and those of a peer, which shares the
// windows of all of its exporters.
const peerExporters = 20

// ofPeer returns the limits of a collector that shares its windows. It sends one request at a
// time, and one of provisional rows; one more may start while another is being canceled.
func (l Limits) ofPeer() Limits {
	l.RequestRate *= peerExporters
	l.ByteRate *= peerExporters
	l.RowRate *= peerExporters
	l.MaxInFlight = 3
	return l
}

func setDefault[T comparable](field *T, value T) {
	*field = cmp.Or(*field, value)
}

// Reason says why something was refused. Those below edge.NumReasons are the edge's.
type Reason uint8

// The other reasons. Those before ReasonForged concern unidentified clients.
const (
	ReasonExporters Reason = Reason(edge.NumReasons) + iota // too many exporters

	ReasonForged    // claims another exporter's name
	ReasonRole      // a peer that exports, or an exporter that shares
	ReasonOversized // beyond a hard limit of size
	ReasonMalformed // not a message of the protocol
	ReasonInFlight  // the requests of the exporter together are too large
	ReasonBuffered  // the requests of all exporters together are too large
	ReasonRequestRate
	ReasonByteRate
	ReasonRowRate
	ReasonNames       // more names than an exporter may describe
	ReasonContested   // a name with another description by a fabric file or an exporter
	ReasonDescription // text and epoch do not match, or strings are too long
	ReasonSink        // the store did not accept it, or not in time
	ReasonEnds        // ends of earlier runs that the store did not accept
	ReasonProvisional // provisional rows beyond their rate, or before their description
	ReasonLeft        // the client hung up before its answer

	// The outcomes of blocks and batches; see the protocol.
	ReasonInvalid
	ReasonImpossible // more than a network carries, or a value outside its unit's range
	ReasonFuture
	ReasonPast
	ReasonStale
	ReasonStreams
	ReasonForeign
	ReasonUnsupported

	// NumReasons is the number of reasons.
	NumReasons
)

var reasonNames = [NumReasons]string{
	ReasonExporters: "exporters", "forged", "role", "oversized", "malformed", "in_flight", "buffered", "request_rate", "byte_rate", "row_rate",
	"names", "contested", "description", "sink", "ends", "provisional", "left",
	"invalid", "impossible", "future", "past", "stale", "streams", "foreign", "unsupported",
}

// String returns the name of the reason in metrics and logs, in snake case.
func (r Reason) String() string {
	switch {
	case r < Reason(edge.NumReasons):
		return edge.Reason(r).String()
	case r < NumReasons:
		return reasonNames[r]
	}
	return fmt.Sprintf("reason_%d", uint8(r))
}
