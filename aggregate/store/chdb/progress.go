package chdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Progress in the head of an answer, as in ClickHouse's HTTP interface: with
// send_progress_in_http_headers=1 the status line goes out while the query still runs, followed
// by a line X-ClickHouse-Progress at intervals, so that neither clients nor proxies take a long
// query for a dead connection. Go's server sends a head at once, so this code writes the head to
// the connection itself.

const (
	progressHeader       = "X-ClickHouse-Progress"
	progressIntervalName = "http_headers_progress_interval_ms"

	defaultProgressInterval = 100 * time.Millisecond
	longestProgressInterval = 2 * time.Minute
	// Clients bound the size of a head, Node at 16 KiB: after this many lines the interval
	// doubles, until it is calmProgress.
	progressLines = 6
	calmProgress  = 20 * time.Second
)

// progressInterval is the interval that the client asks for, within bounds.
func progressInterval(values url.Values) time.Duration {
	ms, err := strconv.ParseUint(values.Get(progressIntervalName), 10, 32)
	if err != nil {
		return defaultProgressInterval
	}
	return min(max(time.Duration(ms)*time.Millisecond, defaultProgressInterval), longestProgressInterval)
}

// Phases of an answer.
const (
	quiet    = iota // nothing is written; net/http has the connection
	direct          // net/http writes the answer
	headOpen        // from here on the progressWriter owns the connection
	writing
)

// progressWriter is a response that sends a head with progress if its first byte takes longer
// than an interval, and otherwise leaves the answer to net/http. One goroutine writes; close ends
// it.
type progressWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	interval time.Duration
	report   func() string // the value of a progress line
	gone     func()        // called when the client hangs up
	first    http.Header   // the initial header; read-only
	stop     chan struct{}
	stopped  chan struct{}

	mu    sync.Mutex
	phase int
	conn  net.Conn       // from headOpen on
	body  io.WriteCloser // while writing
}

// newProgressWriter starts to wait. The header must hold all values known so far.
func newProgressWriter(w http.ResponseWriter, interval time.Duration, report func() string, gone func()) *progressWriter {
	p := &progressWriter{
		ResponseWriter: w, control: http.NewResponseController(w), interval: interval, report: report, gone: gone,
		first: w.Header().Clone(), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go p.run()
	return p
}

func (p *progressWriter) run() {
	defer close(p.stopped)
	timer := time.NewTimer(p.interval)
	defer timer.Stop()
	wait := p.interval
	for sent := 1; ; sent++ {
		select {
		case <-p.stop:
			return
		case <-timer.C:
		}
		if !p.send(p.report()) {
			return
		}
		if sent%progressLines == 0 && wait < calmProgress {
			wait = min(2*wait, calmProgress)
		}
		timer.Reset(wait)
	}
}

// send writes one line of progress, after the head if it is the first.
func (p *progressWriter) send(progress string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := ""
	switch p.phase {
	case quiet:
		conn, _, err := p.control.Hijack()
		if err != nil {
			return false
		}
		p.phase, p.conn = headOpen, conn
		go p.watch()
		text = "HTTP/1.1 200 OK\r\nDate: " + time.Now().UTC().Format(http.TimeFormat) + "\r\n" + headerLines(p.first, nil)
	case headOpen:
	default:
		return false
	}
	_ = p.conn.SetWriteDeadline(time.Now().Add(stalledClient))
	if _, err := io.WriteString(p.conn, text+progressHeader+": "+progress+"\r\n"); err != nil {
		p.gone()
		return false
	}
	return true
}

// watch notices when the client hangs up, as net/http does on its own connections.
func (p *progressWriter) watch() {
	var b [512]byte
	for {
		if _, err := p.conn.Read(b[:]); err != nil {
			p.gone()
			return
		}
	}
}

// headerLines returns the lines of header that are not in sent.
func headerLines(header, sent http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if slices.Equal(sent[name], header[name]) {
			continue
		}
		for _, value := range header[name] {
			fmt.Fprintf(&b, "%s: %s\r\n", name, headerSafe(value))
		}
	}
	return b.String()
}

