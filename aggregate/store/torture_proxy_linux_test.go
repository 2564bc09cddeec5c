package store

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Faults that the proxy injects into a request.
const (
	cutBefore      = "cut before the request"
	cutRequest     = "cut in the request"
	cutBeforeReply = "cut before the answer" // after the server has taken it
	cutReply       = "cut in the answer"
	delayed        = "delay"
	duplicated     = "duplicate"
	duplicatedLate = "late duplicate" // after the following request
)

var wireFaults = []string{cutBefore, cutRequest, cutBeforeReply, cutReply, delayed, duplicated, duplicatedLate}

// wire is a proxy in front of the engine that disturbs requests.
type wire struct {
	server string // socket
	tally  *tally
	rate   float64 // of disturbed requests
	down   atomic.Bool

	mu   sync.Mutex
	rng  *rand.Rand
	late [][]byte // requests to repeat
}

// startWire returns the proxy and its socket.
func startWire(t *testing.T, server string, rate float64, rng *rand.Rand, count *tally) (*wire, string) {
	t.Helper()
	w := &wire{server: server, tally: count, rate: rate, rng: rng}
	socket := filepath.Join(t.TempDir(), "wire")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer client.Close()
				stop := context.AfterFunc(ctx, func() { client.Close() })
				defer stop()
				w.serve(client)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		cancel()
		open.Wait()
	})
	return w, socket
}

// serve answers one connection until it is cut.
func (w *wire) serve(client net.Conn) {
	in := bufio.NewReader(client)
	for {
		request, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		insert := strings.HasPrefix(request.URL.Query().Get("query"), "INSERT")
		whole, err := httputil.DumpRequest(request, true)
		if err != nil || w.down.Load() {
			return
		}
		if err := w.pass(client, whole, insert); err != nil {
			return
		}
	}
}

var errCut = errors.New("cut")

// pass forwards a request, perhaps with a fault.
func (w *wire) pass(client net.Conn, request []byte, insert bool) error {
	w.mu.Lock()
	fault := ""
	if w.rng.Float64() < w.rate {
		fault = wireFaults[w.rng.IntN(len(wireFaults))]
	}
	part, pause := w.rng.Float64(), time.Duration(w.rng.IntN(40))*time.Millisecond
	var repeat [][]byte
	if insert && w.rng.IntN(3) == 0 {
		repeat, w.late = w.late, nil
	}
	if !insert && (fault == duplicated || fault == duplicatedLate) {
		fault = delayed
	}
	if fault == duplicatedLate {
		w.late = append(w.late, request)
	}
	w.mu.Unlock()
	if fault != "" {
		w.tally.add(wireKind(fault), fault)
	}
	for _, r := range repeat {
		_, _ = w.ask(r)
	}
	switch fault {
	case cutBefore:
		return errCut
	case cutRequest:
		w.abandon(request[:int(part*float64(len(request)))])
		return errCut
	case delayed:
		time.Sleep(pause)
	case duplicated:
		_, _ = w.ask(request)
	}
	answer, err := w.ask(request)
	if err != nil {
		return err
	}
	switch fault {
	case cutBeforeReply:
		return errCut
	case cutReply:
		_, _ = client.Write(answer[:int(part*float64(len(answer)))])
		return errCut
	}
	_, err = client.Write(answer)
	return err
}

func wireKind(fault string) string {
	switch fault {
	case delayed:
		return "delays"
	case duplicated, duplicatedLate:
		return "duplicates"
	}
	return "cuts"
}

// ask sends a request to the server and returns its whole answer.
func (w *wire) ask(request []byte) ([]byte, error) {
	server, err := net.Dial("unix", w.server)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	if _, err := server.Write(request); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(server), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return httputil.DumpResponse(response, true)
}

// abandon sends only the beginning of a request.
func (w *wire) abandon(part []byte) {
	server, err := net.Dial("unix", w.server)
	if err != nil {
		return
	}
	defer server.Close()
	_, _ = server.Write(part)
}
