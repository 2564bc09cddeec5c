package api_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// counted is a stream of server-sent events.
type counted struct {
	body   io.Reader
	end    string // of an event
	buffer []byte
}

func (c *counted) skip(t testing.TB, events int) {
	t.Helper()
	for all := []byte(nil); bytes.Count(all, []byte(c.end)) < events; {
		n, err := c.body.Read(c.buffer)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c.buffer[:n]...)
	}
}

// event reads an event until the bytes read end with the end of an event. It returns the length.
func (c *counted) event(t testing.TB) (length int) {
	t.Helper()
	kept := 0 // of the previous read: an end may be split over two reads
	for {
		n, err := c.body.Read(c.buffer[kept:])
		if err != nil {
			t.Errorf("read event: %v", err)
			return length
		}
		all := c.buffer[:kept+n]
		if length += n; bytes.HasSuffix(all, []byte(c.end)) {
			return length
		}
		kept = copy(c.buffer, all[max(0, len(all)-len(c.end)):])
	}
}

// counting reads server-sent events with the given end.
func counting(parameters, accept, end string) opener {
	return func(t testing.TB, url string) reader {
		t.Helper()
		body := openBody(t, url+"/api/v1/watch"+parameters, "Accept-Encoding", accept)
		c := &counted{body: body, end: end, buffer: make([]byte, 64<<10)}
		c.skip(t, 3) // the start, the snapshot, and synced
		return c
	}
}

// called is a stream of messages of the Connect protocol, each after a byte of flags and its
// length.
type called struct {
	body   io.Reader
	buffer []byte
}

func (c *called) event(t testing.TB) (length int) {
	t.Helper()
	var head [5]byte
	if _, err := io.ReadFull(c.body, head[:]); err != nil {
		t.Errorf("read message: %v", err)
		return 0
	}
	length = int(binary.BigEndian.Uint32(head[1:]))
	for left := length; left > 0; {
		n, err := c.body.Read(c.buffer[:min(left, len(c.buffer))])
		if err != nil {
			t.Errorf("read message: %v", err)
			return 0
		}
		left -= n
	}
	return length
}

// calling opens streams of calls that accept gzip, as most clients do.
func calling(encoding string) opener {
	return func(t testing.TB, url string) reader {
		t.Helper()
		message, err := proto.Marshal(&wire.WatchRequest{Encoding: encoding})
		if err != nil {
			t.Fatal(err)
		}
		message = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
		r, err := http.NewRequestWithContext(t.Context(), "POST", url+wire.QueryServiceWatchProcedure, bytes.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/connect+proto")
		r.Header.Set("Connect-Accept-Encoding", "gzip")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		if response.StatusCode != 200 {
			t.Fatalf("status %d", response.StatusCode)
		}
		c := &called{response.Body, make([]byte, 64<<10)}
		for range 2 { // the snapshot and synced
			c.event(t)
		}
		return c
	}
}
