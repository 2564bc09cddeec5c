package chdb

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hijacked hands out one end of a pipe as its connection.
type hijacked struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, nil, nil }

func (h hijacked) SetReadDeadline(time.Time) error  { return nil }
func (h hijacked) SetWriteDeadline(time.Time) error { return nil }

// TestProgressFitsAHead: the longest allowed query produces a head that Node accepts, and no
// silence longer than clients tolerate.
func TestProgressFitsAHead(t *testing.T) {
	for _, interval := range []time.Duration{defaultProgressInterval, time.Second, 25 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			text := make(chan string)
			longest, last := time.Duration(0), time.Now()
			go func() {
				var all strings.Builder
				for b := make([]byte, 4096); ; {
					n, err := theirs.Read(b)
					longest, last = max(longest, time.Since(last)), time.Now()
					all.Write(b[:n])
					if err != nil {
						text <- all.String()
						return
					}
				}
			}()
			line := (&pool{}).progress(t.Context(), "", time.Now().Add(-maxReaderSeconds*time.Second))
			line += strings.Repeat("9", 60) // the maximum length of its numbers
			p := newProgressWriter(hijacked{httptest.NewRecorder(), ours}, interval, func() string { return line }, func() {})
			time.Sleep(maxReaderSeconds * time.Second)
			if _, err := io.WriteString(p, "body"); err != nil {
				t.Error(err)
			}
			p.close(true)
			head, body, found := strings.Cut(<-text, "\r\n\r\n")
			if body != "4\r\nbody\r\n0\r\n\r\n" || !found {
				t.Errorf("%s: body %q", interval, body)
			}
			if len(head) > 15<<10 || longest > max(interval, calmProgress)+time.Second {
				t.Errorf("%s: a head of %d bytes, silent for %s", interval, len(head), longest)
			}
		})
	}
}

// noHijack cannot hand out its connection, as with HTTP/2.
type noHijack struct{ *httptest.ResponseRecorder }

func TestProgressWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := noHijack{httptest.NewRecorder()}
		p := newProgressWriter(w, time.Second, func() string { return "{}" }, func() {})
		time.Sleep(time.Minute)
		p.WriteHeader(http.StatusTeapot)
		_, err := io.WriteString(p, "body")
		p.close(true)
		if w.Code != http.StatusTeapot || w.Body.String() != "body" || err != nil {
			t.Errorf("%d %q, %v", w.Code, w.Body, err)
		}
		if err := p.SetWriteDeadline(time.Now()); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("deadline: %v", err)
		}
	})
}
