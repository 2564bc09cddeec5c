package chdb

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go/compress"
)

const (
	// A client that neither sends nor takes anything for this long loses its request, since it
	// holds an engine connection.
	stalledClient = 60 * time.Second
	// slowestClient is the minimum average rate of a client, in bytes per second, beyond the
	// first stalledClient of waiting for it.
	slowestClient = 64 << 10
	pieceBytes    = 256 << 10
)

var errTooSlow = fmt.Errorf("the client takes less than %d bytes a second", slowestClient)

// response writes a result in the requested form, and its head before the first byte.
type response struct {
	w        *pacedWriter
	header   http.Header
	format   string
	tag      string
	encoding string          // of the whole body
	blocks   compress.Method // of ClickHouse's own blocks
	stats    func() stats
	progress bool
	started  bool
	body     io.WriteCloser
}

// noBlocks stands for a body without ClickHouse's own compression.
const noBlocks = compress.Method(0xff)

func newResponse(w http.ResponseWriter, control *http.ResponseController, q *query, s *session) *response {
	return &response{
		w: &pacedWriter{w: w, control: control, now: time.Now}, header: w.Header(), format: q.format, tag: exceptionTag(),
		encoding: q.encoding, blocks: q.blocks, stats: func() stats { return s.stats }, progress: q.progress,
	}
}

// Write implements io.Writer.
func (o *response) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !o.started {
		if err := o.start(); err != nil {
			return 0, err
		}
	}
	return o.body.Write(p)
}

func (o *response) start() error {
	o.head()
	encoder, err := newEncoder(o.encoding, o.w)
	if err != nil {
		return fmt.Errorf("compress result: %w", err)
	}
	if o.encoding != identity {
		o.header.Set("Content-Encoding", o.encoding)
	}
	if o.blocks != noBlocks {
		encoder = struct {
			io.Writer
			io.Closer
		}{newBlockWriter(encoder, o.blocks), encoder}
	}
	o.started, o.body = true, encoder
	return nil
}

func (o *response) head() {
	o.header.Set("Content-Type", contentType(o.format))
	o.header.Set("X-ClickHouse-Format", headerSafe(o.format))
	o.header.Set("X-ClickHouse-Exception-Tag", o.tag)
	o.header.Set("X-ClickHouse-Summary", o.stats().summary())
	if o.progress {
		// Go sends the head at once, so there is only one report, at the end.
		o.header.Set("X-ClickHouse-Progress", o.stats().summary())
	}
	o.header.Add("Vary", "Accept-Encoding")
}

// finish ends the body. A result without a byte still has a head.
func (o *response) finish() error {
	if !o.started {
		o.head()
		return nil
	}
	return o.body.Close()
}

// fail reports an error after the bytes already written.
func (o *response) fail(err error) {
	writeLateException(o, o.tag, err)
	_ = o.body.Close()
}

// pacedWriter writes with a deadline, and gives up on a client that takes so little at a time
// that it would hold an engine connection for hours.
type pacedWriter struct {
	w       io.Writer
	control *http.ResponseController
	now     func() time.Time
	written int64
	waited  time.Duration
}

// Write implements io.Writer.
func (p *pacedWriter) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		patience := stalledClient + time.Duration(p.written/slowestClient)*time.Second - p.waited
		if patience <= 0 {
			return done, errTooSlow
		}
		began := p.now()
		_ = p.control.SetWriteDeadline(began.Add(min(patience, stalledClient)))
		n, err := p.w.Write(b[done:min(done+pieceBytes, len(b))])
		p.waited += p.now().Sub(began)
		p.written += int64(n)
		done += n
		if err != nil {
			return done, err
		}
	}
	return len(b), nil
}

// isTooSlow distinguishes a client that did not keep up from one that left.
func isTooSlow(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, errTooSlow) || errors.As(err, &timeout) && timeout.Timeout()
}

// contentTypes are ClickHouse's, by the beginning of a format's name in lower case; the longest
// match counts.
var contentTypes = map[string]string{
	"":             "text/plain; charset=UTF-8",
	"json":         "application/json; charset=UTF-8",
	"jsoneachrow":  "application/x-ndjson; charset=UTF-8",
	"csv":          "text/csv; charset=UTF-8; header=absent",
	"csvwithnames": "text/csv; charset=UTF-8; header=present",
	"tabseparated": "text/tab-separated-values; charset=UTF-8",
	"tsv":          "text/tab-separated-values; charset=UTF-8",
	"xml":          "application/xml; charset=UTF-8",
	"native":       "application/octet-stream",
	"rowbinary":    "application/octet-stream",
	"parquet":      "application/octet-stream",
	"arrow":        "application/octet-stream",
	"orc":          "application/octet-stream",
}

func contentType(format string) string {
	format = strings.ToLower(format)
	best := ""
	for prefix := range contentTypes {
		if len(prefix) > len(best) && strings.HasPrefix(format, prefix) {
			best = prefix
		}
	}
	return contentTypes[best]
}

// headerSafe drops characters that are invalid in a header.
func headerSafe(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
}
