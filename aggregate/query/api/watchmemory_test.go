package api_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
)

// stalled opens watches that never read an answer. It uses raw connections: a client's buffers
// would count as the server's, since both are in this process.
type stalled struct {
	address string
	http2   bool
}

// open sends a request over a connection of its own.
func (c stalled) open(t *testing.T, method, target, accept, contentType string, body []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	var request bytes.Buffer
	if !c.http2 {
		fmt.Fprintf(&request, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, c.address)
		for name, value := range map[string]string{"Accept-Encoding": accept, "Content-Type": contentType, "Content-Length": fmt.Sprint(len(body)), "Connect-Protocol-Version": "1"} {
			fmt.Fprintf(&request, "%s: %s\r\n", name, value)
		}
		request.WriteString("\r\n")
		request.Write(body)
	} else {
		request.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		frame := func(kind, flags byte, stream uint32, payload []byte) {
			request.Write(binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind)))
			request.Write(binary.BigEndian.AppendUint32([]byte{flags}, stream))
			request.Write(payload)
		}
		var head []byte
		text := func(s string) { // RFC 7541, section 5.2
			if len(s) < 127 {
				head = append(head, byte(len(s)))
			} else {
				head = binary.AppendUvarint(append(head, 127), uint64(len(s)-127))
			}
			head = append(head, s...)
		}
		for _, field := range [][2]string{
			{":method", method},
			{":scheme", "http"},
			{":authority", c.address},
			{":path", target},
			{"accept-encoding", accept},
			{"content-type", contentType},
			{"connect-protocol-version", "1"},
		} {
			head = append(head, 0) // a literal that is not indexed
			text(field[0])
			text(field[1])
		}
		const data, headers, settings, endStream, endHeaders = 0, 1, 4, 1, 4
		frame(settings, 0, 0, nil)
		frame(headers, endHeaders, 1, head)
		frame(data, endStream, 1, body)
	}
	if _, err := conn.Write(request.Bytes()); err != nil {
		t.Fatal(err)
	}
}

// watch opens a watch of all cells; its question is unique if apart is above 0.
func (c stalled) watch(t *testing.T, as string, apart int) {
	t.Helper()
	in := &wire.WatchRequest{}
	if apart > 0 {
		in.MinHeavyRatio = proto.Float64(float64(apart) * 1e-9)
	}
	body := func(message []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	}
	values := url.Values{}
	if apart > 0 {
		values.Set("min_heavy_ratio", fmt.Sprint(in.GetMinHeavyRatio()))
	}
	path := "/" + wire.QueryServiceName + "/Watch"
	switch as {
	case "sse", "gzip":
		accept := strings.TrimPrefix(as, "sse")
		c.open(t, "GET", "/api/v1/watch?"+values.Encode(), accept, "", nil)
	case "frames":
		values.Set("encoding", "frames")
		c.open(t, "GET", "/api/v1/watch?"+values.Encode(), "", "", nil)
	case "proto":
		message, err := proto.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		c.open(t, "POST", path, "", "application/connect+proto", body(message))
	case "json":
		message, err := protojson.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		c.open(t, "POST", path, "", "application/connect+json", body(message))
	}
}

// TestStalledWatchers: 128 watchers of 4096 cells that do not read use less than 100 MB together,
// for every protocol and encoding, with equal and different questions. They stall at different
// windows, which memory has dropped in the end.
func TestStalledWatchers(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short; the heap is larger under the race detector")
	}
	const most = 100 << 20
	alone := heapWithStalled(t, 0, false, "sse", false, 0)
	for _, c := range []struct {
		http2 bool
		as    string
		apart bool
	}{
		{false, "sse", false},
		{false, "sse", true},
		{true, "gzip", true},
		{true, "sse", true},
		{false, "frames", true},
		{false, "proto", false},
		{true, "json", true},
	} {
		name := fmt.Sprintf("http2 %t, %s, apart %t", c.http2, c.as, c.apart)
		if n := heapWithStalled(t, 128, c.http2, c.as, c.apart, alone+most) - alone; n > most {
			t.Errorf("%s: %d MiB, want at most %d", name, n>>20, most>>20)
		} else {
			t.Logf("%s: %d MiB", name, n>>20)
		}
	}
}

// heapWithStalled is the heap of a server, in bytes, with a number of stalled watchers. It waits
// until it is no more than enough.
func heapWithStalled(t *testing.T, watchers int, http2 bool, as string, apart bool, enough int) int {
	t.Helper()
	const before, during, after, cells = 4, 16, 12, 4096
	s := newServed(t, cells, func(c *api.Config) {
		c.CacheBytes = 16 << 20
		c.Memory = table.NewMemory(table.MemoryOptions{Windows: 8, Log: 8, Now: tabletest.Still})
	})
	s.memory = s.Memory
	server := httptest.NewUnstartedServer(s)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	defer server.CloseClientConnections()
	for i := range before {
		s.window(t, i)
	}
	c, opened := stalled{server.Listener.Addr().String(), http2}, 0
	for i := range during {
		for ; opened < watchers*(i+1)/during; opened++ {
			n := 0
			if apart {
				n = opened + 1
			}
			c.watch(t, as, n)
		}
		for from := time.Now(); begun(s) < opened; time.Sleep(5 * time.Millisecond) {
			if time.Since(from) > 3*time.Minute {
				t.Fatalf("%d of %d watchers came in", begun(s), opened)
			}
		}
		s.window(t, before+i)
	}
	for i := range after {
		s.window(t, before+during+i)
	}
	least := math.MaxInt
	for range 20 { // some are still being sent an event, and stall soon
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if least = min(least, int(m.HeapInuse+m.StackInuse)); least <= enough || watchers == 0 {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	n, _ := s.Counts()
	slow, crowded := s.Disconnects()
	t.Logf("%d watchers, %d cut as slow, %d since others waited", n, slow, crowded)
	return least
}

// begun is the number of watchers that have started.
func begun(s *served) int {
	n, _ := s.Counts()
	slow, crowded := s.Disconnects()
	return n + int(slow+crowded)
}
