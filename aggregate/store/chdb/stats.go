package chdb

import (
	"encoding/json"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"
)

// stats are the engine's numbers for a finished statement.
type stats struct {
	readRows, readBytes     uint64 // of tables
	resultRows, resultBytes uint64
	elapsed                 time.Duration
}

func (a *capi) stats(result unsafe.Pointer) stats {
	if result == nil {
		return stats{}
	}
	return stats{
		readRows: a.resultTableRows(result), readBytes: a.resultTableBytes(result),
		resultRows: a.resultRows(result), resultBytes: a.resultBytes(result),
		elapsed: time.Duration(a.resultElapsed(result) * float64(time.Second)),
	}
}

// summary is the value of X-ClickHouse-Summary: numbers as strings, as clients parse them. A
// streamed result has no numbers yet and gets 0, as in ClickHouse.
func (s stats) summary() string {
	decimal := func(n uint64) string { return strconv.FormatUint(n, 10) }
	text, err := json.Marshal(struct {
		ReadRows     string `json:"read_rows"`
		ReadBytes    string `json:"read_bytes"`
		WrittenRows  string `json:"written_rows"`
		WrittenBytes string `json:"written_bytes"`
		TotalRows    string `json:"total_rows_to_read"`
		ResultRows   string `json:"result_rows"`
		ResultBytes  string `json:"result_bytes"`
		Elapsed      string `json:"elapsed_ns"`
	}{
		decimal(s.readRows), decimal(s.readBytes), "0", "0", decimal(s.readRows),
		decimal(s.resultRows), decimal(s.resultBytes), strconv.FormatInt(s.elapsed.Nanoseconds(), 10),
	})
	if err != nil {
		return "{}"
	}
	return string(text)
}

// outcome is how a read-only client's request or connection ended.
type outcome uint8

const (
	answered          outcome = iota
	failed                    // with an exception of the engine or of this package
	refusedConnection         // more than maxReadonlyClients
	refusedOrigin             // sent by a web page, or to another name
	refusedMethod
	tooSlow // its result was cut off
	left    // the read-only client left before the end of its result
	outcomes
)

var outcomeNames = [outcomes]string{"answered", "failed", "connections_refused", "origins_refused", "methods_refused", "too_slow", "left"}

// tally counts outcomes. Safe for concurrent use.
type tally [outcomes]atomic.Uint64

func (t *tally) add(o outcome) { t[o].Add(1) }

// LogValue implements slog.LogValuer.
func (t *tally) LogValue() slog.Value {
	attrs := make([]slog.Attr, outcomes)
	for i := range attrs {
		attrs[i] = slog.Uint64(outcomeNames[i], t[i].Load())
	}
	return slog.GroupValue(attrs...)
}