// chooseWriter fixes the writer of the answer and ends the head.
func (p *progressWriter) chooseWriter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.phase {
	case quiet:
		p.phase = direct
	case headOpen:
		p.phase, p.body = writing, httputil.NewChunkedWriter(p.conn)
		head := headerLines(p.Header(), p.first) + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
		if _, err := io.WriteString(p.conn, head); err != nil {
			return err
		}
	}
	return nil
}

// headSent reports whether the status can no longer be chosen.
func (p *progressWriter) headSent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phase >= headOpen
}

// Write implements io.Writer.
func (p *progressWriter) Write(b []byte) (int, error) {
	if err := p.chooseWriter(); err != nil {
		return 0, err
	}
	if p.phase == direct {
		return p.ResponseWriter.Write(b)
	}
	return p.body.Write(b)
}

// WriteHeader implements http.ResponseWriter. It cannot change a status already sent.
func (p *progressWriter) WriteHeader(status int) {
	_ = p.chooseWriter()
	if p.phase == direct {
		p.ResponseWriter.WriteHeader(status)
	}
}

// SetReadDeadline is for http.ResponseController. It has no effect once the progressWriter owns
// the connection and reads until the client hangs up.
func (p *progressWriter) SetReadDeadline(deadline time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase >= headOpen {
		return nil
	}
	return p.control.SetReadDeadline(deadline)
}

// SetWriteDeadline is for http.ResponseController.
func (p *progressWriter) SetWriteDeadline(deadline time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase >= headOpen {
		return p.conn.SetWriteDeadline(deadline)
	}
	return p.control.SetWriteDeadline(deadline)
}

// close ends the answer: complete, or so that the client sees that it is not.
func (p *progressWriter) close(whole bool) {
	close(p.stop)
	<-p.stopped
	if !p.headSent() {
		return
	}
	if whole && p.chooseWriter() == nil && p.body.Close() == nil {
		_, _ = io.WriteString(p.conn, "\r\n") // ends the empty trailers
	}
	p.conn.Close()
}

// progress is the value of a progress line for a connection's query, zeros while the query waits
// for a connection.
func (p *pool) progress(ctx context.Context, tag string, since time.Time) string {
	var rows, size, total, memory string
	if tag != "" && ctx.Err() == nil {
		rows, size, total, memory = p.running(tag)
	}
	decimal := func(s string) string { return cmp.Or(s, "0") }
	text, err := json.Marshal(struct {
		ReadRows  string `json:"read_rows"`
		ReadBytes string `json:"read_bytes"`
		TotalRows string `json:"total_rows_to_read"`
		Elapsed   string `json:"elapsed_ns"`
		Memory    string `json:"memory_usage"`
	}{decimal(rows), decimal(size), decimal(total), strconv.FormatInt(time.Since(since).Nanoseconds(), 10), decimal(memory)})
	if err != nil {
		return "{}"
	}
	return string(text)
}

// running returns the engine's progress of the query on a connection: rows and bytes read so far,
// the expected total of rows, bytes of memory. All are empty without a query.
func (p *pool) running(tag string) (rows, size, total, memory string) {
	p.controlMu.Lock()
	defer p.controlMu.Unlock()
	if p.control.handle == nil {
		return "", "", "", ""
	}
	sql := "SELECT read_rows, read_bytes, total_rows_approx, greatest(memory_usage, 0) FROM system.processes WHERE Settings['log_comment'] = " + quoteString(tag) + " LIMIT 1"
	_ = p.control.query(sql, "TabSeparated", nil, func(line []byte) error {
		if fields := strings.Fields(string(line)); len(fields) == 4 {
			rows, size, total, memory = fields[0], fields[1], fields[2], fields[3]
		}
		return nil
	})
	return rows, size, total, memory
}
